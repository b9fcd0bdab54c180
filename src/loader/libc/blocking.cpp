// SPDX-License-Identifier: MIT
// Poll, recv, accept, connect, epoll_wait, the opening of a FIFO: waits while other cells run.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

extern "C" {  // libc's, declared for fortified programs alone; too small a room ends the process
int __poll_chk(pollfd*, nfds_t, int, std::size_t);
int __ppoll_chk(pollfd*, nfds_t, const timespec*, const sigset_t*, std::size_t);
ssize_t __recv_chk(int, void*, std::size_t, std::size_t, int);
ssize_t __recvfrom_chk(int, void*, std::size_t, std::size_t, int, sockaddr*, socklen_t*);
}

namespace aplib::loader::libc {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

}  // namespace

std::optional<WaitClock::time_point> deadline_in(const timespec* time) noexcept {
  if (time == nullptr) return std::nullopt;
  return WaitClock::now() + to_duration(*time);
}

WaitClock::time_point deadline_at(clockid_t clock, const timespec& time) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return WaitClock::now() + (to_duration(time) - to_duration(now));
}

void let_others_run(Instance& instance, nanoseconds pause) noexcept {
  const os::CancellationDisabled uncancelled;
  const ErrnoKept kept;
  bool stopped = false;
  try {
    if (pause.count() > 0) {
      instance.services().sleep(pause);
    } else {
      instance.services().yield();
    }
  } catch (...) {
    stopped = true;
  }
  if (stopped) instance.leave(0, false);
}

Instance* sharing(const void* caller) noexcept {
  Instance* const instance = calling(caller);
  return instance != nullptr ? sharing_flow(*instance) : nullptr;
}

Instance* sharing_flow(Instance& instance) noexcept {
  return instance.services().shares_thread() || next_timer(instance) ? &instance : nullptr;
}

namespace {

/// Of a thread that the program has made, which another one may interrupt.
Waited sleep_alone(nanoseconds duration) {
  const ErrnoKept kept;
  const unsigned long delivered = handlers_run(EndedBy::all);
  constexpr long second = 1'000'000'000;
  timespec rest{duration.count() / second, duration.count() % second};
  while (::nanosleep(&rest, &rest) != 0) {
    if (handlers_run(EndedBy::all) != delivered) return Waited::interrupted;
  }
  return Waited::done;
}

}  // namespace

Waited sleep_in_turn(Instance& instance, nanoseconds duration) {
  if (on_program_thread() && duration.count() > 0 && !next_timer(instance)) return sleep_alone(duration);
  const ErrnoKept kept;
  const unsigned long delivered = handlers_run(EndedBy::all);
  const auto is_interrupted = [&] {
    deliver_pending_signals(instance);
    return handlers_run(EndedBy::all) != delivered;
  };
  constexpr nanoseconds nap_beside_others = milliseconds(20);
  const bool has_others = may_be_signalled(instance);
  const bool takes_signals = has_others || has_timers(instance);
  const WaitClock::time_point end = takes_signals ? WaitClock::now() + duration : WaitClock::time_point{};
  while (true) {
    const auto timer = next_timer(instance);
    // A timer that is not armed any more has left its signal.
    if (takes_signals && is_interrupted()) return Waited::interrupted;
    nanoseconds nap = has_others ? std::min(duration, nap_beside_others) : duration;
    if (timer && *timer < end) nap = std::max<nanoseconds>(*timer - WaitClock::now(), microseconds(1));
    if (nap.count() > 0) {
      instance.services().sleep(nap);
    } else {
      instance.services().yield();
    }
    if (!takes_signals) return Waited::done;
    expire_timers(instance);
    if (is_interrupted()) return Waited::interrupted;
    duration = end - WaitClock::now();
    if (duration.count() <= 0) return Waited::done;
  }
}

void Patience::pass(std::optional<WaitClock::time_point> deadline) {
  constexpr unsigned looks_at_once = 16;
  constexpr nanoseconds shortest = microseconds(20);
  constexpr nanoseconds longest = milliseconds(5);
  constexpr int share = 8;
  if (looks_ == 0) since_ = WaitClock::now();
  nanoseconds pause{0};
  if (++looks_ > looks_at_once) {
    const WaitClock::time_point now = WaitClock::now();
    pause = std::clamp<nanoseconds>((now - since_) / share, shortest, longest);
    if (deadline) pause = std::clamp<nanoseconds>(*deadline - now, nanoseconds(0), pause);
  }
  let_others_run(instance_, pause);
  expire_timers(instance_);
  deliver_pending_signals(instance_);
}

