// SPDX-License-Identifier: MIT
#include "comm/connect/relay_call.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <span>
#include <utility>

#include "comm/tcp/address.hpp"

namespace aplib::comm::connect {

using boost::system::error_code;

namespace {

/// The ends come when their processes have loaded the program.
constexpr std::chrono::seconds other_end_max{100};

}  // namespace

std::optional<Caller::Place> relay_place(std::string_view text) {
  using Local = boost::asio::local::stream_protocol;
  if (text.starts_with('/')) {
    if (text.size() >= sizeof(sockaddr_un::sun_path)) return std::nullopt;
    return Caller::Place{.address = Local::endpoint(std::string(text))};
  }
  const auto endpoint = tcp::parse_endpoint(std::string(text));
  if (!endpoint) return std::nullopt;
  return Caller::Place{.address = *endpoint};
}

struct RelayCall::Impl : std::enable_shared_from_this<RelayCall::Impl> {
  Impl(boost::asio::io_context& its_io, Settings its_settings, Events its_events)
      : settings(std::move(its_settings)), events(std::move(its_events)), io(its_io), limit(its_io) {}

  void begin();
  void greeted(Socket greeted);
  void fail(const std::string& why);
  void end() noexcept;

  const Settings settings;
  Events events;
  boost::asio::io_context& io;
  boost::asio::steady_timer limit;  // For the other end.
  std::unique_ptr<Caller> caller;
  std::optional<Socket> socket;  // Of the relay that has been greeted.
  std::array<std::byte, 1> word{};
  bool over = false;
};

void RelayCall::Impl::begin() {
  const std::optional<Caller::Place> place = relay_place(settings.place);
  Caller::Events what;
  what.opened = events.opened;
  what.introduce = [this](Socket&) -> std::optional<Introduction> {
    return Introduction{.secure = Secure::auth,
                        .purpose = Purpose::relay,
                        .self = settings.self,
                        .peer = settings.peer,
                        .machine = settings.machine};
  };
  what.greeted = [this](Socket socket_now, const Greeting&) { greeted(std::move(socket_now)); };
  what.judge = [](std::size_t, const Caller::Failure& failure) {
    using Kind = Caller::Failure::Kind;
    return Caller::Verdict{failure.error ? failure.error.message() : failure.why,
                           failure.kind != Kind::ended};  // it stood before: who refuses now is gone
  };
  what.failed = [this](bool, std::span<const std::string> reasons) {
    fail(fmt::format("cannot be reached at {}{}{}", settings.place, reasons[0].empty() ? "" : ": ", reasons[0]));
  };
  caller = std::make_unique<Caller>(io,
                                    Caller::Settings{.places = {place.value_or(Caller::Place{})},
                                                     .key = settings.key,
                                                     .patience = settings.patience,
                                                     .attempt_max = settings.patience},
                                    std::move(what));
  caller->begin();
}

void RelayCall::Impl::greeted(Socket greeted) {
  socket.emplace(std::move(greeted));
  caller.reset();
  limit.expires_after(other_end_max);
  limit.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->over && self->socket) self->fail("the other end has not come to it");
  });
  socket->async_read_some(boost::asio::buffer(word), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (self->over || !self->socket) return;
    if (error) return self->fail("it has ended the connection before the other end came");
    if (self->word[0] != joined_word) return self->fail("it does not follow the protocol");
    self->limit.cancel();
    Socket done = std::move(*self->socket);
    self->socket.reset();
    self->events.joined(std::move(done));
  });
}

void RelayCall::Impl::fail(const std::string& why) {
  const auto self = shared_from_this();  // the event may end the call
  end();
  events.failed(why);
}

void RelayCall::Impl::end() noexcept {
  over = true;
  limit.cancel();
  error_code ignored;
  if (socket) socket->close(ignored);
}

RelayCall::RelayCall(boost::asio::io_context& io, Settings settings, Events events)
    : impl_(std::make_shared<Impl>(io, std::move(settings), std::move(events))) {
  boost::asio::post(io, [weak = std::weak_ptr<Impl>(impl_)] {
    if (const auto impl = weak.lock(); impl && !impl->over) impl->begin();
  });
}

RelayCall::~RelayCall() {
  impl_->end();
  impl_->caller.reset();
}

}  // namespace aplib::comm::connect
