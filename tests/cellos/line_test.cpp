// SPDX-License-Identifier: MIT
// Line messages: displacements on the torus, and a separate matching space.
#include <algorithm>
#include <vector>

#include "support.hpp"

using namespace cellos_test;

namespace {

int wrap(int at, int by, int count) { return ((at + by) % count + count) % count; }

TEST_P(Shapes, LineMessagesGoRoundTheTorus) {
  expect_cells(GetParam(), [] {
    const int nx = getncelx();
    const int ny = getncely();
    for (const auto& [dx, dy] : {std::pair{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {-1, 2}, {7, -9}}) {
      const int mine = getcid();
      EXPECT_EQ(xy_send(dx, dy, 2, &mine, sizeof mine), 1);
      int got = -1;
      EXPECT_EQ(xy_recvs(-dx, -dy, 2, &got, sizeof got), int(sizeof got));
      EXPECT_EQ(got, wrap(getcidx(), -dx, nx) + wrap(getcidy(), -dy, ny) * nx);
      EXPECT_EQ(getmcid(), got);
      EXPECT_EQ(getmtype(), 2);
      EXPECT_EQ(getmlen(), int(sizeof got));
    }
  });
}

TEST_P(Shapes, RowAndColumnForms) {
  expect_cells(GetParam(), [] {
    const int nx = getncelx();
    const int ny = getncely();
    const int mine = getcid();
    int got = -1;
    x_send(1, 0, &mine, sizeof mine);
    EXPECT_EQ(x_recvs(-1, 0, &got, sizeof got), 4);
    EXPECT_EQ(got, wrap(getcidx(), -1, nx) + getcidy() * nx);
    y_send(-1, 0, &mine, sizeof mine);
    EXPECT_EQ(y_recvs(1, 0, &got, sizeof got), 4);
    EXPECT_EQ(got, getcidx() + wrap(getcidy(), 1, ny) * nx);
    x_send(1, 5, &mine, sizeof mine);
    y_send(1, 6, &mine, sizeof mine);
    xy_send(1, 1, 7, &mine, sizeof mine);
    EXPECT_EQ(*static_cast<int*>(xy_recv(-1, -1, 7)), wrap(getcidx(), -1, nx) + wrap(getcidy(), -1, ny) * nx);
    EXPECT_EQ(*static_cast<int*>(y_recv(-1, ANY_TYPE)), getcidx() + wrap(getcidy(), -1, ny) * nx);
    EXPECT_EQ(*static_cast<int*>(x_recv(-1, ANY_TYPE)), wrap(getcidx(), -1, nx) + getcidy() * nx);
    // The pointer forms leave a message that can be read again.
    EXPECT_EQ(readmsg(&got, sizeof got), 4);
    EXPECT_EQ(got, wrap(getcidx(), -1, nx) + getcidy() * nx);
  });
}

TEST(Line, OtherReceivesAndProbesDoNotSeeThem) {
  expect_cells({{1, 1}, 1}, [] {
    const int line = 1;
    const int plain = 2;
    xy_send(0, 0, 0, &line, sizeof line);
    EXPECT_EQ(cprobe(), 0);
    EXPECT_EQ(l_aqrecv(0, 0, 0), 0);
    l_asend(0, 0, 0, &plain, sizeof plain);
    EXPECT_EQ(*static_cast<int*>(crecv()), plain);
    l_asend(0, 0, 0, &plain, sizeof plain);
    int got = 0;
    xy_recvs(0, 0, 0, &got, sizeof got);
    EXPECT_EQ(got, line);
    EXPECT_EQ(*static_cast<int*>(l_arecv(0, 0, 0)), plain);
  });
}

TEST(Line, StoreWhatFits) {
  expect_cells({{1, 1}, 1}, [] {
    xy_send(0, 0, 0, "abcdef", 6);
    char part[5] = {};
    EXPECT_EQ(xy_recvs(0, 0, 0, part, 4), 4);
    EXPECT_STREQ(part, "abcd");
  });
}

// A long exchange of two sizes, as in a halo exchange: both sides send first.
TEST_P(Shapes, ExchangeOfSmallAndLargeEdges) {
  expect_cells(GetParam(), [] {
    for (const int count : {1, 300, 40'000}) {
      const double mine = getcid();
      std::vector<double> edge(std::size_t(count), mine);
      std::vector<double> got(std::size_t(count), -1.0);
      const int bytes = count * int(sizeof(double));
      for (int round = 0; round < 5; ++round) {
        for (const int side : {-1, 1}) {
          x_send(side, side + 1, edge.data(), bytes);
          y_send(side, side + 11, edge.data(), bytes);
        }
        for (const int side : {-1, 1}) {
          EXPECT_EQ(x_recvs(side, -side + 1, got.data(), bytes), bytes);
          const int x_source = wrap(getcidx(), side, getncelx()) + getcidy() * getncelx();
          EXPECT_EQ(std::count(got.begin(), got.end(), double(x_source)), count);
          EXPECT_EQ(y_recvs(side, -side + 11, got.data(), bytes), bytes);
          const int y_source = getcidx() + wrap(getcidy(), side, getncely()) * getncelx();
          EXPECT_EQ(std::count(got.begin(), got.end(), double(y_source)), count);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Line, Shapes, several_shapes(), shape_name);

}  // namespace
