// SPDX-License-Identifier: MIT
// SharedBodies: large messages between processes of one host, whose bodies are copied once: into the sender's arena
// (memory/body_arena.hpp), where the receiver's message has them. It is a part of ModuleNetwork.
//
//   arena_place    the sender's first large message to a process is preceded by where its arena is
//   arena_answer   label: extra is 1 if it is mapped there now. From then on bodies go by the arena.
//   shared_message label: as of a message. Body: SharedPlace.
//
// The receiver of a message of MPI copies its body out again. So that both copy at the same time, a large one comes in
// parts, which a receive that waits with its own buffer gets as they come:
//
//   shared_begin   label and body: as of the shared_message that follows
//   shared_part    body: SharedPlace; so many bytes are there
//
// The sender's copies of such bodies go past its caches: the receiver would fetch each line from there.
//
// Until the answer has come, where the arena cannot be mapped or made, and while it is full, messages go as frames. An
// arena is another process's memory: what lies there is data, and what a frame says of it is checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cell/buffer_pool.hpp"
#include "cell/outbound.hpp"
#include "comm/module.hpp"
#include "memory/body_arena.hpp"

namespace aplib {

class ModuleNetwork;
struct Domain;
enum class FrameKind : std::uint32_t;

/// Body of a frame: where a message's body is.
struct SharedPlace {
  std::uint64_t number;  ///< In the sender's arena.
  std::uint64_t bytes;
};

class SharedBodies {
 public:
  /// Smaller ones are copied faster than handed over.
  static constexpr std::size_t from_bytes = 16 * 1024;

  SharedBodies(ModuleNetwork& network, Domain& domain, std::uint32_t processes);

  /// Sends a message of from_bytes or more. False: it must go as a frame. Any thread. Throws as Module::send().
  bool send(std::uint32_t process, const comm::Label& label, std::span<const std::byte> bytes) {
    const State state = peers_[process].state.load(std::memory_order_acquire);  // pairs with take_answer()
    if (state == State::open) [[likely]]
      return send_shared(process, label, bytes);
    if (state == State::unknown) offer(process);
    return false;
  }

  // While the network is polled. False: the frame makes no sense.

  bool take_place(comm::Peer from, std::span<const std::byte> body);
  bool take_answer(comm::Peer from, const comm::Label& label);
  /// What a frame with a message brings. Nothing: it makes no sense.
  struct Arrival {
    SharedBody body;
    std::size_t bytes;
  };
  [[nodiscard]] std::optional<Arrival> find(comm::Peer from, std::span<const std::byte> body) const noexcept;
  bool begin_parts(comm::Peer from, const comm::Label& label, const Arrival& arrival, Outbound& outbound);
  bool take_part(comm::Peer from, std::span<const std::byte> body);
  /// A message is complete.
  bool take(comm::Peer from, const comm::Label& label, const Arrival& arrival, Outbound& outbound);
  /// Receives into which parts were coming are let go.
  void end(Outbound& outbound);

 private:
  /// A message that comes in parts, straight to the receive that waits for it.
  struct Coming {
    LargeArrival receive;
    std::byte* to;
    SharedBody from;
    std::size_t copied = 0;

    void copy_up_to(std::size_t bytes) noexcept;
  };
  /// Of our arena, as seen there.
  enum class State : std::uint8_t { unknown, offered, open, refused };
  struct PeerState {
    std::atomic<State> state{State::unknown};
    bool told = false;            // by it, where its own arena is
    BodyArena* theirs = nullptr;  // null: not mapped
    std::vector<Coming> coming;
  };

  void offer(std::uint32_t process);
  bool send_shared(std::uint32_t process, const comm::Label& label, std::span<const std::byte> bytes);
  void send_parts(std::uint32_t process, const comm::Label& label, std::uint32_t number,
                  std::span<const std::byte> bytes, bool& begun);
  void post(std::uint32_t process, FrameKind kind, const comm::Label& label, const SharedPlace& place);
  [[nodiscard]] std::vector<Coming>::iterator coming_at(comm::Peer from, std::uint64_t number) noexcept;

  ModuleNetwork& network_;
  Domain& domain_;
  std::vector<PeerState> peers_;
  std::mutex offers_;
  std::unique_ptr<LendingArena> arena_;  // made with the first offer
};

}  // namespace aplib
