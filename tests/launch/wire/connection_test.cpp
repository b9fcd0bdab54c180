// SPDX-License-Identifier: MIT
// Control connections: who is accepted, what arrives, and how they end.
#include "launch/wire/connection.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "launch/wire/endpoint.hpp"
#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch {
namespace {

using namespace std::chrono_literals;

/// An acceptor, and what it has received.
class Meeting : public ::testing::Test {
 protected:
  void listen(comm::Secure secure = comm::Secure::auth, std::chrono::nanoseconds timeout = 10s) {
    settings_.secure = secure;
    settings_.timeout = timeout;
    if (secure == comm::Secure::tls) settings_.tls = std::make_shared<comm::TlsContext>();
    wire::Acceptor::Events events;
    events.arrived = [this](const std::shared_ptr<wire::Connection>& connection, std::uint32_t peer) {
      guest_ = connection;
      peer_ = peer;
      if (trusts_) connection->trust();
      wire::ConnectionEvents of_guest;
      of_guest.message = [this](wire::MessageType type, std::span<const std::byte> body) {
        got_.emplace_back(type, wire::Bytes(body.begin(), body.end()));
        if (on_message_) on_message_();
      };
      of_guest.closed = [this](wire::ConnectionEnd how, const std::string& why) {
        ended_ = how;
        why_ = why;
        loop_.stop();
      };
      if (on_arrival_) on_arrival_();
      return of_guest;
    };
    events.refused = [this](const std::string& text) { why_ = text; };
    acceptor_ = std::make_unique<wire::Acceptor>(loop_, settings_, std::vector<std::string>{"127.0.0.1"}, 0, 0, events);
  }

  /// Connects as process 3.
  void call(const comm::JobKey& key, std::function<void(std::shared_ptr<wire::Connection>)> made,
            std::chrono::nanoseconds timeout = 10s, const std::vector<std::string>& endpoints = {}) {
    wire::ConnectionSettings settings = settings_;
    settings.key = key;
    settings.self = 3;
    settings.timeout = timeout;
    wire::Connecting connecting;
    connecting.endpoints = endpoints.empty() ? acceptor_->endpoints() : endpoints;
    connecting.patience = 0s;
    connecting.made = std::move(made);
    connecting.failed = [this](const std::string& why, bool reached) {
      why_ = why;
      reached_ = reached;
      loop_.stop();
    };
    wire::connect_to_launcher(loop_, settings, connecting);
  }

  /// A connection from a stranger.
  [[nodiscard]] int stranger() const {
    const auto endpoint = wire::parse_endpoint(acceptor_->endpoints().front());
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint->port);
    ::inet_pton(AF_INET, endpoint->host.c_str(), &address.sin_addr);
    const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return descriptor;
  }

  wire::EventLoop loop_;
  wire::ConnectionSettings settings_{.key = comm::JobKey::make()};
  std::unique_ptr<wire::Acceptor> acceptor_;
  std::shared_ptr<wire::Connection> guest_;
  std::shared_ptr<wire::Connection> caller_;
  std::uint32_t peer_ = 0;
  std::vector<std::pair<wire::MessageType, wire::Bytes>> got_;
  wire::ConnectionEnd ended_ = wire::ConnectionEnd::refused;
  std::string why_;
  bool reached_ = false;
  bool trusts_ = true;
  std::function<void()> on_arrival_;
  std::function<void()> on_message_;
};

class Secured : public Meeting, public ::testing::WithParamInterface<comm::Secure> {};

