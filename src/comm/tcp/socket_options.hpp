// SPDX-License-Identifier: MIT
// What every socket of the module is told, before it connects or right after it was accepted.
#pragma once

#include <chrono>
#include <cstdint>

namespace aplib::comm {

/// No delays; a connection that nobody answers ends after `timeout`, also while it is being made.
void prepare_socket(int socket, std::chrono::milliseconds timeout) noexcept;

/// The greeting is over. From here on the module judges itself whether the other host answers: the system would count a host whose program does not read for a while as dead
/// (TCP_USER_TIMEOUT includes the time that the window is closed). Keepalive goes on, for connections on which nothing is under way. Buffers between hosts
/// are left to the system, which fits them to bandwidth and delay.
void prepare_for_frames(int socket) noexcept;

/// The round trip as the system has measured it; 0: not yet.
[[nodiscard]] std::chrono::microseconds round_trip(int socket) noexcept;

}  // namespace aplib::comm
