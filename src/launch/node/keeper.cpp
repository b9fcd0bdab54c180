// SPDX-License-Identifier: MIT
#include "launch/node/keeper.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/thread.hpp"
#include "comm/job_key.hpp"
#include "kernel/process.hpp"
#include "kernel/programs.hpp"
#include "launch/start/launch_method.hpp"

namespace aplib::launch::node {
namespace {

using namespace std::chrono_literals;

constexpr auto grace = 500ms;       // from SIGTERM to SIGKILL
constexpr auto end_patience = 1s;   // a lost member's process may be about to end
constexpr int blind_pause_ms = 10;  // between looks, where the system tells no end
constexpr auto stop_pause = 500ms;  // between looks whether the member is stopped

/// A name for a socket without a file, which nobody guesses.
std::string random_name() {
  std::array<std::byte, 16> bytes{};
  comm::fill_random(bytes);
  std::string name = "aplib-";
  for (const std::byte byte : bytes) name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return name;
}

os::UniqueFd listen_at(const std::string& name) {
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const os::AbstractAddress address(name);
  if (!socket || ::bind(socket.get(), address.data(), address.bytes()) != 0 || ::listen(socket.get(), 8) != 0)
    os::refuse_descriptor("the socket at which a process joins the machine");
  return socket;
}

void append(const char* variable, const std::string& text) {
  const char* const others = std::getenv(variable);
  ::setenv(variable, others != nullptr && *others != '\0' ? (std::string(others) + ":" + text).c_str() : text.c_str(),
           1);
}

/// An interpreter loads MPI late, when libc has given most of the room for thread-locals away.
void make_room_for_thread_locals() {
  constexpr const char* tunables = "GLIBC_TUNABLES";
  const char* const set = std::getenv(tunables);
  if (set == nullptr || std::strstr(set, "optional_static_tls") == nullptr)
    append(tunables, "glibc.rtld.optional_static_tls=16384");
}

/// What a plain compiler has linked with libmpi_abi finds it beside libaplib, and what was made for MPICH or Open MPI
/// finds our front end, as in cells. What asks for libmpi.so, of no version, gets MPICH's. Where `program`, or what it
/// starts, may look elsewhere first, src/mpi/front/audit.cpp leads it there.
void show_libraries(const std::string& program) {
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&why_not_loaded), &own) == 0) return;
  const std::string folder = std::filesystem::absolute(own.dli_fname).parent_path().lexically_normal();
  if (!finds_our_mpi(program)) append("LD_AUDIT", folder + "/aplib/audit.so");
  append("LD_LIBRARY_PATH", folder + "/aplib/mpi/mpich");
  append("LD_LIBRARY_PATH", folder + "/aplib/mpi/openmpi");
  if (folder.starts_with("/usr/lib") || folder.starts_with("/lib")) return;  // there it looks anyway
  append("LD_LIBRARY_PATH", folder);
}

/// The file that the launcher has found, if this host has it, though it may not be executed.
std::string file_of(const std::string& found, const std::string& name) {
  return ::access(found.c_str(), F_OK) == 0 || name.find('/') != name.npos ? found : name;
}

/// By a signal, until another one lets it go on. A debugger's stop is none.
bool is_stopped(long process) { return os::state_of(fmt::format("{}", process)).state == 'T'; }

}  // namespace

Keeper::Keeper(wire::Connection& connection, NodeSink& sink, std::uint32_t cell, wire::Welcome welcome)
    : connection_(connection), sink_(sink), cell_(cell), welcome_(std::move(welcome)) {}

void Keeper::start(const RunText& text, const std::vector<std::string>& files, start::Guard& guard) {
  const std::string name = random_name();
  listener_ = listen_at(name);
  ::setenv(join_variable, name.c_str(), 1);
  make_room_for_thread_locals();
  for (const wire::ProgramText& program : text.programs) welcome_.first_cells.push_back(program.first_cell);
  const wire::ProgramText& program = wire::program_of(text.programs, cell_);
  RunText own{.programs = {program}, .expand = text.expand, .grid = text.grid, .host_cells = text.host_cells};
  const ProgramRun run = make_run(own, files);
  for (const auto& [variable, value] : run.variables) ::setenv(variable.c_str(), value.c_str(), 1);
  for (const auto& [variable, value] : run.variables_of(cell_)) ::setenv(variable.c_str(), value.c_str(), 1);
  show_libraries(run.file);
  const std::string folder = run.folder_of ? run.folder_of(cell_) : std::string();
  const int input = sink_.input(cell_);
  child_.emplace(start::Child::Command{.argv = run.arguments_of ? run.arguments_of(cell_) : run.arguments,
                                       .file = file_of(run.file, program.name),
                                       .folder = folder,
                                       .input = input,
                                       .guard = &guard});
  root_ = child_->pid();
  note_file(run.file);
  child_->close_input();
}

