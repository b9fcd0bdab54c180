// SPDX-License-Identifier: MIT
// Notes of processes to the overseer. An input is a number of processes, then pieces of: process, two bytes of
// length, note. Whatever comes, the machine ends at most once, and with words.
#include <algorithm>
#include <optional>

#include "fuzzer.hpp"
#include "kernel/overseer.hpp"

namespace aplib::fuzz {
namespace {

/// A machine whose processes say what the input has.
class Machine {
 public:
  explicit Machine(std::uint32_t processes) : processes_(processes) {
    std::vector<std::string> names;
    for (std::uint32_t process = 0; process < processes; ++process) names.push_back("ws" + std::to_string(process));
    OverseerActions actions;
    actions.send = [this](std::uint32_t process, std::vector<std::byte> note) {
      promise(process < processes_, "notes go to processes that are there");
      promise(!note.empty(), "notes have a kind");
      stops_ += note[0] == static_cast<std::byte>(NoteKind::stop) ? 1 : 0;
    };
    actions.failed = [this](int, const std::string& text) {
      ++failed_;
      promise(!text.empty() || over_ != 0, "a failure has words");
    };
    actions.over = [this] { ++over_; };
    actions.suspect = [this](std::uint32_t process, const std::string& why) {
      promise(process < processes_ && !why.empty(), "a suspect is one of the processes, for a reason");
      suspects_.push_back(process);
    };
    overseer_.emplace(std::move(names), CellMap::consecutive(std::vector<std::uint32_t>(processes, 2)), true,
                      std::move(actions));
  }

  void hear(std::uint32_t process, std::span<const std::byte> note) {
    overseer_->receive(process, note);
    if (!suspects_.empty() && suspects_.size() % 3 == 0) overseer_->lost(suspects_.back(), "it is silent");
    promise(failed_ <= 1 && over_ <= 1 && failed_ + over_ <= 1, "a machine ends once");
    promise(stops_ <= processes_, "each process is told to stop once");
    promise(overseer_->cells().processes() == processes_, "the number of processes stays");
  }
  void ask() {
    overseer_->ask_tasks([this](const std::string& text) {
      promise(std::ranges::count(text, '\n') >= processes_, "all processes are in the answer");
    });
  }

 private:
  std::uint32_t processes_;
  std::uint32_t stops_ = 0;
  int failed_ = 0;
  int over_ = 0;
  std::vector<std::uint32_t> suspects_;
  std::optional<Overseer> overseer_;
};

void add(Input& input, std::uint8_t process, const ByteWriter& note) {
  input.push_back(std::byte{process});
  input.push_back(std::byte(note.bytes().size() & 0xff));
  input.push_back(std::byte(note.bytes().size() >> 8U));
  input.insert(input.end(), note.bytes().begin(), note.bytes().end());
}

template <class... Numbers>
ByteWriter note(NoteKind kind, Numbers... numbers) {
  ByteWriter out = begin_note(kind);
  (out.number(numbers), ...);
  return out;
}

ByteWriter with_text(ByteWriter out, std::string_view text) {
  out.text(text);
  return out;
}

ByteWriter quiet(std::uint64_t sent, std::uint64_t received, std::uint8_t host_ended) {
  return note(NoteKind::quiet, sent, received, host_ended);
}

ByteWriter start(std::uint32_t processes) {
  ByteWriter out = begin_note(NoteKind::start);
  StartNote start;
  start.grid = {processes, 2};
  start.cells = CellMap::consecutive(std::vector<std::uint32_t>(processes, 2));
  start.file = "cell.so";
  start.task = 1;
  start.arguments = {"a", ""};
  start.write(out);
  return out;
}

}  // namespace

std::vector<Input> seeds() {
  std::vector<Input> all;
  for (const std::uint8_t processes : {1, 2, 3}) {
    Input run{std::byte{processes}};
    Input deadlock = run;
    Input failure = run;
    Input words = run;
    for (std::uint8_t process = 0; process < processes; ++process) {
      const std::uint32_t cell = process * 2;
      ByteWriter ended = note(NoteKind::cell_ended, cell, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                              std::uint64_t{4}, std::uint32_t{0});
      ended.numbers(std::vector<std::uint32_t>{0});
      add(run, process, ended);
      add(words, process, note(NoteKind::status, std::uint64_t{0x100000001}));
      add(words, process, note(NoteKind::preset, std::uint32_t{1}));
      add(words, process, start(processes));
      add(deadlock, process, quiet(5, 5, process == 0 ? 0 : 1));
    }
    for (std::uint8_t process = 0; process < processes; ++process) {
      add(run, process, note(NoteKind::all_ended, std::uint64_t{0}));
      add(words, process, note(NoteKind::all_ended, std::uint64_t{processes}));
      add(deadlock, process,
          note(NoteKind::still, std::uint64_t{1}, std::uint8_t{1}, std::uint64_t{5}, std::uint64_t{5},
               std::uint8_t(process == 0 ? 0 : 1)));
    }
    for (std::uint8_t process = 0; process < processes; ++process) {
      add(deadlock, process, with_text(note(NoteKind::description, std::uint64_t{1}), "task 0 waits"));
      add(deadlock, process, with_text(note(NoteKind::description, std::uint64_t{2}), "task 0 waits"));
      add(failure, process, with_text(note(NoteKind::lost_peer, std::uint32_t{0}), "closed"));
    }
    add(failure, 0, with_text(note(NoteKind::failed, std::uint32_t{70}), "a fault"));
    all.insert(all.end(), {run, deadlock, failure, words});
  }
  return all;
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aplib;
  ByteReader in(std::as_bytes(std::span(data, size)));
  const std::uint8_t number = in.number<std::uint8_t>();
  fuzz::Machine machine(number == 0 ? 1 : (number - 1) % 4 + 1);
  for (int notes = 0; in.good() && notes < 100; ++notes) {
    const auto process = in.number<std::uint8_t>();
    const auto bytes = in.number<std::uint16_t>();
    if (!in.good()) break;
    machine.hear(process % 5, in.raw(bytes));
    if (notes == 2) machine.ask();
  }
  return 0;
}