namespace {

bool is_ready(int descriptor, short events) noexcept {
  const os::CancellationDisabled uncancelled;
  pollfd one{descriptor, events, 0};
  return os::poll_now(&one, 1) != 0;
}

bool never_blocks(int descriptor) noexcept {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags < 0 || (flags & O_NONBLOCK) != 0;
}

/// When a call on a socket gives up.
std::optional<WaitClock::time_point> deadline_of(int descriptor, short events) noexcept {
  const ErrnoKept kept;
  timeval limit{};
  socklen_t bytes = sizeof limit;
  const int option = (events & POLLIN) != 0 ? SO_RCVTIMEO : SO_SNDTIMEO;
  const bool is_limited =
      ::getsockopt(descriptor, SOL_SOCKET, option, &limit, &bytes) == 0 && (limit.tv_sec != 0 || limit.tv_usec != 0);
  if (!is_limited) return std::nullopt;
  return WaitClock::now() + seconds(limit.tv_sec) + microseconds(limit.tv_usec);
}

}  // namespace

bool await_descriptor(Instance& instance, int descriptor, short events) {
  if (is_ready(descriptor, events) || never_blocks(descriptor)) return true;
  const auto deadline = deadline_of(descriptor, events);  // the call itself says that it is over
  const EndedBy by = deadline ? EndedBy::all : EndedBy::without_restart;
  const Waited how = wait_in_turn(instance, deadline, by, [&] { return is_ready(descriptor, events); });
  if (how == Waited::interrupted) failed(EINTR);
  return how != Waited::interrupted;
}

namespace {

/// The same where the descriptor may make it wait, as files do not.
Instance* sharing_for(const void* caller, int descriptor) noexcept {
  Instance* const instance = sharing(caller);
  return instance != nullptr && may_wait(descriptor) ? instance : nullptr;
}

}  // namespace

bool await_stream(const void* caller, int descriptor, short events) {
  Instance* const instance = sharing_for(caller, descriptor);
  return instance == nullptr || await_descriptor(*instance, descriptor, events);
}

namespace {

/// `look`, an int(): as poll() with no time. Its result, when that is not 0, the time is over, or a handler has run.
template <class Look>
int poll_in_turn(Instance& instance, std::optional<WaitClock::time_point> deadline, Look look) {
  int found = 0;
  const Waited how = wait_in_turn(instance, deadline, EndedBy::all, [&] { return (found = look()) != 0; });
  return how == Waited::interrupted ? failed(EINTR) : found;
}

/// A look without time: a loop of them waits for what others do.
template <class Look>
int look_once(const void* caller, Look look) {
  const int found = look();
  Instance* const instance = found == 0 ? sharing(caller) : nullptr;
  TaskContext* const context = here();
  if (instance == nullptr || context == nullptr || !context->clock_reads.spin()) return found;
  let_others_run(*instance, nanoseconds(0));
  return look();
}

std::optional<WaitClock::time_point> deadline_after(int milliseconds_left) noexcept {
  if (milliseconds_left < 0) return std::nullopt;
  return WaitClock::now() + milliseconds(milliseconds_left);
}

// Without descriptors these are sleeps in other words.

template <class Duration>
int sleep_whole(Instance& instance, Duration duration) {
  return sleep_in_turn(instance, duration) == Waited::interrupted ? failed(EINTR) : 0;
}

/// What poll() is asked, by the kernel's numbers where the program has redirected 0, 1 or 2.
class Polled {
 public:
  Polled(const void* caller, pollfd* asked, nfds_t count) : asked_(asked), all_(asked) {
    const auto is_elsewhere = [caller](const pollfd& each) { return redirected(caller, each.fd) != each.fd; };
    if (std::none_of(asked, asked + count, is_elsewhere)) return;
    own_.assign(asked, asked + count);
    for (pollfd& each : own_) each.fd = redirected(caller, each.fd);
    all_ = own_.data();
  }
  ~Polled() {
    for (std::size_t i = 0; i < own_.size(); ++i) asked_[i].revents = own_[i].revents;
  }
  Polled(const Polled&) = delete;
  Polled& operator=(const Polled&) = delete;
  [[nodiscard]] pollfd* all() noexcept { return all_; }

 private:
  pollfd* asked_;
  pollfd* all_;
  std::vector<pollfd> own_;
};

int poll_for(const void* caller, pollfd* asked, nfds_t count, int timeout) {
  if (Instance* const instance = count == 0 && timeout >= 0 ? calling(caller) : nullptr)
    return sleep_whole(*instance, milliseconds(timeout));
  Polled polled(caller, asked, count);
  pollfd* const descriptors = polled.all();
  const auto look = [=] { return os::poll_now(descriptors, count); };
  if (timeout == 0) return look_once(caller, look);
  Instance* const instance = sharing(caller);
  if (instance == nullptr) return ::poll(descriptors, count, timeout);
  return poll_in_turn(*instance, deadline_after(timeout), look);
}

int bound_poll(pollfd* descriptors, nfds_t count, int timeout) {
  return poll_for(__builtin_return_address(0), descriptors, count, timeout);
}

int bound_poll_chk(pollfd* descriptors, nfds_t count, int timeout, std::size_t room) {
  if (room / sizeof *descriptors < count) return __poll_chk(descriptors, count, timeout, room);
  return poll_for(__builtin_return_address(0), descriptors, count, timeout);
}

/// Bound functions that replace the flow's mask while they wait do so here.
class MaskWhile {
 public:
  MaskWhile(Instance& instance, const sigset_t* mask) : instance_(instance), changes_(mask != nullptr) {
    if (changes_) change_signal_mask(instance, SIG_SETMASK, mask, &before_);
  }
  ~MaskWhile() {
    if (changes_) change_signal_mask(instance_, SIG_SETMASK, &before_, nullptr);
  }
  MaskWhile(const MaskWhile&) = delete;
  MaskWhile& operator=(const MaskWhile&) = delete;

