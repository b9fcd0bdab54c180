// SPDX-License-Identifier: MIT
// Messages between the host program and cells.
#include <atomic>
#include <cstring>
#include <vector>

#include "support.hpp"

using namespace cellos_test;

namespace {

std::atomic<int> total;
std::atomic<int> served;

TEST_P(Shapes, Behaviour06_TheHostsServiceLoopEndsWithTheCells) {
  total = 0;
  served = 0;
  const int status = run_program(
      GetParam(),
      [](int, char**) {
        ccreat("program", 0, nullptr);
        const void* message = nullptr;
        while ((message = crecv()) != nullptr) {
          int request = 0;
          EXPECT_EQ(readmsg(&request, sizeof request), int(sizeof request));
          EXPECT_EQ(getmtype(), 3);
          const int reply = request + 1;
          EXPECT_EQ(l_asend(getmcid(), 0, 0, &reply, sizeof reply), 1);
          ++served;
        }
        EXPECT_EQ(crecv(), nullptr);  // and again
        EXPECT_EQ(crecvs(&message, sizeof message), 0);
        EXPECT_EQ(waitstable(), 0);
        return 0;
      },
      [] {
        for (int round = 0; round < 20; ++round) {
          const int request = getcid() * 100 + round;
          EXPECT_EQ(h_send(3, &request, sizeof request), 1);
          EXPECT_EQ(*static_cast<int*>(h_recv(0)), request + 1);
          EXPECT_EQ(getmcid(), gethcid());
          ++total;
        }
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(total, 20 * int(GetParam().grid.count()));
  EXPECT_EQ(served, total);
}

// Lets the other tasks that share the thread come to their end.
void give_way() {
  for (int i = 0; i < 1000; ++i) cprobe();
}

// The second task of cell 1 comes when the first one has ended and cell 0 waits for it.
TEST_P(Shapes, ACellWithoutATaskIsIdleWhileTheHostMayStartOneThere) {
  if (GetParam().grid.count() < 2) return;
  total = 0;
  const int status = run_program(
      GetParam(),
      [](int, char**) {
        ccreat("first", 0, nullptr);
        for (int i = 1; i < getncel(); ++i) crecv();  // all but cell 0 are about to end
        give_way();
        l_asend(0, 0, 0, nullptr, 0);
        crecv();  // cell 0 is about to wait
        give_way();
        ccreat("second", 5, nullptr);
        waitstable();
        return 0;
      },
      [] {
        if (cellos_gettid() == 5) {
          if (getcid() == 1) l_asend(0, 0, 7, "late", 5);
          return;
        }
        if (getcid() != 0) {
          h_send(0, nullptr, 0);
          return;
        }
        h_recv(0);
        give_way();
        h_send(0, nullptr, 0);
        EXPECT_STREQ(static_cast<char*>(l_arecv(1, 5, 7)), "late");
        ++total;
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(total, 1);
}

// The same where the cell is to take part in a collective again.
TEST(IdleCells, MeetTheOthersWhenTheyGetATask) {
  total = 0;
  const int status = run_program(
      {{3, 1}, 1},
      [](int, char**) {
        ccreat("first", 0, nullptr);
        crecv();
        ccreat("second", 1, nullptr);
        waitstable();
        return 0;
      },
      [] {
        int sum = 0;
        if (cellos_gettid() == 0 && getcid() == 2) return;
        if (cellos_gettid() == 1 && getcid() != 2) return;
        if (getcid() == 0) {
          give_way();
          h_send(0, nullptr, 0);
        }
        xy_isum(getcid(), &sum);
        EXPECT_EQ(sum, 3);
        ++total;
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(total, 3);
}

TEST(IdleCells, HaveEndedWhenTheHostProgramHas) {
  testing::internal::CaptureStderr();
  const int status = run_program(
      {{2, 1}, 1},
      [](int, char**) {
        ccreat("first", 0, nullptr);
        crecv();
        return 0;
      },
      [] {
        if (getcid() == 1) {
          l_asend(0, 0, 3, nullptr, 0);
          cell_exit(4);
        }
        give_way();
        h_send(0, nullptr, 0);
        l_arecv(1, 0, 0);
      });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 4);
  EXPECT_NE(
      said.find("cell 0 task 0: l_arecv: cell 1 has ended with status 4 and left no such message (cell 1, task 0, "
                "type 0); nothing more will come from it; 1 other message unread, the oldest from cell 1, task 0, "
                "type 3, 0 bytes"),
      std::string::npos)
      << said;
}

// While the host program may start a task there, nobody knows better than that all wait.
TEST(IdleCells, AreNamedInADeadlock) {
  testing::internal::CaptureStderr();
  const int status = run_program(
      {{2, 1}, 1},
      [](int, char**) {
        ccreat("first", 0, nullptr);
        waitstable();
        return 0;
      },
      [] {
        if (getcid() == 1) {
          xy_send(-1, 0, 2, nullptr, 0);
          cell_exit(4);
        }
        l_arecv(1, 0, 2);
      });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 4) << "a deadlock after a cell has failed has that cell's status";
  EXPECT_NE(said.find("cell 0 task 0: waits in l_arecv for a message from cell 1, task 0, type 2 (cell 1 has no task "
                      "any more; its exit status is 4), for "),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("1 other message unread, the oldest from cell 1, task 0, type 2, 0 bytes (by xy_send)"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("ended already: cell 1 (status 4)"), std::string::npos) << said;
}

// The host itself cannot start anything while it waits.
TEST(IdleCells, HaveEndedForAHostThatWaitsForThem) {
  testing::internal::CaptureStderr();
  const int status = run_program(
      {{2, 1}, 1},
      [](int, char**) {
        ccreat("first", 0, nullptr);
        l_arecv(1, 0, 0);
        return 0;
      },
      [] {
        if (getcid() == 0) l_arecv(0, 0, 0);
      });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 1);
  EXPECT_NE(said.find("host program task 0: l_arecv: cell 1 has ended"), std::string::npos) << said;
}

TEST(Behaviour06, WhatCellsSentBeforeTheyEndedIsStillReceived) {
  served = 0;
  const int status = run_program(
      {{4, 1}, 2},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        waitstable();
        while (crecv() != nullptr) ++served;
        return 0;
      },
      [] {
        for (int i = 0; i < 5; ++i) h_send(0, &i, sizeof i);
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(served, 20);
}

TEST_P(Shapes, Behaviour08_HrecvSeesTheHostsMessagesOnlyAndInOrder) {
  const int status = run_program(
      GetParam(),
      [](int, char**) {
        ccreat("program", 0, nullptr);
        for (int i = 0; i < 30; ++i) {  // broadcast and point to point, mixed
          if (i % 3 == 0) {
            EXPECT_EQ(cbroad(0, 0, &i, sizeof i), 1);
          } else {
            for (int cid = 0; cid < getncel(); ++cid) l_asend(cid, 0, 0, &i, sizeof i);
          }
        }
        const int last = 99;
        cbroad(0, 1, &last, sizeof last);
        while (crecv() != nullptr) {
        }
        return 0;
      },
      [] {
        const int noise = -5;
        for (int i = 0; i < 10; ++i) cbroad(0, 0, &noise, sizeof noise);
        sync(0, 0);  // now the other cells' messages have arrived, before some of the host's
        EXPECT_EQ(*static_cast<int*>(h_recv(1)), 99);
        for (int i = 0; i < 30; ++i) EXPECT_EQ(*static_cast<int*>(h_recv(ANY_TYPE)), i);
        for (int i = 0; i < 10 * (getncel() - 1); ++i) {
          EXPECT_EQ(*static_cast<int*>(crecv()), noise);
          EXPECT_NE(getmcid(), gethcid());
        }
        EXPECT_EQ(cprobe(), 0);
      });
  EXPECT_EQ(status, 0);
}

TEST(Behaviour09, CrecvOfACellTakesTheHostsAndTheCellsMessages) {
  const int status = run_program(
      {{3, 1}, 2},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        const int value = 7;
        cbroad(0, 0, &value, sizeof value);
        while (crecv() != nullptr) {
        }
        return 0;
      },
      [] {
        const int value = getcid();
        cbroad(0, 0, &value, sizeof value);
        int from_host = 0;
        int from_cells = 0;
        for (int i = 0; i < getncel(); ++i) {
          const int got = *static_cast<int*>(crecv());
          if (getmcid() == gethcid()) {
            ++from_host;
            EXPECT_EQ(got, 7);
          } else {
            ++from_cells;
            EXPECT_EQ(got, getmcid());
          }
        }
        EXPECT_EQ(from_host, 1);
        EXPECT_EQ(from_cells, getncel() - 1);
      });
  EXPECT_EQ(status, 0);
}

TEST(Behaviour10, CbroadOfACellDoesNotReachTheHost) {
  served = 0;
  const int status = run_program(
      {{3, 1}, 2},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        while (crecv() != nullptr) ++served;
        return 0;
      },
      [] {
        cbroad(0, 0, "x", 1);
        for (int i = 1; i < getncel(); ++i) crecv();
        h_send(0, nullptr, 0);
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(served, 3);
}

TEST(Host, LAsendToGethcidIsHSendWhateverTheTask) {
  total = 0;
  const int status = run_program(
      {{2, 1}, 1},
      [](int, char**) {
        ccreat("program", 30, nullptr);
        for (int cid = 1; cid >= 0; --cid) {
          total += *static_cast<int*>(l_arecv(cid, 30, 2));
          EXPECT_EQ(getmcid(), cid);
          EXPECT_EQ(getmtid(), 30);
          // The sender's task is ignored for the host's messages.
          l_asend(cid, 30, 4, nullptr, 0);
        }
        waitstable();
        return 0;
      },
      [] {
        const int value = 10 + getcid();
        EXPECT_EQ(l_asend(gethcid(), 30, 2, &value, sizeof value), 1);
        EXPECT_NE(l_arecv(gethcid(), 30, 4), nullptr);
      });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(total, 21);
}

TEST(Host, MessagesOfAMegabyteArriveWhole) {
  const int status = run_program(
      {{2, 1}, 2},
      [](int, char**) {
        ccreat("program", 0, nullptr);
        std::vector<char> text(1 << 20);
        for (std::size_t i = 0; i < text.size(); ++i) text[i] = char(i * 31 >> 3);
        cbroad(0, 0, text.data(), int(text.size()));
        for (int i = 0; i < 2; ++i) {
          const void* echo = crecv();
          EXPECT_EQ(getmlen(), 1 << 20);
          EXPECT_EQ(std::memcmp(echo, text.data(), text.size()), 0);
        }
        waitstable();
        return 0;
      },
      [] {
        const void* text = h_recv(0);
        h_send(0, text, getmlen());  // directly from the system's buffer
      });
  EXPECT_EQ(status, 0);
}

TEST_P(Shapes, HsyncMeetsTheHostAndGivesTheOrOfAll) {
  total = 0;
  const int status = run_program(
      GetParam(),
      [](int, char**) {
        ccreat("program", 3, nullptr);
        for (int round = 0; round < 20; ++round) EXPECT_EQ(hsync(0, round % 3 == 0), round % 2 == 0 || round % 3 == 0);
        EXPECT_EQ(total, getncel());
        hsync(1, 0);
        waitstable();
        return 0;
      },
      [] {
        for (int round = 0; round < 20; ++round) {
          const bool mine = round % 2 == 0 && getcid() == getncel() - 1;
          if (round == 19) ++total;  // before the host's last
          EXPECT_EQ(hsync(0, mine), round % 2 == 0 || round % 3 == 0);
        }
        hsync(1, 0);
      });
  EXPECT_EQ(status, 0);
}

TEST_P(Shapes, CscatterAndCgatherDealInOrderOfCids) {
  const int status = run_program(
      GetParam(),
      [](int, char**) {
        ccreat("program", 3, nullptr);
        std::vector<int> pairs(2 * std::size_t(getncel()));
        for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = int(i);
        EXPECT_EQ(cscatter(3, 5, pairs.data(), 2 * sizeof(int)), 1);
        std::vector<int> squares(pairs.size(), -1);
        EXPECT_EQ(cgather(3, 6, squares.data(), 2 * sizeof(int)), 1);
        for (std::size_t i = 0; i < pairs.size(); ++i) EXPECT_EQ(squares[i], int(i * i));
        waitstable();
        return 0;
      },
      [] {
        int pair[2];
        h_recv(5);
        EXPECT_EQ(readmsg(pair, sizeof pair), int(sizeof pair));
        EXPECT_EQ(pair[0], 2 * getcid());
        for (int& each : pair) each *= each;
        h_send(6, pair, sizeof pair);
      });
  EXPECT_EQ(status, 0);
}

TEST(Host, SeesTheCellsStatusAndPresetsIt) {
  const int status = run_program(
      {{2, 2}, 2},
      [](int, char**) {
        EXPECT_EQ(initstat(1), 1);
        EXPECT_NE(cstat(), 0);
        ccreat("program", 0, nullptr);
        waitstable();
        EXPECT_EQ(cstat(), 0);
        return 0;
      },
      [] {
        EXPECT_EQ(cstat(), 16);
        sync(0, 0);
        pstat(0);
      });
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Host, Shapes, several_shapes(), shape_name);

}  // namespace
