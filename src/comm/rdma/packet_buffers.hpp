// SPDX-License-Identifier: MIT
// PacketBuffers: memory of fixed size for packets, in registered blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/rdma/fabric.hpp"

namespace aplib::comm {

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

}  // namespace aplib::comm
