// SPDX-License-Identifier: MIT
#include "launch/destination.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace aplib::launch {

int write_all(int descriptor, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd wait{.fd = descriptor, .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Destination::Destination(int descriptor, std::string name, bool owned)
    : descriptor_(descriptor), name_(std::move(name)), owned_(owned), terminal_(::isatty(descriptor) == 1) {}

Destination::~Destination() {
  if (owned_) ::close(descriptor_);
}

bool Destination::write(std::uint64_t writer, std::string_view text) {
  if (text.empty()) return true;
  const std::lock_guard lock(mutex_);
  if (error_ != 0) return true;
  if (open_ != nobody && open_ != writer) {
    error_ = write_all(descriptor_, fmt::format("\n{}", text));
  } else {
    error_ = write_all(descriptor_, text);
  }
  // A cleared line, as progress bars leave it, is as good as a new one.
  open_ = text.ends_with('\n') || text.ends_with("\r\033[K") ? nobody : writer;
  return error_ == 0;
}

bool Destination::is_open(std::uint64_t writer) {
  const std::lock_guard lock(mutex_);
  return open_ == writer;
}

std::string Destination::problem() {
  const std::lock_guard lock(mutex_);
  if (error_ == 0 || error_ == EPIPE) return {};
  return fmt::format("cannot write {}: {}", name_, std::strerror(error_));
}

}  // namespace aplib::launch
