// SPDX-License-Identifier: MIT
#include "launch/wire/connection.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "comm/connect/acceptor.hpp"
#include "comm/connect/caller.hpp"
#include "launch/wire/endpoint.hpp"

namespace aplib::launch::wire {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using comm::connect::Caller;
using comm::connect::DescriptorPair;
using comm::connect::Socket;
using Clock = std::chrono::steady_clock;

constexpr std::size_t read_bytes = std::size_t{16} << 10;
/// The longest message of a peer that has not introduced itself.
constexpr std::size_t small_bytes_max = std::size_t{64} << 10;
constexpr std::chrono::seconds farewell{1};

/// What waits to be written: bytes of its own, and bodies that others have too.
class Outgoing {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::vector<asio::const_buffer> buffers() const {
    std::vector<asio::const_buffer> all;
    for (const Piece& piece : pieces_) {
      all.push_back(asio::buffer(piece.own));
      if (piece.shared != nullptr) all.push_back(asio::buffer(*piece.shared));
    }
    return all;
  }
  /// Lets `add` append to a buffer, and returns what it has appended, valid until the next call.
  template <class Add>
  std::span<const std::byte> append(Add&& add) {
    if (pieces_.empty() || pieces_.back().shared != nullptr) pieces_.emplace_back();
    Bytes& own = pieces_.back().own;
    const std::size_t before = own.size();
    add(own);
    size_ += own.size() - before;
    return std::span<const std::byte>(own).subspan(before);
  }
  void share(std::shared_ptr<const Bytes> body) {
    append([](Bytes&) {});
    size_ += body->size();
    pieces_.back().shared = std::move(body);
  }
  /// Keeps the memory of usual messages for the next ones, and no more.
  void clear() {
    size_ = 0;
    if (pieces_.empty()) return;
    pieces_.resize(1);
    pieces_.front().shared.reset();
    pieces_.front().own.clear();
    if (pieces_.front().own.capacity() > kept_bytes_max) pieces_.front().own = {};
  }

 private:
  static constexpr std::size_t kept_bytes_max = std::size_t{64} << 10;
  struct Piece {
    Bytes own{};
    std::shared_ptr<const Bytes> shared{};  ///< Behind it.
  };
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;  // invariant: of all pieces
};

/// A connected socket, perhaps with TLS on it, or a pair of descriptors.
class Wire {
 public:
  explicit Wire(Socket socket) : stream_(std::move(socket)) {}
  explicit Wire(DescriptorPair pair) : stream_(std::move(pair)) {}

  template <class Handler>
  void read_some(asio::mutable_buffer into, Handler handler) {
    if (tls_) return tls_->async_read_some(into, std::move(handler));
    std::visit([&](auto& stream) { stream.async_read_some(into, std::move(handler)); }, stream_);
  }
  template <class Handler>
  void write(const std::vector<asio::const_buffer>& bytes, Handler handler) {
    if (tls_) return asio::async_write(*tls_, bytes, std::move(handler));
    std::visit([&](auto& stream) { asio::async_write(stream, bytes, std::move(handler)); }, stream_);
  }
  /// REQUIRES: it is a socket.
  template <class Handler>
  void encrypt(const comm::TlsContext& tls, std::span<const std::byte, 32> secret, bool caller, Handler handler) {
    context_.emplace(tls.share());
    tls_.emplace(std::get<Socket>(stream_), *context_);
    comm::set_tls_secret(tls_->native_handle(), secret);
    using Side = asio::ssl::stream_base;
    tls_->async_handshake(caller ? Side::client : Side::server, std::move(handler));
  }
  Socket& socket() { return std::get<Socket>(stream_); }
  DescriptorPair& pair() { return std::get<DescriptorPair>(stream_); }
  /// Leaves the other direction open: closing it with unread bytes would discard what the peer has not read yet.
  void finish() {
    error_code ignored;
    if (auto* socket = std::get_if<Socket>(&stream_)) {
      socket->shutdown(Socket::shutdown_send, ignored);
    } else {
      pair().finish();
    }
  }
  void close() {
    error_code ignored;
    if (auto* socket = std::get_if<Socket>(&stream_)) {
      socket->shutdown(Socket::shutdown_both, ignored);
      socket->close(ignored);
    } else {
      pair().close();
    }
  }

