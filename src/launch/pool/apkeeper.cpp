// SPDX-License-Identifier: MIT
// apkeeper: stands on a host of a pool and starts nodes for the pool's user. apctl up starts it by ssh, or systemd by
// its socket. docs/pool.md says what it does.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/own_folder.hpp"
#include "base/os/thread.hpp"
#include "base/text.hpp"
#include "comm/job_key.hpp"
#include "launch/cluster/speed.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/files/manifest.hpp"
#include "launch/pool/file_passer.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/keeper.hpp"
#include "launch/pool/keeper_address.hpp"
#include "launch/start/child.hpp"
#include "launch/terminal.hpp"
#include "launch/this_host.hpp"

namespace aplib::launch::pool {
namespace {

using namespace std::chrono_literals;

constexpr int first_passed = 3;      // of systemd's descriptors
constexpr auto list_patience = 10s;  // libfabric may look for long

struct Asked {
  std::string id;
  bool stays = false;    ///< In this process, which is a part of a batch job.
  std::string key_file;  ///< Empty: the key comes on standard input.
  std::chrono::seconds idle{0};
};

constexpr std::string_view usage =
    "apkeeper is for apctl up, which starts it on each host of a pool, and for systemd: apkeeper --pool ID | --step ID "
    "| --key FILE [--idle SECONDS]";

Asked read_words(int argc, char** argv) {
  Asked asked;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string value = argv[i + 1];
    const auto seconds = text::parse_number(value);
    if ((name == "--pool" || name == "--step") && !value.empty() && value.find('/') == value.npos) {
      asked.id = value;
      asked.stays = name == "--step";
    } else if (name == "--key") {
      asked.key_file = value;
    } else if (name == "--idle" && seconds) {
      asked.idle = std::chrono::seconds(*seconds);
    } else {
      throw Error(Errc::bad_argument, fmt::format("{} {}: {}", name, value, usage));
    }
  }
  if (asked.id.empty() == asked.key_file.empty()) throw Error(Errc::bad_argument, std::string(usage));
  return asked;
}

comm::JobKey read_key(const std::string& file) {
  std::string line;
  char c = 0;
  os::UniqueFd opened;
  if (!file.empty()) opened.reset(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const int from = file.empty() ? STDIN_FILENO : opened.get();
  while (line.size() < 2 * comm::JobKey::size + 2 && ::read(from, &c, 1) == 1 && c != '\n') line += c;
  const auto key = comm::JobKey::from_hex(line);
  comm::wipe(std::as_writable_bytes(std::span(line)));
  if (!key) {
    throw Error(Errc::bad_argument,
                file.empty() ? "no key came on standard input: apctl up starts keepers"
                             : fmt::format("{}: no key is in it: write 64 hexadecimal digits, as of `openssl rand -hex "
                                           "32`, and let nobody else read it",
                                           file));
  }
  return *key;
}

/// `--receive FOLDER refuse|replace`, `--serve PATTERN [NAMES]`: one end of a transfer of files (apctl put, get), at
/// the standard streams; NAMES: what is in the other end's folder. `--pass FOLDER refuse|replace home|here ADDRESS
/// PORTS`: the same, and from host to host; FOLDER is relative to the user's home, or to the current folder. Whatever
/// goes wrong stands on standard error.
int carry_files(std::span<char* const> words) {
  os::Ends ends{os::UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
                os::UniqueFd(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3))};
  const char* const home = std::getenv("HOME");
  const bool passes = words[1] == std::string_view("--pass") && words.size() == 7;
  if (home != nullptr && !(passes && words[4] == std::string_view("here"))) static_cast<void>(::chdir(home));
  const std::string host = describe_this_host().host_id;
  PassedLanes lanes{os::UniqueFd(::fcntl(lanes_descriptor, F_DUPFD_CLOEXEC, 3))};
  std::vector<std::string> problems;
  const bool replaces = words.size() > 3 && words[3] == std::string_view("replace");
  const files::Receiver::Settings settings{.folder = words[2],
                                           .existing = replaces ? files::Existing::replace : files::Existing::refuse,
                                           .resume = true,
                                           .host = host};
  if (passes) {
    problems = FilePasser({.receiver = settings, .address = words[5], .ports = words[6]}, ends, lanes).run();
  } else if (words[1] == std::string_view("--receive")) {
    files::Receiver receiver(settings);
    problems = carry(receiver, ends, &lanes);
  } else {
    const std::vector<files::Source> sources = files::matches(words[2]);
    if (sources.empty()) problems.push_back(fmt::format("no file here is a {}", files::shown(words[2])));
    const auto manifest = std::make_shared<files::Manifest>(files::gather(sources, host));
    // To ask what is there takes a round trip.
    const bool pushes = words.size() > 3 && files::all_are_new(*manifest, words[3]);
    files::Sender sender(manifest, {.pushes = pushes});
    static_cast<void>(carry(sender, ends, &lanes));  // what goes wrong, the other end says
  }
  for (const std::string& problem : problems) tell_user("", problem);
  return problems.empty() ? 0 : 1;
}

/// `--speed KIND NUMBER COMMAND THREADS`: prints how fast this host is, as for cells = "auto".
int tell_speed(std::span<char* const> words) {
  using Kind = cluster::Speed::Kind;
  const auto kind = text::parse_number(words[2]);
  if (words.size() != 6 || !kind || *kind > static_cast<std::uint64_t>(Kind::command))
    throw Error(Errc::bad_argument, "--speed is for apctl hosts: are apctl and apkeeper of the same installation?");
  const cluster::Speed speed{
      .kind = static_cast<Kind>(*kind), .number = std::strtod(words[3], nullptr), .command = words[4]};
  return print("apkeeper", fmt::format("{}\n", cluster::measure_host(speed, words[5], true).speed));
}

/// The descriptor that systemd has passed.
std::optional<int> passed_listener() {
  const char* const count = std::getenv("LISTEN_FDS");
  const char* const process = std::getenv("LISTEN_PID");
  if (count == nullptr || process == nullptr || fmt::format("{}", ::getpid()) != process) return std::nullopt;
  if (std::string_view(count) != "1") return std::nullopt;
  for (const char* name : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) ::unsetenv(name);
  ::fcntl(first_passed, F_SETFD, FD_CLOEXEC);
  ::fcntl(first_passed, F_SETFL, O_NONBLOCK);
  return first_passed;
}

/// Only a module itself knows whether it can be used here, and loading one costs memory for as long as a keeper stands;
/// so aprun asks them.
std::vector<std::string> usable_modules() {
  std::vector<std::string> usable;
  try {
    const std::filesystem::path folder = std::filesystem::path(os::own_program()).parent_path();
    const start::CommandEnd end = start::run_command({(folder / "aprun").string(), "--list-modules"}, list_patience);
    std::istringstream lines(end.output);
    for (std::string line; std::getline(lines, line) && line.find(": ") == line.npos;)
      if (line.find("  usable  ") != line.npos) usable.push_back(line.substr(0, line.find(' ')));
  } catch (const Error&) {  // a host without aprun beside its keeper: its first node says so
  }
  std::ranges::sort(usable);
  return usable;
}

void go_home() {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || ::chdir(home) != 0) static_cast<void>(::chdir("/"));
}

