// SPDX-License-Identifier: MIT
// Collectives on machines of several shapes: correct, and with the same bits on every shape.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cell/processor.hpp"
#include "checks.hpp"
#include "machines.hpp"

namespace aplib {

/// Moves the calling cell to another episode of a group, as if it had already made that many collectives. All cells
/// must do so, each from an episode of the other parity.
struct EpisodeAccess {
  static void skip_to(Scope scope, std::uint64_t episode) {
    Processor& processor = *Processor::current();
    Cell& cell = *processor.running()->cell;
    if (scope == Scope::all) processor.collectives().episode_ = episode;
    cell.place(scope).episode = episode;
    if (scope == Scope::all) return;
    Domain& domain = processor.domain();
    Group& group = scope == Scope::row ? domain.rows[cell.y] : domain.columns[cell.x];
    group.arrived = group.local.size() * episode;
    group.done = episode;
  }
};

namespace {

using namespace testing_support;

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const Grid grid : {Grid{1, 1}, Grid{2, 1}, Grid{3, 2}, Grid{4, 4}, Grid{8, 5}}) {
    for (const std::uint32_t threads : {1U, 2U, 3U, 8U, Options::threads_per_cell}) {
      if (threads == Options::threads_per_cell || threads <= grid.count()) all.push_back({grid, threads});
    }
  }
  return all;
}

/// Times that processors have gone to sleep.
std::uint64_t sleeps() { return Processor::current()->domain().sleepers.load() >> 32U; }

class Collectives : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Collectives, testing::ValuesIn(shapes()), shape_name);

struct Line {
  std::uint32_t first, stride, count;
};

Line line_of(Scope scope) {
  const Grid grid = this_machine::grid();
  switch (scope) {
    case Scope::row:
      return {this_cell::y() * grid.nx, 1, grid.nx};
    case Scope::column:
      return {this_cell::x(), grid.nx, grid.ny};
    case Scope::all:
      break;
  }
  return {0, 1, grid.count()};
}

constexpr Scope scopes[] = {Scope::all, Scope::row, Scope::column};

// The fixed tree over the members of a line.
template <class T>
T tree(const std::vector<T>& values, std::size_t first, std::size_t width) {
  if (width == 1) return values[first];
  const T left = tree(values, first, width / 2);
  if (first + width / 2 >= values.size()) return left;
  return static_cast<T>(left + tree(values, first + width / 2, width / 2));
}

// The value of cell c in round r. The values have very different sizes, so that another order of addition gives other
// bits.
double operand(std::uint32_t c, int round) {
  std::minstd_rand random(1 + c * 1000 + static_cast<unsigned>(round));
  random.discard(2);
  const double mantissa = static_cast<double>(random()) / 2147483647.0 - 0.5;
  return std::ldexp(mantissa, static_cast<int>(random() % 30) - 15);
}

TEST_P(Collectives, SumsFollowTheFixedTreeBitForBit) {
  run_well(GetParam(), [] {
    for (int round = 0; round < 30; ++round) {
      for (const Scope scope : scopes) {
        const Line line = line_of(scope);
        std::vector<double> doubles;
        std::vector<float> floats;
        std::int32_t integers = 0;
        for (std::uint32_t i = 0; i < line.count; ++i) {
          doubles.push_back(operand(line.first + i * line.stride, round));
          floats.push_back(static_cast<float>(doubles.back()));
          integers += static_cast<std::int32_t>(line.first + i * line.stride) + round;
        }
        const double mine = operand(me(), round);
        ASSERT_EQ(std::bit_cast<std::uint64_t>(reduce_sum(mine, scope)),
                  std::bit_cast<std::uint64_t>(tree(doubles, 0, std::bit_ceil(doubles.size()))));
        ASSERT_EQ(std::bit_cast<std::uint32_t>(reduce_sum(static_cast<float>(mine), scope)),
                  std::bit_cast<std::uint32_t>(tree(floats, 0, std::bit_ceil(floats.size()))));
        ASSERT_EQ(reduce_sum(static_cast<std::int32_t>(me()) + round, scope), integers);
      }
    }
  });
}

