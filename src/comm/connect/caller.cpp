// SPDX-License-Identifier: MIT
#include "comm/connect/caller.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <utility>

#include "base/os/descriptor.hpp"

namespace aplib::comm::connect {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds first_pause{10};
constexpr milliseconds longest_pause{200};

steady_clock::duration duration_of(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<steady_clock::duration>(time);
}

error_code error_of(int number) { return {number, boost::system::system_category()}; }

}  // namespace

struct Caller::Impl : std::enable_shared_from_this<Caller::Impl> {
  /// A pending wait for the socket of an attempt keeps both objects, even if the next attempt has begun.
  struct Attempt {
    explicit Attempt(boost::asio::io_context& io) : socket(io) {}
    Socket socket;
    std::optional<Greeter> greeter{};
  };

  Impl(boost::asio::io_context& its_io, Settings its_settings, Events its_events)
      : io(its_io),
        settings(std::move(its_settings)),
        events(std::move(its_events)),
        resolver(its_io),
        limit(its_io),
        pause(its_io),
        deadline(its_io),
        reasons(settings.places.size()) {}

  void begin();
  void await_deadline();
  void next();
  void call();
  void connect(std::vector<SocketAddress> addresses, std::size_t at);
  void connected();
  void greeted(const Greeter::Failure& failure);
  void went_wrong(const Failure& failure);
  void end_attempt() noexcept;
  void fail(bool late);
  void end() noexcept;
  void withdraw() noexcept;
  /// Each place is tried at least once, even if the time is over.
  [[nodiscard]] bool each_place_has_its_time() const {
    return first_round && (settings.places.size() > 1 || settings.patience < settings.attempt_max);
  }
  void limit_attempt(std::chrono::nanoseconds time);
  [[nodiscard]] bool is_late() const { return steady_clock::now() >= give_up; }

  boost::asio::io_context& io;
  const Settings settings;
  Events events;
  boost::asio::ip::tcp::resolver resolver;
  boost::asio::steady_timer limit;  // Of the attempt.
  boost::asio::steady_timer pause;  // Between two rounds.
  boost::asio::steady_timer deadline;
  steady_clock::time_point give_up{};
  milliseconds next_pause = first_pause;
  std::vector<std::string> reasons;
  std::shared_ptr<Attempt> attempt;  // Null: none is under way.
  std::size_t place = 0;             // That is called.
  bool first_round = true;
  bool hopeless = false;
  bool handed_over = false;
  bool over = false;
};

void Caller::Impl::begin() {
  give_up = steady_clock::now() + duration_of(settings.patience);
  deadline.expires_at(give_up);
  await_deadline();
  next();
}

void Caller::Impl::await_deadline() {
  deadline.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->over) return;
    if (!self->attempt || !self->each_place_has_its_time()) return self->fail(true);
    self->deadline.expires_after(duration_of(self->settings.attempt_max));
    self->await_deadline();
  });
}

void Caller::Impl::next() {
  if (place < settings.places.size()) return call();
  place = 0;
  first_round = false;
  if (hopeless || is_late()) return fail(!hopeless);
  pause.expires_after(next_pause);
  next_pause = std::min(2 * next_pause, longest_pause);
  pause.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->over) self->next();
  });
}

void Caller::Impl::call() {
  attempt = std::make_shared<Attempt>(io);
  const auto self = shared_from_this();
  limit_attempt(settings.attempt_max);
  const Place& whom = settings.places[place];
  if (whom.address.size() != 0) return connect({whom.address}, 0);
  if (whom.host.empty()) return went_wrong({Failure::Kind::unreached, "not an address with a port"});
  resolver.async_resolve(whom.host, whom.port, [self, mine = attempt](const error_code& error, const auto& found) {
    if (self->attempt != mine) return;
    if (error) return self->went_wrong({Failure::Kind::unreached, error.message(), error});
    std::vector<SocketAddress> addresses;
    for (const auto& one : found) addresses.emplace_back(one.endpoint());
    self->connect(std::move(addresses), 0);
  });
}

void Caller::Impl::limit_attempt(std::chrono::nanoseconds time) {
  limit.expires_after(duration_of(time));
  limit.async_wait([self = shared_from_this(), mine = attempt, time](const error_code& error) {
    if (error || self->attempt != mine) return;
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
    self->went_wrong({Failure::Kind::ended, fmt::format("no answer for {} s", seconds)});
  });
}

