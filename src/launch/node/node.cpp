// SPDX-License-Identifier: MIT
#include "launch/node/node.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "aplib/options.hpp"
#include "aplib/version.hpp"
#include "base/cell_map.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "base/os/time.hpp"
#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "comm/tcp/address.hpp"
#include "kernel/process.hpp"
#include "kernel/programs.hpp"
#include "launch/cluster/speed.hpp"
#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"
#include "launch/node/data_port.hpp"
#include "launch/node/keeper.hpp"
#include "launch/node/streams.hpp"
#include "launch/program_run.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"
#include "launch/watchdog.hpp"
#include "launch/wire/connection.hpp"
#include "launch/wire/endpoint.hpp"
#include "launch/wire/event_loop.hpp"
#include "launch/wire/files.hpp"
#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"
#include "launch/wire/status.hpp"

namespace aplib::launch::node {
namespace {

struct Letter {
  wire::MessageType type = wire::MessageType::beat;
  wire::Bytes body{};
};

/// Thread safety: all functions may be called from any thread.
class Letterbox {
 public:
  void put(wire::MessageType type, std::span<const std::byte> body) {
    {
      const std::lock_guard lock(mutex_);
      letters_.push_back({type, wire::Bytes(body.begin(), body.end())});
    }
    changed_.notify_all();
  }
  /// Says that nothing comes any more.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  /// Waits for the next letter. Nothing when the letterbox is closed and empty.
  std::optional<Letter> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !letters_.empty(); });
    if (letters_.empty()) return std::nullopt;
    Letter letter = std::move(letters_.front());
    letters_.pop_front();
    return letter;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Letter> letters_;
  bool closed_ = false;
};

using namespace std::chrono_literals;

constexpr auto grace = 1s;                   // from being told to stop to the end by force
constexpr auto watchdog_grace = 2s;          // the same, should the loop hang
constexpr auto close_patience = 1s;          // for the last frames
constexpr auto patience_without_route = 3s;  // a network may be coming up
constexpr int failed_status = static_cast<int>(ExitStatus::program_failed);
constexpr int gone_status = static_cast<int>(ExitStatus::peer_lost);  // the launcher has gone

/// The launcher has gone.
struct Gone {};
/// The launcher has called the start off.
struct CalledOff {
  std::string text;
};

/// Whether standard input matters.
enum class Input : std::uint8_t {
  none,
  watched,  ///< Its end means that the launcher has gone.
  spoken,   ///< The launcher speaks on it, and is spoken to on standard output.
};

class Node final : public Supervisor {
 public:
  Node(NodeCommand command, const comm::JobKey& key, Input input)
      : command_(std::move(command)), key_(key), standard_input_(input), last_resort_(loop_) {}
  ~Node() override {
    loop_.stop();
    if (loop_thread_.joinable()) loop_thread_.join();
  }

  int run();

  bool ready() override;
  void send_note(std::span<const std::byte> note) override;
  std::string program_file(const std::string& file) override;

 private:
  // On the loop's thread.
  void take(wire::MessageType type, std::span<const std::byte> body);
  bool pass_on(wire::MessageType type, std::span<const std::byte> body);
  void take_note(std::span<const std::byte> body);
  void answer(std::span<const std::byte> body);
  std::optional<bool> pass_signal_on(int signal, pid_t sender = 0);
  [[nodiscard]] wire::NodeState state();
  void input_ended();
  void launcher_gone(const std::string& why);
  void told_to_end(int status);
  void end_soon();
  void run_loop();
  [[noreturn]] void end_at_once(const char* why);

