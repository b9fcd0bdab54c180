// SPDX-License-Identifier: MIT
#include "comm/rdma/registered_memory.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <iterator>
#include <new>
#include <tuple>
#include <utility>

#include "base/os/thread.hpp"

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

namespace {

#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
// Write protection is asked for and never switched on: so no fault ever waits for us, and the events come all the same.
constexpr std::uint64_t mode = UFFDIO_REGISTER_MODE_WP;
constexpr std::uint64_t mode_feature = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
#endif

os::UniqueFd open_faults() noexcept {
#if defined(SYS_userfaultfd) && defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
  os::UniqueFd faults(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (!faults) return {};
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = mode_feature | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
  if (ioctl(faults.get(), UFFDIO_API, &api) == 0) return faults;
#endif
  return {};
}

}  // namespace

std::unique_ptr<MemoryWatch> MemoryWatch::open() noexcept {
  os::UniqueFd faults = open_faults();
  if (!faults) return nullptr;
  try {
    return std::unique_ptr<MemoryWatch>(new MemoryWatch(std::move(faults)));
  } catch (const std::exception&) {  // There is no memory, descriptor or thread.
    return nullptr;
  }
}

MemoryWatch::MemoryWatch(os::UniqueFd faults)
    : faults_(std::move(faults)), listener_(os::quiet_thread("aplib-memory", [this] { listen(); })) {}

MemoryWatch::~MemoryWatch() {
  stop_.signal();
  listener_.join();
}

/// munmap() and its like end when their event was read here. It is read under the lock, so that who comes after
/// them finds it noted. Nothing is allocated: freeing could make an event, which nobody would read.
void MemoryWatch::listen() noexcept {
  std::array<pollfd, 2> wishes{pollfd{faults_.get(), POLLIN, 0}, pollfd{stop_.get(), POLLIN, 0}};
  while (true) {
    ::poll(wishes.data(), wishes.size(), -1);
    if (wishes[1].revents != 0) return;
#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
    const std::lock_guard hold(mutex_);
    uffd_msg message{};
    while (::read(faults_.get(), &message, sizeof message) == static_cast<ssize_t>(sizeof message)) {
      Range range{};
      if (message.event == UFFD_EVENT_UNMAP || message.event == UFFD_EVENT_REMOVE) {
        range = {message.arg.remove.start, message.arg.remove.end};
      } else if (message.event == UFFD_EVENT_REMAP) {
        range = {message.arg.remap.from, message.arg.remap.from + message.arg.remap.len};
      } else {
        continue;
      }
      if (gone_.count == Gone::ranges_max) {
        gone_.everything = true;
      } else {
        gone_.ranges[gone_.count++] = range;
      }
    }
#endif
  }
}

bool MemoryWatch::add(Range pages) noexcept {
#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
  uffdio_register wish{};
  wish.range = {pages.begin, pages.end - pages.begin};
  wish.mode = mode;
  return ioctl(faults_.get(), UFFDIO_REGISTER, &wish) == 0;
#else
  static_cast<void>(pages);
  return false;
#endif
}

void MemoryWatch::remove(Range pages) noexcept {
#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
  uffdio_range range{pages.begin, pages.end - pages.begin};
  ioctl(faults_.get(), UFFDIO_UNREGISTER, &range);
#else
  static_cast<void>(pages);
#endif
}

void MemoryWatch::take(Gone& into) noexcept {
  const std::lock_guard hold(mutex_);
  into.everything = gone_.everything;
  into.count = gone_.count;
  for (std::size_t i = 0; i < gone_.count; ++i) into.ranges[i] = gone_.ranges[i];
  gone_.count = 0;
  gone_.everything = false;
}

RegistrationCache::RegistrationCache(Make make, Limits limits, bool watch)
    : make_(std::move(make)), limits_(limits), watch_(watch ? MemoryWatch::open() : nullptr) {}

std::shared_ptr<Registration> RegistrationCache::find_or_make(std::span<const std::byte> memory) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  std::uintptr_t begin = address / page * page;
  std::uintptr_t end = (address + std::max<std::size_t>(memory.size(), 1) + page - 1) / page * page;
  const auto make = [&] {
    ++made_;
    return make_({reinterpret_cast<const std::byte*>(begin), end - begin});
  };
  if (!watch_) return make();
  hear();
  Entries::iterator entry = first_behind(begin);
  if (entry != entries_.end() && entry->first <= begin && entry->second.end >= end) {
    used_.splice(used_.begin(), used_, entry->second.use);
    return entry->second.registration;
  }
  // Overlapping registrations are joined with it. Their users keep them.
  const MemoryWatch::Range asked{begin, end};
  while (entry != entries_.end() && entry->first < asked.end) {
    begin = std::min(begin, entry->first);
    end = std::max(end, entry->second.end);
    entry = drop(entry);
  }
  // Watched first, and registered then: what goes in between is heard of, and forgotten next time.
  const bool watched = watch_->add({begin, end});
  if (!watched) std::tie(begin, end) = std::pair(asked.begin, asked.end);
  std::shared_ptr<Registration> made = make();
  if (!watched || !made) {
    if (watched) watch_->remove({begin, end});
    return made;
  }
  used_.push_front(begin);
  entries_.emplace(begin, Entry{end, made, used_.begin()});
  bytes_ += end - begin;
  while (entries_.size() > limits_.entries || (bytes_ > limits_.bytes && entries_.size() > 1)) {
    drop(entries_.find(used_.back()));
  }
  return made;
}

/// The first entry that ends behind `begin`.
RegistrationCache::Entries::iterator RegistrationCache::first_behind(std::uintptr_t begin) {
  Entries::iterator entry = entries_.upper_bound(begin);
  if (entry != entries_.begin() && std::prev(entry)->second.end > begin) --entry;
  return entry;
}

void RegistrationCache::hear() {
  MemoryWatch::Gone gone;
  watch_->take(gone);
  if (gone.everything) return forget(0, ~std::uintptr_t{0});
  for (std::size_t i = 0; i < gone.count; ++i) forget(gone.ranges[i].begin, gone.ranges[i].end);
}

void RegistrationCache::forget(std::uintptr_t begin, std::uintptr_t end) {
  Entries::iterator entry = first_behind(begin);
  while (entry != entries_.end() && entry->first < end) entry = drop(entry);
}

RegistrationCache::Entries::iterator RegistrationCache::drop(Entries::iterator entry) {
  // If other memory lies there now, it is not watched, and the kernel says so. That does no harm.
  watch_->remove({entry->first, entry->second.end});
  bytes_ -= entry->second.end - entry->first;
  used_.erase(entry->second.use);
  return entries_.erase(entry);
}

}  // namespace aplib::comm::rdma
