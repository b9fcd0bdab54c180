// SPDX-License-Identifier: MIT
#include "memory/body_arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "arch/cpu.hpp"

namespace aplib {

char* BodyArena::map(int descriptor) noexcept {
  void* const got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  return got == MAP_FAILED ? nullptr : static_cast<char*>(got);
}

std::unique_ptr<BodyArena> BodyArena::open(const SharedFilePlace& place) {
  const os::UniqueFd file = SharedFile::open(place, name, bytes);
  char* const base = file ? map(file.get()) : nullptr;
  return base != nullptr ? std::unique_ptr<BodyArena>(new BodyArena(base)) : nullptr;
}

BodyArena::~BodyArena() { ::munmap(base_, bytes); }

void BodyArena::give_back(std::uint32_t number) noexcept {
  std::atomic<std::uint32_t>& first = links()[0];
  std::uint32_t seen = first.load(std::memory_order_relaxed);  // relaxed: the exchange below publishes
  do {
    links()[number].store(seen, std::memory_order_relaxed);  // relaxed: the same
  } while (!first.compare_exchange_weak(seen, number, std::memory_order_release,
                                        std::memory_order_relaxed));  // invariant (2)
}

std::unique_ptr<LendingArena> LendingArena::make() {
  auto file = SharedFile::make(name, bytes);
  char* const base = file ? map(file->descriptor()) : nullptr;
  return base != nullptr ? std::unique_ptr<LendingArena>(new LendingArena(*std::move(file), base)) : nullptr;
}

LendingArena::LendingArena(SharedFile file, char* base) noexcept : BodyArena(base), file_(std::move(file)) {
  mark(true, 0, 1);  // invariant (2)
}

std::uint32_t LendingArena::lend(std::span<const std::byte> body) noexcept {
  const std::uint32_t number = begin(body.size());
  if (number == 0) return 0;
  copy_long(at(number), body.data(), body.size());
  complete(number, body.size());
  return number;
}

std::uint32_t LendingArena::begin(std::size_t body_bytes) noexcept {
  return body_bytes != 0 && body_bytes <= bytes ? reserve(units_of(body_bytes)) : 0;
}

void LendingArena::fill(std::uint32_t number, std::size_t first, std::span<const std::byte> part) const noexcept {
  copy_past_caches(at(number) + first, part.data(), part.size());
}

void LendingArena::complete(std::uint32_t number, std::size_t body_bytes) noexcept {
  lent_[number].store(static_cast<std::uint16_t>(units_of(body_bytes)), std::memory_order_release);  // for release()
}

std::uint32_t LendingArena::reserve(std::uint32_t count) noexcept {
  const std::lock_guard hold(lock_);
  collect();
  for (std::uint32_t first = next(false, 0); first < unit_count;) {
    const std::uint32_t end = next(true, first);
    if (end - first >= count) {
      mark(true, first, count);
      return first;
    }
    first = next(false, end);
  }
  return 0;
}

void LendingArena::take_back(std::uint32_t number, std::size_t body_bytes) noexcept {
  complete(number, body_bytes);
  const std::lock_guard hold(lock_);
  release(number);
}

void LendingArena::collect() noexcept {
  if (links()[0].load(std::memory_order_relaxed) == 0) return;               // relaxed: a look
  std::uint32_t number = links()[0].exchange(0, std::memory_order_acquire);  // invariant (2)
  while (number != 0) {
    const std::uint32_t after = number < unit_count ? links()[number].load(std::memory_order_relaxed) : 0;  // the same
    if (!release(number)) {                              // also the end of a circle of links: invariant (1)
      deceived_.store(true, std::memory_order_relaxed);  // a flag
      return;
    }
    number = after;
  }
}

/// False: it was not lent.
bool LendingArena::release(std::uint32_t number) noexcept {
  // acquire: whoever has filled it before
  const std::uint32_t count = number < unit_count ? lent_[number].exchange(0, std::memory_order_acquire) : 0;
  mark(false, number, count);
  return count != 0;
}

/// The first unit from `from` on that is in use, or free; unit_count: there is none.
std::uint32_t LendingArena::next(bool used, std::uint32_t from) const noexcept {
  std::uint64_t wanted = ~std::uint64_t{0} << from % word_bits;
  for (std::uint32_t word = from / word_bits; word < used_.size(); ++word, wanted = ~std::uint64_t{0}) {
    const std::uint64_t bits = (used ? used_[word] : ~used_[word]) & wanted;
    if (bits != 0) return word * word_bits + static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  return unit_count;
}

void LendingArena::mark(bool used, std::uint32_t first, std::uint32_t count) noexcept {
  while (count != 0) {
    const std::uint32_t bit = first % word_bits;
    const std::uint32_t here = std::min(count, word_bits - bit);
    const std::uint64_t bits = (~std::uint64_t{0} >> (word_bits - here)) << bit;
    std::uint64_t& word = used_[first / word_bits];
    word = used ? word | bits : word & ~bits;
    first += here;
    count -= here;
  }
}

}  // namespace aplib
