// SPDX-License-Identifier: MIT

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "comm/rdma/buffers.hpp"

namespace aplib::comm::rdma {
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

std::unique_ptr<RegisteredPool::Block> RegisteredPool::take(std::size_t bytes) noexcept {
  const unsigned bits = std::max(static_cast<unsigned>(std::bit_width(bytes - 1)), smallest_bits);
  std::vector<std::unique_ptr<Block>>& same = free_[bits];
  if (!same.empty()) {
    std::unique_ptr<Block> block = std::move(same.back());
    same.pop_back();
    kept_bytes_ -= block->bytes;
    return block;
  }
  try {
    auto block = std::make_unique<Block>();
    block->bytes = std::size_t{1} << bits;
    block->memory = std::make_unique_for_overwrite<std::byte[]>(block->bytes);
    int error = 0;
    block->region = fabric_.enroll({block->memory.get(), block->bytes}, FI_REMOTE_READ | FI_SEND, error);
    if (!block->region) return nullptr;
    return block;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void RegisteredPool::give(std::unique_ptr<Block> block) noexcept {
  std::vector<std::unique_ptr<Block>>& same = free_[static_cast<unsigned>(std::countr_zero(block->bytes))];
  const std::size_t bytes = block->bytes;
  if (kept_bytes_ + bytes > kept_bytes_max) return;
  try {
    same.push_back(std::move(block));
    kept_bytes_ += bytes;
  } catch (const std::bad_alloc&) {  // Then it is not kept.
  }
}

void RegisteredPool::clear() noexcept {
  for (std::vector<std::unique_ptr<Block>>& same : free_) same.clear();
  kept_bytes_ = 0;
}

}  // namespace aplib::comm::rdma
