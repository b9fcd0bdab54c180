// SPDX-License-Identifier: MIT
#include "loop/loop_pipe.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "comm/frame.hpp"
#include "loop/loop_random.hpp"

namespace aplib::comm::loop {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

}  // namespace

std::uint64_t LoopPipe::draw() noexcept { return loop_draw(random_); }

void LoopPipe::note() noexcept {
  queued_.store(all_ - way_, std::memory_order_relaxed);
  idle_.store(closed_ || (read_ == way_ && !ended_));
  transferring_.store(!transfers_.empty());
}

bool LoopPipe::send(const Label& label, std::span<const std::byte> body) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  if (closed_) return true;  // Discarded, as when a process closes while its peers still send.
  std::array<std::byte, frame_header_bytes> header;
  encode({label, body.size()}, header);
  if (corrupt_) {
    corrupt_ = false;
    header[draw() % 8] ^= std::byte{2};  // In magic, version, flags or reserved, so that decode() refuses the header.
  }
  bytes_.reserve(header.size() + body.size());
  bytes_.append(header);
  bytes_.append(body);
  all_ += header.size() + body.size();
  note();
  return true;
}

bool LoopPipe::writable() const {
  if (queued() == 0) return false;
  const std::lock_guard lock(mutex_);
  return all_ != way_ && way_ - read_ < faults_.capacity_bytes;
}

bool LoopPipe::push() {
  if (queued() == 0) return false;
  const std::lock_guard lock(mutex_);
  const std::size_t used = way_ - read_;
  const bool moved = used < faults_.capacity_bytes && push_locked(faults_.capacity_bytes - used);
  note();
  return moved;
}

bool LoopPipe::push_locked(std::size_t room) {
  const std::uint64_t before = way_;
  while (way_ != all_ && room != 0) {
    const std::size_t bytes =
        std::min({static_cast<std::size_t>(all_ - way_), room, loop_piece(random_, faults_.piece_bytes_max)});
    put_on_the_way(bytes);
    room -= bytes;
    if (faults_.piece_bytes_max != 0 && draw() % 4 == 0) break;  // The system may take more later.
  }
  return way_ != before;
}

void LoopPipe::put_on_the_way(std::size_t bytes) {
  way_ += bytes;
  if (faults_.delay_polls_max == 0 && faults_.delay_time_max.count() == 0) {
    visible_ = way_;
    return;
  }
  Delay delay{way_, polls_ + draw() % (faults_.delay_polls_max + std::uint64_t{1}), {}};
  if (faults_.delay_time_max.count() != 0) {
    delay.time = Clock::now() +
                 std::chrono::nanoseconds(draw() % (static_cast<std::uint64_t>(faults_.delay_time_max.count()) + 1));
  }
  delays_.push_back(delay);
}

void LoopPipe::end_in_order() {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  if (!closed_) {
    std::array<std::byte, frame_header_bytes> mark;
    encode({{}, 0, true}, mark);
    bytes_.append(mark);
    all_ += mark.size();
    while (way_ != all_) push_locked(unlimited);
  }
  ended_ = true;
  note();
}

void LoopPipe::begin(const LoopTransfer& transfer) {
  const std::lock_guard lock(mutex_);
  transfers_.begin(transfer, all_);
  if (ended_ || closed_) transfers_.fail();
  note();
}

std::optional<LoopTransfers::Done> LoopPipe::transfer_done(bool first) noexcept {
  if (!transferring_.load()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (first) transfers_.count_poll();
  const std::optional<LoopTransfers::Done> done = transfers_.poll();
  note();
  return done;
}

void LoopPipe::end_transfers(bool ok) noexcept {
  const std::lock_guard lock(mutex_);
  if (ok) {
    transfers_.finish();
  } else {
    transfers_.fail();
  }
}

void LoopPipe::forget_transfers() noexcept {
  const std::lock_guard lock(mutex_);
  transfers_.forget();
  note();
}

std::optional<LoopPipe::Clock::time_point> LoopPipe::next_transfer() const {
  if (!transferring_.load()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return transfers_.next();
}

bool LoopPipe::poll() {
  if (idle_.load()) return false;
  const std::lock_guard lock(mutex_);
  ++polls_;
  while (!delays_.empty() && delays_.front().poll < polls_) {
    const Delay& first = delays_.front();
    if (faults_.delay_time_max.count() != 0 && first.time > Clock::now()) break;
    visible_ = first.end;
    delays_.pop_front();
  }
  return read_ != visible_ || (ended_ && read_ == way_);
}

std::size_t LoopPipe::read(std::span<std::byte> first, std::span<std::byte> second) {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = std::min(static_cast<std::size_t>(visible_ - read_), first.size() + second.size());
  if (bytes != 0) bytes = std::min(bytes, loop_piece(random_, faults_.piece_bytes_max));
  transfers_.finish_writes_before(read_ + bytes);
  const std::size_t front = std::min(bytes, first.size());
  bytes_.take(first.first(front));
  bytes_.take(second.first(bytes - front));
  read_ += bytes;
  note();
  return bytes;
}

std::optional<std::string> LoopPipe::end_seen() const {
  const std::lock_guard lock(mutex_);
  if (!ended_ || read_ != way_) return std::nullopt;
  return why_;
}

LoopPipe::Outlook LoopPipe::outlook() const {
  if (idle_.load()) return {};
  const std::lock_guard lock(mutex_);
  if (closed_) return {};
  if (read_ != visible_ || (ended_ && read_ == way_)) return {.now = true, .later = {}};
  if (delays_.empty()) return {};
  // Polling waits for what is due after a number of polls.
  const Delay& first = delays_.front();
  if (faults_.delay_time_max.count() == 0 || first.time <= Clock::now()) return {.now = true, .later = {}};
  return {.now = false, .later = first.time};
}

void LoopPipe::close_reading() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  transfers_.fail();
  bytes_.cut_to(0);
  delays_.clear();
  read_ = visible_ = way_ = all_;
  note();
}

void LoopPipe::break_off(const std::string& why, bool anywhere) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = true;
  why_ = why;
  transfers_.fail();
  if (anywhere) way_ = read_ + draw() % (way_ - read_ + 1);
  visible_ = std::min(visible_, way_);
  while (!delays_.empty() && delays_.back().end > way_) delays_.pop_back();
  // The last piece may have been cut in two.
  if (visible_ != way_ && (delays_.empty() || delays_.back().end != way_)) delays_.push_back({way_, polls_, {}});
  all_ = way_;
  bytes_.cut_to(way_ - read_);
  note();
}

}  // namespace aplib::comm::loop
