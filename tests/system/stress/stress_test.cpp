// SPDX-License-Identifier: MIT
// 64 cells exchange ten million messages of mixed sizes in several patterns. Content, order and number of all are
// checked. Seeds: STRESS_SEED=n; count: STRESS_MESSAGES=n; STRESS_BALANCE=0 keeps cells in place. In each cell task 0
// sends and task 1 receives; senders hold at most `window` messages per receiver in flight, for which the receivers
// return credits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

enum class Pattern : std::uint8_t { pairwise, all_to_one, ring, random };
constexpr std::array patterns{Pattern::pairwise, Pattern::random, Pattern::all_to_one, Pattern::ring};

constexpr std::uint32_t window = 128;
constexpr std::uint32_t credit_every = 64;
constexpr std::size_t bytes_max = 200'000;
constexpr TaskId sending_task{0};
constexpr TaskId receiving_task{1};
// Types: that of a data message is its sequence number. These are above all of them.
constexpr std::int32_t credit_type = 1 << 23;
constexpr std::int32_t end_type = (1 << 23) + 1;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + b * 0x9e37'79b9'7f4a'7c15ULL;
  z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11ebULL;
  return z ^ (z >> 31U);
}

// The content of a message follows from its sender, its receiver and its number: a slice of one random pool.
struct Contents {
  explicit Contents(std::uint64_t chosen_seed) : seed(chosen_seed), pool(2 * bytes_max) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i + 8 <= pool.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(&pool[i], &word, 8);
    }
  }

  [[nodiscard]] std::span<const std::byte> of(std::uint32_t from, std::uint32_t to, std::uint32_t sequence) const {
    const std::uint64_t draw = mix(mix(seed, from * 65'536ULL + to), sequence);
    const std::uint64_t share = draw % 10'000;
    const std::uint64_t more = draw >> 20U;
    std::size_t bytes = 0;
    if (share < 8'000) {
      bytes = more % 41;
    } else if (share < 9'800) {
      bytes = more % 1'001;
    } else if (share < 9'980) {
      bytes = more % 8'193;
    } else if (share < 9'995) {
      bytes = more % 65'537;
    } else {
      bytes = more % (bytes_max + 1);
    }
    return {pool.data() + draw % bytes_max, bytes};
  }

  std::uint64_t seed;
  std::vector<std::byte> pool;
};

struct Stress {
  Stress(std::uint64_t seed, std::uint32_t cell_count, std::uint64_t messages)
      : contents(seed), cells(cell_count), messages_per_cell(messages / cell_count) {}

  void complain(const std::string& text) {
    const std::scoped_lock lock(mutex);
    if (++complaints <= 5) first_complaints += text + "\n";
  }

  // Where cell `from` sends its i-th message of a phase.
  [[nodiscard]] std::uint32_t destination(Pattern pattern, std::uint32_t from, std::uint64_t i) const {
    switch (pattern) {
      case Pattern::pairwise:
        return from ^ 1U;
      case Pattern::all_to_one:
        return static_cast<std::uint32_t>(i / 512 % cells);  // the one changes
      case Pattern::ring:
        return (from + 1) % cells;
      case Pattern::random:
        break;
    }
    return static_cast<std::uint32_t>(mix(contents.seed ^ 0x5eedULL, from * (1ULL << 40U) + i) % cells);
  }

  void send_all() {
    const std::uint32_t self = me();
    std::vector<std::uint32_t> sequence(cells, 0);
    std::vector<std::uint32_t> in_flight(cells, 0);
    std::uint64_t i = 0;
    for (std::size_t phase = 0; phase < patterns.size(); ++phase) {
      const std::uint64_t until = messages_per_cell * (phase + 1) / patterns.size();
      for (; i < until; ++i) {
        const std::uint32_t to = destination(patterns[phase], self, i);
        if (in_flight[to] == window) {
          static_cast<void>(receive({.cell = cell(to), .task = receiving_task, .type = credit_type}));
          in_flight[to] -= credit_every;
        }
        ++in_flight[to];
        const std::uint32_t number = sequence[to]++;
        send(cell(to), contents.of(self, to, number),
             {.task = receiving_task, .type = static_cast<std::int32_t>(number)});
      }
      if (phase % 2 == 0) barrier();
    }
    for (std::uint32_t to = 0; to < cells; ++to) {
      send(cell(to), sequence[to], {.task = receiving_task, .type = end_type});
    }
    sent.fetch_add(i);
  }

  void receive_all() {
    const std::uint32_t self = me();
    std::vector<std::uint32_t> expected(cells, 0);
    std::uint32_t ended = 0;
    std::uint64_t count = 0;
    Message message;
    std::vector<std::byte> buffer(bytes_max);
    std::mt19937 random(static_cast<std::uint32_t>(contents.seed + self));
    while (ended < cells) {
      Envelope envelope;
      std::span<const std::byte> body;
      const unsigned way = random() % 8;
      if (way < 3) {  // into our own buffer, into which the sender may copy directly
        envelope = receive_into(buffer);
        body = {buffer.data(), envelope.bytes};
      } else {
        if (way == 3) static_cast<void>(probe());
        if (way == 4) this_task::yield();
        receive(message, {});
        envelope = message.envelope();
        body = message.bytes();
      }
      const std::uint32_t from = index(envelope.source);
      if (from >= cells || envelope.source_task != sending_task || envelope.bytes != body.size()) {
        complain("a message from cell " + std::to_string(from) + " with a wrong envelope");
        continue;
      }
      if (envelope.type == end_type) {
        std::uint32_t number = 0;
        if (body.size() == sizeof number) std::memcpy(&number, body.data(), sizeof number);
        if (number != expected[from]) {
          complain("cell " + std::to_string(self) + " got " + std::to_string(expected[from]) + " messages of cell " +
                   std::to_string(from) + ", which sent " + std::to_string(number));
        }
        ++ended;
        continue;
      }
      const std::uint32_t number = expected[from]++;
      ++count;
      const auto wanted = contents.of(from, self, number);
      if (static_cast<std::uint32_t>(envelope.type) != number) {
        complain("cell " + std::to_string(self) + ": message " + std::to_string(envelope.type) + " of cell " +
                 std::to_string(from) + " instead of " + std::to_string(number));
      } else if (wanted.size() != body.size() ||
                 (!body.empty() && std::memcmp(wanted.data(), body.data(), body.size()) != 0)) {
        complain("cell " + std::to_string(self) + ": wrong content (" + std::to_string(body.size()) + " bytes for " +
                 std::to_string(wanted.size()) + ") in message " + std::to_string(number) + " of cell " +
                 std::to_string(from));
      }
      if (expected[from] % credit_every == 0) {
        send(cell(from), std::span<const std::byte>{}, {.task = sending_task, .type = credit_type});
      }
    }
    received.fetch_add(count);
  }

  Contents contents;
  std::uint32_t cells;
  std::uint64_t messages_per_cell;
  std::atomic<std::uint64_t> sent{0}, received{0};
  std::mutex mutex;
  std::uint64_t complaints = 0;
  std::string first_complaints;
};

struct Load {
  Shape shape;
  std::uint64_t messages;  // in a release build

  friend void PrintTo(const Load& load, std::ostream* out) { *out << load.shape.name(); }
};

class StressTest : public testing::TestWithParam<Load> {};

TEST_P(StressTest, LosesReordersAndDamagesNothing) {
  const Load& load = GetParam();
  const std::uint64_t seed = number_from_environment("STRESS_SEED", 20260101);
  const std::uint64_t messages = number_from_environment("STRESS_MESSAGES", scaled(load.messages, 50, 10));
  std::cout << "STRESS_SEED=" << seed << " STRESS_MESSAGES=" << messages << " on " << load.shape.name() << std::endl;
  Stress stress(seed, load.shape.cells.count(), messages);
  Options options = options_of(load.shape);
  options.balance = number_from_environment("STRESS_BALANCE", 1) != 0;
  Machine machine(options);
  const Report report = machine.run([&] {
    Task receiver = spawn([&] { stress.receive_all(); }, receiving_task);
    stress.send_all();
    receiver.join();
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(stress.complaints, 0U) << stress.first_complaints;
  EXPECT_EQ(stress.sent, load.shape.cells.count() * stress.messages_per_cell);
  EXPECT_EQ(stress.received, stress.sent);
}

INSTANTIATE_TEST_SUITE_P(, StressTest,
                         testing::Values(Load{{{8, 8}, 2}, 10'000'000}, Load{{{8, 8}, 4}, 10'000'000},
                                         Load{{{64, 1}, Options::threads_per_cell}, 10'000'000},
                                         Load{{{4, 1}, 1}, 1'000'000}, Load{{{2, 1}, 2}, 2'000'000}),
                         [](const auto& info) { return info.param.shape.name(); });

// Receives by source and number, in each receiver's own order, while messages of others pile up.
TEST(StressSelective, EveryMessageIsFoundByItsLabelWhateverTheOrder) {
  const std::uint64_t seed = number_from_environment("STRESS_SEED", 20260102);
  std::cout << "STRESS_SEED=" << seed << std::endl;
  constexpr std::uint32_t cells = 16;
  constexpr std::uint32_t each = 60;
  const Contents contents(seed);
  std::atomic<std::uint64_t> wrong{0};
  for (int round = 0; round < static_cast<int>(scaled(20, 10)); ++round) {
    run_well({{cells, 1}, 2}, [&] {
      const std::uint32_t self = me();
      std::vector<std::pair<std::uint32_t, std::uint32_t>> wanted;
      for (std::uint32_t other = 0; other < cells; ++other) {
        for (std::uint32_t i = 0; i < each; ++i) {
          send(cell(other), contents.of(self, other, i), {.type = static_cast<std::int32_t>(i)});
          wanted.emplace_back(other, i);
        }
      }
      std::mt19937 random(static_cast<std::uint32_t>(seed + self + static_cast<std::uint32_t>(round)));
      std::shuffle(wanted.begin(), wanted.end(), random);
      for (const auto& [from, number] : wanted) {
        const Message message = receive({.cell = cell(from), .type = static_cast<std::int32_t>(number)});
        const auto right = contents.of(from, self, number);
        if (message.size() != right.size() || std::memcmp(message.data(), right.data(), right.size()) != 0 ||
            message.envelope().source != cell(from)) {
          wrong.fetch_add(1);
        }
      }
      if (probe()) wrong.fetch_add(1);
    });
  }
  EXPECT_EQ(wrong.load(), 0U);
}

}  // namespace
}  // namespace aplib