  // On the main thread.
  [[nodiscard]] wire::ConnectionSettings settings() const;
  void take_connection(std::shared_ptr<wire::Connection> connection);
  void give_up(const std::string& why);
  void call_launcher();
  void greet_launcher();
  int live();
  void cannot(const std::string& why);
  wire::Prepare arrive();
  [[nodiscard]] std::string reached_at() const;
  void begin_streams(bool input_for_all);
  void begin_run(Machine& machine, comm::Module& module, const wire::Plan& plan);
  void end_run();
  int keep(const wire::Prepare& prepare, const Options& options);
  Watchdog::Actions watch();
  Letter next();
  template <class Message>
  Message await();
  void measure(const wire::MeasureSpeed& how);
  wire::Plan await_plan(DataPort& port);
  using Receivers = std::map<std::uint32_t, files::Receiver>;  // by the transfer's number
  void receive(Receivers& receivers);
  std::vector<std::string> get_files(const std::vector<wire::FileRef>& files,
                                     const std::vector<wire::TransferText>& transfers);
  std::vector<std::string> get_files(const wire::Prepare& prepare);
  bool send_files(const wire::TransferText& text);
  void finish(const wire::Finished& finished);

  const NodeCommand command_;
  const comm::JobKey key_;
  const Input standard_input_;
  wire::EventLoop loop_;
  wire::Timer last_resort_;
  std::thread loop_thread_;
  std::shared_ptr<wire::Connection> greeted_;     // the loop's, until it is the connection
  std::shared_ptr<wire::Connection> connection_;  // set before the main thread goes on
  std::string no_connection_;                     // why there is none, and what to do
  Letterbox letters_;                             // for the main thread
  Letterbox files_;                               // answers about files, for the thread that asked
  Letterbox notes_;                               // of the overseer
  wire::StagedFiles staged_;
  std::string host_id_;
  std::uint32_t next_transfer_ = wire::own_transfers;
  std::vector<wire::TransferText> fetches_;
  std::atomic<bool> fetching_ = false;  // the run is over, and the launcher fetches files
  std::mutex file_mutex_;               // one question about files at a time
  std::mutex note_mutex_;               // pieces of notes do not mix
  wire::Bytes unfinished_note_;         // the loop's

  std::mutex mutex_;  // of what follows, which the main thread makes and the loop's uses
  std::unique_ptr<InputPipes> input_;
  std::unique_ptr<NodeSink> sink_;
  Keeper* keeper_ = nullptr;
  Machine* machine_ = nullptr;
  comm::Module* module_ = nullptr;
  std::uint32_t processes_ = 0;
  std::vector<wire::PlannedWay> ways_;
  bool gone_ = false;
};

void Node::take(wire::MessageType type, std::span<const std::byte> body) {
  const auto with = [&]<class Message>(auto&& what) {
    if (const auto message = wire::decode<Message>(body)) {
      const std::lock_guard lock(mutex_);
      what(*message);
    } else {
      launcher_gone("it does not speak this version's protocol");
    }
  };
  if (pass_on(type, body)) return;
  switch (type) {
    case wire::MessageType::note:
      return take_note(body);
    case wire::MessageType::written:
      return with.operator()<wire::Written>([&](const wire::Written& written) {
        if (sink_) sink_->written(written.bytes);
      });
    case wire::MessageType::input:
      return with.operator()<wire::InputPiece>([&](const wire::InputPiece& piece) {
        if (input_) input_->take(piece.cell, piece.bytes, piece.last);
      });
    case wire::MessageType::stop:
      if (!fetching_) end_soon();  // the run is over, and its files count
      return;
    case wire::MessageType::ask:
      return answer(body);
    case wire::MessageType::program:
      return files_.put(type, body);
    case wire::MessageType::transfer:
      return (fetching_ ? letters_ : files_).put(type, body);
    case wire::MessageType::refused:
      letters_.put(type, body);
      return files_.close();  // whoever waits for files looks at the letters
    default:
      return letters_.put(type, body);
  }
}

/// What is for the process that this node keeps. False: it keeps none, or the message is for the node.
bool Node::pass_on(wire::MessageType type, std::span<const std::byte> body) {
  const std::lock_guard lock(mutex_);
  if (keeper_ == nullptr) return false;
  if (type == wire::MessageType::refused) keeper_->end();
  return keeper_->pass_on(type, body);
}

