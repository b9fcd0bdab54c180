// SPDX-License-Identifier: MIT
#include "relay/pumps.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <span>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"

namespace aplib::relay {
namespace {

using Clock = std::chrono::steady_clock;

/// An answer that comes so soon finds the thread awake. Meanwhile it yields its core to whoever can use it.
constexpr std::chrono::microseconds awake_time{30};

bool is_pause(int reason) { return reason == EAGAIN || reason == EWOULDBLOCK || reason == EINTR; }

}  // namespace

Pumps::Pumps(std::function<void(std::uint64_t pair)> ended)
    : ended_(std::move(ended)), epoll_(::epoll_create1(EPOLL_CLOEXEC)), buffer_(buffer_bytes) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!epoll_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
    os::refuse_descriptor("an epoll for pairs");
  thread_ = os::quiet_thread("aprelay-pumps", [this] { run(); });
}

Pumps::~Pumps() {
  stops_.store(true);
  wake_.signal();
  thread_.join();
}

void Pumps::add(std::uint64_t number, os::UniqueFd first, os::UniqueFd second) {
  auto pair = std::make_unique<Pair>();
  pair->number = number;
  pair->ends[0] = {.pair = pair.get(), .other = &pair->ends[1], .socket = std::move(first)};
  pair->ends[1] = {.pair = pair.get(), .other = &pair->ends[0], .socket = std::move(second)};
  {
    const std::lock_guard lock(mutex_);
    to_watch_.push_back(pair.get());
    pairs_.emplace(number, std::move(pair));
  }
  wake_.signal();
}

void Pumps::drop(std::uint64_t pair) {
  {
    const std::lock_guard lock(mutex_);
    to_drop_.insert(pair);
  }
  wake_.signal();
}

void Pumps::run() {
  std::array<epoll_event, 64> events;
  Clock::time_point awake_until{};
  while (!stops_.load()) {
    const bool awake = Clock::now() < awake_until;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), awake ? 0 : -1);
    if (awake && count == 0) ::sched_yield();
    if (count > 0) awake_until = Clock::now() + awake_time;
    bool ordered = false;
    for (int i = 0; i < count; ++i) {
      auto* const end = static_cast<End*>(events[i].data.ptr);
      if (end == nullptr) {
        ordered = true;
      } else if (!end->pair->over) {
        serve(*end, events[i].events);
      }
    }
    if (ordered) take_orders();
    if (!finished_.empty()) remove_finished();
  }
}

/// An end whose connection has broken is served like others: what came before is read first.
void Pumps::serve(End& end, std::uint32_t events) {
  constexpr std::uint32_t broken = EPOLLHUP | EPOLLERR;
  try {
    if ((events & (EPOLLOUT | broken)) != 0) write(end);
    if ((events & (EPOLLIN | broken)) != 0) read(end);
  } catch (const std::bad_alloc&) {
    return finish(*end.pair);
  }
  End& other = *end.other;
  if (end.read_out && other.read_out && end.waiting.empty() && other.waiting.empty()) return finish(*end.pair);
  watch(end);
  watch(other);
}

void Pumps::read(End& from) {
  End& to = *from.other;
  if (!to.waiting.empty() || from.read_out) return;
  const ssize_t got = ::recv(from.socket.get(), buffer_.data(), buffer_.size(), 0);
  if (got < 0 && is_pause(errno)) return;
  if (got <= 0) {
    from.read_out = true;
    ::shutdown(to.socket.get(), SHUT_WR);
    return;
  }
  bytes_.fetch_add(static_cast<std::uint64_t>(got), std::memory_order_relaxed);  // relaxed: a count
  if (to.deaf) return;
  ssize_t sent = ::send(to.socket.get(), buffer_.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
  if (sent == got) return;
  if (sent < 0 && !is_pause(errno)) {
    to.deaf = true;
    return;
  }
  to.waiting.assign(buffer_.begin() + std::max<ssize_t>(sent, 0), buffer_.begin() + got);
  to.written = 0;
}

void Pumps::write(End& to) {
  if (to.waiting.empty()) return;
  const auto rest = std::span<const std::byte>(to.waiting).subspan(to.written);
  const ssize_t sent = ::send(to.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0 && is_pause(errno)) return;
  to.deaf = sent < 0;
  to.written += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
  if (to.deaf || to.written == to.waiting.size()) to.waiting = {};
}

/// What the system shall tell of an end: that it has something, while the other one takes it; that it takes something
/// again, while something waits for it. Of one that is broken it would tell again and again, so what is not asked for
/// is not in the epoll.
void Pumps::watch(End& end) {
  const std::uint32_t wanted =
      (!end.read_out && end.other->waiting.empty() ? EPOLLIN : 0U) | (end.waiting.empty() ? 0U : EPOLLOUT);
  if (wanted == end.watched) return;
  const int what = wanted == 0 ? EPOLL_CTL_DEL : end.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  end.watched = wanted;
  epoll_event event{.events = wanted, .data = {.ptr = &end}};
  if (::epoll_ctl(epoll_.get(), what, end.socket.get(), &event) != 0) finish(*end.pair);
}

void Pumps::finish(Pair& pair) {
  if (std::exchange(pair.over, true)) return;
  finished_.push_back(&pair);
}

void Pumps::take_orders() {
  wake_.clear();
  std::set<std::uint64_t> those;
  {
    const std::lock_guard lock(mutex_);
    those.swap(to_drop_);
    for (Pair* const pair : std::exchange(to_watch_, {}))
      for (End& end : pair->ends) watch(end);
    for (const std::uint64_t number : those) {
      if (const auto found = pairs_.find(number); found != pairs_.end()) finish(*found->second);
    }
  }
}

/// Behind the events of one wait, which may name them.
void Pumps::remove_finished() {
  for (Pair* const pair : std::exchange(finished_, {})) {
    const std::uint64_t number = pair->number;
    {
      const std::lock_guard lock(mutex_);
      pairs_.erase(number);
    }
    ended_(number);
  }
}

}  // namespace aplib::relay
