// SPDX-License-Identifier: MIT
#include "comm/bell.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "aplib/error.hpp"

namespace aplib::comm {

Bell::Bell() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ >= 0) return;
  throw Error(Errc::exhausted, fmt::format("cannot make a descriptor to wait on: {}; raise the limit of open files "
                                           "(ulimit -n)",
                                           std::generic_category().message(errno)));
}

Bell::~Bell() { ::close(descriptor_); }

void Bell::ring() noexcept {
  const int error = errno;
  constexpr std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, &one, sizeof one);  // fails only when it rings already
  rung_.store(true);
  errno = error;
}

void Bell::end() noexcept {
  const std::lock_guard lock(mutex_);
  if (sleepers_.fetch_sub(1) != 1 || !rung_.exchange(false)) return;
  std::uint64_t count;
  [[maybe_unused]] const ssize_t read = ::read(descriptor_, &count, sizeof count);
}

}  // namespace aplib::comm