void Node::take_note(std::span<const std::byte> body) {
  const auto note = wire::decode<wire::Note>(body);
  if (!note || unfinished_note_.size() + note->bytes.size() > wire::note_bytes_max)
    return launcher_gone("it does not speak this version's protocol");
  unfinished_note_.insert(unfinished_note_.end(), note->bytes.begin(), note->bytes.end());
  if (!note->last) return;
  notes_.put(wire::MessageType::note, unfinished_note_);
  unfinished_note_.clear();
}

/// Answers what people ask through apctl. A further question is a further line here.
void Node::answer(std::span<const std::byte> body) {
  const auto ask = wire::decode<wire::Ask>(body);
  if (!ask) return launcher_gone("it does not speak this version's protocol");
  wire::Bytes bytes;
  if (ask->what == wire::node_state_question) bytes = wire::encode(state());
  if (const auto signal = wire::asked_signal(ask->what)) bytes = wire::signal_answer(pass_signal_on(*signal));
  connection_->send(wire::Answer{ask->question, bytes});
}

std::optional<bool> Node::pass_signal_on(int signal, pid_t sender) {
  const std::lock_guard lock(mutex_);
  if (keeper_ != nullptr) return keeper_->pass_signal(signal);
  return machine_ != nullptr ? pass_signal(*machine_, signal, sender) : false;
}

wire::NodeState Node::state() {
  const std::lock_guard lock(mutex_);
  if (module_ == nullptr) return {.cpu_microseconds = os::cpu_microseconds()};
  wire::NodeState state = state_of(*module_, command_.process, processes_, ways_);
  state.polls = describe_waits(*machine_);
  return state;
}

/// The starter of this process has gone. The launcher may still be there, if only the way to the starter was cut.
void Node::input_ended() {
  if (connection_) connection_->send(wire::ToldToEnd{0});
  // Behind the message, which the loop is to send: the main thread ends the process then.
  loop_.post([this] { launcher_gone("standard input has ended"); });
}

void Node::launcher_gone(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(gone_, true)) return;
    if (sink_) sink_->drop();
    if (input_) input_->close_all();
    if (machine_ != nullptr) stop_machine(*machine_, gone_status, fmt::format("the launcher is gone: {}", why));
  }
  letters_.close();
  files_.close();
  if (connection_) connection_->close();
  end_soon();
}

/// SIGTERM came from outside. The launcher ends the whole machine, and this node ends at once.
void Node::told_to_end(int status) {
  const int signal = status - 128;
  connection_->send(wire::ToldToEnd{signal});
  {
    const std::lock_guard lock(mutex_);
    if (machine_ != nullptr) stop_machine(*machine_, status, fmt::format("told to end by signal {}", signal));
  }
  end_soon();
}

void Node::end_soon() {
  int status = failed_status;
  {
    const std::lock_guard lock(mutex_);
    if (keeper_ != nullptr) keeper_->end();
    if (input_) input_->close_all();  // cells that read notice the end
    status = gone_ ? gone_status : failed_status;
  }
  last_resort_.start(grace, [this, status] {
    {
      const std::lock_guard lock(mutex_);
      if (keeper_ != nullptr) keeper_->kill();
    }
    staged_.remove();
    ::_exit(status);
  });
}

/// Whether this host has a route to that endpoint. Sends nothing.
bool leads_there(const std::string& endpoint) {
  try {
    static_cast<void>(comm::tcp::local_address_towards(endpoint));
    return true;
  } catch (const Error&) {
    return false;
  }
}

wire::ConnectionSettings Node::settings() const {
  wire::ConnectionSettings own{.key = key_};
  own.self = command_.process;
  own.timeout = command_.timeout;
  return own;
}

/// The launcher has proved the key.
void Node::take_connection(std::shared_ptr<wire::Connection> connection) {
  connection_ = std::move(connection);
  connection_->trust();
  wire::ConnectionEvents events;
  events.message = [this](wire::MessageType type, std::span<const std::byte> body) { take(type, body); };
  events.closed = [this](wire::ConnectionEnd, const std::string& why) { launcher_gone(why); };
  connection_->listen(std::move(events));
  letters_.put(wire::MessageType::hello, {});
}

void Node::give_up(const std::string& why) {
  no_connection_ = why;
  letters_.close();
}

