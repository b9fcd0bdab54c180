// SPDX-License-Identifier: MIT
#include "cell/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "aplib/error.hpp"
#include "cell/domain.hpp"
#include "cell/network.hpp"

namespace aplib {

namespace {

[[noreturn]] void nonsense(const char* what) {
  throw Error(Errc::failed, fmt::format("a frame of a collective makes no sense: {}", what));
}

}  // namespace

Exchange::Exchange(Domain& domain, Group& group, std::uint32_t index, std::vector<std::uint32_t> processes,
                   std::uint32_t place)
    : domain_(domain), group_(group), index_(index), processes_(std::move(processes)), place_(place) {
  episodes_[1].number = 1;
}

std::uint32_t Exchange::place_of(std::uint32_t process) const {
  return static_cast<std::uint32_t>(std::ranges::find(processes_, process) - processes_.begin());
}

void Exchange::begin(std::uint64_t number, const CollectiveCall& call, std::uint32_t caller, bool disagree,
                     std::span<const Fold::Part> parts, std::span<const std::byte> payload) {
  const std::lock_guard lock(mutex_);
  Episode& episode = episodes_[number & 1U];
  if (episode.number != number || episode.begun) return;  // another carrier has seen it, too
  episode.begun = true;
  episode.call = call;
  std::strncpy(episode.call_text, call.call, call_text_max - 1);
  episode.call.call = episode.call_text;
  episode.caller = caller;
  episode.disagree = disagree;
  episode.mismatch.clear();
  episode.parts.clear();
  for (const Fold::Part& part : parts) episode.parts.push_back({part, place_});
  episode.statuses.clear();
  if (const std::uint64_t own = domain_.network->own_status(); own != 0)
    episode.statuses.push_back({own, domain_.process, 0});
  episode.own_payload = payload;
  episode.has_payload = call.kind == CollectiveKind::broadcast && domain_.is_local(call.root);
  episode.payload.clear();
  advance(episode);
}

void Exchange::advance(Episode& episode) {
  const auto count = static_cast<std::uint32_t>(processes_.size());
  while ((1U << episode.step) < count) {
    if (episode.sent == episode.step) {
      send_step(episode);
      ++episode.sent;
    }
    std::vector<std::byte>& frame = episode.early[episode.step];
    if (frame.empty()) return;
    merge(episode, frame);
    frame.clear();
    ++episode.step;
  }
  complete(episode);
}

void Exchange::send_step(Episode& episode) {
  const auto count = static_cast<std::uint32_t>(processes_.size());
  const std::uint32_t distance = 1U << episode.step;
  // In the last step the other lacks only the first few of those we know of, counted from us.
  const std::uint32_t wanted = std::min(distance, count - distance);
  const auto is_wanted = [&](std::uint32_t place) { return (place + count - place_) % count < wanted; };
  const auto parts = static_cast<std::uint16_t>(
      std::ranges::count_if(episode.parts, [&](const PlacedPart& part) { return is_wanted(part.place); }));
  const bool with_payload = episode.has_payload && is_wanted(place_of(domain_.process_of(episode.call.root)));
  const std::span<const std::byte> payload = !with_payload ? std::span<const std::byte>()
                                             : domain_.is_local(episode.call.root)
                                                 ? episode.own_payload
                                                 : std::span<const std::byte>(episode.payload);
  Head head{};
  head.scope = static_cast<std::uint32_t>(group_.scope);
  head.index = index_;
  head.episode = episode.number;
  head.step = static_cast<std::uint16_t>(episode.step);
  head.parts = parts;
  head.statuses = static_cast<std::uint16_t>(episode.statuses.size());
  head.has_payload = with_payload ? 1 : 0;
  head.disagree = episode.disagree ? 1 : 0;
  head.signature = episode.call.signature();
  head.caller = episode.caller;
  head.kind = static_cast<std::uint8_t>(episode.call.kind);
  head.op = static_cast<std::uint8_t>(episode.call.combine.op);
  head.type = static_cast<std::uint8_t>(episode.call.combine.type);
  head.located = episode.call.combine.located ? 1 : 0;
  head.bytes = episode.call.bytes;
  head.root = episode.call.root;
  std::memcpy(head.call, episode.call_text, call_text_max);

  frame_.resize(sizeof head + parts * sizeof(WirePart) + episode.statuses.size() * sizeof(Status) + payload.size());
  std::byte* at = frame_.data();
  std::memcpy(at, &head, sizeof head);
  at += sizeof head;
  for (const auto& [part, place] : episode.parts) {
    if (!is_wanted(place)) continue;
    const WirePart wire{part.value.bits, part.first, part.level, part.value.location, place};
    std::memcpy(at, &wire, sizeof wire);
    at += sizeof wire;
  }
  if (!episode.statuses.empty()) std::memcpy(at, episode.statuses.data(), episode.statuses.size() * sizeof(Status));
  at += episode.statuses.size() * sizeof(Status);
  if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
  domain_.network->send_exchange(processes_[(place_ + count - distance) % count], frame_);
}

std::pair<Scope, std::uint32_t> Exchange::group_of(std::span<const std::byte> frame) noexcept {
  Head head{};
  if (frame.size() < sizeof head) return {Scope::all, ~0U};
  std::memcpy(&head, frame.data(), sizeof head);
  if (head.scope > static_cast<std::uint32_t>(Scope::all)) return {Scope::all, ~0U};
  return {static_cast<Scope>(head.scope), head.index};
}

void Exchange::receive(std::span<const std::byte> frame) {
  Head head{};
  if (frame.size() < sizeof head) nonsense("it is too short");
  std::memcpy(&head, frame.data(), sizeof head);
  check(head, frame.subspan(sizeof head));
  const std::lock_guard lock(mutex_);
  Episode& episode = episodes_[head.episode & 1U];
  if (head.episode != episode.number) nonsense("it is not of this time");  // invariant (1)
  if (head.step >= steps_max || (1U << head.step) >= processes_.size() || head.step < episode.step ||
      !episode.early[head.step].empty())
    nonsense("its step");
  episode.early[head.step].assign(frame.begin(), frame.end());
  if (episode.begun) advance(episode);
}

// All that can be said of a frame without knowing what was called here. What follows relies on it.
void Exchange::check(const Head& head, std::span<const std::byte> rest) const {
  if (head.kind > static_cast<std::uint8_t>(CollectiveKind::last) ||
      head.op > static_cast<std::uint8_t>(ReduceOp::last) || head.type > static_cast<std::uint8_t>(NumberType::last))
    nonsense("what it says was called");
  if (head.call[call_text_max - 1] != '\0') nonsense("the name of what was called");
  const std::size_t fixed_bytes = head.parts * sizeof(WirePart) + head.statuses * sizeof(Status);
  if (rest.size() < fixed_bytes || (rest.size() > fixed_bytes && head.has_payload == 0)) nonsense("its length");
  if (head.has_payload != 0 && head.kind != static_cast<std::uint8_t>(CollectiveKind::broadcast))
    nonsense("bytes of a broadcast without one");
  for (std::uint32_t i = 0; i < head.parts; ++i) {
    WirePart wire{};
    std::memcpy(&wire, rest.data() + i * sizeof wire, sizeof wire);
    if (wire.first >= group_.count || !Fold::is_node(wire.first, wire.level) || wire.place >= processes_.size() ||
        wire.place == place_)
      nonsense("a part of it");
  }
}

void Exchange::merge(Episode& episode, std::span<const std::byte> frame) {
  Head head{};
  std::memcpy(&head, frame.data(), sizeof head);
  std::span<const std::byte> rest = frame.subspan(sizeof head);
  if (head.disagree != 0) episode.disagree = true;
  if (head.signature != episode.call.signature()) {
    episode.disagree = true;
    if (episode.mismatch.empty()) {
      CollectiveCall other;
      other.call = head.call;
      other.kind = static_cast<CollectiveKind>(head.kind);
      other.combine = {static_cast<ReduceOp>(head.op), static_cast<NumberType>(head.type), head.located != 0};
      other.bytes = head.bytes;
      other.root = head.root;
      episode.mismatch =
          fmt::format("the cells disagree: cell {} calls {}, cell {} calls {}; all must make the same call",
                      episode.caller, describe(episode.call), head.caller, describe(other));
    }
  }
  for (std::uint32_t i = 0; i < head.parts; ++i) {
    WirePart wire{};
    std::memcpy(&wire, rest.data() + i * sizeof wire, sizeof wire);
    Fold::Part part{wire.first, wire.level, {}};
    part.value.bits = wire.bits;
    part.value.location = wire.location;
    episode.parts.push_back({part, wire.place});
  }
  rest = rest.subspan(head.parts * sizeof(WirePart));
  for (std::uint32_t i = 0; i < head.statuses; ++i) {
    Status status{};
    std::memcpy(&status, rest.data() + i * sizeof status, sizeof status);
    domain_.network->other_status(status.process, status.status);
    if (std::ranges::none_of(episode.statuses, [&](const Status& each) { return each.process == status.process; }))
      episode.statuses.push_back(status);
  }
  rest = rest.subspan(head.statuses * sizeof(Status));
  if (head.has_payload != 0 && !episode.has_payload && !episode.disagree) {
    if (rest.size() != episode.call.bytes) nonsense("the bytes of a broadcast");
    episode.payload.assign(rest.begin(), rest.end());
    episode.has_payload = true;
  }
}

void Exchange::complete(Episode& episode) {
  const std::uint64_t parity = episode.number & 1U;
  if (!episode.disagree && episode.call.kind != CollectiveKind::broadcast) {
    std::ranges::sort(episode.parts, {}, [](const PlacedPart& each) { return each.part.first; });
    Fold fold(episode.call.combine);
    std::uint32_t next = 0;
    for (const auto& [part, place] : episode.parts) {
      if (part.first != next) nonsense("its parts leave a gap");
      fold.push(part.first, part.level, part.value);
      next = std::min(part.first + (1U << part.level), group_.count);
    }
    if (fold.count() == 0 || next != group_.count) nonsense("its parts do not cover the group");
    group_.result[parity] = fold.finish();
  } else {
    group_.result[parity] = {};
  }
  if (!episode.disagree && episode.call.kind == CollectiveKind::broadcast && !episode.has_payload)
    nonsense("a broadcast without its bytes");
  group_.mismatch[parity] = episode.disagree;
  const std::uint64_t done = episode.number + 1;
  episode.number += 2;
  episode.begun = false;
  episode.step = 0;
  episode.sent = 0;
  group_.done.store(done, std::memory_order_release);  // release: result, mismatch and payload
  domain_.wake_carriers();
}

}  // namespace aplib
