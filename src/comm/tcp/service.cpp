// SPDX-License-Identifier: MIT
#include "comm/tcp/service.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "comm/connect/acceptor.hpp"
#include "comm/connect/caller.hpp"
#include "comm/connect/wakeup.hpp"
#include "comm/job_key.hpp"
#include "comm/tcp/address.hpp"
#include "comm/tcp/relayed_end.hpp"
#include "comm/tcp/stream.hpp"
#include "comm/tls.hpp"

namespace aplib::comm::tcp {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using connect::Acceptor;
using connect::Caller;
using connect::Socket;
using std::chrono::milliseconds;
using Endpoint = asio::ip::tcp::endpoint;

constexpr std::uint32_t streams_max = 64;
constexpr std::uint32_t streams_when_far = 4;
constexpr milliseconds far{2};
/// For a process that is called before the machine runs: it may still load the program.
constexpr std::chrono::seconds load_patience{100};

std::string describe(const error_code& error) {
  return error == asio::error::eof ? "the other side ended the connection while it was being greeted"
                                   : describe_connection_error(error.value());
}

/// The answerer's word after the greeting: it takes the call, or it says that its own call counts. So both sides always
/// agree on which connection carries the frames.
enum class Verdict : std::uint8_t { taken = 1, not_now = 2 };

/// Makes a stream of one greeted socket: the verdict, 1 byte from the answerer, then with secure=tls the handshake of
/// TLS. Thread safety: none; the thread of its io_context. What waits keeps it.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  struct Result {
    std::unique_ptr<Stream> stream{};  ///< Null: there is none.
    bool not_now = false;              ///< Because the other side calls us.
    std::string why{};                 ///< Else the reason.
  };
  using Done = std::function<void(Result)>;

  /// `greeting`: done. `tls`: null without secure=tls; outlives it. `done` is called once, unless cancel() comes
  /// before.
  Handshake(Socket socket, const Greeting& greeting, const TlsContext* tls, Done done)
      : socket_(std::move(socket)), limit_(socket_.get_executor()), tls_(tls), done_(std::move(done)) {
    if (tls_ != nullptr) secret_ = greeting.secret();
  }

  /// Sends the verdict, and goes on if the call is taken.
  void answer(Verdict verdict);
  /// Waits for the verdict.
  void hear();
  /// After this, nothing is called any more.
  void cancel() noexcept;

 private:
  struct FreeTls {
    void operator()(ssl_st* ssl) const noexcept { SSL_free(ssl); }
  };

  void begin();
  void begin_tls(bool calls);
  void pump_tls();
  void take();
  void fail(std::string why) { finish({.why = std::move(why)}); }
  void finish(Result result);

  Socket socket_;
  asio::steady_timer limit_;
  const TlsContext* tls_;
  Done done_;
  std::array<std::byte, 32> secret_{};
  std::array<std::byte, 1> verdict_{};
  std::unique_ptr<ssl_st, FreeTls> ssl_;
};

void Handshake::answer(Verdict verdict) {
  begin();
  verdict_[0] = static_cast<std::byte>(verdict);
  asio::async_write(socket_, asio::buffer(verdict_),
                    [self = shared_from_this(), verdict](const error_code& error, std::size_t) {
                      if (error) return self->fail(describe(error));
                      if (verdict == Verdict::not_now) return self->finish({.not_now = true});
                      self->begin_tls(false);
                    });
}

void Handshake::hear() {
  begin();
  asio::async_read(socket_, asio::buffer(verdict_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (error) return self->fail(describe(error));
    const auto verdict = static_cast<Verdict>(self->verdict_[0]);
    if (verdict == Verdict::not_now) return self->finish({.not_now = true});
    if (verdict != Verdict::taken) return self->fail("it does not follow the protocol");
    self->begin_tls(true);
  });
}

void Handshake::cancel() noexcept {
  done_ = nullptr;
  limit_.cancel();
  ssl_.reset();
  error_code ignored;
  socket_.close(ignored);
}

