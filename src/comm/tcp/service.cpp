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
#include <set>
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

// For a connection that was never there.
constexpr const char* firewall_remedy =
    "; if a firewall stands between, ports = \"FIRST-LAST\" in [comm] names ports to open, and address in [[host]] "
    "another network";
constexpr milliseconds long_round_trip{2};
/// In a machine of so few processes a long link has all its streams from the beginning. All links have a hundred or so.
constexpr std::size_t processes_of_all_streams = 8;
/// Between two attempts to go by a relay again.
constexpr milliseconds relay_pause{200};
/// One attempt to connect again: a network that was cut swallows what asks for a connection.
constexpr std::chrono::seconds again_max{3};
/// For a process that is called before the machine runs: it may still load the program.
constexpr std::chrono::seconds load_patience{100};

std::string describe(const error_code& error) {
  return error == asio::error::eof ? "the other side ended the connection while it was being greeted"
                                   : describe_connection_error(error.value());
}

/// What a caller says of the link, in the introduction's token.
enum class Length : std::uint64_t { near = 1, far = 2 };

/// The answerer's word after the greeting: it takes the call, or it says that its own call counts, or that its link has
/// ended. So both sides always agree on which connection carries the frames.
enum class Verdict : std::uint8_t { taken = 1, not_now = 2, ended = 3 };

/// Makes a stream of one greeted socket: the verdict, 1 byte from the answerer, then with secure=tls the handshake of
/// TLS. Thread safety: none; the thread of its io_context. What waits keeps it.
class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  struct Result {
    std::unique_ptr<Stream> stream{};  ///< Null: there is none.
    bool not_now = false;              ///< Because the other side calls us.
    bool ended = false;                ///< Because the other side's link has ended.
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
                      if (verdict != Verdict::taken) return self->finish({});
                      self->begin_tls(false);
                    });
}

