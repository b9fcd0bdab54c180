// SPDX-License-Identifier: MIT
#include "comm/shm/service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/thread.hpp"
#include "comm/connect/acceptor.hpp"
#include "comm/connect/caller.hpp"
#include "comm/connect/wakeup.hpp"

namespace aplib::comm::shm {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using connect::Acceptor;
using connect::Caller;
using connect::Socket;
using std::chrono::milliseconds;

constexpr const char* has_ended = "its process has ended";

bool is_same_user(int socket) noexcept {
  const auto who = os::peer_of(socket);
  return who && who->uid == ::geteuid();
}

connect::SocketAddress address_of(const Endpoint& endpoint) {
  const LocalAddress local = endpoint.address();
  return {&local.name, local.bytes};
}

}  // namespace

struct Service::Impl {
  /// A connection after its greeting, until each side has what the other gives.
  struct Joining : std::enable_shared_from_this<Joining> {
    Joining(Socket its_socket, Peer whom, bool we_call)
        : peer(whom), ours(we_call), socket(std::move(its_socket)), limit(socket.get_executor()) {}
    const Peer peer;
    const bool ours;
    Socket socket;
    asio::steady_timer limit;
    Connection connection{};
  };

  Impl(Service& owner, Settings& given, const Bell& bell_, std::span<const std::unique_ptr<Link>> all);

  void run() noexcept;
  void arrived(Socket socket, const Greeting& greeting);
  void asked() noexcept;
  void call(Peer peer);
  Caller::Verdict judge(const Caller::Failure& failure) const;
  void failed(Peer peer, bool late, const std::string& reason);
  void begin(Socket socket, Peer peer, bool ours);
  void receive(const std::shared_ptr<Joining>& joining);
  void received(Joining& joining);
  bool make_and_give(Joining& joining);
  void join(Joining& joining);
  void watch(Peer peer, int socket);
  void await_end(Peer peer, Socket& socket);
  void give_up(Joining& joining, const std::string& why);
  void give_up(Peer peer, const std::string& why) noexcept;
  void stop();
  [[nodiscard]] bool stands(const std::shared_ptr<Joining>& joining) const {
    const auto found = joinings.find(joining->peer);
    return found != joinings.end() && found->second == joining;
  }
  [[nodiscard]] Introduction introduction(Peer peer) const {
    return {settings.secure, Purpose::data, 0, settings.self, peer, settings.machine, 0};
  }
  [[nodiscard]] milliseconds patience() const {
    return std::max<milliseconds>(settings.peer_timeout, std::chrono::seconds(2));
  }
  [[nodiscard]] std::string no_answer() const {
    return fmt::format("it does not answer within {} s", std::chrono::ceil<std::chrono::seconds>(patience()).count());
  }
  void refuse() { refused.fetch_add(1, std::memory_order_relaxed); }
  void count() { service.system_calls_.fetch_add(1, std::memory_order_relaxed); }

  Service& service;
  const Settings& settings;
  const Bell& bell;
  std::span<const std::unique_ptr<Link>> links;
  std::vector<Endpoint> endpoints;
  std::atomic<std::uint64_t> refused{0};  // Of those who proved the key.

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  connect::Wakeup wakeup{io, [this] { asked(); }};
  std::optional<Acceptor> acceptor;
  std::map<Peer, std::unique_ptr<Caller>> calls;
  std::map<Peer, std::shared_ptr<Joining>> joinings;
  std::map<Peer, Socket> joined;  // Of links that are up; their descriptors are the links'.
  std::thread thread;
};

