// SPDX-License-Identifier: MIT
// The one way to make a connection: who gets in, who is dropped, and how often a call is tried. Over TCP and over local
// sockets; what tcp, shm and control connections add has tests of its own.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/connect/acceptor.hpp"
#include "comm/connect/caller.hpp"

namespace aplib::comm::connect {
namespace {

using namespace std::chrono_literals;

os::UniqueFd new_socket(int family) { return os::UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

SocketAddress address_of(int socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof name;
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &bytes), 0);
  return {&name, bytes};
}

/// Bound to an address of the system's choice, and silent.
os::UniqueFd bound_socket(int family) {
  os::UniqueFd socket = new_socket(family);
  sockaddr_in internet{};
  internet.sin_family = AF_INET;
  internet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const sa_family_t local = AF_UNIX;  // no name: the system makes one
  const bool is_local = family == AF_UNIX;
  const void* const name = is_local ? static_cast<const void*>(&local) : &internet;
  EXPECT_EQ(::bind(socket.get(), static_cast<const sockaddr*>(name), is_local ? sizeof local : sizeof internet), 0);
  return socket;
}

/// One thread has both sides, and runs until a test stops it.
class Connect : public testing::TestWithParam<int> {
 protected:
  using Answered = std::function<void(Socket, const Greeting&)>;

  Introduction who(std::uint32_t self, const std::string& machine = "machine") const {
    return {.purpose = Purpose::data, .self = self, .peer = Introduction::anyone, .machine = machine};
  }

  void listen(Answered arrived, std::size_t greeted_max = Acceptor::strangers_max,
              const std::string& machine = "machine") {
    os::UniqueFd socket = bound_socket(GetParam());
    ASSERT_EQ(::listen(socket.get(), SOMAXCONN), 0);
    address_ = address_of(socket.get());
    answer(std::move(arrived), greeted_max, machine);
    acceptor_->listen(std::move(socket));
  }
  void answer(Answered arrived, std::size_t greeted_max, const std::string& machine) {
    acceptor_.emplace(io_, Acceptor::Settings{.key = key_, .mine = who(0, machine), .greeted_max = greeted_max},
                      Acceptor::Events{.accepted = accepted_,
                                       .arrived = std::move(arrived),
                                       .refused = [this](const std::string& why) { refusals_.push_back(why); }});
  }

  /// A call of process 3. `judge`: the verdict is its reason, hopeless or not.
  std::unique_ptr<Caller> call(std::vector<Caller::Place> places, const JobKey& key, std::chrono::nanoseconds patience,
                               Answered greeted, std::function<bool(const Caller::Failure&)> is_hopeless = {}) {
    Caller::Events events;
    events.introduce = [this](Socket&) { return introduce_ ? introduce_() : who(3); };
    events.greeted = std::move(greeted);
    events.judge = [this, is_hopeless](std::size_t place, const Caller::Failure& failure) {
      failures_.push_back(failure);
      places_.push_back(place);
      return Caller::Verdict{failure.why, is_hopeless && is_hopeless(failure)};
    };
    events.failed = [this](bool late, std::span<const std::string> reasons) {
      late_ = late;
      reasons_.assign(reasons.begin(), reasons.end());
      io_.stop();
    };
    auto caller = std::make_unique<Caller>(
        io_, Caller::Settings{.places = std::move(places), .key = key, .patience = patience, .attempt_max = 5s},
        std::move(events));
    caller->begin();
    return caller;
  }
  [[nodiscard]] Caller::Place there() const { return {.address = address_}; }
  Answered never() {
    return [](Socket, const Greeting&) { FAIL() << "got in"; };
  }

  /// A connection of a test that speaks for itself.
  [[nodiscard]] os::UniqueFd stranger() const {
    os::UniqueFd socket = new_socket(GetParam());
    EXPECT_EQ(::connect(socket.get(), address_.data(), static_cast<socklen_t>(address_.size())), 0);
    return socket;
  }
  void run() {
    io_.restart();
    io_.run();
  }
  /// Until that many strangers were dropped.
  void run_until_dropped(std::uint64_t strangers) {
    while (acceptor_->strangers() < strangers && io_.run_one() != 0) continue;
    EXPECT_EQ(acceptor_->strangers(), strangers);
  }

