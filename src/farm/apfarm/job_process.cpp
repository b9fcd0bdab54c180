// SPDX-License-Identifier: MIT
#include "farm/apfarm/job_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "farm/apfarm/printer.hpp"

namespace aplib::farm {
namespace {

/// What the guard does for the rest of its life. Between fork and end it makes only async-signal-safe calls.
[[noreturn]] void guard_groups(int alive, const std::atomic<pid_t>* groups, std::size_t count) {
  ::setsid();  // Ctrl-C at the terminal is not for it
  ::prctl(PR_SET_NAME, "apfarm-guard");
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    if (descriptor != alive) ::close(descriptor);  // it keeps nobody's pipe open
  }
  char byte;
  while (::read(alive, &byte, 1) < 0 && errno == EINTR) {
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (const pid_t group = groups[i].load(std::memory_order_acquire); group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

GroupGuard::GroupGuard(std::size_t count) : count_(count) {
  void* memory =
      ::mmap(nullptr, count * sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(Errc::exhausted, fmt::format("no memory for {} jobs", count));
  groups_ = static_cast<std::atomic<pid_t>*>(memory);
  for (std::size_t i = 0; i < count; ++i) ::new (&groups_[i]) std::atomic<pid_t>(0);
  os::Pipe pipe = os::Pipe::make();
  // As fork(), but its end is no SIGCHLD: whoever waits for any child (without __WALL) does not see it.
  const long guard = ::syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
  if (guard == 0) guard_groups(pipe.reader.get(), groups_, count);
  if (guard < 0) {
    const std::string why = os::process_text(errno);
    ::munmap(memory, count * sizeof(std::atomic<pid_t>));
    throw Error(Errc::exhausted, "cannot start the guard of jobs: " + why);
  }
  alive_ = std::move(pipe.writer);
}

GroupGuard::~GroupGuard() { ::munmap(groups_, count_ * sizeof(std::atomic<pid_t>)); }

namespace {

const char* job_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp";
}

}  // namespace

os::UniqueFd make_job_file() {
  os::UniqueFd file(::open(job_folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file && errno != EMFILE && errno != ENFILE) file.reset(::memfd_create("apfarm", MFD_CLOEXEC));
  if (!file) os::refuse_descriptor("a file for a job's output");
  return file;
}

int why_full(int file) noexcept {
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) return 0;
  // The next block: what is left of the last one says nothing. What the job wrote last began in a block that it got.
  const off_t next = (status.st_size + status.st_blksize - 1) / status.st_blksize * status.st_blksize;
  if (::fallocate(file, FALLOC_FL_KEEP_SIZE, next, 1) == 0) return 0;
  if (errno == ENOSPC || errno == EDQUOT) return errno;
  struct statvfs system {};  // of a kind that cannot be asked so
  if (errno != EOPNOTSUPP || ::fstatvfs(file, &system) != 0) return 0;
  return (::geteuid() == 0 ? system.f_bfree : system.f_bavail) == 0 ? ENOSPC : 0;
}

std::string full_text(int problem) {
  return fmt::format("{}: {}; make room there, or set TMPDIR to a folder that has more", job_folder(),
                     std::strerror(problem));
}

namespace {

/// What the child needs between vfork and exec.
struct Birth {
  char* const* words;  // null: the shell alone
  char* const* shell_words;
  char* const* environment;
  int input;
  int output;
  int error;
  int nice;
  std::atomic<pid_t>* group;
  std::atomic<int> problem{0};  // what exec says. Atomic: the child, which shares our memory, writes it behind vfork()
};

/// Async-signal-safe, and changes nothing of the parent's memory but what it is given. The guard sees the group before
/// this process lets go of the guard's pipe, by exec; so none is forgotten.
[[noreturn]] void become(Birth& birth) {
  ::setpgid(0, 0);
  birth.group->store(::getpid(), std::memory_order_release);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) ::signal(ignored, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (birth.nice != 0) static_cast<void>(::nice(birth.nice));
  if (birth.input >= 0) ::dup2(birth.input, STDIN_FILENO);
  if (birth.output >= 0) ::dup2(birth.output, STDOUT_FILENO);
  if (birth.error >= 0) ::dup2(birth.error, STDERR_FILENO);
  if (birth.words != nullptr) ::execvpe(birth.words[0], birth.words, birth.environment);
  // The shell may know what that is, and else says what is wrong.
  if (birth.words == nullptr || errno == ENOENT || errno == EACCES)
    ::execvpe(birth.shell_words[0], birth.shell_words, birth.environment);
  birth.problem.store(errno, std::memory_order_relaxed);  // relaxed: the parent waits until we are gone
  ::_exit(127);
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

JobProcess::JobProcess(const Command& command, const std::string& shell, const std::vector<char*>& environment,
                       JobStreams streams)
    : files_(std::move(streams.files)) {
  const std::vector<std::string> shell_command{shell, "-c", command.text};
  const std::vector<char*> words = pointers_to(command.words);
  const std::vector<char*> shell_words = pointers_to(shell_command);
  Birth birth{.words = command.words.empty() ? nullptr : words.data(),
              .shell_words = shell_words.data(),
              .environment = environment.data(),
              .input = streams.input,
              .output = files_[output].get(),
              .error = files_[error].get(),
              .nice = streams.nice,
              .group = streams.group};
  pid_ = ::vfork();  // the parent waits until the child has executed something
  if (pid_ == 0) become(birth);
  const int problem = pid_ < 0 ? errno : birth.problem.load(std::memory_order_relaxed);  // relaxed: the same
  if (problem == 0) return;
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  streams.group->store(0, std::memory_order_release);
  const bool lacks_room = problem == EAGAIN || problem == ENOMEM;
  const bool is_of_shell = problem == ENOENT || problem == EACCES;  // which was tried last
  throw Error(lacks_room ? Errc::exhausted : Errc::failed,
              fmt::format("cannot start \"{}\": {}{}", command.text.substr(0, 200), os::process_text(problem),
                          is_of_shell ? fmt::format(": the shell {}", shell) : ""));
}

JobFiles JobProcess::unused_files() noexcept {
  if (bytes_of_file(files_[output].get()) + bytes_of_file(files_[error].get()) != 0) return {};
  if (::kill(-pid_, 0) == 0 || errno != ESRCH) return {};
  return std::move(files_);
}

void JobProcess::signal(int number) const noexcept { ::kill(-pid_, number); }

}  // namespace aplib::farm
