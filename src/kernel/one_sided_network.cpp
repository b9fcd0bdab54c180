// SPDX-License-Identifier: MIT
// The asking side.
#include "kernel/one_sided_network.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernel/module_network.hpp"
#include "kernel/one_sided_frames.hpp"

namespace aplib {

namespace {

constexpr std::size_t get_piece_bytes = std::size_t{4}
                                        << 20;  // the answering process holds what the system does not take at once
constexpr auto reply_sleep = std::chrono::milliseconds(1);

// Packs items one behind the other.
void append_items(std::vector<std::byte>& body, const one_sided::Copy& copy, std::size_t first, std::size_t count) {
  const std::size_t at = body.size();
  body.resize(at + count * copy.blocks.bytes);
  one_sided::copy_blocks(body.data() + at, static_cast<std::ptrdiff_t>(copy.blocks.bytes),
                         copy.local + static_cast<std::ptrdiff_t>(first) * copy.blocks.local_stride,
                         copy.blocks.local_stride, {copy.blocks.bytes, count});
}

comm::Label label_of(const TaskControl& self, const one_sided::Copy& copy) noexcept {
  comm::Label label;
  label.key = reinterpret_cast<std::uintptr_t>(copy.remote);
  label.cell = copy.cell;
  label.task = OneSidedFrame::flag_word(copy.cell, copy.remote_flag);
  label.extra = self.cell->id;
  return label;
}

/// Items first .. of a copy of many; what remains of the flags is the caller's to say.
one_sided::Copy part_of(const one_sided::Copy& whole, std::size_t first, std::size_t count) noexcept {
  one_sided::Copy part = whole;
  part.local += static_cast<std::ptrdiff_t>(first) * whole.blocks.local_stride;
  part.remote += static_cast<std::ptrdiff_t>(first) * whole.blocks.remote_stride;
  part.blocks.count = count;
  if (first + count < whole.blocks.count) part.local_flag = part.remote_flag = nullptr;
  return part;
}

/// How many items of a strided copy one frame takes.
std::size_t items_per_frame(const one_sided::Blocks& blocks) noexcept {
  return std::max<std::size_t>(1, OneSidedFrame::small_body_max / blocks.bytes);
}

}  // namespace

OneSidedNetwork::OneSidedNetwork(ModuleNetwork& network, Domain& domain, std::uint32_t processes)
    : network_(network),
      domain_(domain),
      memory_(network, domain, processes),
      expected_bytes_(std::make_unique<std::atomic<std::size_t>[]>(processes)) {}

void OneSidedNetwork::put(TaskControl& self, const char* call, const one_sided::Copy& copy, bool acknowledge) {
  const std::uint32_t process = domain_.process_of(copy.cell);
  const auto post = [&](FrameKind kind, const one_sided::Copy& part, bool last, std::span<const std::byte> body) {
    network_.make_room(self, call, part.cell, process);
    comm::Label label = label_of(self, part);
    if (!body.empty()) memory_.begin_frame(self, part);
    if (last && acknowledge) {
      label.extra |= OneSidedFrame::acknowledge_bit;
      ++self.cell->acknowledges_requested;
    }
    network_.post(process, kind, label, body);
  };
  const one_sided::Blocks& blocks = copy.blocks;
  // By the module's remote memory, if the source may be kept for so long; the flag goes behind it.
  if (blocks.count == 1 && blocks.bytes >= RemoteMemory::from_bytes && copy.local_flag != nullptr &&
      memory_.put(self, copy)) {
    if (copy.remote_flag == nullptr && !acknowledge) return;
    one_sided::Copy flags = copy;
    flags.blocks = {};
    return post(FrameKind::put, flags, true, {});
  }
  if (blocks.count == 1 || blocks.bytes == 0 || blocks.count == 0) {
    post(FrameKind::put, copy, true, {copy.local, blocks.count == 1 ? blocks.bytes : 0});
  } else {
    const std::size_t each = items_per_frame(blocks);
    std::vector<std::byte> body;
    for (std::size_t first = 0; first < blocks.count; first += each) {
      const std::size_t count = std::min(each, blocks.count - first);
      const one_sided::Copy part = part_of(copy, first, count);
      const bool last = first + count == blocks.count;
      if (count == 1) {
        post(FrameKind::put, part, last, {part.local, blocks.bytes});
        continue;
      }
      const BlocksHead head{blocks.bytes, count, blocks.remote_stride};
      body.resize(sizeof head);
      std::memcpy(body.data(), &head, sizeof head);
      append_items(body, copy, first, count);
      post(FrameKind::put_blocks, part, last, body);
    }
  }
  Watch::raise(copy.local_flag);  // send() has taken the body
}

void OneSidedNetwork::get(TaskControl& self, const char* call, const one_sided::Copy& copy) {
  const one_sided::Blocks& blocks = copy.blocks;
  if (blocks.bytes == 0 || blocks.count == 0) {
    one_sided::Copy nothing = copy;
    nothing.blocks = {};
    return send_get(self, call, nothing);
  }
  if (blocks.count == 1) {
    if (blocks.bytes >= RemoteMemory::from_bytes && memory_.get(self, copy)) return;
    one_sided::Copy pieces = copy;
    pieces.blocks.local_stride = pieces.blocks.remote_stride = get_piece_bytes;
    pieces.blocks.count = (blocks.bytes - 1) / get_piece_bytes + 1;
    for (std::size_t piece = 0; piece < pieces.blocks.count; ++piece) {
      one_sided::Copy part = part_of(pieces, piece, 1);
      part.blocks = {.bytes = std::min(get_piece_bytes, blocks.bytes - piece * get_piece_bytes)};
      send_get(self, call, part);
    }
    return;
  }
  // Replies that must be spread out are small; large items come one by one.
  const std::size_t each = items_per_frame(blocks);
  for (std::size_t first = 0; first < blocks.count; first += each) {
    const std::size_t count = std::min(each, blocks.count - first);
    send_get(self, call, part_of(copy, first, count));
  }
}

void OneSidedNetwork::send_get(TaskControl& self, const char* call, const one_sided::Copy& copy) {
  const std::uint32_t process = domain_.process_of(copy.cell);
  const std::size_t bytes = copy.blocks.bytes * copy.blocks.count;
  wait_for_replies(self, process, bytes);
  network_.make_room(self, call, copy.cell, process);
  const std::uint64_t id = open_request(
      {.process = process, .cell = self.cell->id, .local = copy.local, .blocks = copy.blocks, .flag = copy.local_flag});
  const GetRequest request{{copy.blocks.bytes, copy.blocks.count, copy.blocks.remote_stride}, id};
  if (bytes != 0) memory_.begin_frame(self, copy);
  network_.post(process, FrameKind::get, label_of(self, copy), std::as_bytes(std::span(&request, 1)));
}

// What others read of theirs for us waits in their memory until we take it.
void OneSidedNetwork::wait_for_replies(TaskControl& self, std::uint32_t process, std::size_t bytes) {
  std::atomic<std::size_t>& expected = expected_bytes_[process];
  // relaxed: a measure
  while (expected.load(std::memory_order_relaxed) != 0 &&
         expected.load(std::memory_order_relaxed) + bytes > domain_.options.send_limit_bytes) {
    network_.poll();
    Processor::yield(self);
    if (expected.load(std::memory_order_relaxed) + bytes > domain_.options.send_limit_bytes)
      network_.module_.wait(reply_sleep);
  }
  expected.fetch_add(bytes, std::memory_order_relaxed);
}

std::uint64_t OneSidedNetwork::fetch(TaskControl& self, const char* call, const one_sided::Operation& operation) {
  const std::uint32_t process = domain_.process_of(operation.cell);
  network_.make_room(self, call, operation.cell, process);
  std::uint64_t old = 0;
  std::int32_t done = 0;
  expected_bytes_[process].fetch_add(sizeof old, std::memory_order_relaxed);  // relaxed: a measure
  const std::uint64_t id = open_request({.process = process,
                                         .cell = self.cell->id,
                                         .local = reinterpret_cast<std::byte*>(&old),
                                         .blocks = {.bytes = sizeof old},
                                         .flag = &done});
  one_sided::Copy place;
  place.cell = operation.cell;
  place.remote = operation.remote;
  place.blocks = {.bytes = operation.word.bytes};
  const FetchRequest request{operation.operand, operation.expected, id, static_cast<std::uint32_t>(operation.what),
                             operation.word.bytes | (operation.word.is_signed ? FetchRequest::signed_bit : 0)};
  memory_.begin_frame(self, place);
  network_.post(process, FrameKind::fetch, label_of(self, place), std::as_bytes(std::span(&request, 1)));
  try {
    Processor::wait_flag(self, call, &done, 1);
  } catch (...) {  // the machine stops: a late reply must not find our stack
    const std::lock_guard lock(requests_mutex_);
    if (Request* request_of_ours = find_request(process, id, sizeof old)) close_request(*request_of_ours, id);
    throw;
  }
  return old;
}

// ---------------------------------------------------------------- requests

std::uint64_t OneSidedNetwork::open_request(const Request& request) {
  const std::lock_guard lock(requests_mutex_);
  if (free_requests_.empty()) {
    free_requests_.push_back(static_cast<std::uint32_t>(requests_.size()));
    requests_.emplace_back();
  }
  const std::uint32_t index = free_requests_.back();
  free_requests_.pop_back();
  Request& place = requests_[index];
  const std::uint32_t use = place.use;
  place = request;
  place.use = use;
  place.open = true;
  return std::uint64_t{use} << 32 | index;
}

OneSidedNetwork::Request* OneSidedNetwork::find_request(comm::Peer from, std::uint64_t id, std::size_t bytes) noexcept {
  const std::uint64_t index = id & 0xffff'ffffU;
  if (index >= requests_.size()) return nullptr;
  Request& request = requests_[index];
  if (!request.open || request.use != id >> 32 || request.process != from ||
      request.blocks.bytes * request.blocks.count != bytes)
    return nullptr;
  return &request;
}

void OneSidedNetwork::close_request(Request& request, std::uint64_t id) noexcept {
  request.open = false;
  ++request.use;
  expected_bytes_[request.process].fetch_sub(request.blocks.bytes * request.blocks.count,
                                             std::memory_order_relaxed);    // relaxed: a measure
  free_requests_.push_back(static_cast<std::uint32_t>(id & 0xffff'ffffU));  // its place was made by open_request()
}

}  // namespace aplib
