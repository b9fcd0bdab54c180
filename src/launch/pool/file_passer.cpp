// SPDX-License-Identifier: MIT
#include "launch/pool/file_passer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "aplib/error.hpp"
#include "comm/tcp/address.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto reach_patience = 3s;
constexpr auto silence_max = 10s;  // a host that does not answer for so long is dead
constexpr std::size_t children_max = 64;

comm::Introduction introduction() {
  return {.secure = comm::Secure::tls, .purpose = comm::Purpose::files, .machine = "files"};
}

/// One for all connections of this process.
const comm::TlsContext& tls_context() {
  static const comm::TlsContext context;
  return context;
}

}  // namespace

PeerLink::PeerLink(const std::string& place, const comm::JobKey& key)
    : greeting_(comm::Greeting::Role::caller, key, introduction()),
      answers_(false),
      connected_(false),
      until_(Clock::now() + reach_patience) {
  const auto endpoint = comm::tcp::parse_endpoint(place);
  if (!endpoint) throw Error(Errc::bad_argument, fmt::format("{}: not an address with a port", place));
  socket_.reset(::socket(endpoint->protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) os::refuse_descriptor("a connection to another host");
  comm::tcp::prepare_socket(socket_.get(), silence_max);
  // Whether it fails, connect() hears.
  static_cast<void>(::connect(socket_.get(), endpoint->data(), static_cast<socklen_t>(endpoint->size())));
}

PeerLink::PeerLink(os::UniqueFd socket, const comm::JobKey& key)
    : socket_(std::move(socket)),
      greeting_(comm::Greeting::Role::answerer, key, introduction()),
      answers_(true),
      connected_(true),
      wants_to_write_(false),
      until_(Clock::now() + comm::Greeting::time_max) {
  comm::tcp::prepare_socket(socket_.get(), silence_max);
}

PeerLink::~PeerLink() = default;

pollfd PeerLink::wait() const { return {socket_.get(), static_cast<short>(wants_to_write_ ? POLLOUT : POLLIN), 0}; }

PeerLink::State PeerLink::work() {
  if (Clock::now() >= until_) return State::failed;
  if (!connected_) {
    const State state = connect();
    if (state != State::ready) return state;
  }
  if (!tls_) {
    const State state = greet();
    if (state != State::ready) return state;
  }
  return encrypt();
}

PeerLink::State PeerLink::connect() {
  pollfd wait{socket_.get(), POLLOUT, 0};
  if (::poll(&wait, 1, 0) <= 0) return State::going;
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) return State::failed;
  connected_ = true;
  until_ = Clock::now() + comm::Greeting::time_max;
  return State::ready;
}