void Handshake::begin() {
  limit_.expires_after(Greeting::time_max);
  limit_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) self->fail("no answer to the greeting for " + std::to_string(Greeting::time_max.count()) + " s");
  });
}

void Handshake::begin_tls(bool calls) {
  if (!done_) return;
  if (tls_ == nullptr) return take();
  try {
    ssl_.reset(make_tls_on_socket(tls_->native(), socket_.native_handle()));
    set_tls_secret(ssl_.get(), secret_);
    wipe(secret_);
  } catch (const std::exception& failure) {
    return fail(failure.what());
  }
  calls ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  error_code ignored;
  socket_.native_non_blocking(true, ignored);
  pump_tls();
}

void Handshake::pump_tls() {
  if (!done_) return;
  ERR_clear_error();
  const int good = SSL_do_handshake(ssl_.get());
  if (good == 1) return tls_by_secret(ssl_.get()) ? take() : fail("TLS without the shared secret");
  const int reason = SSL_get_error(ssl_.get(), good);
  if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE)
    return fail(std::string("TLS: ") + take_tls_error());
  socket_.async_wait(reason == SSL_ERROR_WANT_READ ? Socket::wait_read : Socket::wait_write,
                     [self = shared_from_this()](const error_code& error) {
                       if (error) return self->fail(describe(error));
                       self->pump_tls();
                     });
}

void Handshake::take() {
  error_code error;
  const int socket = socket_.release(error);
  if (error) return fail(describe(error));
  prepare_for_frames(socket);
  finish({std::make_unique<Stream>(socket, ssl_.release())});
}

void Handshake::finish(Result result) {
  if (!done_) return;
  const Done done = std::exchange(done_, nullptr);
  cancel();
  done(std::move(result));
}

/// The streams of one link, until all are there.
struct Streams {
  std::vector<std::unique_ptr<Stream>> made;
  std::vector<std::shared_ptr<Handshake>> making;
  std::size_t arrived = 0;

  explicit Streams(std::size_t count) : made(count), making(count) {}
  ~Streams() {
    for (const auto& handshake : making)
      if (handshake) handshake->cancel();
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// Adds a stream. Returns whether that was the last one.
  bool add(std::size_t number, std::unique_ptr<Stream> stream) {
    making[number] = nullptr;
    made[number] = std::move(stream);
    return ++arrived == made.size();
  }
};

}  // namespace

struct Service::Impl {
  /// A call of ours, until the link is up or it is given up: a connection for each stream. The first one says how many
  /// there are.
  struct Call {
    std::optional<Streams> streams;
    std::vector<std::unique_ptr<Caller>> callers;
    std::unique_ptr<RelayedEnd> relayed;               // Instead of callers.
    std::unique_ptr<asio::steady_timer> until_called;  // The same: the other process calls.
    [[nodiscard]] bool arrived() const { return streams && streams->arrived != 0; }
  };
  /// A call of theirs that was taken, until all its streams are here.
  struct Gathering {
    Gathering(Impl& owner, std::size_t count) : streams(count), expected(count, true), limit(owner.io) {}
    Streams streams;
    std::vector<bool> expected;
    asio::steady_timer limit;
  };

  Impl(Service& service, Settings& given, std::span<const std::unique_ptr<Link>> all);

