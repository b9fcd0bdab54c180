// SPDX-License-Identifier: MIT
// aprelay: joins processes of machines that cannot call each other. aprun starts it on the gateways that a cluster file
// names, where it serves one job (--session); a user may keep one that serves all his jobs (--serve).
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/local_socket.hpp"
#include "comm/tcp/address.hpp"
#include "relay/relay.hpp"
#include "relay/session.hpp"

namespace aplib::relay {
namespace {

namespace asio = boost::asio;

struct Command {
  bool session = false;
  bool serve = false;
  bool status = false;
  bool loopback = false;
  std::string socket;
  std::string ports;
};

[[noreturn]] void refuse(const std::string& what, int reason) {
  throw Error(Errc::failed, fmt::format("{}: {}", what, os::text_of(reason)));
}

/// A folder of this user alone, for the sockets of a standing relay; made where it is missing.
std::string own_folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = runtime != nullptr && *runtime == '/' ? fmt::format("{}/aplib", runtime)
                                                                   : fmt::format("/tmp/aplib-{}", ::getuid());
  struct stat is {};
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) refuse("cannot make " + folder, errno);
  if (::lstat(folder.c_str(), &is) != 0) refuse(folder, errno);
  if (!S_ISDIR(is.st_mode) || is.st_uid != ::getuid() || (is.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(Errc::failed, folder + " is not a folder of this user alone: remove it, or set XDG_RUNTIME_DIR");
  }
  return folder;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) throw Error(Errc::bad_argument, path + ": too long for a socket");
  std::ranges::copy(path, address.sun_path);
  return address;
}

/// Nothing: nobody listens there.
std::optional<os::UniqueFd> connect_local(const std::string& path) {
  const sockaddr_un address = address_of(path);
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return std::nullopt;
  return socket;
}

/// Begins the names of the sockets that aprun asks for.
constexpr std::string_view session_prefix = "aplib-relay-";

/// No process has that socket any more. One that has it does not notice the question, because of the socket's type.
bool is_dead(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const os::UniqueFd asking(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return asking && ::connect(asking.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         (errno == ECONNREFUSED || errno == ENOENT);
}

/// Removes those of the folder that aprelays of this user have left there when they were killed.
void remove_dead_sockets(const std::filesystem::path& folder) {
  std::vector<std::string> dead;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    struct stat is {};
    if (!entry->path().filename().string().starts_with(session_prefix) || ::lstat(path.c_str(), &is) != 0) continue;
    const bool is_ours = is.st_uid == ::getuid() && (S_ISSOCK(is.st_mode) || S_ISLNK(is.st_mode));
    if (is_ours && path.size() < sizeof(sockaddr_un::sun_path) && is_dead(path)) dead.push_back(path);
  }
  for (const std::string& path : dead) ::unlink(path.c_str());
}

/// Removed with it.
class LocalListener {
 public:
  explicit LocalListener(std::string path)
      : path_(std::move(path)), socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (!socket_) os::refuse_descriptor("a local socket");
    const sockaddr_un address = address_of(path_);
    const mode_t before = ::umask(S_IRWXG | S_IRWXO);
    const bool bound = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const int reason = errno;
    ::umask(before);
    if (!bound) refuse("cannot listen at " + path_, reason);
    if (::listen(socket_.get(), SOMAXCONN) != 0) refuse("cannot listen at " + path_, errno);
  }
  ~LocalListener() { ::unlink(path_.c_str()); }
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;
  [[nodiscard]] os::UniqueFd release() { return std::move(socket_); }

 private:
  const std::string path_;
  os::UniqueFd socket_;
};

/// The addresses at which others may reach a port of this host.
std::string endpoints_text(const std::string& listening, bool loopback) {
  const auto endpoint = comm::tcp::parse_endpoint(listening);
  const unsigned port = endpoint ? endpoint->port() : 0;
  if (loopback) return fmt::format("127.0.0.1:{}", port);
  // Also those of bridges: who calls there proves that he means this relay.
  std::string text;
  for (const comm::tcp::HostAddress& own : comm::tcp::host_addresses()) {
    if (own.address.starts_with("127.") || own.address == "::1" || own.address.starts_with("fe80")) continue;
    const bool six = own.address.find(':') != own.address.npos;
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", six ? "[" + own.address + "]" : own.address, port);
  }
  return text.empty() ? fmt::format("127.0.0.1:{}", port) : text;
}

