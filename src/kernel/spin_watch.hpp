// SPDX-License-Identifier: MIT
// SpinWatch: tells once of a task that computes for seconds without a call, while other tasks wait for its processor.
// It may wait for what one of those is to do. Nobody can know, so the text says what to do in that case.
//
// A thread of its own looks once a second. The processors do nothing for it.
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
    const Processor& processor;
    clockid_t clock;  ///< What its thread has computed. On a busy computer that takes longer.
    std::uint32_t switches = 0;
    double since = 0;  ///< On that clock: no switch has been seen from here on.
  };

  void watch();
  [[nodiscard]] std::string look(Watched& at) const;

  const Domain& domain_;
  const std::function<void(const std::string&)> tell_;
  std::vector<Watched> watched_;
  std::atomic<std::uint32_t> over_{0};
  std::thread thread_;
};

}  // namespace aplib
