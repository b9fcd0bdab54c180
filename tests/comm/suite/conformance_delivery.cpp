// SPDX-License-Identifier: MIT
// Promises about the delivery of frames: content, order, sizes, threads, flow.
#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>

#include "aplib/error.hpp"
#include "conformance.hpp"

namespace aplib::comm::test {
namespace {

constexpr std::size_t large = Module::large_from_bytes;

/// Sizes as in programs: many small ones, few large ones.
class Sizes {
 public:
  explicit Sizes(std::uint64_t seed) : random_(seed) {}
  std::size_t next() {
    const std::uint64_t share = random_() % 1'000;
    if (share < 700) return random_() % 65;
    if (share < 950) return random_() % 2'000;
    if (share < 980) return large - 20 + random_() % 40;
    return random_() % 200'000;
  }

 private:
  std::mt19937_64 random_;
};

TEST_P(Conformance, HasNames) {
  make(2);
  EXPECT_STRNE(node(0).module().name(), "");
  EXPECT_NE(node(0).module().describe(1), "");
}

TEST_P(Conformance, BodiesOfAllSizes) {
  make(2);
  const std::vector<std::size_t> sizes{0,          1,         7,         8,         39,        40,        41,
                                       100,        4'095,     4'096,     8'191,     large - 1, large,     large + 1,
                                       large - 40, 65'496,    65'535,    65'536,    65'537,    100'000,   262'144,
                                       262'145,    1'048'576, 1'048'579, 3'000'017, 0,         large - 1, 1};
  for (const std::size_t bytes : sizes) {
    node(0).send(1, bytes);
    node(1).send(0, bytes);
  }
  pump([&] { return node(0).recorder().frames() == sizes.size() && node(1).recorder().frames() == sizes.size(); });
  const auto larges =
      static_cast<std::uint64_t>(std::count_if(sizes.begin(), sizes.end(), [](std::size_t n) { return n >= large; }));
  EXPECT_EQ(node(1).recorder().large_begun(0), larges);
}

TEST_P(Conformance, OneAtATime) {
  make(2);
  for (std::uint64_t i = 0; i < 300; ++i) {
    node(0).send(1, i % 50);
    pump([&] { return node(1).recorder().frames() == i + 1; });
  }
}

TEST_P(Conformance, BodyIsTheSendersAgain) {
  make(2);
  std::vector<std::byte> body;
  std::uint64_t right = 0;
  std::uint64_t frames = 0;
  node(1).recorder().on_frame = [&](Peer, const Label&, std::size_t) { ++right; };
  // The recorder compares with contents(), so overwriting after send() would show.
  for (const std::size_t bytes : {std::size_t{30}, std::size_t{10'000}, std::size_t{500'000}, std::size_t{2'000'000}}) {
    for (int i = 0; i < 3; ++i) {
      const std::span<const std::byte> right_body = contents(frames, bytes);
      body.assign(right_body.begin(), right_body.end());
      node(0).module().send(1, {frames, 0, 0, 0xabcd'ef01, static_cast<std::uint32_t>(bytes * 2'654'435'761U)}, body);
      std::fill(body.begin(), body.end(), std::byte{0xee});
      ++frames;
    }
  }
  pump([&] { return right == frames; });
}

TEST_P(Conformance, ManyFramesStayInOrder) {
  make(3);
  Sizes sizes(1);
  constexpr std::uint64_t frames = repeated(1'500);
  for (std::uint64_t i = 0; i < frames; ++i) {
    for (Peer from = 0; from < 3; ++from) {
      for (Peer to = 0; to < 3; ++to) {
        if (to != from) node(from).send(to, sizes.next());
      }
    }
    if (i % 16 == 0) pump_times(1);
  }
  pump([&] {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->recorder().frames() == 2 * frames; });
  });
}

TEST_P(Conformance, ManyThreadsSend) {
  make(3);
  constexpr std::uint64_t frames = repeated(800);
  constexpr std::uint32_t threads = 3;
  std::vector<std::thread> senders;
  for (Peer from = 0; from < 3; ++from) {
    for (std::uint32_t stream = 0; stream < threads; ++stream) {
      senders.emplace_back([this, from, stream] {
        Sizes sizes(from * 10 + stream);
        for (std::uint64_t i = 0; i < frames; ++i) node(from).send((from + 1 + i % 2) % 3, sizes.next(), stream);
        node(from).module().flush();
      });
    }
  }
  pump([&] {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->recorder().frames() == threads * frames; });
  });
  for (std::thread& thread : senders) thread.join();
}