comm::tcp::Listener listen_everywhere(const Command& command) {
  if (command.loopback) return {"127.0.0.1", command.ports};
  try {
    return {"::", command.ports};
  } catch (const Error&) {
    return {"0.0.0.0", command.ports};
  }
}

/// Passes lines on between standard input and output and a relay that stands.
int attach(const os::UniqueFd& relay) {
  const auto copy = [](int from, int to) {
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(from, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    for (ssize_t at = 0; at < got;) {
      const ssize_t put = ::write(to, bytes.data() + at, static_cast<std::size_t>(got - at));
      if (put < 0 && errno != EINTR) return false;
      at += std::max<ssize_t>(put, 0);
    }
    return true;
  };
  for (;;) {
    std::array<pollfd, 2> two{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{relay.get(), POLLIN, 0}};
    if (::poll(two.data(), two.size(), -1) < 0) continue;
    if (two[0].revents != 0 && !copy(STDIN_FILENO, relay.get())) return 0;
    if (two[1].revents != 0 && !copy(relay.get(), STDOUT_FILENO)) return 1;
  }
}

/// For people.
int show_status() {
  const auto relay = connect_local(own_folder() + "/relay");
  if (!relay) throw Error(Errc::failed, "no relay of this user stands on this host: aprelay --serve starts one");
  constexpr std::string_view question = "status\n";
  static_cast<void>(os::send_all(relay->get(), std::as_bytes(std::span(question))));
  std::string text;
  std::array<char, 4096> bytes;
  while (text.find("aprelay end\n") == text.npos) {
    const ssize_t got = ::read(relay->get(), bytes.data(), bytes.size());
    if (got <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
  if (text.find("aprelay end\n") == text.npos) {
    throw Error(
        Errc::failed,
        "the relay of this user on this host gave no whole answer: it has ended, or has no open files left; try "
        "again, and if that does not help, start it anew, with a higher limit (ulimit -n)");
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end == text.npos ? text.size() : end + 1;
    line.remove_prefix(std::min<std::size_t>(line.size(), std::string_view("aprelay ").size()));
    if (line.starts_with("count ")) line.remove_prefix(std::string_view("count ").size());
    if (line != "end") std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  }
  return 0;
}

constexpr std::chrono::milliseconds accept_again_after{100};

/// Sessions of a standing relay.
class Desk {
 public:
  Desk(asio::io_context& io, Relay& relay, std::string ready, os::UniqueFd listening)
      : io_(io), relay_(relay), ready_(std::move(ready)), listening_(io, Protocol(), listening.get()), pause_(io) {
    static_cast<void>(listening.release());
    wait();
  }

 private:
  using Protocol = asio::local::stream_protocol;

  void wait() {
    listening_.async_wait(Protocol::acceptor::wait_read, [this](const boost::system::error_code& error) {
      if (error) return;
      if (accept()) return wait();
      pause_.expires_after(accept_again_after);
      pause_.async_wait([this](const boost::system::error_code& over) {
        if (!over) wait();
      });
    });
  }

  /// False: no descriptor is left for who waits.
  bool accept() {
    os::UniqueFd socket(::accept4(listening_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return errno != EMFILE && errno != ENFILE;
    const auto who = os::peer_of(socket.get());
    if (!who || who->uid != ::getuid()) return true;
    os::UniqueFd copy(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return false;
    const auto place = sessions_.emplace(sessions_.end());
    *place = std::make_unique<Session>(io_, relay_, os::Ends{std::move(socket), std::move(copy)}, ready_,
                                       [this, place] { sessions_.erase(place); });
    return true;
  }

  asio::io_context& io_;
  Relay& relay_;
  const std::string ready_;
  Protocol::acceptor listening_;
  asio::steady_timer pause_;
  std::list<std::unique_ptr<Session>> sessions_;
};

/// As far as the system allows. The usual limit is meant for one program, and strangers' connections are files, too.
void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int serve(const Command& command) {
  allow_many_files();
  asio::io_context io{1};
  Relay relay(io);
  comm::tcp::Listener listener = listen_everywhere(command);
  const std::string ready = endpoints_text(listener.endpoint(), command.loopback);
  relay.listen(listener.release());
  std::optional<LocalListener> local;
  std::optional<LocalListener> control;
  std::optional<Desk> desk;
  std::optional<Session> session;
  if (command.serve) {
    const std::string folder = own_folder();
    if (connect_local(folder + "/relay")) throw Error(Errc::failed, "a relay of this user stands on this host already");
    for (const char* const name : {"/relay", "/relay-data"}) ::unlink((folder + name).c_str());
    local.emplace(folder + "/relay-data");
    control.emplace(folder + "/relay");
    desk.emplace(io, relay, ready, control->release());
    std::printf("aprelay: ready at %s\n", ready.c_str());
    std::fflush(stdout);
  } else {
    if (!command.socket.empty()) local.emplace(command.socket);
    os::Ends streams{os::UniqueFd(::dup(STDIN_FILENO)), os::UniqueFd(::dup(STDOUT_FILENO))};
    if (!streams.reader || !streams.writer) os::refuse_descriptor("copies of its streams");
    session.emplace(io, relay, std::move(streams), ready, [&io] { io.stop(); });
  }
  if (local) relay.listen(local->release());
  asio::signal_set signals(io, SIGTERM, SIGINT, SIGHUP);
  signals.async_wait([&io](const boost::system::error_code& error, int) {
    if (!error) io.stop();
  });
  io.run();
  return 0;
}

/// The sockets' path leads to the standing relay's while this lives.
class Signpost {
 public:
  Signpost(std::string path, const std::string& to) : path_(std::move(path)) {
    if (!path_.empty() && ::symlink(to.c_str(), path_.c_str()) != 0) refuse("cannot make " + path_, errno);
  }
  ~Signpost() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Signpost(const Signpost&) = delete;
  Signpost& operator=(const Signpost&) = delete;

 private:
  const std::string path_;
};

int run(const Command& command) {
  std::signal(SIGPIPE, SIG_IGN);
  if (command.status) return show_status();
  if (!command.socket.empty()) remove_dead_sockets(std::filesystem::path(command.socket).parent_path());
  if (command.session && !command.loopback) {
    const std::string folder = own_folder();
    if (const auto relay = connect_local(folder + "/relay")) {
      const Signpost signpost(command.socket, folder + "/relay-data");
      return attach(*relay);
    }
  }
  return serve(command);
}

}  // namespace
}  // namespace aplib::relay

int main(int argc, char** argv) {
  aplib::relay::Command command;
  CLI::App app{"aprelay: joins processes of APlib machines that cannot call each other."};
  app.set_version_flag("--version", std::string("aprelay (APlib) ") + aplib::version);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("aprelay: {}\nRun with --help for more information.\n", error.what());
  });
  auto* const what = app.add_option_group("what");
  what->add_flag("--serve", command.serve, "Stands for all jobs of this user, until it is ended.");
  what->add_flag("--session", command.session, "For one job, which speaks on standard input: what aprun starts.");
  what->add_flag("--status", command.status, "Shows the counters and pairs of the relay that stands here.");
  what->require_option(1);
  app.add_option("--ports", command.ports, "FIRST-LAST: ports to listen on; else the system chooses.");
  app.add_option("--socket", command.socket, "With --session: a local socket to listen on as well.");
  app.add_flag("--loopback", command.loopback, "Listens for processes of this computer alone.");
  CLI11_PARSE(app, argc, argv);
  try {
    return aplib::relay::run(command);
  } catch (const boost::system::system_error& error) {
    std::fprintf(stderr, "aprelay: cannot wait for events: %s\n", aplib::os::text_of(error.code().value()).c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "aprelay: %s\n", error.what());
    return 2;
  }
}
