// SPDX-License-Identifier: MIT
// Sleeper: sleeps in the wait() of a module that has no descriptor, on a thread of its own, and rings a bell for those who sleep on several modules. Such a sleep costs two more switches of
// threads: it is the way out for modules whose library has nothing to wait on together with others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "comm/bell.hpp"
#include "comm/module.hpp"

namespace aplib::comm {

/// Thread safety: arm() and disarm(), any thread.
class Sleeper {
 public:
  /// Both outlive it. Throws Error(exhausted).
  Sleeper(Module& module, Bell& bell);
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// From now on the bell rings when the module's wait() ends.
  void arm();
  void disarm() noexcept;

 private:
  void run() noexcept;
  void end_wait() noexcept;

  Module& module_;
  Bell& bell_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::uint32_t armed_ = 0;
  std::uint64_t orders_ = 0;  // Each arm() is one to look at the module once more.
  bool waiting_ = false;      // The thread is in the module's wait(), or on its way there or back.
  bool recalled_ = false;     // That wait() was ended by us, and tells nothing of the module.
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace aplib::comm