  void run() noexcept;
  void arrived(Socket socket, const Greeting& greeting);
  bool expects(const Introduction& who);
  void gathered(Peer peer, std::uint16_t stream, Handshake::Result result);
  void asked() noexcept;
  void begin_calls() noexcept;
  void call(Peer peer);
  void call(Peer peer, std::uint16_t stream);
  void call_relay(Peer peer);
  void await_call(Peer peer);
  Introduction introduce(Peer peer, std::uint16_t stream, Socket& socket);
  void greeted(Peer peer, std::uint16_t stream, Socket socket, const Greeting& greeting);
  Caller::Verdict judge(Peer peer, const Caller::Failure& failure) const;
  void joined(Peer peer, std::uint16_t stream, Handshake::Result result);
  void failed(Peer peer, std::uint16_t stream, bool late, const std::string& reason);
  void give_up(Peer peer, const std::string& why) noexcept;
  void look();
  [[nodiscard]] Introduction introduction(Peer peer, std::uint16_t stream, std::size_t streams) const {
    return {secure(peer), Purpose::data, stream, settings.self, peer, settings.machine, streams};
  }
  [[nodiscard]] Way::Kind way(Peer peer) const {
    return peer < settings.ways.size() ? settings.ways[peer].kind : Way::Kind::direct;
  }
  [[nodiscard]] Secure secure(Peer peer) const { return way(peer) == Way::Kind::relay ? Secure::tls : settings.secure; }
  /// Whoever has called, or speaks first through a relay, is known: calls never cross.
  [[nodiscard]] bool theirs_counts(Peer peer) const {
    return way(peer) == Way::Kind::called || (way(peer) == Way::Kind::relay && peer < settings.self);
  }
  [[nodiscard]] std::string name(Peer peer) const;
  [[nodiscard]] milliseconds patience() const {
    return std::max<milliseconds>(settings.peer_timeout, std::chrono::seconds(2));
  }
  [[nodiscard]] const TlsContext* tls_or_null(Peer peer) const { return secure(peer) == Secure::tls ? &*tls : nullptr; }
  void refuse() { refused.fetch_add(1, std::memory_order_relaxed); }

  Service& service_;
  Settings settings;
  std::span<const std::unique_ptr<Link>> links;
  std::optional<TlsContext> tls;
  std::vector<Endpoint> endpoints;
  std::atomic<std::uint64_t> refused = 0;  // Of those who proved the key.

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer next_look{io};
  connect::Wakeup wakeup{io, [this] { asked(); }};
  std::atomic<bool> calls_wanted = false;
  std::atomic<bool> look_wanted = false;
  std::optional<Acceptor> acceptor;
  std::map<Peer, std::shared_ptr<Call>> calls;
  std::map<Peer, std::unique_ptr<Gathering>> gatherings;
  std::thread thread;
};

Service::Impl::Impl(Service& service, Settings& given, std::span<const std::unique_ptr<Link>> all)
    : service_(service), settings(std::move(given)), links(all) {
  const bool any_relayed =
      std::ranges::any_of(settings.ways, [](const Way& way) { return way.kind == Way::Kind::relay; });
  if (settings.secure == Secure::tls || any_relayed) tls.emplace();
  for (Peer peer = 0; peer < links.size(); ++peer) {
    const auto endpoint = links[peer] ? parse_endpoint(settings.endpoints[peer]) : std::optional<Endpoint>(Endpoint());
    if (!endpoint) {
      throw Error(Errc::bad_argument, fmt::format("tcp: \"{}\", where {} shall be reached, is not an address with a "
                                                  "port, like 10.0.0.1:5103 or [fd00::1]:5103",
                                                  settings.endpoints[peer], name(peer)));
    }
    endpoints.push_back(*endpoint);
  }
  os::UniqueFd listening = settings.listener.release();
  if (!listening) throw Error(Errc::bad_argument, "tcp: the listener was used before");
  acceptor.emplace(
      io,
      Acceptor::Settings{.key = settings.key,
                         .mine = introduction(Introduction::anyone, 0, 0),
                         .greeted_max = Acceptor::strangers_max + 2 * links.size()},
      Acceptor::Events{
          .accepted =
              [this](Socket& socket) {
                prepare_socket(socket.native_handle(), settings.peer_timeout);
                return true;
              },
          .arrived = [this](Socket socket, const Greeting& greeting) { arrived(std::move(socket), greeting); },
          .refused = [this](const std::string&) { refuse(); }});
  acceptor->listen(std::move(listening));
  thread = os::quiet_thread("aplib-tcp", [this] { run(); });
}

void Service::Impl::run() noexcept {
  while (!io.stopped()) {
    try {
      io.run();
    } catch (const std::exception&) {
      // If there is no memory for one connection, its time limit ends it, and the others go on.
    }
  }
}

