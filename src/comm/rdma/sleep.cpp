// SPDX-License-Identifier: MIT
#include "comm/rdma/sleep.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "aplib/error.hpp"

namespace aplib::comm {

Sleep::~Sleep() {
  if (all_ >= 0) ::close(all_);
}

void Sleep::open(std::span<const int> descriptors) {
  const auto check = [](int result) {
    if (result < 0) throw Error(Errc::failed, fmt::format("rdma: no descriptor to sleep on: {}", std::strerror(errno)));
    return result;
  };
  all_ = check(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  check(epoll_ctl(all_, EPOLL_CTL_ADD, bell_.descriptor(), &event));
  for (const int descriptor : descriptors) check(epoll_ctl(all_, EPOLL_CTL_ADD, descriptor, &event));
}

void Sleep::sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept {
  pollfd wish{all_, POLLIN, 0};
  timespec time{};
  if (timeout) {
    const auto left = std::max<std::int64_t>(timeout->count(), 0);
    time.tv_sec = left / 1'000'000'000;
    time.tv_nsec = left % 1'000'000'000;
  }
  ::ppoll(&wish, 1, timeout ? &time : nullptr, nullptr);
}

}  // namespace aplib::comm
