// SPDX-License-Identifier: MIT
// PacketBuffers: memory of fixed size for packets, in registered blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/rdma/fabric.hpp"

namespace aplib::comm::rdma {

/// Thread safety: none (the module's lock).
class PacketBuffers {
 public:
  /// The context comes first: the provider writes there while it has the buffer.
  struct Buffer {
    fi_context2 context;
    std::byte* memory;
    void* descriptor;
  };

  /// `access`: FI_SEND or FI_RECV.
  PacketBuffers(Fabric& fabric, std::size_t bytes, std::size_t count_max, std::uint64_t access) noexcept
      : fabric_(fabric), bytes_(bytes), count_max_(count_max), access_(access) {}

  /// Null: all are taken, or there is no memory.
  [[nodiscard]] Buffer* take() noexcept;
  void give(Buffer* buffer) noexcept { free_.push_back(buffer); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  void clear() noexcept;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    Fid<fid_mr> region;
    std::unique_ptr<Buffer[]> buffers;
  };
  static constexpr std::size_t per_block = 32;
  bool more() noexcept;

  Fabric& fabric_;
  const std::size_t bytes_;
  const std::size_t count_max_;
  const std::uint64_t access_;
  std::vector<Block> blocks_;
  std::vector<Buffer*> free_;
};

// RegisteredPool: memory for bodies that wait to be read by their receivers, registered once and used again and again.

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

}  // namespace aplib::comm::rdma
