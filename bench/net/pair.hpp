// SPDX-License-Identifier: MIT
// Pair: this process and one that it forks, each on its own core and, if wanted, in its own network namespace, joined
// by one connection. The other process carries out orders: it answers messages and receives windows of them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "stream.hpp"

namespace net {

struct Placement {
  std::string near_namespace;  ///< Names of `ip netns`. Empty: this process's own.
  std::string far_namespace;
  std::string address = "127.0.0.1";  ///< The far process's address.
};

class Pair {
 public:
  /// Throws std::runtime_error.
  Pair(Kind kind, const Placement& placement);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// Seconds of `count` messages there and `count` back.
  double ping_pongs(std::size_t bytes, std::uint64_t count);
  /// Seconds of `count` windows of `window` messages there, each of which ends with an acknowledgement of 8 B.
  double windows(std::size_t bytes, std::uint64_t window, std::uint64_t count);

 private:
  double ordered(std::uint64_t kind, std::size_t bytes, std::uint64_t window, std::uint64_t count);

  std::unique_ptr<Stream> stream_;
  int orders_ = -1;
  pid_t far_ = -1;
};

}  // namespace net