TEST_P(Conformance, OrderHoldsAcrossThreads) {
  make(2);
  constexpr std::uint64_t frames = repeated(2'000);
  std::mutex mutex;
  std::uint64_t sent = 0;
  std::vector<std::thread> senders;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    senders.emplace_back([&, seed] {
      Sizes sizes(seed);
      while (true) {
        // The lock orders the calls, and the stream's number says in which order.
        const std::lock_guard lock(mutex);
        if (sent == frames) return;
        ++sent;
        node(0).send(1, sizes.next());
      }
    });
  }
  pump([&] { return node(1).recorder().frames() == frames; });
  for (std::thread& thread : senders) thread.join();
}

TEST_P(Conformance, AnyThreadMayPoll) {
  make(2);
  constexpr std::uint64_t frames = repeated(2'000);
  std::mutex mutex;
  std::vector<std::thread> pollers;
  for (int i = 0; i < 3; ++i) {
    pollers.emplace_back([&] {
      while (node(1).recorder().frames() < frames) {
        {
          const std::lock_guard lock(mutex);
          node(1).poll();
        }
        std::this_thread::yield();
      }
    });
  }
  Sizes sizes(3);
  for (std::uint64_t i = 0; i < frames; ++i) node(0).send(1, sizes.next());
  pump([&] { return node(1).recorder().frames() == frames; }, {0});
  for (std::thread& thread : pollers) thread.join();
}

TEST_P(Conformance, SendDoesNotWaitForTheReceiver) {
  make(2);
  // More than the buffers of a system grow to, which takes them a while.
  const std::uint64_t frames = send_until_queued(0, 1, 1'000'000, 40'000'000);
  if (node(0).module().queued(1) == 0) GTEST_SKIP() << "needs a system that does not take everything at once";
  EXPECT_EQ(node(1).recorder().frames(), 0U);
  for (int i = 0; i < 100; ++i) node(0).poll();  // brings nothing
  EXPECT_GT(node(0).module().queued(1), 0U);
  EXPECT_EQ(node(0).module().queued(0), 0U);
  node(0).send(1, 5);
  pump([&] { return node(1).recorder().frames() == frames + 1 && node(0).module().queued(1) == 0; });
}

TEST_P(Conformance, OneSlowReceiverDoesNotHoldUpOthers) {
  make(3);
  const std::uint64_t frames = send_until_queued(0, 1, 500'000, 1'000'000);
  for (int i = 0; i < 50; ++i) node(0).send(2, 1'000 * static_cast<std::size_t>(i));
  pump([&] { return node(2).recorder().frames() == 50; }, {0, 2});
  EXPECT_EQ(node(1).recorder().frames(), 0U);
  pump([&] { return node(1).recorder().frames() == frames; });
}

TEST_P(Conformance, APollTakesALimitedAmount) {
  make(2);
  constexpr std::uint64_t frames = 4'000;
  for (std::uint64_t i = 0; i < frames; ++i) node(0).send(1, 1'000);
  // The contract says some 64 KiB. Several times that would keep a program from its own work for too long.
  constexpr std::uint64_t bytes_most = 256 * 1024;
  std::uint64_t before = 0;
  pump([&] {
    const std::uint64_t bytes = node(1).recorder().bytes();
    EXPECT_LE(bytes - before, bytes_most);
    before = bytes;
    return node(1).recorder().frames() == frames;
  });
}

TEST_P(Conformance, UnwantedFramesStayAway) {
  make(3);
  node(2).recorder().want(0, false);
  Sizes sizes(4);
  for (int i = 0; i < 200; ++i) {
    node(0).send(2, sizes.next());
    node(1).send(2, sizes.next());
  }
  std::uint64_t polls = 0;
  const std::uint64_t asked = node(2).recorder().asked(0);
  pump([&] {
    ++polls;
    return node(2).recorder().frames(1) == 200 && node(2).recorder().asked(0) > asked + 3;
  });
  EXPECT_EQ(node(2).recorder().frames(0), 0U);
  EXPECT_LE(node(2).recorder().asked(0) - asked, polls) << "asked more than once in a poll";
  node(2).recorder().want(0, true);
  node(2).module().wake();
  pump([&] { return node(2).recorder().frames(0) == 200; });
}

TEST_P(Conformance, UnwantedFramesQueueAtTheSender) {
  make(2);
  node(1).recorder().want(0, false);
  std::uint64_t frames = 0;
  constexpr std::uint64_t frames_most = 256;
  while (node(0).module().queued(1) < 1'000'000 && frames < frames_most) {
    node(0).send(1, 1'000'000);
    ++frames;
    pump_times(20);
  }
  EXPECT_LT(frames, frames_most) << "they went somewhere";
  EXPECT_EQ(node(1).recorder().frames(), 0U);
  node(1).recorder().want(0, true);
  pump([&] { return node(1).recorder().frames() == frames; });
}

TEST_P(Conformance, UpcallsMaySend) {
  make(2);
  constexpr std::uint64_t rounds = repeated(400);
  constexpr std::size_t step = 20'000 / rounds;
  for (Peer self = 0; self < 2; ++self) {
    // Back and forth, a little larger each time, so that both kinds of bodies occur.
    node(self).recorder().on_frame = [this, self](Peer from, const Label& label, std::size_t bytes) {
      if (self == 1 || label.key + 1 < rounds) node(self).send(from, bytes + step);
    };
  }
  node(0).send(1, 0);
  pump([&] { return node(0).recorder().frames() == rounds && node(1).recorder().frames() == rounds; });
}

TEST_P(Conformance, LargeBodiesBothWays) {
  make(2);
  for (int i = 0; i < 3; ++i) {
    node(0).send(1, 3'000'000);
    node(1).send(0, 3'000'000);
  }
  pump([&] { return node(0).recorder().frames() == 3 && node(1).recorder().frames() == 3; });
}

TEST_P(Conformance, LargeBodiesInACircle) {
  make(4);
  for (int i = 0; i < 3; ++i) {
    for (Peer from = 0; from < 4; ++from) node(from).send((from + 1) % 4, 2'000'000 + from);
  }
  pump([&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->recorder().frames() == 3; });
  });
}

TEST_P(Conformance, AllToAll) {
  constexpr std::uint32_t count = 8;
  make(count);
  Sizes sizes(5);
  for (int i = 0; i < 20; ++i) {
    for (Peer from = 0; from < count; ++from) {
      for (Peer to = 0; to < count; ++to) {
        if (to != from) node(from).send(to, sizes.next());
      }
    }
    pump_times(1);
  }
  pump([&] {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->recorder().frames() == 20 * (count - 1); });
  });
}

