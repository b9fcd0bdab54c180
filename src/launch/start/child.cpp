// SPDX-License-Identifier: MIT
#include "launch/start/child.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <span>
#include <sstream>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/watchdog.hpp"

namespace aplib::launch::start {

// ---- process trees ----

namespace {

constexpr std::string_view tree_variable = "AP_TREE=";

/// Calls `what` with the number of each process of this host. Async-signal-safe, so not readdir().
template <class What>
void each_process(What&& what) noexcept {
  const int folder = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) std::array<char, 4096> entries;
  for (ssize_t bytes = 1; folder >= 0 && bytes > 0;) {
    bytes = ::syscall(SYS_getdents64, folder, entries.data(), entries.size());
    for (ssize_t at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      at += entry->d_reclen;
      pid_t process = 0;
      for (const char* digit = entry->d_name; *digit >= '0' && *digit <= '9'; ++digit)
        process = 10 * process + (*digit - '0');
      if (process > 0) what(process);
    }
  }
  if (folder >= 0) ::close(folder);
}

/// The root that a process has in its environment; 0: none, or it may not be read. Async-signal-safe.
pid_t marked_root(pid_t process) noexcept {
  std::array<char, 32> path{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/environ", process);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  std::array<char, 4096> bytes;
  constexpr pid_t numbers_end = 1 << 22;  // of processes, proc(5)
  pid_t root = 0;
  std::size_t matched = 0;  // so many letters of the variable; its size: in the value; more: in another variable
  bool whole = false;
  for (ssize_t got = 1; file >= 0 && got > 0 && !whole;) {
    got = ::read(file, bytes.data(), bytes.size());
    for (ssize_t i = 0; i < got && !whole; ++i) {
      const char letter = bytes[static_cast<std::size_t>(i)];
      if (matched == tree_variable.size() && letter >= '0' && letter <= '9' && root < numbers_end) {
        root = 10 * root + (letter - '0');
      } else if (letter == 0) {
        whole = matched == tree_variable.size();
        matched = 0;
        if (!whole) root = 0;
      } else {
        matched =
            matched < tree_variable.size() && letter == tree_variable[matched] ? matched + 1 : tree_variable.size() + 1;
      }
    }
  }
  if (file >= 0) ::close(file);
  return whole ? root : 0;
}

/// Which of these trees a process of the session belongs to; nullptr: none. Async-signal-safe.
const pid_t* tree_of(pid_t process, std::span<const pid_t> roots, pid_t session) noexcept {
  if (::getsid(process) != session) return nullptr;
  auto found = std::ranges::find(roots, ::getpgid(process));
  if (found == roots.end()) found = std::ranges::find(roots, marked_root(process));
  return found == roots.end() ? nullptr : &*found;
}

/// To all processes of these trees. Those that have left the root's group, as a shell with job control and timeout(1)
/// have it, get SIGKILL by their groups, which leaves no time to fork, and other signals once each.
void signal_trees(std::span<const pid_t> roots, pid_t session, int number) noexcept {
  for (const pid_t root : roots) ::kill(-root, number);
  each_process([&](pid_t process) {
    const pid_t* const root = tree_of(process, roots, session);
    if (root == nullptr) return;
    const pid_t group = ::getpgid(process);
    if (group <= 1 || group == *root) return;
    const bool group_is_its_own = group == process || tree_of(group, {root, 1}, session) != nullptr;
    ::kill(number == SIGKILL && group_is_its_own ? -group : process, number);
  });
}

}  // namespace

TreeRoot::TreeRoot() : mark_(tree_variable) {
  mark_.resize(mark_.size() + 16);
  environment_.push_back(mark_.data());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(tree_variable)) environment_.push_back(*variable);
  }
  environment_.push_back(nullptr);
}

void TreeRoot::become() noexcept {
  ::setpgid(0, 0);
  if (const int terminal = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC); terminal >= 0) {
    ::ioctl(terminal, TIOCNOTTY);  // for this process and its children alone, since it leads no session
    ::close(terminal);
  }
  std::to_chars(mark_.data() + tree_variable.size(), mark_.data() + mark_.size() - 1, ::getpid());
}

void signal_tree(pid_t root, int number) noexcept { signal_trees({&root, 1}, ::getsid(0), number); }

// ---- children ----

