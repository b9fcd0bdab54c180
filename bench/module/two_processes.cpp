// SPDX-License-Identifier: MIT
#include "two_processes.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace bench_module {
namespace {

void bind_to(std::size_t nth) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &set) || nth-- != 0) continue;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
    return;
  }
  throw std::runtime_error("two usable cores are needed, and this process has one (see taskset)");
}

/// Waits at the end until the process has ended, which it does when its connection closes.
class Child {
 public:
  explicit Child(pid_t process) : process_(process) {}
  ~Child() {
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t process_;
};

[[noreturn]] void run_far(int socket, const std::function<void(const Wire&)>& far) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    bind_to(1);
    far(Wire(socket));
  } catch (const std::exception& error) {
    fmt::print(stderr, "the other process: {}\n", error.what());
    status = 1;
  }
  _exit(status);
}

}  // namespace

double on_two_processes(const std::function<double(const Wire&)>& near, const std::function<void(const Wire&)>& far) {
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    throw std::runtime_error(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (process == 0) {
    close(sockets[0]);
    run_far(sockets[1], far);
  }
  close(sockets[1]);
  const Child child(process);
  const Wire wire(sockets[0]);
  bind_to(0);
  return near(wire);
}

}  // namespace bench_module
