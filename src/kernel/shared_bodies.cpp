// SPDX-License-Identifier: MIT
#include "kernel/shared_bodies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "arch/cpu.hpp"
#include "cell/domain.hpp"
#include "kernel/api.hpp"
#include "kernel/module_network.hpp"

namespace aplib {

SharedBodies::SharedBodies(ModuleNetwork& network, Domain& domain, std::uint32_t processes)
    : network_(network), domain_(domain), peers_(processes) {
  for (std::uint32_t process = 0; process < processes; ++process) {
    if (!network.module().shares_host(process))
      peers_[process].state.store(State::refused, std::memory_order_relaxed);  // relaxed: nobody else is here
  }
}

void SharedBodies::offer(std::uint32_t process) {
  std::atomic<State>& state = peers_[process].state;
  const std::lock_guard hold(offers_);
  if (state.load(std::memory_order_relaxed) != State::unknown) return;  // relaxed: under the mutex
  if (arena_ == nullptr) arena_ = LendingArena::make();
  const std::optional<SharedFilePlace> place = arena_ != nullptr ? arena_->place() : std::nullopt;
  if (!place) {
    state.store(State::refused, std::memory_order_relaxed);  // relaxed: the same
    return;
  }
  state.store(State::offered, std::memory_order_release);  // release: the arena
  network_.post(process, FrameKind::arena_place, {}, std::as_bytes(std::span(&*place, 1)));
}

bool SharedBodies::take_place(comm::Peer from, std::span<const std::byte> body) {
  PeerState& peer = peers_[from];
  SharedFilePlace place;
  if (body.size() != sizeof place || std::exchange(peer.told, true)) return false;
  std::memcpy(&place, body.data(), sizeof place);
  if (std::unique_ptr<BodyArena> arena = BodyArena::open(place)) peer.theirs = &domain_.pools->keep(std::move(arena));
  comm::Label answer;
  answer.extra = peer.theirs != nullptr ? 1 : 0;
  network_.post(from, FrameKind::arena_answer, answer, {});
  return true;
}

bool SharedBodies::take_answer(comm::Peer from, const comm::Label& label) {
  State state = State::offered;
  // acq_rel: the arena, from who has offered it to who sends by it
  return peers_[from].state.compare_exchange_strong(state, label.extra == 1 ? State::open : State::refused,
                                                    std::memory_order_acq_rel);
}

namespace {

constexpr std::size_t part_bytes_min = BodyArena::unit_bytes;
constexpr std::size_t part_bytes_max = 64 * 1024;

/// Long enough that its frame costs little, and some of a body, so that both copy most of it at the same time.
std::size_t part_bytes_of(std::size_t body_bytes) noexcept {
  const std::size_t wanted = body_bytes / 8 / part_bytes_min * part_bytes_min;
  return std::clamp(wanted, part_bytes_min, part_bytes_max);
}

/// The receiver copies it to the program's memory.
bool is_copied_out(const comm::Label& label) noexcept {
  const auto space = static_cast<api::Space>(label.key >> MatchKey::space_shift);
  return space == api::Space::mpi || space == api::Space::mpi_collective;
}

}  // namespace

void SharedBodies::post(std::uint32_t process, FrameKind kind, const comm::Label& label, const SharedPlace& place) {
  network_.post(process, kind, label, std::as_bytes(std::span(&place, 1)));
}

/// Fills a body, and tells the receiver of what is there. `begun`: it knows of the message.
void SharedBodies::send_parts(std::uint32_t process, const comm::Label& label, std::uint32_t number,
                              std::span<const std::byte> bytes, bool& begun) {
  const std::size_t part = part_bytes_of(bytes.size());
  for (std::size_t first = 0; first < bytes.size(); first += part) {
    if (begun) {
      post(process, FrameKind::shared_part, {}, {number, first});
    } else if (bytes.size() > part) {
      post(process, FrameKind::shared_begin, label, {number, bytes.size()});
      begun = true;
    }
    arena_->fill(number, first, bytes.subspan(first, std::min(part, bytes.size() - first)));
  }
  arena_->complete(number, bytes.size());
}

bool SharedBodies::send_shared(std::uint32_t process, const comm::Label& label, std::span<const std::byte> bytes) {
  const bool in_parts = is_copied_out(label);
  const std::uint32_t number = in_parts ? arena_->begin(bytes.size()) : arena_->lend(bytes);
  if (arena_->is_deceived()) [[unlikely]] {
    domain_.fail(
        static_cast<int>(ExitStatus::peer_lost),
        "a process of this host gives back the body of a message that it was not lent; are all installations of "
        "APlib the same?");
  }
  if (number == 0) [[unlikely]]
    return false;
  bool begun = false;
  try {
    if (in_parts) send_parts(process, label, number, bytes, begun);
    post(process, FrameKind::shared_message, label, {number, bytes.size()});
  } catch (...) {
    if (begun) domain_.fail_by_exception(nullptr);  // the receive that has parts of it waits for the rest
    arena_->take_back(number, bytes.size());
    throw;
  }
  return true;
}

std::optional<SharedBodies::Arrival> SharedBodies::find(comm::Peer from,
                                                        std::span<const std::byte> body) const noexcept {
  BodyArena* const arena = peers_[from].theirs;
  SharedPlace place{};
  if (arena == nullptr || body.size() != sizeof place) return std::nullopt;
  std::memcpy(&place, body.data(), sizeof place);
  char* const bytes = arena->find(place.number, place.bytes);
  if (bytes == nullptr || place.bytes < from_bytes) return std::nullopt;
  return Arrival{{arena, bytes, static_cast<std::uint32_t>(place.number)}, place.bytes};
}

void SharedBodies::Coming::copy_up_to(std::size_t bytes) noexcept {
  copy_long(to + copied, from.place + copied, bytes - copied);
  copied = bytes;
}

std::vector<SharedBodies::Coming>::iterator SharedBodies::coming_at(comm::Peer from, std::uint64_t number) noexcept {
  return std::ranges::find(peers_[from].coming, number, [](const Coming& each) { return each.from.number; });
}

bool SharedBodies::begin_parts(comm::Peer from, const comm::Label& label, const Arrival& arrival, Outbound& outbound) {
  std::vector<Coming>& coming = peers_[from].coming;
  if (coming_at(from, arrival.body.number) != coming.end()) return false;
  coming.reserve(coming.size() + 1);  // what is claimed has a place
  LargeArrival receive{.cell = label.cell, .task = label.task, .key = label.key, .bytes = arrival.bytes};
  if (std::byte* const to = outbound.claim_large(receive)) coming.push_back({receive, to, arrival.body});
  return true;
}

bool SharedBodies::take_part(comm::Peer from, std::span<const std::byte> body) {
  SharedPlace place{};
  if (body.size() != sizeof place) return false;
  std::memcpy(&place, body.data(), sizeof place);
  const auto part = coming_at(from, place.number);
  if (part == peers_[from].coming.end()) return true;  // no receive waits for it
  if (place.bytes < part->copied || place.bytes > part->receive.bytes) return false;
  part->copy_up_to(place.bytes);
  return true;
}

bool SharedBodies::take(comm::Peer from, const comm::Label& label, const Arrival& arrival, Outbound& outbound) {
  const auto place = coming_at(from, arrival.body.number);
  if (place == peers_[from].coming.end()) {
    outbound.inject(label.cell, label.task, label.key, arrival.body, arrival.bytes);
    return true;
  }
  LargeArrival& receive = place->receive;
  if (receive.cell != label.cell || receive.task != label.task || receive.key != label.key ||
      receive.bytes != arrival.bytes)
    return false;
  place->copy_up_to(arrival.bytes);
  arrival.body.arena->give_back(arrival.body.number);
  outbound.end_large(receive, true);
  peers_[from].coming.erase(place);
  return true;
}

void SharedBodies::end(Outbound& outbound) {
  for (PeerState& peer : peers_) {
    for (Coming& coming : peer.coming) outbound.end_large(coming.receive, false);
    peer.coming.clear();
  }
}

}  // namespace aplib