 private:
  std::variant<Socket, DescriptorPair> stream_;
  std::optional<asio::ssl::context> context_;
  std::optional<asio::ssl::stream<Socket&>> tls_;
};

std::string address_of(const comm::connect::SocketAddress& from) {
  tcp::endpoint endpoint;
  endpoint.resize(std::min(from.size(), endpoint.capacity()));
  std::memcpy(endpoint.data(), from.data(), endpoint.size());
  return endpoint.address().to_string();
}

std::string words_of(const error_code& error) {
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated) return "its connection was closed";
  return fmt::format("its connection broke: {}", error.message());
}

comm::Introduction introduction(const ConnectionSettings& settings) {
  comm::Introduction mine;
  mine.secure = settings.secure == comm::Secure::tls ? comm::Secure::tls : comm::Secure::auth;
  mine.purpose = comm::Purpose::control;
  mine.self = settings.self;
  return mine;
}

class StreamConnection final : public Connection, public std::enable_shared_from_this<StreamConnection> {
 public:
  StreamConnection(EventLoop& loop, const ConnectionSettings& settings, Socket socket)
      : loop_(loop), settings_(settings), wire_(std::move(socket)), timer_(loop) {
    error_code ignored;
    wire_.socket().set_option(tcp::no_delay(true), ignored);
    comm::connect::limit_pauses(wire_.socket().native_handle(),
                                std::chrono::duration_cast<std::chrono::milliseconds>(settings_.timeout));
    local_ = address_of(wire_.socket().local_endpoint(ignored));
  }
  StreamConnection(EventLoop& loop, const ConnectionSettings& settings, DescriptorPair pair)
      : loop_(loop), settings_(settings), wire_(std::move(pair)), timer_(loop) {}

  /// Begins with the greeting, of a pair of descriptors.
  void greet(std::uint32_t peer, std::string_view came, ConnectionEvents events) {
    events_ = std::move(events);
    const bool we_call = settings_.self != comm::Introduction::launcher;
    comm::Introduction mine = introduction(settings_);
    mine.peer = peer;
    greeter_.emplace(we_call ? comm::Greeting::Role::caller : comm::Greeting::Role::answerer, settings_.key,
                     std::move(mine));
    timer_.start(comm::Greeting::time_max, [this] {
      end(ConnectionEnd::stranger,
          fmt::format("it did not answer the greeting within {} s", comm::Greeting::time_max.count()));
    });
    greeter_->begin(
        wire_.pair(), shared_from_this(),
        [this, we_call](const PairGreeter::Failure& failure) { greeted(failure, we_call); },
        std::as_bytes(std::span(came)));
  }

  /// Begins without a greeting: both sides have the job's key by this way, and nobody else uses it for this process.
  void join(std::uint32_t peer, ConnectionEvents events) {
    events_ = std::move(events);
    peer_ = peer;
    awaited_ = true;
    const bool we_call = settings_.self != comm::Introduction::launcher;
    const std::uint32_t process = we_call ? settings_.self : peer;
    seal(comm::derive_secret(settings_.key, std::as_bytes(std::span(&process, 1)), "a node's control connection"),
         we_call);
    open();
  }

  /// Begins after the greeting, with the handshake of TLS if that is used.
  void begin(const comm::Greeting& greeting, bool we_called, ConnectionEvents events) {
    events_ = std::move(events);
    peer_ = greeting.peer().self;
    try {
      const auto secret = greeting.secret();
      if (settings_.secure == comm::Secure::tls) {
        timer_.start(comm::Greeting::time_max, [this] { end(ConnectionEnd::stranger, "no answer of TLS in time"); });
        wire_.encrypt(*settings_.tls, secret, we_called, [self = shared_from_this()](const error_code& error) {
          if (error) return self->end(ConnectionEnd::stranger, words_of(error));
          self->open();
        });
        return;
      }
      seal(secret, we_called);
    } catch (const Error& problem) {
      return end(ConnectionEnd::refused, problem.what());
    }
    open();
  }

