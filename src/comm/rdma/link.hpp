// SPDX-License-Identifier: MIT
// Link: what an rdma module knows of one peer. The base, src/comm/link.hpp, says which states it has.
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/greeting.hpp"
#include "comm/link.hpp"
#include "comm/module.hpp"
#include "comm/rdma/fabric.hpp"
#include "comm/rdma/packet.hpp"
#include "comm/rdma/registered_memory.hpp"

namespace aplib::comm::rdma {

/// A write or read that waits to be handed to the provider, or has been.
struct Transfer {
  enum class Kind : std::uint8_t { write, read, body };
  Kind kind = Kind::write;
  std::byte* local = nullptr;
  std::size_t bytes = 0;
  std::uint64_t remote = 0;
  std::uint64_t key = 0;
  std::uint64_t context = 0;
  std::uint64_t number = 0;  ///< Of writes, in their order.
  struct Parts {
    std::size_t left = 0;
    bool ok = true;
  };
  std::shared_ptr<Parts> parts{};  ///< Where it was too large for one.
};

/// A packet that is not out yet. Its header is written when it goes.
struct QueuedPacket {
  std::vector<std::byte> bytes;
  PacketKind kind;
  std::uint64_t token = 0;         ///< Of a greeting.
  std::uint64_t after_writes = 0;  ///< So many writes come before it.
};

/// A large body that is being read.
struct LargeBody {
  Label label;
  std::byte* into;
  std::size_t bytes;
  std::uint64_t number;
  std::size_t left;     ///< Bytes whose reads are not over.
  bool failed = false;  ///< One of them failed.
};

struct Link final : comm::Link {
  using Clock = std::chrono::steady_clock;

  /// `news`: is set when there is something to hear.
  Link(Peer peer, LinkReports& reports, std::atomic<bool>& news, Sleep& sleep) noexcept
      : comm::Link(peer, reports), news_(news), sleep_(sleep) {}

  // All but what is marked: the module's lock, which is that of the base, too.

  using comm::Link::break_off;
  using comm::Link::come_up;
  using comm::Link::set_state;
  using comm::Link::take_call;
  [[nodiscard]] State state() const noexcept { return state_locked(); }
  [[nodiscard]] bool is_up() const noexcept { return state_locked() == State::up && !broken_; }
  [[nodiscard]] bool is_over() const noexcept { return state_locked() == State::over || broken_; }
  /// Nothing is sent any more. Transfers that wait are left: they have their own ends.
  void drop_queues() noexcept {
    control.clear();
    packets.clear();
    // What is staged stays where it is: the peer may be reading it, and must not get other bytes.
    early.clear();
    gap_since.reset();
    asked_since.reset();
    failed_since.reset();
    queued.store(0);
  }

  fi_addr_t address = FI_ADDR_UNSPEC;
  std::uint64_t token = 0;
  std::uint64_t greeting_number = 0;
  std::unique_ptr<Greeting> calling;  // Ours, if we begin: the lower number does.
  std::vector<std::pair<std::uint64_t, std::unique_ptr<Greeting>>> answering;
  bool busy = false;                             // In the module's list of those with something to send.
  std::optional<Clock::time_point> stuck_since;  // The provider takes nothing for it.
  // Whether what was sent has arrived is asked when something was sent since the last question; the answer is
  // behind it.
  bool unproven = false;  // Something was.
  bool watched = false;   // In the module's list of those.
  std::optional<Clock::time_point> unproven_since;
  std::optional<Clock::time_point> asked_since;  // Asked, or a completion came; not answered yet.
  std::optional<Clock::time_point> greeting_since;
  std::optional<Clock::time_point> failed_since;  // Nothing can be sent; the mark of its end may still be on the way.
  std::string failed_because;
  std::size_t transfers_out = 0;  // The provider has them.
  std::size_t transfer_bytes_out = 0;
  std::optional<Clock::time_point> transfers_since;  // The last of them ended, or the first one began.

  std::deque<QueuedPacket> control;
  std::deque<Transfer> transfers;
  std::deque<QueuedPacket> packets;
  std::uint32_t sequence_out = 0;
  std::uint32_t sequence_in = 0;
  std::map<std::uint32_t, std::vector<std::byte>>
      early;  // Packets that came before others which were sent before them.
  std::optional<Clock::time_point> gap_since;
  std::uint64_t credit = 0;    // Bytes that may still be sent.
  std::uint64_t consumed = 0;  // Bytes that the peer does not know to be consumed yet.
  std::uint64_t held = 0;      // Bytes of packets of frames that came, less the credit that was given for them.
  std::uint64_t writes_begun = 0;
  std::uint64_t writes_posted = 0;
  std::uint64_t writes_over = 0;  // All up to this one.
  std::deque<bool> writes_ended;  // Behind writes_over: which are over.
  std::unordered_map<std::uint64_t, std::pair<std::unique_ptr<RegisteredPool::Block>, std::size_t>> staged;
  std::uint64_t next_number = 1;
  std::optional<std::string> lost_because;  // To be told by the next poll.
  bool ending = false;                      // This process closes, and has said so.
  bool end_answered = false;
  std::atomic<std::size_t> queued{0};  // Written under the lock, read by anyone.

  // Thread that polls.
  struct Kept {
    std::vector<std::byte> frames;
    std::size_t credit;  // Of its packet.
  };
  std::deque<Kept> inbox;    // Frames that could not be delivered when they came.
  std::size_t inbox_at = 0;  // In the first of them.
  std::uint64_t asked = 0;   // In which poll wants() was asked last.
  bool wanted = false;
  bool loss_told = false;            // peer_lost() was called.
  bool listed = false;               // In the list of those with an inbox.
  std::unique_ptr<LargeBody> large;  // Also written under the lock, by whoever takes completions.

 private:
  void stop_writing() noexcept override { drop_queues(); }
  void told() noexcept override {
    news_.store(true);
    sleep_.ring();
  }

  std::atomic<bool>& news_;
  Sleep& sleep_;
};

}  // namespace aplib::comm::rdma
