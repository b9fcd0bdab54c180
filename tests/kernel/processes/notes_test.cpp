// SPDX-License-Identifier: MIT
// Invalid notes between processes and the overseer: each ends the run with a message, and none of it is used.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"
#include "kernel/overseer.hpp"
#include "processes.hpp"

namespace aplib {
namespace {

using testing_support::Processes;
using testing_support::ProcessesOutcome;

const CellMap two_and_two = CellMap::consecutive(std::array<std::uint32_t, 2>{2, 2});

ByteWriter start_note(Grid grid, const std::vector<std::uint32_t>& map, std::uint32_t task = 0) {
  ByteWriter note = begin_note(NoteKind::start);
  note.number(grid.nx);
  note.number(grid.ny);
  note.numbers(map);
  note.text("");
  note.number(task);
  note.number(std::uint8_t{0});  // it does not join
  note.texts({});
  return note;
}

ByteWriter end_note(std::uint32_t cell, bool whole = true) {
  ByteWriter note = begin_note(NoteKind::cell_ended);
  note.number(cell);
  note.number(std::uint64_t{1});
  for (int i = 0; i < 3; ++i) note.number(std::uint64_t{0});
  note.number(std::uint32_t{0});
  if (whole) note.numbers(std::vector<std::uint32_t>{});
  return note;
}

/// Start notes that every process must refuse.
std::vector<ByteWriter> wrong_starts() {
  const std::vector<std::uint32_t> words = two_and_two.words();
  const CellMap three = CellMap::consecutive(std::array<std::uint32_t, 3>{2, 1, 1});
  return {start_note({3, 1}, words),            // a grid with other cells
          start_note({65'536, 65'536}, words),  // their number is 0 in 32 bits
          start_note({4, 1}, three.words()),    // for other processes
          start_note({4, 1}, {2, 0, 2, 7, 2}),  // a process that does not exist
          start_note({4, 1}, {0, 1, 2, 3}),     // not a map
          start_note({4, 1}, words, task_id_max + 1)};
}

std::string failure_after(const ByteWriter& note) {
  std::string failure;
  Overseer overseer({"ws0", "ws1"}, two_and_two, true,
                    {.send = [](std::uint32_t, const std::vector<std::byte>&) {},
                     .failed = [&](int, const std::string& text) { failure = text; },
                     .over = [] {}});
  overseer.receive(1, note.bytes());
  return failure;
}

TEST(Notes, OverseerRefusesStartsThatMakeNoSense) {
  EXPECT_EQ(failure_after(start_note({4, 1}, two_and_two.words())), "");
  for (const ByteWriter& note : wrong_starts())
    EXPECT_NE(failure_after(note).find("ws1 sent a note that makes no sense"), std::string::npos);
}

TEST(Notes, OverseerRefusesTheEndOfAnothersCell) {
  EXPECT_EQ(failure_after(end_note(3)), "");
  for (const std::uint32_t cell : {1U, 4U, 5U, ~0U})
    EXPECT_NE(failure_after(end_note(cell)).find("ws1 sent a note that makes no sense"), std::string::npos) << cell;
  EXPECT_NE(failure_after(end_note(3, false)).find("makes no sense"), std::string::npos);
}

TEST(Notes, OfSeveralFailuresTheOverseerTellsTheFirst) {
  std::vector<std::string> told;
  Overseer overseer(
      {"ws0", "ws1"}, two_and_two, true,
      {.send = [](std::uint32_t, const std::vector<std::byte>&) {},
       .failed = [&](int status, const std::string& text) { told.push_back(fmt::format("{} {}", status, text)); },
       .failed_too = [&](const std::string& text) { told.push_back("too: " + text); },
       .over = [] {}});
  for (const std::uint32_t process : {1U, 0U}) {
    ByteWriter note = begin_note(NoteKind::failed);
    note.number(process + 3);
    note.text("no");
    overseer.receive(process, note.bytes());
  }
  EXPECT_EQ(told, (std::vector<std::string>{"4 ws1: no", "too: ws0: no"}));
}

/// How a machine ends when its process 1 gets this note.
std::string end_with(const ByteWriter& note) {
  Processes processes({4, 1}, {2, 2});
  processes.options.deadlock_report = false;  // all wait, perhaps before the note comes
  processes.on_go = [&] { processes.note(1, note); };
  const ProcessesOutcome outcome = processes.run([] { static_cast<void>(receive()); });
  EXPECT_EQ(outcome.status, static_cast<int>(ExitStatus::peer_lost));
  return outcome.failure();
}

TEST(Notes, ProcessRefusesStartsThatMakeNoSense) {
  for (const ByteWriter& note : wrong_starts()) {
    const std::string failure = end_with(note);
    EXPECT_NE(failure.find("a note of the launcher makes no sense: the start of a program"), std::string::npos)
        << failure;
  }
}

TEST(Notes, ProcessRefusesEndsAndStatusThatMakeNoSense) {
  ByteWriter short_end = begin_note(NoteKind::cell_ended);
  short_end.number(std::uint32_t{0});
  ByteWriter status = begin_note(NoteKind::status);
  status.number(std::uint32_t{9});
  status.number(std::uint64_t{1} << 32 | 1U);
  for (const ByteWriter& note : {short_end, end_note(99, false), end_note(4, false), status}) {
    const std::string failure = end_with(note);
    EXPECT_NE(failure.find("a note of the launcher makes no sense: "), std::string::npos) << failure;
  }
}

}  // namespace
}  // namespace aplib