  void send_encoded(MessageType type, std::span<const std::byte> body) override {
    send_by(body.size(), [&] {
      const auto message = waiting_.append([&](Bytes& to) { append_message(to, type, body); });
      if (sent_seal_) seal(type, message);
    });
  }

  void send_shared(MessageType type, std::shared_ptr<const Bytes> body) override {
    send_by(body->size(), [&] {
      const auto head = waiting_.append([&](Bytes& to) { append_head(to, type, body->size()); });
      if (sent_seal_) sent_seal_->cover(head);
      waiting_.share(body);
      if (sent_seal_) seal(type, *body);
    });
  }

  void listen(ConnectionEvents events) override { events_ = std::move(events); }
  void trust() override { trusted_ = true; }
  void close() override {
    events_ = {};
    closing_ = true;
    timer_.start(farewell, [this] { end(ConnectionEnd::lost, "closed"); });
    const std::lock_guard lock(mutex_);
    if (!writing_) wire_.finish();
  }
  void drop() override {
    events_ = {};
    end(ConnectionEnd::lost, "dropped");
  }
  std::string local_address() const override { return local_; }

 private:
  using PairGreeter = comm::connect::BasicGreeter<DescriptorPair>;

  void greeted(const PairGreeter::Failure& failure, bool we_called) {
    if (ended_) return;
    const comm::Greeting& greeting = greeter_->greeting();
    if (failure.error) return end(ConnectionEnd::lost, words_of(failure.error));
    if (!failure.trouble.empty()) return end(ConnectionEnd::refused, failure.trouble);
    if (greeting.state() == comm::Greeting::State::done) return begin(greeting, we_called, std::exchange(events_, {}));
    const bool is_ours = greeting.state() == comm::Greeting::State::refused;
    end(is_ours ? ConnectionEnd::refused : ConnectionEnd::stranger, greeting.words());
  }

  void seal(std::span<const std::byte, 32> secret, bool we_called) {
    const std::lock_guard lock(mutex_);
    sent_seal_.emplace(secret, we_called ? Seal::Sender::node : Seal::Sender::launcher);
    received_seal_.emplace(secret, we_called ? Seal::Sender::launcher : Seal::Sender::node);
  }

