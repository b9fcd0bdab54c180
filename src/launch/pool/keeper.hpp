// SPDX-License-Identifier: MIT
// HostKeeper: stands on a host of a pool and starts nodes there, each for one launcher and with nothing of an earlier
// one. It has one thread, and sleeps unless somebody knocks (knock.hpp).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>

#include "base/os/descriptor.hpp"
#include "comm/job_key.hpp"
#include "launch/pool/knock.hpp"

namespace aplib::launch::pool {

class HostKeeper {
 public:
  struct Settings {
    os::UniqueFd listener{};  ///< A Unix socket that listens.
    std::string path{};       ///< Of the socket: when it is gone, nobody can knock, and the keeper ends. Empty: none.
    comm::JobKey key;
    std::vector<std::string> modules{};  ///< Those that can be used here.
    std::chrono::seconds idle{0};        ///< Without a run for that long, it ends; 0: it stays.
  };

  /// Blocks SIGCHLD and SIGTERM of the calling thread, the only one of the process. Throws Error(exhausted).
  explicit HostKeeper(Settings settings);

  /// Works until SIGTERM, or somebody asks for the end, or it was idle for too long. Nodes have ended then.
  void run();

 private:
  using Clock = std::chrono::steady_clock;

  /// Somebody who has not said yet what it wants, or the words of a run without streams or the other way round, or who
  /// has heard the facts.
  struct Guest {
    os::UniqueFd socket;
    wire::Bytes came{};
    Clock::time_point until{};
    std::optional<Knock> knock{};
    [[nodiscard]] bool may_echo() const { return knock && knock->purpose == Knock::Purpose::facts; }
  };
  struct Run {
    pid_t group = 0;
    os::UniqueFd words;
    std::uint64_t token = 0;
    os::UniqueFd lanes{};  ///< By which it gets them.
    /// Its launcher has gone. Until then it may end by itself; then it is told to, and soon killed.
    std::optional<Clock::time_point> patience{};
    bool was_told = false;
  };

  void accept_guests();
  /// False: the guest goes.
  bool attend(Guest& guest);
  bool hear(Guest& guest);
  bool take_knock(Guest& guest);
  void join_runs();
  void pass_lanes();
  void start(Guest& words, Guest& streams);
  [[nodiscard]] bool answer_facts(const Guest& guest);
  [[nodiscard]] static bool echo(const Guest& guest);
  void reap();
  void look_at_runs();
  static void tell_to_end(Run& run);
  void end_all();
  [[nodiscard]] std::optional<Clock::time_point> next_time() const;
  void wait();
  [[nodiscard]] bool is_idle(Clock::time_point now) const;
  [[nodiscard]] bool has_its_name() const;

  Settings settings_;
  os::UniqueFd signals_;
  std::uint64_t inode_ = 0;  // of the socket's name
  std::list<Guest> guests_;
  std::list<Run> runs_;
  std::list<os::UniqueFd> farewells_;  // who asked for the end
  Clock::time_point last_use_ = Clock::now();
  Clock::time_point deaf_until_{};  // the system has no descriptor for further guests
  std::uint64_t started_ = 0;
  std::uint64_t strangers_ = 0;
  bool ending_ = false;
};

}  // namespace aplib::launch::pool