 private:
  Instance& instance_;
  const bool changes_;
  sigset_t before_{};
};

/// Who waits where the flow's mask is to be replaced: the running instance even where it need not share its thread, for
/// the mask of the kernel's is another one.
Instance* waiting_with(const void* caller, const sigset_t* mask) noexcept {
  return mask != nullptr ? calling(caller) : sharing(caller);
}

/// poll_in_turn() with this mask. A signal that comes with it ends the wait, too.
template <class Look>
int poll_masked(Instance& instance, const sigset_t* mask, std::optional<WaitClock::time_point> deadline, Look look) {
  const unsigned long before = handlers_run(EndedBy::all);
  const MaskWhile masked(instance, mask);
  if (handlers_run(EndedBy::all) == before) return poll_in_turn(instance, deadline, look);
  const int found = look();
  return found != 0 ? found : failed(EINTR);
}

int sleep_masked(Instance& instance, const sigset_t* mask, const timespec& time) {
  if (!is_time(time)) return failed(EINVAL);
  const unsigned long before = handlers_run(EndedBy::all);
  int result = 0;
  {
    const MaskWhile masked(instance, mask);
    result = handlers_run(EndedBy::all) != before ? -1 : sleep_whole(instance, to_duration(time));
  }
  return result == 0 ? 0 : failed(EINTR);  // behind the handlers that the mask has held back
}

int ppoll_for(const void* caller, pollfd* asked, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (Instance* const sleeper = count == 0 && timeout != nullptr ? calling(caller) : nullptr)
    return sleep_masked(*sleeper, mask, *timeout);
  Polled polled(caller, asked, count);
  pollfd* const descriptors = polled.all();
  Instance* const instance = waiting_with(caller, mask);
  if (instance == nullptr) return ::ppoll(descriptors, count, timeout, mask);
  if (timeout != nullptr && !is_time(*timeout)) return failed(EINVAL);
  return poll_masked(*instance, mask, deadline_in(timeout), [=] { return os::poll_now(descriptors, count); });
}

int bound_ppoll(pollfd* descriptors, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  return ppoll_for(__builtin_return_address(0), descriptors, count, timeout, mask);
}

int bound_ppoll_chk(pollfd* descriptors, nfds_t count, const timespec* timeout, const sigset_t* mask,
                    std::size_t room) {
  if (room / sizeof *descriptors < count) return __ppoll_chk(descriptors, count, timeout, mask, room);
  return ppoll_for(__builtin_return_address(0), descriptors, count, timeout, mask);
}

constexpr timespec at_once{};

/// What select() is asked, as the caller has given it, for every look changes it; by the kernel's numbers where the
/// program has redirected 0, 1 or 2.
class Sets {
 public:
  Sets(const void* caller, int count, fd_set* read, fd_set* write, fd_set* except)
      : kernel_count_(count), places_{read, write, except}, bytes_(bytes_of(count)) {
    for (int number = 0; is_standard(number) && number < count; ++number) {
      if (std::ranges::none_of(places_, [=](fd_set* each) { return each != nullptr && FD_ISSET(number, each); }))
        continue;
      const int kernel = redirected(caller, number);
      kernel_[static_cast<std::size_t>(number)] = kernel;
      is_elsewhere_ = is_elsewhere_ || kernel != number;
      is_closed_ = is_closed_ || kernel == no_descriptor;
      if (!is_closed_) kernel_count_ = std::max(kernel_count_, kernel + 1);
    }
  }
  [[nodiscard]] bool is_elsewhere() const noexcept { return is_elsewhere_; }
  int look(const timespec* timeout) {
    if (is_closed_) return failed(EBADF);
    if (asked_.empty()) note_asked();
    now_ = asked_;
    std::array<fd_set*, 3> sets{};
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (places_[i] != nullptr) sets[i] = reinterpret_cast<fd_set*>(now_.data() + i * bytes_of(kernel_count_));
    }
    int found = 0;
    do {  // as os::poll_now()
      std::ranges::copy(asked_, now_.begin());
      found = ::pselect(kernel_count_, sets[0], sets[1], sets[2], timeout, nullptr);
    } while (found < 0 && errno_now() == EINTR && timeout == &at_once);
    for (std::size_t i = 0; i < sets.size() && found >= 0; ++i) {
      if (places_[i] == nullptr) continue;
      char* const bits = reinterpret_cast<char*>(sets[i]);
      for (int number = 0; is_standard(number); ++number) move(bits, kernel_of(number), number);
      std::copy_n(bits, bytes_, reinterpret_cast<char*>(places_[i]));
    }
    return found;
  }

