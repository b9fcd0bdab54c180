// SPDX-License-Identifier: MIT
// SharedMemory: the kernel's API for front ends whose cells share memory between processes of one host: zeros that one
// process makes and the others map, each at an address of its own. It has no name in the file system, and is gone when
// the last process that maps it is, however that ends.
//
// `call`: as in api.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "aplib/export.hpp"
#include "memory/shared_file.hpp"

namespace aplib::api {

class SharedMemory {
 public:
  /// Nothing: the system has none, or not as much.
  [[nodiscard]] APLIB_API static std::optional<SharedMemory> make(std::size_t bytes) noexcept;
  /// What another process, or this one, has made. Nothing: it cannot be mapped here.
  [[nodiscard]] APLIB_API static std::optional<SharedMemory> open(const SharedFilePlace& place, std::size_t bytes);
  APLIB_API ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept
      : file_(std::move(other.file_)), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  SharedMemory& operator=(SharedMemory&&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Where others find it while this lives, if this has made it. Otherwise a place where nothing is.
  [[nodiscard]] APLIB_API SharedFilePlace place() const noexcept;
  /// Nobody looks for it any more: it needs no descriptor.
  APLIB_API void end_place() noexcept;

 private:
  SharedMemory(std::optional<SharedFile> file, std::byte* data, std::size_t bytes) noexcept
      : file_(std::move(file)), data_(data), bytes_(bytes) {}
  static std::byte* map(int descriptor, std::size_t bytes) noexcept;

  std::optional<SharedFile> file_;  // nothing: another process has made it
  std::byte* data_;
  std::size_t bytes_;
};

/// Whether the process is this one, or one of this host whose memory may be mapped. Call from: task.
[[nodiscard]] APLIB_API bool shares_host(const char* call, std::uint32_t process);
}  // namespace aplib::api