  void open() {
    if (ended_) return;
    heard_ = ticked_ = Clock::now();
    in_.resize(read_bytes);
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      writing_ = true;
    }
    if (!closing_) tick_later();  // else the timer is that of the farewell
    const auto self = shared_from_this();
    const auto opened = events_.opened;  // the call may take the events away
    if (opened) opened(peer_);
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
                      self->awaited_ = false;
                      self->filled_ += count;
                      if (self->take_messages()) self->read();
                    });
  }

  /// Passes on the messages that are complete. Returns false if the connection has ended.
  bool take_messages() {
    std::size_t at = 0;
    while (filled_ - at >= message_head_bytes) {
      const std::span<const std::byte> rest(in_.data() + at, filled_ - at);
      const auto head = read_head(rest);
      if (!head || (!trusted_ && head->bytes > small_bytes_max)) {
        end(ConnectionEnd::lost, "what it sends is not the control protocol");
        return false;
      }
      const std::size_t bytes = message_head_bytes + head->bytes;
      const bool sealed = received_seal_ && Seal::has_own(head->type);
      if (rest.size() < bytes + (sealed ? Seal::bytes : 0)) break;
      if (!unseal(rest.first(bytes), sealed, rest.subspan(bytes))) {
        end(ConnectionEnd::lost, "what came from it was changed on its way: somebody meddles with the network");
        return false;
      }
      at += bytes + (sealed ? Seal::bytes : 0);
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

  /// Returns false if `message` is not what the peer has sent next. A seal of its own begins at `behind`.
  bool unseal(std::span<const std::byte> message, bool sealed, std::span<const std::byte> behind) {
    if (!received_seal_) return true;
    if (!sealed) {
      received_seal_->cover(message);
      return true;
    }
    return comm::equal_in_constant_time(received_seal_->of(message), behind.first(Seal::bytes));
  }

  /// Sends what `append` adds to waiting_, with a body of so many bytes. `append` is called with the mutex held.
  template <class Append>
  void send_by(std::size_t bytes, Append&& append) {
    {
      const std::lock_guard lock(mutex_);
      // Who sends next tells of it, and has to find another way.
      if (std::exchange(broken_, false)) throw std::bad_alloc();
      if (dead_) return;
      if (waiting_.size() + bytes > settings_.waiting_bytes_max) {
        dead_ = true;
        waiting_ = {};
        asio::post(loop_.io(), [self = shared_from_this()] {
          self->end(ConnectionEnd::silent, fmt::format("it has stopped reading: more than {} MiB wait for it",
                                                       self->settings_.waiting_bytes_max >> 20));
        });
        return;
      }
      try {
        append();
      } catch (...) {  // a part of it waits already: nothing that follows would be understood
        broken_ = dead_ = true;
        waiting_ = {};
        throw;
      }
      if (writing_) return;
      writing_ = true;
    }
    asio::post(loop_.io(), [self = shared_from_this()] { self->write(); });
  }

  /// Adds the seal of the last message, of which `rest` is what it does not cover yet. Call with the mutex held.
  void seal(MessageType type, std::span<const std::byte> rest) {
    if (!Seal::has_own(type)) return sent_seal_->cover(rest);
    const auto seal = sent_seal_->of(rest);
    waiting_.append([&seal](Bytes& to) { to.insert(to.end(), seal.begin(), seal.end()); });
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
      if (closing_) wire_.finish();
      return;
    }
    wire_.write(under_way_.buffers(), [self = shared_from_this()](const error_code& error, std::size_t) {
      if (self->ended_) return;
      // The peer's last bytes may still tell why it went. The reader finds out.
      if (error) return self->stop_writing();
      self->write();
    });
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
    // This process may have been stopped, and not have read yet what came meanwhile.
    if (now - std::exchange(ticked_, now) > settings_.timeout / 5 * 2 || awaited_) heard_ = now;
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
    const auto self = shared_from_this();
    if (greeter_) greeter_->cancel();
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
  std::uint32_t peer_ = comm::Introduction::anyone;
  Timer timer_;                         // of the greeting and of TLS, then of the signs of life
  std::optional<PairGreeter> greeter_;  // of a pair
  std::string local_;
  Bytes in_;
  std::size_t filled_ = 0;
  std::optional<Seal> received_seal_;  // where TLS does not seal already
  Clock::time_point heard_{};
  Clock::time_point ticked_{};
  bool awaited_ = false;  // nobody greets, and the peer may have to be started first
  bool ended_ = false;
  bool closing_ = false;
  bool trusted_ = false;
  bool sent_ = false;   // since the last tick
  Outgoing under_way_;  // the system has it, or part of it
  std::mutex mutex_;    // of what follows
  Outgoing waiting_;
  std::optional<Seal> sent_seal_;
  bool writing_ = false;
  bool open_ = false;
  bool dead_ = false;
  bool broken_ = false;  // by a lack of memory, and nobody has been told yet
};

/// An endpoint that takes no connection may still be one that the network is slow to reach.
constexpr std::chrono::seconds attempt_max{5};

/// Calls one endpoint after the other, again and again, and takes the first that answers as the launcher does.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(EventLoop& loop, const ConnectionSettings& settings, Connecting what)
      : loop_(loop), settings_(settings), what_(std::move(what)), alive_(loop.io()) {}

  void begin() {
    // The loop keeps this object until the call is over, or until the loop ends.
    alive_.expires_at(Clock::time_point::max());
    alive_.async_wait([self = shared_from_this()](const error_code&) {});
    Caller::Settings how{.places = {}, .key = settings_.key, .patience = what_.patience, .attempt_max = attempt_max};
    for (const std::string& text : what_.endpoints) {
      const Endpoint endpoint = parse_endpoint(text).value_or(Endpoint());
      how.places.push_back({.host = endpoint.host, .port = std::to_string(endpoint.port)});
    }
    Caller::Events events;
    events.introduce = [this](Socket&) {
      reached_ = true;
      return introduction(settings_);
    };
    events.greeted = [this](Socket socket, const comm::Greeting& greeting) { greeted(std::move(socket), greeting); };
    events.judge = [](std::size_t, const Caller::Failure& failure) { return judge(failure); };
    events.failed = [this](bool, std::span<const std::string> reasons) { fail(reasons); };
    caller_ = std::make_unique<Caller>(loop_.io(), std::move(how), std::move(events));
    caller_->begin();
  }

 private:
  void greeted(Socket socket, const comm::Greeting& greeting) {
    const auto connection = std::make_shared<StreamConnection>(loop_, settings_, std::move(socket));
    ConnectionEvents events;
    events.opened = [this](std::uint32_t) {
      alive_.cancel();
      caller_.reset();
      const auto made = std::exchange(what_, {}).made;
      made(connection_.lock());
    };
    events.closed = [this](ConnectionEnd end, const std::string& why) {
      caller_->again(end == ConnectionEnd::stranger ? not_the_launcher(why) : why);
    };
    connection_ = connection;
    connection->begin(greeting, true, std::move(events));
  }

  static std::string not_the_launcher(const std::string& why) {
    return fmt::format("what answers there is not the launcher ({})", why);
  }

  static Caller::Verdict judge(const Caller::Failure& failure) {
    using Kind = Caller::Failure::Kind;
    const bool strange = failure.kind == Kind::stranger || failure.kind == Kind::ended;
    return {strange ? not_the_launcher(failure.why) : failure.why, failure.kind == Kind::refused};
  }

  void fail(std::span<const std::string> reasons) {
    alive_.cancel();
    if (const auto connection = connection_.lock()) connection->drop();
    std::string text;
    for (std::size_t i = 0; i < reasons.size(); ++i)
      text += fmt::format("{}{}: {}", i == 0 ? "" : "; ", what_.endpoints[i], reasons[i]);
    const auto failed = std::exchange(what_, {}).failed;
    failed(text, reached_);
  }

  EventLoop& loop_;
  const ConnectionSettings settings_;
  Connecting what_;
  bool reached_ = false;
  asio::steady_timer alive_;
  std::unique_ptr<Caller> caller_;
  std::weak_ptr<Connection> connection_;  // The last one. What waits for its socket keeps it.
};

}  // namespace

