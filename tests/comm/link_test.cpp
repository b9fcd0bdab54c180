// SPDX-License-Identifier: MIT
// The base of links: it takes only allowed edges, breaks once, and reports in order, even without memory.
#include "comm/link.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <string>
#include <vector>

namespace aplib::comm::test {
namespace {

using State = Link::State;

constexpr State states[] = {State::idle, State::calling, State::gathering, State::up, State::over};

class TestLink final : public Link {
 public:
  TestLink(Peer peer, LinkReports& reports) : Link(peer, reports) {}

  using Link::begin_gathering;
  using Link::break_off;
  using Link::come_up;
  using Link::set_state;
  [[nodiscard]] State state() const { return state_; }
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

TEST(Link, TheirCallIsTakenInsteadOfOursWhereItCounts) {
  for (const bool instead : {false, true}) {
    LinkReports reports;
    TestLink idle(1, reports);
    EXPECT_TRUE(idle.begin_gathering(instead));
    TestLink calling(2, reports);
    calling.set_state(State::calling);
    EXPECT_EQ(calling.begin_gathering(instead), instead);
    TestLink up(3, reports);
    up.bring_to(State::up);
    EXPECT_FALSE(up.begin_gathering(instead));
    EXPECT_FALSE(up.broken());
    TestLink broken(4, reports);
    broken.break_off("gone");
    EXPECT_FALSE(broken.begin_gathering(instead));
  }
}

}  // namespace
}  // namespace aplib::comm::test
