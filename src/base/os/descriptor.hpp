// SPDX-License-Identifier: MIT
// Owned descriptors: an open file, a pipe and an event that close themselves.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::os {

/// An open file, closed with its owner. -1: none.
class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int descriptor) noexcept : descriptor_(descriptor) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : descriptor_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }
  /// The caller closes it from here on.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }
  /// Closes it, and owns `descriptor` from here on. Keeps errno. Async-signal-safe.
  void reset(int descriptor = -1) noexcept {
    const int kept = errno;
    // close() is not repeated after EINTR: Linux has released the descriptor by then.
    if (const int old = std::exchange(descriptor_, descriptor); old >= 0) ::close(old);
    errno = kept;
  }

 private:
  int descriptor_ = -1;
};

/// Throws Error(exhausted) from errno: "cannot make <what>: <reason>; <remedy>".
[[noreturn]] inline void refuse_descriptor(const char* what) {
  const int reason = errno;
  std::string text = std::string("cannot make ") + what + ": " + std::strerror(reason);
  if (reason == EMFILE) text += "; raise the limit of open files (ulimit -n)";
  if (reason == ENFILE) text += "; the computer has no room for more open files (sysctl fs.file-max)";
  throw Error(Errc::exhausted, text);
}

/// A pipe whose ends are closed by exec. Either end can be closed or released alone.
struct Pipe {
  UniqueFd reader;
  UniqueFd writer;

  /// `flags` are further ones of pipe2(2), for example O_NONBLOCK. Throws Error(exhausted).
  static Pipe make(int flags = 0) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | flags) != 0) refuse_descriptor("a pipe");
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
};

/// A counter in the kernel that polls as readable while it is not zero (eventfd). Never blocks; closed by exec.
class EventFd {
 public:
  /// Throws Error(exhausted).
  EventFd() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!descriptor_) refuse_descriptor("an event");
  }
  /// Of a descriptor that came from elsewhere, for example another process.
  explicit EventFd(UniqueFd descriptor) noexcept : descriptor_(std::move(descriptor)) {}

  [[nodiscard]] int get() const noexcept { return descriptor_.get(); }
  /// Makes it readable. Any thread; async-signal-safe; keeps errno.
  void signal() const noexcept {
    const int kept = errno;
    const std::uint64_t one = 1;
    // A full counter is readable already, so that a refused write loses nothing.
    [[maybe_unused]] const auto written = ::write(descriptor_.get(), &one, sizeof one);
    errno = kept;
  }
  /// Makes it unreadable. True when it was readable. Any thread.
  bool clear() const noexcept {
    std::uint64_t count = 0;
    return ::read(descriptor_.get(), &count, sizeof count) == sizeof count;
  }

 private:
  UniqueFd descriptor_;
};

}  // namespace aplib::os