/// A stranger does not get a byte: Greeting sees to that.
PeerLink::State PeerLink::greet() {
  using Greeted = comm::Greeting::State;
  std::array<std::byte, comm::Greeting::bytes_max> came;
  for (;;) {
    if (sent_ == output_.size()) {
      output_ = greeting_.take_output();
      sent_ = 0;
    }
    while (sent_ < output_.size()) {
      const ssize_t sent = ::send(socket_.get(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      wants_to_write_ = sent < 0;
      if (sent < 0) return errno == EAGAIN ? State::going : State::failed;
      sent_ += static_cast<std::size_t>(sent);
    }
    wants_to_write_ = false;
    if (greeting_.state() != Greeted::going) break;
    const ssize_t got = ::recv(socket_.get(), came.data(), std::min(came.size(), greeting_.wants()), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 && errno == EAGAIN ? State::going : State::failed;
    greeting_.receive(std::span(came).first(static_cast<std::size_t>(got)));
  }
  if (greeting_.state() != Greeted::done) return State::failed;
  tls_.reset(comm::make_tls_on_socket(tls_context().native(), socket_.get()));
  comm::set_tls_secret(tls_.get(), greeting_.secret());
  return State::ready;
}

PeerLink::State PeerLink::encrypt() {
  switch (comm::shake_hands(tls_.get(), answers_)) {
    case comm::TlsStep::done:
      return comm::tls_by_secret(tls_.get()) ? State::ready : State::failed;
    case comm::TlsStep::waits_to_read:
      wants_to_write_ = false;
      return State::going;
    case comm::TlsStep::waits_to_write:
      wants_to_write_ = true;
      return State::going;
    case comm::TlsStep::failed:
      break;
  }
  return State::failed;
}

std::unique_ptr<comm::tcp::Stream> PeerLink::take() {
  comm::tcp::prepare_for_frames(socket_.get());
  return std::make_unique<comm::tcp::Stream>(socket_.release(), tls_.release());
}

FilePasser::FilePasser(Settings settings, os::Ends& launcher, LaneSource& lanes)
    : settings_(std::move(settings)), launcher_(launcher), lanes_(lanes) {
  settings_.receiver.arrivals = &arrivals_;
  for (const int fd : {launcher_.reader.get(), launcher_.writer.get()})
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/// Where it cannot, it passes nothing on.
void FilePasser::listen() {
  const char* const connection = std::getenv("SSH_CONNECTION");  // "CLIENT PORT SERVER PORT"
  std::istringstream words(connection == nullptr ? "" : connection);
  std::string called;
  for (int i = 0; i < 3; ++i) words >> called;
  for (const std::string& address : {settings_.address, called}) {
    try {
      comm::tcp::Listener listener(address, settings_.ports);
      place_ = listener.endpoint();
      listener_ = listener.release();
      ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
      return;
    } catch (const Error&) {
    }
  }
}

std::vector<std::string> FilePasser::run() {
  listen();
  say(place_.empty() ? std::string(passer_at) : fmt::format("{} {}", passer_at, place_));
  while (open_) {
    wait();
    if (source_ != Source::launcher || has_all_) hear();
    work_source();
    accept();
    std::erase_if(children_, [this](Child& child) { return !work_child(child); });
  }
  return problems_;
}

/// A line is short: the stream takes it, unless it is broken.
void FilePasser::say(std::string_view word) {
  const std::string line = fmt::format("{}\n", word);
  if (!os::write_all(launcher_.writer.get(), line)) open_ = false;
}

/// Byte by byte: what follows the last line is the transfer's.
void FilePasser::hear() {
  while (open_ && (source_ != Source::launcher || has_all_)) {
    char c = 0;
    const ssize_t got = ::read(launcher_.reader.get(), &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0 || line_.size() > passer_line_max) {
      open_ = false;
    } else if (c != '\n') {
      line_ += c;
    } else if (!has_all_) {
      obey(std::exchange(line_, {}));
    }
  }
}

void FilePasser::obey(const std::string& line) {
  if (!key_) {
    key_ = comm::JobKey::from_hex(line);
    open_ = key_.has_value();
    return;
  }
  receiver_.emplace(settings_.receiver);
  if (line == passer_here) {
    source_ = Source::launcher;
    carrier_.emplace(*receiver_, launcher_, &lanes_);
    return;
  }
  source_ = Source::host;
  try {
    link_ = std::make_unique<PeerLink>(line.substr(std::min(line.size(), passer_from.size() + 1)), *key_);
  } catch (const Error&) {
    end_source(passer_unreached);
  }
}

void FilePasser::wait() {
  std::vector<pollfd> waits;
  if (source_ != Source::launcher || has_all_) waits.push_back({launcher_.reader.get(), POLLIN, 0});
  if (key_ && listener_) waits.push_back({listener_.get(), POLLIN, 0});
  int patience = -1;
  const auto sooner = [&patience](int time) {
    if (time >= 0) patience = patience < 0 ? time : std::min(patience, time);
  };
  const auto look_at = [&](const PeerLink& link) {
    waits.push_back(link.wait());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(link.until() - Clock::now());
    sooner(static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  };
  if (link_) look_at(*link_);
  if (carrier_) {
    carrier_->add_waits(waits);
    sooner(carrier_->patience());
  }
  for (const Child& child : children_) {
    if (child.link) look_at(*child.link);
    if (!child.carrier) continue;
    child.carrier->add_waits(waits);
    sooner(child.carrier->patience());
  }
  ::poll(waits.data(), waits.size(), patience);
}

void FilePasser::work_source() {
  if (link_) {
    const PeerLink::State state = link_->work();
    if (state == PeerLink::State::going) return;
    if (state == PeerLink::State::failed) return end_source(passer_unreached);
    carrier_.emplace(*receiver_, link_->take());
    link_.reset();
  }
  if (!carrier_ || carrier_->work({})) return;
  if (source_ == Source::launcher) {
    problems_ = carrier_->problems();
    return end_source({});
  }
  const bool all_well = receiver_->ended() && carrier_->problems().empty();
  end_source(all_well ? passer_got : receiver_->ended() ? passer_own : passer_cut);
}

void FilePasser::end_source(std::string_view word) {
  has_all_ = source_ == Source::launcher || word == passer_got;
  link_.reset();
  carrier_.reset();
  receiver_.reset();
  if (has_all_) arrivals_.end();
  if (!word.empty()) say(word);
}

void FilePasser::accept() {
  while (key_ && listener_) {
    os::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    // Of those who have proved nothing yet, the oldest goes.
    if (children_.size() >= children_max) {
      const auto oldest = std::ranges::find_if(children_, [](const Child& child) { return child.link != nullptr; });
      if (oldest == children_.end()) continue;
      children_.erase(oldest);
    }
    children_.emplace_back().link = std::make_unique<PeerLink>(std::move(socket), *key_);
  }
}

/// False: it goes.
bool FilePasser::work_child(Child& child) {
  if (child.link) {
    const PeerLink::State state = child.link->work();
    if (state != PeerLink::State::ready) return state == PeerLink::State::going;
    child.stream = child.link->take();
    child.link.reset();
  }
  if (!child.carrier) {
    if (!arrivals_.manifest()) return !has_all_;
    child.sender.emplace(arrivals_.manifest(), files::Sender::Settings{.arrivals = &arrivals_});
    child.carrier.emplace(*child.sender, std::move(child.stream));
  }
  return child.carrier->work({});
}

}  // namespace aplib::launch::pool
