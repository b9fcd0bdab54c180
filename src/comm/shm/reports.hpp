// SPDX-License-Identifier: MIT
// Reports: what the thread that polls must hear of, though nothing lies in shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/shm/bell.hpp"

namespace aplib::comm::shm {

class Link;

/// A link is up; or nothing more comes, why.
struct LinkReport {
  Link* link = nullptr;
  std::optional<std::string> lost;
};
/// A write or read of another process's memory is over.
struct MemoryReport {
  std::uint64_t context = 0;
  bool ok = false;
};

/// Thread safety: any thread.
class Reports {
 public:
  explicit Reports(Bell& bell) noexcept : bell_(bell) {}

  /// Throws std::bad_alloc.
  void add(LinkReport report) {
    add_to(links_, std::move(report));
    bell_.ring();
  }
  void add(MemoryReport report) {
    add_to(memory_, report);
    bell_.ring_if_armed();
  }

  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::pair<std::vector<LinkReport>, std::vector<MemoryReport>> take() {
    const std::lock_guard hold(mutex_);
    any_.store(false, std::memory_order_relaxed);  // relaxed: under the mutex, else a hint
    return {std::exchange(links_, {}), std::exchange(memory_, {})};
  }

 private:
  template <class Report>
  void add_to(std::vector<Report>& list, Report report) {
    const std::lock_guard hold(mutex_);
    list.push_back(std::move(report));
    any_.store(true, std::memory_order_relaxed);
  }

  Bell& bell_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<LinkReport> links_;
  std::vector<MemoryReport> memory_;
};

}  // namespace aplib::comm::shm
