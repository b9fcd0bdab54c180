// SPDX-License-Identifier: MIT
// For what hangs where something is wrong.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace aplib::testing_support {

/// Ends this program, with a text, unless it goes away in time: what it guards hangs by mistake only.
class EndsInTime {
 public:
  explicit EndsInTime(std::string what, std::chrono::seconds time = std::chrono::seconds(180))
      : what_(std::move(what)), thread_([this, time] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, time, [this] { return over_; })) return;
          std::fprintf(stderr, "%s hangs\n", what_.c_str());
          std::abort();
        }) {}
  ~EndsInTime() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  EndsInTime(const EndsInTime&) = delete;
  EndsInTime& operator=(const EndsInTime&) = delete;

 private:
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace aplib::testing_support
