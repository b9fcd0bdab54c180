// SPDX-License-Identifier: MIT
#include "comm/tcp/service.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "comm/tcp/address.hpp"
#include "comm/tcp/entrance.hpp"
#include "comm/tcp/stream.hpp"

namespace aplib::comm::tcp {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;
using Socket = asio::ip::tcp::socket;
using Endpoint = asio::ip::tcp::endpoint;

constexpr std::uint32_t streams_max = 64;
constexpr std::uint32_t streams_when_far = 4;
constexpr milliseconds far{2};
constexpr milliseconds retry_after{50};
constexpr milliseconds accept_again_after{100};

}  // namespace

struct Service::State {
  /// A call of ours, until the link is up or it is given up.
  struct Call {
    Call(State& owner, Peer whom) : peer(whom), limit(owner.io), pause(owner.io) {}
    Peer peer;
    asio::steady_timer limit;
    asio::steady_timer pause;
    std::vector<std::unique_ptr<Stream>> streams;
    std::size_t arrived = 0;
    std::string trouble;
  };
  /// A call of theirs that was taken, until all its streams are here.
  struct Gathering {
    explicit Gathering(State& owner) : limit(owner.io) {}
    asio::steady_timer limit;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<bool> expected;
    std::size_t arrived = 0;
  };

  State(Service& service, Settings& given, std::span<const std::unique_ptr<Link>> all);

  void run() noexcept;
  void accept();
  void answer(Socket socket);
  Entrance::Verdict judge(const Introduction& who, bool& taken);
  void answered(Entrance::Result result, bool taken);
  void call(Peer peer);
  void dial(const std::shared_ptr<Call>& call, std::uint16_t stream);
  void dialled(const std::shared_ptr<Call>& call, std::uint16_t stream, Socket socket);
  void called(const std::shared_ptr<Call>& call, std::uint16_t stream, Entrance::Result result);
  void dial_again(const std::shared_ptr<Call>& call, std::string trouble);
  void give_up(Peer peer, const std::string& why);
  void look();
  [[nodiscard]] bool stands(const std::shared_ptr<Call>& call) const;
  [[nodiscard]] Introduction introduction(Peer peer, std::uint16_t stream, std::size_t streams) const;
  [[nodiscard]] std::string name(Peer peer) const;
  [[nodiscard]] milliseconds patience() const;
  void refuse() { service_.refused_.fetch_add(1, std::memory_order_relaxed); }

  Service& service_;
  Settings settings;
  std::span<const std::unique_ptr<Link>> links;
  std::optional<TlsContext> tls;
  std::vector<Endpoint> endpoints;

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::ip::tcp::acceptor acceptor{io};
  asio::steady_timer accept_pause{io};
  asio::steady_timer next_look{io};
  std::list<std::shared_ptr<Entrance>> answering;
  std::map<Peer, std::shared_ptr<Call>> calls;
  std::map<Peer, std::unique_ptr<Gathering>> gatherings;
  std::thread thread;
};