TEST_P(Conformance, FlushPutsOutWhatWasHeldBack) {
  make(2);
  node(0).send(1, 3);
  pump([&] { return node(1).recorder().frames() == 1; });  // The two are connected.
  for (int i = 0; i < 10; ++i) node(0).send(1, 20);
  // The sender only calls flush(), not poll(), and repeats it because a system may take only a part.
  pump(
      [&] {
        node(0).module().flush();
        return node(1).recorder().frames() == 11;
      },
      {1});
  EXPECT_EQ(node(0).module().queued(1), 0U);
}

TEST_P(Conformance, CountsTraffic) {
  make(2);
  Sizes sizes(6);
  std::uint64_t bytes = 0;
  constexpr std::uint64_t frames = 200;
  for (std::uint64_t i = 0; i < frames; ++i) {
    const std::size_t next = sizes.next();
    node(0).send(1, next);
    bytes += next;
  }
  pump([&] { return node(1).recorder().frames() == frames; });
  const Traffic sent = node(0).module().traffic();
  const Traffic received = node(1).module().traffic();
  EXPECT_EQ(sent.frames_sent, frames);
  EXPECT_EQ(sent.bytes_sent, bytes);
  EXPECT_EQ(sent.frames_received, 0U);
  EXPECT_EQ(received.frames_received, frames);
  EXPECT_EQ(received.bytes_received, bytes);
  EXPECT_EQ(received.frames_sent, 0U);
  EXPECT_GT(sent.system_calls, 0U);
  EXPECT_GT(received.system_calls, 0U);
  EXPECT_EQ(received.refused, 0U);
}

TEST_P(Conformance, RefusesBodiesThatAreTooLarge) {
  make(2);
  // Never read, because the length is refused first.
  const std::byte one{};
  const std::span<const std::byte> body(&one, Module::body_bytes_max + 1);
  try {
    node(0).module().send(1, {}, body);
    FAIL() << "sent";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::bad_argument) << error.what();
  }
  node(0).send(1, 10);
  pump([&] { return node(1).recorder().frames() == 1; });
}

}  // namespace
}  // namespace aplib::comm::test
