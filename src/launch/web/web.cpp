// SPDX-License-Identifier: MIT
#include "launch/web/web.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"
#include "comm/job_key.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/terminal.hpp"
#include "launch/web/http_server.hpp"
#include "launch/web/watcher.hpp"
#include "launch/wire/event_loop.hpp"

namespace aplib::launch::web {

extern const char page_text[];  // page.html

namespace {

using Clock = std::chrono::steady_clock;

/// However many ask, the state is put into words so often.
constexpr std::chrono::milliseconds state_stays{200};
/// Stands in the page where a word is to come that nobody else can know.
constexpr std::string_view nonce_mark = "@NONCE@";

std::string system_text() { return os::text_of(errno); }

std::string random_word() {
  std::array<std::byte, 16> bytes{};
  comm::fill_random(bytes);
  std::string word;
  for (const std::byte byte : bytes) word += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return word;
}

/// Whether a browser has looked for this computer by a name that is always its own. A page of others that has its own
/// name lead here (DNS rebinding) sends that name. The port may differ: ssh forwards from others.
bool is_own_name(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon != host.npos && host.find(']', colon) == host.npos) {
    if (!text::parse_number(host.substr(colon + 1))) return false;
    host = host.substr(0, colon);
  }
  return text::equal_ignoring_case(host, "localhost") || host == "127.0.0.1" || host == "[::1]";
}

bool is_token(std::string_view word, std::string_view token) {
  return word.size() == token.size() &&
         comm::equal_in_constant_time(std::as_bytes(std::span(word)), std::as_bytes(std::span(token)));
}

HttpResponse said(unsigned status, const std::string& text) {
  return {.status = status, .body = std::make_shared<std::string>(fmt::format("{}: {}\n", status, text))};
}

/// What is behind "name=" in a query.
std::optional<std::uint64_t> number_in(std::string_view query, std::string_view name) {
  if (!query.starts_with(name) || query.substr(name.size(), 1) != "=") return std::nullopt;
  return text::parse_number(query.substr(name.size() + 1));
}

class Page {
 public:
  Page(Watcher& watcher, bool control) : watcher_(watcher), control_(control) {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) == 0) computer_ = name.data();
  }

  [[nodiscard]] const std::string& token() const noexcept { return token_; }

  void count_refused() noexcept {
    ++refused_;
    state_.reset();  // it has the number
  }

  HttpResponse answer(const HttpRequest& request) {
    if (!is_own_name(request.host)) {
      count_refused();
      return said(403, "this page is at localhost or 127.0.0.1, and at no other name");
    }
    const std::string_view target = request.target;
    const std::size_t slash = target.find('/', 1);
    if (!target.starts_with('/') || slash == target.npos || !is_token(target.substr(1, slash - 1), token_)) {
      count_refused();
      return said(403, "the address lacks the right token: use the whole address that apctl web has printed");
    }
    HttpResponse response = answer(request, target.substr(slash + 1));
    response.trusted = true;
    return response;
  }

 private:
  HttpResponse answer(const HttpRequest& request, std::string_view path) {
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (path.empty()) return reads ? page() : said(405, "this address is for GET");
    const bool is_other_site = !request.site.empty() && request.site != "same-origin" && request.site != "none";
    const bool is_other_origin = !request.origin.empty() && request.origin != "http://" + request.host;
    if (is_other_site || is_other_origin) {
      count_refused();
      return said(403, "another site's page has asked for this");
    }
    if (path == "state.json") return reads ? state() : said(405, "this address is for GET");
    if (path.starts_with("stop?")) return request.method == "POST" ? stop(path.substr(5)) : said(405, "use POST");
    return said(404, "there is no such page");
  }

  /// Its only script and style are its own: others' words in it, such as names of programs, cannot become one.
  static HttpResponse page() {
    const std::string nonce = random_word();
    std::string text = page_text;
    for (std::size_t at = text.find(nonce_mark); at != text.npos; at = text.find(nonce_mark, at))
      text.replace(at, nonce_mark.size(), nonce);
    return {.type = "text/html; charset=utf-8",
            .body = std::make_shared<std::string>(std::move(text)),
            .policy = fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; "
                                  "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                                  "frame-ancestors 'none'",
                                  nonce)};
  }

  HttpResponse state() {
    const auto now = Clock::now();
    if (state_ == nullptr || now - state_at_ >= state_stays) {
      const double time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      state_ = std::make_shared<std::string>(
          fmt::format(R"({{"version":1,"computer":{},"time":{:.3f},"refused":{},"control":{},{}}})",
                      text::json_string(computer_), time, refused_, control_, watcher_.state()));
      state_at_ = now;
    }
    return {.type = "application/json", .body = state_};
  }

  HttpResponse stop(std::string_view query) {
    if (!control_) return said(403, "this page only shows: apctl web --control makes one that may end machines");
    const auto job = number_in(query, "job");
    if (job && *job <= UINT32_MAX && watcher_.stop_machine(static_cast<std::uint32_t>(*job)))
      return said(202, "the machine has been told to end");
    constexpr std::string_view farm = "farm=";
    if (query.starts_with(farm) && watcher_.stop_farm(query.substr(farm.size())))
      return said(202, "the farm has been told to end");
    return said(404, "there is no such machine now, and no such apfarm");
  }

  Watcher& watcher_;
  const bool control_;
  const std::string token_ = random_word();
  std::string computer_;
  std::uint64_t refused_ = 0;
  std::shared_ptr<const std::string> state_;
  Clock::time_point state_at_{};
};

