// SPDX-License-Identifier: MIT
// Large messages that stay in the memory of their sender until they are received.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernel/mailbox.hpp"
#include "placements.hpp"
#include "random_bytes.hpp"

namespace aplib {
namespace {

using api::Mailbox;
using api::MailboxReceive;
using testing_support::all_bytes_are;
using testing_support::cell;
using testing_support::me;
using testing_support::Placement;
using testing_support::placement_name;
using testing_support::placements;
using testing_support::run_on;
using testing_support::same_bytes;
using testing_support::Shape;

constexpr Mailbox inbox{};
constexpr std::size_t bytes_max = 300'000;

RequestSet set_of(MailboxReceive& one) {
  return {&one, 1, [](const void* first, std::size_t) -> Posted* {
            return const_cast<MailboxReceive*>(static_cast<const MailboxReceive*>(first));
          }};
}
bool wait_for(MailboxReceive& one) { return api::wait("wait", set_of(one), true); }

/// Message `number` of cell `from` to cell `to`, a slice of one random pool: both know it.
std::span<const std::byte> message_of(std::uint32_t from, std::uint32_t to, std::uint32_t number) {
  constexpr std::size_t offsets = 65536;
  static const std::vector<std::byte> pool = testing_support::random_bytes(bytes_max + offsets);
  constexpr std::array<std::size_t, 8> sizes = {
      0, 40, lend_from_bytes - 1, lend_from_bytes, lend_from_bytes + 1, 100, 65536, bytes_max};
  std::minstd_rand random(1 + from * 1000 + to * 100 + number);
  random.discard(3);
  const std::size_t offset = random() % offsets;
  return {pool.data() + offset, sizes[random() % sizes.size()]};
}
void lend_or_send(std::uint32_t to, std::uint32_t tag, std::vector<std::byte>& body, MailboxReceive& sent) {
  auto* const address = reinterpret_cast<char*>(body.data());
  if (body.size() < lend_from_bytes || !api::lend("lend", inbox, {cell(to), 0, tag}, {address}, body.size(), sent))
    api::send("send", inbox, {cell(to), 0, tag}, body);
}

/// Not over rdma: messages are lent within a process alone, and these machines end while libfabric's shm calls.
std::vector<Placement> lending_placements() {
  std::vector<Placement> all = placements();
  std::erase_if(all, [](const Placement& placement) { return !placement.provider.empty(); });
  return all;
}

class LentMessages : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(, LentMessages, testing::ValuesIn(lending_placements()), placement_name);

// Unexpected and awaited, into memory that is too short, and as a Message.
TEST_P(LentMessages, ComeWholeAndInOrderWithAllOthers) {
  run_on(GetParam(), [] {
    constexpr std::uint32_t messages = 12;
    struct Sent {
      std::vector<std::byte> body;
      MailboxReceive posted;
    };
    struct Asked {
      std::vector<std::byte> body;
      MailboxReceive posted;
    };
    const auto cells = static_cast<std::uint32_t>(this_machine::cell_count());
    std::mt19937 random(me());
    std::deque<Sent> sent;
    std::deque<Asked> asked;
    std::vector<std::uint32_t> sent_to(cells);
    std::vector<std::uint32_t> received(cells);
    std::uint32_t count = 0;
    const auto check = [&](const api::Arrived& arrived, std::span<const std::byte> got, std::size_t room) {
      const std::uint32_t from = index(arrived.label.cell);
      const std::span<const std::byte> wanted = message_of(from, me(), received[from]);
      EXPECT_EQ(arrived.label.tag, received[from]++);
      EXPECT_EQ(arrived.bytes, wanted.size());
      const std::size_t filled = std::min(room, wanted.size());
      EXPECT_TRUE(same_bytes(got.first(filled), wanted.first(filled)));
      EXPECT_TRUE(all_bytes_are(std::byte{1}, got.first(room).subspan(filled)));
      ++count;
    };
    const auto ask = [&] {
      Asked& one = asked.emplace_back();
      one.body.assign(random() % 4 == 0 ? lend_from_bytes : bytes_max, std::byte{1});
      api::post("post", inbox, one.posted, one.body, {any_cell, 0, {}});
    };
    while (sent.size() < cells * messages) {
      const std::uint32_t to = random() % cells;
      if (sent_to[to] == messages) continue;
      const std::span<const std::byte> body = message_of(me(), to, sent_to[to]);
      Sent& one = sent.emplace_back();
      one.body.assign(body.begin(), body.end());
      lend_or_send(to, sent_to[to]++, one.body, one.posted);
      if (random() % 3 == 0) ask();
      if (!sent.empty() && random() % 8 == 0) {
        MailboxReceive& old = sent[random() % sent.size()].posted;
        EXPECT_FALSE(api::cancel(old));
        EXPECT_FALSE(old.open);
      }
    }
    while (count < cells * messages) {
      if (!asked.empty()) {
        EXPECT_TRUE(wait_for(asked.front().posted));
        check(asked.front().posted.arrived(), asked.front().body, asked.front().body.size());
        asked.pop_front();
      } else if (Message message; random() % 2 == 0) {
        if (const auto arrived = api::take("take", inbox, message, {any_cell, 0, {}}))
          check(*arrived, message.bytes(), message.size());
      } else {
        std::vector<std::byte> body(bytes_max, std::byte{1});
        const auto arrived = api::receive("receive", inbox, body, {any_cell, 0, {}});
        check(*arrived, body, body.size());
      }
    }
    for (Sent& one : sent) EXPECT_TRUE(wait_for(one.posted) && one.posted.has_received());
    barrier();
  });
}

TEST_P(LentMessages, OutliveTheTaskThatSentThem) {
  run_on(GetParam(), [] {
    const auto cells = static_cast<std::uint32_t>(this_machine::cell_count());
    const std::uint32_t next = (me() + 1) % cells;
    spawn([next] {
      std::vector<std::byte> body(bytes_max, std::byte{5});
      MailboxReceive sent;
      lend_or_send(next, 0, body, sent);
      api::cancel(sent);
      std::ranges::fill(body, std::byte{6});
    }).join();
    auto body = std::make_unique<std::vector<std::byte>>(bytes_max, std::byte{7});
    auto sent = std::make_unique<MailboxReceive>();
    spawn([&] { lend_or_send(next, 1, *body, *sent); }).join();
    EXPECT_FALSE(sent->open);
    body.reset();
    sent.reset();
    barrier();
    for (const std::byte value : {std::byte{5}, std::byte{7}}) {
      std::vector<std::byte> got(bytes_max);
      EXPECT_EQ(api::receive("receive", inbox, got, {any_cell, 0, {}})->bytes, bytes_max);
      EXPECT_TRUE(all_bytes_are(value, got));
    }
    barrier();
  });
}

// As a small one would, without a word.
TEST_P(LentMessages, ToATaskThatEndsAreOver) {
  run_on(GetParam(), [] {
    const auto cells = static_cast<std::uint32_t>(this_machine::cell_count());
    std::vector<std::byte> body(bytes_max);
    std::array<MailboxReceive, 3> sent;
    if (me() != 0) {
      for (MailboxReceive& one : sent) lend_or_send(0, 0, body, one);
      for (MailboxReceive& one : sent) EXPECT_TRUE(wait_for(one));
    } else if (cells > 1) {
      std::vector<std::byte> got(bytes_max);
      static_cast<void>(api::receive("receive", inbox, got, {any_cell, 0, {}}));
    }
  });
}

TEST_P(LentMessages, OfTheApiAreCompleteWhenTheyHaveBeenReceived) {
  run_on(GetParam(), [] {
    const auto cells = static_cast<std::uint32_t>(this_machine::cell_count());
    const std::uint32_t next = (me() + 1) % cells;
    std::vector<int> body(bytes_max / sizeof(int), static_cast<int>(me()));
    { const Request dropped = send_later(cell(next), body, {.type = 1}); }
    std::ranges::fill(body, 100 + static_cast<int>(me()));
    Request request = send_later(cell(next), body, {.type = 2});
    const std::uint32_t last = (me() + cells - 1) % cells;
    std::vector<int> got(body.size());
    receive_into(got, {.cell = cell(last), .type = 2});
    EXPECT_EQ(got, std::vector<int>(body.size(), 100 + static_cast<int>(last)));
    const Envelope envelope = request.wait();
    EXPECT_EQ(envelope.source, cell(me()));
    EXPECT_EQ(envelope.type, 2);
    EXPECT_EQ(envelope.bytes, body.size() * sizeof(int));
    std::ranges::fill(body, 0);
    const Message first = receive({.type = 1});
    EXPECT_TRUE(std::ranges::equal(first.span<int>(), std::vector<int>(body.size(), static_cast<int>(last))));
    Request refused = send_later(cell(next), body, {.type = 3});
    EXPECT_FALSE(refused.cancel());
    EXPECT_TRUE(refused.test());
    EXPECT_EQ(receive({.type = 3}).size(), body.size() * sizeof(int));
    barrier();
  });
}

class LentDeadlock : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, LentDeadlock, testing::Values(Shape{{2, 1}, 1}, Shape{{2, 1}, 2}),
                         testing_support::shape_name);

TEST_P(LentDeadlock, SaysWhoDoesNotReceiveWhat) {
  const Report report = testing_support::run(GetParam(), [] {
    std::vector<std::byte> body(bytes_max);
    MailboxReceive sent;
    ASSERT_TRUE(api::lend("MPI_Send", inbox, {cell(1 - me()), 0, 7}, {reinterpret_cast<char*>(body.data())},
                          body.size(), sent));
    const struct Cancel {
      MailboxReceive& sent;
      ~Cancel() { api::cancel(sent); }
    } cancel{sent};
    static_cast<void>(api::wait("MPI_Send", set_of(sent), true));
  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
  for (const std::uint32_t c : {0U, 1U}) {
    const std::string wait = "cell " + std::to_string(c) +
                             " task 0: waits in MPI_Send for 1 of its requests: 300000 bytes to be received by cell " +
                             std::to_string(1 - c);
    EXPECT_NE(report.reason.find(wait), std::string::npos) << wait << "\nin\n" << report.reason;
  }
}

TEST_P(LentDeadlock, AMachineThatStopsReadsNoMemoryOfTasksThatUnwind) {
  std::atomic<bool> lent{false};
  const Report report = testing_support::run(GetParam(), [&lent] {
    std::vector<std::byte> body(bytes_max);
    MailboxReceive sent;
    if (me() == 0) {
      ASSERT_TRUE(api::lend("lend", inbox, {cell(1), 0, 7}, {reinterpret_cast<char*>(body.data())}, body.size(), sent));
      lent.store(true);
      const struct Cancel {
        MailboxReceive& sent;
        ~Cancel() { api::cancel(sent); }
      } cancel{sent};
      static_cast<void>(api::wait("wait", set_of(sent), true));
    } else {
      while (!lent.load()) this_task::yield();
      throw std::runtime_error("no more");
    }
  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::program_failed));
}

}  // namespace
}  // namespace aplib