void Node::call_launcher() {
  wire::ConnectionSettings calling = settings();
  calling.secure = command_.secure;
  if (command_.secure == comm::Secure::tls) calling.tls = std::make_shared<comm::TlsContext>();
  wire::Connecting connecting;
  connecting.endpoints = command_.endpoints;
  const bool has_route = std::ranges::any_of(command_.endpoints, leads_there);
  if (!has_route) connecting.patience = patience_without_route;
  connecting.made = [this](std::shared_ptr<wire::Connection> connection) { take_connection(std::move(connection)); };
  connecting.failed = [this, has_route](const std::string& why, bool reached) {
    give_up(fmt::format(
        "{}; {}", why,
        reached     ? "did the key that came on standard input belong to another machine, or has another program "
                      "taken that port?"
        : has_route ? "does a firewall stand between? ports = \"FIRST-LAST\" in [comm] names ports to open"
                    : "this host has no way there: is its network up?"));
  };
  if (standard_input_ == Input::watched) {
    loop_.post([this] { wire::watch_end(loop_, STDIN_FILENO, [this] { input_ended(); }); });
  }
  wire::connect_to_launcher(loop_, calling, std::move(connecting));
}

/// Takes standard input and output for the launcher alone. What this process, or a program in it, prints there goes to
/// standard error, which the launcher shows; who reads comes to the end. Throws Error(exhausted).
os::Ends take_standard_streams() {
  const auto copy = [](int descriptor) {
    os::UniqueFd own(::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!own) os::refuse_descriptor("a copy of a standard stream");
    return own;
  };
  os::Ends ends{copy(STDIN_FILENO), copy(STDOUT_FILENO)};
  const os::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing || ::dup2(nothing.get(), STDIN_FILENO) < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    os::refuse_descriptor("other standard streams");
  return ends;
}

void Node::greet_launcher() {
  const auto ends = std::make_shared<os::Ends>(take_standard_streams());
  if (command_.kept) {
    return loop_.post([this, ends] {
      take_connection(wire::join_pair(loop_, settings(), std::move(*ends), comm::Introduction::launcher, {}));
    });
  }
  loop_.post([this, ends] {
    wire::ConnectionEvents events;
    events.opened = [this](std::uint32_t) { take_connection(std::move(greeted_)); };
    events.closed = [this](wire::ConnectionEnd, const std::string& why) {
      give_up(fmt::format("what speaks on standard input is not the launcher: {}", why));
    };
    greeted_ =
        wire::connect_pair(loop_, settings(), std::move(*ends), comm::Introduction::launcher, "", std::move(events));
  });
}

void Node::run_loop() {
  try {
    loop_.run();
  } catch (const std::exception& error) {
    end_at_once(failure_text(error).c_str());
  }
}

/// The loop cannot go on, so nothing more can be told to the launcher. It hears these words from the starter.
void Node::end_at_once(const char* why) {
  tell_user("", why);
  staged_.remove();
  ::_exit(failed_status);
}

Letter Node::next() {
  std::optional<Letter> letter = letters_.take();
  if (!letter) throw Gone{};
  if (letter->type == wire::MessageType::refused) {
    const auto refused = wire::decode<wire::Refused>(letter->body);
    throw CalledOff{refused ? refused->text : std::string()};
  }
  return std::move(*letter);
}

template <class Message>
Message Node::await() {
  const Letter letter = next();
  if (letter.type == Message::type) {
    if (auto message = wire::decode<Message>(letter.body)) return *std::move(message);
  }
  throw Error(Errc::failed, "the launcher does not speak this version's protocol");
}

int Node::run() {
  standard_input_ == Input::spoken ? greet_launcher() : call_launcher();
  loop_thread_ = os::quiet_thread("aprun-loop", [this] { run_loop(); });
  const std::optional<Letter> connected = letters_.take();
  if (!connected) {
    if (!no_connection_.empty()) tell_user("", fmt::format("cannot reach the launcher: {}", no_connection_));
    return failed_status;
  }
  int status = failed_status;
  try {
    status = live();
  } catch (const Gone&) {
    status = gone_status;
  } catch (const CalledOff&) {
    // The launcher has told the cause.
  } catch (const std::exception& error) {
    cannot(failure_text(error));
  }
  staged_.remove();
  return status;
}

