// SPDX-License-Identifier: MIT
// RegisteredPool: memory for bodies that wait to be read by their receivers, registered once and used again and again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/rdma/fabric.hpp"

namespace aplib::comm {

/// Thread safety: none (the module's lock).
class RegisteredPool {
 public:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    Fid<fid_mr> region;
  };

  explicit RegisteredPool(Fabric& fabric) noexcept : fabric_(fabric) {}

  /// At least so many bytes. Null: there is no memory, or it cannot be registered.
  [[nodiscard]] std::unique_ptr<Block> take(std::size_t bytes) noexcept;
  void give(std::unique_ptr<Block> block) noexcept;
  void clear() noexcept;

 private:
  static constexpr std::size_t kept_bytes_max = std::size_t{64} * 1024 * 1024;
  static constexpr unsigned smallest_bits = 15;

  Fabric& fabric_;
  std::array<std::vector<std::unique_ptr<Block>>, 64> free_;  // By size, a power of two.
  std::size_t kept_bytes_ = 0;
};

}  // namespace aplib::comm
