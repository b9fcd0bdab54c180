// SPDX-License-Identifier: MIT
#include "kernel/shared_bodies.hpp"

#include <cstring>
#include <utility>

#include "cell/domain.hpp"
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

bool SharedBodies::send_shared(std::uint32_t process, const comm::Label& label, std::span<const std::byte> bytes) {
  const std::uint32_t number = arena_->lend(bytes);
  if (arena_->is_deceived()) [[unlikely]] {
    domain_.fail(
        static_cast<int>(ExitStatus::peer_lost),
        "a process of this host gives back the body of a message that it was not lent; are all installations of "
        "APlib the same?");
  }
  if (number == 0) [[unlikely]]
    return false;
  const SharedPlace place{number, bytes.size()};
  try {
    network_.post(process, FrameKind::shared_message, label, std::as_bytes(std::span(&place, 1)));
  } catch (...) {
    arena_->take_back(number);
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

}  // namespace aplib
