// SPDX-License-Identifier: MIT
// Messages as programs see them.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "checks.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

constexpr Shape two_on_one{{2, 1}, 1};
constexpr Shape two_on_two{{2, 1}, 2};

class Messages : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, Messages,
                         testing::Values(two_on_one, two_on_two, Shape{{3, 1}, 2}, Shape{{8, 1}, 2},
                                         Shape{{4, 1}, Options::threads_per_cell}),
                         shape_name);

constexpr std::size_t sizes[] = {0,      1,      7,       8,       39,        40,        41,       127,
                                 128,    129,    511,     512,     513,       1023,      1024,     1025,
                                 2047,   2048,   4096,    16'383,  32'767,    32'768,    32'769,   65'535,
                                 65'536, 65'537, 131'072, 200'000, 1'000'000, 1'048'576, 3'000'001};

// Every size, received in three ways, with and without waiting for the message.
TEST_P(Messages, EverySizeArrivesWhole) {
  run_well(GetParam(), [] {
    if (me() > 1) return;
    unsigned salt = 0;
    for (const std::size_t bytes : sizes) {
      for (int way = 0; way < 6; ++way) {
        ++salt;
        const std::vector<std::byte> body = body_of(bytes, salt);
        if (me() == 0) {
          if (way % 2 == 0) static_cast<void>(receive({.type = 9}));  // the receiver is about to wait
          send(cell(1), body, {.type = 5});
          if (way % 2 != 0) send(cell(1), std::span<const std::byte>{}, {.type = 8});
          continue;
        }
        if (way % 2 == 0) {
          send(cell(0), std::span<const std::byte>{}, {.type = 9});
        } else {
          static_cast<void>(receive({.type = 8}));  // the message has already arrived
        }
        const From from{.cell = cell(0), .type = 5};
        if (way < 2) {
          const Message message = receive(from);
          EXPECT_TRUE(same_bytes(message.bytes(), body)) << bytes;
          EXPECT_EQ(message.envelope().bytes, bytes);
          EXPECT_EQ(reinterpret_cast<std::uintptr_t>(message.data()) % 16, 0U);
        } else if (way < 4) {
          std::vector<std::byte> buffer(bytes + 10, std::byte{0xee});
          const Envelope envelope = receive_into(buffer, from);
          EXPECT_EQ(envelope.bytes, bytes);
          EXPECT_TRUE(same_bytes(std::span(buffer).first(bytes), body)) << bytes;
          for (std::size_t i = bytes; i < buffer.size(); ++i) EXPECT_EQ(buffer[i], std::byte{0xee}) << bytes;
        } else {
          Message message;
          receive(message, from);
          Message moved = std::move(message);
          EXPECT_TRUE(same_bytes(moved.bytes(), body)) << bytes;
          EXPECT_TRUE(message.bytes().empty());
        }
      }
    }
  });
}

// Many receives wait, with buffers and without, when large messages come, some of them too long.
TEST_P(Messages, LargeOnesReachAnyOfManyReceivesThatWait) {
  static constexpr std::uint32_t tasks = 12;
  static constexpr std::size_t bytes = 150'000;
  auto rounds = static_cast<std::uint32_t>(scaled(40, 10, 5));
  run_well(GetParam(), [rounds] {
    if (me() > 1) return;
    if (me() == 0) {
      for (std::uint32_t i = 0; i < rounds * tasks; ++i) {
        if (i % tasks == 0) static_cast<void>(receive({.type = 9}));  // so that some of them wait
        send(cell(1), body_of(bytes, i), {.task = TaskId{1 + i % tasks}, .type = 5});
      }
      return;
    }
    std::vector<Task> receivers;
    std::uint32_t ready = 0;
    for (std::uint32_t task = 0; task < tasks; ++task) {
      receivers.push_back(spawn(
          [rounds, task, &ready] {
            std::vector<std::byte> buffer(bytes + 1);
            for (std::uint32_t round = 0; round < rounds; ++round) {
              if (++ready % tasks == 0) send(cell(0), std::span<const std::byte>{}, {.type = 9});
              const std::vector<std::byte> wanted = body_of(bytes, round * tasks + task);
              std::fill(buffer.begin(), buffer.end(), std::byte{0});
              const std::span<std::byte> room = std::span(buffer).first(bytes - task % 2);
              if (task % 3 == 2) {
                const Message message = receive({.cell = cell(0), .type = 5});
                EXPECT_TRUE(same_bytes(message.bytes(), wanted)) << round;
              } else if (task % 2 != 0) {
                const std::string text = error_text([&] { receive_into(room, {.type = 5}); });
                EXPECT_NE(text.find("does not fit"), std::string::npos) << text;
              } else {
                EXPECT_EQ(receive_into(room, {.type = 5}).bytes, bytes);
                EXPECT_TRUE(same_bytes(room, wanted)) << round;
              }
              EXPECT_EQ(buffer[room.size()], std::byte{0});
            }
          },
          TaskId{1 + task}));
    }
    for (Task& receiver : receivers) receiver.join();
  });
}

