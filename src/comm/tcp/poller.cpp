// SPDX-License-Identifier: MIT
#include "comm/tcp/poller.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm::tcp {
namespace {

void ring(int bell) noexcept {
  constexpr std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell, &one, sizeof one);  // fails only when it rings already
}

void silence(int bell) noexcept {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t read = ::read(bell, &count, sizeof count);
}

bool add(int epoll, int socket, std::uint32_t events, void* data) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.ptr = data;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) == 0;
}

}  // namespace

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), report_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // The bells are known by their own addresses, which are no links'.
  if (epoll_ >= 0 && report_ >= 0 && add(epoll_, wake_.descriptor(), EPOLLIN, &wake_) &&
      add(epoll_, report_, EPOLLIN, &report_))
    return;
  const std::string reason = std::generic_category().message(errno);
  for (const int descriptor : {epoll_, report_})
    if (descriptor >= 0) ::close(descriptor);
  throw Error(Errc::exhausted,
              fmt::format("tcp: cannot make the descriptors it waits on: {}; raise the limit of open files (ulimit -n)",
                          reason));
}

Poller::~Poller() {
  for (const int descriptor : {epoll_, report_}) ::close(descriptor);
}

void Poller::watch(int socket, Link* link, std::uint32_t before, std::uint32_t now) noexcept {
  if (before == now) return;
  epoll_event event{};
  event.events = now;
  event.data.ptr = link;
  ::epoll_ctl(epoll_, now == 0 ? EPOLL_CTL_DEL : before == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event);
}

std::size_t Poller::ready(std::span<Link*> links) noexcept {
  constexpr std::size_t events_max = 64;
  std::array<epoll_event, events_max> events;
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(std::min(events_max, links.size())), 0);
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
  if (::epoll_pwait2(epoll_, events.data(), events_max, timeout ? &time : nullptr, nullptr) < 0 &&
      errno == ENOSYS) {  // Linux before 5.11
    const auto rounded = timeout ? std::chrono::ceil<std::chrono::milliseconds>(*timeout) : std::chrono::milliseconds{};
    constexpr std::chrono::milliseconds longest{1'000'000'000};
    ::epoll_wait(epoll_, events.data(), events_max,
                 timeout ? static_cast<int>(std::min(rounded, longest).count()) : -1);
  }
  wake_.end();
}

void Poller::report(Event event) {
  const std::lock_guard hold(lock_);
  reports_.push_back(std::move(event));
  reported_.store(true, std::memory_order_release);
  ring(report_);
}

std::vector<Poller::Event> Poller::take_reports() {
  const std::lock_guard hold(lock_);
  silence(report_);
  reported_.store(false, std::memory_order_relaxed);
  return std::exchange(reports_, {});
}

void Poller::add_writer(Link* link) {
  const std::lock_guard hold(lock_);
  writers_.push_back(link);
  writer_count_.store(static_cast<std::uint32_t>(writers_.size()), std::memory_order_release);
}

std::vector<Link*> Poller::take_writers() {
  const std::lock_guard hold(lock_);
  writer_count_.store(0, std::memory_order_relaxed);
  return std::exchange(writers_, {});
}

}  // namespace aplib::comm::tcp
