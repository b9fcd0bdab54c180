// SPDX-License-Identifier: MIT
#include "comm/tcp/poller.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>

#include "aplib/error.hpp"
#include "comm/tcp/link.hpp"

namespace aplib::comm::tcp {
namespace {

bool add(int epoll, int socket, std::uint32_t events, void* data) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = data;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0;
}

}  // namespace

Poller::Poller()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), report_(os::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  // The bells are known by their own addresses, which are no links'.
  if (epoll_ && report_.get() >= 0 && add(epoll_.get(), wake_.descriptor(), EPOLLIN, &wake_) &&
      add(epoll_.get(), report_.get(), EPOLLIN, &report_))
    return;
  throw Error(Errc::exhausted,
              fmt::format("tcp: cannot make the descriptors it waits on: {}; raise the limit of open files (ulimit -n)",
                          std::generic_category().message(errno)));
}

bool Poller::watch(int socket, Link* link, std::uint32_t before, std::uint32_t now) noexcept {
  if (before == now) return true;
  epoll_event event{};
  event.events = now;
  event.data.ptr = link;
  const int operation = now == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  return ::epoll_ctl(epoll_.get(), operation, socket, &event) == 0;
}

std::size_t Poller::ready(std::span<Link*> links) noexcept {
  constexpr std::size_t events_max = 64;
  std::array<epoll_event, events_max> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(std::min(events_max, links.size())), 0);
  std::size_t filled = 0;
  for (int i = 0; i < count; ++i) {
    void* const who = events[static_cast<std::size_t>(i)].data.ptr;
    if (who != &wake_ && who != &report_) links[filled++] = static_cast<Link*>(who);
  }
  return filled;
}

void Poller::wait(std::optional<std::chrono::nanoseconds> timeout) noexcept {
  constexpr int events_max = 16;
  std::array<epoll_event, events_max> events;
  timespec time{};
  if (timeout) {
    const auto count = std::max<std::chrono::nanoseconds::rep>(timeout->count(), 0);
    constexpr long per_second = 1'000'000'000;
    time.tv_sec = count / per_second;
    time.tv_nsec = count % per_second;
  }
  wake_.begin();
  if (::epoll_pwait2(epoll_.get(), events.data(), events_max, timeout ? &time : nullptr, nullptr) < 0 &&
      errno == ENOSYS) {  // Linux before 5.11
    const auto rounded = timeout ? std::chrono::ceil<std::chrono::milliseconds>(*timeout) : std::chrono::milliseconds{};
    constexpr std::chrono::milliseconds longest{1'000'000'000};
    ::epoll_wait(epoll_.get(), events.data(), events_max,
                 timeout ? static_cast<int>(std::min(rounded, longest).count()) : -1);
  }
  wake_.end();
}

void Poller::add_writer(Link* link) noexcept {
  const std::lock_guard hold(lock_);
  link->next_writer_ = nullptr;
  (last_writer_ != nullptr ? last_writer_->next_writer_ : first_writer_) = link;
  last_writer_ = link;
  // release: who sees it finds the link in the list; the lock is the one that counts
  writer_count_.fetch_add(1, std::memory_order_release);
}

Link* Poller::take_writer() noexcept {
  const std::lock_guard hold(lock_);
  Link* const link = first_writer_;
  if (link == nullptr) return nullptr;
  first_writer_ = link->next_writer_;
  if (first_writer_ == nullptr) last_writer_ = nullptr;
  writer_count_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: under the lock, else a hint
  return link;
}

}  // namespace aplib::comm::tcp
