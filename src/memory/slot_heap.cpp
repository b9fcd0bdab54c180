// SPDX-License-Identifier: MIT
#include "memory/slot_heap.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <boost/version.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "arch/cpu.hpp"
#include "base/os/map_at.hpp"

namespace aplib {
namespace {

using BestFit = boost::interprocess::rbtree_best_fit<boost::interprocess::null_mutex_family, void*>;

// Part of the layout, hence the same for every host: sizes in bytes, not in the system's pages.
constexpr std::size_t state_bytes = 2048;
constexpr std::size_t first_bytes = 256 * 1024;
constexpr std::size_t growth_unit = 64 * 1024;
/// What best fit keeps at the edges of blocks and of the whole, generously.
constexpr std::size_t edge_bytes = 256;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

/// `at`: how far into the heap.
bool map(char* place, std::size_t bytes, const HeapSource& source, std::size_t at) noexcept {
  const bool own = source.descriptor < 0;
  return os::map_at(place, bytes, PROT_READ | PROT_WRITE,
                    (own ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_NORESERVE, source.descriptor,
                    own ? 0 : source.offset + at);
}

/// The list of blocks with this many usable bytes, and the one for a wish of so many.
constexpr std::size_t list_of(std::size_t usable) { return (usable + 8) / 16; }
constexpr std::size_t list_for(std::size_t bytes) {
  constexpr std::size_t smallest = 3;
  return std::max((bytes + 8 + 15) / 16, smallest);
}
constexpr std::size_t list_bytes_max = 1024;

constexpr std::size_t word_bits = 64;
/// By slot, and then by number in low memory, a bit: the heap is there.
constinit std::array<std::atomic<std::uint64_t>, 2 * SlotPlan::count / word_bits + 1> made_heaps{};

std::size_t number_of(const void* heap) noexcept {
  if (LowPlan::holds(heap)) return SlotPlan::count + LowPlan::heap_number(heap).value_or(0);
  return SlotPlan::cell_around(reinterpret_cast<std::uintptr_t>(heap));
}

void mark(void* heap, bool made) noexcept {
  if (SlotHeap::around(heap) != heap) return;  // a test's
  const std::uint64_t bit = std::uint64_t{1} << number_of(heap) % word_bits;
  auto& word = made_heaps[number_of(heap) / word_bits];
  // relaxed: who asks holds a block, which came after this
  made ? word.fetch_or(bit, std::memory_order_relaxed) : word.fetch_and(~bit, std::memory_order_relaxed);
}

/// A block that best fit has says so in a word behind its links, so that a second free is seen: a word of its own for
/// each place, which no copy of freed memory carries elsewhere. Cleared when the block is given out.
constexpr std::size_t mark_offset = 24;
std::uintptr_t& free_word_of(void* block) {
  return *reinterpret_cast<std::uintptr_t*>(static_cast<char*>(block) + mark_offset);
}
std::uintptr_t free_mark(const void* block) {
  return reinterpret_cast<std::uintptr_t>(block) ^ 0x66'72'65'65'64'21'00'00;
}

}  // namespace

class SlotHeap::Tree : public BestFit {
 public:
  using BestFit::BestFit;

