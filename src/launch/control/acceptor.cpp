// SPDX-License-Identifier: MIT
#include "launch/control/acceptor.hpp"

#include <fmt/format.h>

#include <boost/asio/ip/tcp.hpp>
#include <set>
#include <utility>

#include "aplib/error.hpp"
#include "launch/control/endpoint.hpp"
#include "launch/control/socket_connection.hpp"

namespace aplib::launch {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// Connections that have not proved anything yet; more are dropped at once, so that strangers cannot take all descriptors.
constexpr std::size_t unproved_max = 256;
constexpr std::chrono::milliseconds pause_when_out_of_descriptors{100};

void listen_on(tcp::acceptor& acceptor, const std::string& address, std::uint16_t first, std::uint16_t last) {
  error_code error;
  const auto ip = asio::ip::make_address(address, error);
  if (error) throw Error(Errc::failed, fmt::format("cannot listen on {}: {}", address, error.message()));
  for (std::uint32_t port = first; port <= last; ++port) {
    const tcp::endpoint endpoint(ip, static_cast<std::uint16_t>(port));
    acceptor.open(endpoint.protocol(), error);
    if (error) break;
    acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) return;
    error_code ignored;
    acceptor.close(ignored);
  }
  throw Error(Errc::failed,
              first == last
                  ? fmt::format("cannot listen on {}: {}", endpoint_text(address, first), error.message())
                  : fmt::format("cannot listen on {}: no port of {}-{} is free (the last: {}); choose others by ports",
                                address, first, last, error.message()));
}

}  // namespace

struct Acceptor::Inside : std::enable_shared_from_this<Acceptor::Inside> {
  Inside(EventLoop& its_loop, ConnectionSettings its_settings, Events its_events)
      : loop(its_loop), settings(std::move(its_settings)), events(std::move(its_events)), pause(its_loop) {}

  void accept(tcp::acceptor& from) {
    from.async_accept([self = shared_from_this(), &from](const error_code& error, tcp::socket socket) {
      if (self->closed || error == asio::error::operation_aborted) return;
      if (error) {  // mostly: no descriptor is left
        self->pause.start(pause_when_out_of_descriptors, [self, &from] { self->accept(from); });
        return;
      }
      self->greet(std::move(socket));
      self->accept(from);
    });
  }

  void greet(tcp::socket socket) {
    if (unproved.size() >= unproved_max) {
      ++strangers;
      return;
    }
    const auto place = std::make_shared<std::shared_ptr<Connection>>();
    ConnectionEvents first;
    first.opened = [self = shared_from_this(), place](std::uint32_t peer) {
      const std::shared_ptr<Connection> connection = std::exchange(*place, nullptr);
      self->unproved.erase(connection);
      if (self->closed) return connection->close();
      connection->listen(self->events.arrived(connection, peer));
    };
    first.closed = [self = shared_from_this(), place](ConnectionEnd end, const std::string& why) {
      self->unproved.erase(std::exchange(*place, nullptr));
      if (self->closed) return;
      if (end == ConnectionEnd::refused) return self->events.refused(why);
      ++self->strangers;
    };
    *place = make_connection(loop, settings, std::move(socket), comm::Greeting::Role::answerer, std::move(first));
    if (*place != nullptr) unproved.insert(*place);
  }

  EventLoop& loop;
  const ConnectionSettings settings;
  const Events events;
  Timer pause;
  std::vector<tcp::acceptor> acceptors;
  std::set<std::shared_ptr<Connection>> unproved;
  std::uint64_t strangers = 0;
  bool closed = false;
};

Acceptor::Acceptor(EventLoop& loop, const ConnectionSettings& settings, const std::vector<std::string>& addresses,
                   std::uint16_t first_port, std::uint16_t last_port, Events events)
    : inside_(std::make_shared<Inside>(loop, settings, std::move(events))) {
  for (const std::string& address : addresses)
    listen_on(inside_->acceptors.emplace_back(loop.io()), address, first_port, last_port);
  for (tcp::acceptor& acceptor : inside_->acceptors) inside_->accept(acceptor);
}

Acceptor::~Acceptor() { close(); }

std::vector<std::string> Acceptor::endpoints() const {
  std::vector<std::string> all;
  for (const tcp::acceptor& acceptor : inside_->acceptors) {
    const tcp::endpoint endpoint = acceptor.local_endpoint();
    all.push_back(endpoint_text(endpoint.address().to_string(), endpoint.port()));
  }
  return all;
}

std::uint64_t Acceptor::strangers() const { return inside_->strangers; }

void Acceptor::close() {
  if (std::exchange(inside_->closed, true)) return;
  error_code ignored;
  for (tcp::acceptor& acceptor : inside_->acceptors) acceptor.close(ignored);
  const auto unproved = std::exchange(inside_->unproved, {});
  for (const auto& connection : unproved) connection->close();
}

}  // namespace aplib::launch
