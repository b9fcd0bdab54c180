// SPDX-License-Identifier: MIT
#include "relay/relay.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "comm/connect/acceptor.hpp"
#include "comm/connect/caller.hpp"
#include "comm/connect/relay_call.hpp"
#include "relay/pumps.hpp"

namespace aplib::relay {
namespace {

using boost::system::error_code;
using comm::Greeting;
using comm::Introduction;
using comm::connect::Socket;

/// An end whose other one has not come by then is given up.
constexpr std::chrono::seconds alone_max{120};
/// For the way to another relay.
constexpr std::chrono::seconds dial_patience{10};
/// For a look whether another relay can be reached, with its greeting: as long as processes look for each other.
constexpr std::chrono::milliseconds reach_patience{2500};
/// Of one job. One more drops the oldest.
constexpr std::size_t alone_ends_max = 65536;
constexpr std::size_t greeted_max = 1024;

/// A connection over which nothing comes for long is asked whether it still stands.
void prepare(int socket) {
  constexpr int yes = 1;
  constexpr int idle_s = 60;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
}

}  // namespace

struct Relay::Impl : std::enable_shared_from_this<Relay::Impl> {
  /// An end that waits for the other one.
  struct Alone {
    Alone(boost::asio::io_context& io, Socket its_socket) : socket(std::move(its_socket)), limit(io) {}
    Socket socket;
    boost::asio::steady_timer limit;
    bool speaks = false;  // Through another relay, which has joined it: the process behind may speak already.
    std::function<void(const std::string&)> failed{};
  };
  struct Dial {
    std::unique_ptr<comm::connect::RelayCall> call;
    std::function<void(const std::string&)> failed;
  };

  struct Job {
    comm::JobKey key;
    std::function<void(const PairName&)> again;
    std::set<std::pair<std::uint32_t, std::uint32_t>> joined{};  // Ever. The smaller number first.
  };
  /// A look for another relay.
  struct Reach {
    std::string machine;
    std::function<void(const std::string&)> told;
    std::vector<std::unique_ptr<comm::connect::Caller>> callers{};
    std::size_t open = 0;  // Calls that may still get there.
  };

  explicit Impl(boost::asio::io_context& its_io)
      : io(its_io), pumps([this](std::uint64_t pair) {
          boost::asio::post(io, [weak = weak_from_this(), pair] {
            if (const auto self = weak.lock()) self->pairs.erase(pair);
          });
        }) {}

  void begin();
  void arrived(Socket socket, const Greeting& greeting);
  void come(const PairName& name, std::shared_ptr<Alone> end);
  void watch(const PairName& name, const std::shared_ptr<Alone>& end);
  void join(const PairName& name, Alone& first, Alone& second);
  void give_up(const PairName& name, const std::shared_ptr<Alone>& end, const std::string& why);
  void settle(std::uint64_t reach, const std::string& place);