Service::State::State(Service& service, Settings& given, std::span<const std::unique_ptr<Link>> all)
    : service_(service), settings(std::move(given)), links(all) {
  if (settings.secure == Secure::tls) tls.emplace();
  for (Peer peer = 0; peer < links.size(); ++peer) {
    const auto endpoint = links[peer] ? parse_endpoint(settings.endpoints[peer]) : std::optional<Endpoint>(Endpoint());
    if (!endpoint) {
      throw Error(Errc::bad_argument, fmt::format("tcp: \"{}\", where {} shall be reached, is not an address with a "
                                                  "port, like 10.0.0.1:5103 or [fd00::1]:5103",
                                                  settings.endpoints[peer], name(peer)));
    }
    endpoints.push_back(*endpoint);
  }
  const auto own = parse_endpoint(settings.listener.endpoint());
  const int listening = settings.listener.release();
  if (!own || listening < 0) throw Error(Errc::bad_argument, "tcp: the listener was used before");
  acceptor.assign(own->protocol(), listening);
  accept();
  // Signals are for the threads of the program.
  sigset_t all_signals;
  sigset_t before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  try {
    thread = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(Errc::exhausted, fmt::format("tcp: cannot start its thread: {}; raise the limit of processes "
                                             "(ulimit -u)",
                                             error.code().message()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), "aplib-tcp");
}

void Service::State::run() noexcept {
  while (!io.stopped()) {
    try {
      io.run();
    } catch (const std::exception&) {
      // No memory for one connection: it ends by its time limit, the others go on.
    }
  }
}

milliseconds Service::State::patience() const {
  return std::max<milliseconds>(settings.peer_timeout, std::chrono::seconds(2));
}

std::string Service::State::name(Peer peer) const {
  const bool named = peer < settings.names.size() && !settings.names[peer].empty();
  return named ? fmt::format("{} (process {})", settings.names[peer], peer) : fmt::format("process {}", peer);
}

Introduction Service::State::introduction(Peer peer, std::uint16_t stream, std::size_t streams) const {
  return {settings.secure, Purpose::data, stream, settings.self, peer, settings.machine, streams};
}

// Answering.

void Service::State::accept() {
  acceptor.async_accept([this](const error_code& error, Socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {  // no descriptors left, or a connection that ended at once
      accept_pause.expires_after(accept_again_after);
      accept_pause.async_wait([this](const error_code& stopped) {
        if (!stopped) accept();
      });
      return;
    }
    answer(std::move(socket));
    accept();
  });
}

void Service::State::answer(Socket socket) {
  if (answering.size() >= connect::strangers_max + 2 * links.size()) {
    // Somebody opens connections and says nothing. The one that has been silent for longest goes.
    const auto silent = std::find_if(answering.begin(), answering.end(), [](const auto& e) { return !e->greeted(); });
    const auto oldest = silent != answering.end() ? *silent : answering.front();
    oldest->cancel("too many connections that say nothing");
  }
  prepare_socket(socket.native_handle(), settings.peer_timeout);
  const auto taken = std::make_shared<bool>(false);
  const auto place = answering.emplace(answering.end());
  try {
    *place = std::make_shared<Entrance>(
        std::move(socket), Greeting::Role::answerer, settings.key, introduction(Introduction::anyone, 0, 0),
        tls ? &*tls : nullptr, [this, taken](const Introduction& who) { return judge(who, *taken); },
        [this, taken, place](Entrance::Result result) {
          answering.erase(place);
          answered(std::move(result), *taken);
        });
  } catch (...) {
    answering.erase(place);
    throw;
  }
  const std::shared_ptr<Entrance> entrance = *place;
  entrance->begin();
}

/// Which of the connections of a pair carries the frames. On the service thread, where nothing else changes it.
Entrance::Verdict Service::State::judge(const Introduction& who, bool& taken) {
  using Verdict = Entrance::Verdict;
  const Peer peer = who.self;
  const std::size_t streams = who.token;
  if (peer >= links.size() || !links[peer] || streams == 0 || streams > streams_max || who.stream >= streams)
    return Verdict::drop;
  if (who.stream == 0) {
    // Both call.
    if (connect::our_call_counts(settings.self, peer) && links[peer]->state() == Link::State::calling)
      return Verdict::not_now;
    if (!links[peer]->gather(connect::our_call_counts(peer, settings.self))) return Verdict::drop;
    calls.erase(peer);
    auto& gathering = gatherings[peer];
    gathering = std::make_unique<Gathering>(*this);
    gathering->streams.resize(streams);
    gathering->expected.assign(streams, true);
    gathering->limit.expires_after(patience());
    gathering->limit.async_wait([this, peer](const error_code& error) {
      if (error) return;
      gatherings.erase(peer);
      links[peer]->give_up("its connections did not all come");
    });
  }
  const auto found = gatherings.find(peer);
  if (found == gatherings.end() || found->second->streams.size() != streams || !found->second->expected[who.stream])
    return Verdict::drop;
  found->second->expected[who.stream] = false;
  taken = true;
  return Verdict::taken;
}

void Service::State::answered(Entrance::Result result, bool taken) {
  using Outcome = Entrance::Outcome;
  if (result.outcome == Outcome::not_now) return;
  if (!taken) return refuse();
  const auto found = gatherings.find(result.peer.self);
  if (found == gatherings.end()) return;  // given up meanwhile
  Gathering& gathering = *found->second;
  if (result.outcome != Outcome::taken) {
    const std::string words = result.words;
    gatherings.erase(found);
    links[result.peer.self]->give_up(words);
    return;
  }
  gathering.streams[result.peer.stream] = std::move(result.stream);
  if (++gathering.arrived < gathering.streams.size()) return;
  std::vector<std::unique_ptr<Stream>> streams = std::move(gathering.streams);
  gatherings.erase(found);
  links[result.peer.self]->connect(std::move(streams));
}

// Calling.

bool Service::State::stands(const std::shared_ptr<Call>& call) const {
  const auto found = calls.find(call->peer);
  return found != calls.end() && found->second == call;
}

void Service::State::give_up(Peer peer, const std::string& why) {
  calls.erase(peer);
  links[peer]->give_up(why);
}

void Service::State::call(Peer peer) {
  if (links[peer]->state() != Link::State::calling) return;  // theirs was quicker
  const auto call = std::make_shared<Call>(*this, peer);
  calls[peer] = call;
  call->limit.expires_after(patience());
  call->limit.async_wait([this, call](const error_code& error) {
    if (error || !stands(call)) return;
    give_up(call->peer, fmt::format("cannot be reached at {} within {} s{}{}", settings.endpoints[call->peer],
                                    std::chrono::ceil<std::chrono::seconds>(patience()).count(),
                                    call->trouble.empty() ? "" : ": ", call->trouble));
  });
  dial(call, 0);
}

void Service::State::dial(const std::shared_ptr<Call>& call, std::uint16_t stream) {
  const auto socket = std::make_shared<Socket>(io);
  const Endpoint& endpoint = endpoints[call->peer];
  error_code error;
  socket->open(endpoint.protocol(), error);
  if (error) return dial_again(call, describe_connection_error(error.value()));
  prepare_socket(socket->native_handle(), settings.peer_timeout);
  socket->async_connect(endpoint, [this, call, stream, socket](const error_code& failed) {
    if (!stands(call)) return;
    if (!failed) return dialled(call, stream, std::move(*socket));
    const std::string& where = settings.endpoints[call->peer];
    if (failed == asio::error::connection_refused)
      return give_up(call->peer, fmt::format("connection refused at {}: its process has ended", where));
    if (failed == asio::error::host_unreachable || failed == asio::error::network_unreachable)
      return give_up(call->peer,
                     fmt::format("cannot be reached at {}: {}", where, describe_connection_error(failed.value())));
    dial_again(call, describe_connection_error(failed.value()));
  });
}

void Service::State::dialled(const std::shared_ptr<Call>& call, std::uint16_t stream, Socket socket) {
  if (stream == 0 && call->streams.empty()) {
    std::uint32_t streams = std::min(settings.streams, streams_max);
    if (streams == 0) streams = round_trip(socket.native_handle()) > far ? streams_when_far : 1;
    call->streams.resize(streams);
  }
  std::make_shared<Entrance>(std::move(socket), Greeting::Role::caller, settings.key,
                             introduction(call->peer, stream, call->streams.size()), tls ? &*tls : nullptr, nullptr,
                             [this, call, stream](Entrance::Result result) { called(call, stream, std::move(result)); })
      ->begin();
}

void Service::State::called(const std::shared_ptr<Call>& call, std::uint16_t stream, Entrance::Result result) {
  using Outcome = Entrance::Outcome;
  if (!stands(call)) return;
  const std::string& where = settings.endpoints[call->peer];
  switch (result.outcome) {
    case Outcome::not_now:
      return;  // its call is on the way; else the time limit strikes
    case Outcome::refused:
      return give_up(call->peer, fmt::format("at {}: {}", where, result.words));
    case Outcome::stranger:
      return give_up(call->peer, fmt::format("what answers at {} is not of this machine: {}", where, result.words));
    case Outcome::failed:
      return dial_again(call, result.words);
    case Outcome::taken:
      break;
  }
  call->streams[stream] = std::move(result.stream);
  if (++call->arrived < call->streams.size()) {
    if (stream != 0) return;
    for (std::uint16_t more = 1; more < call->streams.size() && stands(call); ++more) dial(call, more);
    return;
  }
  calls.erase(call->peer);
  links[call->peer]->connect(std::move(call->streams));
}

/// Once the first stream is taken, the other side counts on all of them, and a link that misses one is lost.
void Service::State::dial_again(const std::shared_ptr<Call>& call, std::string trouble) {
  call->trouble = std::move(trouble);
  if (call->arrived != 0) {
    return give_up(call->peer, fmt::format("one of its {} connections to {} failed: {}", call->streams.size(),
                                           settings.endpoints[call->peer], call->trouble));
  }
  call->pause.expires_after(retry_after);
  call->pause.async_wait([this, call](const error_code& error) {
    if (!error && stands(call)) dial(call, 0);
  });
}

/// Every quarter of the time after which a host counts as lost, as long as something is under way; then never again
/// until something is sent.
void Service::State::look() {
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
    // Who sends from here on sees that nobody looks. Who has just sent is seen by the second look: it holds the
    // same lock.
    service_.looking_.store(false);
    if (any_active() && !service_.looking_.exchange(true)) look();
  });
}

Service::Service(Settings& settings, std::span<const std::unique_ptr<Link>> links)
    : state_(std::make_unique<State>(*this, settings, links)) {}

Service::~Service() { stop(); }

void Service::stop() {
  if (!state_->thread.joinable()) return;
  state_->io.stop();
  state_->thread.join();
  error_code ignored;
  state_->acceptor.close(ignored);
  state_->calls.clear();
  state_->gatherings.clear();
}

void Service::call(Peer peer) {
  asio::post(state_->io, [state = state_.get(), peer] { state->call(peer); });
}

void Service::begin_looking() {
  if (looking_.exchange(true)) return;
  asio::post(state_->io, [state = state_.get()] { state->look(); });
}

}  // namespace aplib::comm::tcp