struct Listener {
  os::UniqueFd socket;
  std::uint16_t port = 0;
};

Listener listen_on_loopback(std::uint16_t port) {
  Listener made{.socket = os::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  if (!made.socket) os::refuse_descriptor("a socket for the page");
  const int on = 1;
  ::setsockopt(made.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (::bind(made.socket.get(), plain, bytes) != 0 || ::listen(made.socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(made.socket.get(), plain, &bytes) != 0) {
    throw Error(Errc::failed, fmt::format("cannot listen at 127.0.0.1, port {}: {}{}", port, system_text(),
                                          port != 0 ? "; use another one, or none" : ""));
  }
  made.port = ntohs(address.sin_port);
  return made;
}

/// The socket of a Unix address, for this user alone, as long as this object lives.
class SocketFile {
 public:
  explicit SocketFile(std::string path) : path_(std::move(path)), socket_(ctl::RegistrySocket::make()) {
    struct stat there {};
    if (::lstat(path_.c_str(), &there) == 0) {
      const bool lives = S_ISSOCK(there.st_mode) && ctl::RegistrySocket::make().connect(path_) == 0;
      if (!S_ISSOCK(there.st_mode) || lives) {
        throw Error(Errc::failed, fmt::format("{}: {}; name another path", path_,
                                              lives ? "somebody listens there" : "a file that is no socket is there"));
      }
    }
    const mode_t before = ::umask(0077);
    const int result = socket_.listen(path_);
    const int error = errno;
    ::umask(before);
    errno = error;
    if (result != 0) {
      throw Error(Errc::failed, fmt::format("cannot listen at {}: {}; nothing may have that name with .new behind it",
                                            path_, system_text()));
    }
  }
  ~SocketFile() { ::unlink(path_.c_str()); }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  [[nodiscard]] os::UniqueFd copy() const { return os::UniqueFd(::fcntl(socket_.descriptor(), F_DUPFD_CLOEXEC, 3)); }

 private:
  std::string path_;
  ctl::RegistrySocket socket_;
};

}  // namespace

int serve_page(const WebOptions& options, const std::string& folder) {
  wire::EventLoop loop;
  boost::asio::signal_set signals(loop.io(), SIGINT, SIGTERM, SIGHUP);
  signals.async_wait([&loop](const boost::system::error_code& error, int) {
    if (!error) loop.stop();
  });
  Watcher watcher(loop, folder);
  Page page(watcher, options.control);
  std::optional<SocketFile> file;
  Listener listener;
  std::string where;
  if (options.socket.empty()) {
    listener = listen_on_loopback(options.port);
    where = fmt::format("http://127.0.0.1:{}/{}/\n", listener.port, page.token());
  } else {
    file.emplace(options.socket);
    listener.socket = file->copy();
    where = fmt::format("http://localhost/{}/ at {}\n", page.token(), options.socket);
  }
  const HttpServer server(loop, std::move(listener.socket), file ? AF_UNIX : AF_INET,
                          {.request = [&page](const HttpRequest& request) { return page.answer(request); },
                           .malformed = [&page] { page.count_refused(); }});
  if (const int status = print("apctl", where); status != 0) return status;
  loop.run();
  return 0;
}

}  // namespace aplib::launch::web
