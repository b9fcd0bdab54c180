// SPDX-License-Identifier: MIT
// Member: an ordinary process in the place that a node keeps for it (keeper.hpp). It is all of join.so, which libaplib
// opens at the first call of MPI in such a process.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "aplib/error.hpp"
#include "aplib/machine.hpp"
#include "aplib/options.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/thread.hpp"
#include "comm/job_key.hpp"
#include "kernel/process.hpp"
#include "kernel/programs.hpp"
#include "launch/node/data_port.hpp"
#include "launch/wire/protocol.hpp"
#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch::node {
namespace {

using namespace std::chrono_literals;

constexpr auto close_patience = 1s;  // for the last frames

struct Incoming {
  wire::MessageType type = wire::MessageType::beat;
  wire::Bytes body{};
};

/// The socket to the node. Any thread sends; one reads.
class NodeSocket {
 public:
  explicit NodeSocket(std::string_view name) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const os::AbstractAddress address(name);
    if (!socket_ || ::connect(socket_.get(), address.data(), address.bytes()) != 0) {
      throw Error(Errc::failed, fmt::format("the launcher keeps no place for this process any more ({}): {}; start it "
                                            "anew, or by itself without the variable",
                                            join_variable, std::strerror(errno)));
    }
  }

  template <class Message>
  void send(const Message& message) {
    wire::Bytes bytes;
    wire::append_message(bytes, message);
    const std::lock_guard lock(mutex_);
    static_cast<void>(os::send_all(socket_.get(), bytes));  // who reads sees the end
  }

  /// Waits for the next message. Nothing: there is none any more.
  std::optional<Incoming> read() {
    std::array<std::byte, wire::message_head_bytes> head{};
    if (!read_all(head)) return std::nullopt;
    const auto known = wire::read_head(head);
    if (!known) return std::nullopt;
    Incoming incoming{known->type, wire::Bytes(known->bytes)};
    if (!read_all(incoming.body)) return std::nullopt;
    return incoming;
  }

  /// The node's process.
  [[nodiscard]] pid_t peer() const noexcept {
    const auto who = os::peer_of(socket_.get());
    return who ? who->pid : 0;
  }

  /// Ends read(). What was sent arrives.
  void close() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

 private:
  bool read_all(std::span<std::byte> into) {
    while (!into.empty()) {
      const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      into = into.subspan(static_cast<std::size_t>(got));
    }
    return true;
  }

  os::UniqueFd socket_;
  std::mutex mutex_;
};

