// SPDX-License-Identifier: MIT
#include "comm/tcp/relayed_end.hpp"

#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>

namespace aplib::comm::tcp {

using boost::system::error_code;
using connect::Greeter;
using connect::RelayCall;
using connect::Socket;

struct RelayedEnd::Impl : std::enable_shared_from_this<RelayedEnd::Impl> {
  Impl(boost::asio::io_context& io, const JobKey& its_key, Introduction its_mine, Events its_events)
      : key(its_key), mine(std::move(its_mine)), events(std::move(its_events)), limit(io) {}

  void greet(Socket joined);
  void greeted(const Greeter::Failure& failure);
  void fail(const std::string& why);
  void end() noexcept;

  const JobKey key;
  const Introduction mine;
  const Events events;
  boost::asio::steady_timer limit;
  std::unique_ptr<RelayCall> call;
  std::optional<Socket> socket;
  std::optional<Greeter> greeter;
  bool over = false;
};

void RelayedEnd::Impl::greet(Socket joined) {
  socket.emplace(std::move(joined));
  limit.expires_after(Greeting::time_max);
  limit.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->over) self->fail("no answer from the other process");
  });
  greeter.emplace(mine.self < mine.peer ? Greeting::Role::caller : Greeting::Role::answerer, key, mine);
  greeter->begin(*socket, shared_from_this(), [this](const Greeter::Failure& failure) { greeted(failure); });
}

void RelayedEnd::Impl::greeted(const Greeter::Failure& failure) {
  const auto self = shared_from_this();  // an event may end it
  if (failure.error) return fail("the connection ended while the other process was being greeted");
  if (!failure.trouble.empty()) return fail(failure.trouble);
  if (greeter->greeting().state() != Greeting::State::done) return fail(greeter->greeting().words());
  limit.cancel();
  over = true;
  Socket done = std::move(*socket);
  socket.reset();
  events.greeted(std::move(done), greeter->greeting());
}

void RelayedEnd::Impl::fail(const std::string& why) {
  const auto self = shared_from_this();  // the event may end it
  end();
  events.failed(why);
}

void RelayedEnd::Impl::end() noexcept {
  over = true;
  limit.cancel();
  if (greeter) greeter->cancel();
  error_code ignored;
  if (socket) socket->close(ignored);
}

RelayedEnd::RelayedEnd(boost::asio::io_context& io, RelayCall::Settings call, const JobKey& key, Introduction mine,
                       Events events)
    : impl_(std::make_shared<Impl>(io, key, std::move(mine), std::move(events))) {
  Impl* const impl = impl_.get();
  impl->call =
      std::make_unique<RelayCall>(io, std::move(call),
                                  RelayCall::Events{.opened = impl->events.opened,
                                                    .joined = [impl](Socket socket) { impl->greet(std::move(socket)); },
                                                    .failed = [impl](const std::string& why) { impl->fail(why); }});
}

RelayedEnd::~RelayedEnd() {
  impl_->end();
  impl_->call.reset();
}

}  // namespace aplib::comm::tcp
