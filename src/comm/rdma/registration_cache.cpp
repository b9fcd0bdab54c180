// SPDX-License-Identifier: MIT
#include "comm/rdma/registration_cache.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace aplib::comm {

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
  // Those that overlap become one with it; who uses them keeps them.
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
  // Where other memory lies now, this is not watched, and the kernel says so; nothing is harmed.
  watch_->remove({entry->first, entry->second.end});
  bytes_ -= entry->second.end - entry->first;
  used_.erase(entry->second.use);
  return entries_.erase(entry);
}

}  // namespace aplib::comm