TEST_P(Secured, MessagesArriveInOrderBothWays) {
  listen(GetParam());
  constexpr std::uint32_t count = 1000;
  const wire::Bytes piece(10'000, std::byte{7});
  std::uint32_t answers = 0;
  on_message_ = [&] {
    if (got_.size() % 100 == 0) guest_->send(wire::Written{got_.size()});
  };
  call(settings_.key, [&](std::shared_ptr<wire::Connection> connection) {
    caller_ = std::move(connection);
    caller_->trust();
    wire::ConnectionEvents events;
    events.message = [&](wire::MessageType type, std::span<const std::byte> body) {
      ASSERT_EQ(type, wire::MessageType::written);
      EXPECT_EQ(wire::decode<wire::Written>(body)->bytes, ++answers * 100);
      if (answers == count / 100) loop_.stop();
    };
    caller_->listen(std::move(events));
    for (std::uint32_t i = 0; i < count; ++i) caller_->send(wire::OutputPiece{i, false, piece});
  });
  loop_.run();
  EXPECT_EQ(peer_, 3U);
  ASSERT_EQ(got_.size(), count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto output = wire::decode<wire::OutputPiece>(got_[i].second);
    ASSERT_TRUE(output);
    EXPECT_EQ(output->cell, i);
    EXPECT_EQ(output->bytes.size(), piece.size());
  }
}

TEST_P(Secured, SharedBodiesArriveInOrderWithOthers) {
  listen(GetParam());
  wire::Plan plan;
  plan.machine = "machine";
  plan.endpoints = std::vector<std::string>(20'000, "tcp=10.0.0.1:40000");
  const auto body = std::make_shared<const wire::Bytes>(wire::encode(plan));
  constexpr std::uint32_t count = 20;
  on_message_ = [&] {
    if (got_.size() == 3 * count) loop_.stop();
  };
  call(settings_.key, [&](std::shared_ptr<wire::Connection> connection) {
    caller_ = std::move(connection);
    for (std::uint32_t i = 0; i < count; ++i) {
      caller_->send(wire::Written{i});
      caller_->send_shared(wire::Plan::type, body);
      caller_->send_shared(wire::MessageType::go, std::make_shared<const wire::Bytes>());
    }
  });
  loop_.run();
  ASSERT_EQ(got_.size(), 3 * count);
  for (std::uint32_t i = 0; i < count; ++i) {
    EXPECT_EQ(wire::decode<wire::Written>(got_[3 * i].second)->bytes, i);
    EXPECT_EQ(got_[3 * i + 1].second, *body);
    EXPECT_EQ(got_[3 * i + 2].first, wire::MessageType::go);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Secured, ::testing::Values(comm::Secure::off, comm::Secure::auth, comm::Secure::tls));

/// Stands between a node and the launcher and changes a word of what the node says.
class Meddler {
 public:
  Meddler(std::string target, std::string from, std::string to)
      : from_(std::move(from)), to_(std::move(to)), target_(wire::parse_endpoint(target)->port) {
    sockaddr_in here = loopback(0);
    socklen_t size = sizeof here;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&here), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&here), &size), 0);
    endpoint_ = wire::endpoint_text("127.0.0.1", ntohs(here.sin_port));
    thread_ = std::thread([this] { carry(); });
  }
  ~Meddler() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // when nobody came
    thread_.join();
  }
  Meddler(const Meddler&) = delete;
  Meddler& operator=(const Meddler&) = delete;
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }
  [[nodiscard]] bool has_changed() const { return changed_; }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void carry() {
    const os::UniqueFd node(::accept(listener_.get(), nullptr, nullptr));
    const os::UniqueFd launcher(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in there = loopback(target_);
    if (!node || ::connect(launcher.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) return;
    for (;;) {
      std::array<pollfd, 2> ends{pollfd{node.get(), POLLIN, 0}, pollfd{launcher.get(), POLLIN, 0}};
      if (::poll(ends.data(), ends.size(), 20'000) <= 0) return;
      for (const std::size_t i : {0U, 1U}) {
        if (ends[i].revents == 0) continue;
        std::string bytes(65536, 0);
        const ssize_t count = ::recv(ends[i].fd, bytes.data(), bytes.size(), 0);
        if (count <= 0) return;
        bytes.resize(static_cast<std::size_t>(count));
        if (const std::size_t at = bytes.find(from_); i == 0 && at != bytes.npos) {
          bytes.replace(at, from_.size(), to_);
          changed_ = true;
        }
        if (::send(ends[1 - i].fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;
      }
    }
  }

  const std::string from_;
  const std::string to_;
  const std::uint16_t target_;
  os::UniqueFd listener_{::socket(AF_INET, SOCK_STREAM, 0)};
  std::string endpoint_;
  std::atomic<bool> changed_{false};
  std::thread thread_;
};

class Meddled : public Meeting, public ::testing::WithParamInterface<comm::Secure> {};

TEST_P(Meddled, WhatWasChangedOnItsWayIsNotUsed) {
  listen(GetParam());
  const Meddler meddler(acceptor_->endpoints().front(), "good words", "evil words");
  call(settings_.key,
       [this](const std::shared_ptr<wire::Connection>& connection) {
         caller_ = connection;
         connection->send(wire::Warning{"all is well"});
         connection->send(wire::Warning{"good words"});
       },
       10s, {meddler.endpoint()});
  loop_.run();
  EXPECT_TRUE(meddler.has_changed());
  EXPECT_EQ(ended_, wire::ConnectionEnd::lost);
  EXPECT_EQ(why_, "what came from it was changed on its way: somebody meddles with the network");
  ASSERT_EQ(got_.size(), 1U);
  EXPECT_EQ(wire::decode<wire::Warning>(got_[0].second)->text, "all is well");
}

/// The seal of what a node says first comes with what it says next.
TEST_P(Meddled, AHelloThatWasChangedEndsTheConnectionAtTheNextWord) {
  listen(GetParam());
  const Meddler meddler(acceptor_->endpoints().front(), "10.0.0.1", "10.6.6.6");
  call(settings_.key,
       [this](const std::shared_ptr<wire::Connection>& connection) {
         caller_ = connection;
         connection->send(wire::Hello{.version = "1", .local = "10.0.0.1"});
         connection->send(wire::Ready{});
       },
       10s, {meddler.endpoint()});
  loop_.run();
  EXPECT_TRUE(meddler.has_changed());
  EXPECT_EQ(ended_, wire::ConnectionEnd::lost);
  ASSERT_EQ(got_.size(), 1U);
  EXPECT_EQ(got_[0].first, wire::MessageType::hello);
}

INSTANTIATE_TEST_SUITE_P(All, Meddled, ::testing::Values(comm::Secure::off, comm::Secure::auth));

TEST_F(Meeting, AWrongKeyIsAStranger) {
  listen();
  call(comm::JobKey::make(), [](const std::shared_ptr<wire::Connection>&) { FAIL() << "got in"; });
  loop_.run();
  EXPECT_EQ(guest_, nullptr);
  EXPECT_EQ(acceptor_->strangers(), 1U);
  EXPECT_NE(why_.find("is not the launcher"), std::string::npos) << why_;
  EXPECT_TRUE(reached_) << "no firewall stands between";
}

TEST_F(Meeting, GarbageIsDroppedWithoutAByte) {
  listen();
  const int port_scan = stranger();
  const int browser = stranger();
  const std::string request = "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n";
  ASSERT_EQ(::send(browser, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  ::shutdown(port_scan, SHUT_WR);
  wire::Timer look(loop_);
  std::function<void()> until_both = [&] {
    if (acceptor_->strangers() == 2) return loop_.stop();
    look.start(5ms, until_both);
  };
  until_both();
  loop_.run();
  char byte = 0;
  EXPECT_LE(::recv(browser, &byte, 1, 0), 0) << "it was told something";
  EXPECT_LE(::recv(port_scan, &byte, 1, 0), 0);
  EXPECT_EQ(guest_, nullptr);
  ::close(browser);
  ::close(port_scan);
}

TEST_F(Meeting, SilentStrangersKeepNobodyOut) {
  listen();
  std::vector<int> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(stranger());
  on_arrival_ = [this] { loop_.stop(); };
  call(settings_.key, [&](std::shared_ptr<wire::Connection> connection) {
    caller_ = std::move(connection);
    caller_->listen({});
  });
  loop_.run();
  EXPECT_NE(guest_, nullptr) << why_;
  EXPECT_EQ(peer_, 3U);
  for (const int descriptor : silent) ::close(descriptor);
}

TEST_F(Meeting, APeerThatReadsNothingIsLost) {
  settings_.waiting_bytes_max = std::size_t{1} << 20;
  listen();
  on_arrival_ = [this] {
    // Nothing is sent before this returns; what the system would take later does not count.
    const wire::Bytes piece(wire::piece_bytes_max, std::byte{0});
    for (int i = 0; i < 32; ++i) guest_->send(wire::OutputPiece{0, false, piece});
  };
  call(settings_.key, [&](std::shared_ptr<wire::Connection> connection) {
    caller_ = std::move(connection);
    caller_->listen({});
  });
  loop_.run();
  EXPECT_EQ(ended_, wire::ConnectionEnd::silent);
  EXPECT_EQ(why_, "it has stopped reading: more than 1 MiB wait for it");
}

TEST_F(Meeting, NoSocketIsInheritedByPrograms) {
  listen();
  on_arrival_ = [this] { loop_.stop(); };
  call(settings_.key, [&](std::shared_ptr<wire::Connection> connection) {
    caller_ = std::move(connection);
    caller_->listen({});
  });
  loop_.run();
  ASSERT_NE(guest_, nullptr) << why_;
  int sockets = 0;
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    struct stat is {};
    if (::fstat(descriptor, &is) != 0 || !S_ISSOCK(is.st_mode)) continue;
    ++sockets;
    EXPECT_NE(::fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0) << "descriptor " << descriptor;
  }
  EXPECT_GE(sockets, 2);  // one listens, one is the stranger's
}

TEST_F(Meeting, OnesWhoAreNotTrustedYetMustBeBrief) {
  trusts_ = false;
  listen();
  call(settings_.key, [&](std::shared_ptr<wire::Connection> connection) {
    caller_ = std::move(connection);
    caller_->listen({});
    const wire::Bytes piece(100'000, std::byte{0});
    caller_->send(wire::OutputPiece{0, false, piece});
  });
  loop_.run();
  EXPECT_EQ(ended_, wire::ConnectionEnd::lost);
  EXPECT_EQ(why_, "what it sends is not the control protocol");
  EXPECT_TRUE(got_.empty());
}

TEST_F(Meeting, WhatWasSaidBeforeTheEndArrives) {
  listen();
  call(settings_.key, [&](std::shared_ptr<wire::Connection> connection) {
    for (std::uint32_t i = 0; i < 100; ++i) connection->send(wire::Flush{i, false});
    connection->close();
  });
  loop_.run();
  EXPECT_EQ(got_.size(), 100U);
  EXPECT_EQ(ended_, wire::ConnectionEnd::lost);
  EXPECT_EQ(why_, "its connection was closed");
}

TEST_F(Meeting, SignsOfLifeKeepAConnection) {
  listen(comm::Secure::auth, 300ms);
  wire::Timer later(loop_);
  bool was_open = false;
  call(
      settings_.key,
      [&](std::shared_ptr<wire::Connection> connection) {
        caller_ = std::move(connection);
        caller_->listen({});
        later.start(900ms, [&] {
          was_open = guest_ != nullptr && why_.empty();
          caller_->close();
        });
      },
      300ms);
  loop_.run();
  EXPECT_TRUE(was_open);
}

TEST_F(Meeting, ASilentPeerIsLost) {
  listen(comm::Secure::auth, 200ms);
  call(
      settings_.key,
      [&](std::shared_ptr<wire::Connection> connection) {
        caller_ = std::move(connection);
        caller_->listen({});
      },
      60s);  // its first sign of life would come after 12 s
  loop_.run();
  EXPECT_EQ(ended_, wire::ConnectionEnd::silent);
  EXPECT_EQ(why_, "nothing was heard of it for 0.2 s (peer-timeout)");
}

/// The launcher and process 3 at the ends of two pipes.
class Paired : public ::testing::Test {
 protected:
  Paired() {
    os::Pipe there = os::Pipe::make();
    os::Pipe back = os::Pipe::make();
    launcher_ends_ = {std::move(back.reader), std::move(there.writer)};
    node_ends_ = {std::move(there.reader), std::move(back.writer)};
  }

  wire::ConnectionEvents events_of(std::shared_ptr<wire::Connection>& connection, std::function<void()> opened) {
    wire::ConnectionEvents events;
    events.opened = [this, &connection, opened](std::uint32_t peer) {
      peers_.push_back(peer);
      connection->trust();
      if (opened) opened();
    };
    events.message = [this](wire::MessageType, std::span<const std::byte> body) {
      bytes_ += body.size();
      if (bytes_ >= enough_) loop_.stop();
    };
    events.closed = [this](wire::ConnectionEnd how, const std::string& why) {
      ended_.emplace_back(how, why);
      loop_.stop();
    };
    return events;
  }
  void launch(std::uint32_t peer = 3, std::function<void()> opened = {}, const std::string& came = {}) {
    loop_.post([this, peer, opened, came] {
      launcher_ =
          wire::connect_pair(loop_, settings_, std::move(launcher_ends_), peer, came, events_of(launcher_, opened));
    });
  }
  void join(const comm::JobKey& key, std::function<void()> opened = {}) {
    wire::ConnectionSettings settings = settings_;
    settings.key = key;
    settings.self = 3;
    loop_.post([this, settings, opened] {
      node_ = wire::connect_pair(loop_, settings, std::move(node_ends_), comm::Introduction::launcher, "",
                                 events_of(node_, opened));
    });
  }

  wire::EventLoop loop_;
  wire::ConnectionSettings settings_{.key = comm::JobKey::make()};
  os::Ends launcher_ends_;
  os::Ends node_ends_;
  std::shared_ptr<wire::Connection> launcher_;
  std::shared_ptr<wire::Connection> node_;
  std::vector<std::uint32_t> peers_;
  std::vector<std::pair<wire::ConnectionEnd, std::string>> ended_;
  std::size_t bytes_ = 0;
  std::size_t enough_ = ~std::size_t{0};
};

TEST_F(Paired, CarriesMoreThanPipesHoldBothWaysAtOnce) {
  settings_.secure = comm::Secure::tls;  // which pipes do not need
  const wire::Bytes piece(1'000'000, std::byte{7});
  const auto send = [&piece](const std::shared_ptr<wire::Connection>& connection) {
    for (int i = 0; i < 20; ++i) connection->send(wire::Transfer{.bytes = piece});
  };
  enough_ = 40 * piece.size();
  launch(3, [&] { send(launcher_); });
  join(settings_.key, [&] { send(node_); });
  loop_.run();
  std::ranges::sort(peers_);
  EXPECT_EQ(peers_, (std::vector<std::uint32_t>{3, comm::Introduction::launcher}));
  EXPECT_GE(bytes_, enough_);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(Paired, WhatWasReadAlreadyCounts) {
  // The beginning of the node's greeting has been read by somebody else.
  join(settings_.key);
  std::string came(20, 0);
  loop_.post([&] {
    loop_.post([&] {  // the node has spoken
      ASSERT_EQ(::read(launcher_ends_.reader.get(), came.data(), came.size()), static_cast<ssize_t>(came.size()));
      launch(
          3, [&] { loop_.stop(); }, came);
    });
  });
  loop_.run();
  EXPECT_TRUE(came.starts_with(comm::Greeting::magic));
  EXPECT_FALSE(peers_.empty());
}

TEST_F(Paired, AWrongKeyIsAStranger) {
  launch();
  join(comm::JobKey::make());
  loop_.run();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].first, wire::ConnectionEnd::stranger);
  EXPECT_EQ(ended_[0].second, "does not know the job's key");
}

TEST_F(Paired, OneWhoIsNotMeantIsRefused) {
  launch(4);
  join(settings_.key);
  loop_.run();
  ASSERT_FALSE(ended_.empty());
  EXPECT_EQ(ended_[0].first, wire::ConnectionEnd::refused);
  EXPECT_TRUE(peers_.empty());
}

TEST_F(Paired, TheEndOfTheOtherSideIsTheEnd) {
  launch();
  join(settings_.key, [this] { node_->drop(); });
  loop_.run();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].first, wire::ConnectionEnd::lost);
  EXPECT_EQ(ended_[0].second, "its connection was closed");
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
}

TEST_F(Paired, WhatNobodyReadsIsAnErrorAndNoSignal) {
  join(settings_.key);
  launcher_ends_.reader.reset();
  loop_.run();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].first, wire::ConnectionEnd::lost);
}

TEST(Acceptor, SaysWhereItCannotListen) {
  wire::EventLoop loop;
  const wire::ConnectionSettings settings{.key = comm::JobKey::make()};
  const wire::Acceptor first(loop, settings, {"127.0.0.1"}, 0, 0, {});
  const auto endpoint = wire::parse_endpoint(first.endpoints().front());
  try {
    const wire::Acceptor second(loop, settings, {"127.0.0.1"}, endpoint->port, endpoint->port, {});
    FAIL() << "two on one port";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot listen on " + first.endpoints().front()), std::string::npos)
        << error.what();
  }
}

TEST(Endpoint, AsText) {
  EXPECT_EQ(wire::parse_endpoint("10.0.0.1:5100")->port, 5100);
  EXPECT_EQ(wire::parse_endpoint("[::1]:80")->host, "::1");
  EXPECT_EQ(wire::endpoint_text("::1", 80), "[::1]:80");
  for (const char* wrong : {"", ":", ":1", "a", "a:", "a:0", "a:65536", "a:1x", "[]:1"})
    EXPECT_FALSE(wire::parse_endpoint(wrong)) << wrong;
  EXPECT_EQ(wire::split_list("a,b,,c"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(wire::is_numeric_address("fe80::1%eth0"));
  EXPECT_FALSE(wire::is_numeric_address("ws1"));
}

}  // namespace
}  // namespace aplib::launch