/// The library's own connect is not used. Programs that are started meanwhile would inherit its socket, and it takes a
/// local socket for connected whose listener has no room now.
void Caller::Impl::connect(std::vector<SocketAddress> addresses, std::size_t at) {
  const SocketAddress& address = addresses[at];
  const auto failed = [this, &addresses, at](const error_code& error) {
    if (at + 1 < addresses.size()) return connect(std::move(addresses), at + 1);
    went_wrong({Failure::Kind::unreached, error.message(), error});
  };
  Socket& socket = attempt->socket;
  error_code ignored;
  socket.close(ignored);
  const int family = address.protocol().family();
  os::UniqueFd opened(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!opened) {
    const error_code error = error_of(errno);
    const bool full = error == boost::system::errc::too_many_files_open;
    return went_wrong({Failure::Kind::unreached,
                       full ? "no descriptor is left here; raise the limit of open files (ulimit -n)" : error.message(),
                       error});
  }
  socket.assign({family, 0}, opened.get());
  const int descriptor = opened.release();
  if (events.opened) events.opened(socket);
  if (::connect(descriptor, address.data(), static_cast<socklen_t>(address.size())) == 0) return connected();
  if (errno != EINPROGRESS) return failed(error_of(errno));
  socket.async_wait(Socket::wait_write, [self = shared_from_this(), mine = attempt, addresses = std::move(addresses),
                                         at](const error_code& broken) mutable {
    if (self->attempt != mine) return;
    int reason = 0;
    socklen_t bytes = sizeof reason;
    ::getsockopt(mine->socket.native_handle(), SOL_SOCKET, SO_ERROR, &reason, &bytes);
    if (!broken && reason == 0) return self->connected();
    if (at + 1 < addresses.size()) return self->connect(std::move(addresses), at + 1);
    const error_code error = broken ? broken : error_of(reason);
    self->went_wrong({Failure::Kind::unreached, error.message(), error});
  });
}

void Caller::Impl::connected() {
  const std::shared_ptr<Impl> self = shared_from_this();  // an event may end the caller: here, and below
  std::optional<Introduction> mine = events.introduce(attempt->socket);
  if (!mine) return went_wrong({Failure::Kind::unwanted, "what answers there is not wanted"});
  limit_attempt(Greeting::time_max);
  attempt->greeter.emplace(Greeting::Role::caller, settings.key, *std::move(mine));
  // The limit keeps this object while the greeting goes on. If the greeter kept it too, the two would keep each other
  // when the io_context ends first and nobody but them knows a withdrawn call.
  attempt->greeter->begin(attempt->socket, attempt, [weak = weak_from_this()](const Greeter::Failure& failure) {
    if (const std::shared_ptr<Impl> impl = weak.lock()) impl->greeted(failure);
  });
}

void Caller::Impl::greeted(const Greeter::Failure& failure) {
  const std::shared_ptr<Impl> self = shared_from_this();
  using Kind = Failure::Kind;
  const Greeting& greeting = attempt->greeter->greeting();
  if (failure.error) {
    return went_wrong({Kind::ended,
                       failure.error == boost::asio::error::eof
                           ? "the other side ended the connection while it was being greeted"
                           : failure.error.message(),
                       failure.error});
  }
  if (!failure.trouble.empty()) return went_wrong({Kind::ended, failure.trouble});
  if (greeting.state() == Greeting::State::stranger) return went_wrong({Kind::stranger, greeting.words()});
  if (greeting.state() == Greeting::State::refused) return went_wrong({Kind::refused, greeting.words()});
  if (over) return end_attempt();  // withdrawn
  const std::shared_ptr<Attempt> done = std::exchange(attempt, nullptr);
  limit.cancel();
  handed_over = true;
  events.greeted(std::move(done->socket), greeting);
}

void Caller::Impl::went_wrong(const Failure& failure) {
  const std::shared_ptr<Impl> self = shared_from_this();
  end_attempt();
  if (over) return;  // withdrawn
  Verdict verdict = events.judge(place, failure);
  if (over) return;
  hopeless |= verdict.hopeless;
  reasons[place++] = std::move(verdict.reason);
  next();
}

void Caller::Impl::end_attempt() noexcept {
  handed_over = false;
  limit.cancel();
  resolver.cancel();
  const std::shared_ptr<Attempt> ended = std::exchange(attempt, nullptr);
  if (!ended) return;
  if (ended->greeter) ended->greeter->cancel();
  error_code ignored;
  ended->socket.close(ignored);
}

void Caller::Impl::fail(bool late) {
  const std::shared_ptr<Impl> self = shared_from_this();
  end();
  events.failed(late, reasons);
}

void Caller::Impl::end() noexcept {
  over = true;
  end_attempt();
  pause.cancel();
  deadline.cancel();
}

void Caller::Impl::withdraw() noexcept {
  over = true;
  pause.cancel();
  deadline.cancel();
  if (attempt && !attempt->socket.is_open()) end_attempt();  // nobody there knows of it
}

Caller::Caller(boost::asio::io_context& io, Settings settings, Events events)
    : impl_(std::make_shared<Impl>(io, std::move(settings), std::move(events))) {}

Caller::~Caller() {
  if (impl_) impl_->end();
}

void Caller::withdraw() noexcept { std::exchange(impl_, nullptr)->withdraw(); }

void Caller::begin() { impl_->begin(); }

void Caller::again(const std::string& why) {
  if (impl_->handed_over && !impl_->over) impl_->went_wrong({Failure::Kind::spoiled, why});
}

}  // namespace aplib::comm::connect
