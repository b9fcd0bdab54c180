// SPDX-License-Identifier: MIT
// One-sided calls of tasks here, what other processes ask for, and their replies. A frame is another process's word, so
// it is checked: the cell is here, the range lies in its slot, the request is ours.
#include "kernel/one_sided_network.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstring>

#include "aplib/error.hpp"
#include "arch/cpu.hpp"
#include "kernel/module_network.hpp"

namespace aplib {

namespace {

constexpr std::size_t get_piece_bytes = std::size_t{4}
                                        << 20;  // the answering process holds what the system does not take at once
constexpr const char* reply_to_nobody = "a reply that nobody waits for, or that counts frames which were not sent";
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

/// To or from mapped memory of another cell, which does not overlap ours.
void copy_mapped(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from, std::ptrdiff_t from_stride,
                 const one_sided::Blocks& blocks) noexcept {
  if (blocks.count == 1 && blocks.bytes <= MessageRing::inline_bytes_max) return copy_small(to, from, blocks.bytes);
  one_sided::copy_blocks(to, to_stride, from, from_stride, blocks);
}

/// How many items of a strided copy one frame takes.
std::size_t items_per_frame(const one_sided::Blocks& blocks) noexcept {
  return std::max<std::size_t>(1, OneSidedFrame::small_body_max / blocks.bytes);
}

}  // namespace

/// Closes the request again, unless its reply may go where it says. Else what throws before it is sent, or while its
/// reply is waited for, would leave a pointer into the caller's memory.
class OneSidedNetwork::OpenRequest {
 public:
  OpenRequest(OneSidedNetwork& network, const Request& request)
      : network_(network),
        process_(request.process),
        bytes_(request.blocks.bytes * request.blocks.count),
        id_(network.open_request(request)) {}
  ~OpenRequest() {
    if (stays_) return;
    const std::lock_guard lock(network_.requests_mutex_);
    if (Request* ours = network_.find_request(process_, id_, bytes_)) network_.close_request(*ours, id_);
  }
  OpenRequest(const OpenRequest&) = delete;
  OpenRequest& operator=(const OpenRequest&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  void stay() noexcept { stays_ = true; }

 private:
  OneSidedNetwork& network_;
  const std::uint32_t process_;
  const std::size_t bytes_;
  const std::uint64_t id_;
  bool stays_ = false;
};

OneSidedNetwork::OneSidedNetwork(ModuleNetwork& network, Domain& domain, std::uint32_t processes)
    : network_(network),
      domain_(domain),
      memory_(network, domain, processes),
      heaps_(network, domain),
      expected_bytes_(std::make_unique<std::atomic<std::size_t>[]>(processes)) {}

bool OneSidedNetwork::is_mapped(const TaskControl& self, const one_sided::Copy& copy) {
  std::ptrdiff_t first = 0;
  std::size_t bytes = 0;
  one_sided::span_of(copy.blocks, copy.blocks.remote_stride, first, bytes);
  if (bytes == 0) return heaps_.holds(self, copy.cell, copy.remote_flag, sizeof *copy.remote_flag);
  return heaps_.holds(self, copy.cell, copy.remote + first, bytes);
}

void OneSidedNetwork::count_mapped() noexcept {
  constexpr std::uint32_t calls_per_look = 64;
  const std::uint32_t calls = mapped_calls_.load(std::memory_order_relaxed) + 1;  // relaxed: about right is enough
  mapped_calls_.store(calls, std::memory_order_relaxed);                          // the same
  if (calls % calls_per_look == 0) domain_.guarded([this] { network_.poll_if_due(); });
}

void OneSidedNetwork::arrive(TaskControl& self, const char* call, std::uint32_t cell, std::int32_t* flag) {
  if (flag == nullptr || heaps_.holds(self, cell, flag, sizeof *flag)) {
    Watch::raise(flag);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // what was written before the look; pairs with Idle::park()
    if (!MappedHeaps::of(cell).sleeps()) [[likely]]
      return;
    flag = nullptr;
  }
  const std::uint32_t process = domain_.process_of(cell);
  network_.make_room(self, call, cell, process);
  one_sided::Copy flags;
  flags.cell = cell;
  flags.remote_flag = flag;
  comm::Label label = label_of(self, flags);
  if (flag != nullptr) {
    label.extra |= OneSidedFrame::note_bit;
    memory_.expect_note(process);
  }
  network_.post(process, FrameKind::put, label, {});
}

void OneSidedNetwork::put(TaskControl& self, const char* call, const one_sided::Copy& copy, bool acknowledge) {
  const std::uint32_t process = domain_.process_of(copy.cell);
  if (is_mapped(self, copy) && memory_.is_settled(process)) {
    copy_mapped(copy.remote, copy.blocks.remote_stride, copy.local, copy.blocks.local_stride, copy.blocks);
    Watch::raise(copy.local_flag);
    count_mapped();
    return arrive(self, call, copy.cell, copy.remote_flag);  // nothing to acknowledge: it is there
  }
  const auto post = [&](FrameKind kind, const one_sided::Copy& part, bool last, std::span<const std::byte> body) {
    network_.make_room(self, call, part.cell, process);
    comm::Label label = label_of(self, part);
    if (!body.empty()) memory_.begin_frame(self, part);
    if (last && acknowledge) {
      label.extra |= OneSidedFrame::acknowledge_bit;
      // relaxed: ours alone write it; put_landed() looks
      const std::atomic_ref requested(self.cell->acknowledges_requested);
      requested.store(requested.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      memory_.expect_acknowledgement(process);
    } else if (last && heaps_.may_hold(copy.cell)) {
      label.extra |= OneSidedFrame::note_bit;  // so that the next one need not be a frame
      memory_.expect_note(process);
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
  if (is_mapped(self, copy) && memory_.is_settled(domain_.process_of(copy.cell))) {
    copy_mapped(copy.local, blocks.local_stride, copy.remote, blocks.remote_stride, blocks);
    Watch::raise(copy.local_flag);
    count_mapped();
    if (copy.remote_flag != nullptr) arrive(self, call, copy.cell, copy.remote_flag);
    return;
  }
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
  OpenRequest open(
      *this,
      {.process = process, .cell = self.cell->id, .local = copy.local, .blocks = copy.blocks, .flag = copy.local_flag});
  const GetRequest request{{copy.blocks.bytes, copy.blocks.count, copy.blocks.remote_stride}, open.id()};
  if (bytes != 0) memory_.begin_frame(self, copy);
  network_.post(process, FrameKind::get, label_of(self, copy), std::as_bytes(std::span(&request, 1)));
  open.stay();
}

// What other processes have read for us waits in their memory until we take it.
void OneSidedNetwork::wait_for_replies(TaskControl& self, std::uint32_t process, std::size_t bytes) {
  const std::atomic<std::size_t>& expected = expected_bytes_[process];
  // relaxed: a measure
  while (expected.load(std::memory_order_relaxed) != 0 &&
         expected.load(std::memory_order_relaxed) + bytes > domain_.options.send_limit_bytes) {
    network_.poll();
    Processor::yield(self);
    if (self.cell->processor->stops()) return;
    if (expected.load(std::memory_order_relaxed) + bytes > domain_.options.send_limit_bytes &&
        !self.cell->processor->idle().has_ready())
      network_.module().wait(reply_sleep);
  }
}

std::uint64_t OneSidedNetwork::fetch(TaskControl& self, const char* call, const one_sided::Operation& operation) {
  const std::uint32_t process = domain_.process_of(operation.cell);
  if (heaps_.holds(self, operation.cell, operation.remote, operation.word.bytes) && memory_.is_settled(process)) {
    const std::uint64_t before = one_sided::operate(operation);
    count_mapped();
    arrive(self, call, operation.cell, nullptr);
    return before;
  }
  network_.make_room(self, call, operation.cell, process);
  std::uint64_t old = 0;
  std::int32_t done = 0;
  OpenRequest open(*this, {.process = process,
                           .cell = self.cell->id,
                           .local = reinterpret_cast<std::byte*>(&old),
                           .blocks = {.bytes = sizeof old},
                           .flag = &done});
  one_sided::Copy place;
  place.cell = operation.cell;
  place.remote = operation.remote;
  place.blocks = {.bytes = operation.word.bytes};
  const FetchRequest request{operation.operand, operation.expected, open.id(),
                             static_cast<std::uint32_t>(operation.what),
                             operation.word.bytes | (operation.word.is_signed ? FetchRequest::signed_bit : 0)};
  memory_.begin_frame(self, place);
  network_.post(process, FrameKind::fetch, label_of(self, place), std::as_bytes(std::span(&request, 1)));
  // When the machine stops, a late reply must not find our stack.
  if (Processor::wait_flag(self, call, &done, 1)) open.stay();
  return old;
}

// ---------------------------------------------------------------- requests

std::uint64_t OneSidedNetwork::open_request(const Request& request) {
  const std::lock_guard lock(requests_mutex_);
  if (free_requests_.empty()) {
    requests_.emplace_back();
    free_requests_.reserve(requests_.capacity());  // so that close_request() does not throw
    free_requests_.push_back(static_cast<std::uint32_t>(requests_.size() - 1));
  }
  const std::uint32_t index = free_requests_.back();
  free_requests_.pop_back();
  Request& place = requests_[index];
  const std::uint32_t use = place.use;
  place = request;
  place.use = use;
  place.open = true;
  expected_bytes_[request.process].fetch_add(request.blocks.bytes * request.blocks.count,
                                             std::memory_order_relaxed);  // relaxed: a measure
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
  free_requests_.push_back(static_cast<std::uint32_t>(id & 0xffff'ffffU));  // reserved by open_request()
}

// ---------------------------------------------------------------- what other processes ask for

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

void RemoteAccessScope::raise(std::int32_t* flag, const char* what, std::uint32_t by, std::uint32_t cell) noexcept {
  if (flag == nullptr) return;
  const RemoteAccess access{what, by, cell, reinterpret_cast<const std::byte*>(flag), sizeof *flag};
  const RemoteAccessScope scope(access);
  Watch::raise(flag);
}

bool OneSidedNetwork::is_access(comm::Peer from, const comm::Label& label, const one_sided::Blocks& blocks) {
  const std::uint32_t by = asking_cell(label);
  if (!domain_.is_local(label.cell) || !domain_.cell_map.carries(from, by)) {
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
  RemoteAccessScope::raise(OneSidedFrame::flag_at(label.cell, label.task), "the flag of a put", asking_cell(label),
                           label.cell);
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
  // While the machine stops, tasks unwind, and their programs' memory goes away. Acquire: pairs with stop().
  if (domain_.stopping.load(std::memory_order_acquire)) return true;
  switch (static_cast<FrameKind>(label.kind)) {
    case FrameKind::put: {
      const one_sided::Blocks blocks{.bytes = body.size()};
      if (!is_access(from, label, blocks)) return false;
      const RemoteAccess access = access_of(label, "put", blocks);
      const RemoteAccessScope scope(access);
      if (!body.empty()) {
        copy_long(address_of(label), body.data(), body.size());
        memory_.carry_out(from);
      }
      finish_put(from, label);
      if (body.empty()) domain_.wake_carriers();  // it may say no more than that something has changed
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
      if (memory_.noted(from, label.task)) return true;
      network_.nonsense(from, "a note that nobody asked for, or that counts frames which were not sent");
      return false;
    case FrameKind::memory_request:
      if (!is_access(from, label, {.bytes = 1})) return false;
      memory_.answer_request(from, label);
      answered_ = true;
      return true;
    case FrameKind::heap_request:
      if (!is_access(from, label, {.bytes = 1})) return false;
      heaps_.answer_request(from, label);
      answered_ = true;
      return true;
    case FrameKind::heap_place:
      if (heaps_.take(from, label, body)) return true;
      network_.nonsense(from, "a heap that was not asked for, or is not its own");
      return false;
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
  RemoteAccessScope::raise(OneSidedFrame::flag_at(label.cell, label.task), "the flag of a get", asking_cell(label),
                           label.cell);
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

// Small replies are copied under the mutex, because fetch() takes its request back when the machine stops.
bool OneSidedNetwork::take_reply(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  std::uint32_t cell = 0;
  {
    const std::lock_guard lock(requests_mutex_);
    Request* request = find_request(from, label.key, body.size());
    if (request == nullptr || !memory_.can_have_landed(from, label.task)) {
      network_.nonsense(from, reply_to_nobody);
      return false;
    }
    cell = request->cell;
    const RemoteAccess access{"get", cell, cell, request->local, body.size()};
    const RemoteAccessScope scope(access);
    one_sided::copy_blocks(request->local, request->blocks.local_stride, body.data(),
                           static_cast<std::ptrdiff_t>(request->blocks.bytes), request->blocks);
    RemoteAccessScope::raise(request->flag, "the flag of a get", cell, cell);
    close_request(*request, label.key);
  }
  memory_.landed(from, label.task);
  domain_.wake_watcher(*domain_.cells[cell]);
  return true;
}

bool OneSidedNetwork::put_landed(comm::Peer from, const comm::Label& label) {
  if (!domain_.is_local(label.cell) || !domain_.cell_map.carries(from, label.extra)) {
    network_.nonsense(from, "an acknowledgement that is not for here, or not from there");
    return false;
  }
  Cell& cell = *domain_.cells[label.cell];
  // relaxed: it was raised before the frame that is answered now
  const bool is_awaited = std::atomic_ref(cell.acknowledges_requested).load(std::memory_order_relaxed) !=
                          static_cast<std::uint32_t>(cell.acknowledged);
  if (!is_awaited || !memory_.acknowledged(from, label.task)) {
    network_.nonsense(from, "an acknowledgement that nobody asked for, or that counts frames which were not sent");
    return false;
  }
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
    network_.nonsense(from, reply_to_nobody);
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
    if (!memory_.can_have_landed(from, label.task)) {
      network_.nonsense(from, reply_to_nobody);
      return false;
    }
    cell = request->cell;
    RemoteAccessScope::raise(request->flag, "the flag of a get", cell, cell);
    close_request(*request, label.key);
  }
  memory_.landed(from, label.task);
  domain_.wake_watcher(*domain_.cells[cell]);
  return true;
}

}  // namespace aplib
