// SPDX-License-Identifier: MIT
// Handover: what two processes give each other behind the greeting: their segment for the pair, their board and
// their bell. Then the socket is silent; its end is the other's end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/shm/bell.hpp"
#include "comm/shm/segment.hpp"
#include "comm/shm/shared_memory.hpp"

namespace aplib::comm::shm {
/// All that joins us with one other process.
struct Connection {
  os::UniqueFd socket;
  SharedMemory mine;    ///< Segment
  SharedMemory theirs;  ///< Segment
  SharedMemory board;
  os::UniqueFd bell;
  bool light_fences = false;  ///< Both sides have a barrier.
};

enum class Verdict : std::uint8_t {
  taken = 1,
  not_now,  ///< Our own call is on the way to you.
};

/// Gives `mine` and the bell, or a refusal. False: the other side is gone.
[[nodiscard]] bool give(int socket, Verdict verdict, const SharedMemory* mine, const Bell& bell) noexcept;

enum class Given : std::uint8_t { nothing_yet, taken, not_now, wrong };
/// Takes what the other side gives, into `connection`. `why`: of Given::wrong.
[[nodiscard]] Given take(int socket, const Bell& bell, Connection& connection, std::string& why);

}  // namespace aplib::comm::shm
