// SPDX-License-Identifier: MIT
// A question about the tasks of a process that runs: its processors answer, and nobody else reads what tasks have.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "aplib/aplib.hpp"
#include "cell/matching.hpp"
#include "fed_module.hpp"
#include "new_hook.hpp"

namespace aplib {
namespace {

using testing_support::FedProcess;
using testing_support::NewHook;

/// The answers to questions about tasks.
class Answers {
 public:
  explicit Answers(FedProcess& process) : process_(process) {
    process.told = [this](NoteKind kind, std::span<const std::byte> note) {
      if (kind != NoteKind::description) return;
      ByteReader in(note.subspan(1));
      static_cast<void>(in.number<std::uint64_t>());
      const std::lock_guard lock(mutex_);
      last_ = in.text();
      by_ = std::this_thread::get_id();
      ++count_;
      changed_.notify_all();
    };
  }
  void ask() {
    ByteWriter note = begin_note(NoteKind::ask);
    note.number(++asked_);
    process_.note(note.bytes());
  }
  /// Waits for the answers to all questions so far.
  std::string await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ == asked_; });
    return last_;
  }
  [[nodiscard]] std::thread::id by() {
    const std::lock_guard lock(mutex_);
    return by_;
  }

 private:
  FedProcess& process_;
  std::uint64_t asked_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 0;
  std::string last_;
  std::thread::id by_;
};

// Whenever the asking thread allocates, it lets the program go on for a round if it can, as a thread does that loses
// its core. What it then read of tasks, requests and messages would be gone.
TEST(AskTasks, TheProgramMayGoOnMeanwhile) {
  constexpr std::uint32_t requests = 4;
  constexpr int questions = 30;
  FedProcess process;
  Answers answers(process);
  std::atomic<std::uint32_t> wanted{0};  // rounds
  std::atomic<std::uint32_t> rounds{0};
  std::atomic<bool> enough{false};
  std::uint32_t fed = 0;  // messages
  process.module.feed = [&](comm::Receiver& receiver) {
    if (fed >= wanted * requests) return false;
    comm::Label label;
    label.key = MatchKey::make(0, 0, 0, 10 + fed++ % requests);
    label.cell = 1;
    label.kind = static_cast<std::uint32_t>(FrameKind::message);
    receiver.frame(0, label, std::array<std::byte, 8>{});
    return true;
  };
  std::thread asks([&] {
    while (rounds == 0) {
      wanted = 1;
      std::this_thread::yield();
    }
    for (int i = 0; i < questions; ++i) {
      {
        const NewHook goes_on([&] {
          const std::uint32_t before = rounds;
          wanted = before + 1;
          // It cannot where the thread has what the network needs.
          for (int look = 0; look < 40 && rounds == before; ++look)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        });
        answers.ask();
      }
      EXPECT_NE(answers.await().find("cell 1 task 0: "), std::string::npos);
    }
    enough = true;
    wanted = rounds + 1;
  });
  const Report report = process.run([&] {
    while (!enough) {
      std::array<std::array<int, 2>, requests> got{};
      std::vector<Request> waits;
      for (std::uint32_t i = 0; i < requests; ++i)
        waits.push_back(receive_later(got[i], {.type = static_cast<std::int32_t>(10 + i)}));
      wait_all(waits);
      ++rounds;
      std::array<unsigned char, 200> text{};
      text.fill(0x5a);
      for (int i = 0; i < 8; ++i) send(this_cell::id(), std::span<const unsigned char>(text), {.type = 7});
      for (int i = 0; i < 8; ++i) static_cast<void>(receive({.type = 7}));
    }
  });
  asks.join();
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

// Else the note that stops the machine would wait for the processor.
TEST(AskTasks, NotesDoNotWaitForAProcessorThatComputes) {
  FedProcess process;
  Answers answers(process);
  std::atomic<bool> computes{false};
  std::atomic<bool> enough{false};
  std::string text;
  std::thread asks([&] {
    while (!computes) std::this_thread::yield();
    answers.ask();
    text = answers.await();
    EXPECT_NE(answers.by(), std::this_thread::get_id());
    enough = true;
  });
  const Report report = process.run([&] {
    computes = true;
    while (!enough) std::this_thread::yield();
  });
  asks.join();
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_EQ(text, "\n  a processor that computes: its cells cannot be looked at now");
}

}  // namespace
}  // namespace aplib