 private:
  static std::size_t bytes_of(int count) noexcept {  // programs with many descriptors give longer ones
    constexpr std::size_t bits = 8 * sizeof(fd_mask);
    return count > 0 ? (static_cast<std::size_t>(count) + bits - 1) / bits * sizeof(fd_mask) : 0;
  }
  [[nodiscard]] int kernel_of(int number) const noexcept { return kernel_[static_cast<std::size_t>(number)]; }
  static void move(char* bits, int from, int to) noexcept {
    constexpr int bits_of_byte = 8;
    const auto bit = [](int number) { return static_cast<char>(1 << number % bits_of_byte); };
    if (from == to || (bits[from / bits_of_byte] & bit(from)) == 0) return;
    bits[from / bits_of_byte] = static_cast<char>(bits[from / bits_of_byte] & ~bit(from));
    bits[to / bits_of_byte] = static_cast<char>(bits[to / bits_of_byte] | bit(to));
  }
  void note_asked() {
    const std::size_t each_bytes = bytes_of(kernel_count_);
    asked_.resize(places_.size() * each_bytes + 1);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i] == nullptr) continue;
      char* const bits = asked_.data() + i * each_bytes;
      std::copy_n(reinterpret_cast<const char*>(places_[i]), bytes_, bits);
      for (int number = 0; is_standard(number); ++number) move(bits, number, kernel_of(number));
    }
  }

  int kernel_count_;
  const std::array<fd_set*, 3> places_;
  const std::size_t bytes_;
  std::array<int, 3> kernel_{0, 1, 2};
  bool is_elsewhere_ = false;
  bool is_closed_ = false;
  std::vector<char> asked_;
  std::vector<char> now_;
};

bool has_none(int count, const fd_set* read, const fd_set* write, const fd_set* except) noexcept {
  return count == 0 || (read == nullptr && write == nullptr && except == nullptr);
}

int bound_select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  const void* const caller = __builtin_return_address(0);
  const bool is_limit = timeout != nullptr && timeout->tv_sec >= 0 && timeout->tv_usec >= 0;
  if (Instance* const instance = is_limit && has_none(count, read, write, except) ? calling(caller) : nullptr) {
    const int result = sleep_whole(*instance, to_duration({timeout->tv_sec, 0}) + microseconds(timeout->tv_usec));
    if (result == 0) *timeout = timeval{};  // as Linux does
    return result;
  }
  Sets sets(caller, count, read, write, except);
  if (timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_usec == 0)
    return look_once(caller, [&] { return sets.look(&at_once); });
  Instance* const instance = sharing(caller);
  if ((instance == nullptr && !sets.is_elsewhere()) || (timeout != nullptr && !is_limit))
    return ::select(count, read, write, except, timeout);
  std::optional<WaitClock::time_point> deadline;
  timespec limit{};
  if (timeout != nullptr) {
    limit = {timeout->tv_sec + timeout->tv_usec / 1'000'000, timeout->tv_usec % 1'000'000 * 1000};
    deadline = deadline_in(&limit);
  }
  const int found = instance != nullptr ? poll_in_turn(*instance, deadline, [&] { return sets.look(&at_once); })
                                        : sets.look(deadline ? &limit : nullptr);
  if (deadline) {  // as Linux does
    const auto left = std::max(*deadline - WaitClock::now(), WaitClock::duration(0));
    *timeout = {std::chrono::duration_cast<seconds>(left).count(),
                std::chrono::duration_cast<microseconds>(left % seconds(1)).count()};
  }
  return found;
}

int bound_pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
                  const sigset_t* mask) {
  const void* const caller = __builtin_return_address(0);
  const bool sleeps = timeout != nullptr && has_none(count, read, write, except);
  if (Instance* const sleeper = sleeps ? calling(caller) : nullptr) return sleep_masked(*sleeper, mask, *timeout);
  Instance* const instance = waiting_with(caller, mask);
  Sets sets(caller, count, read, write, except);
  if (instance == nullptr) {
    return sets.is_elsewhere() ? sets.look(timeout) : ::pselect(count, read, write, except, timeout, mask);
  }
  if (timeout != nullptr && !is_time(*timeout)) return failed(EINVAL);
  return poll_masked(*instance, mask, deadline_in(timeout), [&] { return sets.look(&at_once); });
}

int bound_epoll_wait(int descriptor, epoll_event* events, int room, int timeout) {
  const void* const caller = __builtin_return_address(0);
  descriptor = redirected(caller, descriptor);
  const auto look = [=] { return ::epoll_wait(descriptor, events, room, 0); };
  if (timeout == 0) return look_once(caller, look);
  Instance* const instance = sharing(caller);
  if (instance == nullptr) return ::epoll_wait(descriptor, events, room, timeout);
  return poll_in_turn(*instance, deadline_after(timeout), look);
}