std::string Service::Impl::name(Peer peer) const {
  const bool named = peer < settings.names.size() && !settings.names[peer].empty();
  return named ? fmt::format("{} (process {})", settings.names[peer], peer) : fmt::format("process {}", peer);
}

// Answering.

void Service::Impl::arrived(Socket socket, const Greeting& greeting) {
  const Introduction who = greeting.peer();
  const std::size_t streams = who.token;
  if (who.self >= links.size() || !links[who.self] || streams == 0 || streams > streams_max || who.stream >= streams)
    return refuse();
  if (who.stream == 0) {
    switch (links[who.self]->take_call(theirs_counts(who.self) ? Introduction::anyone : settings.self)) {
      case Link::Answer::unexpected:
        return;  // our calls crossed, and we are connected already
      case Link::Answer::not_now:
        return std::make_shared<Handshake>(std::move(socket), greeting, nullptr, [](Handshake::Result) {})
            ->answer(Verdict::not_now);
      case Link::Answer::taken:
        break;
    }
    if (const auto call = calls.extract(who.self)) {
      for (const auto& caller : call.mapped()->callers) caller->withdraw();
    }
    auto& gathering = gatherings[who.self];
    gathering = std::make_unique<Gathering>(*this, streams);
    gathering->limit.expires_after(patience());
    gathering->limit.async_wait([this, peer = who.self](const error_code& error) {
      if (error) return;
      gatherings.erase(peer);
      links[peer]->give_up("its connections did not all come");
    });
  }
  if (!expects(who)) return refuse();
  const auto handshake = std::make_shared<Handshake>(
      std::move(socket), greeting, tls_or_null(who.self),
      [this, who](Handshake::Result result) { gathered(who.self, who.stream, std::move(result)); });
  gatherings[who.self]->streams.making[who.stream] = handshake;
  handshake->answer(Verdict::taken);
}

/// Whether it is a stream of a call that was taken, and the first one with that number.
bool Service::Impl::expects(const Introduction& who) {
  const auto found = gatherings.find(who.self);
  if (found == gatherings.end()) return false;
  std::vector<bool>& expected = found->second->expected;
  if (expected.size() != who.token || !expected[who.stream]) return false;
  expected[who.stream] = false;
  return true;
}

void Service::Impl::gathered(Peer peer, std::uint16_t stream, Handshake::Result result) {
  const auto found = gatherings.find(peer);
  if (found == gatherings.end()) return;
  Streams& streams = found->second->streams;
  if (!result.stream) {
    gatherings.erase(found);
    return links[peer]->give_up(result.why);
  }
  if (!streams.add(stream, std::move(result.stream))) return;
  std::vector<std::unique_ptr<Stream>> all = std::move(streams.made);
  gatherings.erase(found);
  links[peer]->connect(std::move(all));
}

// Calling.

void Service::Impl::give_up(Peer peer, const std::string& why) noexcept {
  calls.erase(peer);
  links[peer]->give_up(why);
}

/// Calls whom a link wants to reach, and looks for answers, as was asked for.
void Service::Impl::asked() noexcept {
  if (calls_wanted.exchange(false)) begin_calls();
  connect::make_wanted_calls(
      links, calls, [this](Peer peer) { call(peer); }, [this](Peer peer, const char* why) { give_up(peer, why); });
  if (!look_wanted.exchange(false)) return;
  try {
    look();
  } catch (const std::exception&) {
    service_.looking_.store(false);  // who sends next asks again
  }
}

/// On ways other than the direct one nobody waits for the first frame, for the other process cannot know of it.
void Service::Impl::begin_calls() noexcept {
  for (Peer peer = 0; peer < links.size(); ++peer)
    if (links[peer] && service_.calls_at_once(peer)) links[peer]->begin_call();
}

void Service::Impl::call(Peer peer) {
  calls[peer] = std::make_shared<Call>();
  if (way(peer) == Way::Kind::relay) return call_relay(peer);
  if (way(peer) == Way::Kind::called) return await_call(peer);
  call(peer, 0);
}

