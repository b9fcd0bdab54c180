// SPDX-License-Identifier: MIT
// Owned descriptors: an open file, pipes and an event that close themselves. And whole files.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/error.hpp"

namespace aplib::os {

/// poll() that does not wait. The kernel fails it with EINTR where a signal has come, though there is no wait to end.
/// Call from: any thread; async-signal-safe.
inline int poll_now(pollfd* polled, nfds_t count) noexcept {
  int ready = 0;
  do {
    ready = ::poll(polled, count, 0);
  } while (ready < 0 && errno == EINTR);
  return ready;
}

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

// Loaded programs close descriptors that they did not open (a daemon closes them all), and share the process's table
// with the runtime. What is guarded, their close() and its kin do not find (loader/libc/descriptors.cpp).

/// Any thread; async-signal-safe; keep errno. A number stands for the file that is open there when it is guarded: when
/// that has been closed and another one opened, it is guarded no more.
void guard_descriptor(int descriptor) noexcept;
void unguard_descriptor(int descriptor) noexcept;
[[nodiscard]] bool is_guarded(int descriptor) noexcept;
/// Guards what is open now and closed by exec: what the runtime has opened, not what the user has handed over. Any
/// thread.
void guard_open_descriptors();
/// The numbers from 3 on that are open now. Any thread.
[[nodiscard]] std::vector<int> open_descriptors();

/// A UniqueFd that is guarded.
class GuardedFd {
 public:
  GuardedFd() noexcept = default;
  explicit GuardedFd(UniqueFd descriptor) noexcept : descriptor_(std::move(descriptor)) {
    guard_descriptor(descriptor_.get());
  }
  explicit GuardedFd(int descriptor) noexcept : GuardedFd(UniqueFd(descriptor)) {}
  ~GuardedFd() { unguard_descriptor(descriptor_.get()); }
  GuardedFd(GuardedFd&&) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept {
    unguard_descriptor(descriptor_.get());
    descriptor_ = std::move(other.descriptor_);
    return *this;
  }

  [[nodiscard]] int get() const noexcept { return descriptor_.get(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(descriptor_); }
  /// The caller closes it from here on.
  [[nodiscard]] int release() noexcept {
    unguard_descriptor(descriptor_.get());
    return descriptor_.release();
  }

 private:
  UniqueFd descriptor_;
};

/// Which folder a descriptor leads to, and by which mount: two of the same one are equal, as long as one is open.
struct DirectoryId {
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t mount;
  bool operator==(const DirectoryId&) const noexcept = default;
};
/// Nothing: the system cannot say (Linux before 5.8).
[[nodiscard]] std::optional<DirectoryId> id_of_directory(int descriptor) noexcept;

/// What `descriptor` gives up to its end; nothing where reading fails: errno says why.
[[nodiscard]] inline std::optional<std::string> read_all(int descriptor) {
  std::string text;
  char block[16384];
  for (;;) {
    const ssize_t bytes = ::read(descriptor, block, sizeof block);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return std::nullopt;
    if (bytes == 0) return text;
    text.append(block, static_cast<std::size_t>(bytes));
  }
}

/// The contents of `path`; nothing where it cannot be read: errno says why.
[[nodiscard]] inline std::optional<std::string> read_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file ? read_all(file.get()) : std::nullopt;
}

/// Writes all of `bytes`. False: errno says why.
[[nodiscard]] inline bool write_all(int descriptor, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// What helps where there is no memory: behind the reason.
inline constexpr const char* memory_remedy =
    "; raise the limit on address space (ulimit -v), or that of the control group";

/// What helps where this was thrown: there is no memory, or a size is none.
[[nodiscard]] inline const char* remedy_of(const std::exception& error) noexcept {
  const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr &&
                            dynamic_cast<const std::bad_array_new_length*>(&error) == nullptr;
  return lacks_memory ? memory_remedy : "";
}

/// Whether a file, or memory that is one, may have so many bytes. Else errno is EFBIG: to give it them would end the
/// process by SIGXFSZ.
[[nodiscard]] inline bool file_may_have(std::uint64_t bytes) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return true;
  errno = EFBIG;
  return false;
}

/// What the system says of an error (errno), and of one that is a limit on files or memory what helps.
[[nodiscard]] inline std::string text_of(int error) {
  std::string text = std::strerror(error);
  if (error == EMFILE) text += "; raise the limit of open files (ulimit -n)";
  if (error == EFBIG) text += "; raise the limit on the size of files (ulimit -f)";
  if (error == ENOMEM) text += memory_remedy;
  if (error == ENFILE) text += "; the computer has no room for more open files (sysctl fs.file-max)";
  return text;
}

/// Throws Error(exhausted) from errno: "cannot make <what>: <reason>; <remedy>".
[[noreturn]] inline void refuse_descriptor(const char* what) {
  const int reason = errno;
  throw Error(Errc::exhausted, std::string("cannot make ") + what + ": " + text_of(reason));
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

/// What one side of a conversation by two pipes has.
struct Ends {
  UniqueFd reader;  ///< Of what the other side writes.
  UniqueFd writer;  ///< To what the other side reads.
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