TEST(CollectivesBits, SumsAreTheSameForEveryNumberOfThreads) {
  const auto bits_of = [](std::uint32_t threads) {
    std::vector<std::uint64_t> bits;
    run_well({{9, 7}, threads}, [&] {
      for (int round = 0; round < 20; ++round) {
        const double all = reduce_sum(operand(me(), round));
        const double row = reduce_sum(operand(me(), round), Scope::row);
        const double column = reduce_sum(operand(me(), round), Scope::column);
        const double largest = reduce_max(operand(me(), round));
        if (me() == 17) {
          for (const double value : {all, row, column, largest}) bits.push_back(std::bit_cast<std::uint64_t>(value));
        }
      }
    });
    return bits;
  };
  const std::vector<std::uint64_t> reference = bits_of(1);
  ASSERT_EQ(reference.size(), 80U);
  for (std::uint32_t threads = 2; threads <= 8; ++threads)
    EXPECT_EQ(bits_of(threads), reference) << threads << " threads";
  EXPECT_EQ(bits_of(Options::threads_per_cell), reference);
}

// The cells wait for unequal times, so that idle processors take over cells and the placement changes meanwhile.
TEST(CollectivesBits, SumsAreTheSameWhileCellsMove) {
  std::vector<std::uint64_t> bits;
  std::vector<std::uint64_t> again;
  for (auto* into : {&bits, &again}) {
    run_well({{24, 1}, into == &bits ? 1U : 4U}, [&, into] {
      volatile double sink = 0;
      for (int round = 0; round < 200; ++round) {
        const std::uint32_t heavy = static_cast<std::uint32_t>(round / 20) % 24;
        if (me() / 6 == heavy / 6) {
          for (int i = 0; i < 2000; ++i) sink = sink + std::sqrt(static_cast<double>(i));
          this_task::yield();
        }
        const double sum = reduce_sum(operand(me(), round));
        if (me() == 5) into->push_back(std::bit_cast<std::uint64_t>(sum));
      }
    });
  }
  EXPECT_EQ(bits.size(), 200U);
  EXPECT_EQ(bits, again);
}

TEST_P(Collectives, ExtremesAndTheirPlaces) {
  run_well(GetParam(), [] {
    for (int round = 0; round < 20; ++round) {
      for (const Scope scope : scopes) {
        const Line line = line_of(scope);
        double largest = -1e300;
        double smallest = 1e300;
        std::int32_t tie_at = -1;
        for (std::uint32_t i = 0; i < line.count; ++i) {
          const std::uint32_t c = line.first + i * line.stride;
          largest = std::max(largest, operand(c, round));
          smallest = std::min(smallest, operand(c, round));
          const std::int32_t location = 1000 - static_cast<std::int32_t>(c);  // the last cell has the smallest
          if (tie_at < 0 || location < tie_at) tie_at = location;
        }
        const double mine = operand(me(), round);
        ASSERT_EQ(reduce_max(mine, scope), largest);
        ASSERT_EQ(reduce_min(mine, scope), smallest);
        ASSERT_EQ(reduce_max(static_cast<float>(mine), scope), static_cast<float>(largest));
        const auto location = static_cast<std::int32_t>(me());
        const Located<double> max_at = reduce(ReduceOp::max, Located<double>{mine, location}, scope);
        ASSERT_EQ(max_at.value, largest);
        ASSERT_EQ(operand(static_cast<std::uint32_t>(max_at.location), round), largest);
        const Located<float> min_at = reduce(ReduceOp::min, Located<float>{static_cast<float>(mine), location}, scope);
        ASSERT_EQ(min_at.value, static_cast<float>(smallest));
        const Located<std::int32_t> tie = reduce(ReduceOp::max, Located<std::int32_t>{5, 1000 - location}, scope);
        ASSERT_EQ(tie.value, 5);
        ASSERT_EQ(tie.location, tie_at);
        ASSERT_EQ(reduce(ReduceOp::min, Located<std::int32_t>{5, 1000 - location}, scope).location, tie_at);
      }
    }
    ASSERT_EQ(reduce(ReduceOp::bit_or, static_cast<std::int32_t>(1U << (me() % 30U))) & 1, 1);
    ASSERT_EQ(reduce(ReduceOp::bit_and, static_cast<std::int32_t>(me() | 4096U)) & 4096, 4096);
    ASSERT_EQ(reduce(ReduceOp::bit_xor, std::int32_t{1}), static_cast<std::int32_t>(this_machine::cell_count() % 2));
  });
}