  boost::asio::io_context& io;
  std::map<std::string, Job, std::less<>> jobs;
  std::map<PairName, std::shared_ptr<Alone>> alone;
  std::map<PairName, Dial> dials;
  std::map<std::uint64_t, Reach> reaches;
  std::uint64_t next_reach = 1;
  std::map<std::uint64_t, PairName> pairs;
  std::uint64_t next_pair = 1;
  Counts counted;
  std::optional<comm::connect::Acceptor> acceptor;
  Pumps pumps;
};

void Relay::Impl::begin() {
  comm::connect::Acceptor::Settings settings{.key = comm::JobKey::make(),
                                             .mine = {.secure = comm::Secure::auth, .purpose = comm::Purpose::relay},
                                             .keys =
                                                 [this](std::string_view machine) {
                                                   const auto found = jobs.find(machine);
                                                   return found == jobs.end() ? std::nullopt
                                                                              : std::optional(found->second.key);
                                                 },
                                             .greeted_max = greeted_max};
  acceptor.emplace(
      io, std::move(settings),
      comm::connect::Acceptor::Events{
          .accepted =
              [](Socket& socket) {
                prepare(socket.native_handle());
                return true;
              },
          .arrived = [this](Socket socket, const Greeting& greeting) { arrived(std::move(socket), greeting); },
          .refused = [this](const std::string&) { ++counted.refused; }});
}

void Relay::Impl::arrived(Socket socket, const Greeting& greeting) {
  const Introduction& who = greeting.peer();
  if (who.self == who.peer) return;  // only to see whether there is a way
  come({who.machine, who.self, who.peer}, std::make_shared<Alone>(io, std::move(socket)));
}

/// An end that comes again has given up its first connection.
void Relay::Impl::come(const PairName& name, std::shared_ptr<Alone> end) {
  if (const auto other = alone.find(name.other()); other != alone.end()) {
    const std::shared_ptr<Alone> first = std::move(other->second);
    alone.erase(other);
    return join(name, *first, *end);
  }
  if (alone.size() >= alone_ends_max) return give_up(name, end, "too many ends wait at the relay");
  if (const auto old = alone.find(name); old != alone.end()) give_up(name, old->second, "it has come again");
  alone[name] = end;
  end->limit.expires_after(alone_max);
  end->limit.async_wait([self = shared_from_this(), name, end](const error_code& error) {
    if (!error && end->socket.is_open()) self->give_up(name, end, "the other end has not come");
  });
  if (end->speaks) return;
  watch(name, end);
  const auto job = jobs.find(name.machine);
  if (job != jobs.end() && job->second.again && job->second.joined.contains(std::minmax(name.self, name.peer)))
    job->second.again(name);
}

/// Who waits says nothing: its connection has ended.
void Relay::Impl::watch(const PairName& name, const std::shared_ptr<Alone>& end) {
  end->socket.async_wait(Socket::wait_read, [self = shared_from_this(), name, end](const error_code& error) {
    if (!error && end->socket.is_open()) self->give_up(name, end, "it has gone");
  });
}

void Relay::Impl::give_up(const PairName& name, const std::shared_ptr<Alone>& end, const std::string& why) {
  ++counted.given_up;
  const std::shared_ptr<Alone> kept = end;
  if (const auto found = alone.find(name); found != alone.end() && found->second == kept) alone.erase(found);
  kept->limit.cancel();
  error_code ignored;
  kept->socket.close(ignored);
  if (kept->failed) std::exchange(kept->failed, nullptr)(why);
}

void Relay::Impl::join(const PairName& name, Alone& first, Alone& second) {
  std::array<os::UniqueFd, 2> sockets;
  for (std::size_t i = 0; Alone * each : {&first, &second}) {
    each->limit.cancel();
    error_code error;
    os::UniqueFd socket(each->socket.release(error));
    const std::byte word = comm::connect::joined_word;
    if (!error && !each->speaks && ::send(socket.get(), &word, 1, MSG_NOSIGNAL) != 1) error = boost::asio::error::eof;
    if (!error) sockets[i++] = std::move(socket);
  }
  if (!sockets[1]) return;  // the one that is left hears it by its end
  const std::uint64_t pair = next_pair++;
  pairs[pair] = name;
  if (const auto job = jobs.find(name.machine); job != jobs.end())
    job->second.joined.insert(std::minmax(name.self, name.peer));
  pumps.add(pair, std::move(sockets[0]), std::move(sockets[1]));
  ++counted.joined;
}

/// `place` was reached, or "": one more was not.
void Relay::Impl::settle(std::uint64_t number, const std::string& place) {
  const auto reach = reaches.find(number);
  if (reach == reaches.end() || (place.empty() && --reach->second.open != 0)) return;
  const auto node = std::make_shared<Reach>(std::move(reach->second));
  reaches.erase(reach);
  boost::asio::post(io, [node] { node->callers.clear(); });  // one of them calls just now
  node->told(place);
}

Relay::Relay(boost::asio::io_context& io) : impl_(std::make_shared<Impl>(io)) { impl_->begin(); }

Relay::~Relay() {
  impl_->acceptor->close();
  impl_->dials.clear();
  impl_->reaches.clear();
  for (const auto& [name, end] : std::exchange(impl_->alone, {})) {
    end->limit.cancel();
    error_code ignored;
    end->socket.close(ignored);
  }
}

void Relay::listen(os::UniqueFd socket) { impl_->acceptor->listen(std::move(socket)); }

void Relay::add_job(const std::string& machine, const comm::JobKey& key,
                    std::function<void(const PairName& name)> again) {
  impl_->jobs.insert_or_assign(machine, Impl::Job{key, std::move(again)});
}

void Relay::remove_job(const std::string& machine) {
  impl_->jobs.erase(machine);
  std::erase_if(impl_->dials, [&](const auto& each) { return each.first.machine == machine; });
  std::erase_if(impl_->reaches, [&](const auto& each) { return each.second.machine == machine; });
  std::erase_if(impl_->alone, [&](const auto& each) {
    if (each.first.machine != machine) return false;
    each.second->limit.cancel();
    error_code ignored;
    each.second->socket.close(ignored);
    return true;
  });
  for (const auto& [pair, name] : impl_->pairs)
    if (name.machine == machine) impl_->pumps.drop(pair);
}

void Relay::dial(const std::string& place, const PairName& name, std::function<void(const std::string& why)> failed) {
  const auto job = impl_->jobs.find(name.machine);
  if (job == impl_->jobs.end()) return failed("there is no such job here");
  Impl* const impl = impl_.get();
  comm::connect::RelayCall::Events events;
  events.opened = [](Socket& socket) { prepare(socket.native_handle()); };
  events.joined = [impl, name](Socket socket) {
    auto end = std::make_shared<Impl::Alone>(impl->io, std::move(socket));
    end->speaks = true;
    const auto dial = impl->dials.extract(name);
    end->failed = std::move(dial.mapped().failed);
    impl->come(name.other(), std::move(end));
  };
  events.failed = [impl, name, place](const std::string& why) {
    const auto dial = impl->dials.extract(name);
    if (!dial.empty()) dial.mapped().failed(why);
  };
  auto call = std::make_unique<comm::connect::RelayCall>(impl->io,
                                                         comm::connect::RelayCall::Settings{.place = place,
                                                                                            .key = job->second.key,
                                                                                            .machine = name.machine,
                                                                                            .self = name.self,
                                                                                            .peer = name.peer,
                                                                                            .patience = dial_patience},
                                                         std::move(events));
  impl->dials[name] = {std::move(call), std::move(failed)};
}

void Relay::reach(const std::vector<std::string>& places, const std::string& machine,
                  std::function<void(const std::string& place)> told) {
  using comm::connect::Caller;
  const auto job = impl_->jobs.find(machine);
  if (job == impl_->jobs.end() || places.empty()) return told("");
  Impl* const impl = impl_.get();
  const std::uint64_t number = impl->next_reach++;
  Impl::Reach& reach = impl->reaches[number];
  reach.machine = machine;
  reach.told = std::move(told);
  for (const std::string& place : places) {
    Caller::Events events;
    events.introduce = [machine](Socket&) {  // itself as its peer: only to see whether there is a way
      return std::optional(
          Introduction{.secure = comm::Secure::auth, .purpose = comm::Purpose::relay, .machine = machine});
    };
    events.greeted = [impl, number, place](Socket, const Greeting&) { impl->settle(number, place); };
    events.judge = [](std::size_t, const Caller::Failure&) { return Caller::Verdict{{}, true}; };
    events.failed = [impl, number](bool, std::span<const std::string>) { impl->settle(number, ""); };
    reach.callers.push_back(std::make_unique<Caller>(
        impl->io,
        Caller::Settings{.places = {comm::connect::relay_place(place).value_or(Caller::Place{})},
                         .key = job->second.key,
                         .patience = reach_patience,
                         .attempt_max = reach_patience},
        std::move(events)));
    ++reach.open;
    boost::asio::post(impl->io, [weak = impl_->weak_from_this(), number, caller = reach.callers.back().get()] {
      const auto self = weak.lock();
      if (self && self->reaches.contains(number)) caller->begin();
    });
  }
}

Counts Relay::counts() const {
  Counts counts = impl_->counted;
  counts.pairs = impl_->pairs.size();
  counts.alone = impl_->alone.size();
  counts.bytes = impl_->pumps.bytes();
  counts.strangers = impl_->acceptor->strangers();
  return counts;
}

void Relay::list(const std::function<void(const PairName& name, bool joined)>& each) const {
  for (const auto& [pair, name] : impl_->pairs) each(name, true);
  for (const auto& [name, end] : impl_->alone) each(name, false);
}

}  // namespace aplib::relay
