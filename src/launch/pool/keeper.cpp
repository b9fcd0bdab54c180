// SPDX-License-Identifier: MIT
#include "launch/pool/keeper.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/thread.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/this_host.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t guests_max = 256;
constexpr auto guest_patience = 10s;  // for a knock, and for the other connection of a run
constexpr auto grace = 1500ms;        // to SIGTERM, and from there to SIGKILL; nodes end by themselves after 1 s
constexpr auto look_pause = 60s;      // between looks at the socket's name
constexpr auto deaf_pause = 100ms;
constexpr int not_executable = 126;  // what a shell says
constexpr int not_found = 127;

/// Says a line to whoever may or may not listen.
void say(int socket, const std::string& line) {
  static_cast<void>(::send(socket, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

/// The other side has closed. What it has sent and nobody has read does not count.
bool has_gone(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/// Nothing has that name: 0.
std::uint64_t inode_of(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

/// The child of a keeper, which has one thread, becomes the node.
[[noreturn]] void become(const Knock& knock, int words, int streams, int lanes) {
  const bool keeps_processes = std::ranges::find(knock.command, "--processes") != knock.command.end();
  if (knock.command[0].ends_with("/aprun")) settle_beforehand(keeps_processes ? Heap::of_process : Heap::of_cells);
  start::TreeRoot tree;
  tree.become();
  struct sigaction normal {};
  normal.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &normal, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(streams, STDIN_FILENO);
  ::dup2(streams, STDOUT_FILENO);
  ::dup2(words, STDERR_FILENO);
  int first_closed = lanes_descriptor;
  if (knock.takes_lanes) {
    ::dup2(lanes, lanes_descriptor);
    ::fcntl(lanes_descriptor, F_SETFD, 0);
    ++first_closed;
  }
#if defined(SYS_close_range)
  const bool closed = ::syscall(SYS_close_range, static_cast<unsigned>(first_closed), ~0U, 0U) == 0;
#else
  const bool closed = false;
#endif
  for (int fd = first_closed; !closed && fd < 4096; ++fd) ::close(fd);
  const auto tell = [](const std::string& line) { static_cast<void>(os::write_all(STDERR_FILENO, line)); };
  tell(fmt::format("{}{}\n", start::mark::begins, ::getpid()));
  if (!knock.folder.empty() && ::chdir(knock.folder.c_str()) != 0 && knock.needs_folder) {
    tell(fmt::format("{}{}\n", start::mark::no_folder, knock.folder));
    ::_exit(1);
  }
  std::vector<char*> argv;
  for (const std::string& word : knock.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execve(argv[0], argv.data(), tree.environment());
  const int error = errno;
  tell(fmt::format("{}: {}\n", knock.command[0], std::strerror(error)));
  ::_exit(error == ENOENT ? not_found : not_executable);
}

/// What stands behind the first line's `name` and a colon.
std::string value_in(const char* file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    const std::size_t begin = colon == line.npos ? line.npos : line.find_first_not_of(" \t", colon + 1);
    if (begin != line.npos) return line.substr(begin);
  }
  return {};
}

std::uint64_t kibibytes_in(const char* file, std::string_view name) {
  return std::strtoull(value_in(file, name).c_str(), nullptr, 10) << 10;
}

/// The names of the files in a folder, in order, without `ending`, which they have.
std::vector<std::string> names_in(const fs::path& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(ending)) names.push_back(name.substr(0, name.size() - ending.size()));
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> gpus() {
  std::vector<std::string> found;
  for (const std::string& name : names_in("/proc/driver/nvidia/gpus", "")) {
    const std::string file = "/proc/driver/nvidia/gpus/" + name + "/information";
    const std::string model = value_in(file.c_str(), "Model");
    found.push_back(model.empty() ? "NVIDIA" : model);
  }
  return found;
}

/// Everything but what a keeper knows. What the system does not tell is empty or 0.
HostFacts facts_of_this_host() {
  HostFacts facts;
  const wire::Hello self = describe_this_host();
  facts.host = self.host;
  facts.host_id = self.host_id;
  facts.cpus = self.cpus;
  const std::optional<double> quota = cpu_quota();
  facts.cores =
      std::min(static_cast<double>(facts.cpus.size()), quota.value_or(static_cast<double>(facts.cpus.size())));
  utsname system{};
  if (::uname(&system) == 0) {
    facts.kernel = fmt::format("{} {}", system.sysname, system.release);
    facts.architecture = system.machine;
  }
  facts.cpu_model = value_in("/proc/cpuinfo", "model name");
  facts.memory_bytes = kibibytes_in("/proc/meminfo", "MemTotal");
  facts.free_bytes = kibibytes_in("/proc/meminfo", "MemAvailable");
  std::ifstream("/proc/loadavg") >> facts.load1 >> facts.load5 >> facts.load15;
  facts.gpus = gpus();
  const char* const connection = std::getenv("SSH_CONNECTION");  // "CLIENT PORT SERVER PORT"
  std::istringstream words(connection == nullptr ? "" : connection);
  std::string word;
  for (int i = 0; i < 3; ++i) words >> word;
  if (words) facts.local = word;
  return facts;
}

}  // namespace

HostKeeper::HostKeeper(Settings settings) : settings_(std::move(settings)), inode_(inode_of(settings_.path)) {
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT}) ::sigaddset(&ours, number);
  ::sigprocmask(SIG_BLOCK, &ours, nullptr);
  for (const int number : {SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  signals_.reset(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) os::refuse_descriptor("a descriptor of signals");
}

void HostKeeper::run() {
  while (!ending_) {
    wait();
    const Clock::time_point now = Clock::now();
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) ending_ = true;
    reap();
    look_at_runs();
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const bool stays = guest->until > now && attend(*guest);
      guest = stays ? std::next(guest) : guests_.erase(guest);
    }
    accept_guests();
    join_runs();
    pass_lanes();
    if (runs_.empty() && guests_.empty() && (is_idle(now) || !has_its_name())) ending_ = true;
  }
  end_all();
}

bool HostKeeper::is_idle(Clock::time_point now) const {
  return settings_.idle.count() != 0 && now - last_use_ >= settings_.idle;
}

/// False: its name was removed, or another keeper has it.
bool HostKeeper::has_its_name() const { return settings_.path.empty() || inode_of(settings_.path) == inode_; }

std::optional<HostKeeper::Clock::time_point> HostKeeper::next_time() const {
  std::optional<Clock::time_point> next;
  const auto take = [&next](Clock::time_point time) { next = next ? std::min(*next, time) : time; };
  for (const Guest& guest : guests_) take(guest.until);
  for (const Run& run : runs_)
    if (run.patience) take(*run.patience);
  if (deaf_until_ > Clock::now()) take(deaf_until_);
  if (runs_.empty() && !settings_.path.empty()) take(Clock::now() + look_pause);
  if (runs_.empty() && settings_.idle.count() != 0) take(last_use_ + settings_.idle);
  return next;
}

void HostKeeper::wait() {
  const bool listens = guests_.size() < guests_max && deaf_until_ <= Clock::now();
  std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}, {listens ? settings_.listener.get() : -1, POLLIN, 0}};
  for (const Guest& guest : guests_)
    fds.push_back({guest.socket.get(), static_cast<short>(guest.knock && !guest.may_echo() ? POLLRDHUP : POLLIN), 0});
  for (const Run& run : runs_)
    if (!run.patience) fds.push_back({run.words.get(), POLLRDHUP, 0});
  int timeout = -1;
  if (const auto next = next_time()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
    timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }
  ::poll(fds.data(), fds.size(), timeout);
}