// A message held beyond its machine is read and freed there: outside, in a task of another machine, or among many
// threads.
TEST(Message, OutlivesItsMachine) {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{5000}, std::size_t{200'000}}) {
    const std::vector<std::byte> body = body_of(bytes, 3);
    for (const Shape& shape : {Shape{{2, 1}, 1}, two_on_two}) {
      std::vector<Message> kept(6);
      run_well(shape, [&] {
        for (int i = 0; i < 3; ++i) send(cell(1 - me()), body);
        for (std::size_t i = 0; i < 3; ++i) kept[me() * 3 + i] = receive();
        if (me() == 0) kept[0] = Message{};  // this one is freed in time
        send(cell(1 - me()), body);          // nobody receives this one
      });
      run_well(shape, [&] { barrier(); });
      for (std::size_t i = 1; i < kept.size(); ++i) EXPECT_TRUE(same_bytes(kept[i].bytes(), body)) << bytes;
      kept[1] = Message{};
      run_well(shape, [&] {
        if (me() == 0) kept[2] = Message{};
        send(cell(1 - me()), body);
        const Message whole = receive();
        EXPECT_TRUE(same_bytes(whole.bytes(), body));
        if (me() == 1) kept[3] = Message{};
      });
      std::thread([&] { kept[4] = Message{}; }).join();
      EXPECT_TRUE(same_bytes(kept[5].bytes(), body));
    }
  }
}

// A message larger than all free buffers that a processor keeps, received in both ways; then one of another size.
TEST(Message, OfHundredsOfMegabytesArrivesWhole) {
  for (const Shape& shape : {Shape{{1, 1}, 1}, two_on_two}) {
    if (sanitized && shape.threads == 1) continue;  // their shadows of so much memory take seconds
    run_well(shape, [] {
      const std::uint32_t last = this_machine::cell_count() - 1;
      constexpr std::size_t bytes = 270'000'000;
      if (me() == 0) {
        std::vector<std::byte> body(bytes);
        body.front() = std::byte{1};
        body.back() = std::byte{2};
        send(cell(last), body, {.type = 5});
        send(cell(last), std::span(body).first(70'000), {.type = 6});
      }
      if (me() != last) return;
      const auto right = [](std::span<const std::byte> body) {
        return body.size() == bytes && body.front() == std::byte{1} && body.back() == std::byte{2};
      };
      if (last == 0) {
        const Message message = receive({.type = 5});
        EXPECT_TRUE(right(message.bytes()));
      } else {
        std::vector<std::byte> buffer(bytes);
        EXPECT_EQ(receive_into(buffer, {.type = 5}).bytes, bytes);
        EXPECT_TRUE(right(buffer));
      }
      EXPECT_EQ(receive({.type = 6}).size(), 70'000U);
    });
  }
}

TEST_P(Messages, TheEnvelopeNamesSourceTaskAndType) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      spawn([] { send(cell(1), 3.5, {.task = TaskId{4}, .type = 77}); }, TaskId{12}).join();
    } else if (me() == 1) {
      spawn(
          [] {
            const Message message = receive();
            const Envelope envelope = message.envelope();
            EXPECT_EQ(envelope.source, cell(0));
            EXPECT_EQ(envelope.source_task, TaskId{12});
            EXPECT_EQ(envelope.type, 77);
            EXPECT_EQ(envelope.bytes, sizeof(double));
            EXPECT_EQ(message.as<double>(), 3.5);
          },
          TaskId{4})
          .join();
    }
  });
}

