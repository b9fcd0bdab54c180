// SPDX-License-Identifier: MIT
// Messages between cells: sends that never wait, receives that select, and the message that can be read again.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "support.hpp"

using namespace cellos_test;

namespace {

int receive_int(int cid, int tid, int type) {
  int value = -1;
  l_arecv(cid, tid, type);
  EXPECT_EQ(readmsg(&value, sizeof value), int(sizeof value));
  return value;
}

TEST_P(Shapes, Behaviour04_PartnersSendAMegabyteEachBeforeAnyReceives) {
  static constexpr int pieces = 16;
  static constexpr int piece_ints = 16 * 1024;
  expect_cells(GetParam(), [] {
    const int partner = (getcid() ^ 1) < getncel() ? getcid() ^ 1 : getcid();
    std::vector<int> piece(piece_ints);
    for (int p = 0; p < pieces; ++p) {
      std::fill(piece.begin(), piece.end(), getcid() * 1000 + p);
      EXPECT_EQ(l_asend(partner, 0, 0, piece.data(), piece_ints * int(sizeof(int))), 1);
      std::fill(piece.begin(), piece.end(), -1);  // the caller may reuse the buffer
    }
    for (int p = 0; p < pieces; ++p) {
      std::vector<int> got(piece_ints);
      l_arecv(partner, 0, 0);
      ASSERT_EQ(readmsg(got.data(), piece_ints * int(sizeof(int))), piece_ints * int(sizeof(int)));
      EXPECT_EQ(std::count(got.begin(), got.end(), partner * 1000 + p), piece_ints);
    }
  });
}

TEST(Behaviour05, TheBodyStaysUntilTheNextReceiveAndCanBeReadAgain) {
  expect_cells({{2, 1}, 2}, [] {
    if (getcid() == 1) {
      l_asend(0, 0, 7, "first body", 11);
      l_asend(0, 0, 8, "second", 7);
      receive_int(0, 0, 1);
      return;
    }
    const auto* body = static_cast<const char*>(l_arecv(1, 0, 7));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(body) % 16, 0U);
    EXPECT_STREQ(body, "first body");
    // Sends and other calls do not touch it.
    const std::vector<char> large(100'000, 'x');
    l_asend(0, 0, 9, large.data(), int(large.size()));
    EXPECT_NE(cprobe(), 0);
    EXPECT_GT(dgettime(), 0);
    EXPECT_STREQ(body, "first body");
    char copy[16] = {};
    EXPECT_EQ(readmsg(copy, sizeof copy), 11);
    EXPECT_STREQ(copy, "first body");
    // Too small a buffer gets what fits; the whole message can still be read.
    char part[5] = {};
    EXPECT_EQ(readmsg(part, 4), 4);
    EXPECT_STREQ(part, "firs");
    EXPECT_EQ(readmsg(nullptr, 0), 0);
    EXPECT_EQ(readmsg(copy, sizeof copy), 11);
    EXPECT_EQ(getmcid(), 1);
    EXPECT_EQ(getmtid(), 0);
    EXPECT_EQ(getmtype(), 7);
    EXPECT_EQ(getmlen(), 11);
    EXPECT_STREQ(static_cast<char*>(l_arecv(1, 0, 8)), "second");
    EXPECT_EQ(getmlen(), 7);
    EXPECT_EQ(l_arecv(0, 0, 9) != nullptr, true);
    EXPECT_EQ(getmlen(), 100'000);
    EXPECT_EQ(getmcid(), 0);
    const int done = 1;
    l_asend(1, 0, 1, &done, sizeof done);
  });
}

TEST(Behaviour05, AnEmptyMessageHasABodyAddress) {
  expect_cells({{1, 1}, 1}, [] {
    EXPECT_EQ(l_asend(0, 0, 0, nullptr, 0), 1);
    EXPECT_NE(crecv(), nullptr);
    EXPECT_EQ(getmlen(), 0);
    EXPECT_EQ(readmsg(nullptr, 0), 0);
  });
}

TEST(Behaviour07, SourcesAreTakenInTheReceiversOrder) {
  expect_cells({{5, 1}, 2}, [] {
    const int value = getcid() * 10;
    if (getcid() != 4) {
      l_asend(4, 0, 0, &value, sizeof value);
      return;
    }
    for (const int source : {2, 0, 3, 1}) EXPECT_EQ(receive_int(source, 0, 0), source * 10);
    EXPECT_EQ(cprobe(), 0);
  });
}

TEST(Behaviour07, ZeroIsAnOrdinaryTaskAndTypeAndWildcardsAreNot) {
  static_assert(ANY_TASK != 0 && ANY_TYPE != 0 && ANY_CELL != 0);
  expect_cells({{1, 1}, 1}, [] {
    for (int type = 3; type >= 0; --type) l_asend(0, 0, type, &type, sizeof type);
    EXPECT_EQ(receive_int(0, 0, 0), 0);
    EXPECT_EQ(receive_int(0, ANY_TASK, 2), 2);
    EXPECT_EQ(receive_int(0, ANY_TASK, ANY_TYPE), 3);  // the oldest
    EXPECT_EQ(receive_int(ANY_CELL, ANY_TASK, ANY_TYPE), 1);
    EXPECT_EQ(cprobe(), 0);
  });
}

TEST(Behaviour11, ProbesTakeNothing) {
  expect_cells({{1, 1}, 1}, [] {
    EXPECT_EQ(cprobe(), 0);
    EXPECT_EQ(l_aqrecv(0, 0, 4), 0);
    const int value = 9;
    l_asend(0, 0, 4, &value, sizeof value);
    for (int again = 0; again < 3; ++again) {
      EXPECT_NE(cprobe(), 0);
      EXPECT_NE(l_aqrecv(0, 0, 4), 0);
      EXPECT_NE(l_aqrecv(ANY_CELL, ANY_TASK, ANY_TYPE), 0);
      EXPECT_EQ(l_aqrecv(0, 0, 5), 0);
    }
    EXPECT_EQ(receive_int(0, 0, 4), 9);
    EXPECT_EQ(cprobe(), 0);
  });
}

TEST(Behaviour11, APollingLoopLetsTheOthersOfItsThreadRun) {
  expect_cells({{3, 1}, 1}, [] {
    const int to = (getcid() + 1) % getncel();
    if (getcid() == 0) l_asend(to, 0, 0, nullptr, 0);
    while (cprobe() == 0) {
    }
    crecv();
    if (getcid() != 0) l_asend(to, 0, 0, nullptr, 0);
  });
}

TEST(Crecvs, StoresWhatFits) {
  expect_cells({{1, 1}, 1}, [] {
    l_asend(0, 0, 2, "abcdef", 6);
    char part[4] = {};
    EXPECT_EQ(crecvs(part, 3), 3);
    EXPECT_STREQ(part, "abc");
    EXPECT_EQ(getmlen(), 6);
    EXPECT_EQ(getmtype(), 2);
  });
}

TEST(Behaviour20, BytesArriveAsTheyAre) {
  struct Mixed {
    double d;
    std::int64_t i;
    char c[3];
  };
  expect_cells({{2, 1}, 2}, [] {
    Mixed mixed{};
    mixed.d = -0.1;
    mixed.i = 0x0102'0304'0506'0708;
    std::memcpy(mixed.c, "xyz", 3);
    l_asend(1 - getcid(), 0, 0, &mixed, sizeof mixed);
    const void* body = l_arecv(1 - getcid(), 0, 0);
    EXPECT_EQ(std::memcmp(body, &mixed, sizeof mixed), 0);
  });
}

// Every cell sends numbered messages of random size, type and target. Every receiver asks for them in its own random
// order of sources and types. No message is lost, and none of one sender and type is overtaken.
TEST_P(Shapes, Behaviour07And15_RandomTrafficIsCompleteAndInOrder) {
  constexpr int messages = 300;
  constexpr int types = 4;
  expect_cells(GetParam(), [seed = cellos_test::seed()] {
    const int cells = getncel();
    const auto plan = [&](int sender) {  // what `sender` sends: (target, type, bytes); every cell computes the same
      std::mt19937 random(seed * 7919 + unsigned(sender));
      std::vector<std::array<int, 3>> sends;
      for (int i = 0; i < messages; ++i) {
        const int bytes = 8 + int(random() % (random() % 8 == 0 ? 20'000 : 100));
        sends.push_back({int(random() % unsigned(cells)), int(random() % types), bytes});
      }
      return sends;
    };
    std::vector<char> body(20'200);
    const auto mine = plan(getcid());
    for (int i = 0; i < messages; ++i) {
      const auto [target, type, bytes] = mine[std::size_t(i)];
      std::memset(body.data(), (getcid() + i) & 0x7f, std::size_t(bytes));
      std::memcpy(body.data(), &i, sizeof i);
      ASSERT_EQ(l_asend(target, 0, type, body.data(), bytes), 1);
    }
    std::map<std::pair<int, int>, std::vector<int>> expected;  // (sender, type) -> numbers, in order
    for (int sender = 0; sender < cells; ++sender) {
      const auto sends = plan(sender);
      for (int i = 0; i < messages; ++i) {
        if (sends[std::size_t(i)][0] == getcid()) expected[{sender, sends[std::size_t(i)][1]}].push_back(i);
      }
    }
    std::vector<std::pair<int, int>> order;
    for (const auto& [key, numbers] : expected) order.insert(order.end(), numbers.size(), key);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed + unsigned(getcid())));
    std::map<std::pair<int, int>, std::size_t> taken;
    for (const auto& key : order) {
      const auto* got = static_cast<const char*>(l_arecv(key.first, 0, key.second));
      int number = -1;
      std::memcpy(&number, got, sizeof number);
      const int want = expected[key][taken[key]++];
      ASSERT_EQ(number, want) << "from cell " << key.first << " type " << key.second;
      const int bytes = plan(key.first)[std::size_t(number)][2];
      ASSERT_EQ(getmlen(), bytes);
      ASSERT_EQ(std::count(got + 4, got + bytes, char((key.first + number) & 0x7f)), bytes - 4);
    }
    EXPECT_EQ(cprobe(), 0);
  });
}

TEST_P(Shapes, Behaviour10_CbroadOfACellReachesAllOthers) {
  expect_cells(GetParam(), [] {
    const int mine = getcid() * 3;
    EXPECT_EQ(cbroad(0, 6, &mine, sizeof mine), 1);
    std::vector<int> count(std::size_t(getncel()), 0);
    for (int others = getncel() - 1; others > 0; --others) {
      const int value = *static_cast<int*>(crecv());
      EXPECT_EQ(value, getmcid() * 3);
      EXPECT_EQ(getmtype(), 6);
      ++count[std::size_t(getmcid())];
    }
    for (int cid = 0; cid < getncel(); ++cid) EXPECT_EQ(count[std::size_t(cid)], cid == getcid() ? 0 : 1);
    sync(0, 0);
    EXPECT_EQ(cprobe(), 0);
  });
}

TEST(Send, LRsendIsLAsend) {
  expect_cells({{2, 1}, 1}, [] {
    const int value = 40 + getcid();
    EXPECT_EQ(l_rsend(1 - getcid(), 0, 2, &value, sizeof value), 1);
    EXPECT_EQ(*static_cast<int*>(l_arecv(1 - getcid(), 0, 2)), 41 - getcid());
  });
}

INSTANTIATE_TEST_SUITE_P(Message, Shapes, several_shapes(), shape_name);

}  // namespace
