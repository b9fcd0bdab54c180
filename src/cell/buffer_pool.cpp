// SPDX-License-Identifier: MIT
#include "cell/buffer_pool.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "aplib/error.hpp"
#include "arch/system.hpp"

namespace aplib {

namespace {

constexpr std::size_t chunk_bytes = 256 * 1024;

// So that the push_back that follows a mapping cannot fail.
template <class T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<std::size_t>(16, 2 * list.size()));
}

}  // namespace

void BufferPool::set_place(std::uint32_t index, std::uint32_t pool_count) {
  index_ = index;
  batches_.resize(pool_count);
  batch_live_.reserve(pool_count);  // so that put_foreign() does not throw: invariant (5)
}

BufferPool::~BufferPool() {
  for (Buffer* buffer : large_) munmap(buffer, sizeof(Buffer) + body_bytes(buffer->size_class));
  for (void* chunk : chunks_) munmap(chunk, chunk_bytes);
}

void* BufferPool::map(std::size_t bytes, std::size_t wanted) const {
  const bool low = pools_ != nullptr && pools_->low_.load(std::memory_order_relaxed);  // relaxed: a wish
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (low ? arch::map_low : 0), -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(Errc::exhausted,
                fmt::format("no memory{} for a message of {} bytes: {}; receive messages sooner, send smaller ones, or "
                            "raise the limit on address space (ulimit -v)",
                            low ? " below 2 GiB (option low-memory)" : "", wanted, std::strerror(errno)));
  }
  if (bytes >= (4U << 20)) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

Buffer* BufferPool::pop_free(std::uint32_t size_class) noexcept {
  if (free_[size_class].empty()) return nullptr;
  if (size_class >= large_class) large_cached_bytes_ -= body_bytes(size_class);
  return free_[size_class].pop();
}

Buffer* BufferPool::get_slowly(std::uint32_t size_class, std::size_t bytes) {
  if (size_class >= class_count) {
    throw Error(Errc::exhausted,
                fmt::format("a message of {} bytes is larger than any buffer; send it in pieces", bytes));
  }
  if (Buffer* buffer = pop_free(size_class)) return buffer;
  if (collect()) {
    if (Buffer* buffer = pop_free(size_class)) return buffer;
  }
  if (size_class >= large_class) return map_large(size_class, bytes);
  carve(size_class, bytes);
  return pop_free(size_class);
}

// It goes to its user at once: the cache of free buffers may have no room for it.
Buffer* BufferPool::map_large(std::uint32_t size_class, std::size_t bytes) {
  const std::size_t each = sizeof(Buffer) + body_bytes(size_class);
  make_room(large_);
  free_[size_class].make_room(1);
  auto* buffer = ::new (map(each, bytes)) Buffer;
  free_[size_class].made(1);
  buffer->home = this;
  buffer->size_class = size_class;
  buffer->large_index = static_cast<std::uint32_t>(large_.size());
  large_.push_back(buffer);
  committed_bytes_ += each;
  return buffer;
}

void BufferPool::carve(std::uint32_t size_class, std::size_t bytes) {
  const std::size_t each = sizeof(Buffer) + body_bytes(size_class);
  const std::size_t count = chunk_bytes / each;
  make_room(chunks_);
  free_[size_class].make_room(count);
  auto* chunk = static_cast<char*>(map(chunk_bytes, bytes));
  chunks_.push_back(chunk);
  committed_bytes_ += chunk_bytes;
  free_[size_class].made(count);
  // Highest address first, so that the lowest is used first. A large class takes a few buffers, a small one fills
  // the chunk.
  for (std::size_t n = count; n-- > 0;) {
    auto* buffer = ::new (chunk + n * each) Buffer;
    buffer->home = this;
    buffer->size_class = size_class;
    put_own(buffer);
  }
}

// Makes room in the cache for one more large buffer of this class. Others go, for a program that has turned to
// another size would map and unmap every message else. False: one alone is too large.
bool BufferPool::keep_large(std::uint32_t size_class) noexcept {
  const std::size_t bytes = body_bytes(size_class);
  if (bytes > large_cache_bytes_max) return false;
  for (std::uint32_t other = class_count;
       large_cached_bytes_ + bytes > large_cache_bytes_max && other-- > large_class;) {
    if (other == size_class) continue;
    while (large_cached_bytes_ + bytes > large_cache_bytes_max && !free_[other].empty()) unmap(pop_free(other));
  }
  if (large_cached_bytes_ + bytes > large_cache_bytes_max) return false;  // all of this class
  large_cached_bytes_ += bytes;
  return true;
}

