// SPDX-License-Identifier: MIT
// What other processes ask for, and their replies. Frames are another process's word: a cell that is here, a range inside its slot, a request of ours.
#include <fmt/format.h>

#include <cstring>

#include "aplib/error.hpp"
#include "kernel/module_network.hpp"
#include "kernel/one_sided_frames.hpp"
#include "kernel/one_sided_network.hpp"
#include "kernel/remote_access.hpp"

namespace aplib {

namespace detail {
constinit thread_local const RemoteAccess* current_remote_access = nullptr;
}

namespace {

constexpr std::size_t page_bytes = 4096;

template <class Body>
bool read_body(std::span<const std::byte> bytes, Body& body) noexcept {
  if (bytes.size() != sizeof body) return false;
  std::memcpy(&body, bytes.data(), sizeof body);
  return true;
}

std::uint32_t asking_cell(const comm::Label& label) noexcept { return label.extra & OneSidedFrame::cell_mask; }

std::byte* address_of(const comm::Label& label) noexcept { return reinterpret_cast<std::byte*>(label.key); }

RemoteAccess access_of(const comm::Label& label, const char* what, const one_sided::Blocks& blocks) noexcept {
  std::ptrdiff_t first = 0;
  std::size_t bytes = 0;
  one_sided::span_of(blocks, blocks.remote_stride, first, bytes);
  return {what, asking_cell(label), label.cell, address_of(label) + first, bytes};
}

}  // namespace

void RemoteAccessScope::touch_to_read(const RemoteAccess& access) noexcept {
  const auto* bytes = reinterpret_cast<const unsigned char*>(access.address);
  for (std::uint64_t at = 0; at < access.bytes; at += page_bytes)
    static_cast<void>(__atomic_load_n(bytes + at, __ATOMIC_RELAXED));  // relaxed: only whether it can be read
  if (access.bytes != 0) static_cast<void>(__atomic_load_n(bytes + access.bytes - 1, __ATOMIC_RELAXED));
}

void RemoteAccessScope::touch_to_write(const RemoteAccess& access) noexcept {
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(access.address));
  for (std::uint64_t at = 0; at < access.bytes; at += page_bytes)
    __atomic_fetch_or(bytes + at, 0, __ATOMIC_RELAXED);  // relaxed: only whether it can be written
  if (access.bytes != 0) __atomic_fetch_or(bytes + access.bytes - 1, 0, __ATOMIC_RELAXED);
}

bool OneSidedNetwork::is_access(comm::Peer from, const comm::Label& label, const one_sided::Blocks& blocks) {
  const std::uint32_t by = asking_cell(label);
  if (!domain_.is_local(label.cell) || by >= domain_.cell_count || domain_.process_of(by) != from) {
    network_.nonsense(from, "a put or get that is not for here, or not from there");
    return false;
  }
  std::ptrdiff_t first = 0;
  std::size_t bytes = 0;
  const std::uintptr_t slot = OneSidedFrame::slot_of(label.cell);
  bool inside =
      one_sided::span_of(blocks, blocks.remote_stride, first, bytes) && label.task <= OneSidedFrame::flag_words;
  if (inside && bytes != 0) {
    const std::uintptr_t offset = label.key + static_cast<std::uintptr_t>(first) - slot;
    inside = offset < SlotPlan::bytes && bytes <= SlotPlan::bytes - offset;
  }
  if (!inside) {
    network_.nonsense(from, "a put or get outside the cell's memory");
    return false;
  }
  return true;
}

void OneSidedNetwork::finish_put(comm::Peer from, const comm::Label& label) {
  Watch::raise(OneSidedFrame::flag_at(label.cell, label.task));
  domain_.wake_watcher(*domain_.cells[label.cell]);
  if ((label.extra & OneSidedFrame::acknowledge_bit) != 0) {
    answer(from, FrameKind::put_landed, label, 0, {});
  } else if ((label.extra & OneSidedFrame::note_bit) != 0) {
    answer(from, FrameKind::carried_out, label, 0, {});
  }
}

void OneSidedNetwork::answer(comm::Peer to, FrameKind kind, const comm::Label& asked, std::uint64_t key,
                             std::span<const std::byte> body) {
  comm::Label label;
  label.key = key;
  label.cell = asking_cell(asked);
  label.extra = asked.cell;
  label.task = memory_.carried_out_so_far(to);
  network_.post(to, kind, label, body);
  answered_ = true;
}

