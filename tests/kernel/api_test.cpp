// SPDX-License-Identifier: MIT
// The C++ API: what can be sent and reduced, and its messages for misuse.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cell/processor.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

// Misuse that does not compile and that a requires-expression can test: a temporary's body, and types that are not
// allowed.
template <class M>
concept HasBody = requires(M&& message) { std::forward<M>(message).bytes(); } ||
                  requires(M&& message) { std::forward<M>(message).data(); } ||
                  requires(M&& message) { std::forward<M>(message).text(); } ||
                  requires(M&& message) { std::forward<M>(message).template span<int>(); };
static_assert(HasBody<Message&>);
static_assert(HasBody<const Message&>);
static_assert(!HasBody<Message>);
static_assert(!HasBody<const Message>);
template <class T>
concept CanReduce = requires(T value) { reduce(ReduceOp::sum, value); };
static_assert(CanReduce<short> && CanReduce<unsigned long long> && CanReduce<double>);
static_assert(!CanReduce<long double> && !CanReduce<int*> && !CanReduce<std::string>);

TEST(Api, ViewsAndRangesSendWhatTheyPointTo) {
  run_well({{2, 1}, 2}, [] {
    const std::vector<double> numbers{1.5, 2.5, 3.5};
    if (me() == 0) {
      send(cell(1), std::string_view("hello"));
      send(cell(1), std::string(100, 'x'));
      send(cell(1), std::span<const double>(numbers));
      send(cell(1), numbers);
      send(cell(1), std::array{1, 2, 3});
      send(cell(1), std::initializer_list<short>{4, 5});
      send(cell(1), std::span<const int>());
      return;
    }
    Message message = receive();
    EXPECT_EQ(message.text(), "hello");
    message = receive();
    EXPECT_EQ(message.text(), std::string(100, 'x'));
    for (int i = 0; i < 2; ++i) {
      message = receive();
      const std::span<const double> got = message.span<double>();
      EXPECT_EQ(std::vector<double>(got.begin(), got.end()), numbers);
    }
    EXPECT_EQ((receive().as<std::array<int, 3>>()), (std::array{1, 2, 3}));
    message = receive();
    EXPECT_EQ(message.span<short>().size(), 2U);
    EXPECT_EQ(message.span<short>()[1], 5);
    message = receive();
    EXPECT_TRUE(message.span<int>().empty());
  });
}

TEST(Api, ASpanOfAMessageThatDoesNotDivideIsRefused) {
  run_well({{1, 1}, 1}, [] {
    send(cell(0), std::string_view("seven b"));
    const Message message = receive();
    const std::string text = error_text([&] { static_cast<void>(message.span<int>()); });
    EXPECT_NE(text.find("has 7 bytes where a value of 4 bytes is expected"), std::string::npos) << text;
  });
}

TEST(Api, TypedBuffersReceiveAndBroadcast) {
  run_well({{2, 1}, 2}, [] {
    std::vector<double> numbers(3, me() == 0 ? 2.5 : 0.0);
    broadcast(cell(0), numbers);
    EXPECT_EQ(numbers, (std::vector<double>{2.5, 2.5, 2.5}));
    if (me() == 0) {
      send(cell(1), std::span<const double>(numbers).first(2));
    } else {
      std::array<double, 3> into{};
      EXPECT_EQ(receive_into(into).bytes, 16U);
      EXPECT_EQ(into, (std::array{2.5, 2.5, 0.0}));
    }
  });
}