namespace {

/// Makes a pipe whose ends are above the standard streams, even if this process has closed those. Throws
/// Error(exhausted).
os::Pipe make_pipe() {
  os::Pipe pipe = os::Pipe::make();
  for (os::UniqueFd* end : {&pipe.reader, &pipe.writer}) {
    if (end->get() > STDERR_FILENO) continue;
    end->reset(::fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!*end) os::refuse_descriptor("a pipe");
  }
  return pipe;
}

/// What went wrong in the child between fork and exec.
struct Failure {
  int error;
  bool in_folder;
};

/// dup2() of a descriptor to itself would leave it to be closed by exec. No other descriptor has a number that low (see
/// make_pipe()).
void become_standard(int descriptor, int number) noexcept {
  if (descriptor == number) {
    ::fcntl(descriptor, F_SETFD, 0);
  } else {
    ::dup2(descriptor, number);
  }
}

// Runs between fork() and exec() in a process with threads, so it makes only async-signal-safe calls.
[[noreturn]] void become(int input, const os::Pipe& output, const os::Pipe& error, const os::Pipe& failure,
                         pid_t parent, const Child::Command& command, char* const* argv, TreeRoot& tree) {
  const char* const folder = command.folder.c_str();
  Guard* const guard = command.guard;
  Failure what{0, false};
  tree.become();
  // The sender of this signal is the thread that forked: the starter's own, which outlives its children unless the
  // launcher is killed.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  // Exec closes our end of the guard's pipe, so the guard cannot take the launcher for dead before it has this word.
  if (guard != nullptr) {
    guard->watch(::getpid());
    ::signal(SIGPIPE, SIG_IGN);  // drops the one that waits to kill us if the guard is gone
  }
  struct sigaction normal {};
  normal.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &normal, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  become_standard(input, STDIN_FILENO);
  become_standard(output.writer.get(), STDOUT_FILENO);
  become_standard(error.writer.get(), STDERR_FILENO);
#if defined(SYS_close_range)
  constexpr unsigned mark_only = 4;  // CLOSE_RANGE_CLOEXEC: files that somebody opened without that flag
  ::syscall(SYS_close_range, 3U, ~0U, mark_only);
#endif
  if (*folder != 0 && ::chdir(folder) != 0) {
    what.in_folder = true;
  } else {
    ::execvpe(command.file.empty() ? argv[0] : command.file.c_str(), argv, tree.environment());
  }
  what.error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure.writer.get(), &what, sizeof what);
  ::_exit(127);
}

int open_end(pid_t pid) {
#if defined(SYS_pidfd_open)
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U));  // close-on-exec by its nature
#else
  return pid == 0 ? 0 : -1;
#endif
}

}  // namespace

