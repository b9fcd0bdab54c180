// SPDX-License-Identifier: MIT
// Plain sockets that connect to a module: strangers, and peers that know the key and then misbehave.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/greeting.hpp"

namespace aplib::comm::test {

/// A blocking connection. Fails the test and throws if it cannot be made.
class RawConnection {
 public:
  explicit RawConnection(const std::string& endpoint);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  /// Up to that many bytes, as they come. None: the other side has closed.
  std::vector<std::byte> read(std::size_t bytes);
  /// Greets as the connecting side and reads the verdict. -1: the other side closed before that.
  int greet(const JobKey& key, const Introduction& mine);
  /// Closes with a reset instead of an ordinary end.
  void reset();

 private:
  int socket_;
};

}  // namespace aplib::comm::test
