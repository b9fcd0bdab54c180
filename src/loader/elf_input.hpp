// SPDX-License-Identifier: MIT
// ElfInput: the bytes of a file of unknown honesty, and the two ways to refuse it. Bytes are read, never mapped: a file that shrinks while it is
// read gives an error, not SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "loader/elf_file.hpp"

namespace aplib::loader {

/// True when [start, start + bytes) lies in [0, limit); never overflows.
[[nodiscard]] constexpr bool lies_in(std::uint64_t start, std::uint64_t bytes, std::uint64_t limit) noexcept {
  return start <= limit && bytes <= limit - start;
}

class ElfInput {
 public:
  /// Opens `path` for reading; the descriptor is not inherited by other programs. Throws Error(failed) when there is no regular file to read.
  explicit ElfInput(const std::string& path);
  ~ElfInput();
  ElfInput(const ElfInput&) = delete;
  ElfInput& operator=(const ElfInput&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }  ///< Absolute, symbolic links resolved.
  [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return identity_.bytes; }
  /// The descriptor, which the caller closes from now on.
  [[nodiscard]] int release() noexcept;

  /// `count` elements at `offset` of the file; `what` is their name in an error.
  template <typename T>
  [[nodiscard]] std::vector<T> table(std::uint64_t offset, std::uint64_t count, std::string_view what) const {
    static_assert(std::is_trivially_copyable_v<T>);
    check_table(offset, count, sizeof(T), what);
    std::vector<T> elements(count);
    read(offset, std::as_writable_bytes(std::span(elements)), what);
    return elements;
  }

  /// Refuses an intact file that cannot be used here.
  [[noreturn]] void refuse(std::string_view cause, std::string_view remedy) const;
  /// Refuses a file whose bytes contradict each other.
  [[noreturn]] void damaged(std::string_view place, std::string_view cause) const;

 private:
  void check_table(std::uint64_t offset, std::uint64_t count, std::size_t element, std::string_view what) const;
  void read(std::uint64_t offset, std::span<std::byte> to, std::string_view what) const;

  std::string path_;
  int descriptor_ = -1;
  FileIdentity identity_;
};

/// Who the open file is. Throws Error(failed) naming `path` when the system cannot tell.
[[nodiscard]] FileIdentity identify(int descriptor, const std::string& path);

}  // namespace aplib::loader
