// SPDX-License-Identifier: MIT
#include "task/stack.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(low, high) 0U
#define VALGRIND_STACK_DEREGISTER(id) static_cast<void>(id)
#endif

#include "aplib/error.hpp"
#include "base/os/map_at.hpp"

namespace aplib {

namespace {

// Linux 6.13: a guard that does not split the mapping, so a million of them cost no kernel objects.
constexpr int madv_guard_install = 102;

// Where guards must split mappings, the kernel allows some 65,000 mappings per process; leave half to others. A
// process-wide budget, hence the one counter shared by all pools.
constexpr int mprotect_guards_max = 14'000;
std::atomic<int> mprotect_guards{0};

StackGuard install_guard(char* low, std::size_t bytes) noexcept {
  if (madvise(low, bytes, madv_guard_install) == 0) return StackGuard::pages;
  if (mprotect_guards.fetch_add(1, std::memory_order_relaxed) < mprotect_guards_max) {  // relaxed: only a budget
    if (mprotect(low, bytes, PROT_NONE) == 0) return StackGuard::pages;
  }
  mprotect_guards.fetch_sub(1, std::memory_order_relaxed);
  return StackGuard::canary;
}

}  // namespace

StackPool::StackPool(std::size_t stack_bytes, void* home, std::size_t home_bytes)
    : stack_bytes_(stack_bytes), home_(static_cast<char*>(home)), home_end_(home_ + home_bytes) {}

StackPool::~StackPool() {
  for (const Region& region : regions_) {
    for (const unsigned id : region.valgrind_ids) VALGRIND_STACK_DEREGISTER(id);
#if APLIB_ASAN
    __asan_unpoison_memory_region(region.address, region.bytes);  // whoever maps this memory next
#endif
    munmap(region.address, region.bytes);
  }
}

namespace {

/// Its mmap() ends a process that asks for an address where it keeps no account, as is that of stacks at home.
bool has_thread_sanitizer() noexcept {
  static const bool has = ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  return has;
}

}  // namespace

void StackPool::grow() {
  // Room for all stacks there will be, so that neither put() nor the rest of this function throws.
  std::size_t count = next_count_;
  for (const Region& region : regions_) count += region.valgrind_ids.size();
  if (free_.capacity() < count) free_.reserve(2 * count);
  if (regions_.size() == regions_.capacity()) regions_.reserve(std::max<std::size_t>(4, 2 * regions_.size()));
  std::vector<unsigned> valgrind_ids;
  valgrind_ids.reserve(next_count_);
  const std::size_t guard = guard_bytes(stack_bytes_);
  const std::size_t each = stack_bytes_ + guard;
  const std::size_t bytes = each * next_count_;
  const int protection = PROT_READ | PROT_WRITE;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* address = MAP_FAILED;
  if (has_thread_sanitizer()) home_ = nullptr;
  if (home_ != nullptr && static_cast<std::size_t>(home_end_ - home_) >= bytes) {
    if (os::map_at(home_, bytes, protection, flags)) {
      address = std::exchange(home_, home_ + bytes);
    } else {
      home_ = nullptr;  // taken (a second machine in this process): stacks go anywhere
    }
  }
  if (address == MAP_FAILED) address = mmap(nullptr, bytes, protection, flags, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(Errc::exhausted,
                fmt::format("no memory for {} task stack(s) of {} KiB each: {}; use a smaller stack-size "
                            "(APLIB_STACK_SIZE; of loaded programs program-stack, APLIB_PROGRAM_STACK) or fewer tasks, "
                            "or raise the limit on address space (ulimit -v)",
                            next_count_, stack_bytes_ / 1024, std::strerror(errno)));
  }
  madvise(address, bytes, MADV_NOHUGEPAGE);  // a huge page would commit eight stacks at the first touch of one
  Region region{static_cast<char*>(address), bytes, std::move(valgrind_ids)};
  for (std::size_t i = next_count_; i-- > 0;) {
    char* low = region.address + i * each;
    Stack stack{low + guard, low + each, install_guard(low, guard)};
    if (stack.guard == StackGuard::canary) std::memcpy(stack.low, &stack_canary, sizeof stack_canary);
    region.valgrind_ids.push_back(VALGRIND_STACK_REGISTER(stack.low, stack.top));
    free_.push_back(stack);
  }
  regions_.push_back(std::move(region));
  next_count_ = std::min<std::size_t>(next_count_ * 4, 256);
}

}  // namespace aplib
