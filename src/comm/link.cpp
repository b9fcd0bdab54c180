// SPDX-License-Identifier: MIT
#include "comm/link.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

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

Link::Answer Link::take_call(Peer self) noexcept {
  if (broken_ || (state_ != State::idle && state_ != State::calling)) return Answer::unexpected;
  if (state_ == State::calling && self < peer_) return Answer::not_now;
  return set_state(State::gathering) ? Answer::taken : Answer::unexpected;
}

bool Link::come_up() noexcept {
  if (state_ == State::over || broken_ || !set_state(State::up)) return false;
  reports_.tell(*this, true, {});
  told();
  return true;
}

std::unique_ptr<std::byte[]> Link::copy_of(std::span<const std::byte> body) {
  if (body.empty()) return nullptr;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(body.size());
  std::memcpy(copy.get(), body.data(), body.size());
  return copy;
}

void Link::keep_early(const Label& label, std::unique_ptr<std::byte[]> body, std::size_t bytes) {
  early_.push_back({label, bytes, std::move(body)});
  early_bytes_ += early_.back().weight();
}

std::optional<Link::EarlyFrame> Link::take_early() noexcept {
  if (early_.empty()) return std::nullopt;
  std::optional<EarlyFrame> first(std::move(early_.front()));
  early_.pop_front();
  early_bytes_ -= first->weight();
  return first;
}

void Link::drop_early() noexcept {
  early_.clear();
  early_bytes_ = 0;
}

}  // namespace aplib::comm