int bound_epoll_pwait2(int descriptor, epoll_event* events, int room, const timespec* timeout, const sigset_t* mask) {
  descriptor = redirected(__builtin_return_address(0), descriptor);
  Instance* const instance = waiting_with(__builtin_return_address(0), mask);
  if (timeout != nullptr && !is_time(*timeout)) return failed(EINVAL);
  if (instance == nullptr) return ::epoll_pwait2(descriptor, events, room, timeout, mask);
  return poll_masked(*instance, mask, deadline_in(timeout), [=] { return ::epoll_wait(descriptor, events, room, 0); });
}

int bound_epoll_pwait(int descriptor, epoll_event* events, int room, int timeout, const sigset_t* mask) {
  descriptor = redirected(__builtin_return_address(0), descriptor);
  Instance* const instance = waiting_with(__builtin_return_address(0), mask);
  if (instance == nullptr) return ::epoll_pwait(descriptor, events, room, timeout, mask);
  return poll_masked(*instance, mask, deadline_after(timeout),
                     [=] { return ::epoll_wait(descriptor, events, room, 0); });
}

// --- sockets

/// Accept and its like, which open a descriptor.
template <auto native, class Type = decltype(plain(native))>
struct Accept;
template <auto native, class... Args>
struct Accept<native, Function<int, int, Args...>> {
  static int call(int descriptor, Args... args) {
    const void* const caller = __builtin_return_address(0);
    descriptor = redirected(caller, descriptor);
    Instance* const instance = sharing(caller);
    if (instance != nullptr && !await_descriptor(*instance, descriptor, POLLIN)) return -1;
    return note_lowest(calling(caller), native(descriptor, args...));
  }
};

bool waits(int flags) noexcept { return (flags & MSG_DONTWAIT) == 0; }

/// Calls visit(one, bytes): each descriptor in what comes with a message, which lies there unaligned.
template <class Visit>
void each_passed(const msghdr& message, const Visit& visit) {
  auto& given = const_cast<msghdr&>(message);
  const auto* const end = static_cast<const unsigned char*>(message.msg_control) + message.msg_controllen;
  for (cmsghdr* part = CMSG_FIRSTHDR(&given); part != nullptr; part = CMSG_NXTHDR(&given, part)) {
    constexpr int scm_pidfd = 4;
    if (part->cmsg_level != SOL_SOCKET || (part->cmsg_type != SCM_RIGHTS && part->cmsg_type != scm_pidfd)) continue;
    // A length beyond the buffer is the kernel's to refuse.
    const auto room = static_cast<std::size_t>(end - reinterpret_cast<const unsigned char*>(part));
    const std::size_t bytes = std::min<std::size_t>(part->cmsg_len, room);
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= bytes; at += sizeof(int)) {
      auto* const place = reinterpret_cast<unsigned char*>(part) + at;
      int descriptor = 0;
      std::memcpy(&descriptor, place, sizeof descriptor);
      visit(descriptor, place);
    }
  }
}

/// A message with the kernel's numbers of the descriptors that go with it.
class Passed {
 public:
  Passed(const void* caller, const msghdr& message) : message_(&message) {
    if (message.msg_controllen == 0) return;
    bool is_elsewhere = false;
    each_passed(message, [&](int one, const void*) { is_elsewhere = is_elsewhere || redirected(caller, one) != one; });
    if (!is_elsewhere) return;
    const auto* const bytes = static_cast<const char*>(message.msg_control);
    control_.assign(bytes, bytes + message.msg_controllen);
    own_ = message;
    own_.msg_control = control_.data();
    message_ = &own_;
    each_passed(own_, [caller](int one, void* place) {
      const int kernel = redirected(caller, one);
      std::memcpy(place, &kernel, sizeof kernel);
    });
  }
  Passed(const Passed&) = delete;
  Passed& operator=(const Passed&) = delete;
  [[nodiscard]] const msghdr& get() const noexcept { return *message_; }

 private:
  const msghdr* message_;
  msghdr own_;
  std::vector<char> control_;
};

/// The descriptors that came with a message get the program's numbers.
void note_received(const void* caller, const msghdr& message) {
  if (message.msg_controllen == 0) return;
  Instance* const instance = calling(caller);
  if (instance == nullptr) return;
  each_passed(message, [instance](int kernel, void* place) {
    const int number = note_lowest(instance, kernel);
    std::memcpy(place, &number, sizeof number);
  });
}

/// Waits for input as `flags` say; false: errno is EINTR. `descriptor` becomes the kernel's number.
bool await_message(const void* caller, int& descriptor, int flags) {
  descriptor = redirected(caller, descriptor);
  Instance* const instance = waits(flags) ? sharing(caller) : nullptr;
  return instance == nullptr || await_descriptor(*instance, descriptor, POLLIN);
}

ssize_t bound_recv(int descriptor, void* bytes, std::size_t count, int flags) {
  return await_message(__builtin_return_address(0), descriptor, flags) ? ::recv(descriptor, bytes, count, flags) : -1;
}

