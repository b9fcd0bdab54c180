// SPDX-License-Identifier: MIT
// A process of a machine whose module is the test: what a peer sends is what the test says, in the order of the polls.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/aplib.hpp"
#include "comm/module.hpp"
#include "ends_in_time.hpp"
#include "kernel/module_network.hpp"
#include "kernel/overseer.hpp"
#include "kernel/process.hpp"

namespace aplib::testing_support {

/// Carries nothing. At each poll it calls `feed`, which may make upcalls, and returns whether it made one.
class FedModule final : public comm::Module {
 public:
  std::function<bool(comm::Receiver&)> feed = [](comm::Receiver&) { return false; };
  /// What the process under test sends.
  std::function<void(comm::Peer, const comm::Label&, std::span<const std::byte>)> sent =
      [](comm::Peer, const comm::Label&, std::span<const std::byte>) {};

  [[nodiscard]] const char* name() const noexcept override { return "fed"; }
  void start(comm::Receiver& receiver) override { receiver_ = &receiver; }
  void send(comm::Peer to, const comm::Label& label, std::span<const std::byte> body) override {
    const std::lock_guard lock(sent_mutex_);
    sent(to, label, body);
  }
  [[nodiscard]] std::size_t queued(comm::Peer) const noexcept override { return 0; }
  void flush() noexcept override {}
  bool poll() override { return feed(*receiver_); }
  void wait(std::optional<std::chrono::nanoseconds>) override {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void wake() noexcept override {}
  bool close(std::chrono::nanoseconds) override { return true; }
  [[nodiscard]] comm::Traffic traffic() const noexcept override { return {}; }
  [[nodiscard]] std::string describe(comm::Peer) const override { return "fed"; }

 private:
  comm::Receiver* receiver_ = nullptr;
  std::mutex sent_mutex_;
};

/// Process 1 of a machine of two, which carries one cell each; the peer is the module.
class FedProcess {
 public:
  explicit FedProcess(std::uint32_t threads = 1) {
    options.cells = {2, 1};
    options.threads = threads;
    options.bind = false;
    options.deadlock_report = false;
  }

  /// Runs `program` on cell 1, until it ends or the machine fails. Then calls `ended`: no note may come behind it.
  Report run(
      const std::function<void()>& program, const std::function<void()>& ended = [] {}) {
    const EndsInTime guard("the process that the test feeds");
    Machine machine(options);
    machine_ = &machine;
    Launcher launcher{*this};
    const Process process{1, CellMap::consecutive(std::array{1U, 1U}), {"ws0", "ws1"}, &module, &launcher};
    const Report report = run_process(machine, program, process);
    if (ender_.joinable()) ender_.join();
    ended();
    machine_ = nullptr;
    return report;
  }
  /// A note of the launcher. Any thread, one at a time, while it runs.
  void note(std::span<const std::byte> bytes) { receive_note(*machine_, bytes); }

  Options options;
  FedModule module;
  /// While the other processes of the machine are not ready yet.
  std::function<void()> awaits_others = [] {};
  /// Notes that the process sends. The end of its cells ends the run.
  std::function<void(NoteKind, std::span<const std::byte>)> told = [](NoteKind, std::span<const std::byte>) {};

 private:
  struct Launcher final : Supervisor {
    explicit Launcher(FedProcess& process) : fed(process) {}
    bool ready() override {
      fed.awaits_others();
      return true;
    }
    void send_note(std::span<const std::byte> note) override {
      const auto kind = static_cast<NoteKind>(note.front());
      fed.told(kind, note);
      if (kind != NoteKind::all_ended || fed.ender_.joinable()) return;
      fed.ender_ = std::thread([this] { fed.note(begin_note(NoteKind::over).bytes()); });
    }
    FedProcess& fed;
  };

  Machine* machine_ = nullptr;
  std::thread ender_;
};

template <class Body>
std::vector<std::byte> frame_body(const Body& body) {
  std::vector<std::byte> bytes(sizeof body);
  std::memcpy(bytes.data(), &body, sizeof body);
  return bytes;
}

}  // namespace aplib::testing_support
