// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

namespace bench_module {

Wire::~Wire() { close(socket_); }

void Wire::write(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw std::runtime_error("the other process has ended");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void Wire::read(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = recv(socket_, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw std::runtime_error("the other process has ended");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::string Wire::swap(const std::string& text) const {
  tell(text.size());
  write(std::as_bytes(std::span(text)));
  std::string other(hear<std::size_t>(), '\0');
  read(std::as_writable_bytes(std::span(other)));
  return other;
}

}  // namespace bench_module