/// Tells the launcher why this node cannot go on, and waits for its leave.
void Node::cannot(const std::string& why) {
  connection_->send(wire::Cannot{why});
  while (const auto letter = letters_.take()) {
    if (letter->type == wire::MessageType::refused || letter->type == wire::MessageType::leave) break;
  }
}

/// The address of this host by which the launcher, or the last host on the way, has reached it, if that is known.
std::string Node::reached_at() const {
  if (standard_input_ != Input::spoken) return connection_->local_address();
  // "CLIENT PORT SERVER PORT", by sshd. Where sshd was not called by the network it says UNKNOWN.
  const char* const variable = std::getenv("SSH_CONNECTION");
  std::istringstream words(variable == nullptr ? "" : variable);
  std::string word;
  for (int i = 0; i < 3; ++i) words >> word;
  return words && wire::is_numeric_address(word) ? word : std::string();
}

/// Where this host gets messages. Throws Error(failed).
std::string data_address(const wire::Prepare& prepare) {
  if (!prepare.address.empty()) return prepare.address;
  if (const auto address = wire::local_address_towards(prepare.others)) return *address;
  throw Error(Errc::failed, fmt::format("it has no address for messages, for no route leads to the others ({}): is its "
                                        "network up? address = \"...\" in [[host]] names the address to use",
                                        fmt::join(prepare.others, ", ")));
}

/// Says who this host is, measures its speed if asked, and hears what shall run.
wire::Prepare Node::arrive() {
  wire::Hello hello = describe_this_host();
  hello.version = version;
  hello.process = command_.process;
  hello.local = reached_at();
  host_id_ = hello.host_id;
  connection_->send(hello);
  Letter letter = next();
  while (letter.type == wire::MessageType::measure) {
    const auto how = wire::decode<wire::MeasureSpeed>(letter.body);
    if (!how) throw Error(Errc::failed, "the launcher does not speak this version's protocol");
    measure(*how);
    letter = next();
  }
  auto prepare = wire::decode<wire::Prepare>(letter.body);
  if (letter.type != wire::MessageType::prepare || !prepare)
    throw Error(Errc::failed, "the launcher does not speak this version's protocol");
  return *std::move(prepare);
}

void Node::begin_streams(bool input_for_all) {
  const std::lock_guard lock(mutex_);
  if (gone_) throw Gone{};
  input_ = std::make_unique<InputPipes>(loop_, [this](std::uint32_t cell, std::uint64_t bytes) {
    connection_->send(wire::WantInput{cell, bytes});
  });
  sink_ = std::make_unique<NodeSink>(*connection_, *input_, input_for_all);
}

/// From here on the loop's thread reaches the machine.
void Node::begin_run(Machine& machine, comm::Module& module, const wire::Plan& plan) {
  const std::lock_guard lock(mutex_);
  if (gone_) throw Gone{};
  machine_ = &machine;
  module_ = &module;
  processes_ = static_cast<std::uint32_t>(plan.names.size());
  ways_ = plan.ways;
}

void Node::end_run() {
  const std::lock_guard lock(mutex_);
  machine_ = nullptr;
  module_ = nullptr;
  keeper_ = nullptr;
}

/// For signals from outside.
Watchdog::Actions Node::watch() {
  return {
      .stop = [this](int status, const std::string&) { loop_.post([this, status] { told_to_end(status); }); },
      .last_words = [this] { staged_.remove(); },
      .pass_on = [this](int signal,
                        pid_t sender) { return signal != SIGTERM && pass_signal_on(signal, sender).value_or(false); },
      .grace = watchdog_grace};
}