  const JobKey key_ = JobKey::make();
  boost::asio::io_context io_{1};
  SocketAddress address_;
  std::function<bool(Socket&)> accepted_;
  std::function<Introduction()> introduce_;
  std::optional<Acceptor> acceptor_;
  std::vector<std::string> refusals_;
  std::vector<Caller::Failure> failures_;
  std::vector<std::size_t> places_;
  std::optional<bool> late_;
  std::vector<std::string> reasons_;
};

INSTANTIATE_TEST_SUITE_P(Sockets, Connect, testing::Values(AF_INET, AF_UNIX),
                         [](const auto& info) { return std::string(info.param == AF_INET ? "tcp" : "local"); });

TEST_P(Connect, WhoProvesTheKeyGetsInOnBothSides) {
  int ends = 0;
  std::uint32_t caller = 0;
  std::array<std::byte, 32> theirs{};
  listen([&](Socket, const Greeting& greeting) {
    caller = greeting.peer().self;
    theirs = greeting.secret();
    if (++ends == 2) io_.stop();
  });
  std::array<std::byte, 32> ours{};
  const auto calling = call({there()}, key_, 10s, [&](Socket socket, const Greeting& greeting) {
    ours = greeting.secret();
    EXPECT_TRUE(socket.is_open());
    if (++ends == 2) io_.stop();
  });
  run();
  EXPECT_EQ(caller, 3U);
  EXPECT_EQ(ours, theirs);
  EXPECT_EQ(acceptor_->strangers(), 0U);
}

TEST_P(Connect, SilentStrangersKeepNobodyOutAndTheOldestGoes) {
  constexpr std::size_t room = 4;
  bool in = false;
  listen(
      [&](Socket, const Greeting&) {
        in = true;
        io_.stop();
      },
      room);
  std::vector<os::UniqueFd> silent;
  for (std::size_t i = 0; i < 3 * room; ++i) silent.push_back(stranger());
  run_until_dropped(2 * room);
  for (std::size_t i = 0; i < silent.size(); ++i) {
    char byte = 0;
    const bool ends = i < 2 * room;  // its end may still be on its way
    EXPECT_EQ(::recv(silent[i].get(), &byte, 1, ends ? 0 : MSG_DONTWAIT), ends ? 0 : -1) << "stranger " << i;
  }
  const auto calling = call({there()}, key_, 10s, [](Socket, const Greeting&) {});
  run();
  EXPECT_TRUE(in);
  EXPECT_EQ(acceptor_->strangers(), 2 * room + 1) << "one more went for ours";
}

TEST_P(Connect, OneWhoSpeaksSlowlyGetsIn) {
  std::uint32_t caller = 0;
  listen([&](Socket, const Greeting& greeting) {
    caller = greeting.peer().self;
    io_.stop();
  });
  const os::UniqueFd slow = stranger();
  Greeting greeting(Greeting::Role::caller, key_, who(7));
  // A byte each time that the acceptor has nothing left to do.
  std::vector<std::byte> output;
  std::function<void()> speak = [&] {
    if (output.empty()) output = greeting.take_output();
    if (!output.empty()) {
      EXPECT_EQ(::send(slow.get(), output.data(), 1, MSG_NOSIGNAL), 1);
      output.erase(output.begin());
    } else if (greeting.state() == Greeting::State::going) {
      std::byte byte{};
      if (::recv(slow.get(), &byte, 1, MSG_DONTWAIT) == 1) greeting.receive({&byte, 1});
    }
    if (caller == 0) boost::asio::post(io_, speak);
  };
  boost::asio::post(io_, speak);
  run();
  EXPECT_EQ(caller, 7U);
}

TEST_P(Connect, AWrongKeyIsAStrangerToBothSides) {
  listen(never());
  const auto calling = call({there()}, JobKey::make(), 0s, never());
  run();
  EXPECT_EQ(late_, true);
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].kind, Caller::Failure::Kind::ended) << "a stranger is told nothing";
  EXPECT_EQ(acceptor_->strangers(), 1U);
  EXPECT_TRUE(refusals_.empty());
}

