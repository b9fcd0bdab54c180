// SPDX-License-Identifier: MIT
// A TUN device: what the system sends to it, we read, and what we write has come from it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/os/descriptor.hpp"

namespace aplib::wan {

/// A TUN device in a network namespace. It is gone when this object, or its process, is.
class Tun {
 public:
  /// What stands before each packet where devices take packets of 64 KiB, which they cut up or join as others expect.
  static constexpr std::size_t offload_header = 10;  // struct virtio_net_hdr

  /// Makes it in the namespace of the file (/run/netns/..., /proc/PID/ns/net). Throws std::runtime_error with cause
  /// and remedy. REQUIRES: a process of one thread.
  Tun(const std::string& name_space, const std::string& device, bool offload);

  /// For poll(); negative when the device is gone.
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  /// The next packet's size, in `into`; 0: there is none now, or the device is gone.
  [[nodiscard]] std::size_t read(std::span<std::byte> into) noexcept;
  /// Whether the packet has come in there. A device that is not up takes none.
  bool write(std::span<const std::byte> packet) noexcept;
  /// Its namespace has ended, and the device with it.
  void close() noexcept { file_.reset(); }

 private:
  os::UniqueFd file_;
};

}  // namespace aplib::wan