wire::Finished Keeper::run(const RunText& text, const std::vector<std::string>& files) {
  start::Guard guard;  // should this node be killed
  start(text, files, guard);
  std::optional<int> status;
  while (!status) {
    wait();
    status = child_->ended();  // before its last words are read, so that none is missed
    if (status) root_ = 0;
    take_output(start::Child::output);
    take_output(start::Child::error);
    if (!status) welcome_member();
    take_messages();
    if (ends_) end_by_and_by();
    if (member_ == Member::joined && !status && !ends_) look_for_stop();
    if (!status && patience_ && Clock::now() >= *patience_) break;
  }
  std::string why;
  if (status) {
    if (!ends_) why = why_it_ended(*status);
  } else {
    why = fmt::format(
        "process {} has left it without MPI_Finalize: it executed another program, or closed its connection",
        member_process_);
  }
  const bool failed = !why.empty() && status.value_or(0) == 0;
  const int result = failed ? static_cast<int>(ExitStatus::peer_lost) : status.value_or(0);
  root_ = 0;
  child_.reset();
  sink_.ended(cell_, result);
  return {result, why, {result}};
}

/// Until something has happened.
void Keeper::wait() {
  std::vector<pollfd> fds{{wake_.get(), POLLIN, 0},
                          {child_->output_fd(start::Child::output), POLLIN, 0},
                          {child_->output_fd(start::Child::error), POLLIN, 0},
                          {child_->end_fd(), POLLIN, 0},
                          {listener_.get(), POLLIN, 0},
                          {socket_.get(), POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    if (!unsent_.empty()) fds.back().events |= POLLOUT;
  }
  int timeout = child_->end_fd() < 0        ? blind_pause_ms
                : member_ == Member::joined ? static_cast<int>(stop_pause.count())
                                            : -1;
  for (const auto& until : {patience_, killing_}) {
    if (!until) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
    const int wanted = static_cast<int>(std::clamp<long>(left, 0, 1000));
    timeout = timeout < 0 ? wanted : std::min(timeout, wanted);
  }
  ::poll(fds.data(), fds.size(), timeout);
  wake_.clear();
  const std::lock_guard lock(mutex_);
  if (socket_ && !unsent_.empty()) static_cast<void>(send_unsent());
}

// Others wait for it, and nobody would know for what.
void Keeper::look_for_stop() {
  const auto now = Clock::now();
  if (now < next_look_) return;  // its output has woken us
  next_look_ = now + stop_pause;
  stopped_looks_ = is_stopped(member_process_) ? stopped_looks_ + 1 : 0;
  if (stopped_looks_ != 2) return;  // not for a moment, and once
  sink_.warn(
      fmt::format("cell {}: process {} is stopped by a signal, as SIGSTOP or Ctrl-Z, and others wait for it; "
                  "\"kill -CONT {}\" lets it go on",
                  cell_, member_process_, member_process_));
}

void Keeper::take_output(start::Child::Stream stream) {
  const auto to = stream == start::Child::error ? loader::Stream::err : loader::Stream::out;
  constexpr int pieces_max = 64;  // more than a pipe holds; who writes without end must not keep us from all else
  for (int piece = 0; piece < pieces_max; ++piece) {
    const std::string text = child_->read(stream);
    if (text.empty()) return;
    sink_.write(cell_, to, text);
    if (!text.ends_with('\n')) sink_.flush(cell_, to);
  }
}

/// What calls is a process of the user's, on this host. The first is the member.
void Keeper::welcome_member() {
  os::UniqueFd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!caller) return;
  const auto who = os::peer_of(caller.get());
  if (!who) return;
  std::string problem;
  if (who->uid != ::geteuid() && who->uid != 0) {
    problem = fmt::format(
        "process {} runs as user {}, the launcher as user {}; start a program without the set-user-ID "
        "bit",
        who->pid, who->uid, ::geteuid());
  } else if (member_ != Member::none) {
    problem = fmt::format("process {} {} cell {} already, and no other process can be", member_process_,
                          member_ == Member::joined ? "is" : "was", cell_);
  }
  if (!problem.empty()) {
    wire::Bytes message;
    wire::append_message(message, wire::Refused{problem});
    static_cast<void>(::send(caller.get(), message.data(), message.size(), MSG_NOSIGNAL));
    return;
  }
  member_ = Member::joined;
  member_process_ = who->pid;
  {
    const std::lock_guard lock(mutex_);
    socket_ = std::move(caller);
  }
  std::istringstream maps(os::read_file(fmt::format("/proc/{}/maps", member_process_)).value_or(""));
  for (std::string line; std::getline(maps, line);)
    if (const std::size_t path = line.find('/'); path != line.npos && line.find(" r-xp ") < path)
      note_file(line.substr(path));
  if (!tell_member(wire::Welcome::type, wire::encode(welcome_))) lose_member();
}

void Keeper::note_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) files_.emplace(path, status);
}