Child::Child(const Command& command) : leaves_some_(command.leaves_some) {
  std::vector<char*> words;
  words.reserve(command.argv.size() + 1);
  for (const std::string& word : command.argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);

  os::Pipe input = make_pipe();
  os::Pipe output = make_pipe();
  os::Pipe error = make_pipe();
  os::Pipe failure = make_pipe();
  const pid_t parent = ::getpid();
  TreeRoot tree;
  int fork_error = 0;
  {
    const os::SignalsBlocked blocked;  // a signal handler of ours must not run in the child
    pid_ = ::fork();
    if (pid_ == 0)
      become(command.input < 0 ? input.reader.get() : command.input, output, error, failure, parent, command,
             words.data(), tree);
    fork_error = errno;
  }
  if (pid_ < 0) {
    throw Error(Errc::exhausted, fmt::format("cannot start {}: {}", words[0], os::process_text(fork_error)));
  }
  failure.writer.reset();
  Failure what{};
  ssize_t got = 0;
  do {
    got = ::read(failure.reader.get(), &what, sizeof what);  // ends at exec: some 100 us
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof what)) {
    if (command.guard != nullptr) command.guard->forget(pid_);  // while the number is still its own
    ::waitpid(pid_, nullptr, 0);
    throw Error(Errc::failed, fmt::format("cannot {} {}: {}", what.in_folder ? "go to the folder" : "execute",
                                          what.in_folder         ? command.folder
                                          : command.file.empty() ? command.argv[0]
                                                                 : command.file,
                                          std::strerror(what.error)));
  }
  input_ = std::move(input.writer);
  outputs_ = {std::move(output.reader), std::move(error.reader)};
  for (const int fd : {input_.get(), outputs_[0].get(), outputs_[1].get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  end_.reset(open_end(pid_));
}

Child::~Child() {
  close_input();
  if (!status_) {
    signal(SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
}

bool write_some(int descriptor, std::string& text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.erase(0, static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

std::string read_some(os::UniqueFd& descriptor) {
  std::array<char, 8192> buffer;
  while (descriptor) {
    const ssize_t got = ::read(descriptor.get(), buffer.data(), buffer.size());
    if (got > 0) return {buffer.data(), static_cast<std::size_t>(got)};
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    descriptor.reset();  // else it would be ready for ever
  }
  return {};
}

void Child::signal(int number) const noexcept {
  if (!status_) signal_tree(pid_, number);
}

std::optional<int> Child::ended() {
  if (status_) return status_;
  siginfo_t info{};
  const int rc = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (rc == 0 && info.si_pid == 0) return std::nullopt;
  // The child's number names its tree until it is waited for.
  if (!leaves_some_ || info.si_code != CLD_EXITED) signal_tree(pid_, SIGKILL);
  int status = 0;
  if (rc != 0 || ::waitpid(pid_, &status, 0) != pid_) {
    status_ = 1;  // another wait has taken its status
  } else {
    was_killed_ = WIFSIGNALED(status);
    status_ = was_killed_ ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return status_;
}

std::string CommandEnd::words(std::string_view name) const {
  std::string words;
  std::istringstream lines(output + error);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) words += (words.empty() ? "" : " | ") + line;
  }
  return words.empty() ? fmt::format("{} {}", name, status ? how_it_ended(*status) : "does not end") : words;
}

CommandEnd run_command(const std::vector<std::string>& argv, std::chrono::milliseconds patience) {
  CommandEnd end;
  Child child(argv, "");
  child.close_input();
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!end.status && std::chrono::steady_clock::now() < until) {
    std::array<pollfd, 3> fds{{{child.output_fd(Child::output), POLLIN, 0},
                               {child.output_fd(Child::error), POLLIN, 0},
                               {child.end_fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), child.end_fd() < 0 ? 10 : 1000);
    end.status = child.ended();
    for (const Child::Stream stream : {Child::output, Child::error})
      for (std::string text = child.read(stream); !text.empty(); text = child.read(stream))
        (stream == Child::output ? end.output : end.error) += text;
  }
  return end;
}

namespace {

constexpr std::size_t trees_max = 16384;  // a machine's processes; what is beyond ends by the end of its input

void close_from(int first) {
#if defined(SYS_close_range)
  if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
  for (int fd = first; fd < 65536; ++fd) ::close(fd);
}

/// Moves those trees that have a process to the front. Returns how many there are.
std::size_t keep_living(std::span<pid_t> roots, pid_t session) noexcept {
  static std::array<bool, trees_max> lives;
  for (std::size_t i = 0; i < roots.size(); ++i) lives[i] = ::kill(-roots[i], 0) == 0 || errno != ESRCH;
  each_process([&](pid_t process) {
    const pid_t* const root = tree_of(process, roots, session);
    if (root != nullptr) lives[static_cast<std::size_t>(root - roots.data())] = true;
  });
  std::size_t count = 0;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (lives[i]) roots[count++] = roots[i];
  }
  return count;
}

// Runs in the guard, which is forked from a process with threads: it makes only async-signal-safe calls, and allocates
// nothing.
[[noreturn]] void stand_guard(int pipe) {
  static std::array<pid_t, trees_max> roots;
  std::size_t count = 0;
  const pid_t session = ::getsid(0);  // of the trees
  ::setsid();
  ::prctl(PR_SET_NAME, "aprun-guard");
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) ::sigaction(number, &ignore, nullptr);
  // The guard keeps none of the launcher's files open: a reader that waits for the end of its output would wait for it.
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) ::dup2(nothing, fd);
  ::dup2(pipe, 3);
  close_from(4);

  pid_t word = 0;
  ssize_t got = 0;
  while ((got = ::read(3, &word, sizeof word)) == static_cast<ssize_t>(sizeof word) || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    if (word > 0) {
      if (count < roots.size()) roots[count++] = word;
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (roots[i] == -word) roots[i] = roots[--count];
    }
  }
  remove_for_sudden_end();
  const auto living = [&] { return std::span(roots).first(count); };
  for (const int number : {SIGTERM, SIGCONT}) signal_trees(living(), session, number);
  constexpr int rounds = 50;
  for (int round = 0; round < rounds && count > 0; ++round) {
    const timespec pause{0, 20'000'000};
    ::nanosleep(&pause, nullptr);
    count = keep_living(living(), session);
  }
  signal_trees(living(), session, SIGKILL);
  ::_exit(0);
}

}  // namespace

Guard::Guard() {
  os::Pipe pipe;
  try {
    pipe = os::Pipe::make();
  } catch (const Error&) {
    return;
  }
  const os::SignalsBlocked blocked;  // no handler of ours in the guard; it keeps all blocked
  pid_ = ::fork();
  if (pid_ == 0) stand_guard(pipe.reader.get());
  if (pid_ > 0) pipe_ = std::move(pipe.writer);
}

Guard::~Guard() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);  // one that somebody has stopped would hear no word
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::watch(pid_t root) noexcept { tell(root); }

void Guard::forget(pid_t root) noexcept { tell(-root); }

void Guard::tell(pid_t word) noexcept {
  if (!pipe_) return;
  // The system writes 4 bytes whole or not at all, and the guard reads at once.
  while (::write(pipe_.get(), &word, sizeof word) < 0 && errno == EINTR) {
  }
}

}  // namespace aplib::launch::start