/// They reach us, and not the other way round. They call without being asked.
void Service::Impl::await_call(Peer peer) {
  calls[peer]->until_called = std::make_unique<asio::steady_timer>(io, patience());
  calls[peer]->until_called->async_wait([this, peer](const error_code& error) {
    if (error || calls.find(peer) == calls.end()) return;
    give_up(peer, fmt::format("it did not call within {} s, and cannot be called from here",
                              std::chrono::ceil<std::chrono::seconds>(patience()).count()));
  });
}

void Service::Impl::call_relay(Peer peer) {
  const Way& by = settings.ways[peer];
  RelayedEnd::Events what;
  what.opened = [this](Socket& socket) { prepare_socket(socket.native_handle(), settings.peer_timeout); };
  what.greeted = [this, peer](Socket socket, const Greeting& greeting) {
    if (theirs_counts(peer)) return arrived(std::move(socket), greeting);
    calls[peer]->streams.emplace(1);
    greeted(peer, 0, std::move(socket), greeting);
  };
  what.failed = [this, peer](const std::string& why) { give_up(peer, why); };
  calls[peer]->relayed =
      std::make_unique<RelayedEnd>(io,
                                   connect::RelayCall::Settings{.place = by.place,
                                                                .key = relay_key(settings.key, settings.machine),
                                                                .machine = settings.machine,
                                                                .self = settings.self,
                                                                .peer = peer,
                                                                .patience = patience()},
                                   settings.key, introduction(peer, 0, 1), std::move(what));
}

void Service::Impl::call(Peer peer, std::uint16_t stream) {
  Call& call = *calls[peer];
  call.callers.push_back(std::make_unique<Caller>(
      io,
      Caller::Settings{
          .places = {Caller::Place{.address = endpoints[peer]}},
          .key = settings.key,
          .patience = way(peer) == Way::Kind::calls ? std::max<milliseconds>(patience(), load_patience) : patience(),
          .attempt_max = patience()},
      Caller::Events{
          .opened = [this](Socket& socket) { prepare_socket(socket.native_handle(), settings.peer_timeout); },
          .introduce = [=, this](Socket& socket) { return introduce(peer, stream, socket); },
          .greeted = [=, this](Socket socket,
                               const Greeting& greeting) { greeted(peer, stream, std::move(socket), greeting); },
          .judge = [=, this](std::size_t, const Caller::Failure& failure) { return judge(peer, failure); },
          .failed = [=, this](bool late,
                              std::span<const std::string> reasons) { failed(peer, stream, late, reasons[0]); }}));
  call.callers.back()->begin();
}

Introduction Service::Impl::introduce(Peer peer, std::uint16_t stream, Socket& socket) {
  const auto found = calls.find(peer);
  if (found == calls.end()) return introduction(peer, stream, 1);  // withdrawn: it is greeted, and closed
  Call& call = *found->second;
  if (!call.streams) {
    std::uint32_t count = std::min(settings.streams, streams_max);
    if (count == 0) count = round_trip(socket.native_handle()) > far ? streams_when_far : 1;
    call.streams.emplace(count);
  }
  return introduction(peer, stream, call.streams->made.size());
}

void Service::Impl::greeted(Peer peer, std::uint16_t stream, Socket socket, const Greeting& greeting) {
  const auto handshake =
      std::make_shared<Handshake>(std::move(socket), greeting, tls_or_null(peer),
                                  [=, this](Handshake::Result result) { joined(peer, stream, std::move(result)); });
  calls[peer]->streams->making[stream] = handshake;
  handshake->hear();
}

/// Decides what a failed connection means for the process there.
Caller::Verdict Service::Impl::judge(Peer peer, const Caller::Failure& failure) const {
  using Kind = Caller::Failure::Kind;
  const std::string& where = settings.endpoints[peer];
  switch (failure.kind) {
    case Kind::refused:
      return {fmt::format("at {}: {}", where, failure.why), true};
    case Kind::stranger:
      return {fmt::format("what answers at {} is not of this machine: {}", where, failure.why), true};
    case Kind::unreached:
      if (failure.error == asio::error::connection_refused)
        return {fmt::format("connection refused at {}: its process has ended", where), true};
      if (failure.error == asio::error::host_unreachable || failure.error == asio::error::network_unreachable)
        return {fmt::format("cannot be reached at {}: {}", where, describe(failure.error)), true};
      break;
    case Kind::unwanted:
    case Kind::ended:
    case Kind::spoiled:
      break;
  }
  // Once the first stream is taken, the other side relies on all of them. A link that lacks one is lost.
  return {failure.error ? describe(failure.error) : failure.why, calls.at(peer)->arrived()};
}

