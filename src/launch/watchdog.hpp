// SPDX-License-Identifier: MIT
// Watchdog: ends a run when its time is over or a signal asks for it, even when its tasks make no calls. Also removes a
// file when the process ends at once.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/os/descriptor.hpp"

namespace aplib::launch {

class Watchdog {
 public:
  struct Actions {
    std::function<void(int status, const std::string& text)> stop;  ///< Asks the run to end.
    std::function<void()> last_words;  ///< Writes out pending output. If it blocks, the process ends without it.
    /// Hands SIGUSR1, SIGUSR2 or SIGTERM to the programs. False: they do not handle it, so the run ends. Null: the same
    /// of SIGTERM, and the others are not watched.
    std::function<bool(int signal, pid_t sender)> pass_on{};
    std::chrono::seconds grace{2};  ///< From stop() to the end by force, so that tasks that make calls can unwind.
  };

  /// Watches from now on: SIGINT, SIGTERM and SIGHUP, with pass_on() SIGUSR1 and SIGUSR2 (not where they are ignored),
  /// and `timeout` seconds if given.
  /// A while after stop(), or at the second signal, the process ends at once; of SIGTERM that was passed on, the second
  /// one calls stop(). Only one watchdog at a time.
  Watchdog(std::optional<double> timeout, Actions actions);
  /// Ends the watch. Call it when the run is over.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Ends the run as a signal would, for another reason. Any thread. The first call counts.
  void stop(int status, const std::string& text);
  /// Programs do not handle a signal that was passed on: it ends the run. Any thread.
  void refuse(int signal);
  /// The run already ends, with this status. From now on the time until the end by force runs. Any thread.
  void expect_end(int status);
  /// The exit status, if time, a signal or stop() ended the run. Call from: the thread that made it, after finish().
  [[nodiscard]] std::optional<int> status() const noexcept { return status_; }
  /// As the destructor. A second call does nothing.
  void finish();

  static constexpr int timeout_status = 124;  ///< As timeout(1)'s.

 private:
  void watch();

  std::optional<double> timeout_;
  Actions actions_;
  std::optional<int> status_;
  std::mutex mutex_;                                   // guards what follows
  std::optional<std::pair<int, std::string>> demand_;  // stop()'s
  std::optional<int> expected_;                        // expect_end()'s
  os::Pipe wake_ = os::Pipe::make();                   // the handlers' signal numbers, or 0 for the end
  std::thread thread_;
};

/// This file is removed when the process ends at once: by the watchdog, by a signal, or killed while a Guard
/// (start/child.hpp) runs. Empty: none. One at a time. Names longer than a socket's are not kept.
void remove_at_sudden_end(const std::string& path);
/// Removes it now. Async-signal-safe.
void remove_for_sudden_end() noexcept;
/// From now on a signal that ends the process removes that file. SIGPIPE ends it as it ends every filter, even if its
/// parent ignores the signal.
void end_by_signals();

}  // namespace aplib::launch