/// Instead of cells of its own, the node has an ordinary process.
int Node::keep(const wire::Prepare& prepare, const Options& options) {
  std::vector<std::string> files;
  for (const wire::FileRef& file : prepare.files) files.push_back(file.path);
  const RunText text{
      .programs = prepare.programs, .expand = prepare.expand, .grid = options.cells, .host_cells = prepare.host_cells};
  const std::string address = data_address(prepare);
  begin_streams(prepare.input_for_all);
  Keeper keeper(
      *connection_, *sink_, prepare.cell,
      {.process = command_.process, .key = key_.reveal_hex(), .options = prepare.options, .address = address});
  {
    const std::lock_guard lock(mutex_);
    if (gone_) throw Gone{};
    keeper_ = &keeper;
  }
  wire::Finished finished;
  try {
    const Watchdog watchdog(std::nullopt, watch());
    finished = keeper.run(text, files);
  } catch (...) {
    end_run();
    throw;
  }
  end_run();
  finish(finished);
  return 0;
}

int Node::live() {
  const wire::Prepare prepare = arrive();
  Options options;
  for (const wire::NamedValue& option : prepare.options) options.set(option.name, option.value);
  if (!prepare.keeps || options.bind) keep_to_cpus(prepare.cpus);
  const std::vector<std::string> files = get_files(prepare);
  if (prepare.keeps) return keep(prepare, options);
  if (prepare.programs.size() == 1) {  // then shared libraries may see them, too
    for (const wire::NamedValue& variable : prepare.programs.front().variables)
      ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
  }
  DataPort port(options, data_address(prepare), key_);
  connection_->send(port.offer());

  allow_many_files();
  const wire::Plan plan = await_plan(port);
  const bool openmp = has_openmp_threads();
  share_cpus(static_cast<std::uint32_t>(plan.cells.cells_of(command_.process).size()));
  const std::unique_ptr<comm::Module> module = port.make_module(plan, command_.process);
  Machine machine(options);
  ProgramRun run = make_run({.programs = prepare.programs,
                             .entry = prepare.entry,
                             .entry_arguments = prepare.entry_arguments,
                             .expand = prepare.expand,
                             .grid = options.cells,
                             .host_cells = prepare.host_cells},
                            files);
  run.has_openmp_threads = openmp;
  begin_streams(prepare.input_for_all);
  begin_run(machine, *module, plan);
  std::optional<Watchdog> watchdog;
  std::thread note_taker;
  const auto over = [&] {
    files_.close();
    notes_.close();
    if (note_taker.joinable()) note_taker.join();
    watchdog.reset();
    end_run();
  };
  Report report;
  try {
    // Installed before the machine's own handler, which would stop this process and not tell the launcher.
    watchdog.emplace(std::nullopt, watch());
    note_taker = os::quiet_thread("aprun-notes", [&] {
      while (const auto note = notes_.take()) receive_note(machine, note->body);
    });
    Process process;
    process.self = command_.process;
    process.cells = plan.cells;
    process.names = plan.names;
    process.module = module.get();
    process.supervisor = this;
    report = run_process(machine, run, *sink_, process);
  } catch (...) {
    over();
    module->close(0ns);  // it calls the machine, which goes first
    throw;
  }
  over();
  module->close(close_patience);
  finish({report.exit_status, report.reason, {report.cell_status.begin(), report.cell_status.end()}});
  if (programs_remain(machine)) {  // their threads must not meet the destructors of globals
    staged_.remove();
    ::_exit(0);
  }
  return 0;
}

void Node::finish(const wire::Finished& finished) {
  if (!fetches_.empty()) {
    fetching_ = true;
    loop_.post([this] { last_resort_.cancel(); });
  }
  connection_->send(finished);
  for (const wire::TransferText& text : fetches_) {
    if (!send_files(text)) return;
  }
  for (;;) {
    if (next().type == wire::MessageType::leave) return;
  }
}

/// Looks for ways on its way to the plan, if asked.
wire::Plan Node::await_plan(DataPort& port) {
  for (;;) {
    const Letter letter = next();
    const auto plan = letter.type == wire::MessageType::plan ? wire::decode<wire::Plan>(letter.body) : std::nullopt;
    if (plan) return *plan;
    const auto probe = wire::decode<wire::Probe>(letter.body);
    if (letter.type != wire::MessageType::probe || !probe)
      throw Error(Errc::failed, "the launcher does not speak this version's protocol");
    connection_->send(port.probe(*probe, command_.process));
  }
}