TEST_P(Collectives, NobodyPassesABarrierBeforeAllHaveCome) {
  std::vector<int> progress(GetParam().cells.count(), 0);
  run_well(GetParam(), [&] {
    for (int round = 1; round <= 100; ++round) {
      progress[me()] = round;
      barrier();
      for (const int other : progress) ASSERT_GE(other, round);
      barrier();
    }
    ASSERT_FALSE(barrier(false));
    ASSERT_TRUE(barrier(true));
    ASSERT_TRUE(barrier(me() == this_machine::cell_count() - 1));
    ASSERT_FALSE(barrier(false));
    const Line row = line_of(Scope::row);
    ASSERT_EQ(barrier(me() == 0, Scope::row), row.first == 0);
    const Line column = line_of(Scope::column);
    ASSERT_EQ(barrier(me() == 0, Scope::column), column.first == 0);
  });
}

TEST_P(Collectives, BroadcastsAnySizeFromAnyRoot) {
  run_well(GetParam(), [] {
    unsigned salt = 0;
    std::vector<std::byte> memory(1'048'576);  // once: ThreadSanitizer makes large blocks slowly
    for (const std::size_t bytes : {0UL, 1UL, 8UL, 40UL, 1000UL, 8191UL, 8192UL, 8193UL, 65'536UL, 1'048'576UL}) {
      for (const Scope scope : scopes) {
        const Line line = line_of(scope);
        const std::uint32_t root = line.first + (++salt % line.count) * line.stride;
        const std::span<std::byte> buffer = std::span(memory).first(bytes);
        const auto expected = static_cast<std::byte>(root * 7 + salt);
        std::memset(buffer.data(), me() == root ? static_cast<int>(expected) : 0, bytes);
        broadcast(cell(root), buffer, scope);
        ASSERT_TRUE(all_bytes_are(expected, buffer)) << bytes << " bytes";
        if (me() == root) std::memset(buffer.data(), 0xff, bytes);  // the others must not see this any more
      }
    }
  });
}

TEST_P(Collectives, MixWithMessagesAndOtherTasks) {
  run_well(GetParam(), [] {
    const std::uint32_t cells = this_machine::cell_count();
    Task talker = spawn([cells] {
      for (int i = 0; i < 50; ++i) {
        send(cell((me() + 1) % cells), i, {.task = TaskId{1}});
        ASSERT_EQ(receive().as<int>(), i);
      }
    });
    ASSERT_EQ(talker.id(), TaskId{1});
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(reduce_sum(std::int32_t{1}), static_cast<std::int32_t>(cells));
    }
    talker.join();
  });
}

// --- failures give a message

std::string reason_of(const Shape& shape, std::function<void()> program) {
  return run(shape, std::move(program)).reason;
}

TEST(CollectivesMismatch, NamesWhoCalledWhat) {
  for (const std::uint32_t threads : {1U, 2U, 3U}) {
    const Shape shape{{3, 1}, threads};
    EXPECT_NE(reason_of(shape,
                        [] {
                          if (me() == 2) {
                            barrier();
                          } else {
                            static_cast<void>(reduce_sum(1.0));
                          }
                        })
                  .find("the cells disagree: cell 0 calls reduce (sum of double), cell 2 calls barrier; all must make "
                        "the same call"),
              std::string::npos);
    EXPECT_NE(reason_of(shape,
                        [] {
                          std::vector<std::byte> buffer(me() == 1 ? 100 : 200);
                          broadcast(cell(0), buffer);
                        })
                  .find("the cells disagree: cell 0 calls broadcast (200 bytes from cell 0), cell 1 calls broadcast "
                        "(100 bytes from cell 0)"),
              std::string::npos);
    EXPECT_NE(reason_of(shape,
                        [] {
                          std::vector<std::byte> buffer(8);
                          broadcast(cell(me() == 1 ? 1 : 0), buffer);
                        })
                  .find("cell 1 calls broadcast (8 bytes from cell 1)"),
              std::string::npos);
    const std::string types = reason_of(shape, [] {
      if (me() == 1) {
        static_cast<void>(reduce_max(1.0F, Scope::row));
      } else {
        static_cast<void>(reduce_max(1, Scope::row));
      }
    });
    EXPECT_NE(types.find("max of int"), std::string::npos) << types;
    EXPECT_NE(types.find("cell 1 calls reduce (max of float)"), std::string::npos) << types;
  }
}