bool OneSidedNetwork::frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  // While the machine stops, tasks unwind, and the memory of their programs goes. Acquire: pairs with stop().
  if (domain_.stopping.load(std::memory_order_acquire)) return true;
  switch (static_cast<FrameKind>(label.kind)) {
    case FrameKind::put: {
      const one_sided::Blocks blocks{.bytes = body.size()};
      if (!is_access(from, label, blocks)) return false;
      const RemoteAccess access = access_of(label, "put", blocks);
      const RemoteAccessScope scope(access);
      if (!body.empty()) {
        std::memcpy(address_of(label), body.data(), body.size());
        memory_.carry_out(from);
      }
      finish_put(from, label);
      return true;
    }
    case FrameKind::put_blocks:
      return put_blocks(from, label, body);
    case FrameKind::get:
      return answer_get(from, label, body);
    case FrameKind::fetch:
      return answer_fetch(from, label, body);
    case FrameKind::reply:
      return take_reply(from, label, body);
    case FrameKind::put_landed:
      return put_landed(from, label);
    case FrameKind::carried_out:
      memory_.landed(from, label.task);
      return true;
    case FrameKind::memory_request:
      if (!is_access(from, label, {.bytes = 1})) return false;
      memory_.answer_request(from, label);
      answered_ = true;
      return true;
    case FrameKind::memory_key:
      if (memory_.take_key(from, label, body)) return true;
      network_.nonsense(from, "a key to memory that is not its own");
      return false;
    default:
      network_.nonsense(from, fmt::format("its kind is {}", label.kind));
      return false;
  }
}

bool OneSidedNetwork::put_blocks(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  BlocksHead head{};
  std::uint64_t packed = 0;
  if (body.size() < sizeof head || !read_body(body.first(sizeof head), head) ||
      __builtin_mul_overflow(head.bytes, head.count, &packed) || packed != body.size() - sizeof head) {
    network_.nonsense(from, "a put of another length");
    return false;
  }
  const one_sided::Blocks blocks{head.bytes, head.count, static_cast<std::ptrdiff_t>(head.bytes), head.stride};
  if (!is_access(from, label, blocks)) return false;
  const RemoteAccess access = access_of(label, "put_stride", blocks);
  const RemoteAccessScope scope(access);
  one_sided::copy_blocks(address_of(label), blocks.remote_stride, body.data() + sizeof head, blocks.local_stride,
                         blocks);
  memory_.carry_out(from);
  finish_put(from, label);
  return true;
}

bool OneSidedNetwork::answer_get(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  GetRequest request{};
  std::uint64_t packed = 0;
  if (!read_body(body, request) || __builtin_mul_overflow(request.blocks.bytes, request.blocks.count, &packed) ||
      (request.blocks.count != 1 && packed > OneSidedFrame::small_body_max)) {
    network_.nonsense(from, "a get of another length");
    return false;
  }
  const one_sided::Blocks blocks{request.blocks.bytes, request.blocks.count,
                                 static_cast<std::ptrdiff_t>(request.blocks.bytes), request.blocks.stride};
  if (!is_access(from, label, blocks)) return false;
  const RemoteAccess access = access_of(label, "get", blocks);
  const RemoteAccessScope scope(access);
  RemoteAccessScope::touch_to_read(access);
  if (packed != 0) memory_.carry_out(from);
  if (blocks.count == 1) {
    answer(from, FrameKind::reply, label, request.id, {address_of(label), blocks.bytes});
  } else {
    std::vector<std::byte> items(packed);
    one_sided::copy_blocks(items.data(), blocks.local_stride, address_of(label), blocks.remote_stride, blocks);
    answer(from, FrameKind::reply, label, request.id, items);
  }
  Watch::raise(OneSidedFrame::flag_at(label.cell, label.task));
  if (label.task != 0) domain_.wake_watcher(*domain_.cells[label.cell]);
  return true;
}

