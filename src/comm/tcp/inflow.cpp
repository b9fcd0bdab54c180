// SPDX-License-Identifier: MIT
#include "comm/tcp/inflow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "comm/tcp/outflow.hpp"

namespace aplib::comm::tcp {
namespace {

/// Of memory for a piece: small ones that follow are joined to it.
constexpr std::size_t piece_bytes_min = 4 * 1024;

}  // namespace

void Inflow::discard() {
  discards_ = true;
  while (!kept_.empty() && kept_.begin()->first <= taken_) {
    taken_ = std::max(taken_, kept_.begin()->first + kept_.begin()->second.size);
    kept_.erase(kept_.begin());
  }
  for (auto& [offset, piece] : kept_) piece.bytes.reset();
}

std::string Inflow::objection(const Chunk& chunk) {
  if (chunk.bytes == 0) return {};
  const std::uint64_t end = chunk.offset + chunk.bytes;
  if (end > taken_ + Outflow::window_bytes)
    return fmt::format("a chunk up to byte {} of a stream of which {} were taken: at most {} may be under way", end,
                       taken_, Outflow::window_bytes);
  if (end_ ? end > *end_ || (chunk.ends && end != *end_) : chunk.ends && end < taken_)
    return fmt::format("a chunk up to byte {} of a stream that has another end", end);
  if (chunk.ends) end_ = end;
  return {};
}

std::span<std::byte> Inflow::place(std::uint64_t offset, std::size_t bytes) const noexcept {
  if (discards_ || reader_ == nullptr || offset < taken_) return {};
  const std::span<std::byte> body = reader_->room_in_body();
  const std::uint64_t from = offset - taken_;
  if (from >= body.size()) return {};
  return body.subspan(from, std::min<std::size_t>(bytes, body.size() - from));
}

bool Inflow::arrived(std::uint64_t offset, std::size_t bytes, const std::byte* at, std::size_t more) {
  if (discards_) at = nullptr;
  if (offset + bytes <= taken_) {  // again: the other side has not heard that it was taken
    owes_ = true;
    return true;
  }
  const std::size_t known = offset < taken_ ? static_cast<std::size_t>(taken_ - offset) : 0;
  offset += known;
  bytes -= known;
  if (at != nullptr) at += known;
  if (offset == taken_ && (discards_ || (wanted_ && room_ != 0))) return deliver(at, bytes) && go_on();
  return keep(offset, bytes, at, more);
}

/// It is their turn.
bool Inflow::deliver(const std::byte* at, std::size_t bytes) {
  if (!discards_) {
    const std::size_t in_body = std::min(bytes, reader_->room_in_body().size());
    room_ -= std::min(room_, bytes - in_body);
    if (!(at == nullptr ? reader_->filled(bytes) : reader_->take({at, bytes}))) return false;
  }
  taken_ += bytes;
  if (complete()) owes_ = true;
  return true;
}

bool Inflow::go_on() {
  while (discards_ ? !kept_.empty() && kept_.begin()->first <= taken_ : stands_ready() && room_ != 0) {
    const auto first = kept_.begin();
    const Piece piece = std::move(first->second);
    const std::uint64_t offset = first->first;
    kept_.erase(first);
    kept_bytes_ -= piece.size;
    const std::size_t known = static_cast<std::size_t>(taken_ - offset);
    if (known >= piece.size) continue;
    if (!deliver(piece.bytes ? piece.bytes.get() + known : nullptr, piece.size - known)) return false;
  }
  return true;
}

Inflow::Piece* Inflow::before(std::uint64_t offset) noexcept {
  const auto next = kept_.lower_bound(offset);
  if (next == kept_.begin()) return nullptr;
  const auto piece = std::prev(next);
  return piece->first + piece->second.size == offset ? &piece->second : nullptr;
}

/// Keeps what of it is not there yet.
bool Inflow::keep(std::uint64_t offset, std::size_t bytes, const std::byte* at, std::size_t more) {
  while (bytes != 0) {
    const auto next = kept_.upper_bound(offset);
    std::size_t part = bytes;
    bool there = false;
    if (next != kept_.begin() && std::prev(next)->first + std::prev(next)->second.size > offset) {
      there = true;
      part = static_cast<std::size_t>(
          std::min<std::uint64_t>(bytes, std::prev(next)->first + std::prev(next)->second.size - offset));
    } else if (next != kept_.end()) {
      part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, next->first - offset));
    }
    // What lies in place and what was read to elsewhere differ, so a piece has one of the two.
    const std::span<std::byte> there_now = at != nullptr ? place(offset, part) : std::span<std::byte>();
    if (!there && !there_now.empty()) {
      part = there_now.size();
      std::memcpy(there_now.data(), at, part);
      if (!keep_piece(offset, part, nullptr, 0)) return false;
    } else if (!there && !keep_piece(offset, part, at, part == bytes ? more : 0)) {
      return false;
    }
    offset += part;
    bytes -= part;
    if (at != nullptr) at += part;
  }
  return true;
}

bool Inflow::keep_piece(std::uint64_t offset, std::size_t bytes, const std::byte* at, std::size_t more) {
  if (Piece* const last = before(offset); last != nullptr && (at == nullptr) == (last->bytes == nullptr)) {
    const std::size_t room = at == nullptr || discards_ ? bytes : std::min(bytes, last->capacity - last->size);
    if (room != 0) {
      if (last->bytes) std::memcpy(last->bytes.get() + last->size, at, room);
      last->size += room;
      kept_bytes_ += room;
      offset += room;
      bytes -= room;
      if (at != nullptr) at += room;
    }
  }
  if (bytes == 0) return true;
  if (kept_.size() >= pieces_max) {
    refusal_ = fmt::format("more than {} pieces of its stream that do not fit together", pieces_max);
    return false;
  }
  Piece piece{.size = bytes, .capacity = std::max(bytes + more, piece_bytes_min)};
  if (at != nullptr && !discards_) {
    piece.bytes = std::make_unique_for_overwrite<std::byte[]>(piece.capacity);
    std::memcpy(piece.bytes.get(), at, bytes);
  }
  kept_.emplace(offset, std::move(piece));
  kept_bytes_ += bytes;
  return true;
}

}  // namespace aplib::comm::tcp
