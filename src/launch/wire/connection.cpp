// SPDX-License-Identifier: MIT
#include "launch/wire/connection.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "aplib/error.hpp"
#include "comm/connect/greeter.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::wire {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::size_t read_bytes = std::size_t{16} << 10;
/// Limit of a message before the peer has introduced itself.
constexpr std::size_t small_bytes_max = std::size_t{64} << 10;
constexpr std::chrono::seconds farewell{1};

/// Programs of the cells start other programs (system, popen): who has proved the key shall not be theirs.
/// Boost.Asio does not do it.
void keep_from_children(int descriptor) { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

/// A connected socket, perhaps with TLS on it.
class Wire {
 public:
  explicit Wire(tcp::socket socket) : socket_(std::move(socket)) {}

  template <class Handler>
  void read_some(asio::mutable_buffer into, Handler handler) {
    if (tls_) {
      tls_->async_read_some(into, std::move(handler));
    } else {
      socket_.async_read_some(into, std::move(handler));
    }
  }
  template <class Handler>
  void write(asio::const_buffer bytes, Handler handler) {
    if (tls_) {
      asio::async_write(*tls_, bytes, std::move(handler));
    } else {
      asio::async_write(socket_, bytes, std::move(handler));
    }
  }
  template <class Handler>
  void encrypt(const comm::TlsContext& tls, std::span<const std::byte, 32> secret, bool caller, Handler handler) {
    context_.emplace(tls.share());
    tls_.emplace(socket_, *context_);
    comm::set_tls_secret(tls_->native_handle(), secret);
    using Side = asio::ssl::stream_base;
    tls_->async_handshake(caller ? Side::client : Side::server, std::move(handler));
  }
  tcp::socket& socket() { return socket_; }
  [[nodiscard]] const tcp::socket& socket() const { return socket_; }
  void close() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
  std::optional<asio::ssl::context> context_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
};

std::string words_of(const error_code& error) {
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) return "its connection was closed";
  return fmt::format("its connection broke: {}", error.message());
}

class SocketConnection final : public Connection, public std::enable_shared_from_this<SocketConnection> {
 public:
  SocketConnection(EventLoop& loop, const ConnectionSettings& settings, tcp::socket socket)
      : loop_(loop), settings_(settings), wire_(std::move(socket)), timer_(loop) {
    keep_from_children(wire_.socket().native_handle());
    error_code ignored;
    wire_.socket().set_option(tcp::no_delay(true), ignored);
    const auto local = wire_.socket().local_endpoint(ignored);
    const auto remote = wire_.socket().remote_endpoint(ignored);
    local_ = local.address().to_string();
    remote_ = remote.address().to_string();
  }

  void greet(comm::Greeting::Role role, ConnectionEvents events) {
    events_ = std::move(events);
    comm::Introduction mine;
    mine.secure = settings_.secure == comm::Secure::tls ? comm::Secure::tls : comm::Secure::auth;
    mine.purpose = comm::Purpose::control;
    mine.self = settings_.self;
    greeter_.emplace(role, settings_.key, mine);
    caller_ = role == comm::Greeting::Role::caller;
    timer_.start(comm::Greeting::time_max, [this] { end(ConnectionEnd::stranger, "no greeting in time"); });
    greeter_->begin(wire_.socket(), shared_from_this(),
                    [this](const comm::connect::Greeter::Failure& failure) { greeted(failure); });
  }

  void send_encoded(MessageType type, std::span<const std::byte> body) override {
    {
      const std::lock_guard lock(mutex_);
      if (dead_) return;
      if (waiting_.size() + body.size() > settings_.waiting_bytes_max) {
        dead_ = true;
        waiting_ = {};
        asio::post(loop_.io(), [self = shared_from_this()] {
          self->end(ConnectionEnd::silent, fmt::format("it has stopped reading: more than {} MiB wait for it",
                                                       self->settings_.waiting_bytes_max >> 20));
        });
        return;
      }
      append_message(waiting_, type, body);
      if (writing_) return;
      writing_ = true;
    }
    asio::post(loop_.io(), [self = shared_from_this()] { self->write(); });
  }

  void listen(ConnectionEvents events) override { events_ = std::move(events); }
  void trust() override { trusted_ = true; }
  void close() override {
    events_ = {};
    closing_ = true;
    timer_.start(farewell, [this] { end(ConnectionEnd::lost, "closed"); });
    const std::lock_guard lock(mutex_);
    if (!writing_) close_our_end();
  }
  void drop() override {
    events_ = {};
    end(ConnectionEnd::lost, "dropped");
  }
  std::string local_address() const override { return local_; }
  std::string remote_address() const override { return remote_; }