Service::Impl::Impl(Service& owner, Settings& given, const Bell& bell_, std::span<const std::unique_ptr<Link>> all)
    : service(owner), settings(given), bell(bell_), links(all) {
  endpoints.resize(links.size());
  for (Peer peer = 0; peer < links.size(); ++peer) {
    if (links[peer]) endpoints[peer] = *Endpoint::parse(settings.endpoints[peer]);  // the module has looked at it
  }
  acceptor.emplace(
      io,
      Acceptor::Settings{.key = settings.key,
                         .mine = introduction(Introduction::anyone),
                         .greeted_max = Acceptor::strangers_max + 2 * links.size()},
      Acceptor::Events{
          .accepted =
              [this](Socket& socket) {
                count();
                return is_same_user(socket.native_handle());
              },
          .arrived = [this](Socket socket, const Greeting& greeting) { arrived(std::move(socket), greeting); },
          .refused = [this](const std::string&) { refuse(); }});
  acceptor->listen(std::move(given.presence.listener));
  thread = os::quiet_thread("aplib-shm", [this] { run(); });
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

void Service::Impl::give_up(Peer peer, const std::string& why) noexcept {
  calls.erase(peer);
  joinings.erase(peer);
  links[peer]->give_up(why);
}

// Answering and calling.

void Service::Impl::arrived(Socket socket, const Greeting& greeting) {
  const Peer peer = greeting.peer().self;
  if (peer >= links.size() || !links[peer]) return refuse();
  switch (links[peer]->take_call(settings.self)) {
    case Link::Answer::unexpected:
      return;  // our calls crossed, and we are joined already
    case Link::Answer::not_now:
      static_cast<void>(give(socket.native_handle(), Verdict::not_now, nullptr, bell));
      return;
    case Link::Answer::taken:
      break;
  }
  if (const auto call = calls.extract(peer)) call.mapped()->withdraw();
  begin(std::move(socket), peer, false);
}

void Service::Impl::asked() noexcept {
  connect::make_wanted_calls(
      links, calls, [this](Peer peer) { call(peer); }, [this](Peer peer, const char* why) { give_up(peer, why); });
}

void Service::Impl::call(Peer peer) {
  auto& call = calls[peer];
  call = std::make_unique<Caller>(
      io,
      Caller::Settings{.places = {Caller::Place{.address = address_of(endpoints[peer])}},
                       .key = settings.key,
                       .patience = patience(),
                       .attempt_max = patience()},
      Caller::Events{
          .opened = [this](Socket&) { count(); },
          .introduce = [this, peer](Socket& socket) -> std::optional<Introduction> {
            if (!is_same_user(socket.native_handle())) return std::nullopt;
            return introduction(peer);
          },
          .greeted = [this, peer](Socket socket, const Greeting&) { begin(std::move(socket), peer, true); },
          .judge = [this](std::size_t, const Caller::Failure& failure) { return judge(failure); },
          .failed = [this, peer](bool late, std::span<const std::string> reasons) { failed(peer, late, reasons[0]); }});
  call->begin();
}

Caller::Verdict Service::Impl::judge(const Caller::Failure& failure) const {
  using Kind = Caller::Failure::Kind;
  switch (failure.kind) {
    case Kind::unreached:
      // The listener lives as long as its process. Any other error passes.
      if (failure.error == asio::error::connection_refused) return {has_ended, true};
      break;
    case Kind::unwanted:
      return {"what answers for it is another user's", true};
    case Kind::stranger:
      return {"what answers for it is not of this machine: " + failure.why, true};
    case Kind::refused:
      return {failure.why, true};
    case Kind::ended:  // it dropped us for others, or it has ended: the next attempt shows
    case Kind::spoiled:
      break;
  }
  return {failure.why};
}

void Service::Impl::failed(Peer peer, bool late, const std::string& reason) {
  if (!late) return give_up(peer, reason);
  give_up(peer, reason.empty() ? no_answer() : fmt::format("{}: {}", no_answer(), reason));
}

// Behind the greeting.

/// The answerer gives first, which tells the caller whether its call was taken.
void Service::Impl::begin(Socket socket, Peer peer, bool ours) {
  const auto joining = std::make_shared<Joining>(std::move(socket), peer, ours);
  joinings[peer] = joining;
  joining->limit.expires_after(patience());
  joining->limit.async_wait([this, joining](const error_code& error) {
    if (!error && stands(joining)) give_up(joining->peer, no_answer());
  });
  if (ours || make_and_give(*joining)) receive(joining);
}

void Service::Impl::receive(const std::shared_ptr<Joining>& joining) {
  joining->socket.async_wait(Socket::wait_read, [this, joining](const error_code& error) {
    if (!stands(joining)) return;
    count();
    if (error) return give_up(joining->peer, has_ended);
    std::string why;
    switch (take(joining->socket.native_handle(), joining->connection, why)) {
      case Given::nothing_yet:
        return receive(joining);
      case Given::not_now:
        // The peer's own call is under way. If it does not come, the peer is lost.
        if (!joining->ours) return give_up(joining->peer, "it does not follow the protocol");
        joinings.erase(joining->peer);
        return;
      case Given::wrong:
        return give_up(*joining, why);
      case Given::taken:
        return received(*joining);
    }
  });
}

void Service::Impl::received(Joining& joining) {
  if (joining.ours) {
    if (links[joining.peer]->state() != Link::State::calling) {  // theirs was taken meanwhile
      joinings.erase(joining.peer);
      return;
    }
    if (!make_and_give(joining)) return;
  }
  join(joining);
}

bool Service::Impl::make_and_give(Joining& joining) {
  try {
    joining.connection.mine = SharedMemory::make(sizeof(Segment));
  } catch (const Error& error) {
    give_up(joining, error.what());
    return false;
  }
  if (give(joining.socket.native_handle(), Verdict::taken, &joining.connection.mine, bell)) return true;
  give_up(joining.peer, has_ended);
  return false;
}

/// Tells the other side what went wrong here, because it would take the end of the connection for that of this process.
void Service::Impl::give_up(Joining& joining, const std::string& why) {
  static_cast<void>(give(joining.socket.native_handle(), Verdict::unable, nullptr, bell));
  give_up(joining.peer, why);
}

void Service::Impl::join(Joining& joining) {
  const Peer peer = joining.peer;
  error_code error;
  const int socket = joining.socket.release(error);
  if (error) return give_up(peer, error.message());
  joining.connection.mine.forget_descriptor();
  joining.connection.socket.reset(socket);
  joining.limit.cancel();
  Connection connection = std::move(joining.connection);
  calls.erase(peer);
  joinings.erase(peer);
  if (links[peer]->connect(std::move(connection))) watch(peer, socket);
}

/// Only the end comes there, or the reason why the other side could not join.
void Service::Impl::watch(Peer peer, int socket) {
  const auto place = joined.try_emplace(peer, io, Socket::protocol_type(AF_UNIX, 0), socket).first;
  await_end(peer, place->second);
}

void Service::Impl::await_end(Peer peer, Socket& socket) {
  socket.async_wait(Socket::wait_read, [this, peer, &socket](const error_code& error) {
    if (error) return links[peer]->give_up(has_ended);
    Connection ignored;
    std::string why = "it does not follow the protocol";
    if (take(socket.native_handle(), ignored, why) == Given::nothing_yet) return await_end(peer, socket);
    links[peer]->give_up(why);
  });
}

void Service::Impl::stop() {
  if (!thread.joinable()) return;
  io.stop();
  thread.join();
  acceptor->close();
  calls.clear();
  joinings.clear();
  // The links close their descriptors.
  error_code ignored;
  for (auto& [peer, socket] : joined) socket.release(ignored);
  joined.clear();
}

Service::Service(Settings& settings, const Bell& bell, std::span<const std::unique_ptr<Link>> links)
    : impl_(std::make_unique<Impl>(*this, settings, bell, links)) {}

Service::~Service() { stop(); }

void Service::call() noexcept { impl_->wakeup.ask(); }

void Service::stop() { impl_->stop(); }

std::uint64_t Service::refused() const noexcept {
  return impl_->acceptor->strangers() + impl_->refused.load(std::memory_order_relaxed);
}

}  // namespace aplib::comm::shm
