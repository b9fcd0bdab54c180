// SPDX-License-Identifier: MIT
#include "comm/shm/remote_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "aplib/error.hpp"
#include "comm/job_key.hpp"

namespace aplib::comm::shm {
namespace {

struct KeyWords {
  std::uint64_t token;
  std::uint64_t first;
  std::uint64_t bytes;
  std::uint32_t place;
  std::uint32_t reserved;
};

std::optional<KeyWords> words_of(const MemoryKey& key) noexcept {
  KeyWords words{};
  if (key.bytes != sizeof words) return std::nullopt;
  std::memcpy(&words, key.words.data(), sizeof words);
  if (words.place >= openings_max || words.token == 0) return std::nullopt;
  return words;
}

void* pointer(std::uint64_t address) noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));  // of another process
}

}  // namespace

OpenMemory::OpenMemory(ControlBlock& block) : block_(block) {
  std::array<std::byte, sizeof next_token_> random;
  fill_random(random);
  std::memcpy(&next_token_, random.data(), sizeof next_token_);
}

MemoryKey OpenMemory::open(std::span<std::byte> memory) {
  const std::lock_guard hold(mutex_);
  if (free_.empty() && used_ == openings_max) {
    throw Error(Errc::exhausted,
                fmt::format("shm: expose: {} pieces of memory are open already: conceal some, or open larger ones",
                            openings_max));
  }
  free_.reserve(std::size_t{used_} + 1);  // so that conceal() needs no memory
  KeyWords words{};
  if (free_.empty()) {
    words.place = used_++;
  } else {
    words.place = free_.back();
    free_.pop_back();
  }
  if (++next_token_ == 0) ++next_token_;
  words.token = next_token_;
  words.first = reinterpret_cast<std::uintptr_t>(memory.data());
  words.bytes = memory.size();
  block_.openings[words.place].store(words.token, std::memory_order_release);  // release: the memory is mapped
  MemoryKey key;
  key.bytes = sizeof words;
  std::memcpy(key.words.data(), &words, sizeof words);
  return key;
}

bool OpenMemory::conceal(const MemoryKey& key) noexcept {
  const std::optional<KeyWords> words = words_of(key);
  if (!words) return false;
  const std::lock_guard hold(mutex_);
  std::uint64_t token = words->token;
  // The default order puts the removal before the look at what others have begun. It pairs with access().
  if (!block_.openings[words->place].compare_exchange_strong(token, 0)) return false;
  free_.push_back(words->place);  // reserved by open()
  return true;
}

void OpenMemory::conceal_all() noexcept {
  const std::lock_guard hold(mutex_);
  for (std::uint32_t place = 0; place < used_; ++place) block_.openings[place].store(0);
}

void PeerMemory::probe() noexcept {
  if (own_.process_namespace != peer_.process_namespace || peer_.block == 0) return;
  std::array<char, block_name_bytes> name{};
  iovec here{name.data(), name.size()};
  iovec there{pointer(peer_.block + offsetof(ControlBlock, name)), name.size()};
  reachable_ = ::process_vm_readv(peer_.process, &here, 1, &there, 1, 0) == static_cast<ssize_t>(name.size()) &&
               peer_.name == std::string_view(name.data(), name.size());
}

bool PeerMemory::look(std::size_t offset, std::uint64_t& word) const noexcept {
  iovec here{&word, sizeof word};
  iovec there{pointer(peer_.block + offset), sizeof word};
  return ::process_vm_readv(peer_.process, &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof word);
}

bool PeerMemory::is_open(std::uint32_t place, std::uint64_t token) const noexcept {
  std::uint64_t there = 0;
  if (const ControlBlock* const block = block_.load(std::memory_order_acquire)) {
    there = block->openings[place].load();
  } else if (!look(offsetof(ControlBlock, openings) + place * sizeof there, there)) {
    return false;
  }
  return there == token;
}

bool PeerMemory::access(Direction direction, const MemoryKey& key, std::uint64_t address, std::byte* local,
                        std::size_t bytes) noexcept {
  const std::optional<KeyWords> words = words_of(key);
  if (!words || address - words->first > words->bytes || bytes > words->bytes - (address - words->first)) return false;
  std::atomic<std::uint64_t>& accesses = own_block_.accesses[words->place % accesses_count];
  accesses.fetch_add(1);  // the default order: before the look at the token
  std::size_t done = 0;
  if (is_open(words->place, words->token)) {
    while (done < bytes) {
      iovec here{local + done, bytes - done};
      iovec there{pointer(address + done), bytes - done};
      const ssize_t part = direction == Direction::out ? ::process_vm_writev(peer_.process, &here, 1, &there, 1, 0)
                                                       : ::process_vm_readv(peer_.process, &here, 1, &there, 1, 0);
      if (part <= 0) break;
      done += static_cast<std::size_t>(part);
    }
  } else {
    bytes = done + 1;  // not done
  }
  accesses.fetch_sub(1, std::memory_order_release);
  return done == bytes;
}

bool PeerMemory::write(const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local) noexcept {
  // The system call has one type for memory that it reads and memory that it writes.
  return access(Direction::out, key, address, const_cast<std::byte*>(local.data()), local.size());
}

bool PeerMemory::read(const MemoryKey& key, std::uint64_t address, std::span<std::byte> local) noexcept {
  return access(Direction::in, key, address, local.data(), local.size());
}

void PeerMemory::await_accesses(const MemoryKey& key) const noexcept {
  const std::optional<KeyWords> words = words_of(key);
  if (!words) return;
  const std::uint32_t number = words->place % accesses_count;
  // A process that was stopped, or writes nonsense there, is waited for no longer than a copy of gigabytes takes.
  constexpr std::chrono::seconds longest{2};
  const auto limit = std::chrono::steady_clock::now() + longest;
  while (true) {
    std::uint64_t accesses = 0;
    if (const ControlBlock* const block = block_.load(std::memory_order_acquire)) {
      accesses = block->accesses[number].load();
    } else if (!look(offsetof(ControlBlock, accesses) + number * sizeof accesses, accesses)) {
      return;
    }
    if (accesses == 0 || std::chrono::steady_clock::now() > limit) return;
    std::this_thread::yield();
  }
}

}  // namespace aplib::comm::shm
