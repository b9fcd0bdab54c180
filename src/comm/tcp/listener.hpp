// SPDX-License-Identifier: MIT
// TcpListener: the one port on which a process is reached. Made before the module, so that its address can be told to the others first: who connects early waits in the
// system's queue.
#pragma once

#include <string>

namespace aplib::comm {

/// A range of ports from an option: "5100-5120", "5103", or "" for any.
struct PortRange {
  unsigned first = 0;
  unsigned last = 0;  ///< 0, 0: any.
  /// Throws Error(bad_option).
  [[nodiscard]] static PortRange parse(const std::string& text);
};

class TcpListener {
 public:
  /// Listens on this one address ("10.0.0.1", "::1", "fe80::1%eth0") and the first free port of the range. Throws Error(failed): the address is not this host's, or every port is taken; then it
  /// names who holds them, as far as can be seen.
  TcpListener(const std::string& address, const std::string& ports);
  ~TcpListener();
  TcpListener(TcpListener&& other) noexcept;
  TcpListener& operator=(TcpListener&& other) noexcept;
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  /// "10.0.0.1:5103", "[::1]:5103".
  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }
  /// The socket, from now on the caller's. Once.
  [[nodiscard]] int release() noexcept;

 private:
  int socket_ = -1;
  std::string endpoint_;
};

}  // namespace aplib::comm
