// SPDX-License-Identifier: MIT
#include "comm/tcp/outflow.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace aplib::comm::tcp {

std::size_t Outflow::fill(Block& block, std::span<const std::byte> bytes) noexcept {
  const std::size_t count = std::min(block.capacity - block.size, bytes.size());
  if (count != 0) std::memcpy(block.bytes.get() + block.size, bytes.data(), count);
  block.size += count;
  return count;
}

void Outflow::append(std::span<const std::byte> first, std::span<const std::byte> second) {
  const std::size_t all = first.size() + second.size();
  if (all == 0) return;
  const std::size_t room = blocks_.empty() ? 0 : blocks_.back().capacity - blocks_.back().size;
  if (all > room) {
    Block block{.bytes = {}, .capacity = std::max(block_bytes, all - room), .size = 0, .offset = end_ + room};
    const bool usual = block.capacity == block_bytes && spare_;
    block.bytes = usual ? std::move(spare_) : std::make_unique_for_overwrite<std::byte[]>(block.capacity);
    blocks_.push_back(std::move(block));
  }
  const std::size_t last = blocks_.size() - 1;
  for (std::span<const std::byte> bytes : {first, second}) {
    if (all > room && last != 0) bytes = bytes.subspan(fill(blocks_[last - 1], bytes));
    fill(blocks_[last], bytes);
  }
  end_ += all;
}

Outflow::Share& Outflow::open() { return shares_.emplace_back(); }

void Outflow::lose(Share& share) {
  again_.reserve(again_.size() + share.given.size() + 1);
  if (!share.current.empty()) again_.push_back(share.current);
  again_.insert(again_.end(), share.given.begin(), share.given.end());
  shares_.remove_if([&](const Share& each) { return &each == &share; });
  std::ranges::sort(again_, std::greater<>{}, &Range::begin);
  // Ranges of two lanes overlap where one of them had bytes again that came from the other.
  std::size_t last = 0;
  for (std::size_t i = 1; i < again_.size(); ++i) {
    if (again_[i].end >= again_[last].begin) {
      again_[last] = {again_[i].begin, std::max(again_[last].end, again_[i].end)};
    } else {
      again_[++last] = again_[i];
    }
  }
  if (!again_.empty()) again_.resize(last + 1);
  clip_again();
  forget();
}

/// What is acknowledged need not be given again.
void Outflow::clip_again() noexcept {
  while (!again_.empty() && again_.back().end <= acknowledged_) again_.pop_back();
  if (!again_.empty()) again_.back().begin = std::max(again_.back().begin, acknowledged_);
  again_bytes_ = 0;
  for (const Range& range : again_) again_bytes_ += range.bytes();
}

bool Outflow::give(Share& share, bool first_lane, std::size_t most) {
  if (!again_.empty()) {
    Range& first = again_.back();
    share.current = {first.begin, std::min<std::uint64_t>(first.end, first.begin + most)};
    first.begin = share.current.end;
    again_bytes_ -= share.current.bytes();
    if (first.empty()) again_.pop_back();
    return true;
  }
  const std::uint64_t ready = end_ - given_;
  const std::uint64_t bytes = std::min<std::uint64_t>({ready, most, acknowledged_ + window_bytes - given_});
  // No crumbs: not where the window ends, and not by other lanes.
  if (bytes == 0 || (bytes < other_lanes_from_bytes && bytes < most && (bytes < ready || !first_lane))) return false;
  share.current = {given_, given_ + bytes};
  given_ += bytes;
  return true;
}

std::size_t Outflow::peek(const Share& share, std::uint64_t skip, std::span<iovec> pieces) const noexcept {
  std::uint64_t at = share.current.begin + skip;
  auto block = std::upper_bound(blocks_.begin(), blocks_.end(), at,
                                [](std::uint64_t offset, const Block& each) { return offset < each.offset; });
  if (block != blocks_.begin()) --block;
  std::size_t count = 0;
  for (; block != blocks_.end() && at < share.current.end && count < pieces.size(); ++block) {
    const std::uint64_t part = std::min(share.current.end, block->offset + block->size) - at;
    if (part == 0) continue;
    pieces[count++] = {block->bytes.get() + (at - block->offset), static_cast<std::size_t>(part)};
    at += part;
  }
  return count;
}

void Outflow::sent(Share& share) {
  if (!share.given.empty() && share.given.back().end == share.current.begin) {
    share.given.back().end = share.current.end;
  } else {
    share.given.push_back(share.current);
  }
  share.current = {};
  forget();  // it may have been acknowledged meanwhile, by what another lane had
}

bool Outflow::acknowledge(std::uint64_t bytes) noexcept {
  if (bytes > given_) return false;
  if (bytes <= acknowledged_) return true;
  acknowledged_ = bytes;
  for (Share& share : shares_) {
    while (!share.given.empty() && share.given.front().end <= acknowledged_) share.given.pop_front();
    if (!share.given.empty() && share.given.front().begin < acknowledged_) share.given.front().begin = acknowledged_;
  }
  if (!again_.empty()) clip_again();
  forget();
  return true;
}

void Outflow::forget() noexcept {
  kept_from_ = acknowledged_;
  for (const Share& share : shares_)
    if (!share.current.empty()) kept_from_ = std::min(kept_from_, share.current.begin);
  while (!blocks_.empty() && blocks_.front().offset + blocks_.front().size <= kept_from_) {
    // The last one goes on, unless it is full.
    if (blocks_.size() == 1 && blocks_.front().size < blocks_.front().capacity) break;
    if (blocks_.front().capacity == block_bytes) spare_ = std::move(blocks_.front().bytes);
    blocks_.pop_front();
  }
}

void Outflow::clear() noexcept {
  acknowledged_ = given_ = end_;
  again_.clear();
  again_bytes_ = 0;
  for (Share& share : shares_) share.given.clear();
  forget();
}

}  // namespace aplib::comm::tcp
