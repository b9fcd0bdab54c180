// SPDX-License-Identifier: MIT
// Pair: this process and one that it forks, each on a core and, if wanted, in a network namespace of its own,
// joined by one connection. The other does what it is told: answers messages, takes windows of them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "stream.hpp"

namespace net {

struct Placement {
  std::string near_namespace;  ///< Names as `ip netns` has them. Empty: this process's own.
  std::string far_namespace;
  std::string address = "127.0.0.1";  ///< Of the far process.
};

class Pair {
 public:
  /// Throws std::runtime_error.
  Pair(Kind kind, const Placement& placement);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// Seconds of `count` messages there and as many back.
  double ping_pongs(std::size_t bytes, std::uint64_t count);
  /// Seconds of `count` windows of `window` messages there, each closed by an acknowledgement of 8 B.
  double windows(std::size_t bytes, std::uint64_t window, std::uint64_t count);

 private:
  double ordered(std::uint64_t kind, std::size_t bytes, std::uint64_t window, std::uint64_t count);

  std::unique_ptr<Stream> stream_;
  int orders_ = -1;
  pid_t far_ = -1;
};

}  // namespace net