  void take_back(void* block) {
    free_word_of(block) = free_mark(block);
    deallocate(block);
  }
};

/// One atomic exchange, where a mutex needs two operations that wait for each other. Who finds it taken naps soon:
/// its holder may be off its core.
class SlotHeap::Lock {
 public:
  explicit Lock(SlotHeap& heap) noexcept : heap_(heap.shared_ ? &heap : nullptr) {
    // acquire: pairs with the release below
    if (heap_ != nullptr && heap_->locked_.exchange(true, std::memory_order_acquire)) wait();
  }
  ~Lock() {
    if (heap_ != nullptr) heap_->locked_.store(false, std::memory_order_release);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  [[gnu::cold, gnu::noinline]] void wait() noexcept {
    constexpr int looks_max = 200;
    constexpr int yields_max = 20;
    int naps = 0;
    do {
      // relaxed: only a look
      for (int looks = 0; heap_->locked_.load(std::memory_order_relaxed) && looks < looks_max; ++looks) cpu_relax();
      if (!heap_->locked_.load(std::memory_order_relaxed)) continue;
      if (naps++ < yields_max) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    } while (heap_->locked_.exchange(true, std::memory_order_acquire));
  }

  SlotHeap* heap_;
};

bool SlotHeap::is_made(const SlotHeap* heap) noexcept {
  const std::size_t number = number_of(heap);
  const std::uint64_t word = made_heaps[number / word_bits].load(std::memory_order_relaxed);  // see mark()
  return (word >> number % word_bits & 1U) != 0;
}

std::unique_ptr<HeapFile> HeapFile::make(std::uint32_t heaps) {
  auto file = SharedFile::make(name, heaps * std::uint64_t{SlotPlan::heap_bytes()});
  return file ? std::unique_ptr<HeapFile>(new HeapFile(*std::move(file))) : nullptr;
}

std::uint32_t SlotHeap::layout() noexcept { return BOOST_VERSION / 100; }

SlotHeap* SlotHeap::make(char* place, std::size_t room, HeapSource source) noexcept {
  static_assert(sizeof(SlotHeap) <= state_bytes);
  const std::size_t bytes = std::min(first_bytes, room);
  if (!map(place, bytes, source, 0)) return nullptr;
  mark(place, true);
  return ::new (place) SlotHeap(room, bytes, source);
}

void SlotHeap::unmake(SlotHeap* heap) noexcept {
  const std::size_t bytes = heap->mapped_bytes();
  const HeapSource source = heap->source_;
  mark(heap, false);
  heap->~SlotHeap();
  munmap(heap, bytes);
  // The next heap there begins with zeros.
  if (source.descriptor >= 0)
    fallocate(source.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(source.offset),
              static_cast<off_t>(bytes));
}

SlotHeap::SlotHeap(std::size_t room, std::size_t mapped, HeapSource source) noexcept
    : mapped_(mapped), room_(room), source_(source) {
  ::new (begin() + state_bytes) Tree(mapped - state_bytes, 0);
  fresh_ = state_bytes + sizeof(Tree) + edge_bytes;
}

SlotHeap::Tree& SlotHeap::tree() noexcept { return *std::launder(reinterpret_cast<Tree*>(begin() + state_bytes)); }

bool SlotHeap::holds(const void* block) const noexcept {
  const auto offset = reinterpret_cast<std::uintptr_t>(block) - reinterpret_cast<std::uintptr_t>(this);
  return offset > state_bytes && offset < mapped_.load(std::memory_order_relaxed) &&  // relaxed: blocks are older
         offset % alignment_min == 0;
}

std::size_t SlotHeap::usable_bytes(const void* block) noexcept {
  return around(block)->tree().size(block);  // reads the block's own edge
}

void* SlotHeap::allocate(std::size_t bytes) noexcept {
  if (!shared_) [[likely]] {
    if (void* block = take_listed(bytes)) return block;
  }
  return allocate(bytes, alignment_min);
}

void* SlotHeap::allocate(std::size_t bytes, std::size_t alignment) noexcept {
  const Lock lock(*this);
  return take(bytes, alignment, false);
}

void* SlotHeap::allocate_zeroed(std::size_t bytes) noexcept {
  const Lock lock(*this);
  return take(bytes, alignment_min, true);
}

bool SlotHeap::release(void* block) noexcept {
  if (keeps()) [[unlikely]]
    return holds(block);
  if (!shared_) [[likely]]
    return give(block);
  const Lock lock(*this);
  return give(block);
}

bool SlotHeap::release_from_outside(void* block) noexcept {
  if (!holds(block)) return false;
  if (keeps()) return true;
  auto* const freed = static_cast<Freed*>(block);
  freed->next = outside_.load(std::memory_order_relaxed);
  // release: what the giver did with the block comes before what its next holder does
  while (!outside_.compare_exchange_weak(freed->next, freed, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return true;
}

void* SlotHeap::resize(void* block, std::size_t bytes) noexcept {
  std::size_t usable = 0;
  void* moved = nullptr;
  {
    const Lock lock(*this);
    usable = tree().size(block);
    if (resize_in_place(block, usable, bytes)) return block;
    moved = take(bytes, alignment_min, false);
  }
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(usable, bytes));
  static_cast<void>(release(block));
  return moved;
}

// ---------------------------------------------------------------- under the lock

bool SlotHeap::resize_in_place(void* block, std::size_t usable, std::size_t bytes) noexcept {
  const bool is_listed = list_of(usable) < list_count;
  if (bytes <= usable && (is_listed || usable - bytes <= usable / 2 || keeps())) return true;
  if (is_listed || bytes > room_) return false;
  namespace boost_interprocess = boost::interprocess;
  const bool shrinks = bytes <= usable;
  auto* where = static_cast<char*>(block);
  std::size_t got = bytes;
  const void* const resized = tree().allocation_command<char>(
      boost_interprocess::nothrow_allocation |
          (shrinks ? boost_interprocess::shrink_in_place : boost_interprocess::expand_fwd),
      shrinks ? usable : bytes, got, where);
  if (resized == nullptr) return false;
  touched(block, 0);
  return true;
}

void* SlotHeap::take(std::size_t bytes, std::size_t alignment, bool zeroed) noexcept {
  if (alignment <= alignment_min) {
    if (void* block = take_listed(bytes)) {
      if (zeroed) std::memset(block, 0, bytes);
      return block;
    }
  }
  if (outside_.load(std::memory_order_relaxed) != nullptr) {  // relaxed: collect() looks properly
    collect();
    return take(bytes, alignment, zeroed);
  }
  void* const block = bytes <= room_ && alignment <= room_ ? take_behind(bytes, alignment) : nullptr;
  if (block == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  free_word_of(block) = 0;
  if (zeroed) clear(static_cast<char*>(block), bytes);
  touched(block, alignment);
  return block;
}

bool SlotHeap::give(void* block) noexcept {
  if (!holds(block) || free_word_of(block) == free_mark(block)) return false;
  auto* const freed = static_cast<Freed*>(block);
  const std::size_t index = list_of(tree().size(block));
  if (index >= list_count) {
    tree().take_back(block);
    return true;
  }
  List& list = lists_[index];
  if (freed->listed == this) {  // freed before, or its contents happen to be this
    for (const Freed* each = list.first; each != nullptr; each = each->next) {
      if (each == freed) return false;
    }
  }
  if (list.length == list_length_max) {
    tree().take_back(block);
    return true;
  }
  freed->next = list.first;
  std::atomic_signal_fence(
      std::memory_order_seq_cst);  // two stores, not one of a vector: what is read next is only one of them
  freed->listed = this;
  list.first = freed;
  ++list.length;
  return true;
}

void* SlotHeap::take_listed(std::size_t bytes) noexcept {
  if (bytes > list_bytes_max) return nullptr;
  List& list = lists_[list_for(bytes)];
  Freed* const block = list.first;
  if (block == nullptr) return nullptr;
  list.first = block->next;
  --list.length;
  block->listed = nullptr;
  return block;
}

void* SlotHeap::take_behind(std::size_t bytes, std::size_t alignment) noexcept {
  const auto from_tree = [&] {
    return alignment <= alignment_min ? tree().allocate(bytes) : tree().allocate_aligned(bytes, alignment);
  };
  if (void* block = from_tree()) return block;
  // Growing is rare: a good time to join freed blocks.
  empty_lists();
  if (void* block = from_tree()) return block;
  return grow(bytes + alignment + edge_bytes) ? from_tree() : nullptr;
}

/// Zeroes a block that take_behind() gave, but not what is zero because nobody has had it.
void SlotHeap::clear(char* block, std::size_t bytes) noexcept {
  const auto begins = static_cast<std::size_t>(block - begin());
  const std::size_t ends = begins + bytes;
  if (begins < fresh_) std::memset(block, 0, std::min(bytes, fresh_ - begins));
  const std::size_t last = mapped_.load(std::memory_order_relaxed) - edge_bytes;  // relaxed: changed by us alone
  if (ends > last) {
    const std::size_t from = std::max(begins, last);
    std::memset(begin() + from, 0, ends - from);
  }
}

void SlotHeap::touched(const void* block, std::size_t beyond) noexcept {
  const auto begins = static_cast<std::size_t>(static_cast<const char*>(block) - begin());
  fresh_ = std::max(fresh_, begins + tree().size(block) + beyond + edge_bytes);
}

bool SlotHeap::grow(std::size_t bytes) noexcept {
  const std::size_t old = mapped_.load(std::memory_order_relaxed);  // relaxed: changed by us alone
  for (const std::size_t wish : {std::max(bytes, old / 4), bytes}) {
    const std::size_t more = std::min(round_up(wish, growth_unit), room_ - old);
    if (more == 0) return false;
    if (!map(begin() + old, more, source_, old)) continue;
    fresh_ = std::max(fresh_, old + edge_bytes);  // where the edge was
    tree().grow(more);
    mapped_.store(old + more, std::memory_order_release);
    return true;
  }
  return false;
}

/// Takes back what others have freed.
void SlotHeap::collect() noexcept {
  Freed* next = outside_.exchange(nullptr, std::memory_order_acquire);  // pairs with release_from_outside()
  while (Freed* const freed = next) {
    next = freed->next;
    static_cast<void>(give(freed));
  }
}

void SlotHeap::empty_lists() noexcept {
  for (List& list : lists_) {
    while (Freed* const freed = list.first) {
      list.first = freed->next;
      tree().take_back(freed);
    }
    list.length = 0;
  }
}

// ---------------------------------------------------------------- of a cell

CellHeap::~CellHeap() {
  if (SlotHeap* heap = made()) SlotHeap::unmake(heap);
}

SlotHeap* CellHeap::get(char* place, std::size_t room, HeapSource source) noexcept {
  if (SlotHeap* heap = made()) return heap;
  const std::lock_guard lock(making_);
  if (SlotHeap* heap = made()) return heap;
  SlotHeap* heap = SlotHeap::make(place, room, source);
  if (heap == nullptr && source.descriptor >= 0) heap = SlotHeap::make(place, room);
  heap_.store(heap, std::memory_order_release);  // pairs with made()
  return heap;
}

}  // namespace aplib