TEST_P(Messages, SelectBySourceTaskAndTypeAndKeepTheOrder) {
  run_well(GetParam(), [] {
    const std::uint32_t cells = this_machine::cell_count();
    if (me() == 0) {
      for (std::uint32_t from = 1; from < cells; ++from) {
        EXPECT_EQ(receive({.cell = cell(from), .type = 2}).as<int>(), 20);
        EXPECT_EQ(receive({.cell = cell(from), .task = TaskId{0}, .type = 3}).as<int>(), 30);
        EXPECT_EQ(receive({.cell = cell(from)}).as<int>(), 10);
        EXPECT_EQ(receive({.cell = cell(from), .task = TaskId{1}}).as<int>(), 41);
        EXPECT_EQ(receive({.cell = cell(from)}).as<int>(), 11);
        EXPECT_EQ(receive({.cell = cell(from), .type = 2}).as<int>(), 21);
      }
      EXPECT_FALSE(probe());
      return;
    }
    send(cell(0), 10, {.type = 1});
    send(cell(0), 11, {.type = 1});
    send(cell(0), 20, {.type = 2});
    send(cell(0), 21, {.type = 2});
    send(cell(0), 30, {.type = 3});
    spawn([] { send(cell(0), 41, {.type = 1}); }, TaskId{1}).join();
  });
}

TEST_P(Messages, ACellSendsToItself) {
  run_well(GetParam(), [] {
    for (const std::size_t bytes : sizes) {
      const std::vector<std::byte> body = body_of(bytes, me());
      send(this_cell::id(), body);
      const Message own = receive({.cell = this_cell::id()});
      EXPECT_TRUE(same_bytes(own.bytes(), body));
    }
  });
}

TEST_P(Messages, WaitForATaskThatDoesNotExistYet) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      for (int i = 0; i < 10; ++i) send(cell(1), i, {.task = TaskId{30}});
      send(cell(1), 0);
    } else if (me() == 1) {
      static_cast<void>(receive());
      spawn(
          [] {
            for (int i = 0; i < 10; ++i) EXPECT_EQ(receive().as<int>(), i);
          },
          TaskId{30})
          .join();
    }
  });
}

TEST_P(Messages, ProbeSeesWithoutTakingAndStarvesNobody) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      while (!probe({.cell = cell(1), .type = 4})) {
      }
      EXPECT_TRUE(probe());
      EXPECT_FALSE(probe({.type = 5}));
      EXPECT_EQ(receive({.type = 4}).as<int>(), 44);
      EXPECT_FALSE(probe({.type = 4}));
    } else if (me() == 1) {
      this_task::yield();
      send(cell(0), 44, {.type = 4});
    }
  });
}

TEST_P(Messages, AMessageTooLongForTheBufferIsAnErrorAndConsumed) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      send(cell(1), body_of(100, 0));
      send(cell(1), body_of(300'000, 0));
      send(cell(1), 5);
    } else if (me() == 1) {
      for (const std::size_t bytes : {100, 300'000}) {
        std::vector<std::byte> buffer(bytes - 1);
        const std::string text = error_text([&] { receive_into(buffer, {.cell = cell(0)}); });
        EXPECT_NE(text.find("cell 1 task 0: receive_into"), std::string::npos) << text;
        EXPECT_NE(text.find(std::to_string(bytes)), std::string::npos) << text;
        EXPECT_NE(text.find(std::to_string(bytes - 1)), std::string::npos) << text;
      }
      EXPECT_EQ(receive().as<int>(), 5);
    }
  });
}

TEST_P(Messages, AnotherSizeThanAskedForNamesBoth) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      send(cell(1), 5);
    } else if (me() == 1) {
      const Message message = receive();
      const std::string text = error_text([&] { static_cast<void>(message.as<double>()); });
      EXPECT_NE(text.find('4'), std::string::npos) << text;
      EXPECT_NE(text.find('8'), std::string::npos) << text;
    }
  });
}