/// Where a fault may have come of a file that somebody has written to.
std::string Keeper::changed_file(int status) const {
  constexpr std::array faults{SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  if (std::ranges::find(faults, status - 128) == faults.end()) return {};
  for (const auto& [path, before] : files_) {
    struct stat now {};
    if (::stat(path.c_str(), &now) != 0 || now.st_dev != before.st_dev || now.st_ino != before.st_ino) continue;
    if (now.st_size != before.st_size || now.st_mtim.tv_sec != before.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
      return fmt::format("; {}{}", path, changed_file_text);
  }
  return {};
}

// A process that is stopped takes nothing, and nobody here waits for it.
bool Keeper::tell_member(wire::MessageType type, std::span<const std::byte> body) {
  const std::lock_guard lock(mutex_);
  if (!socket_) return false;
  wire::append_message(unsent_, type, body);
  if (!send_unsent()) return false;  // run() will see its end
  if (!unsent_.empty()) wake_.signal();
  return true;
}

/// As much as the socket takes. REQUIRES: mutex_.
bool Keeper::send_unsent() {
  std::size_t done = 0;
  bool goes = true;
  while (done < unsent_.size()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + done, unsent_.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    goes = sent >= 0 || errno == EAGAIN;
    if (sent < 0) break;
    done += static_cast<std::size_t>(sent);
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(done));
  return goes;
}

void Keeper::take_messages() {
  std::array<std::byte, 16384> block;
  for (bool ended = false; socket_ && !ended;) {
    const ssize_t got = ::recv(socket_.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    ended = got <= 0;
    if (!ended) unread_.insert(unread_.end(), block.begin(), block.begin() + got);
    std::span<const std::byte> rest = unread_;
    while (rest.size() >= wire::message_head_bytes) {
      const auto head = wire::read_head(rest);
      if (!head) ended = true;
      if (!head || rest.size() < wire::message_head_bytes + head->bytes) break;
      take_message(head->type, rest.subspan(wire::message_head_bytes, head->bytes));
      rest = rest.subspan(wire::message_head_bytes + head->bytes);
    }
    unread_.erase(unread_.begin(), unread_.end() - static_cast<std::ptrdiff_t>(rest.size()));
    if (ended) lose_member();
  }
}

void Keeper::take_message(wire::MessageType type, std::span<const std::byte> body) {
  switch (type) {
    case wire::MessageType::prepared:
    case wire::MessageType::probed:
    case wire::MessageType::ready:
    case wire::MessageType::note:
    case wire::MessageType::answer:
    case wire::MessageType::cannot:
      return connection_.send_encoded(type, body);
    case wire::MessageType::leave:
      member_ = Member::left;
      return;
    default:
      return lose_member();
  }
}

void Keeper::lose_member() {
  {
    const std::lock_guard lock(mutex_);
    socket_.reset();
    unsent_.clear();
  }
  if (member_ != Member::joined) return;
  member_ = Member::lost;
  patience_ = Clock::now() + end_patience;
}

bool Keeper::pass_on(wire::MessageType type, std::span<const std::byte> body) {
  switch (type) {
    case wire::MessageType::probe:
    case wire::MessageType::plan:
    case wire::MessageType::go:
    case wire::MessageType::note:
      static_cast<void>(tell_member(type, body));
      return true;
    case wire::MessageType::ask:
      return tell_member(type, body);  // else the node answers
    default:
      return false;
  }
}

std::optional<bool> Keeper::pass_signal(int signal) {
  const pid_t root = root_.load();
  if (root == 0) return std::nullopt;
  return root > 0 && os::expects_signal(root, signal) && ::kill(root, signal) == 0;
}

void Keeper::end() noexcept {
  ends_ = true;
  wake_.signal();
}

void Keeper::kill() noexcept {
  if (const pid_t root = root_.load(); root > 0) start::signal_tree(root, SIGKILL);
}

void Keeper::end_by_and_by() {
  const auto now = Clock::now();
  if (!killing_) {
    child_->signal(SIGTERM);
    child_->signal(SIGCONT);  // a stopped one takes no other signal
    killing_ = now + grace;
  } else if (now >= *killing_) {
    child_->signal(SIGKILL);
    killing_ = now + grace;
  }
}

/// Empty: as it should.
std::string Keeper::why_it_ended(int status) const {
  const bool has_left = member_ == Member::none || member_ == Member::left;
  const bool looks_killed = status > 128 && status <= 128 + SIGRTMAX;
  if (child_->was_killed() || (looks_killed && !has_left)) {  // the latter as a shell tells of its child
    return fmt::format("its process {} {}{}", member_ == Member::none ? child_->pid() : member_process_,
                       start::how_it_ended(status), changed_file(status));
  }
  return has_left
             ? std::string()
             : fmt::format("its process {} {}, without MPI_Finalize", member_process_, start::how_it_ended(status));
}

}  // namespace aplib::launch::node