void Handshake::hear() {
  begin();
  asio::async_read(socket_, asio::buffer(verdict_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (error) return self->fail(describe(error));
    const auto verdict = static_cast<Verdict>(self->verdict_[0]);
    if (verdict == Verdict::not_now) return self->finish({.not_now = true});
    if (verdict == Verdict::ended) return self->finish({.ended = true, .why = "it has ended its connection"});
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

}  // namespace

struct Service::Impl {
  /// The number of a call of ours that makes a link come up; others, for more streams of a long one, count on.
  static constexpr std::uint64_t first_call = 0;

  /// A call of ours, until the link is up or it is given up.
  struct Call {
    std::unique_ptr<Caller> caller;
    std::unique_ptr<RelayedEnd> relayed;               // Instead of the caller.
    std::unique_ptr<asio::steady_timer> until_called;  // The same: the other process calls.
    std::shared_ptr<Handshake> handshake;              // The greeting is over.
    std::optional<Length> length;                      // Once it is connected.
    ~Call() {
      if (handshake) handshake->cancel();
    }
  };
  /// A long link that lacks streams: our calls for them, and how long a link that is cut is waited for.
  struct Mending {
    explicit Mending(asio::io_context& io) : limit(io), pause(io) {}
    std::map<std::uint64_t, std::unique_ptr<Call>> calls;
    asio::steady_timer limit;
    asio::steady_timer pause;
    std::optional<Link::Clock::time_point> cut;  // What `limit` is set for.
    std::string why;                             // The last call came to nothing.
  };

  Impl(Service& service, Settings& given, std::span<const std::unique_ptr<Link>> all);

  void run() noexcept;
  void arrived(Socket socket, const Greeting& greeting);
  void answered(Peer peer, Length length, Handshake::Result result);
  void connect(Peer peer, Length length, std::unique_ptr<Stream> stream);
  void asked() noexcept;
  void begin_calls() noexcept;
  void call(Peer peer);
  void call_directly(Peer peer, std::uint64_t number, milliseconds patience, milliseconds attempt_max);
  void call_relay(Peer peer, std::uint64_t number);
  void await_call(Peer peer);
  [[nodiscard]] Call* find(Peer peer, std::uint64_t number) const;
  Introduction introduce(Peer peer, std::uint64_t number, Socket& socket);
  void greeted(Peer peer, std::uint64_t number, Socket socket, const Greeting& greeting);
  Caller::Verdict judge(Peer peer, std::uint64_t number, const Caller::Failure& failure) const;
  void joined(Peer peer, std::uint64_t number, Handshake::Result result);
  void failed(Peer peer, std::uint64_t number, bool late, const std::string& reason);
  void give_up(Peer peer, const std::string& why) noexcept;
  void mend(Peer peer);
  void await_mending(Peer peer, Mending& mending, const Lanes::Need& need);
  void not_mended(Peer peer, std::uint64_t number, bool hopeless, const std::string& reason);
  void mend_later(Peer peer, Mending& mending);
  void look();
  [[nodiscard]] Introduction introduction(Peer peer, Length length) const {
    return {.secure = secure(peer),
            .self = settings.self,
            .peer = peer,
            .machine = settings.machine,
            .token = static_cast<std::uint64_t>(length)};
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
  [[nodiscard]] bool all_streams_at_once() const noexcept { return links.size() <= processes_of_all_streams; }
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
  std::atomic<bool> mending_wanted = false;
  std::optional<Acceptor> acceptor;
  std::map<Peer, std::shared_ptr<Call>> calls;
  std::set<Peer> we_called;                       // Those that are connected by a call of ours.
  std::map<Peer, asio::steady_timer> gatherings;  // Calls of theirs that were taken: how long each is waited for.
  std::map<std::uint64_t, std::shared_ptr<Handshake>> answering;  // Of calls of theirs that were taken.
  std::map<Peer, std::unique_ptr<Mending>> mendings;
  std::uint64_t last_number = first_call;
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
      Acceptor::Settings{
          .key = settings.key,
          .mine = introduction(Introduction::anyone, Length::near),
          .greeted_max = Acceptor::strangers_max + (all_streams_at_once() ? LaneGrowth::lanes_max : 2) * links.size()},
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
  const auto length = static_cast<Length>(who.token);
  if (who.self >= links.size() || !links[who.self] || who.stream != 0 ||
      (length != Length::near && length != Length::far))
    return refuse();
  Link& link = *links[who.self];
  const auto say = [&](Verdict verdict) {
    std::make_shared<Handshake>(std::move(socket), greeting, nullptr, [](Handshake::Result) {})->answer(verdict);
  };
  switch (link.take_call(theirs_counts(who.self) ? Introduction::anyone : settings.self, length == Length::far)) {
    case Link::Answer::unexpected:
      // Our calls crossed, and we are connected already. Or they cannot know yet that the link has ended.
      if (length == Length::far && link.has_ended()) say(Verdict::ended);
      return;
    case Link::Answer::not_now:
      return say(Verdict::not_now);
    case Link::Answer::taken:
      break;
  }
  if (const auto call = calls.extract(who.self); call && call.mapped()->caller) call.mapped()->caller->withdraw();
  if (link.state() == Link::State::gathering) {
    asio::steady_timer& limit = gatherings.try_emplace(who.self, io, patience()).first->second;
    limit.async_wait([this, peer = who.self](const error_code& error) {
      if (error) return;
      gatherings.erase(peer);
      links[peer]->give_up("its connections did not all come");
    });
  }
  const std::uint64_t number = ++last_number;
  const auto handshake = std::make_shared<Handshake>(std::move(socket), greeting, tls_or_null(who.self),
                                                     [=, this, peer = who.self](Handshake::Result result) {
                                                       answering.erase(number);
                                                       answered(peer, length, std::move(result));
                                                     });
  answering[number] = handshake;
  handshake->answer(Verdict::taken);
}

void Service::Impl::answered(Peer peer, Length length, Handshake::Result result) {
  const auto found = gatherings.find(peer);
  if (!result.stream) {
    // They see that it has failed, too, and call again. By a relay both have to.
    if (const auto mending = mendings.find(peer); mending != mendings.end() && way(peer) == Way::Kind::relay)
      mend_later(peer, *mending->second);
    if (found == gatherings.end() || length == Length::far) return;
    gatherings.erase(found);
    return links[peer]->give_up(result.why);
  }
  if (found != gatherings.end()) gatherings.erase(found);
  connect(peer, length, std::move(result.stream));
}

void Service::Impl::connect(Peer peer, Length length, std::unique_ptr<Stream> stream) {
  if (length == Length::near) {
    links[peer]->connect(std::move(stream));
    return;
  }
  // A relay joins one after the other, and carries them for all.
  const bool all = all_streams_at_once() && way(peer) != Way::Kind::relay;
  const LaneGrowth growth({.fixed = settings.streams, .first = all ? LaneGrowth::lanes_max : 1});
  links[peer]->connect_long(std::move(stream), growth, [this] {
    mending_wanted.store(true);
    wakeup.ask();
  });
  mend(peer);
}

// Calling.

void Service::Impl::give_up(Peer peer, const std::string& why) noexcept {
  calls.erase(peer);
  mendings.erase(peer);
  links[peer]->give_up(why);
}

/// Calls whom a link wants to reach, and looks for answers, as was asked for.
void Service::Impl::asked() noexcept {
  if (calls_wanted.exchange(false)) begin_calls();
  connect::make_wanted_calls(
      links, calls, [this](Peer peer) { call(peer); }, [this](Peer peer, const char* why) { give_up(peer, why); });
  if (mending_wanted.exchange(false)) {
    for (Peer peer = 0; peer < links.size(); ++peer) {
      try {
        if (links[peer]) mend(peer);
      } catch (const std::exception&) {
        give_up(peer, "no memory here");  // so short that it needs none
      }
    }
  }
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
  if (way(peer) == Way::Kind::relay) return call_relay(peer, first_call);
  if (way(peer) == Way::Kind::called) return await_call(peer);
  call_directly(peer, first_call,
                way(peer) == Way::Kind::calls ? std::max<milliseconds>(patience(), load_patience) : patience(),
                patience());
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

void Service::Impl::call_relay(Peer peer, std::uint64_t number) {
  const Way& by = settings.ways[peer];
  RelayedEnd::Events what;
  what.opened = [this](Socket& socket) { prepare_socket(socket.native_handle(), settings.peer_timeout); };
  what.greeted = [this, peer, number](Socket socket, const Greeting& greeting) {
    if (!theirs_counts(peer)) return greeted(peer, number, std::move(socket), greeting);
    arrived(std::move(socket), greeting);
    if (const auto mending = mendings.find(peer); mending != mendings.end()) mending->second->calls.erase(number);
  };
  what.failed = [this, peer, number](const std::string& why) { failed(peer, number, true, why); };
  find(peer, number)->relayed =
      std::make_unique<RelayedEnd>(io,
                                   connect::RelayCall::Settings{.place = by.place,
                                                                .key = relay_key(settings.key, settings.machine),
                                                                .machine = settings.machine,
                                                                .self = settings.self,
                                                                .peer = peer,
                                                                .patience = patience()},
                                   settings.key, introduction(peer, Length::far), std::move(what));
}

void Service::Impl::call_directly(Peer peer, std::uint64_t number, milliseconds patience, milliseconds attempt_max) {
  Call& call = *find(peer, number);
  call.caller = std::make_unique<Caller>(
      io,
      Caller::Settings{.places = {Caller::Place{.address = endpoints[peer]}},
                       .key = settings.key,
                       .patience = patience,
                       .attempt_max = attempt_max},
      Caller::Events{
          .opened = [this](Socket& socket) { prepare_socket(socket.native_handle(), settings.peer_timeout); },
          .introduce = [=, this](Socket& socket) { return introduce(peer, number, socket); },
          .greeted = [=, this](Socket socket,
                               const Greeting& greeting) { greeted(peer, number, std::move(socket), greeting); },
          .judge = [=, this](std::size_t, const Caller::Failure& failure) { return judge(peer, number, failure); },
          .failed = [=, this](bool late,
                              std::span<const std::string> reasons) { failed(peer, number, late, reasons[0]); }});
  call.caller->begin();
}

/// Null: it was withdrawn.
Service::Impl::Call* Service::Impl::find(Peer peer, std::uint64_t number) const {
  if (number == first_call) {
    const auto found = calls.find(peer);
    return found == calls.end() ? nullptr : found->second.get();
  }
  const auto mending = mendings.find(peer);
  if (mending == mendings.end()) return nullptr;
  const auto found = mending->second->calls.find(number);
  return found == mending->second->calls.end() ? nullptr : found->second.get();
}

Introduction Service::Impl::introduce(Peer peer, std::uint64_t number, Socket& socket) {
  Call* const call = find(peer, number);
  if (call == nullptr) return introduction(peer, Length::near);  // withdrawn: it is greeted, and closed
  if (number != first_call) call->length = Length::far;
  if (!call->length) {
    const bool far = settings.streams > 1 || round_trip(socket.native_handle()) > long_round_trip;
    call->length = far ? Length::far : Length::near;
  }
  return introduction(peer, *call->length);
}

void Service::Impl::greeted(Peer peer, std::uint64_t number, Socket socket, const Greeting& greeting) {
  Call* const call = find(peer, number);
  if (call == nullptr) return;
  call->handshake =
      std::make_shared<Handshake>(std::move(socket), greeting, tls_or_null(peer),
                                  [=, this](Handshake::Result result) { joined(peer, number, std::move(result)); });
  call->handshake->hear();
}

/// Decides what a failed connection means for the process there.
Caller::Verdict Service::Impl::judge(Peer peer, std::uint64_t number, const Caller::Failure& failure) const {
  using Kind = Caller::Failure::Kind;
  const std::string& where = settings.endpoints[peer];
  switch (failure.kind) {
    case Kind::refused:
      return {fmt::format("at {}: {}", where, failure.why), true};
    case Kind::stranger:
      return {fmt::format("what answers at {} is not of this machine: {}", where, failure.why), true};
    case Kind::unreached:
      if (failure.error == asio::error::connection_refused)
        return {fmt::format("connection refused at {}: its process has ended{}", where,
                            number == first_call ? firewall_remedy : ""),
                true};
      // A way that was there may come back.
      if (failure.error == asio::error::host_unreachable || failure.error == asio::error::network_unreachable)
        return {fmt::format("cannot be reached at {}: {}{}", where, describe(failure.error),
                            number == first_call ? firewall_remedy : ""),
                number == first_call};
      break;
    case Kind::unwanted:
    case Kind::ended:
    case Kind::spoiled:
      break;
  }
  return {failure.error ? describe(failure.error) : failure.why, false};
}

void Service::Impl::joined(Peer peer, std::uint64_t number, Handshake::Result result) {
  Call* const call = find(peer, number);
  if (call == nullptr) return;
  call->handshake = nullptr;
  if (result.not_now && number == first_call) return;  // its call is on the way; else the time limit strikes
  if (result.ended) return give_up(peer, result.why);
  if (result.stream) {
    const Length length = call->relayed ? Length::far : *call->length;
    if (number == first_call) {
      we_called.insert(peer);
      calls.erase(peer);
    } else {
      mendings[peer]->calls.erase(number);
    }
    return connect(peer, length, std::move(result.stream));
  }
  const std::string why = result.not_now ? "it is not connected yet" : result.why;
  call->relayed ? failed(peer, number, true, why) : call->caller->again(why);
}

void Service::Impl::failed(Peer peer, std::uint64_t number, bool late, const std::string& reason) {
  if (number != first_call) return not_mended(peer, number, !late, reason);
  const std::string& where = settings.endpoints[peer];
  if (!late || way(peer) == Way::Kind::relay) return give_up(peer, reason);
  const bool known = !reason.empty();
  give_up(peer, fmt::format("cannot be reached at {} within {} s{}{}{}", where,
                            std::chrono::ceil<std::chrono::seconds>(patience()).count(), known ? ": " : "", reason,
                            firewall_remedy));
}

// Mending: more streams for long links, and streams for those that were cut.

/// Calls for the streams that the link lacks, where that is this side's business: whoever has called, or has a way
/// there, and both where they meet at a relay. One that was cut is called by either.
void Service::Impl::mend(Peer peer) {
  const Lanes::Need need = links[peer]->need();
  if (need.lanes == 0) return;
  auto& mending = mendings[peer];
  if (!mending) mending = std::make_unique<Mending>(io);
  await_mending(peer, *mending, need);
  const Way::Kind kind = way(peer);
  const bool relayed = kind == Way::Kind::relay;
  if (!relayed && kind != Way::Kind::calls && (kind == Way::Kind::called || (!need.cut && !we_called.contains(peer))))
    return;
  // A relay joins one connection of a pair at a time.
  while (mending->calls.size() < (relayed ? 1 : need.lanes)) {
    const std::uint64_t number = ++last_number;
    mending->calls[number] = std::make_unique<Call>();
    if (relayed) {
      call_relay(peer, number);
    } else if (need.cut) {
      const auto left = std::chrono::duration_cast<milliseconds>(*need.cut + settings.resume_time - Link::Clock::now());
      call_directly(peer, number, std::max(left, milliseconds(1)), std::min<milliseconds>(patience(), again_max));
    } else {
      call_directly(peer, number, patience(), patience());
    }
    if (!mendings.contains(peer)) return;
  }
}

/// A link that was cut is lost when it is not mended in time.
void Service::Impl::await_mending(Peer peer, Mending& mending, const Lanes::Need& need) {
  if (!need.cut || mending.cut == need.cut) return;
  mending.cut = need.cut;
  mending.why.clear();
  mending.limit.expires_at(*need.cut + settings.resume_time);
  mending.limit.async_wait([this, peer, cut = *need.cut](const error_code& error) {
    if (error) return;
    const Lanes::Need now = links[peer]->need();
    if (now.cut != cut) return;
    const std::string why = mendings[peer]->why;
    give_up(peer,
            fmt::format("its connection was cut ({}), and did not come back within {:g} s (resume-time){}{}", now.why,
                        std::chrono::duration<double>(settings.resume_time).count(), why.empty() ? "" : ": ", why));
  });
}

/// `hopeless`: nobody is there any more.
void Service::Impl::not_mended(Peer peer, std::uint64_t number, bool hopeless, const std::string& reason) {
  const std::string why = reason;  // it may be the call's
  const auto found = mendings.find(peer);
  if (found == mendings.end()) return;
  Mending& mending = *found->second;
  mending.calls.erase(number);
  if (!why.empty()) mending.why = why;
  const Lanes::Need need = links[peer]->need();
  if (!need.cut) return links[peer]->limit_streams();
  if (hopeless) return give_up(peer, why);
  mend_later(peer, mending);
}

void Service::Impl::mend_later(Peer peer, Mending& mending) {
  mending.pause.expires_after(relay_pause);
  mending.pause.async_wait([this, peer](const error_code& error) {
    if (!error) mend(peer);
  });
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
  impl_->mendings.clear();
  for (const auto& [number, handshake] : impl_->answering) handshake->cancel();
  impl_->answering.clear();
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