ssize_t bound_recv_chk(int descriptor, void* bytes, std::size_t count, std::size_t room, int flags) {
  if (count <= room && !await_message(__builtin_return_address(0), descriptor, flags)) return -1;
  return __recv_chk(descriptor, bytes, count, room, flags);
}

ssize_t bound_recvfrom(int descriptor, void* bytes, std::size_t count, int flags, sockaddr* from, socklen_t* length) {
  if (!await_message(__builtin_return_address(0), descriptor, flags)) return -1;
  return ::recvfrom(descriptor, bytes, count, flags, from, length);
}

ssize_t bound_recvfrom_chk(int descriptor, void* bytes, std::size_t count, std::size_t room, int flags, sockaddr* from,
                           socklen_t* length) {
  if (count <= room && !await_message(__builtin_return_address(0), descriptor, flags)) return -1;
  return __recvfrom_chk(descriptor, bytes, count, room, flags, from, length);
}

ssize_t bound_recvmsg(int descriptor, msghdr* message, int flags) {
  const void* const caller = __builtin_return_address(0);
  if (!await_message(caller, descriptor, flags)) return -1;
  const ssize_t bytes = ::recvmsg(descriptor, message, flags);
  if (bytes >= 0) note_received(caller, *message);
  return bytes;
}

/// Of a stream: part by part, for the rest may need a reader that this thread carries.
template <class Send>
ssize_t send_in_turn(Instance& instance, int descriptor, const void* bytes, std::size_t count, Send send) {
  std::size_t done = 0;
  while (true) {
    if (!await_descriptor(instance, descriptor, POLLOUT)) break;
    const ssize_t sent = send(static_cast<const char*>(bytes) + done, count - done);
    if (sent < 0 && errno_now() == EAGAIN && !never_blocks(descriptor)) {
      let_others_run(instance, microseconds(20));
      continue;
    }
    if (sent < 0) break;
    done += static_cast<std::size_t>(sent);
    if (done >= count || never_blocks(descriptor)) return static_cast<ssize_t>(done);
  }
  return done != 0 ? static_cast<ssize_t>(done) : -1;
}

}  // namespace

namespace {

bool is_socket(int descriptor) noexcept {
  const ErrnoKept kept;
  int type = 0;
  socklen_t bytes = sizeof type;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0;
}

/// The pieces of a message that has been sent up to `done`.
std::vector<iovec> rest_of(const msghdr& message, std::size_t done) {
  std::vector<iovec> rest;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const iovec& piece = message.msg_iov[i];
    const std::size_t gone = std::min(done, piece.iov_len);
    done -= gone;
    if (gone < piece.iov_len) rest.push_back({static_cast<char*>(piece.iov_base) + gone, piece.iov_len - gone});
  }
  return rest;
}

std::size_t bytes_of(const iovec* pieces, std::size_t count) noexcept {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

/// sendmsg() that would block in the middle of a long message of a stream.
ssize_t send_message_in_turn(Instance& instance, int descriptor, const msghdr& message, int flags) {
  return send_in_turn(instance, descriptor, nullptr, bytes_of(message.msg_iov, message.msg_iovlen),
                      [&, done = std::size_t{0}](const char*, std::size_t) mutable {
                        std::vector<iovec> pieces = rest_of(message, done);
                        msghdr rest = message;
                        rest.msg_iov = pieces.data();
                        rest.msg_iovlen = pieces.size();
                        if (done != 0) rest.msg_control = nullptr;
                        if (done != 0) rest.msg_controllen = 0;
                        const ssize_t sent = ::sendmsg(descriptor, &rest, flags | MSG_DONTWAIT);
                        if (sent > 0) done += static_cast<std::size_t>(sent);
                        return sent;
                      });
}

}  // namespace

ssize_t write_in_turn(const void* caller, int descriptor, const void* bytes, std::size_t count) {
  constexpr std::size_t taken_at_once = PIPE_BUF;  // by a pipe that is ready
  Instance* const instance = sharing_for(caller, descriptor);
  if (instance == nullptr || never_blocks(descriptor)) return ::write(descriptor, bytes, count);
  if (is_socket(descriptor)) {  // a packet stays whole
    return send_in_turn(*instance, descriptor, bytes, count, [=](const char* rest, std::size_t length) {
      return ::send(descriptor, rest, length, MSG_DONTWAIT);
    });
  }
  return send_in_turn(*instance, descriptor, bytes, count, [=](const char* rest, std::size_t length) {
    return ::write(descriptor, rest, std::min(length, taken_at_once));
  });
}