void Node::measure(const wire::MeasureSpeed& how) {
  keep_to_cpus(how.cpus);
  const cluster::Speed speed{
      .kind = static_cast<cluster::Speed::Kind>(how.kind), .number = how.number, .command = how.command};
  const cluster::HostSpeed is = cluster::measure_host(speed, how.threads, how.needed);
  connection_->send(wire::SpeedIs{is.speed, is.threads});
}

/// Carries out transfers to this host. Throws Error(failed) with all that did not come.
void Node::receive(Receivers& receivers) {
  while (!std::ranges::all_of(receivers, [](const auto& each) { return each.second.ended(); })) {
    const auto letter = files_.take();
    if (!letter) throw Gone{};
    const auto transfer = wire::decode<wire::Transfer>(letter->body);
    if (letter->type != wire::MessageType::transfer || !transfer)
      throw Error(Errc::failed, "the launcher does not speak this version's protocol");
    const auto found = receivers.find(transfer->number);
    if (found == receivers.end()) continue;  // of one that was given up
    found->second.take(transfer->bytes);
    if (const wire::Bytes reply = found->second.reply(); !reply.empty())
      connection_->send(wire::Transfer{transfer->number, reply});
  }
  std::vector<std::string> problems;
  for (const auto& [number, receiver] : receivers) {
    const char* remedy = number >= wire::own_transfers ? "; TMPDIR names another place" : "";
    for (const std::string& problem : receiver.outcome().problems) problems.push_back(problem + remedy);
    if (receiver.outcome().more_problems != 0)
      problems.push_back(fmt::format("and {} more files", receiver.outcome().more_problems));
  }
  if (!problems.empty()) throw Error(Errc::failed, fmt::format("{}", fmt::join(problems, "; ")));
}

/// Whether the same program is at that path on this host.
bool is_here(const wire::FileRef& file) {
  if (file.identity.same({})) return true;  // none of its cells are here
  try {
    return wire::identify_file(file.path).same(file.identity);
  } catch (const Error&) {
    return false;
  }
}

/// The program files' paths on this host: its own ones if the same programs are there, or else among the files that are
/// sent. Files of the user come with them.
std::vector<std::string> Node::get_files(const std::vector<wire::FileRef>& files,
                                         const std::vector<wire::TransferText>& transfers) {
  Receivers receivers;
  for (const wire::TransferText& text : transfers) {
    if (text.kind == wire::TransferText::Kind::fetch) continue;
    const bool replaces = text.kind == wire::TransferText::Kind::replace;
    receivers.try_emplace(
        text.number, files::Receiver::Settings{
                         .existing = replaces ? files::Existing::replace : files::Existing::refuse, .host = host_id_});
  }
  wire::WantFiles want;
  for (const wire::FileRef& file : files) {
    if (!is_here(file)) want.paths.push_back(file.path);
  }
  std::string folder;
  if (!want.paths.empty()) {
    folder = staged_.next_folder();
    want.transfer = next_transfer_++;
    receivers.try_emplace(want.transfer, files::Receiver::Settings{.folder = folder});
    connection_->send(want);
  }
  receive(receivers);
  std::vector<std::string> paths;
  const std::vector<std::string> names = wire::names_of(want.paths);
  for (const wire::FileRef& file : files) {
    const auto sent = std::ranges::find(want.paths, file.path);
    if (sent == want.paths.end()) {
      paths.push_back(file.path);
      continue;
    }
    paths.push_back(folder + "/" + names[static_cast<std::size_t>(sent - want.paths.begin())]);
    wire::check_file(paths.back(), file);
  }
  if (folder.empty()) return paths;
  // Programs find the libraries that were sent in that folder.
  const char* others = std::getenv("LD_LIBRARY_PATH");
  const std::string all = others != nullptr && *others != '\0' ? folder + ":" + others : folder;
  ::setenv("LD_LIBRARY_PATH", all.c_str(), 1);
  return paths;
}