TEST(Api, ReductionsOfEveryNumber) {
  run_well({{3, 1}, 2}, [] {
    constexpr std::int64_t large = std::int64_t{1} << 40;
    const auto mine = static_cast<std::int64_t>(me());
    EXPECT_EQ(reduce_sum(large + mine), 3 * large + 3);
    EXPECT_EQ(reduce_sum(1L), 3L);
    EXPECT_EQ(reduce_sum(1LL), 3LL);
    EXPECT_EQ(reduce_sum(1ULL << 63), 1ULL << 63) << "it wraps around";
    EXPECT_EQ(reduce_max(-large * mine), 0);
    EXPECT_EQ(reduce_min(-large * mine), -2 * large);
    // Unsigned numbers compare as unsigned.
    EXPECT_EQ(reduce_max(me() == 1 ? 0xffff'fff0U : 7U), 0xffff'fff0U);
    EXPECT_EQ(reduce_min(me() == 1 ? ~0ULL : 7ULL), 7ULL);
    EXPECT_EQ(reduce(ReduceOp::bit_or, 1ULL << (40 + me())), 7ULL << 40);
    EXPECT_EQ(reduce(ReduceOp::bit_and, large | mine), large);
    EXPECT_EQ(reduce_sum(static_cast<short>(me() + 1)), 6);
    const auto [value, location] = reduce(ReduceOp::max, Located<std::int64_t>{large * (mine % 2), 10 + int(mine)});
    EXPECT_EQ(value, large);
    EXPECT_EQ(location, 11);
  });
}

/// Numbers whose sum depends on the order of addition.
double number_of(std::uint32_t cell, std::size_t i) {
  return (cell % 2 == 0 ? 1e10 : -1e-3) / (static_cast<double>(cell) + 3.0 + static_cast<double>(i));
}

TEST(Api, ArraysAreReducedElementByElementToTheSameBits) {
  for (const Shape& shape :
       {Shape{{1, 1}, 1}, Shape{{3, 1}, 1}, Shape{{3, 2}, 2}, Shape{{7, 1}, 3}, Shape{{4, 3}, 2}}) {
    SCOPED_TRACE(shape.name());
    run_well(shape, [] {
      for (const Scope scope : {Scope::all, Scope::row, Scope::column}) {
        for (const std::size_t count : {0U, 1U, 5U, 300U, 5000U}) {
          std::vector<double> sums(count);
          for (std::size_t i = 0; i < count; ++i) sums[i] = number_of(me(), i);
          std::vector<double> single(sums);
          reduce_sum(sums, scope);
          for (std::size_t i = 0; i < count; i += i < 10 ? 1 : 97) {
            single[i] = reduce_sum(single[i], scope);
            ASSERT_EQ(std::memcmp(&single[i], &sums[i], sizeof(double)), 0) << i;
          }
        }
      }
      std::array<std::uint64_t, 3> bits{1ULL << me(), me(), 7};
      reduce(ReduceOp::bit_or, bits);
      EXPECT_EQ(bits[0], (1ULL << this_machine::cell_count()) - 1);
      int numbers[2] = {static_cast<int>(me()), -static_cast<int>(me())};
      reduce_min(std::span(numbers));
      EXPECT_EQ(numbers[0], 0);
      EXPECT_EQ(numbers[1], -static_cast<int>(this_machine::cell_count() - 1));
    });
  }
}

TEST(Api, ArraysAreReducedByDifferentTasksToo) {
  run_well({{3, 1}, 2}, [] {
    spawn(
        [] {
          std::vector<std::int64_t> numbers(40, me() + 1);
          reduce_sum(numbers);
          EXPECT_EQ(numbers, std::vector<std::int64_t>(40, 6));
        },
        TaskId{me() + 1})
        .join();
  });
}

TEST(Api, DisagreementAboutArraysIsNamed) {
  const Report report = run({{2, 1}, 1}, [] {
    std::vector<double> numbers(me() == 0 ? 10 : 11);
    reduce_sum(numbers);
  });
  EXPECT_NE(report.reason.find("reduce (sum of 10 double)"), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find("reduce (sum of 11 double)"), std::string::npos) << report.reason;
  const Report other = run({{2, 1}, 1}, [] {
    std::vector<double> numbers(10);
    if (me() == 0) {
      reduce_sum(numbers);
    } else {
      barrier();
    }
  });
  EXPECT_NE(other.reason.find("reduce (sum of 10 double)"), std::string::npos) << other.reason;
}

TEST(Api, DisagreementNamesTheTypes) {
  const Report report = run({{2, 1}, 1}, [] {
    if (me() == 0) {
      static_cast<void>(reduce_sum(1L));
    } else {
      static_cast<void>(reduce_sum(1U));
    }
  });
  EXPECT_NE(report.reason.find("reduce (sum of long)"), std::string::npos) << report.reason;
  EXPECT_NE(report.reason.find("reduce (sum of unsigned int)"), std::string::npos) << report.reason;
}

TEST(Api, WrongNumbersAreRefusedWithAMessage) {
  run_well({{1, 1}, 1}, [] {
    const auto scope = static_cast<Scope>(9);
    const auto op = static_cast<ReduceOp>(77);
    const std::span<const std::byte> nothing(static_cast<const std::byte*>(nullptr), 5);
    const std::span<std::byte> nowhere(static_cast<std::byte*>(nullptr), 5);
    EXPECT_EQ(error_text([&] { barrier(false, scope); }),
              "cell 0 task 0: barrier: there is no scope 9; use row, column or all");
    EXPECT_EQ(error_text([&] { static_cast<void>(reduce_sum(1, scope)); }),
              "cell 0 task 0: reduce: there is no scope 9; use row, column or all");
    EXPECT_EQ(error_text([&] { static_cast<void>(reduce(op, 1)); }),
              "cell 0 task 0: reduce: there is no operation 77 of reductions");
    EXPECT_EQ(error_text([&] { static_cast<void>(reduce(ReduceOp::bit_xor, 1.0)); }),
              "cell 0 task 0: reduce: and, or and xor work on integers only");
    std::vector<double> numbers(2);
    EXPECT_EQ(error_text([&] { reduce(ReduceOp::bit_and, numbers); }),
              "cell 0 task 0: reduce: and, or and xor work on integers only");
    EXPECT_EQ(error_text([&] { reduce_sum(std::span<double>(static_cast<double*>(nullptr), 2)); }),
              "cell 0 task 0: reduce: the span is null but has 16 bytes; give the address of that many");
    EXPECT_EQ(error_text([&] { send(cell(0), nothing); }),
              "cell 0 task 0: send: the span is null but has 5 bytes; give the address of that many");
    EXPECT_EQ(error_text([&] { receive_into(nowhere); }),
              "cell 0 task 0: receive_into: the span is null but has 5 bytes; give the address of that many");
    EXPECT_EQ(error_text([&] { broadcast(cell(0), nowhere); }),
              "cell 0 task 0: broadcast: the span is null but has 5 bytes; give the address of that many");
    barrier();
  });
}

TEST(Api, TheLongestSleepIsLong) {
  bool woke = false;
  const Report report = run({{1, 1}, 1}, [&] {
    spawn([&] {
      this_task::sleep_for(std::chrono::nanoseconds::max());
      woke = true;
    }).detach();
    this_task::sleep_for(std::chrono::milliseconds(5));
    this_task::sleep_for(std::chrono::nanoseconds::min());
    throw std::runtime_error("enough");
  });
  EXPECT_FALSE(woke);
  EXPECT_NE(report.reason.find("enough"), std::string::npos) << report.reason;
}

TEST(Api, AMachineThatRunsIsNotRunAgainByAnotherThread) {
  Machine machine(options_of({{2, 1}, 1}));
  std::string run_text;
  std::string host_text;
  const auto try_both = [&] {
    std::thread other([&] {
      run_text = error_text([&] { machine.run([] {}); });
      host_text = error_text([&] { machine.run_host([] { return 0; }); });
    });
    other.join();
  };
  EXPECT_EQ(machine
                .run([&] {
                  if (me() == 0) try_both();
                })
                .exit_status,
            0);
  EXPECT_NE(run_text.find("run: the machine runs already, in another thread"), std::string::npos) << run_text;
  EXPECT_NE(host_text.find("run_host: the machine runs already, in another thread"), std::string::npos) << host_text;
  EXPECT_EQ(machine.run([] {}).exit_status, 0) << "after that run it can be run again";
}

// Ctrl-C may come between the two lines that replace the processors by more of them.
TEST(Api, StopFindsTheProcessorsWhileOthersAreMade) {
  Domain domain;
  domain.processors.push_back(std::make_unique<Processor>(domain, 0, ProcessorRole::host));
  domain.publish_processors();
  std::vector<std::unique_ptr<Processor>> taken = std::move(domain.processors);
  domain.processors.clear();
  domain.processors.emplace_back(nullptr);
  domain.stop();
  EXPECT_TRUE(domain.stopping.load());
  domain.processors = std::move(taken);
}

}  // namespace
}  // namespace aplib
