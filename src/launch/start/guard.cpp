// SPDX-License-Identifier: MIT
#include "launch/start/guard.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace aplib::launch {
namespace {

constexpr std::size_t groups_max = 16384;  // a machine's processes; what is beyond ends by the end of its input

void close_from(int first) {
#if defined(SYS_close_range)
  if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
  for (int fd = first; fd < 65536; ++fd) ::close(fd);
}

// Runs in the guard, forked from a process with threads: async-signal-safe calls alone, no allocation.
[[noreturn]] void stand_guard(int pipe) {
  static std::array<pid_t, groups_max> groups;
  std::size_t count = 0;
  ::setsid();
  ::prctl(PR_SET_NAME, "aprun-guard");
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) ::sigaction(number, &ignore, nullptr);
  // Nothing of the launcher's may be kept open: who waits for the end of its output would wait for us.
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) ::dup2(nothing, fd);
  ::dup2(pipe, 3);
  close_from(4);

  pid_t word = 0;
  ssize_t got = 0;
  while ((got = ::read(3, &word, sizeof word)) == static_cast<ssize_t>(sizeof word) || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    if (word == 0) ::_exit(0);
    if (word > 0) {
      if (count < groups.size()) groups[count++] = word;
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (groups[i] == -word) groups[i] = groups[--count];
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    ::kill(-groups[i], SIGTERM);
    ::kill(-groups[i], SIGCONT);
  }
  constexpr int rounds = 50;
  for (int round = 0; round < rounds && count > 0; ++round) {
    const timespec pause{0, 20'000'000};
    ::nanosleep(&pause, nullptr);
    for (std::size_t i = 0; i < count;) {
      if (::kill(-groups[i], 0) != 0 && errno == ESRCH) {
        groups[i] = groups[--count];
      } else {
        ++i;
      }
    }
  }
  for (std::size_t i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

Guard::Guard() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);  // no handler of ours in the guard; it keeps all blocked
  pid_ = ::fork();
  if (pid_ == 0) stand_guard(ends[0]);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::close(ends[0]);
  if (pid_ < 0) {
    ::close(ends[1]);
    return;
  }
  pipe_ = ends[1];
}

Guard::~Guard() {
  if (pid_ < 0) return;
  tell(0);
  ::close(pipe_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::watch(pid_t group) noexcept { tell(group); }

void Guard::forget(pid_t group) noexcept { tell(-group); }

void Guard::tell(pid_t word) noexcept {
  if (pipe_ < 0) return;
  // 4 bytes go whole or not at all; the guard reads at once.
  while (::write(pipe_, &word, sizeof word) < 0 && errno == EINTR) {
  }
}

}  // namespace aplib::launch
