// SPDX-License-Identifier: MIT
// SharedBodies: large messages between processes of one host, whose bodies are copied once: into the sender's arena
// (memory/body_arena.hpp), where the receiver's message has them. It is a part of ModuleNetwork.
//
//   arena_place    the sender's first large message to a process is preceded by where its arena is
//   arena_answer   label: extra is 1 if it is mapped there now. From then on bodies go by the arena.
//   shared_message label: as of a message. Body: SharedPlace.
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
#include "comm/module.hpp"
#include "memory/body_arena.hpp"

namespace aplib {

class ModuleNetwork;
struct Domain;

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

 private:
  /// Of our arena, as seen there.
  enum class State : std::uint8_t { unknown, offered, open, refused };
  struct PeerState {
    std::atomic<State> state{State::unknown};
    bool told = false;            // by it, where its own arena is
    BodyArena* theirs = nullptr;  // null: not mapped
  };

  void offer(std::uint32_t process);
  bool send_shared(std::uint32_t process, const comm::Label& label, std::span<const std::byte> bytes);

  ModuleNetwork& network_;
  Domain& domain_;
  std::vector<PeerState> peers_;
  std::mutex offers_;
  std::unique_ptr<LendingArena> arena_;  // made with the first offer
};

}  // namespace aplib
