// SPDX-License-Identifier: MIT
// WayLanes: lanes of a transfer with a host of a pool. They join what its keeper has started there (knock.hpp), by the
// way to that keeper. ssh gives each lane a window of 2 MiB, and the kernel each connection of ssh some more; so a way
// takes two lanes, and where a transfer is faster with the second, further connections of ssh are made, which stand as
// long as the pool.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/pool.hpp"

namespace aplib::launch::pool {

class WayLanes final : public LaneSource {
 public:
  /// Of what was started with `token` on host `host` of the pool, which outlives it. Throws Error(exhausted).
  WayLanes(const Pool& pool, std::size_t host, std::uint64_t token);
  ~WayLanes() override;

  [[nodiscard]] int fd() const noexcept override { return come_.get(); }
  [[nodiscard]] os::UniqueFd take() override;
  void want(std::size_t lanes) override;

 private:
  void work();
  [[nodiscard]] bool open_lane(std::size_t way);
  [[nodiscard]] bool stands(std::size_t way) const;
  void open_ways(const std::vector<std::size_t>& ways, const std::string& remote);

  const Pool& pool_;
  const std::size_t host_;
  const std::uint64_t token_;
  std::size_t asked_ = 1;  // the caller's thread alone
  os::EventFd come_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t wanted_ = 1;
  std::deque<os::UniqueFd> lanes_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace aplib::launch::pool
