// SPDX-License-Identifier: MIT
// The base of links: it takes only allowed edges, breaks once, and reports in order, even without memory.
#include "comm/link.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace aplib::comm::test {
namespace {

using State = Link::State;

constexpr State states[] = {State::idle, State::calling, State::gathering, State::up, State::over};

class TestLink final : public Link {
 public:
  TestLink(Peer peer, LinkReports& reports) : Link(peer, reports) {}

  using Link::break_off;
  using Link::come_up;
  using Link::drop_early;
  using Link::early_bytes;
  using Link::keep_early;
  using Link::set_state;
  using Link::take_call;
  using Link::take_early;
  [[nodiscard]] State state() const { return state_locked(); }
  [[nodiscard]] bool broken() const { return broken_; }
  /// Moves along allowed edges.
  void bring_to(State state) {
    if (state == State::up) set_state(State::calling);
    if (state != State::idle) set_state(state);
  }

  int stopped = 0;
  int rung = 0;

 private:
  void stop_writing() noexcept override { ++stopped; }
  void told() noexcept override { ++rung; }
};

TEST(Link, GoesAlongItsEdgesAlone) {
  const std::string edges[] = {"idle calling", "idle gathering", "calling gathering", "calling up", "gathering up"};
  const std::string names[] = {"idle", "calling", "gathering", "up", "over"};
  for (const State from : states) {
    for (const State to : states) {
      const std::string edge = names[static_cast<int>(from)] + " " + names[static_cast<int>(to)];
      const bool is_edge = to == State::over || std::find(std::begin(edges), std::end(edges), edge) != std::end(edges);
      SCOPED_TRACE(edge);
      LinkReports reports;
      TestLink link(3, reports);
      link.bring_to(from);
      ASSERT_EQ(link.state(), from);
      EXPECT_EQ(link.set_state(to), is_edge);
      EXPECT_EQ(link.state(), is_edge ? to : from);
      if (is_edge || from == State::over) {
        EXPECT_FALSE(link.broken());
        EXPECT_FALSE(reports.any());
        continue;
      }
      EXPECT_TRUE(link.broken());
      EXPECT_EQ(link.stopped, 1);
      const LinkReports::Told told = reports.take();
      EXPECT_EQ(told.link, &link);
      EXPECT_EQ(told.lost, "internal error: its link cannot go from " + names[static_cast<int>(from)] + " to " +
                               names[static_cast<int>(to)] + "; please report this");
    }
  }
}

TEST(Link, TellsInOrderAndOnce) {
  LinkReports reports;
  TestLink first(1, reports);
  TestLink second(2, reports);
  EXPECT_EQ(reports.take().link, nullptr);
  for (TestLink* const link : {&first, &second}) {
    link->set_state(State::calling);
    EXPECT_TRUE(link->come_up());
  }
  first.break_off("gone");
  first.break_off("gone again");
  EXPECT_EQ(first.stopped, 1);
  EXPECT_EQ(first.rung, 2);
  EXPECT_FALSE(first.come_up());
  EXPECT_TRUE(reports.any());
  LinkReports::Told told = reports.take();
  EXPECT_EQ(told.link, &first);
  EXPECT_TRUE(told.up);
  EXPECT_EQ(told.lost, "gone");
  told = reports.take();
  EXPECT_EQ(told.link, &second);
  EXPECT_TRUE(told.up);
  EXPECT_FALSE(told.lost);
  EXPECT_FALSE(reports.any());
  second.break_off("gone too");
  told = reports.take();
  EXPECT_FALSE(told.up);
  EXPECT_EQ(told.lost, "gone too");
}

TEST(Link, SaysThatThereIsNoMemoryForItsWords) {
  LinkReports reports;
  TestLink link(1, reports);
  link.break_off([]() -> std::string { throw std::bad_alloc(); });
  EXPECT_EQ(reports.take().lost, "no memory here");
}

TEST(Link, OfTwoCallsThatOfTheLowerNumberCountsOnBothSides) {
  using Answer = Link::Answer;
  for (const auto& [self, other] : {std::pair<Peer, Peer>{1, 2}, {2, 1}}) {
    SCOPED_TRACE(self);
    LinkReports reports;
    TestLink idle(other, reports);
    EXPECT_EQ(idle.take_call(self), Answer::taken);
    EXPECT_EQ(idle.state(), State::gathering);
    EXPECT_EQ(idle.take_call(self), Answer::unexpected) << "a second call of theirs";
    TestLink calling(other, reports);
    calling.set_state(State::calling);
    EXPECT_EQ(calling.take_call(self), self < other ? Answer::not_now : Answer::taken);
    EXPECT_EQ(calling.state(), self < other ? State::calling : State::gathering);
    TestLink up(other, reports);
    up.bring_to(State::up);
    EXPECT_EQ(up.take_call(self), Answer::unexpected);
    EXPECT_FALSE(up.broken());
    TestLink broken(other, reports);
    broken.break_off("gone");
    EXPECT_EQ(broken.take_call(self), Answer::unexpected);
  }
}

TEST(Link, KeepsEarlyFramesInOrderAndWithoutThem) {
  LinkReports reports;
  TestLink link(1, reports);
  const std::string body = "body";
  link.keep_early({.key = 1}, std::as_bytes(std::span(body)));
  link.keep_early({.key = 2}, {});
  EXPECT_EQ(link.early_bytes(), 2 * sizeof(Label) + body.size()) << "an empty body counts";
  const auto first = link.take_early();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->label.key, 1U);
  ASSERT_EQ(first->span().size(), body.size());
  EXPECT_EQ(std::memcmp(first->span().data(), body.data(), body.size()), 0);
  EXPECT_EQ(link.early_bytes(), sizeof(Label));
  link.keep_early({.key = 3}, {});
  EXPECT_EQ(link.take_early()->label.key, 2U);
  link.drop_early();
  EXPECT_EQ(link.early_bytes(), 0U);
  EXPECT_FALSE(link.take_early());
}

}  // namespace
}  // namespace aplib::comm::test
