// SPDX-License-Identifier: MIT
// SpinWatch: looks after tasks that keep their processor for long, where it carries several cells.
//
// A rank that computes without a call would keep others from beginning, or from going on with what has come. As
// processes they share the core. So a program that has computed for a time slice, or has made system calls that do not
// wait, is stopped by a signal to its thread, and others run, if some can (signals.cpp says where that is possible).
//
// Where it is not, it tells once of a task that computes for seconds while others wait for its processor, or that
// waits in the system. It may wait for what one of those is to do. Nobody can know, so the text says what to do in that
// case.
//
// Each look is a sample: what a thread has computed since the last one counts for the cell that it carries now. That is
// the CPU time of programs that have not asked for it yet; from then on, the switch measures (loader/context.hpp).
//
// A thread of its own looks some times in a second. The processors do nothing for it.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/os/thread.hpp"
#include "cell/processor.hpp"

namespace aplib {

class SpinWatch {
 public:
  /// `threads`: those of the first processors of `domain`. They live longer than this.
  SpinWatch(const Domain& domain, std::vector<std::thread>& threads, std::function<void(const std::string&)> tell);
  ~SpinWatch();
  SpinWatch(const SpinWatch&) = delete;
  SpinWatch& operator=(const SpinWatch&) = delete;

 private:
  struct Watched {
    Processor& processor;
    clockid_t clock;  ///< What its thread has computed. On a busy computer that takes longer.
    std::uint32_t switches = 0;
    double since = 0;                ///< On that clock: no switch has been seen from here on.
    double slice = 0;                ///< On that clock: when the time slice began.
    double sampled = 0;              ///< On that clock: up to here, cells have their part.
    Clock::time_point since_then{};  ///< As `since`, on the wall's clock.
  };

  void watch();
  [[nodiscard]] bool look(Watched& at);
  void sample(Watched& at, double now);
  void tell(Watched& at, double now, Clock::time_point wall);

  const Domain& domain_;
  const std::function<void(const std::string&)> tell_;
  bool told_ = false;
  std::vector<Watched> watched_;
  std::atomic<std::uint32_t> over_{0};
  std::thread thread_;
};

}  // namespace aplib
