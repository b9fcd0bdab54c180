// SPDX-License-Identifier: MIT
// Messages to a cell's mailbox, with contexts and tags, as MPI sends them.
#include "kernel/mailbox.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "placements.hpp"

namespace aplib {
namespace {

using api::Arrived;
using api::Label;
using api::Mailbox;
using api::MailboxReceive;
using testing_support::cell;
using testing_support::me;
using testing_support::Placement;
using testing_support::placement_name;
using testing_support::placements;
using testing_support::run_on;

constexpr Mailbox mailbox{};
constexpr Mailbox receipts{TaskId{0}, api::Space::mpi_receipt};

std::span<const std::byte> bytes_of(const std::uint32_t& value) { return std::as_bytes(std::span(&value, 1)); }
std::span<std::byte> bytes_of(std::uint32_t& value) { return std::as_writable_bytes(std::span(&value, 1)); }
CellId next() { return cell((me() + 1) % this_machine::cell_count()); }
CellId last() { return cell((me() + this_machine::cell_count() - 1) % this_machine::cell_count()); }

template <std::size_t count>
RequestSet set_of(std::array<MailboxReceive, count>& receives) {
  return {receives.data(), count, [](const void* first, std::size_t i) -> Posted* {
            return const_cast<MailboxReceive*>(static_cast<const MailboxReceive*>(first)) + i;
          }};
}

class Mailboxes : public testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(, Mailboxes, testing::ValuesIn(placements()), placement_name);

TEST_P(Mailboxes, ContextsAndTagsTellMessagesApart) {
  run_on(GetParam(), [] {
    constexpr std::array labels = {Label{{}, 0, 0}, Label{{}, 0, Label::tag_max}, Label{{}, 1, 0},
                                   Label{{}, Label::context_max, Label::tag_max}};
    std::array<MailboxReceive, labels.size()> receives;
    std::array<std::uint32_t, labels.size()> values{};
    for (std::size_t i = 0; i < labels.size(); ++i)
      api::post("post", mailbox, receives[i], bytes_of(values[i]), {last(), labels[i].context, labels[i].tag});
    for (std::uint32_t i = labels.size(); i-- > 0;)
      api::send("send", mailbox, {next(), labels[i].context, labels[i].tag}, bytes_of(i));
    EXPECT_TRUE(api::wait("wait", set_of(receives), true));
    for (std::uint32_t i = 0; i < labels.size(); ++i) {
      EXPECT_TRUE(receives[i].has_received());
      EXPECT_EQ(values[i], i);
      EXPECT_EQ(receives[i].arrived().label.cell, last());
      EXPECT_EQ(receives[i].arrived().label.context, labels[i].context);
      EXPECT_EQ(receives[i].arrived().label.tag, labels[i].tag);
      EXPECT_EQ(receives[i].arrived().bytes, sizeof values[i]);
    }
    barrier();
  });
}

// Neither do they meet the messages of other spaces, which look alike.
TEST_P(Mailboxes, WildcardsKeepToTheirSpaceAndContext) {
  run_on(GetParam(), [] {
    constexpr Mailbox collective{TaskId{0}, api::Space::mpi_collective};
    std::uint32_t value = 0;
    MailboxReceive later;
    api::post("post", mailbox, later, bytes_of(value), {any_cell, 7, {}});
    send(next(), 1U, {.type = 7});
    api::send("send", collective, {next(), 7, 5}, bytes_of(std::uint32_t{2}));
    api::send("send", mailbox, {next(), 8, 5}, bytes_of(std::uint32_t{3}));
    api::send("send", mailbox, {next(), 7, 5}, bytes_of(std::uint32_t{4}));
    std::uint32_t other = 0;
    EXPECT_EQ(api::receive("receive", mailbox, bytes_of(other), {any_cell, 8, {}})->label.tag, 5U);
    EXPECT_EQ(other, 3U);
    EXPECT_EQ(api::receive("receive", collective, bytes_of(other), {any_cell, 7, {}})->label.tag, 5U);
    EXPECT_EQ(other, 2U);
    EXPECT_EQ(receive().as<std::uint32_t>(), 1U);
    const RequestSet set{&later, 1, [](const void* first, std::size_t) -> Posted* {
                           return const_cast<MailboxReceive*>(static_cast<const MailboxReceive*>(first));
                         }};
    while (!api::test("test", set, true)) continue;
    EXPECT_EQ(value, 4U);
    barrier();
  });
}

// The order of posting counts, whichever task posts.
TEST_P(Mailboxes, EveryTaskOfTheCellMayReceive) {
  run_on(GetParam(), [] {
    constexpr std::uint32_t tasks = 5;
    std::vector<std::uint32_t> got;
    std::vector<Task> all;
    for (std::uint32_t t = 0; t < tasks; ++t) {
      all.push_back(spawn([&got] {
        for (int i = 0; i < 10; ++i) {
          std::uint32_t value = 0;
          const auto arrived = api::receive("receive", mailbox, bytes_of(value), {last(), 3, {}});
          ASSERT_TRUE(arrived.has_value());
          EXPECT_EQ(value, arrived->label.tag);
          got.push_back(value);
        }
      }));
    }
    for (std::uint32_t i = 0; i < 10 * tasks; ++i) api::send("send", mailbox, {next(), 3, i}, bytes_of(i));
    for (Task& task : all) task.join();
    std::ranges::sort(got);
    EXPECT_EQ(got.size(), 10 * tasks);
    for (std::uint32_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
    barrier();
  });
}

TEST_P(Mailboxes, WhatIsProbedCanBeTakenOrCancelled) {
  run_on(GetParam(), [] {
    std::uint32_t value = 9;
    MailboxReceive cancelled;
    api::post("post", mailbox, cancelled, bytes_of(value), {any_cell, 1, {}});
    EXPECT_TRUE(api::cancel(cancelled));
    EXPECT_TRUE(cancelled.over());
    EXPECT_FALSE(cancelled.has_received());
    EXPECT_FALSE(api::cancel(cancelled));
    barrier();
    const std::vector<std::byte> body(5000, std::byte{7});
    api::send("send", mailbox, {next(), 1, 77}, body);
    std::optional<Arrived> probed;
    while (!probed) probed = api::probe("probe", mailbox, {any_cell, 1, {}});
    EXPECT_EQ(probed->label.tag, 77U);
    EXPECT_EQ(probed->bytes, body.size());
    Message message;
    const auto taken = api::take("take", mailbox, message, {last(), 1, 77});
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->bytes, body.size());
    EXPECT_EQ(std::memcmp(message.data(), body.data(), body.size()), 0);
    EXPECT_FALSE(api::probe("probe", mailbox, {any_cell, 1, {}}).has_value());
    EXPECT_EQ(value, 9U);
    barrier();
  });
}

// A receipt says that a message is matched, by whatever receive; and only then.
TEST_P(Mailboxes, ReceiptsComeWhenMessagesAreMatched) {
  run_on(GetParam(), [] {
    constexpr std::uint32_t context = 6 | Label::asks_for_receipt;
    const std::vector<std::byte> large(100'000, std::byte{5});
    const auto send_all = [&] {
      for (std::uint32_t tag = 0; tag < 6; ++tag) {
        const auto body = tag % 2 == 0 ? bytes_of(tag) : std::span<const std::byte>(large);
        api::send("send", mailbox, {next(), context, tag}, body);
      }
    };
    std::array<std::vector<std::byte>, 6> got;
    got.fill(std::vector<std::byte>(large.size()));
    for (const bool posted_before : {false, true}) {
      std::array<MailboxReceive, 2> later;
      const auto post_two = [&] {
        api::post("post", mailbox, later[0], got[0], {any_cell, 6, 0});
        api::post("post", mailbox, later[1], got[1], {last(), 6, 1});
      };
      if (posted_before) post_two();
      barrier();
      send_all();
      barrier();
      if (!posted_before) {
        EXPECT_FALSE(api::probe("probe", receipts, {any_cell, 6, {}}).has_value());
        barrier();
        post_two();
      }
      EXPECT_TRUE(api::wait("wait", set_of(later), true));
      EXPECT_TRUE(later[0].arrived().asks_for_receipt());
      EXPECT_EQ(api::receive("receive", mailbox, got[2], {last(), 6, 2})->label.tag, 2U);
      EXPECT_EQ(api::receive("receive", mailbox, got[3], {any_cell, 6, {}})->label.tag, 3U);
      Message message;
      std::optional<Arrived> taken;
      while (!taken) taken = api::take("take", mailbox, message, {any_cell, 6, 4});
      for (const std::uint32_t tag : {0U, 1U, 2U, 3U}) {
        const auto receipt = api::receive("receive", receipts, {}, {next(), 6, tag});
        EXPECT_EQ(receipt->bytes, 0U);
        EXPECT_FALSE(receipt->asks_for_receipt());
      }
      barrier();
      EXPECT_FALSE(api::probe("probe", receipts, {any_cell, 6, {}}).has_value());
      barrier();
      api::give_receipt("give", mailbox, *taken);
      EXPECT_EQ(api::receive("receive", receipts, {}, {any_cell, 6, {}})->label.tag, 4U);
      EXPECT_EQ(api::receive("receive", mailbox, got[5], {last(), 6, 5})->bytes, large.size());
      EXPECT_EQ(api::receive("receive", receipts, {}, {any_cell, 6, {}})->label.tag, 5U);
      EXPECT_EQ(got[1], large);
      EXPECT_EQ(got[5], large);
      barrier();
    }
  });
}

// The receiver waits for what comes only after the receipt of another message, which it has asked for.
TEST_P(Mailboxes, ReceiptsComeWhileTheReceiverWaitsForSomethingElse) {
  run_on(GetParam(), [] {
    for (std::uint32_t round = 0; round < 50; ++round) {
      std::uint32_t value = 0;
      MailboxReceive later;
      api::post("post", mailbox, later, bytes_of(value), {last(), 1, {}});
      api::send("send", mailbox, {next(), 1 | Label::asks_for_receipt, round}, bytes_of(round));
      std::vector<Task> other;
      other.push_back(spawn([round] {
        static_cast<void>(api::receive("receive", receipts, {}, {next(), 1, round}));
        if (round % 2 == 0) send(next(), round);
      }));
      if (round % 2 == 0) {
        EXPECT_EQ(receive().as<std::uint32_t>(), round);
      }
      other[0].join();
      barrier();
      EXPECT_TRUE(later.over());
      EXPECT_EQ(value, round);
    }
  });
}

// Who awaits a message leaves it to the next receive, in the order of all receives.
TEST_P(Mailboxes, AwaitedMessagesStay) {
  run_on(GetParam(), [] {
    const std::vector<std::byte> body(5000, std::byte{7});
    std::vector<std::byte> got(body.size());
    std::vector<std::byte> first(body.size());
    for (std::uint32_t round = 0; round < 20; ++round) {
      MailboxReceive earlier;  // it gets the first message, so that the second is awaited
      api::post("post", mailbox, earlier, first, {last(), 1, 3});
      if (round % 3 == 0) barrier();
      api::send("send", mailbox, {next(), 1, 3}, body);
      api::send("send", mailbox, {next(), 1, 3}, std::span(body).first(100 + round));
      const auto found = api::await("await", mailbox, {any_cell, 1, {}});
      ASSERT_TRUE(found.has_value());
      EXPECT_TRUE(earlier.over());
      EXPECT_EQ(found->bytes, 100 + round);
      EXPECT_EQ(found->label.cell, last());
      EXPECT_EQ(api::probe("probe", mailbox, {last(), 1, 3})->bytes, 100 + round);
      EXPECT_EQ(api::receive("receive", mailbox, got, {any_cell, 1, {}})->bytes, 100 + round);
      EXPECT_FALSE(api::probe("probe", mailbox, {any_cell, 1, {}}).has_value());
      barrier();
    }
  });
}

TEST(MailboxErrors, AreTold) {
  const auto expect_error = [](const std::string& text, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  testing_support::run_well({{2, 1}, 2}, [&] {
    std::uint32_t value = 0;
    expect_error("MPI_Send: there is no cell 2", [] { api::send("MPI_Send", mailbox, {cell(2), 0, 0}, {}); });
    expect_error("MPI_Send: context 0 or tag 268435456 is out of range", [] {
      api::send("MPI_Send", mailbox, {cell(0), 0, Label::tag_max + 1}, {});
    });
    expect_error("MPI_Recv: task 44 of this cell has ended", [&] {
      static_cast<void>(api::receive("MPI_Recv", {TaskId{44}}, bytes_of(value), {any_cell, 0, {}}));
    });
    if (me() == 0) {
      expect_error("MPI_Probe: cell 1 has ended with status 0 and left no such message (cell 1, context 4, any tag)",
                   [] {
                     static_cast<void>(api::await("MPI_Probe", mailbox, {cell(1), 4, {}}));
                   });
      expect_error("MPI_Recv: cell 1 has ended with status 0 and left no such message (cell 1, context 4, any tag)",
                   [&] {
                     static_cast<void>(api::receive("MPI_Recv", mailbox, bytes_of(value), {cell(1), 4, {}}));
                   });
    }
  });
  const Report report = testing_support::run({{2, 1}, 2}, [] {
    std::uint32_t value = 0;
    api::send("MPI_Send", mailbox, {cell(1 - me()), 5, 6}, bytes_of(value));
    static_cast<void>(api::receive("MPI_Recv", mailbox, bytes_of(value), {cell(1 - me()), 4, 6}));
  });
  EXPECT_NE(report.reason.find("cell 0 task 0: waits in MPI_Recv for a message from cell 1, context 4, tag 6, for "),
            std::string::npos)
      << report.reason;
  EXPECT_NE(report.reason.find("1 other message unread, the oldest from cell 1, context 5, tag 6, 4 bytes"),
            std::string::npos)
      << report.reason;
}

}  // namespace
}  // namespace aplib
