// SPDX-License-Identifier: MIT
// Receives and sends that are waited for later, in one process and in several, over every module.
#include "aplib/request.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "placements.hpp"

namespace aplib {
namespace {

using testing_support::body_of;
using testing_support::cell;
using testing_support::me;
using testing_support::Placement;
using testing_support::placement_name;
using testing_support::placements;
using testing_support::run_on;
using testing_support::same_bytes;
using testing_support::scaled;

std::uint32_t next_cell() { return (me() + 1) % this_machine::cell_count(); }
std::uint32_t last_cell() { return (me() + this_machine::cell_count() - 1) % this_machine::cell_count(); }

class Requests : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(, Requests, testing::ValuesIn(placements()), placement_name);

constexpr std::size_t sizes[] = {0, 1, 8, 40, 41, 511, 512, 2048, 32'767, 65'537, 300'000};

TEST_P(Requests, EverySizeArrivesWholeBeforeAndAfterItIsAskedFor) {
  run_on(GetParam(), [] {
    for (const bool asked_before : {true, false}) {
      std::vector<std::vector<std::byte>> buffers;
      for (const std::size_t bytes : sizes) buffers.emplace_back(bytes);
      std::vector<Request> requests;
      const auto ask = [&] {
        for (std::size_t i = 0; i < buffers.size(); ++i)
          requests.push_back(receive_later(buffers[i], {.cell = cell(last_cell()), .type = static_cast<int>(i)}));
      };
      if (asked_before) ask();
      barrier();
      for (std::size_t i = buffers.size(); i-- > 0;)
        send(cell(next_cell()), body_of(sizes[i], static_cast<unsigned>(i)), {.type = static_cast<int>(i)});
      if (!asked_before) ask();
      wait_all(requests);
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        EXPECT_FALSE(requests[i].open());
        EXPECT_EQ(requests[i].envelope().bytes, sizes[i]);
        EXPECT_EQ(requests[i].envelope().type, static_cast<int>(i));
        EXPECT_EQ(index(requests[i].envelope().source), last_cell());
        EXPECT_TRUE(same_bytes(buffers[i], body_of(sizes[i], static_cast<unsigned>(i)))) << sizes[i];
      }
    }
  });
}

// A stream into windows of many requests that are all alike: they fill in order.
TEST_P(Requests, WindowsOfEqualReceivesFillInOrder) {
  run_on(GetParam(), [] {
    constexpr std::size_t window = 64;
    for (const std::size_t words : {std::size_t{1}, std::size_t{600}, std::size_t{9'000}}) {
      const std::size_t windows = words == 1 ? scaled(50, 10, 5) : 3;
      std::vector<std::vector<std::uint64_t>> buffers(window, std::vector<std::uint64_t>(words));
      std::uint64_t sent = 0;
      for (std::uint64_t w = 0; w < windows; ++w) {
        std::vector<Request> requests;
        for (auto& buffer : buffers) requests.push_back(receive_later(buffer, {.cell = cell(last_cell())}));
        for (std::size_t i = 0; i < window; ++i) send(cell(next_cell()), std::vector<std::uint64_t>(words, sent++));
        wait_all(requests);
        for (std::size_t i = 0; i < window; ++i) {
          EXPECT_EQ(buffers[i].front(), w * window + i);
          EXPECT_EQ(buffers[i].back(), w * window + i);
        }
      }
      barrier();
    }
  });
}

struct Numbered {
  std::uint32_t number = 0;
  std::uint32_t is_last = 0;
};

/// One cell's part in a history of sends and receives by chance.
class RandomHistory {
 public:
  explicit RandomHistory(std::uint32_t messages) : messages_(messages), random_(me() + 77) {
    for (auto& types : sent_) types.assign(types_count, 0);
  }

  void run() {
    while (lasts_ < cells_ || !has_sent_all()) {
      for (std::uint32_t n = below(8); n > 0; --n) send_one();
      while (posted_.size() < window) post(random_wish());
      const bool something_comes = has_sent_all() && lasts_ < cells_;
      if (something_comes) post({});
      switch (below(something_comes ? 3 : 2)) {
        case 0:
          test_some();
          break;
        case 1:
          cancel_one();
          break;
        default:
          wait_for_one();
      }
      std::erase_if(posted_, [](const Open& each) { return !each.request.open(); });
    }
    for (; !posted_.empty(); posted_.pop_front()) {
      Open& each = posted_.front();
      if (!each.request.cancel()) take(each.request.wait(), each.buffer, each.order);
    }
    while (probe()) {
      std::vector<std::byte> buffer(buffer_bytes);
      const Envelope envelope = receive_into(buffer);
      take(envelope, buffer, orders_++);
    }
  }

  /// Of one sender and type, an earlier receive has the earlier message, and none is lost.
  void check() const {
    std::uint64_t total = 0;
    for (const auto& [key, numbers] : got_) {
      std::uint32_t expected = 0;
      for (const auto& [order, number] : numbers)
        EXPECT_EQ(number, expected++) << "cell " << key.first << " type " << key.second;
      total += expected;
    }
    EXPECT_EQ(total, std::uint64_t{cells_} * (messages_ + 1));
  }

 private:
  static constexpr std::uint32_t types_count = 3;
  static constexpr std::size_t window = 24;
  static constexpr std::size_t buffer_bytes = 8000;
  struct Numbered {
    std::uint32_t number = 0;  // among those of its sender and type
    std::uint32_t is_last = 0;
  };
  struct Open {
    Request request;
    std::vector<std::byte> buffer;
    std::uint64_t order;
  };

  [[nodiscard]] std::uint32_t below(std::uint64_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
  [[nodiscard]] bool has_sent_all() const { return sends_ == cells_ * (messages_ + 1); }

  void send_one() {
    if (has_sent_all()) return;
    const std::uint32_t to = sends_ / (messages_ + 1);
    const bool is_last = sends_++ % (messages_ + 1) == messages_;
    const std::uint32_t type = is_last ? types_count : below(types_count);
    const Numbered value{is_last ? 0 : sent_[to][type]++, is_last};
    std::vector<std::byte> body(sizeof value + (below(4) == 0 ? below(6000) : 0));
    std::memcpy(body.data(), &value, sizeof value);
    send(cell((me() + to) % cells_), body, {.type = static_cast<int>(type)});
  }

  [[nodiscard]] From random_wish() {
    From from;
    if (below(2) == 0) from.cell = cell(below(cells_));
    if (below(2) == 0) from.task = TaskId{0};
    if (below(2) == 0) from.type = static_cast<int>(below(types_count));
    return from;
  }
  void post(From from) {
    Open& made = posted_.emplace_back();
    made.buffer.resize(buffer_bytes);
    made.order = orders_++;
    made.request = receive_later(made.buffer, from);
  }
  void take(const Envelope& envelope, std::span<const std::byte> buffer, std::uint64_t order) {
    Numbered value;
    ASSERT_GE(envelope.bytes, sizeof value);
    std::memcpy(&value, buffer.data(), sizeof value);
    lasts_ += value.is_last;
    got_[{index(envelope.source), envelope.type}][order] = value.number;
  }
  void test_some() {
    for (Open& each : posted_) {
      if (below(3) == 0 && each.request.open() && each.request.test())
        take(each.request.envelope(), each.buffer, each.order);
    }
  }
  void cancel_one() {
    Open& victim = posted_[below(posted_.size())];
    if (below(3) == 0 && !victim.request.cancel()) take(victim.request.wait(), victim.buffer, victim.order);
  }
  void wait_for_one() {
    std::vector<Request> requests;
    for (Open& each : posted_) requests.push_back(std::move(each.request));
    const auto place = wait_any(requests);
    for (std::size_t i = 0; i < posted_.size(); ++i) posted_[i].request = std::move(requests[i]);
    ASSERT_TRUE(place.has_value());
    take(posted_[*place].request.envelope(), posted_[*place].buffer, posted_[*place].order);
  }

  const std::uint32_t cells_ = this_machine::cell_count();
  const std::uint32_t messages_;  // to each cell, and a last one
  std::mt19937_64 random_;
  std::vector<std::vector<std::uint32_t>> sent_{cells_};
  std::uint32_t sends_ = 0;
  std::deque<Open> posted_;
  std::uint64_t orders_ = 0;
  /// By source and type: order of the receive, and the number that it got.
  std::map<std::pair<std::uint32_t, std::int32_t>, std::map<std::uint64_t, std::uint32_t>> got_;
  std::uint32_t lasts_ = 0;
};

// Random wishes, of which one accepts all, some are cancelled; messages small and large.
TEST_P(Requests, RandomWishesGetTheMessagesInOrderOfPosting) {
  run_on(GetParam(), [] {
    RandomHistory history(static_cast<std::uint32_t>(scaled(400, 10, 5)));
    history.run();
    history.check();
    barrier();
  });
}

TEST_P(Requests, ABlockingReceiveComesBehindThem) {
  run_on(GetParam(), [] {
    std::vector<double> first(5000);
    std::vector<double> third(5000);
    Request request = receive_later(first, {.type = 1});
    Request other = receive_later(third, {.cell = cell(last_cell()), .type = 3});
    barrier();
    for (const double value : {1.0, 2.0}) send(cell(next_cell()), std::vector<double>(5000, value), {.type = 1});
    send(cell(next_cell()), std::vector<double>(5000, 3.0), {.type = 3});
    const Message message = receive({.type = 1});
    EXPECT_EQ(message.span<double>().back(), 2.0);
    EXPECT_TRUE(request.test());
    EXPECT_EQ(first.back(), 1.0);
    EXPECT_EQ(other.wait().bytes, third.size() * sizeof(double));
    EXPECT_EQ(third.front(), 3.0);
    barrier();
  });
}

TEST_P(Requests, WaitAnyTellsOfEachOnce) {
  run_on(GetParam(), [] {
    constexpr int count = 20;
    std::array<std::int32_t, count> values{};
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i)
      requests.push_back(receive_later(std::span(&values[static_cast<std::size_t>(i)], 1), {.type = i}));
    requests.push_back(send_later(cell(next_cell()), std::array{-1}, {.type = count}));
    requests.emplace_back();  // over
    for (int i = count; i-- > 0;) send(cell(next_cell()), i * 7, {.type = i});
    std::vector<int> told(requests.size());
    while (const auto place = wait_any(requests)) ++told[*place];
    EXPECT_EQ(told.back(), 0);
    told.pop_back();
    EXPECT_TRUE(std::ranges::all_of(told, [](int times) { return times == 1; }));
    for (int i = 0; i < count; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i * 7);
    EXPECT_EQ(receive({.type = count}).as<std::int32_t>(), -1);
    barrier();
  });
}

TEST_P(Requests, WhatIsCancelledOrGoneGetsNoMessage) {
  run_on(GetParam(), [] {
    int kept = 5;
    int gone = 6;
    Request cancelled = receive_later(std::span(&kept, 1));
    {
      const Request dropped = receive_later(std::span(&gone, 1));
      Request replaced = receive_later(std::span(&gone, 1));
      replaced = Request();
    }
    EXPECT_TRUE(cancelled.open());
    EXPECT_TRUE(cancelled.cancel());
    EXPECT_FALSE(cancelled.open());
    EXPECT_FALSE(cancelled.cancel());
    barrier();
    send(cell(next_cell()), 42);
    EXPECT_EQ(receive().as<int>(), 42);
    EXPECT_EQ(kept, 5);
    EXPECT_EQ(gone, 6);
    send(cell(next_cell()), 43);
    Request come = receive_later(std::span(&kept, 1), {.cell = cell(last_cell())});
    while (!probe() && come.open()) {
      if (come.test()) break;
    }
    EXPECT_FALSE(come.cancel());
    EXPECT_EQ(kept, 43);
    barrier();
  });
}

// Tasks of one cell have requests of their own; one may wait for another's.
TEST_P(Requests, BelongToTheTaskThatBeganThem) {
  run_on(GetParam(), [] {
    constexpr std::uint32_t tasks = 4;
    std::array<int, tasks> values{};
    std::array<Request, tasks> requests;
    bool go = false;
    std::vector<Task> all;
    for (std::uint32_t i = 0; i < tasks; ++i) {
      all.push_back(spawn(
          [&, i] {
            requests[i] = receive_later(std::span(&values[i], 1), {.type = 4});
            while (!go) this_task::yield();
          },
          TaskId{100 + i}));
    }
    while (!std::ranges::all_of(requests, &Request::open)) this_task::yield();
    barrier();
    for (std::uint32_t i = 0; i < tasks; ++i)
      send(cell(next_cell()), static_cast<int>(i + 1), {.task = TaskId{100 + i}, .type = 4});
    wait_all(requests);
    for (std::uint32_t i = 0; i < tasks; ++i) EXPECT_EQ(values[i], static_cast<int>(i + 1));
    go = true;
    for (Task& task : all) task.join();
    barrier();
  });
}

// Cells compute for unequal times, so that they change processor, while halos are exchanged by requests.
TEST(RequestStress, CellsMoveWhileRequestsAreOpen) {
  for (const std::size_t words : {std::size_t{2}, std::size_t{1'500}, std::size_t{12'000}}) {
    testing_support::run_well({{12, 1}, 2}, [words] {
      const std::uint32_t cells = this_machine::cell_count();
      std::vector<std::uint64_t> from_left(words);
      std::vector<std::uint64_t> from_right(words);
      const auto rounds = scaled(words > 10'000 ? 300 : 2'000, 20, 5);
      std::uint64_t work = 1;
      for (std::uint64_t round = 0; round < rounds; ++round) {
        Request requests[] = {receive_later(from_left, {.cell = cell((me() + cells - 1) % cells), .type = 1}),
                              receive_later(from_right, {.cell = cell((me() + 1) % cells), .type = 2})};
        send(cell((me() + 1) % cells), std::vector<std::uint64_t>(words, round * cells + me()), {.type = 1});
        send(cell((me() + cells - 1) % cells), std::vector<std::uint64_t>(words, round * cells + me()), {.type = 2});
        const std::uint64_t steps = (me() < 6) == (round / 128 % 2 == 0) ? 3000 : 10;
        for (std::uint64_t i = 0; i < steps; ++i) work = work * 6364136223846793005U + i;
        if (round % 3 == 0) {
          while (const auto place = wait_any(requests)) EXPECT_LT(*place, 2U);
        } else {
          wait_all(requests);
        }
        ASSERT_EQ(from_left.back(), round * cells + (me() + cells - 1) % cells);
        ASSERT_EQ(from_right.front(), round * cells + (me() + 1) % cells);
      }
      EXPECT_NE(work, 0U);
    });
  }
}

}  // namespace
}  // namespace aplib
