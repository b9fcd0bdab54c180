// SPDX-License-Identifier: MIT
#include "comm/rdma/memory_watch.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <new>
#include <system_error>

namespace aplib::comm {
namespace {

#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
// Write protection is asked for and never switched on: so no fault ever waits for us, and the events come all the same.
constexpr std::uint64_t mode = UFFDIO_REGISTER_MODE_WP;
constexpr std::uint64_t mode_feature = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
#endif

int open_faults() noexcept {
#if defined(SYS_userfaultfd) && defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
  const int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (faults < 0) return -1;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = mode_feature | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
  if (ioctl(faults, UFFDIO_API, &api) == 0) return faults;
  ::close(faults);
#endif
  return -1;
}

}  // namespace

std::unique_ptr<MemoryWatch> MemoryWatch::open() noexcept {
  const int faults = open_faults();
  if (faults < 0) return nullptr;
  const int stop = eventfd(0, EFD_CLOEXEC);
  try {
    if (stop >= 0) return std::unique_ptr<MemoryWatch>(new MemoryWatch(faults, stop));
  } catch (const std::bad_alloc&) {
  } catch (const std::system_error&) {  // No thread.
  }
  ::close(faults);
  if (stop >= 0) ::close(stop);
  return nullptr;
}

MemoryWatch::MemoryWatch(int faults, int stop) : faults_(faults), stop_(stop) {
  // The listener takes no signals of the program.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    listener_ = std::thread([this] { listen(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MemoryWatch::~MemoryWatch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_, &one, sizeof one);
  listener_.join();
  ::close(faults_);
  ::close(stop_);
}

/// munmap() and its like end when their event was read here. It is read under the lock, so that who comes after them finds it noted. Nothing is allocated: freeing could make an event,
/// which nobody would read.
void MemoryWatch::listen() noexcept {
  std::array<pollfd, 2> wishes{pollfd{faults_, POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
  while (true) {
    ::poll(wishes.data(), wishes.size(), -1);
    if (wishes[1].revents != 0) return;
#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
    const std::lock_guard lock(mutex_);
    uffd_msg message{};
    while (::read(faults_, &message, sizeof message) == static_cast<ssize_t>(sizeof message)) {
      Range range{};
      if (message.event == UFFD_EVENT_UNMAP || message.event == UFFD_EVENT_REMOVE) {
        range = {message.arg.remove.start, message.arg.remove.end};
      } else if (message.event == UFFD_EVENT_REMAP) {
        range = {message.arg.remap.from, message.arg.remap.from + message.arg.remap.len};
      } else {
        continue;
      }
      if (gone_.count == Gone::ranges_max) {
        gone_.everything = true;
      } else {
        gone_.ranges[gone_.count++] = range;
      }
    }
#endif
  }
}

bool MemoryWatch::add(Range pages) noexcept {
#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
  uffdio_register wish{};
  wish.range = {pages.begin, pages.end - pages.begin};
  wish.mode = mode;
  return ioctl(faults_, UFFDIO_REGISTER, &wish) == 0;
#else
  static_cast<void>(pages);
  return false;
#endif
}

void MemoryWatch::remove(Range pages) noexcept {
#if defined(UFFD_FEATURE_PAGEFAULT_FLAG_WP)
  uffdio_range range{pages.begin, pages.end - pages.begin};
  ioctl(faults_, UFFDIO_UNREGISTER, &range);
#else
  static_cast<void>(pages);
#endif
}

void MemoryWatch::take(Gone& into) noexcept {
  const std::lock_guard lock(mutex_);
  into.everything = gone_.everything;
  into.count = gone_.count;
  for (std::size_t i = 0; i < gone_.count; ++i) into.ranges[i] = gone_.ranges[i];
  gone_.count = 0;
  gone_.everything = false;
}

}  // namespace aplib::comm