class Member final : public Membership, public Supervisor {
 public:
  Member(const char* invitation, bool is_program) : socket_(invitation), is_program_(is_program) {
    const wire::Welcome welcome = await<wire::Welcome>();
    try {
      join(welcome);
    } catch (const Error& error) {
      socket_.send(wire::Cannot{error.what()});
      await_end();
    }
  }
  ~Member() override {  // without leave(), where the program could not be loaded
    begin_to_leave();
    end_reading();
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Membership
  [[nodiscard]] const Options& options() const noexcept override { return options_; }
  [[nodiscard]] const Process& process() const noexcept override { return process_; }
  void begin(Machine& machine) override {
    reader_ = os::quiet_thread("aplib-notes", [this, &machine] { follow(machine); });
  }
  void leave() noexcept override {
    module_->close(close_patience);
    begin_to_leave();
    socket_.send(wire::Leave{});
    end_reading();
  }

  // Supervisor
  bool ready() override {
    socket_.send(wire::Ready{});
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return goes_; });
    return true;
  }
  void send_note(std::span<const std::byte> note) override {
    const std::lock_guard lock(note_mutex_);
    do {
      const auto piece = note.first(std::min(note.size(), wire::piece_bytes_max));
      note = note.subspan(piece.size());
      socket_.send(wire::Note{note.empty(), piece});
    } while (!note.empty());
  }

 private:
  void begin_to_leave() noexcept {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  void end_reading() noexcept {
    socket_.close();
    if (reader_.joinable()) reader_.join();
  }

  template <class Message>
  Message await() {
    while (auto incoming = socket_.read()) {
      if (incoming->type == Message::type) {
        if (auto message = wire::decode<Message>(incoming->body)) return *std::move(message);
      }
      if (const auto probe = wire::decode<wire::Probe>(incoming->body);
          incoming->type == wire::MessageType::probe && probe && port_)
        socket_.send(port_->probe(*probe, own_number_));
      // A program that this process has still to load has no handlers.
      if (const auto ask = wire::decode<wire::Ask>(incoming->body); incoming->type == wire::MessageType::ask && ask) {
        const auto signal = wire::asked_signal(ask->what);
        const bool passed = signal && is_program_ && signal_this_process(*signal);
        socket_.send(wire::Answer{ask->question, signal ? wire::signal_answer(passed) : wire::Bytes()});
      }
      if (incoming->type != wire::MessageType::refused) continue;
      const auto refused = wire::decode<wire::Refused>(incoming->body);
      throw Error(Errc::failed, refused ? refused->text : "the launcher refuses it");
    }
    end_without_launcher();
  }

  /// Opens a port, and waits until every process has.
  void join(const wire::Welcome& welcome) {
    own_number_ = welcome.process;
    for (const wire::NamedValue& option : welcome.options) options_.set(option.name, option.value);
    const auto key = comm::JobKey::from_hex(welcome.key);
    if (!key) throw Error(Errc::failed, "no key came: are all installations of APlib the same?");
    port_.emplace(options_, welcome.address, *key);
    socket_.send(port_->offer());
    const auto plan = await<wire::Plan>();
    module_ = port_->make_module(plan, welcome.process);
    ways_ = plan.ways;
    process_.self = welcome.process;
    process_.cells = plan.cells;
    process_.names = plan.names;
    process_.first_cells = welcome.first_cells;
    process_.module = module_.get();
    process_.supervisor = this;
    process_.node = socket_.peer();
  }

  void follow(Machine& machine) {
    wire::Bytes note;
    while (const auto incoming = socket_.read()) {
      if (incoming->type == wire::MessageType::go) {
        const std::lock_guard lock(mutex_);
        goes_ = true;
        changed_.notify_all();
      } else if (const auto piece = wire::decode<wire::Note>(incoming->body);
                 incoming->type == wire::MessageType::note && piece) {
        note.insert(note.end(), piece->bytes.begin(), piece->bytes.end());
        if (!piece->last) continue;
        receive_note(machine, note);
        note.clear();
      } else if (const auto ask = wire::decode<wire::Ask>(incoming->body);
                 incoming->type == wire::MessageType::ask && ask) {
        wire::Bytes state;
        if (ask->what == wire::node_state_question)
          state = wire::encode(state_of(*module_, process_.self, process_.processes(), ways_));
        if (const auto signal = wire::asked_signal(ask->what))
          state = wire::signal_answer(pass_signal(machine, *signal));
        socket_.send(wire::Answer{ask->question, state});
      }
    }
    const std::lock_guard lock(mutex_);
    if (!leaves_) end_without_launcher();
  }

  /// The launcher knows why this process cannot go on, and ends it.
  [[noreturn]] void await_end() {
    while (socket_.read()) {
    }
    end_without_launcher();
  }

  [[noreturn]] static void end_without_launcher() {
    std::fputs("aplib: the launcher is gone: this process, which was a cell of its machine, ends\n", stderr);
    ::_exit(static_cast<int>(ExitStatus::peer_lost));
  }

  NodeSocket socket_;
  const bool is_program_;
  Options options_;
  std::optional<DataPort> port_;
  std::uint32_t own_number_ = 0;
  std::vector<wire::PlannedWay> ways_;
  std::unique_ptr<comm::Module> module_;
  Process process_;
  std::mutex note_mutex_;  // pieces of notes do not mix
  std::mutex mutex_;       // of what follows
  std::condition_variable changed_;
  bool goes_ = false;
  bool leaves_ = false;
  std::thread reader_;
};

}  // namespace
}  // namespace aplib::launch::node

extern "C" aplib::Membership* aplib_join(const char* invitation, bool is_program) {
  return new aplib::launch::node::Member(invitation, is_program);
}