TEST_P(Connect, WhatAnswersWithoutTheKeyIsAStranger) {
  // It echoes: a hello that is reflected proves nothing.
  listen(never());
  acceptor_.reset();
  os::UniqueFd listener = bound_socket(GetParam());
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  address_ = address_of(listener.get());
  const auto calling = call({there()}, key_, 0s, never());
  const os::UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::array<std::byte, Greeting::bytes_max> hello;
  io_.restart();
  ssize_t bytes = -1;
  while (bytes <= 0) {
    io_.poll_one();
    bytes = ::recv(accepted.get(), hello.data(), hello.size(), MSG_DONTWAIT);
  }
  ASSERT_EQ(::send(accepted.get(), hello.data(), static_cast<std::size_t>(bytes), MSG_NOSIGNAL), bytes);
  run();
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].kind, Caller::Failure::Kind::stranger) << failures_[0].why;
}

TEST_P(Connect, RefusedThenAccepted) {
  // First it says that it is of another machine; then it is of ours.
  int calls = 0;
  introduce_ = [&] { return who(3, ++calls == 1 ? "another" : "machine"); };
  bool in = false;
  listen([&](Socket, const Greeting&) {
    in = true;
    io_.stop();
  });
  const auto calling = call({there()}, key_, 10s, [](Socket, const Greeting&) {});
  run();
  EXPECT_TRUE(in);
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].kind, Caller::Failure::Kind::refused);
  ASSERT_EQ(refusals_.size(), 1U);
  EXPECT_NE(refusals_[0].find("of another machine (another; this is machine)"), std::string::npos) << refusals_[0];
  EXPECT_EQ(acceptor_->strangers(), 0U);
}

TEST_P(Connect, WhatIsRefusedForGoodIsNotTriedAgain) {
  listen(never(), Acceptor::strangers_max, "another");
  const auto calling = call({there()}, key_, 3600s, never(), [](const Caller::Failure& failure) {
    return failure.kind == Caller::Failure::Kind::refused;
  });
  run();
  EXPECT_EQ(late_, false);
  EXPECT_EQ(failures_.size(), 1U);
  ASSERT_EQ(reasons_.size(), 1U);
  EXPECT_NE(reasons_[0].find("of another machine"), std::string::npos) << reasons_[0];
}

TEST_P(Connect, NobodyAnswersAtFirst) {
  // The name is there, but nobody listens until the call was refused twice.
  os::UniqueFd socket = bound_socket(GetParam());
  address_ = address_of(socket.get());
  bool in = false;
  answer(
      [&](Socket, const Greeting&) {
        in = true;
        io_.stop();
      },
      Acceptor::strangers_max, "machine");
  int refused = 0;
  const auto calling = call(
      {there()}, key_, 10s, [](Socket, const Greeting&) {},
      [&](const Caller::Failure&) {
        if (++refused == 2) {
          EXPECT_EQ(::listen(socket.get(), 1), 0);
          acceptor_->listen(std::move(socket));
        }
        return false;
      });
  run();
  EXPECT_TRUE(in);
  EXPECT_EQ(failures_.size(), 2U);
  for (const Caller::Failure& failure : failures_) EXPECT_EQ(failure.kind, Caller::Failure::Kind::unreached);
}

TEST_P(Connect, EachPlaceIsTriedOnceAndTheReasonsAreKept) {
  listen(never());
  os::UniqueFd nobody = bound_socket(GetParam());
  const auto calling = call({{.address = address_of(nobody.get())}, {}, there()}, JobKey::make(), 0s, never());
  run();
  EXPECT_EQ(late_, true);
  EXPECT_EQ(places_, (std::vector<std::size_t>{0, 1, 2}));
  ASSERT_EQ(reasons_.size(), 3U);
  EXPECT_EQ(reasons_[0], "Connection refused");
  EXPECT_EQ(reasons_[1], "not an address with a port");
  EXPECT_EQ(reasons_[2], failures_[2].why);
}

TEST_P(Connect, AWithdrawnCallIsGreetedToItsEndAndIsNoStranger) {
  std::uint32_t caller = 0;
  listen([&](Socket, const Greeting& greeting) {
    caller = greeting.peer().self;
    io_.stop();
  });
  std::unique_ptr<Caller> calling = call({there()}, key_, 10s, never());
  calling->withdraw();
  calling.reset();
  run();
  EXPECT_EQ(caller, 3U);
  EXPECT_EQ(acceptor_->strangers(), 0U);
  EXPECT_TRUE(failures_.empty());
}

TEST_P(Connect, AWithdrawnCallIsNotTriedAgain) {
  // Nobody is there.
  const os::UniqueFd nobody = bound_socket(GetParam());
  std::unique_ptr<Caller> calling = call({{.address = address_of(nobody.get())}}, key_, 10s, never());
  calling->withdraw();
  calling.reset();
  io_.restart();
  io_.run();  // until there is nothing left to do
  EXPECT_FALSE(late_) << "nobody is told that it has failed";
}