void connect_to_launcher(EventLoop& loop, const ConnectionSettings& settings, Connecting what) {
  const auto connector = std::make_shared<Connector>(loop, settings, std::move(what));
  loop.post([connector] { connector->begin(); });
}

std::shared_ptr<Connection> connect_pair(EventLoop& loop, ConnectionSettings settings, os::Ends ends,
                                         std::uint32_t peer, std::string_view came, ConnectionEvents events) {
  settings.secure = comm::Secure::auth;
  const auto connection =
      std::make_shared<StreamConnection>(loop, settings, DescriptorPair(loop.io(), std::move(ends)));
  connection->greet(peer, came, std::move(events));
  return connection;
}

std::shared_ptr<Connection> join_pair(EventLoop& loop, ConnectionSettings settings, os::Ends ends, std::uint32_t peer,
                                      ConnectionEvents events) {
  settings.secure = comm::Secure::auth;
  const auto connection =
      std::make_shared<StreamConnection>(loop, settings, DescriptorPair(loop.io(), std::move(ends)));
  connection->join(peer, std::move(events));
  return connection;
}

namespace {

/// All nodes of a large machine may call at once.
constexpr std::size_t greeted_max = 256;

/// A socket that listens on the first free port.
os::UniqueFd listen_on(const std::string& address, std::uint16_t first, std::uint16_t last) {
  error_code error;
  const auto ip = asio::ip::make_address(address, error);
  if (error) throw Error(Errc::failed, fmt::format("cannot listen on {}: {}", address, error.message()));
  int reason = 0;
  for (std::uint32_t port = first; port <= last; ++port) {
    const tcp::endpoint endpoint(ip, static_cast<std::uint16_t>(port));
    os::UniqueFd socket(::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    constexpr int yes = 1;
    if (socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        ::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    reason = errno;
    if (!socket) break;
  }
  const std::string why = std::generic_category().message(reason);
  throw Error(Errc::failed,
              first == last
                  ? fmt::format("cannot listen on {}: {}", endpoint_text(address, first), why)
                  : fmt::format("cannot listen on {}: no port of {}-{} is free (the last: {}); choose others by ports",
                                address, first, last, why));
}

std::string local_endpoint(int socket) {
  tcp::endpoint endpoint;
  auto bytes = static_cast<socklen_t>(endpoint.capacity());
  ::getsockname(socket, endpoint.data(), &bytes);
  endpoint.resize(bytes);
  return endpoint_text(endpoint.address().to_string(), endpoint.port());
}

}  // namespace

struct Acceptor::Impl : std::enable_shared_from_this<Acceptor::Impl> {
  Impl(EventLoop& its_loop, ConnectionSettings its_settings, Events its_events)
      : loop(its_loop), settings(std::move(its_settings)), events(std::move(its_events)) {}

  void listen() {
    acceptor.emplace(
        loop.io(),
        comm::connect::Acceptor::Settings{
            .key = settings.key, .mine = introduction(settings), .greeted_max = greeted_max},
        comm::connect::Acceptor::Events{
            .arrived = [this](Socket socket, const comm::Greeting& greeting) { arrived(std::move(socket), greeting); },
            .refused = [this](const std::string& why) { events.refused(why); }});
  }

  void arrived(Socket socket, const comm::Greeting& greeting) {
    const auto connection = std::make_shared<StreamConnection>(loop, settings, std::move(socket));
    ConnectionEvents first;
    first.opened = [self = shared_from_this(), weak = std::weak_ptr<Connection>(connection)](std::uint32_t peer) {
      const std::shared_ptr<Connection> opened = weak.lock();
      if (self->closed) return opened->close();
      opened->listen(self->events.arrived(opened, peer));
    };
    first.closed = [self = shared_from_this()](ConnectionEnd end, const std::string& why) {
      if (self->closed) return;
      if (end == ConnectionEnd::refused) return self->events.refused(why);
      ++self->strangers;
    };
    connection->begin(greeting, false, std::move(first));
  }

  EventLoop& loop;
  const ConnectionSettings settings;
  const Events events;
  std::vector<std::string> endpoints;
  std::optional<comm::connect::Acceptor> acceptor;
  std::uint64_t strangers = 0;  // Of those who were greeted.
  bool closed = false;
};

Acceptor::Acceptor(EventLoop& loop, const ConnectionSettings& settings, const std::vector<std::string>& addresses,
                   std::uint16_t first_port, std::uint16_t last_port, Events events)
    : impl_(std::make_shared<Impl>(loop, settings, std::move(events))) {
  impl_->listen();
  for (const std::string& address : addresses) {
    os::UniqueFd socket = listen_on(address, first_port, last_port);
    impl_->endpoints.push_back(local_endpoint(socket.get()));
    impl_->acceptor->listen(std::move(socket));
  }
}

Acceptor::~Acceptor() { close(); }

std::vector<std::string> Acceptor::endpoints() const { return impl_->endpoints; }

std::uint64_t Acceptor::strangers() const { return impl_->acceptor->strangers() + impl_->strangers; }

void Acceptor::close() {
  if (std::exchange(impl_->closed, true)) return;
  impl_->acceptor->close();
}

}  // namespace aplib::launch::wire