/// Those of the user as well. What is to be fetched in the end is noted.
std::vector<std::string> Node::get_files(const wire::Prepare& prepare) {
  std::ranges::copy_if(prepare.transfers, std::back_inserter(fetches_),
                       [](const auto& text) { return text.kind == wire::TransferText::Kind::fetch; });
  try {
    return get_files(prepare.keeps ? std::vector<wire::FileRef>() : prepare.files, prepare.transfers);
  } catch (const Gone&) {
    static_cast<void>(next());  // it knows whether the start was called off
    throw;
  }
}

/// Sends what the launcher fetches. False: it wants nothing any more.
bool Node::send_files(const wire::TransferText& text) {
  files::Sender sender(std::make_shared<files::Manifest>(files::gather(files::matches(text.pattern), host_id_)),
                       {.window = std::max<std::size_t>(text.window, 4 * files::chunk_bytes)});
  for (;;) {
    for (wire::Bytes bytes = sender.next(); !bytes.empty(); bytes = sender.next())
      connection_->send(wire::Transfer{text.number, bytes});
    if (sender.ended()) return true;
    const Letter letter = next();
    if (letter.type == wire::MessageType::leave) return false;
    const auto transfer = wire::decode<wire::Transfer>(letter.body);
    if (letter.type == wire::MessageType::transfer && transfer && transfer->number == text.number)
      sender.take(transfer->bytes);
  }
}

bool Node::ready() {
  connection_->send(wire::Ready{});
  try {
    return next().type == wire::MessageType::go;
  } catch (const Gone&) {
    return false;
  } catch (const CalledOff&) {
    return false;
  }
}

void Node::send_note(std::span<const std::byte> note) {
  const std::lock_guard lock(note_mutex_);
  do {
    const auto piece = note.first(std::min(note.size(), wire::piece_bytes_max));
    note = note.subspan(piece.size());
    connection_->send(wire::Note{note.empty(), piece});
  } while (!note.empty());
}

std::string Node::program_file(const std::string& file) {
  const std::lock_guard lock(file_mutex_);
  connection_->send(wire::FindProgram{file});
  std::optional<Letter> letter = files_.take();
  while (letter && letter->type == wire::MessageType::transfer) letter = files_.take();  // of one that was given up
  const auto program = letter ? wire::decode<wire::ProgramIs>(letter->body) : std::nullopt;
  if (!program) throw Error(Errc::failed, "the launcher is gone");
  if (!program->problem.empty() || program->files.empty()) {
    // The launcher's host lacks the file. This one may have it.
    if (std::filesystem::path(file).is_absolute() && std::filesystem::exists(file)) return file;
    throw Error(Errc::failed, program->problem);
  }
  try {
    return get_files(program->files, {}).front();
  } catch (const Gone&) {
    throw Error(Errc::failed, "the launcher is gone");
  }
}

std::optional<comm::JobKey> read_key() {
  std::string line;
  char c = 0;
  while (line.size() < 2 * comm::JobKey::size + 2 && ::read(STDIN_FILENO, &c, 1) == 1 && c != '\n') line += c;
  auto key = comm::JobKey::from_hex(line);
  comm::wipe(std::as_writable_bytes(std::span(line)));
  return key;
}

int run_node(const NodeCommand& command, const comm::JobKey& key, Input input) {
  // The launcher decides what a Ctrl-C at its terminal means, and its end is ours.
  for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
  std::signal(SIGPIPE, [](int) {});  // nor its closed pipe; programs do not inherit that, as they would SIG_IGN
  Node node(command, key, input);
  return node.run();
}

}  // namespace

int run_node(const NodeCommand& command) {
  const auto key = read_key();
  if (!key) {
    tell_user("",
              "aprun --node is for aprun -f, which starts it on each host and tells it the job's key on its standard "
              "input; no key came");
    return static_cast<int>(ExitStatus::usage);
  }
  return run_node(command, *key, command.endpoints.empty() ? Input::spoken : Input::watched);
}

int run_node(const NodeCommand& command, const comm::JobKey& key) { return run_node(command, key, Input::none); }

}  // namespace aplib::launch::node
