// SPDX-License-Identifier: MIT
#include "launch/control/connect.hpp"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <utility>

#include "launch/control/endpoint.hpp"
#include "launch/control/socket_connection.hpp"

namespace aplib::launch {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds attempt_max{5};
constexpr std::chrono::milliseconds pause{200};

/// Tries one endpoint after the other, again and again.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(EventLoop& loop, const ConnectionSettings& settings, Connecting what)
      : loop_(loop),
        settings_(settings),
        what_(std::move(what)),
        resolver_(loop.io()),
        socket_(loop.io()),
        timer_(loop),
        give_up_(Clock::now() + what_.patience),
        reasons_(what_.endpoints.size()) {}

  void next() {
    if (at_ == what_.endpoints.size()) {
      at_ = 0;
      if (Clock::now() >= give_up_) return fail();
      timer_.start(pause, [self = shared_from_this()] { self->next(); });
      return;
    }
    const auto endpoint = parse_endpoint(what_.endpoints[at_]);
    if (!endpoint) return went_wrong("not an address with a port");
    const std::uint64_t attempt = ++attempt_;
    timer_.start(attempt_max, [self = shared_from_this()] { self->went_wrong("no answer"); });
    resolver_.async_resolve(
        endpoint->host, std::to_string(endpoint->port),
        [self = shared_from_this(), attempt](const error_code& error, const tcp::resolver::results_type& found) {
          if (attempt != self->attempt_) return;
          if (error) return self->went_wrong(error.message());
          self->connect(found, attempt);
        });
  }

 private:
  void connect(const tcp::resolver::results_type& found, std::uint64_t attempt) {
    socket_ = tcp::socket(loop_.io());
    asio::async_connect(socket_, found,
                        [self = shared_from_this(), attempt](const error_code& error, const tcp::endpoint&) {
                          if (attempt != self->attempt_) return;
                          if (error) return self->went_wrong(error.message());
                          self->greet(attempt);
                        });
  }

  void greet(std::uint64_t attempt) {
    timer_.cancel();  // the greeting has a limit of its own
    ConnectionEvents events;
    events.opened = [self = shared_from_this(), attempt](std::uint32_t) {
      if (attempt != self->attempt_) return;
      const auto connection = std::exchange(self->connection_, {}).lock();
      const auto made = std::exchange(self->what_, {}).made;
      made(connection);
    };
    events.closed = [self = shared_from_this(), attempt](ConnectionEnd end, const std::string& why) {
      self->connection_.reset();
      if (attempt != self->attempt_) return;
      if (end == ConnectionEnd::refused) self->give_up_ = Clock::now();
      self->went_wrong(end == ConnectionEnd::stranger ? fmt::format("what answers there is not the launcher ({})", why)
                                                      : why);
    };
    connection_ =
        make_connection(loop_, settings_, std::move(socket_), comm::Greeting::Role::caller, std::move(events));
  }

  void went_wrong(const std::string& why) {
    ++attempt_;
    error_code ignored;
    resolver_.cancel();
    socket_.close(ignored);
    reasons_[at_++] = why;
    next();
  }

  void fail() {
    std::string text;
    for (std::size_t i = 0; i < reasons_.size(); ++i)
      text += fmt::format("{}{}: {}", i == 0 ? "" : "; ", what_.endpoints[i], reasons_[i]);
    const auto failed = std::exchange(what_, {}).failed;
    failed(text);
  }

  EventLoop& loop_;
  const ConnectionSettings settings_;
  Connecting what_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  Timer timer_;
  Clock::time_point give_up_;
  std::vector<std::string> reasons_;
  std::size_t at_ = 0;
  std::uint64_t attempt_ = 0;
  std::weak_ptr<Connection> connection_;  ///< What it waits for keeps it, and it keeps us: a loop that ends ends both.
};

}  // namespace

void connect_to_launcher(EventLoop& loop, const ConnectionSettings& settings, Connecting what) {
  const auto connector = std::make_shared<Connector>(loop, settings, std::move(what));
  loop.post([connector] { connector->next(); });
}

}  // namespace aplib::launch
