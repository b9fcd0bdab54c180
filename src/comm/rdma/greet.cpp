// SPDX-License-Identifier: MIT
// How two processes prove to each other that they belong to the job, in packets: the bytes are those of a connection's greeting (comm/greeting.hpp). The lower number begins; the higher one knocks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/rdma/rdma_state.hpp"

namespace aplib::comm {

void RdmaModule::State::need_greeting(RdmaLink& link, Peer to) {
  if (link.stage == RdmaLink::Stage::ready || link.stage == RdmaLink::Stage::over) return;
  if (settings_.self > to) {
    if (std::exchange(link.knocked, true)) return;
    link.stage = RdmaLink::Stage::greeting;
    link.greeting_since = Clock::now();
    control(link, to, PacketKind::knock, {});
    return;
  }
  if (link.calling) return;
  link.stage = RdmaLink::Stage::greeting;
  link.greeting_since = Clock::now();
  link.calling = std::make_unique<Greeting>(
      Greeting::Role::caller, settings_.key,
      Introduction{.secure = settings_.secure, .self = settings_.self, .peer = to, .machine = settings_.machine});
  // Drawn at random, so that nobody else can have a say in it.
  fill_random(std::as_writable_bytes(std::span(&link.greeting_number, 1)));
  follow(link, to, *link.calling, link.greeting_number);
}

/// Sends what the greeting has to say, and looks at what has become of it. False: it is over.
bool RdmaModule::State::follow(RdmaLink& link, Peer from, Greeting& greeting, std::uint64_t number) {
  const std::vector<std::byte> output = greeting.take_output();
  const Greeting::State state = greeting.state();
  if (!output.empty() && state != Greeting::State::stranger) control(link, from, PacketKind::greeting, output, number);
  switch (state) {
    case Greeting::State::going:
      return true;
    case Greeting::State::stranger:
      refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    case Greeting::State::refused:
      lose(link, from, greeting.words(), false);
      return false;
    case Greeting::State::done:
      break;
  }
  if (link.stage == RdmaLink::Stage::ready || link.stage == RdmaLink::Stage::over) return false;
  link.token = number;
  if (settings_.secure != Secure::off) {
    const std::array<std::byte, 32> secret = greeting.secret();
    std::memcpy(&link.token, secret.data(), sizeof link.token);
  }
  link.stage = RdmaLink::Stage::ready;
  link.credit = window_bytes;
  note_busy(link, from);
  return false;
}

void RdmaModule::State::receive_greeting(RdmaLink& link, Peer from, std::uint64_t number,
                                         std::span<const std::byte> bytes) {
  if (link.stage == RdmaLink::Stage::over || from == settings_.self) return;
  const bool calling = settings_.self < from;
  std::unique_ptr<Greeting>* greeting = nullptr;
  if (calling) {
    if (link.calling && number == link.greeting_number) greeting = &link.calling;
  } else {
    const auto found = std::find_if(link.answering.begin(), link.answering.end(),
                                    [&](const auto& one) { return one.first == number; });
    if (found != link.answering.end()) {
      greeting = &found->second;
    } else {
      // Whoever sends nonsense in the name of a peer gets a greeting of its own, and cannot spoil the true one. The oldest goes.
      constexpr std::size_t most = 4;
      if (link.answering.size() == most) {
        refused_.fetch_add(1, std::memory_order_relaxed);
        link.answering.erase(link.answering.begin());
      }
      link.answering.emplace_back(number, std::make_unique<Greeting>(Greeting::Role::answerer, settings_.key,
                                                                     Introduction{.secure = settings_.secure,
                                                                                  .self = settings_.self,
                                                                                  .peer = from,
                                                                                  .machine = settings_.machine}));
      greeting = &link.answering.back().second;
    }
  }
  if (greeting == nullptr) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  while (!bytes.empty() && (*greeting)->state() == Greeting::State::going) {
    const std::size_t part = std::min(bytes.size(), (*greeting)->wants());
    (*greeting)->receive(bytes.first(part));
    bytes = bytes.subspan(part);
  }
  if (follow(link, from, **greeting, number)) return;
  if (calling) {
    link.calling.reset();
  } else {
    std::erase_if(link.answering, [&](const auto& one) { return one.first == number; });
  }
}

}  // namespace aplib::comm
