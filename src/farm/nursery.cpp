// SPDX-License-Identifier: MIT
#include "farm/nursery.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/thread.hpp"

namespace aplib::farm {
namespace {

/// What the farm asks: 0 makes a worker, another number ends that one. The answer: the worker's number, or the negative
/// errno; of an end: the status of waitpid(2).
struct Word {
  std::int64_t value;
};

bool receive(int socket, Word& word, os::UniqueFd* descriptor = nullptr) {
  os::ReceivedMessage received = os::receive_message(socket, std::as_writable_bytes(std::span(&word, 1)));
  if (received.bytes != sizeof word) return false;
  if (received.passed != 0 && descriptor != nullptr) *descriptor = std::move(received.descriptors[0]);
  return true;
}

bool send(int socket, Word word, int descriptor = -1) {
  return os::send_message(socket, std::as_bytes(std::span(&word, 1)),
                          std::span(&descriptor, descriptor >= 0 ? std::size_t{1} : 0));
}

[[noreturn]] void become_worker(pid_t nursery, int channel, const Nursery::Serve& serve, unsigned number) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == nursery) serve(channel, number);
  std::fflush(nullptr);
  ::_exit(0);
}

/// One worker. Returns its number, or the negative errno.
std::int64_t make_worker(int socket, const Nursery::Serve& serve, unsigned number, os::UniqueFd& theirs) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return -errno;
  theirs.reset(ends[0]);
  const os::UniqueFd own(ends[1]);
  const pid_t nursery = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return -errno;
  if (child == 0) {
    ::close(socket);
    theirs.reset();
    become_worker(nursery, own.get(), serve, number);
  }
  ::setpgid(child, child);  // whoever comes first
  return child;
}

int end_worker(pid_t worker) {
  int status = 0;
  if (::waitpid(worker, &status, WNOHANG) == worker) {
    ::kill(-worker, SIGKILL);  // what its tasks have left; a group with members keeps its number
    return status;
  }
  ::kill(-worker, SIGKILL);
  ::kill(worker, SIGKILL);
  while (::waitpid(worker, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

[[noreturn]] void live(int socket, const Nursery::Serve& serve) {
  ::setpgid(0, 0);  // Ctrl-C is the program's affair
  ::prctl(PR_SET_NAME, "aplib-nursery");
  std::set<pid_t> workers;
  unsigned made = 0;
  for (Word word{}; receive(socket, word);) {
    os::UniqueFd channel;
    std::int64_t answer = 0;
    if (word.value == 0) {
      answer = make_worker(socket, serve, made++, channel);
      if (answer > 0) workers.insert(static_cast<pid_t>(answer));
    } else if (workers.erase(static_cast<pid_t>(word.value)) != 0) {
      answer = end_worker(static_cast<pid_t>(word.value));
    }
    if (!send(socket, {answer}, word.value == 0 && answer > 0 ? channel.get() : -1)) break;
  }
  for (const pid_t worker : workers) end_worker(worker);
  ::_exit(0);
}

}  // namespace

Nursery::Nursery(const Serve& serve) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) os::refuse_descriptor("a farm");
  socket_.reset(ends[0]);
  os::UniqueFd theirs(ends[1]);
  std::fflush(nullptr);  // else each worker would write it again
  pid_ = ::fork();
  if (pid_ < 0) throw Error(Errc::exhausted, fmt::format("farm: no process for workers: {}", os::process_text(errno)));
  if (pid_ != 0) return;
  socket_.reset();
  live(theirs.get(), serve);
}

Nursery::~Nursery() {
  socket_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Nursery::Child Nursery::make() {
  Child child;
  Word answer{};
  if (!send(socket_.get(), {0}) || !receive(socket_.get(), answer, &child.channel))
    throw Error(Errc::failed, "farm: the process that makes workers (aplib-nursery) is gone; was it killed?");
  const bool has_process = answer.value > 0;
  if (!has_process || !child.channel) {
    // A descriptor that came, and had no room here, is lost without an errno.
    const int error = has_process ? EMFILE : static_cast<int>(-answer.value);
    throw Error(Errc::exhausted, fmt::format("farm: no process for a worker: {}", os::process_text(error)));
  }
  child.process = static_cast<pid_t>(answer.value);
  return child;
}

std::string Nursery::end(pid_t process) {
  Word answer{};
  if (!send(socket_.get(), {process}) || !receive(socket_.get(), answer)) return "its nursery is gone";
  const int status = static_cast<int>(answer.value);
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace aplib::farm