ssize_t writev_in_turn(const void* caller, int descriptor, const iovec* pieces, int count) {
  Instance* const instance = count > 0 ? sharing_for(caller, descriptor) : nullptr;
  if (instance == nullptr || never_blocks(descriptor)) return ::writev(descriptor, pieces, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = static_cast<std::size_t>(count);
  if (is_socket(descriptor)) return send_message_in_turn(*instance, descriptor, message, 0);
  std::string whole;
  for (int i = 0; i < count; ++i) whole.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  return write_in_turn(caller, descriptor, whole.data(), whole.size());
}

namespace {

ssize_t send_to(const void* caller, int descriptor, const void* bytes, std::size_t count, int flags,
                const sockaddr* address, socklen_t length) {
  descriptor = redirected(caller, descriptor);
  Instance* const instance = waits(flags) ? sharing(caller) : nullptr;
  if (instance == nullptr) return ::sendto(descriptor, bytes, count, flags, address, length);
  return send_in_turn(*instance, descriptor, bytes, count, [=](const char* rest, std::size_t left) {
    return ::sendto(descriptor, rest, left, flags | MSG_DONTWAIT, address, length);
  });
}

ssize_t bound_send(int descriptor, const void* bytes, std::size_t count, int flags) {
  return send_to(__builtin_return_address(0), descriptor, bytes, count, flags, nullptr, 0);
}

ssize_t bound_sendto(int descriptor, const void* bytes, std::size_t count, int flags, const sockaddr* address,
                     socklen_t length) {
  return send_to(__builtin_return_address(0), descriptor, bytes, count, flags, address, length);
}

ssize_t bound_sendmsg(int descriptor, const msghdr* message, int flags) {
  const void* const caller = __builtin_return_address(0);
  descriptor = redirected(caller, descriptor);
  if (message == nullptr) return failed(EFAULT);
  const Passed passed(caller, *message);
  Instance* const instance = waits(flags) ? sharing(caller) : nullptr;
  if (instance == nullptr) return ::sendmsg(descriptor, &passed.get(), flags);
  return send_message_in_turn(*instance, descriptor, passed.get(), flags);
}

/// The first message is waited for; what follows is what is there.
int receive_in_turn(Instance& instance, int descriptor, mmsghdr* messages, unsigned room, int flags,
                    const timespec* timeout) {
  const auto deadline = deadline_in(timeout);
  unsigned got = 0;
  while (got < room) {
    if (got == 0 || (flags & MSG_WAITFORONE) == 0) {
      if (!await_descriptor(instance, descriptor, POLLIN)) break;
    }
    const int some =
        ::recvmmsg(descriptor, messages + got, room - got, (flags & ~MSG_WAITFORONE) | MSG_DONTWAIT, nullptr);
    if (some <= 0) break;
    got += static_cast<unsigned>(some);
    if ((flags & MSG_WAITFORONE) != 0 || (deadline && WaitClock::now() >= *deadline)) break;
  }
  return got != 0 ? static_cast<int>(got) : -1;
}

int bound_recvmmsg(int descriptor, mmsghdr* messages, unsigned room, int flags, timespec* timeout) {
  const void* const caller = __builtin_return_address(0);
  descriptor = redirected(caller, descriptor);
  Instance* const instance = waits(flags) ? sharing(caller) : nullptr;
  const int got = instance == nullptr ? ::recvmmsg(descriptor, messages, room, flags, timeout)
                                      : receive_in_turn(*instance, descriptor, messages, room, flags, timeout);
  for (int i = 0; i < got; ++i) note_received(caller, messages[i].msg_hdr);
  return got;
}

int bound_sendmmsg(int descriptor, mmsghdr* messages, unsigned count, int flags) {
  const void* const caller = __builtin_return_address(0);
  descriptor = redirected(caller, descriptor);
  Instance* const instance = waits(flags) ? sharing(caller) : nullptr;
  const auto has_control = [](const mmsghdr& each) { return each.msg_hdr.msg_controllen != 0; };
  if (instance == nullptr && std::none_of(messages, messages + count, has_control))
    return ::sendmmsg(descriptor, messages, count, flags);
  unsigned sent = 0;
  for (; sent < count; ++sent) {
    const Passed passed(caller, messages[sent].msg_hdr);
    const ssize_t bytes = instance == nullptr ? ::sendmsg(descriptor, &passed.get(), flags)
                                              : send_message_in_turn(*instance, descriptor, passed.get(), flags);
    if (bytes < 0) break;
    messages[sent].msg_len = static_cast<unsigned>(bytes);
  }
  return sent != 0 || count == 0 ? static_cast<int>(sent) : -1;
}

/// Without blocking, and then looks. A queue of connections may be full (EAGAIN).
int connect_in_turn(Instance& instance, int descriptor, const sockaddr* address, socklen_t length) {
  int result = 0;
  const auto connect_once = [&] {
    result = ::connect(descriptor, address, length);
    return result == 0 || errno_now() != EAGAIN;
  };
  if (wait_in_turn(instance, std::nullopt, EndedBy::without_restart, connect_once) == Waited::interrupted)
    return failed(EINTR);
  if (result == 0 || errno_now() != EINPROGRESS) return result;
  if (wait_in_turn(instance, std::nullopt, EndedBy::without_restart, [=] { return is_ready(descriptor, POLLOUT); }) !=
      Waited::done)
    return failed(EINTR);
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error == 0 ? 0 : failed(error);
}

int bound_connect(int descriptor, const sockaddr* address, socklen_t length) {
  descriptor = redirected(__builtin_return_address(0), descriptor);
  Instance* const instance = sharing(__builtin_return_address(0));
  if (instance == nullptr || never_blocks(descriptor)) return ::connect(descriptor, address, length);
  const int flags = ::fcntl(descriptor, F_GETFL);
  ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
  const int result = connect_in_turn(*instance, descriptor, address, length);
  const int error = errno_now();
  ::fcntl(descriptor, F_SETFL, flags);
  failed(error);
  return result;
}

// --- FIFOs

/// Somebody has opened the FIFO for writing, by now or before: there is something to read, it has hung up, or a copy of
/// nothing would have to wait.
bool has_writer(int reader, int scratch) noexcept {
  const os::CancellationDisabled uncancelled;
  if (is_ready(reader, POLLIN)) return true;
  return ::tee(reader, scratch, 1, SPLICE_F_NONBLOCK) < 0 && errno_now() == EAGAIN;
}

int open_reader(Instance& instance, int folder, const char* path, int flags) {
  os::UniqueFd descriptor(::openat64(folder, path, flags | O_NONBLOCK));
  if (!descriptor) return -1;
  Waited how = Waited::done;
  int scratch[2] = {-1, -1};
  if (::pipe2(scratch, O_CLOEXEC) == 0) {
    const os::UniqueFd out(scratch[0]);
    const os::UniqueFd in(scratch[1]);
    how = wait_in_turn(instance, std::nullopt, EndedBy::without_restart,
                       [&] { return has_writer(descriptor.get(), in.get()); });
  }
  const int opened = descriptor.get();
  if (how != Waited::done || ::fcntl(opened, F_SETFL, ::fcntl(opened, F_GETFL) & ~O_NONBLOCK) != 0)
    return failed(EINTR);
  return descriptor.release();
}

int open_writer(Instance& instance, int folder, const char* path, int flags) {
  int descriptor = -1;
  const Waited how = wait_in_turn(instance, std::nullopt, EndedBy::without_restart, [&] {  // ENXIO: nobody reads
    descriptor = ::openat64(folder, path, flags | O_NONBLOCK);
    return descriptor >= 0 || errno_now() != ENXIO;
  });
  if (how == Waited::interrupted) return failed(EINTR);
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

}  // namespace

bool is_awaited_fifo(Instance& instance, int folder, const char* path, int flags) noexcept {
  if ((flags & (O_NONBLOCK | O_PATH | O_DIRECTORY)) != 0 || (flags & O_ACCMODE) == O_RDWR) return false;
  if (sharing_flow(instance) == nullptr) return false;
  struct stat found {};
  const int error = errno;
  const bool is_fifo = ::fstatat(folder, path, &found, 0) == 0 && S_ISFIFO(found.st_mode);
  errno = error;
  return is_fifo;
}

int open_in_turn(Instance* instance, int folder, const char* path, int flags, mode_t mode) {
  if (instance == nullptr || !is_awaited_fifo(*instance, folder, path, flags))
    return ::openat64(folder, path, flags, mode);
  return (flags & O_ACCMODE) == O_RDONLY ? open_reader(*instance, folder, path, flags)
                                         : open_writer(*instance, folder, path, flags);
}

std::span<const Binding> blocking_bindings() {
  static const Binding table[] = {
      Binding::of("poll", bound_poll),
      Binding::of("__poll", bound_poll),
      Binding::of("__poll_chk", bound_poll_chk),
      Binding::of("ppoll", bound_ppoll),
      Binding::of("__ppoll_chk", bound_ppoll_chk),
      Binding::of("select", bound_select),
      Binding::of("__select", bound_select),
      Binding::of("pselect", bound_pselect),
      Binding::of("epoll_wait", bound_epoll_wait),
      Binding::of("epoll_pwait", bound_epoll_pwait),
      Binding::of("epoll_pwait2", bound_epoll_pwait2),
      Binding::of("connect", bound_connect),
      Binding::of("__connect", bound_connect),
      Binding::of("recvmmsg", bound_recvmmsg),
      Binding::of("sendmmsg", bound_sendmmsg),
      Binding::of("__sendmmsg", bound_sendmmsg),
      Binding::of("recv", bound_recv),
      Binding::of("__recv_chk", bound_recv_chk),
      Binding::of("recvfrom", bound_recvfrom),
      Binding::of("__recvfrom_chk", bound_recvfrom_chk),
      Binding::of("recvmsg", bound_recvmsg),
      Binding::of("send", bound_send),
      Binding::of("sendto", bound_sendto),
      Binding::of("sendmsg", bound_sendmsg),
      Binding::of("accept", Accept<::accept>::call),
      Binding::of("accept4", Accept<::accept4>::call),
  };
  return table;
}

}  // namespace aplib::loader::libc