TEST(Message, ImpossibleDestinationsAreNamed) {
  run_well({{2, 2}, 2}, [] {
    if (me() != 1) return;
    EXPECT_EQ(error_text([] { send(cell(99), 1); }),
              "cell 1 task 0: send: there is no cell 99; the machine has cells 0..3 (2x2)");
    EXPECT_EQ(error_text([] { send(cell(4), 1); }),
              "cell 1 task 0: send: there is no cell 4; the machine has cells 0..3 (2x2)");
    EXPECT_NE(error_text([] { send(this_machine::host_cell(), 1); }), "(no error)");  // run() has no host program
    EXPECT_EQ(error_text([] { send(cell(0), 1, {.type = -1}); }),
              "cell 1 task 0: send: message type -1 is out of range; use 0..16777215");
    EXPECT_EQ(error_text([] { send(cell(0), 1, {.type = message_type_max + 1}); }),
              "cell 1 task 0: send: message type 16777216 is out of range; use 0..16777215");
    EXPECT_EQ(error_text([] { send(cell(0), 1, {.task = TaskId{task_id_max + 1}}); }),
              "cell 1 task 0: send: task 1048576 is out of range; use 0..1048575");
    const std::string source = error_text([] { static_cast<void>(receive({.cell = cell(99)})); });
    EXPECT_NE(source.find("cell 1 task 0: receive: there is no cell 99"), std::string::npos) << source;
    const std::string probed = error_text([] { static_cast<void>(probe({.cell = cell(99)})); });
    EXPECT_NE(probed.find("cell 1 task 0: probe: there is no cell 99"), std::string::npos) << probed;
  });
}

TEST_P(Messages, ReceiveFromAnEndedCellGivesWhatIsLeftAndThenAnError) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      send(cell(1), 7);
      send(cell(1), 8);
    } else if (me() == 1) {
      EXPECT_EQ(receive({.cell = cell(0)}).as<int>(), 7);
      EXPECT_EQ(receive({.cell = cell(0)}).as<int>(), 8);
      const std::string text = error_text([] { static_cast<void>(receive({.cell = cell(0)})); });
      EXPECT_NE(text.find("cell 1 task 0: receive: "), std::string::npos) << text;
      EXPECT_NE(text.find("cell 0 has ended"), std::string::npos) << text;
      try {
        static_cast<void>(receive({.cell = cell(0)}));
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::ended);
      }
    }
  });
}

TEST_P(Messages, MovedMessagesKeepTheirBodies) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      for (int i = 0; i < 100; ++i) send(cell(1), body_of(static_cast<std::size_t>(i) * 37, static_cast<unsigned>(i)));
    } else if (me() == 1) {
      std::vector<Message> kept;
      for (int i = 0; i < 100; ++i) kept.push_back(receive());
      for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(same_bytes(kept[static_cast<std::size_t>(i)].bytes(),
                               body_of(static_cast<std::size_t>(i) * 37, static_cast<unsigned>(i))));
      }
      kept[3] = std::move(kept[90]);
      EXPECT_TRUE(same_bytes(kept[3].bytes(), body_of(90 * 37, 90)));
      kept[5] = std::move(kept[1]);
      EXPECT_TRUE(same_bytes(kept[5].bytes(), body_of(37, 1)));
    }
  });
}

// Many tasks of a cell, each with its own conversation.
TEST_P(Messages, TasksHaveMailboxesOfTheirOwn) {
  constexpr std::uint32_t tasks = 40;
  constexpr int rounds = 25;
  run_well(GetParam(), [] {
    if (me() > 1) return;
    std::vector<Task> all;
    for (std::uint32_t t = 1; t <= tasks; ++t) {
      all.push_back(spawn(
          [t] {
            const CellId peer = cell(1 - me());
            for (int i = 0; i < rounds; ++i) {
              send(peer, static_cast<int>(t) * 1000 + i, {.task = TaskId{t}});
              const Message message = receive();
              EXPECT_EQ(message.as<int>(), static_cast<int>(t) * 1000 + i);
              EXPECT_EQ(message.envelope().source_task, TaskId{t});
            }
          },
          TaskId{t}));
    }
    for (Task& task : all) task.join();
  });
}

}  // namespace
}  // namespace aplib