 private:
  void greeted(const comm::connect::Greeter::Failure& failure) {
    using State = comm::Greeting::State;
    if (ended_) return;
    const comm::Greeting& greeting = greeter_->greeting();
    if (failure.error) return end(ConnectionEnd::stranger, words_of(failure.error));
    if (!failure.trouble.empty()) return end(ConnectionEnd::refused, failure.trouble);
    if (greeting.state() == State::stranger) return end(ConnectionEnd::stranger, greeting.words());
    if (greeting.state() == State::refused) return end(ConnectionEnd::refused, greeting.words());
    if (settings_.secure != comm::Secure::tls) return open();
    try {
      wire_.encrypt(*settings_.tls, greeting.secret(), caller_, [self = shared_from_this()](const error_code& error) {
        if (error) return self->end(ConnectionEnd::stranger, words_of(error));
        self->open();
      });
    } catch (const Error& problem) {
      end(ConnectionEnd::refused, problem.what());
    }
  }

  void open() {
    if (ended_) return;
    const std::uint32_t peer = greeter_->greeting().peer().self;
    greeter_.reset();
    heard_ = ticked_ = Clock::now();
    in_.resize(read_bytes);
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      writing_ = true;
    }
    tick_later();
    const auto self = shared_from_this();
    if (events_.opened) events_.opened(peer);
    write();
    read();
  }

  void read() {
    if (ended_) return;
    if (in_.size() - filled_ < read_bytes / 2) in_.resize(std::max(in_.size() + in_.size() / 2, read_bytes));
    wire_.read_some(asio::buffer(in_.data() + filled_, in_.size() - filled_),
                    [self = shared_from_this()](const error_code& error, std::size_t count) {
                      if (self->ended_) return;
                      if (error) return self->end(ConnectionEnd::lost, words_of(error));
                      self->heard_ = Clock::now();
                      self->filled_ += count;
                      if (self->take_messages()) self->read();
                    });
  }

  /// What is complete goes to its reader. False: this was the end.
  bool take_messages() {
    std::size_t at = 0;
    while (filled_ - at >= message_head_bytes) {
      const std::span<const std::byte> rest(in_.data() + at, filled_ - at);
      const auto head = read_head(rest);
      if (!head || (!trusted_ && head->bytes > small_bytes_max)) {
        end(ConnectionEnd::lost, "what it sends is not the control protocol");
        return false;
      }
      if (rest.size() - message_head_bytes < head->bytes) break;
      at += message_head_bytes + head->bytes;
      if (head->type == MessageType::beat || !events_.message) continue;
      const auto message = events_.message;  // the call may take the events away
      message(head->type, rest.subspan(message_head_bytes, head->bytes));
      if (ended_) return false;
    }
    std::copy(in_.begin() + static_cast<std::ptrdiff_t>(at), in_.begin() + static_cast<std::ptrdiff_t>(filled_),
              in_.begin());
    filled_ -= at;
    if (filled_ == 0 && in_.size() > 8 * read_bytes) in_ = Bytes(read_bytes);
    return true;
  }

  void write() {
    if (ended_) return;
    {
      const std::lock_guard lock(mutex_);
      if (!open_) return;  // open() begins with what waits
      under_way_.clear();
      std::swap(under_way_, waiting_);
      writing_ = !under_way_.empty();
      if (writing_) sent_ = true;
    }
    if (under_way_.empty()) {
      if (closing_) close_our_end();
      return;
    }
    wire_.write(asio::buffer(under_way_), [self = shared_from_this()](const error_code& error, std::size_t) {
      if (self->ended_) return;
      // Why the peer went may still stand in what it sent last: the reader finds out.
      if (error) return self->stop_writing();
      self->write();
    });
  }

  /// Not the other one: what the peer has not read yet would be thrown away by an end that comes with unread bytes.
  void close_our_end() {
    error_code ignored;
    wire_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  void stop_writing() {
    const std::lock_guard lock(mutex_);
    dead_ = true;
    waiting_.clear();
  }

  void tick_later() {
    timer_.start(settings_.timeout / 5, [this] { tick(); });
  }
  void tick() {
    if (closing_) return;
    const auto now = Clock::now();
    // This process itself may have been stopped: what came meanwhile has not been read yet.
    if (now - std::exchange(ticked_, now) > settings_.timeout / 5 * 2) heard_ = now;
    if (now - heard_ > settings_.timeout) {
      const std::chrono::duration<double> limit = settings_.timeout;
      return end(ConnectionEnd::silent,
                 fmt::format("nothing was heard of it for {:g} s (peer-timeout)", limit.count()));
    }
    if (!std::exchange(sent_, false)) send(Beat{});
    tick_later();
  }

  void end(ConnectionEnd how, const std::string& why) {
    if (std::exchange(ended_, true)) return;
    if (greeter_) greeter_->cancel();
    const auto self = shared_from_this();
    timer_.cancel();
    stop_writing();
    wire_.close();
    const ConnectionEvents events = std::exchange(events_, {});
    if (events.closed) events.closed(how, why);
  }

  EventLoop& loop_;
  const ConnectionSettings settings_;
  Wire wire_;
  ConnectionEvents events_;
  std::optional<comm::connect::Greeter> greeter_;
  Timer timer_;  // of the greeting, then of the signs of life
  std::string local_;
  std::string remote_;
  Bytes in_;
  std::size_t filled_ = 0;
  Clock::time_point heard_{};
  Clock::time_point ticked_{};
  bool caller_ = false;
  bool ended_ = false;
  bool closing_ = false;
  bool trusted_ = false;
  bool sent_ = false;  // since the last tick
  Bytes under_way_;    // the system has it, or part of it
  std::mutex mutex_;   // of what follows
  Bytes waiting_;
  bool writing_ = false;
  bool open_ = false;
  bool dead_ = false;
};

