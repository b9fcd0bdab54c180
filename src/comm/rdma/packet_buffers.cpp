// SPDX-License-Identifier: MIT
#include "comm/rdma/packet_buffers.hpp"

#include <new>
#include <utility>

namespace aplib::comm {

PacketBuffers::Buffer* PacketBuffers::take() noexcept {
  if (free_.empty() && !more()) return nullptr;
  Buffer* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

bool PacketBuffers::more() noexcept {
  if (blocks_.size() * per_block >= count_max_) return false;
  try {
    Block block;
    block.memory = std::make_unique_for_overwrite<std::byte[]>(per_block * bytes_);
    block.buffers = std::make_unique<Buffer[]>(per_block);
    void* descriptor = nullptr;
    if (fabric_.needs(FI_MR_LOCAL)) {
      int error = 0;
      block.region = fabric_.enroll({block.memory.get(), per_block * bytes_}, access_, error);
      if (!block.region) return false;
      descriptor = fi_mr_desc(block.region.get());
    }
    free_.reserve((blocks_.size() + 1) * per_block);
    blocks_.reserve(blocks_.size() + 1);
    for (std::size_t i = 0; i < per_block; ++i) {
      block.buffers[i].memory = block.memory.get() + i * bytes_;
      block.buffers[i].descriptor = descriptor;
      free_.push_back(&block.buffers[i]);
    }
    blocks_.push_back(std::move(block));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void PacketBuffers::clear() noexcept {
  free_.clear();
  blocks_.clear();
}

}  // namespace aplib::comm
