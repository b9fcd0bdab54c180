// SPDX-License-Identifier: MIT
#include "comm/link.hpp"

#include <fmt/format.h>

#include <array>

namespace aplib::comm {
namespace {

constexpr std::array<const char*, 5> state_names{"idle", "calling", "gathering", "up", "over"};

const char* name_of(Link::State state) { return state_names[static_cast<std::size_t>(state)]; }

}  // namespace

void LinkReports::tell(Link& link, bool up, std::string&& lost) noexcept {
  const std::lock_guard hold(lock_);
  if (up) {
    link.tells_up_ = true;
  } else if (!link.tells_lost_) {
    link.tells_lost_ = std::move(lost);
  }
  if (std::exchange(link.listed_, true)) return;
  link.next_ = nullptr;
  (last_ != nullptr ? last_->next_ : first_) = &link;
  last_ = &link;
  any_.store(true, std::memory_order_release);  // who sees it finds what was written before: any()
}

LinkReports::Told LinkReports::take() noexcept {
  const std::lock_guard hold(lock_);
  if (first_ == nullptr) return {};
  Link& link = *first_;
  first_ = link.next_;
  if (first_ == nullptr) {
    last_ = nullptr;
    any_.store(false, std::memory_order_relaxed);  // under the lock; else a hint
  }
  link.listed_ = false;
  return {&link, std::exchange(link.tells_up_, false), std::exchange(link.tells_lost_, std::nullopt)};
}

bool Link::set_state(State to) noexcept {
  if (is_edge(state_, to)) {
    state_ = to;
    return true;
  }
  break_off([&] {
    return fmt::format("internal error: its link cannot go from {} to {}; please report this", name_of(state_),
                       name_of(to));
  });
  return false;
}

bool Link::begin_gathering(bool instead_of_ours) noexcept {
  if (broken_ || (state_ != State::idle && !(state_ == State::calling && instead_of_ours))) return false;
  return set_state(State::gathering);
}

bool Link::come_up() noexcept {
  if (state_ == State::over || broken_ || !set_state(State::up)) return false;
  reports_.tell(*this, true, {});
  told();
  return true;
}

}  // namespace aplib::comm