/// Greets as `role`; then `events.opened` is called, or `events.closed`. Loop's thread.
std::shared_ptr<Connection> make_connection(EventLoop& loop, const ConnectionSettings& settings, tcp::socket socket,
                                            comm::Greeting::Role role, ConnectionEvents events) {
  const auto connection = std::make_shared<SocketConnection>(loop, settings, std::move(socket));
  connection->greet(role, std::move(events));
  return connection;
}

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

namespace {

/// Connections that have not proved anything yet. For one more the oldest is dropped: strangers take no more
/// descriptors than these, and one of ours, which greets at once, gets in between any number of silent ones.
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
    keep_from_children(acceptor.native_handle());
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

struct Acceptor::Impl : std::enable_shared_from_this<Acceptor::Impl> {
  Impl(EventLoop& its_loop, ConnectionSettings its_settings, Events its_events)
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
      const std::shared_ptr<Connection> oldest = unproved.front();
      unproved.pop_front();
      oldest->drop();
    }
    const auto place = std::make_shared<std::shared_ptr<Connection>>();
    ConnectionEvents first;
    first.opened = [self = shared_from_this(), place](std::uint32_t peer) {
      const std::shared_ptr<Connection> connection = std::exchange(*place, nullptr);
      self->unproved.remove(connection);
      if (self->closed) return connection->close();
      connection->listen(self->events.arrived(connection, peer));
    };
    first.closed = [self = shared_from_this(), place](ConnectionEnd end, const std::string& why) {
      self->unproved.remove(std::exchange(*place, nullptr));
      if (self->closed) return;
      if (end == ConnectionEnd::refused) return self->events.refused(why);
      ++self->strangers;
    };
    *place = make_connection(loop, settings, std::move(socket), comm::Greeting::Role::answerer, std::move(first));
    if (*place != nullptr) unproved.push_back(*place);
  }

  EventLoop& loop;
  const ConnectionSettings settings;
  const Events events;
  Timer pause;
  std::vector<tcp::acceptor> acceptors;
  std::list<std::shared_ptr<Connection>> unproved;  // the oldest first
  std::uint64_t strangers = 0;
  bool closed = false;
};

Acceptor::Acceptor(EventLoop& loop, const ConnectionSettings& settings, const std::vector<std::string>& addresses,
                   std::uint16_t first_port, std::uint16_t last_port, Events events)
    : impl_(std::make_shared<Impl>(loop, settings, std::move(events))) {
  for (const std::string& address : addresses)
    listen_on(impl_->acceptors.emplace_back(loop.io()), address, first_port, last_port);
  for (tcp::acceptor& acceptor : impl_->acceptors) impl_->accept(acceptor);
}

Acceptor::~Acceptor() { close(); }

std::vector<std::string> Acceptor::endpoints() const {
  std::vector<std::string> all;
  for (const tcp::acceptor& acceptor : impl_->acceptors) {
    const tcp::endpoint endpoint = acceptor.local_endpoint();
    all.push_back(endpoint_text(endpoint.address().to_string(), endpoint.port()));
  }
  return all;
}

std::uint64_t Acceptor::strangers() const { return impl_->strangers; }

void Acceptor::close() {
  if (std::exchange(impl_->closed, true)) return;
  error_code ignored;
  for (tcp::acceptor& acceptor : impl_->acceptors) acceptor.close(ignored);
  const auto unproved = std::exchange(impl_->unproved, {});
  for (const auto& connection : unproved) connection->close();
}

}  // namespace aplib::launch::wire
