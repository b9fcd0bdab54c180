// SPDX-License-Identifier: MIT
#include "launch/watchdog.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"

namespace aplib::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array watched{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr std::array refaulting{SIGSEGV, SIGBUS, SIGFPE, SIGILL};
// What else ends a process by default. Nobody sends it one of real time.
constexpr std::array ending{SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,    SIGABRT, SIGTRAP, SIGSYS, SIGQUIT, SIGUSR1,
                            SIGUSR2, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGXFSZ, SIGIO,  SIGPWR,  SIGSTKFLT};
constexpr timeval farewell{.tv_sec = 0, .tv_usec = 500'000};  // for output: a reader that has stopped may hold it up

/// What the watching thread is told, by a pipe.
struct Message {
  int number;        ///< Of a signal, or a mark.
  pid_t sender = 0;  ///< Of a signal.
};
constexpr Message over_mark{0};
constexpr Message demand_mark{0xff};  // no signal's number
constexpr Message expect_mark{0xfe};

// For the signal handler: the pipe that it writes to, and whether a signal came before.
std::atomic<int> signal_pipe{-1};
std::atomic<bool> signalled{false};
struct sigaction before[watched.size()];

// The file that a handler removes when it ends the process. It is written before `has_remains` is set.
char remains[sizeof(sockaddr_un::sun_path)];
std::atomic<bool> has_remains{false};

std::atomic<int> last_status{0};

[[noreturn]] void end_at_once(int /*signal*/ = 0) {
  remove_for_sudden_end();
  ::_exit(last_status);
}

/// Ends the process after `words`, which may block for ever: a timer ends it, too. A thread for them is perhaps not to
/// be had.
[[noreturn]] void end_by_force(int status, const std::function<void()>& words) {
  last_status = status;
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = end_at_once;
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t alarm;
  ::sigemptyset(&alarm);
  ::sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  const itimerval timer{.it_interval = {}, .it_value = farewell};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
  try {
    words();
  } catch (const std::exception&) {  // no memory: the end counts
  }
  end_at_once();
}

bool asks_programs_only(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

void on_signal(int signal, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  if (!asks_programs_only(signal) && signalled.exchange(true)) {
    last_status = 128 + signal;
    end_at_once();
  }
  const Message message{signal, info->si_code <= 0 ? info->si_pid : 0};
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe.load(), &message, sizeof message);
  errno = saved_errno;
}

/// What the user is told of the run's end by this signal.
std::string end_text(int signal) {
  const bool alone = !asks_programs_only(signal);
  return fmt::format("SIG{}: stopping the machine{}", ::sigabbrev_np(signal),
                     alone ? "; once more ends the program at once"
                           : ", because not every rank has a handler for it; SIGTERM ends the program at once");
}

}  // namespace

void remove_at_sudden_end(const std::string& path) {
  has_remains = false;
  if (path.empty() || path.size() >= sizeof remains) return;
  std::memcpy(remains, path.c_str(), path.size() + 1);
  has_remains = true;
}

void remove_for_sudden_end() noexcept {
  if (has_remains.exchange(false)) ::unlink(remains);
}

void end_by_signals() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  action.sa_sigaction = [](int signal, siginfo_t* info, void*) {
    remove_for_sudden_end();
    // An instruction that faults does so once more when this has returned, and a core file shows it there. Any other
    // signal ends the process then.
    if (info->si_code <= 0 || std::ranges::find(refaulting, signal) == refaulting.end()) ::raise(signal);
  };
  ::sigaction(SIGPIPE, &action, nullptr);
  for (const int signal : ending) {
    struct sigaction there {};
    const bool is_default = ::sigaction(signal, nullptr, &there) == 0 && there.sa_handler == SIG_DFL;
    if (is_default) ::sigaction(signal, &action, nullptr);
  }
}

Watchdog::Watchdog(std::optional<double> timeout, Actions actions) : timeout_(timeout), actions_(std::move(actions)) {
  signal_pipe = wake_.writer.get();
  signalled = false;
  // Signals are for the main thread, so that its reads are interrupted.
  thread_ = os::quiet_thread("aprun-watchdog", [this] { watch(); });
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;  // no SA_RESTART: a host program that reads its input shall notice
  action.sa_sigaction = on_signal;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    sigaction(watched[i], nullptr, &before[i]);
    // Behind end_by_signals(), those for programs have a handler.
    const bool is_free = asks_programs_only(watched[i]) ? actions_.pass_on && before[i].sa_handler != SIG_IGN
                                                        : before[i].sa_handler == SIG_DFL;
    if (is_free) sigaction(watched[i], &action, nullptr);
  }
}

Watchdog::~Watchdog() { finish(); }

void Watchdog::finish() {
  if (!thread_.joinable()) return;
  for (std::size_t i = 0; i < watched.size(); ++i) sigaction(watched[i], &before[i], nullptr);
  [[maybe_unused]] const ssize_t written = ::write(wake_.writer.get(), &over_mark, sizeof over_mark);
  thread_.join();
}

void Watchdog::stop(int status, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (demand_) return;
    demand_ = {status, text};
  }
  [[maybe_unused]] const ssize_t written = ::write(wake_.writer.get(), &demand_mark, sizeof demand_mark);
}

void Watchdog::refuse(int signal) {
  signalled = true;
  stop(128 + signal, end_text(signal));
}

void Watchdog::expect_end(int status) {
  {
    const std::lock_guard lock(mutex_);
    if (expected_) return;
    expected_ = status;
  }
  [[maybe_unused]] const ssize_t written = ::write(wake_.writer.get(), &expect_mark, sizeof expect_mark);
}

void Watchdog::watch() {
  bool passed_term = false;
  std::optional<Clock::time_point> deadline;
  if (timeout_)
    deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*timeout_));
  for (;;) {
    int wait = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      wait = static_cast<int>(std::clamp<long long>(left, 0, 1'000'000'000));
    }
    pollfd wake{.fd = wake_.reader.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wake, 1, wait);
    if (ready < 0) continue;
    if (ready > 0) {
      Message message{};
      if (::read(wake_.reader.get(), &message, sizeof message) != sizeof message) return;
      const int number = message.number;
      if (number == over_mark.number) return;
      const bool is_mark = number == demand_mark.number || number == expect_mark.number;
      if (status_ && (is_mark || asks_programs_only(number))) continue;
      std::string text;
      if (number == expect_mark.number) {
        const std::lock_guard lock(mutex_);
        status_ = expected_;
        deadline = Clock::now() + actions_.grace;
        continue;
      }
      if (number == demand_mark.number) {
        const std::lock_guard lock(mutex_);
        status_ = demand_->first;
        text = demand_->second;
      } else {
        const bool is_for_programs = asks_programs_only(number) || (number == SIGTERM && !passed_term);
        if (!status_ && is_for_programs && actions_.pass_on) {
          if (number == SIGTERM) {  // before it is passed on: refuse() may come at once
            passed_term = true;
            signalled = false;
          }
          if (actions_.pass_on(number, message.sender)) continue;
        }
        signalled = true;
        status_ = 128 + number;
        text = end_text(number);
      }
      actions_.stop(*status_, text);
    } else if (Clock::now() < *deadline) {
      continue;
    } else if (status_) {
      // Some task neither waits nor calls the library, so it will not end by itself.
      end_by_force(*status_, actions_.last_words);
    } else {
      status_ = timeout_status;
      actions_.stop(timeout_status, fmt::format("the time is over: {:g} s (--timeout)", *timeout_));
    }
    deadline = Clock::now() + actions_.grace;
  }
}

}  // namespace aplib::launch