void HostKeeper::accept_guests() {
  while (guests_.size() < guests_max) {
    os::UniqueFd socket(::accept4(settings_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        deaf_until_ = Clock::now() + deaf_pause;
      return;
    }
    const auto who = os::peer_of(socket.get());
    if (!who || who->uid != ::getuid()) {
      ++strangers_;
      continue;
    }
    Guest& guest = guests_.emplace_back(Guest{.socket = std::move(socket), .until = Clock::now() + guest_patience});
    if (!hear(guest)) guests_.pop_back();
  }
}

bool HostKeeper::attend(Guest& guest) {
  if (!guest.knock) return hear(guest);
  return guest.may_echo() ? echo(guest) : !has_gone(guest.socket.get());
}

bool HostKeeper::hear(Guest& guest) {
  for (;;) {
    std::size_t wanted = KnockHead::bytes;
    if (guest.came.size() >= KnockHead::bytes) wanted += read_knock_head(guest.came).body_bytes;
    if (guest.came.size() >= wanted && guest.came.size() > KnockHead::bytes) return take_knock(guest);
    // Not a byte more: what is behind a knock is the node's.
    std::array<std::byte, 4096> piece{};
    const std::size_t room = std::min(piece.size(), wanted - guest.came.size());
    const ssize_t got = ::recv(guest.socket.get(), piece.data(), room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    guest.came.insert(guest.came.end(), piece.begin(), piece.begin() + got);
    if (guest.came.size() != KnockHead::bytes) continue;
    const KnockHead head = read_knock_head(guest.came);
    if (!comm::equal_in_constant_time(head.key, settings_.key.secret())) {
      ++strangers_;
      return false;
    }
    if (head.version != keeper_version) {
      say(guest.socket.get(), fmt::format("{}it is of APlib {} (keepers' protocol {}), and who knocks speaks protocol "
                                          "{}: apctl down and apctl up start keepers of this version\n",
                                          refusal_mark, version, keeper_version, head.version));
      return false;
    }
    if (head.body_bytes == 0 || head.body_bytes > knock_bytes_max) {
      say(guest.socket.get(), fmt::format("{}what is to be started has {} bytes, and {} are possible\n", refusal_mark,
                                          head.body_bytes, knock_bytes_max));
      return false;
    }
  }
}

/// Who knows the key has said what it wants.
bool HostKeeper::take_knock(Guest& guest) {
  guest.knock = wire::decode<Knock>(std::span(guest.came).subspan(KnockHead::bytes));
  guest.came = {};
  if (!guest.knock) return false;
  switch (guest.knock->purpose) {
    case Knock::Purpose::words:
      return !guest.knock->command.empty();
    case Knock::Purpose::streams:
    case Knock::Purpose::lane:
      return true;
    case Knock::Purpose::facts:
      return answer_facts(guest);
    case Knock::Purpose::end:
      ending_ = true;
      farewells_.push_back(std::move(guest.socket));
      return false;
  }
  return false;
}

/// By one byte and its way back the guest measures the way alone: what it heard first had to open a channel of ssh's,
/// and to be found out.
bool HostKeeper::echo(const Guest& guest) {
  char byte = 0;
  const ssize_t got = ::recv(guest.socket.get(), &byte, 1, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (got == 1) static_cast<void>(::send(guest.socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  return false;
}

bool HostKeeper::answer_facts(const Guest& guest) {
  HostFacts facts = facts_of_this_host();
  facts.modules = settings_.modules;
  facts.socket = settings_.path;
  facts.keeper = static_cast<std::uint64_t>(::getpid());
  facts.runs = static_cast<std::uint32_t>(runs_.size());
  facts.started = started_;
  facts.strangers = strangers_;
  const wire::Bytes body = wire::encode(facts);
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(body.size()));
  writer.raw(body);
  const wire::Bytes& all = writer.bytes();
  return ::send(guest.socket.get(), all.data(), all.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(all.size());
}

/// Starts the runs both of whose connections are there.
void HostKeeper::join_runs() {
  for (auto words = guests_.begin(); words != guests_.end();) {
    const bool waits = words->knock && words->knock->purpose == Knock::Purpose::words;
    const auto streams = !waits ? guests_.end() : std::ranges::find_if(guests_, [&](const Guest& other) {
      return other.knock && other.knock->purpose == Knock::Purpose::streams &&
             other.knock->token == words->knock->token;
    });
    if (streams == guests_.end()) {
      ++words;
      continue;
    }
    start(*words, *streams);
    guests_.erase(streams);
    words = guests_.erase(words);
  }
}

void HostKeeper::start(Guest& words, Guest& streams) {
  last_use_ = Clock::now();
  std::array<int, 2> lanes{-1, -1};
  const bool can =
      !words.knock->takes_lanes || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lanes.data()) == 0;
  os::UniqueFd own(lanes[0]);
  const os::UniqueFd theirs(lanes[1]);
  const pid_t child = can ? ::fork() : -1;
  if (child == 0) become(*words.knock, words.socket.get(), streams.socket.get(), theirs.get());
  if (child < 0) {
    say(words.socket.get(), fmt::format("{}cannot start a process: {}\n", refusal_mark, os::process_text(errno)));
    return;
  }
  ++started_;
  runs_.push_back(
      {.group = child, .words = std::move(words.socket), .token = words.knock->token, .lanes = std::move(own)});
}

/// Passes on the lanes of runs that are there. Others wait, as guests do.
void HostKeeper::pass_lanes() {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const bool is_lane = guest->knock && guest->knock->purpose == Knock::Purpose::lane;
    const auto run = !is_lane ? runs_.end() : std::ranges::find(runs_, guest->knock->token, &Run::token);
    if (run == runs_.end()) {
      ++guest;
      continue;
    }
    // What the process does not take, or has no room for, closes.
    const std::byte nothing{};
    const int descriptor = guest->socket.get();
    static_cast<void>(
        os::send_message(run->lanes.get(), std::span(&nothing, 1), std::span(&descriptor, 1), MSG_DONTWAIT));
    guest = guests_.erase(guest);
  }
}

/// Takes leave of nodes that have ended, and of what they have left.
void HostKeeper::reap() {
  for (auto run = runs_.begin(); run != runs_.end();) {
    siginfo_t info{};
    const int rc = ::waitid(P_PID, static_cast<id_t>(run->group), &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc == 0 && info.si_pid == 0) {
      ++run;
      continue;
    }
    start::signal_tree(run->group, SIGKILL);  // its number names its tree until it is waited for
    int status = 1;
    ::waitpid(run->group, &status, 0);
    say(run->words.get(),
        fmt::format("{}{}\n", start::mark::ends, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)));
    run = runs_.erase(run);
    last_use_ = Clock::now();
  }
}

/// A node whose launcher has gone, and that does not end by itself, is ended.
void HostKeeper::look_at_runs() {
  const Clock::time_point now = Clock::now();
  for (Run& run : runs_) {
    if (!run.patience && has_gone(run.words.get())) run.patience = now + grace;
    if (!run.patience || *run.patience > now) continue;
    if (!run.was_told) {
      tell_to_end(run);
    } else {
      start::signal_tree(run.group, SIGKILL);
      run.patience = now + grace;
    }
  }
}

void HostKeeper::tell_to_end(Run& run) {
  run.was_told = true;
  run.patience = Clock::now() + grace;
  start::signal_tree(run.group, SIGTERM);
  start::signal_tree(run.group, SIGCONT);  // a stopped one takes no other signal
}

void HostKeeper::end_all() {
  settings_.listener.reset();
  if (!settings_.path.empty() && has_its_name()) ::unlink(settings_.path.c_str());
  guests_.clear();
  for (Run& run : runs_) tell_to_end(run);
  while (!runs_.empty()) {
    wait();
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    }
    reap();
    look_at_runs();
  }
}

}  // namespace aplib::launch::pool