TEST_P(Connect, AWithdrawnCallEndsWithItsContextInTheMiddleOfTheGreeting) {
  const os::UniqueFd silent = bound_socket(GetParam());
  ASSERT_EQ(::listen(silent.get(), 1), 0);
  std::optional<boost::asio::io_context> io(1);
  bool introduced = false;
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> left = kept;
  Caller calling(
      *io,
      Caller::Settings{
          .places = {{.address = address_of(silent.get())}}, .key = key_, .patience = 3600s, .attempt_max = 3600s},
      Caller::Events{.introduce =
                         [&](Socket&) {
                           introduced = true;
                           return who(3);
                         },
                     .greeted = [kept = std::move(kept)](Socket, const Greeting&) { FAIL() << *kept; },
                     .judge = {},
                     .failed = {}});
  calling.begin();
  while (!introduced && io->run_one() != 0) continue;
  ASSERT_TRUE(introduced);
  calling.withdraw();
  io.reset();
  EXPECT_TRUE(left.expired());
}

TEST_P(Connect, WhatFollowsTheGreetingCanFailAndIsTriedAgain) {
  int arrived = 0;
  listen([&](Socket, const Greeting&) {
    if (++arrived == 3) io_.stop();
  });
  std::unique_ptr<Caller> calling;
  calling = call({there()}, key_, 10s, [&](Socket, const Greeting&) {
    boost::asio::post(io_, [&] { calling->again("the verdict was cut off"); });
  });
  run();
  EXPECT_EQ(arrived, 3);
  ASSERT_GE(failures_.size(), 2U);
  EXPECT_EQ(failures_[0].kind, Caller::Failure::Kind::spoiled);
  EXPECT_EQ(failures_[0].why, "the verdict was cut off");
}

TEST_P(Connect, WhoWaitsBehindTheGreetingIsLateAtTheDeadline) {
  // As one does whose call is put off for a call of theirs that never comes.
  listen([](Socket, const Greeting&) {});
  bool greeted = false;
  for (auto patience = 100ms; !greeted; patience *= 4) {  // a busy computer may be late with the greeting itself
    const auto calling = call({there()}, key_, patience, [&](Socket, const Greeting&) { greeted = true; });
    run();
    EXPECT_EQ(late_, true);
  }
}

TEST_P(Connect, ACallThatIsTakenBackSaysNothingMore) {
  listen([this](Socket, const Greeting&) { io_.stop(); });
  auto calling = call({there()}, key_, 10s, never());
  calling.reset();
  // The acceptor sees a connection that ends at once.
  run_until_dropped(1);
  EXPECT_FALSE(late_);
}

TEST_P(Connect, WhoIsNotWantedIsDroppedBeforeTheFirstByte) {
  accepted_ = [](Socket&) { return false; };
  listen(never());
  const os::UniqueFd one = stranger();
  run_until_dropped(1);
  char byte = 0;
  EXPECT_EQ(::recv(one.get(), &byte, 1, 0), 0);
}

TEST_P(Connect, BothCallAtOnce) {
  // Two processes with a listener each, whose calls cross: both are greeted on both connections, so that the links can
  // decide (comm/link.hpp) which of them counts.
  int ends = 0;
  const auto one = [&](Socket, const Greeting&) {
    if (++ends == 4) io_.stop();
  };
  listen(one);
  const SocketAddress first = address_;
  const std::optional<Acceptor>& mine = acceptor_;
  os::UniqueFd socket = bound_socket(GetParam());
  ASSERT_EQ(::listen(socket.get(), SOMAXCONN), 0);
  const SocketAddress second = address_of(socket.get());
  Acceptor other(io_, {.key = key_, .mine = who(3)}, {.arrived = one, .refused = [](const std::string&) {}});
  other.listen(std::move(socket));
  const auto there = call({{.address = first}}, key_, 10s, one);
  introduce_ = [&] { return who(0); };
  const auto here = call({{.address = second}}, key_, 10s, one);
  run();
  EXPECT_EQ(ends, 4);
  EXPECT_EQ(mine->strangers() + other.strangers(), 0U);
}

}  // namespace
}  // namespace aplib::comm::connect
