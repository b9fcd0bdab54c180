// SPDX-License-Identifier: MIT
// SharedMemory: a piece of memory without a name that goes from one process to another as a descriptor. Who makes
// it writes it; who gets it reads it, and can neither write nor shorten it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/os/descriptor.hpp"

namespace aplib::comm::shm {

class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Zeros. Takes room as it is touched. Throws Error(exhausted).
  [[nodiscard]] static SharedMemory make(std::size_t bytes);
  /// Maps what another process has made. Nothing: it is not what that process should have given, `why` says so for
  /// people.
  [[nodiscard]] static std::optional<SharedMemory> open(const os::UniqueFd& descriptor, std::size_t bytes,
                                                        std::string& why);

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// For the other process. Only of what was made here.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  /// Nobody else gets it from now on.
  void forget_descriptor() noexcept { descriptor_.reset(); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  os::UniqueFd descriptor_;
};

}  // namespace aplib::comm::shm
