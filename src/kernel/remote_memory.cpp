// SPDX-License-Identifier: MIT
#include "kernel/remote_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "aplib/error.hpp"
#include "kernel/module_network.hpp"
#include "kernel/one_sided_network.hpp"
#include "memory/mapping.hpp"

namespace aplib {

namespace {

constexpr std::uintptr_t block_bytes = std::uintptr_t{16}
                                       << 20;  // opened at a time: hardware may have to hold it in memory
constexpr std::size_t under_way_max = 256;     // per process
constexpr std::uint32_t impatient_for = 16;    // transfers
constexpr std::chrono::nanoseconds patience_min = std::chrono::microseconds(5);
constexpr std::chrono::nanoseconds patience_max = std::chrono::microseconds(300);

/// Body of a frame that brings a key; empty: the memory cannot be opened.
struct KeyReply {
  std::uint64_t low;
  std::uint64_t high;
  comm::MemoryKey key;
};

/// The writable memory around `address`, within its block and its cell's globals and heap.
std::pair<std::uintptr_t, std::uintptr_t> memory_round(std::uintptr_t address, std::uint32_t cell) {
  const std::uintptr_t slot = OneSidedFrame::slot_of(cell);
  const std::uintptr_t block = address / block_bytes * block_bytes;
  std::uintptr_t low = 0;
  std::uintptr_t high = 0;
  for_each_mapping([&](const Mapping& mapping) {
    if (!mapping.readable || !mapping.writable) return mapping.low <= address;
    if (mapping.low != high) {
      if (high > address) return false;
      low = mapping.low;
    }
    high = mapping.high;
    return true;
  });
  if (address < low || address >= high) return {0, 0};
  return {std::max({low, block, slot}), std::min({high, block + block_bytes, slot + SlotPlan::stacks_offset})};
}

}  // namespace

RemoteMemory::RemoteMemory(ModuleNetwork& network, Domain& domain, std::uint32_t processes)
    : network_(network), domain_(domain), peers_(processes) {}

RemoteMemory::~RemoteMemory() = default;

// ---------------------------------------------------------------- the asking side

bool RemoteMemory::put(TaskControl& self, const one_sided::Copy& copy) {
  return transfer(self, copy, false, [this](const Transfer& whole, const Piece& piece, std::byte* local) {
    network_.module().write(whole.process, piece.key, piece.address, {local, piece.bytes},
                            reinterpret_cast<std::uintptr_t>(&whole));
  });
}

bool RemoteMemory::get(TaskControl& self, const one_sided::Copy& copy) {
  return transfer(self, copy, true, [this](const Transfer& whole, const Piece& piece, std::byte* local) {
    network_.module().read(whole.process, piece.key, piece.address, {local, piece.bytes},
                           reinterpret_cast<std::uintptr_t>(&whole));
  });
}

template <class Begin>
bool RemoteMemory::transfer(TaskControl& self, const one_sided::Copy& copy, bool reads, const Begin& begin_piece) {
  std::vector<Piece> pieces;
  const Transfer* whole = begin(self, copy, reads, pieces);
  if (whole == nullptr) return false;
  const std::uintptr_t first = pieces.front().address;
  for (const Piece& piece : pieces) {  // with the last, `whole` may be gone
    for (bool begun = false; !begun;) {
      try {
        begin_piece(*whole, piece, copy.local + (piece.address - first));
        begun = true;
      } catch (const Error& error) {
        if (error.code() != Errc::exhausted) throw;
        network_.poll();  // what is done makes room
        Processor::yield(self);
        if (self.cell->processor->stops()) return true;
      }
    }
  }
  return true;
}

// What is in the way may soon be gone: keys come, notes come, transfers end. Waiting for that costs less than frames
// would. So this polls for about as long as frames would take, unless that was in vain lately, because the other
// process computes.
RemoteMemory::Transfer* RemoteMemory::begin(TaskControl& self, const one_sided::Copy& copy, bool reads,
                                            std::vector<Piece>& pieces) {
  const std::uint32_t process = domain_.process_of(copy.cell);
  const auto address = reinterpret_cast<std::uintptr_t>(copy.remote);
  const Range range{address, address + copy.blocks.bytes};
  if (range.high > OneSidedFrame::slot_of(copy.cell) + SlotPlan::stacks_offset) return nullptr;  // stacks have holes
  if (!network_.module().reaches_memory(process)) return nullptr;
  Peer& peer = peers_[process];
  comm::Label label;
  label.cell = copy.cell;
  label.extra = self.cell->id;
  Clock::time_point start{};
  bool asked_for_note = false;
  while (true) {
    std::vector<std::uintptr_t> missing;
    Obstacle obstacle{};
    if (Transfer* transfer = try_to_begin(self, copy, range, reads, pieces, obstacle, missing)) return transfer;
    for (const std::uintptr_t at : missing) {
      label.key = at;
      network_.post(process, FrameKind::memory_request, label, {});
    }
    std::uint32_t impatient = peer.impatient.load(std::memory_order_relaxed);  // relaxed: a hint
    if (obstacle == Obstacle::refused) return nullptr;
    if (start == Clock::time_point{} && impatient != 0) {
      peer.impatient.store(impatient - 1, std::memory_order_relaxed);  // relaxed: a hint
      return nullptr;
    }
    if (obstacle == Obstacle::frames && !asked_for_note) {
      asked_for_note = true;
      comm::Label note = label;
      note.key = 0;
      note.extra |= OneSidedFrame::note_bit;
      expect_note(process);
      network_.post(process, FrameKind::put, note, {});
    }
    const Clock::time_point now = Clock::now();
    if (start == Clock::time_point{}) start = now;
    if (now - start > std::min(patience_max, patience_min + std::chrono::nanoseconds(copy.blocks.bytes / 4)) ||
        domain_.stopping.load(std::memory_order_relaxed)) {            // relaxed: noticed sooner or later
      peer.impatient.store(impatient_for, std::memory_order_relaxed);  // relaxed: a hint
      return nullptr;
    }
    if (!network_.poll()) cpu_relax();
  }
}

RemoteMemory::Transfer* RemoteMemory::try_to_begin(const TaskControl& self, const one_sided::Copy& copy,
                                                   const Range& range, bool reads, std::vector<Piece>& pieces,
                                                   Obstacle& obstacle, std::vector<std::uintptr_t>& missing) {
  const std::uint32_t process = domain_.process_of(copy.cell);
  Peer& peer = peers_[process];
  if (!have_landed(peer)) {
    obstacle = Obstacle::frames;
    return nullptr;
  }
  const std::lock_guard lock(peer.mutex);
  obstacle = Obstacle::transfers;
  if (peer.under_way.size() >= under_way_max) return nullptr;
  for (const auto& other : peer.under_way) {
    if (other->range.meets(range) && !(reads && other->reads)) return nullptr;
  }
  bool refused = false;
  pieces = pieces_of(peer, range, missing, refused);
  obstacle = refused ? Obstacle::refused : Obstacle::keys;
  if (pieces.empty()) return nullptr;
  auto transfer = std::make_unique<Transfer>(Transfer{.range = range,
                                                      .reads = reads,
                                                      .process = process,
                                                      .asking_cell = self.cell->id,
                                                      .cell = copy.cell,
                                                      .local_flag = copy.local_flag,
                                                      .remote_flag = reads ? copy.remote_flag : nullptr,
                                                      .pieces = pieces.size()});
  if (reads) peer.reads.fetch_add(1, std::memory_order_relaxed);  // relaxed: our next frame follows in our thread
  network_.count_sent();
  return peer.under_way.emplace_back(std::move(transfer)).get();
}

std::vector<RemoteMemory::Piece> RemoteMemory::pieces_of(Peer& peer, const Range& range,
                                                         std::vector<std::uintptr_t>& missing, bool& refused) {
  std::vector<Piece> pieces;
  bool complete = true;
  for (std::uintptr_t at = range.low; at < range.high;) {
    auto key = peer.keys.upper_bound(at);
    if (key != peer.keys.begin() && (--key)->second.high > at) {
      const std::uintptr_t end = std::min(key->second.high, range.high);
      pieces.push_back({at, end - at, key->second.key});
      at = end;
      continue;
    }
    const std::uintptr_t block = at / block_bytes * block_bytes;
    const auto [asked, is_new] = peer.asked.try_emplace(block, false);
    if (is_new) missing.push_back(at);
    refused = refused || asked->second;
    complete = false;
    at = block + block_bytes;
  }
  if (!complete) pieces.clear();
  return pieces;
}

void RemoteMemory::begin_frame(TaskControl& self, const one_sided::Copy& copy) {
  Peer& peer = peers_[domain_.process_of(copy.cell)];
  while (peer.reads.load(std::memory_order_acquire) != 0 &&
         is_read(peer, self.cell->id, copy)) {  // acquire: see done()
    network_.poll();
    Processor::yield(self);
    if (self.cell->processor->stops()) break;
  }
  peer.sent.fetch_add(1, std::memory_order_relaxed);  // relaxed: see try_to_begin()
}

/// Does a read of the cell's that is under way meet the copy?
bool RemoteMemory::is_read(Peer& peer, std::uint32_t asking_cell, const one_sided::Copy& copy) {
  std::ptrdiff_t first = 0;
  std::size_t bytes = 0;
  one_sided::span_of(copy.blocks, copy.blocks.remote_stride, first, bytes);
  const std::uintptr_t low = reinterpret_cast<std::uintptr_t>(copy.remote) + static_cast<std::uintptr_t>(first);
  const Range range{low, low + bytes};
  const std::lock_guard lock(peer.mutex);
  return std::ranges::any_of(peer.under_way, [&](const auto& other) {
    return other->reads && other->asking_cell == asking_cell && other->range.meets(range);
  });
}

void RemoteMemory::done(std::uint64_t context, bool ok) {
  auto* transfer = reinterpret_cast<Transfer*>(context);
  Peer& peer = peers_[transfer->process];
  if (!ok && !domain_.stopping.load(std::memory_order_acquire)) {  // acquire: pairs with stop()
    network_.peer_lost(transfer->process,
                       fmt::format("{} of cell {}: its memory at {:#x} cannot be reached any more",
                                   transfer->reads ? "a get" : "a put", transfer->asking_cell, transfer->range.low));
    return;
  }
  if (!ok || --transfer->pieces != 0) return;
  const Transfer finished = *transfer;
  {
    const std::lock_guard lock(peer.mutex);
    std::erase_if(peer.under_way, [transfer](const auto& each) { return each.get() == transfer; });
  }
  if (finished.reads && finished.remote_flag != nullptr) {
    comm::Label label;
    label.cell = finished.cell;
    label.task = OneSidedFrame::flag_word(finished.cell, finished.remote_flag);
    label.extra = finished.asking_cell | OneSidedFrame::note_bit;
    expect_note(finished.process);
    network_.post(finished.process, FrameKind::put, label, {});
  }
  if (finished.reads) peer.reads.fetch_sub(1, std::memory_order_release);  // release: pairs with begin_frame()
  RemoteAccessScope::raise(finished.local_flag, finished.reads ? "the flag of a get" : "the flag of a put",
                           finished.asking_cell, finished.asking_cell);
  domain_.wake_watcher(*domain_.cells[finished.asking_cell]);
  network_.count_received();
}

// ---------------------------------------------------------------- keys

void RemoteMemory::answer_request(comm::Peer from, const comm::Label& label) {
  const comm::Label answer = OneSidedFrame::answer_to(label);
  KeyReply reply{};
  std::span<const std::byte> body;
  try {
    const auto [low, high] = memory_round(label.key, label.cell);
    if (low < high && network_.module().reaches_memory(from)) {
      reply.low = low;
      reply.high = high;
      reply.key = network_.module().expose(from, {reinterpret_cast<std::byte*>(low), high - low});
      peers_[from].opened.push_back(reply.key);
      body = std::as_bytes(std::span(&reply, 1));
    }
  } catch (const Error&) {
    body = {};  // then frames carry it
  }
  network_.post(from, FrameKind::memory_key, answer, body);
}

bool RemoteMemory::take_key(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  KeyReply reply{};
  if (!domain_.cell_map.carries(from, label.extra)) return false;
  const std::uintptr_t block = label.key / block_bytes * block_bytes;
  Peer& peer = peers_[from];
  if (body.empty()) {  // not to be had
    const std::lock_guard lock(peer.mutex);
    if (const auto asked = peer.asked.find(block); asked != peer.asked.end()) asked->second = true;
    return true;
  }
  if (body.size() != sizeof reply) return false;
  std::memcpy(&reply, body.data(), sizeof reply);
  const std::uintptr_t slot = OneSidedFrame::slot_of(label.extra);
  if (reply.low >= reply.high || reply.low < slot || reply.high > slot + SlotPlan::bytes || label.key < reply.low ||
      label.key >= reply.high || reply.key.bytes > comm::MemoryKey::bytes_max)
    return false;
  const std::lock_guard lock(peer.mutex);
  // What is known of the block is older, and therefore smaller: the memory of slots only grows.
  peer.keys.erase(peer.keys.lower_bound(block), peer.keys.lower_bound(block + block_bytes));
  peer.keys[reply.low] = {reply.high, reply.key};
  peer.asked.erase(block);
  return true;
}

void RemoteMemory::end() noexcept {
  for (std::uint32_t p = 0; p < peers_.size(); ++p) {
    for (const comm::MemoryKey& key : peers_[p].opened) network_.module().conceal(p, key);
    peers_[p].opened.clear();
  }
}

}  // namespace aplib
