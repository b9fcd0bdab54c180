// SPDX-License-Identifier: MIT
// Messages by which nodes of several sites find out how they reach each other. protocol.hpp has their order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/kind.hpp"
#include "launch/wire/fields.hpp"
#include "launch/wire/protocol.hpp"

namespace aplib::launch::wire {

/// A process to be reached.
struct ProbedPeer {
  std::uint32_t process = 0;
  std::string address{};  ///< Where it listens for tcp.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.process, self.address);
  }
};

/// The addresses of one relay.
struct ProbedRelay {
  std::vector<std::string> places{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.places);
  }
};

/// Asks a process whom it reaches, and to answer others that try to reach it until the Plan comes.
struct Probe {
  static constexpr auto type = MessageType::probe;
  std::string machine{};
  std::vector<ProbedPeer> peers{};
  std::vector<ProbedRelay> relays{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.machine, self.peers, self.relays);
  }
};

struct Probed {
  static constexpr auto type = MessageType::probed;
  std::vector<std::uint32_t> reached{};  ///< Of the peers.
  std::vector<std::string> relays{};     ///< By relay: the place that has answered; empty: none.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.reached, self.relays);
  }
};

/// A way that is not the direct one, as the process sees it that gets the plan.
struct PlannedWay {
  std::uint32_t process = 0;  ///< To this one.
  comm::Way::Kind kind = comm::Way::Kind::direct;
  std::string place{};  ///< comm::Way
  std::string relay{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.process, self.kind, self.place, self.relay);
  }
};

}  // namespace aplib::launch::wire