// Before anything else is done with the buffer: the body may be wanted for the next message.
void BufferPool::make_ordinary(Buffer* buffer) noexcept {
  if (buffer->size_class == Buffer::shared_class) buffer->shared().arena->give_back(buffer->shared().number);
  buffer->size_class = class_of(smallest_body);
}

void BufferPool::put_large(Buffer* buffer) noexcept {
  if (buffer->size_class >= Buffer::lease_class) {
    make_ordinary(buffer);
    return push_free(buffer);
  }
  if (keep_large(buffer->size_class)) {
    push_free(buffer);
  } else {
    unmap(buffer);
  }
}

void BufferPool::unmap(Buffer* buffer) noexcept {
  const std::size_t each = sizeof(Buffer) + body_bytes(buffer->size_class);
  large_.back()->large_index = buffer->large_index;
  large_[buffer->large_index] = large_.back();
  large_.pop_back();
  free_[buffer->size_class].unmade();
  committed_bytes_ -= each;
  munmap(buffer, each);
}

void BufferPool::put_foreign(Buffer* buffer) noexcept {
  if (buffer->size_class >= Buffer::lease_class) [[unlikely]]
    make_ordinary(buffer);
  const std::uint32_t home = buffer->home->index_;
  Batch& batch = batches_[home];
  if (batch.count == 0) batch_live_.push_back(home);  // reserved by set_place()
  batch.buffers[batch.count++] = buffer;
  batch.bytes += body_bytes(buffer->size_class);
  if (batch.count >= batch_count_max || batch.bytes >= batch_bytes_max) {
    send_home(batch);
    batch_live_.erase(std::find(batch_live_.begin(), batch_live_.end(), home));
  }
}

void BufferPool::send_home(Batch& batch) noexcept {
  Buffer* const first = batch.buffers[0];
  first->bytes = (batch.count - 1) * sizeof(Buffer*);
  std::memcpy(first->own_body(), batch.buffers.data() + 1, first->bytes);
  first->home->push_returned(first);
  batch.count = 0;
  batch.bytes = 0;
}

void BufferPool::flush() noexcept {
  for (const std::uint32_t home : batch_live_) send_home(batches_[home]);
  batch_live_.clear();
}

void BufferPool::take_back_outside(Buffer* buffer) noexcept {
  BufferPools& pools = *buffer->home->pools_;
  if (buffer->size_class == Buffer::shared_class) make_ordinary(buffer);
  buffer->bytes = 0;  // a batch of one
  buffer->home->push_returned(buffer);
  pools.give_up(1);
}

BufferPool& BufferPools::add() {
  pools_.push_back(std::make_unique<BufferPool>());
  pools_.back()->belong_to(*this);
  return *pools_.back();
}

void BufferPools::retire() noexcept {
  std::int64_t lent = 0;
  for (const auto& pool : pools_) lent += pool->lent_;
  give_up(alive - lent);
}

void BufferPools::give_up(std::int64_t count) noexcept {
  if (out_.fetch_sub(count, std::memory_order_acq_rel) == count) delete this;  // acq_rel: all uses come before the end
}

void BufferPool::push_returned(Buffer* batch) noexcept {
  batch->next = returned_.load(std::memory_order_relaxed);  // relaxed: the exchange below publishes
  while (!returned_.compare_exchange_weak(batch->next, batch, std::memory_order_release,
                                          std::memory_order_relaxed)) {  // invariant (3)
  }
}

bool BufferPool::collect() noexcept {
  Buffer* batch = returned_.exchange(nullptr, std::memory_order_acquire);  // invariant (3)
  if (batch == nullptr) return false;
  while (batch != nullptr) {
    Buffer* const next = batch->next;
    for (std::size_t at = 0; at < batch->bytes; at += sizeof(Buffer*)) {
      Buffer* other = nullptr;
      std::memcpy(&other, batch->own_body() + at, sizeof other);
      put_own(other);
    }
    put_own(batch);
    batch = next;
  }
  return true;
}

}  // namespace aplib
