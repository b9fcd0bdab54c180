// SPDX-License-Identifier: MIT
// RemoteMemory: large puts and gets by the module's remote memory access (comm/module.hpp, promise (6)) instead of
// frames. It is a part of OneSidedNetwork.
//
// Keys to another process's memory are asked for by frames, a block of a slot at a time, and kept; until one is
// there, frames carry the data. What a process has opened stays open until the run's end, for the memory of slots
// stays.
//
// What a cell does to another's memory must happen in order, but a write may overtake frames, and writes and reads
// each other. Hence: (1) A write or read begins only when every data frame sent to that process before has been
// carried out there. How many have been, its replies say, and notes that are asked for. (2) It does not begin while
// another that overlaps it is under way, unless both are reads. Then frames carry the data: those stay behind
// writes. (3) A data frame waits for the cell's own reads under way that it overlaps.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cell/one_sided.hpp"
#include "comm/module.hpp"

namespace aplib {

class ModuleNetwork;
struct Domain;

class RemoteMemory {
 public:
  /// From this size on. Smaller: a frame is there sooner.
  static constexpr std::size_t from_bytes = comm::Module::large_from_bytes;

  RemoteMemory(ModuleNetwork& network, Domain& domain, std::uint32_t processes);
  ~RemoteMemory();

  /// For tasks. False: frames must carry it.
  bool put(TaskControl& self, const one_sided::Copy& copy);
  bool get(TaskControl& self, const one_sided::Copy& copy);
  /// Before a data frame (one that moves or asks for bytes) that does `copy`.
  void begin_frame(TaskControl& self, const one_sided::Copy& copy);

  /// All that was sent to that process has been done there: what is done to its memory now comes behind.
  [[nodiscard]] bool is_settled(std::uint32_t process) const noexcept {
    const Peer& peer = peers_[process];
    // acquire: as in have_landed()
    return have_landed(peer) && peer.notes.load(std::memory_order_acquire) == 0 &&
           peer.acknowledgements.load(std::memory_order_acquire) == 0;
  }
  // A frame is sent that asks for a note, or for an acknowledgement: of flags, which are no data frames.
  void expect_note(std::uint32_t process) noexcept {
    peers_[process].notes.fetch_add(1, std::memory_order_relaxed);  // relaxed: ours alone are ours to know
  }
  void expect_acknowledgement(std::uint32_t process) noexcept {
    peers_[process].acknowledgements.fetch_add(1, std::memory_order_relaxed);  // relaxed: the same
  }

  // While the network is polled.
  /// A data frame of `from` has been carried out.
  void carry_out(comm::Peer from) noexcept { ++peers_[from].carried_out; }
  /// How many have been, modulo 2^32: for its replies.
  [[nodiscard]] std::uint32_t carried_out_so_far(comm::Peer from) const noexcept { return peers_[from].carried_out; }
  // With each answer, `from` says how many of ours it has carried out. False: it cannot have, or nobody has asked.
  [[nodiscard]] bool can_have_landed(comm::Peer from, std::uint32_t count) const noexcept {
    const Peer& peer = peers_[from];
    // relaxed: counts; the module orders what they count
    const std::uint32_t known = peer.landed.load(std::memory_order_relaxed);
    return count - known <= peer.sent.load(std::memory_order_relaxed) - known;  // modulo 2^32
  }
  void landed(comm::Peer from, std::uint32_t count) noexcept {
    peers_[from].landed.store(count, std::memory_order_relaxed);  // relaxed: the same
  }
  [[nodiscard]] bool noted(comm::Peer from, std::uint32_t count) noexcept {
    return answered(from, count, peers_[from].notes);
  }
  [[nodiscard]] bool acknowledged(comm::Peer from, std::uint32_t count) noexcept {
    return answered(from, count, peers_[from].acknowledgements);
  }
  void done(std::uint64_t context, bool ok);
  void answer_request(comm::Peer from, const comm::Label& label);
  bool take_key(comm::Peer from, const comm::Label& label, std::span<const std::byte> body);
  /// Closes what was opened to others.
  void end() noexcept;

 private:
  struct Range {
    std::uintptr_t low = 0;
    std::uintptr_t high = 0;
    [[nodiscard]] bool meets(const Range& other) const noexcept { return low < other.high && other.low < high; }
  };
  struct Key {
    std::uintptr_t high = 0;
    comm::MemoryKey key;
  };
  /// One put or get under way, in one or more pieces.
  struct Transfer {
    Range range;
    bool reads = false;
    std::uint32_t process = 0;
    std::uint32_t asking_cell = 0;
    std::uint32_t cell = 0;
    std::int32_t* local_flag = nullptr;
    std::int32_t* remote_flag = nullptr;  ///< Of a get.
    std::size_t pieces = 0;               ///< That are not done.
  };
  struct Piece {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    comm::MemoryKey key;
  };
  /// Why a transfer cannot begin.
  enum class Obstacle : std::uint8_t { frames, transfers, keys, refused };
  struct Peer {
    std::mutex mutex;
    std::map<std::uintptr_t, Key> keys;    // by lowest address
    std::map<std::uintptr_t, bool> asked;  // blocks; true: refused
    std::vector<std::unique_ptr<Transfer>> under_way;
    std::vector<comm::MemoryKey> opened;             // ours, to it
    std::atomic<std::uint32_t> reads{0};             // of under_way
    std::atomic<std::uint32_t> sent{0};              // data frames, modulo 2^32
    std::atomic<std::uint32_t> landed{0};            // of these
    std::atomic<std::uint32_t> notes{0};             // that have been asked for, and
    std::atomic<std::uint32_t> acknowledgements{0};  // such
    std::atomic<std::uint32_t> impatient{0};         // so many more transfers do not wait for what is in their way
    std::uint32_t carried_out = 0;                   // of its data frames; by who polls
  };

  bool answered(comm::Peer from, std::uint32_t count, std::atomic<std::uint32_t>& awaited) noexcept {
    // relaxed: it was raised before the frame that is answered now, and only who polls lowers it
    if (awaited.load(std::memory_order_relaxed) == 0 || !can_have_landed(from, count)) return false;
    landed(from, count);
    awaited.fetch_sub(1, std::memory_order_release);  // release: to is_settled()
    return true;
  }
  /// Every data frame sent there has been carried out.
  [[nodiscard]] static bool have_landed(const Peer& peer) noexcept {
    // acquire: what landed() was told of came before; relaxed: ours alone are ours to know, of others any moment is
    // right
    return peer.landed.load(std::memory_order_acquire) == peer.sent.load(std::memory_order_relaxed);
  }
  /// The pieces of the range by keys. None: not all are there, and `missing` is to be asked for.
  static std::vector<Piece> pieces_of(Peer& peer, const Range& range, std::vector<std::uintptr_t>& missing,
                                      bool& refused);
  static bool is_read(Peer& peer, std::uint32_t asking_cell, const one_sided::Copy& copy);
  template <class Begin>
  bool transfer(TaskControl& self, const one_sided::Copy& copy, bool reads, const Begin& begin_piece);
  Transfer* begin(TaskControl& self, const one_sided::Copy& copy, bool reads, std::vector<Piece>& pieces);
  Transfer* try_to_begin(const TaskControl& self, const one_sided::Copy& copy, const Range& range, bool reads,
                         std::vector<Piece>& pieces, Obstacle& obstacle, std::vector<std::uintptr_t>& missing);

  ModuleNetwork& network_;
  Domain& domain_;
  std::vector<Peer> peers_;
};

}  // namespace aplib