void Service::Impl::joined(Peer peer, std::uint16_t stream, Handshake::Result result) {
  const std::shared_ptr<Call> call = calls.at(peer);
  call->streams->making[stream] = nullptr;
  if (result.not_now) return;  // its call is on the way; else the time limit strikes
  if (!result.stream) {
    if (call->relayed) return give_up(peer, result.why);
    return call->callers[stream]->again(result.why);
  }
  if (!call->streams->add(stream, std::move(result.stream))) {
    if (stream != 0) return;
    for (std::uint16_t more = 1; more < call->streams->made.size(); ++more) {
      this->call(peer, more);
      if (calls.find(peer) == calls.end()) return;
    }
    return;
  }
  calls.erase(peer);
  links[peer]->connect(std::move(call->streams->made));
}

void Service::Impl::failed(Peer peer, std::uint16_t stream, bool late, const std::string& reason) {
  const std::shared_ptr<Call> call = calls.at(peer);
  const std::string& where = settings.endpoints[peer];
  if (late) {
    const bool known = !reason.empty();
    return give_up(peer,
                   fmt::format("cannot be reached at {} within {} s{}{}", where,
                               std::chrono::ceil<std::chrono::seconds>(patience()).count(), known ? ": " : "", reason));
  }
  if (stream == 0) return give_up(peer, reason);
  give_up(peer, fmt::format("one of its {} connections to {} failed: {}", call->streams->made.size(), where, reason));
}

/// Runs every quarter of the time after which a host counts as lost, while something is under way. Then it stops until
/// something is sent.
void Service::Impl::look() {
  next_look.expires_after(std::max<milliseconds>(settings.peer_timeout / 4, milliseconds(1)));
  next_look.async_wait([this](const error_code& error) {
    if (error) return;
    const auto any_active = [this] {
      bool active = false;
      for (const auto& link : links)
        if (link) active |= link->check_answers(settings.peer_timeout);
      return active;
    };
    if (any_active()) return look();
    // A thread that sends from here on sees that nobody looks. One that has just sent is seen by the second look, which
    // holds the same lock.
    service_.looking_.store(false);
    if (any_active() && !service_.looking_.exchange(true)) look();
  });
}

Service::Service(Settings& settings, std::span<const std::unique_ptr<Link>> links)
    : impl_(std::make_unique<Impl>(*this, settings, links)) {}

Service::~Service() { stop(); }

void Service::stop() {
  if (!impl_->thread.joinable()) return;
  impl_->io.stop();
  impl_->thread.join();
  impl_->acceptor->close();
  impl_->calls.clear();
  impl_->gatherings.clear();
}

void Service::call() noexcept { impl_->wakeup.ask(); }

void Service::begin_calls() noexcept {
  if (impl_->settings.ways.empty()) return;
  impl_->calls_wanted.store(true);
  impl_->wakeup.ask();
}

bool Service::calls_at_once(Peer peer) const noexcept {
  return impl_->way(peer) == Way::Kind::calls || impl_->way(peer) == Way::Kind::relay;
}

bool Service::is_relayed(Peer peer) const noexcept { return impl_->way(peer) == Way::Kind::relay; }

std::uint64_t Service::refused() const noexcept {
  return impl_->acceptor->strangers() + impl_->refused.load(std::memory_order_relaxed);
}

void Service::begin_looking() noexcept {
  if (looking_.exchange(true)) return;
  impl_->look_wanted.store(true);
  impl_->wakeup.ask();
}

}  // namespace aplib::comm::tcp