/// The caller's process goes on as a daemon, with no file open but `kept`.
void become_daemon(int kept) {
  ::setsid();
  go_home();
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, fd);
  for (int fd = 3; fd < 1024; ++fd)
    if (fd != kept) ::close(fd);
}

int run(int argc, char** argv) {
  const std::string_view first = argc > 2 ? argv[1] : "";
  if (first == "--receive" || first == "--pass" || first == "--serve")
    return carry_files({argv, static_cast<std::size_t>(argc)});
  if (first == "--speed") return tell_speed({argv, static_cast<std::size_t>(argc)});
  Asked asked = read_words(argc, argv);
  HostKeeper::Settings settings{.key = read_key(asked.key_file), .idle = asked.idle};
  if (asked.id.empty()) {
    const auto listener = passed_listener();
    if (!listener) throw Error(Errc::bad_argument, "--key is for systemd, which passes a socket: see apkeeper.socket");
    settings.listener.reset(*listener);
    settings.modules = usable_modules();
    HostKeeper(std::move(settings)).run();
    return 0;
  }
  settings.path = keeper_socket(asked.id);
  const auto say_it_stands = [&] { tell_user("", fmt::format("{}{}", stands_mark, settings.path)); };
  if (facts_of({settings.path, settings.key}).facts) {
    say_it_stands();
    return 0;
  }
  settings.modules = usable_modules();
  ctl::forget_dead_jobs(ctl::registry_folder());
  const ctl::RegistrySocket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const mode_t usual = ::umask(0177);  // nodes have the user's own
  const bool listens = socket.listen(settings.path) == 0;
  ::umask(usual);
  if (!listens) {
    throw Error(Errc::failed, fmt::format("cannot listen at {}: {}", settings.path, os::text_of(errno)));
  }
  const auto stand = [&] {
    settings.listener.reset(::fcntl(socket.descriptor(), F_DUPFD_CLOEXEC, 3));
    HostKeeper(std::move(settings)).run();
    return 0;
  };
  if (asked.stays) {
    say_it_stands();
    go_home();
    return stand();
  }
  os::Pipe settled = os::Pipe::make();
  const pid_t child = ::fork();
  if (child < 0) {
    throw Error(Errc::exhausted, fmt::format("cannot start a process of its own: {}", os::process_text(errno)));
  }
  if (child > 0) {
    settled.writer.reset();
    char nothing = 0;
    // Who has started this process ends what it leaves in its group, from which the keeper has parted then.
    while (::read(settled.reader.get(), &nothing, 1) < 0 && errno == EINTR) {
    }
    say_it_stands();
    ::_exit(0);
  }
  settled.reader.reset();
  become_daemon(socket.descriptor());
  static_cast<void>(settled.writer.release());  // closed already
  return stand();
}

}  // namespace
}  // namespace aplib::launch::pool

int main(int argc, char** argv) {
  using aplib::launch::tell_user;
  aplib::launch::open_standard_streams();
  if (argc == 2 && std::string_view(argv[1]) == "--version")
    return aplib::launch::print("apkeeper", fmt::format("apkeeper (APlib) {}\n", aplib::version));
  // They tell Debian's bash that sshd has started it, and then it reads ~/.bashrc though it is to run one command. What
  // a keeper starts is no login.
  for (const char* name : {"SSH_CLIENT", "SSH2_CLIENT"}) ::unsetenv(name);
  try {
    return aplib::launch::pool::run(argc, argv);
  } catch (const std::exception& error) {
    tell_user("apkeeper", aplib::launch::failure_text(error));
    return 2;
  }
}
