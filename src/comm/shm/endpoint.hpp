// SPDX-License-Identifier: MIT
// Endpoint: where a process of this host is reached: the name of its socket, which nobody can guess and no file
// has, and what tells whether two processes can share memory at all.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/descriptor.hpp"
#include "comm/shm/bell.hpp"

namespace aplib::comm::shm {

struct Endpoint {
  std::string name;                     ///< 32 hexadecimal digits, random.
  std::uint64_t network_namespace = 0;  ///< Inside which names of sockets count,
  std::uint64_t process_namespace = 0;  ///< numbers of processes,
  std::uint64_t user_namespace = 0;     ///< and numbers of users.
  std::uint32_t user = 0;
  pid_t process = 0;
  /// Address of its Board, which begins with the name: who can read that there can reach its memory.
  std::uint64_t board = 0;
  std::string host;  ///< As in PortSettings.

  /// This process's own, with a new name. Throws Error(failed).
  [[nodiscard]] static Endpoint make(const std::string& host);
  [[nodiscard]] static std::optional<Endpoint> parse(std::string_view text);
  [[nodiscard]] std::string print() const;

  /// Frames can pass.
  [[nodiscard]] bool joins(const Endpoint& other) const;
};

/// A socket that listens under the endpoint's name. Throws Error.
[[nodiscard]] os::UniqueFd listen_at(const Endpoint& endpoint);
/// A socket on its way there; not blocking. None: errno says why.
[[nodiscard]] os::UniqueFd connect_to(const Endpoint& endpoint) noexcept;

/// What a process has before it knows the others: where it is reached, and what it will give to them.
struct Presence {
  /// Listens. Throws Error.
  explicit Presence(const std::string& host);
  std::unique_ptr<Bell> bell = std::make_unique<Bell>();
  Endpoint own;
  os::UniqueFd listener;
};

}  // namespace aplib::comm::shm
