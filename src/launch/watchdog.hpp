// SPDX-License-Identifier: MIT
// Watchdog: ends a run when its time is over or a signal asks for it, even when its tasks do not listen. And what goes
// with a process that ends at once.
#pragma once

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
    std::function<void()> last_words;  ///< Brings out what was written; may block, then the process ends without.
    std::chrono::seconds grace{2};     ///< From stop() to the end by force: for tasks that listen to unwind.
  };

  /// Watches from now on: SIGINT, SIGTERM and SIGHUP (not where they are ignored), and `timeout` seconds if given.
  /// Some time after stop(), or at the second signal, the process ends at once. One at a time.
  Watchdog(std::optional<double> timeout, Actions actions);
  /// Ends the watch; call when the run is over.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Ends the run as a signal would, for another reason. Any thread; the first counts.
  void stop(int status, const std::string& text);
  /// The run ends already, with this status: from now on the time runs until the end by force. Any thread.
  void expect_end(int status);
  /// Ended by time, signal or stop(): the exit status, else nothing. Call from: the thread that made it, after
  /// finish().
  [[nodiscard]] std::optional<int> status() const noexcept { return status_; }
  /// As the destructor. A second call does nothing.
  void finish();

  static constexpr int timeout_status = 124;  ///< As timeout(1)'s.

 private:
  void watch();

  std::optional<double> timeout_;
  Actions actions_;
  std::optional<int> status_;
  std::mutex mutex_;                                   // of what follows
  std::optional<std::pair<int, std::string>> demand_;  // stop()'s
  std::optional<int> expected_;                        // expect_end()'s
  os::Pipe wake_ = os::Pipe::make();                   // the handlers' signal numbers, or 0 for the end
  std::thread thread_;
};

/// This file goes when the process ends at once: by the watchdog, by a signal, or killed while a Guard
/// (start/child.hpp) stands by. Empty: none any more. One at a time; longer names than a socket's are not kept.
void remove_at_sudden_end(const std::string& path);
/// Removes it now. Async-signal-safe.
void remove_for_sudden_end() noexcept;
/// From now on SIGPIPE ends the process as it ends every filter, also when its parent ignores the signal, and takes
/// that file along.
void end_at_closed_pipe();

}  // namespace aplib::launch
