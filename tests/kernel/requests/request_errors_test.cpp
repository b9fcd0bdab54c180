// SPDX-License-Identifier: MIT
// Requests that cannot be carried out: wrong arguments, ended cells and tasks, machines that stop.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aplib/request.hpp"
#include "placements.hpp"

namespace aplib {
namespace {

using testing_support::cell;
using testing_support::me;
using testing_support::run;
using testing_support::run_well;
using testing_support::Shape;
using testing_support::shape_name;

class RequestErrors : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(, RequestErrors,
                         testing::Values(Shape{{3, 1}, 1}, Shape{{3, 1}, 2}, Shape{{3, 1}, Options::threads_per_cell}),
                         shape_name);

void expect_error(Errc code, const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST_P(RequestErrors, WrongArgumentsAreRefusedByTheCall) {
  run_well(GetParam(), [] {
    int value = 0;
    const auto ask = [&](From from) { static_cast<void>(receive_later(std::span(&value, 1), from)); };
    expect_error(Errc::bad_argument, "receive_later: there is no cell 3", [&] { ask({.cell = cell(3)}); });
    expect_error(Errc::bad_argument, "receive_later: message type -7 is out of range", [&] { ask({.type = -7}); });
    expect_error(Errc::bad_argument, "receive_later: the span is null but has 8 bytes",
                 [] { static_cast<void>(receive_later(std::span<std::byte>(static_cast<std::byte*>(nullptr), 8))); });
    expect_error(Errc::bad_argument, "send_later: there is no cell 9",
                 [&] { static_cast<void>(send_later(cell(9), std::array{1})); });
  });
  expect_error(Errc::bad_argument, "receive_later: called outside a task", [] {
    int value = 0;
    static_cast<void>(receive_later(std::span(&value, 1)));
  });
}

TEST_P(RequestErrors, AMessageThatIsTooLongIsToldWhenAllAreOver) {
  run_well(GetParam(), [] {
    if (me() == 0) {
      std::array<int, 4> small{};
      std::array<int, 4> other{};
      Request requests[] = {receive_later(small, {.type = 1}), receive_later(other, {.type = 2})};
      barrier();
      expect_error(Errc::mismatch,
                   "a message of 20 bytes from cell 1 task 0, type 1, does not fit into the buffer of "
                   "16 bytes",
                   [&] { wait_all(requests); });
      EXPECT_FALSE(requests[0].open());
      EXPECT_FALSE(requests[1].open());
      EXPECT_EQ(small, (std::array{1, 2, 3, 4}));
      EXPECT_EQ(other, (std::array{6, 7, 8, 9}));
    } else {
      barrier();
      if (me() != 1) return;
      send(cell(0), std::array{1, 2, 3, 4, 5}, {.type = 1});
      send(cell(0), std::array{6, 7, 8, 9}, {.type = 2});
    }
  });
}

TEST_P(RequestErrors, ACellThatHasEndedIsToldByTheWait) {
  run_well(GetParam(), [] {
    int value = 0;
    int other = 0;
    if (me() == 0) {
      Request from_ended = receive_later(std::span(&value, 1), {.cell = cell(1), .type = 5});
      Request from_living = receive_later(std::span(&other, 1), {.cell = cell(2)});
      expect_error(Errc::ended,
                   "wait: cell 1 has ended with status 0 and left no such message (cell 1, any task, type "
                   "5)",
                   [&] { from_ended.wait(); });
      EXPECT_FALSE(from_ended.open());
      from_ended = receive_later(std::span(&value, 1), {.cell = cell(1), .type = 5});
      expect_error(Errc::ended, "cell 1 has ended", [&] { static_cast<void>(from_ended.test()); });
      Request what_it_sent = receive_later(std::span(&value, 1), {.cell = cell(1), .type = 6});
      what_it_sent.wait();
      EXPECT_EQ(value, 11);
      send(cell(2), 1);
      from_living.wait();
      EXPECT_EQ(other, 12);
    } else if (me() == 1) {
      send(cell(0), 11, {.type = 6});
    } else {
      EXPECT_EQ(receive().as<int>(), 1);
      send(cell(0), 12);
    }
  });
}

// Also those whose memory goes with it.
TEST_P(RequestErrors, TheEndOfATaskClosesItsRequests) {
  run_well(GetParam(), [] {
    const auto kept = std::make_unique<Request>();
    Task task = spawn(
        [&kept] {
          std::vector<int> values(1000);
          *kept = receive_later(values);
          this_task::yield();
        },
        TaskId{50});
    task.join();
    EXPECT_TRUE(kept->open());
    barrier();
    send(cell((me() + 1) % 3), std::vector<int>(1000, 3), {.task = TaskId{50}});
    barrier();
    expect_error(Errc::failed, "the task that began this receive has ended", [&kept] { kept->wait(); });
    EXPECT_FALSE(kept->open());
  });
}

// A task waits for what another has begun, and that one ends.
TEST_P(RequestErrors, TheEndOfATaskWakesWhoWaitsForItsRequests) {
  run_well(GetParam(), [] {
    Request request;
    int value = 0;
    Task task = spawn([&] {
      request = receive_later(std::span(&value, 1));
      for (int i = 0; i < 3; ++i) this_task::yield();
    });
    while (!request.open()) this_task::yield();
    expect_error(Errc::failed, "the task that began this receive has ended", [&] { request.wait(); });
    task.join();
  });
}

TEST_P(RequestErrors, RequestsOutliveTasksAndMachines) {
  std::array<Request, 3> requests;
  std::array<int, 3> values{};
  run_well(GetParam(), [&] { requests[me()] = receive_later(std::span(&values[me()], 1)); });
  EXPECT_TRUE(requests[0].open());
  Request moved = std::move(requests[1]);
  expect_error(Errc::bad_argument, "called outside a task", [&] { moved.wait(); });
}

TEST_P(RequestErrors, AnotherCellsRequestIsRefused) {
  std::array<Request, 3> requests;
  std::array<int, 3> values{};
  run_well(GetParam(), [&] {
    requests[me()] = receive_later(std::span(&values[me()], 1));
    barrier();
    Request& other = requests[(me() + 1) % 3];
    expect_error(Errc::bad_argument, "wait: the request is another cell's", [&] { other.wait(); });
    expect_error(Errc::bad_argument, "cancel: the request is another cell's",
                 [&] { static_cast<void>(other.cancel()); });
    barrier();
  });
}

TEST_P(RequestErrors, AMachineThatStopsEndsTheWait) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    const Report report = run(GetParam(), [bytes] {
      if (me() == 2) {
        static_cast<void>(receive({.cell = cell(0)}));
        static_cast<void>(receive({.cell = cell(1)}));
        throw std::runtime_error("enough");
      }
      std::vector<std::vector<std::byte>> buffers(5, std::vector<std::byte>(bytes));
      std::vector<Request> requests;
      for (auto& buffer : buffers) requests.push_back(receive_later(buffer, {.cell = cell(1 - me())}));
      send(cell(2), 1);
      const std::vector<std::byte> body(bytes);
      while (true) {
        send(cell(1 - me()), body, {.type = 1});
        const auto place = wait_any(requests);
        if (place) requests[*place] = receive_later(buffers[*place], {.cell = cell(1 - me())});
      }
    });
    EXPECT_NE(report.reason.find("enough"), std::string::npos) << report.reason;
  }
}

TEST_P(RequestErrors, ADeadlockNamesWhatTheyWaitFor) {
  const Report report = run(GetParam(), [] {
    std::array<int, 3> values{};
    Request requests[] = {receive_later(std::span(&values[0], 1), {.cell = cell((me() + 1) % 3), .type = 7}),
                          receive_later(std::span(&values[1], 1), {.cell = cell((me() + 1) % 3), .type = 7}),
                          receive_later(std::span(&values[2], 1), {.type = 8})};
    if (me() == 0) wait_all(requests);
    if (me() == 1) static_cast<void>(wait_any(requests));
    static_cast<void>(receive({.task = TaskId{3}}));
  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
  const auto expect = [&](const std::string& text) {
    EXPECT_NE(report.reason.find(text), std::string::npos) << text << "\nin\n" << report.reason;
  };
  expect(
      "cell 0 task 0: waits in wait_all for 3 of its requests: a message from cell 1, any task, type 7; a message "
      "from any cell, any task, type 8, for ");
  expect(
      "cell 1 task 0: waits in wait_any for 1 of its requests: a message from cell 2, any task, type 7; a message "
      "from any cell, any task, type 8, for ");
  expect("cell 2 task 0: waits in receive for 1 of its requests: a message from any cell, task 3, any type, for ");
}

}  // namespace
}  // namespace aplib
