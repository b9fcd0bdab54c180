// SPDX-License-Identifier: MIT
#include "comm/connect/acceptor.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <list>
#include <optional>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm::connect {
namespace {

using boost::system::error_code;

/// The pause after an accept() for which no descriptor was left.
constexpr std::chrono::milliseconds accept_again_after{100};

Socket::protocol_type protocol_of(int socket) {
  int family = 0;
  socklen_t bytes = sizeof family;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0) return {family, 0};
  throw Error(Errc::failed, fmt::format("cannot listen: {}", std::generic_category().message(errno)));
}

}  // namespace

struct Acceptor::Impl : std::enable_shared_from_this<Acceptor::Impl> {
  struct Listener {
    Listener(boost::asio::io_context& io, Socket::protocol_type its_protocol, int descriptor)
        : protocol(its_protocol), socket(io, its_protocol, descriptor), pause(io) {}
    const Socket::protocol_type protocol;
    Socket socket;
    boost::asio::steady_timer pause;
  };
  /// A connection that is being greeted.
  struct Newcomer {
    Newcomer(boost::asio::io_context& io, Socket its_socket, const Settings& settings)
        : socket(std::move(its_socket)), limit(io) {
      if (settings.keys) {
        greeter.emplace(settings.keys, settings.mine);
      } else {
        greeter.emplace(Greeting::Role::answerer, settings.key, settings.mine);
      }
    }
    Socket socket;
    boost::asio::steady_timer limit;
    std::optional<Greeter> greeter;
  };
  using Place = std::list<std::shared_ptr<Newcomer>>::iterator;

  Impl(boost::asio::io_context& its_io, Settings its_settings, Events its_events)
      : io(its_io), settings(std::move(its_settings)), events(std::move(its_events)) {}

  void wait(Listener& listener);
  void accept(Listener& listener);
  void greet(Socket socket);
  void greeted(Place place, const Greeter::Failure& failure);
  void drop(Place place) noexcept;
  void count() noexcept { strangers.fetch_add(1, std::memory_order_relaxed); }  // relaxed: a count, nothing else

  boost::asio::io_context& io;
  const Settings settings;
  const Events events;
  std::list<Listener> listeners;
  std::list<std::shared_ptr<Newcomer>> newcomers;  // The oldest first.
  std::atomic<std::uint64_t> strangers = 0;
  bool closed = false;
};

/// A pending wait keeps this object alive: a listener that was closed may still hear of its end.
void Acceptor::Impl::wait(Listener& listener) {
  listener.socket.async_wait(Socket::wait_read, [self = shared_from_this(), &listener](const error_code& error) {
    if (!self->closed && error != boost::asio::error::operation_aborted) self->accept(listener);
  });
}

void Acceptor::Impl::accept(Listener& listener) {
  // The library's own accept is not used, because programs that are started meanwhile would inherit the socket.
  os::UniqueFd accepted(::accept4(listener.socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int reason = errno;
  if (accepted) {
    try {
      Socket socket(io);
      socket.assign(listener.protocol, accepted.get());
      static_cast<void>(accepted.release());
      greet(std::move(socket));
    } catch (const std::exception&) {
      count();  // there is no memory for this one; the next ones may find some
    }
    if (closed) return;
  } else if (reason != EAGAIN && reason != EINTR && reason != ECONNABORTED) {
    listener.pause.expires_after(accept_again_after);
    listener.pause.async_wait([self = shared_from_this(), &listener](const error_code& error) {
      if (!self->closed && error != boost::asio::error::operation_aborted) self->accept(listener);
    });
    return;
  }
  wait(listener);
}

void Acceptor::Impl::greet(Socket socket) {
  if (events.accepted && !events.accepted(socket)) return count();
  if (newcomers.size() >= settings.greeted_max) drop(newcomers.begin());
  const auto newcomer = std::make_shared<Newcomer>(io, std::move(socket), settings);
  const Place place = newcomers.insert(newcomers.end(), newcomer);
  try {
    newcomer->limit.expires_after(Greeting::time_max);
    newcomer->limit.async_wait([this, self = shared_from_this(), newcomer, place](const error_code& error) {
      if (!error && newcomer->socket.is_open()) drop(place);
    });
    newcomer->greeter->begin(newcomer->socket, newcomer,
                             [this, place](const Greeter::Failure& failure) { greeted(place, failure); });
  } catch (...) {
    newcomers.erase(place);
    newcomer->greeter->cancel();
    error_code ignored;
    newcomer->socket.close(ignored);
    throw;
  }
}

void Acceptor::Impl::greeted(Place place, const Greeter::Failure& failure) {
  const std::shared_ptr<Impl> self = shared_from_this();  // an event may end the acceptor
  const std::shared_ptr<Newcomer> newcomer = *place;
  const Greeting& greeting = newcomer->greeter->greeting();
  if (failure.error || greeting.state() == Greeting::State::stranger) return drop(place);
  newcomers.erase(place);
  newcomer->limit.cancel();
  // The newcomer's own socket is closed from here on, and its time limit notices that.
  Socket socket = std::move(newcomer->socket);
  if (!failure.trouble.empty()) return events.refused(failure.trouble);
  if (greeting.state() == Greeting::State::refused) return events.refused(greeting.words());
  events.arrived(std::move(socket), greeting);
}

void Acceptor::Impl::drop(Place place) noexcept {
  const std::shared_ptr<Newcomer> newcomer = std::move(*place);
  newcomers.erase(place);
  count();
  newcomer->greeter->cancel();
  error_code ignored;
  newcomer->limit.cancel();
  newcomer->socket.close(ignored);
}

Acceptor::Acceptor(boost::asio::io_context& io, Settings settings, Events events)
    : impl_(std::make_shared<Impl>(io, std::move(settings), std::move(events))) {}

Acceptor::~Acceptor() { close(); }

void Acceptor::listen(os::UniqueFd socket) {
  const Socket::protocol_type protocol = protocol_of(socket.get());
  impl_->listeners.emplace_back(impl_->io, protocol, socket.get());
  static_cast<void>(socket.release());
  impl_->wait(impl_->listeners.back());
}

void Acceptor::close() noexcept {
  if (std::exchange(impl_->closed, true)) return;
  error_code ignored;
  for (Impl::Listener& listener : impl_->listeners) {
    listener.pause.cancel();
    listener.socket.close(ignored);
  }
  for (const std::shared_ptr<Impl::Newcomer>& newcomer : std::exchange(impl_->newcomers, {})) {
    newcomer->greeter->cancel();
    newcomer->limit.cancel();
    newcomer->socket.close(ignored);
  }
}

std::uint64_t Acceptor::strangers() const noexcept { return impl_->strangers.load(std::memory_order_relaxed); }

}  // namespace aplib::comm::connect