TEST(CollectivesMismatch, AMismatchCanBeCaughtOnEveryCell) {
  std::mutex mutex;
  int caught = 0;
  run_well({{2, 2}, 2}, [&] {
    try {
      if (me() == 3) {
        barrier();
      } else {
        static_cast<void>(reduce_sum(1));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::mismatch);
      const std::scoped_lock lock(mutex);
      ++caught;
    }
    barrier();  // and the machine goes on
  });
  EXPECT_EQ(caught, 4);
}

TEST(CollectivesMismatch, AnEndedCellIsNamed) {
  for (const std::uint32_t threads : {1U, 2U}) {
    const std::string reason = reason_of({{4, 1}, threads}, [] {
      if (me() != 2) barrier();
    });
    EXPECT_NE(reason.find("barrier: cell 2 has ended and takes no part any more; all cells must call it"),
              std::string::npos)
        << reason;
  }
}

TEST(CollectivesMismatch, OneTaskOfACellAtATime) {
  const std::string reason = reason_of({{2, 1}, 1}, [] {
    if (me() != 0) {
      static_cast<void>(receive());
      return;
    }
    Task other = spawn([] { barrier(); });
    this_task::yield();
    barrier();
  });
  EXPECT_NE(reason.find("cell 0 task 0: barrier: task 1 of this cell is in a collective already"), std::string::npos)
      << reason;
}

TEST(CollectivesMismatch, ARootOutsideTheScopeIsRefused) {
  const std::string reason = reason_of({{2, 2}, 1}, [] {
    std::vector<std::byte> buffer(4);
    broadcast(cell(3), buffer, Scope::row);
  });
  EXPECT_NE(reason.find("broadcast: root cell 3 is not one of the cells that take part"), std::string::npos) << reason;
}

TEST(Collective, ARootThatIsStoppedWaitsForThoseWhoReadItsMemory) {
  constexpr std::size_t bytes = std::size_t{4} << 20;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::byte> shown(bytes, std::byte{1});
    std::vector<std::byte> copy(bytes, std::byte{1});
    std::atomic<bool> stopping{false};
    BroadcastPlace place;
    place.show(shown.data(), bytes);
    std::atomic<bool> reads{false};
    std::thread reader([&] {
      reads = true;
      place.copy_to(copy.data(), bytes, stopping);
    });
    while (!reads) std::this_thread::yield();
    stopping = true;
    place.await_readers();
    std::ranges::fill(shown, std::byte{2});
    reader.join();
    EXPECT_TRUE(all_bytes_are(std::byte{1}, copy));
  }
}

// At 0.1 us each, 2^32 collectives take seven minutes, and 2^31 half of that.
TEST(Collective, NumbersOfEpisodesDoNotWrap) {
  for (const std::uint64_t far : {(std::uint64_t{1} << 31) - 7, (std::uint64_t{1} << 32) - 7}) {
    for (const Scope scope : scopes) {
      const Shape shape = scope == Scope::all ? Shape{{2, 1}, 2} : Shape{{1, 1}, 1};
      run_well(shape, [scope, far] {
        EXPECT_FALSE(barrier(false, scope));  // the first one has an even number
        EpisodeAccess::skip_to(scope, far);
        for (std::int32_t i = 0; i < 20; ++i) {
          const auto count = static_cast<std::int32_t>(scope == Scope::all ? this_machine::cell_count() : 1);
          EXPECT_EQ(reduce_sum(i, scope), i * count);
          EXPECT_FALSE(barrier(false, scope));
        }
      });
    }
  }
}

// Who arrives before the last one wakes nobody, so each processor sleeps about once.
TEST(CollectiveWaits, EndOnceForEachSleeper) {
  constexpr std::uint32_t cells = 16;
  constexpr std::uint32_t rounds = 200;
  Options options = options_of({{cells, 1}, Options::threads_per_cell});
  options.poll_time = std::chrono::nanoseconds(0);
  const Report report = Machine(options).run([] {
    barrier();
    const std::uint64_t before = sleeps();
    for (std::uint32_t round = 0; round < rounds; ++round) EXPECT_EQ(reduce_sum(1), static_cast<int>(cells));
    EXPECT_LE(sleeps() - before, 2 * cells * rounds);
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

}  // namespace
}  // namespace aplib
