// SPDX-License-Identifier: MIT
#include "launch/files/lanes.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace aplib::launch::files {

ChunkHead chunk_head(std::uint64_t place, std::size_t bytes) {
  ByteWriter writer;
  writer.number(place);
  writer.number(static_cast<std::uint32_t>(bytes));
  ChunkHead head{};
  std::ranges::copy(writer.bytes(), head.begin());
  return head;
}

bool LaneJoiner::begin(Input& input) const {
  ByteReader reader(input.head);
  input.place = reader.number<std::uint64_t>();
  input.left = reader.number<std::uint32_t>();
  return input.left != 0 && input.left <= chunk_bytes_max && input.place >= next_ && input.place - next_ <= early_max_;
}

bool LaneJoiner::take(std::size_t lane, std::span<const std::byte> bytes, const Sink& sink) {
  if (lane >= inputs_.size()) inputs_.resize(lane + 1);
  Input& input = inputs_[lane];
  while (!bytes.empty()) {
    if (input.head_bytes < chunk_head_bytes) {
      const std::size_t count = std::min(bytes.size(), chunk_head_bytes - input.head_bytes);
      std::memcpy(input.head.data() + input.head_bytes, bytes.data(), count);
      bytes = bytes.subspan(count);
      input.head_bytes += count;
      if (input.head_bytes == chunk_head_bytes && !begin(input)) return false;
      continue;
    }
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), input.left));
    bytes = bytes.subspan(piece.size());
    input.left -= piece.size();
    const bool is_next = input.place == next_;
    if (input.place < next_) return false;  // another lane has brought that
    if (is_next) {
      next_ += piece.size();
      input.place = next_;
      sink(piece);
    } else {
      early_bytes_ += piece.size();
      if (early_bytes_ > early_max_ + lanes_max * chunk_bytes_max) return false;
      input.kept.insert(input.kept.end(), piece.begin(), piece.end());
    }
    if (input.left == 0) {
      if (!input.kept.empty() && !early_.emplace(input.place, std::move(input.kept)).second) return false;
      input = {};
    }
    if (is_next && !deliver_early(sink)) return false;
  }
  return true;
}

/// What has become next in the stream.
bool LaneJoiner::deliver_early(const Sink& sink) {
  const auto deliver = [&](const wire::Bytes& bytes) {
    next_ += bytes.size();
    early_bytes_ -= bytes.size();
    sink(bytes);
  };
  for (bool moves = true; moves;) {
    moves = false;
    if (!early_.empty() && early_.begin()->first <= next_) {
      if (early_.begin()->first < next_) return false;
      deliver(early_.extract(early_.begin()).mapped());
      moves = true;
    }
    for (Input& input : inputs_) {
      if (input.kept.empty() || input.place != next_) continue;
      deliver(std::exchange(input.kept, {}));
      input.place = next_;
      moves = true;
    }
  }
  return true;
}

std::size_t LaneGrowth::wanted(Clock::time_point now, std::uint64_t moved) {
  if (moved != 0 && begun_ == Clock::time_point{}) begun_ = now;
  lasts_ = lasts_ || (moved >= interval_bytes && now - begun_ >= interval);
  return lasts_ ? lanes_max : 1;
}

}  // namespace aplib::launch::files