bool OneSidedNetwork::answer_fetch(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  FetchRequest request{};
  const bool whole = read_body(body, request);
  const std::uint32_t bytes = request.word & ~FetchRequest::signed_bit;
  if (!whole || (bytes != 4 && bytes != 8) || label.key % bytes != 0 ||
      request.what > static_cast<std::uint32_t>(detail::Fetch::compare_exchange)) {
    network_.nonsense(from, "an atomic operation of an unknown kind");
    return false;
  }
  const one_sided::Blocks blocks{.bytes = bytes};
  if (!is_access(from, label, blocks)) return false;
  const RemoteAccess access = access_of(label, "an atomic operation", blocks);
  const RemoteAccessScope scope(access);
  const std::uint64_t old = one_sided::operate({.what = static_cast<detail::Fetch>(request.what),
                                                .word = {bytes, (request.word & FetchRequest::signed_bit) != 0},
                                                .cell = label.cell,
                                                .remote = address_of(label),
                                                .operand = request.operand,
                                                .expected = request.expected});
  domain_.wake_watcher(*domain_.cells[label.cell]);
  memory_.carry_out(from);
  answer(from, FrameKind::reply, label, request.id, std::as_bytes(std::span(&old, 1)));
  return true;
}

// Small ones: the copy is under the mutex, for fetch() takes its request back when the machine stops.
bool OneSidedNetwork::take_reply(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  std::uint32_t cell = 0;
  {
    const std::lock_guard lock(requests_mutex_);
    Request* request = find_request(from, label.key, body.size());
    if (request == nullptr) {
      network_.nonsense(from, "a reply that nobody waits for");
      return false;
    }
    cell = request->cell;
    const RemoteAccess access{"get", cell, cell, request->local, body.size()};
    const RemoteAccessScope scope(access);
    one_sided::copy_blocks(request->local, request->blocks.local_stride, body.data(),
                           static_cast<std::ptrdiff_t>(request->blocks.bytes), request->blocks);
    Watch::raise(request->flag);
    close_request(*request, label.key);
  }
  memory_.landed(from, label.task);
  domain_.wake_watcher(*domain_.cells[cell]);
  return true;
}

bool OneSidedNetwork::put_landed(comm::Peer from, const comm::Label& label) {
  if (!domain_.is_local(label.cell) || label.extra >= domain_.cell_count || domain_.process_of(label.extra) != from) {
    network_.nonsense(from, "an acknowledgement that is not for here, or not from there");
    return false;
  }
  Cell& cell = *domain_.cells[label.cell];
  memory_.landed(from, label.task);
  Watch::raise(&cell.acknowledged);
  domain_.wake_watcher(cell);
  return true;
}

// ---------------------------------------------------------------- large bodies

std::byte* OneSidedNetwork::large_begin(comm::Peer from, const comm::Label& label, std::size_t bytes) {
  if (static_cast<FrameKind>(label.kind) == FrameKind::put) {
    const one_sided::Blocks blocks{.bytes = bytes};
    if (!is_access(from, label, blocks)) return nullptr;
    const RemoteAccess access = access_of(label, "put", blocks);
    const RemoteAccessScope scope(access);
    RemoteAccessScope::touch_to_write(access);
    return address_of(label);
  }
  const std::lock_guard lock(requests_mutex_);
  const Request* request = find_request(from, label.key, bytes);
  if (request == nullptr || request->blocks.count != 1) {
    network_.nonsense(from, "a reply that nobody waits for");
    return nullptr;
  }
  const RemoteAccess access{"get", request->cell, request->cell, request->local, bytes};
  const RemoteAccessScope scope(access);
  RemoteAccessScope::touch_to_write(access);
  return request->local;
}

bool OneSidedNetwork::large_end(comm::Peer from, const comm::Label& label, std::size_t bytes) {
  if (static_cast<FrameKind>(label.kind) == FrameKind::put) {
    const RemoteAccess access = access_of(label, "put", {.bytes = bytes});
    const RemoteAccessScope scope(access);
    memory_.carry_out(from);
    finish_put(from, label);
    return true;
  }
  std::uint32_t cell = 0;
  {
    const std::lock_guard lock(requests_mutex_);
    Request* request = find_request(from, label.key, bytes);
    if (request == nullptr) return false;
    cell = request->cell;
    Watch::raise(request->flag);
    close_request(*request, label.key);
  }
  memory_.landed(from, label.task);
  domain_.wake_watcher(*domain_.cells[cell]);
  return true;
}

}  // namespace aplib
