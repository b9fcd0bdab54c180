// SPDX-License-Identifier: MIT
// Frames that are nearly right. A run of two processes is recorded; its frames are changed by a seed and come to one of
// the processes again. That ends, well or with a reason. APLIB_TEST_SEED=n tries other changes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/aplib.hpp"
#include "checks.hpp"
#include "ends_in_time.hpp"
#include "fed_module.hpp"
#include "machines.hpp"
#include "memory/slot.hpp"
#include "module_around.hpp"
#include "processes.hpp"

namespace aplib {
namespace {

using testing_support::cell;
using testing_support::FedProcess;
using testing_support::me;

/// A frame that came to process 1.
struct Recorded {
  comm::Label label;
  std::vector<std::byte> body;
  bool is_large = false;
  std::size_t sent_before = 0;  ///< Frames that process 1 had sent before.
  std::size_t bytes = 0;        ///< As announced, where it is large.
  bool is_whole = true;
};

/// Notes what comes to a process.
class Recorder final : public testing_support::ModuleAround {
 public:
  Recorder(std::unique_ptr<comm::Module> module, std::vector<Recorded>& frames)
      : ModuleAround(std::move(module)), frames_(frames) {}

  void send(comm::Peer to, const comm::Label& label, std::span<const std::byte> body) override {
    ++sent_;
    ModuleAround::send(to, label, body);
  }

 private:
  void frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) override {
    frames_.push_back({label, {body.begin(), body.end()}, false, sent_, body.size()});
    ModuleAround::frame(from, label, body);
  }
  std::byte* large_begin(comm::Peer from, const comm::Label& label, std::size_t bytes) override {
    return place_ = ModuleAround::large_begin(from, label, bytes);
  }
  void large_end(comm::Peer from, const comm::Label& label, std::size_t bytes, bool complete) override {
    frames_.push_back({label, {place_, place_ + bytes}, true, sent_, bytes});
    ModuleAround::large_end(from, label, bytes, complete);
  }

  std::vector<Recorded>& frames_;
  std::atomic<std::size_t> sent_{0};
  std::byte* place_ = nullptr;
};

/// Does everything that makes frames, on both cells.
void program() {
  const CellId other = cell(1 - me());
  const auto place = make_symmetric<std::int64_t[]>(64);
  barrier();
  send(other, 1, {.type = 1});
  static_cast<void>(receive({.type = 1}));
  std::vector<std::byte> large(40'000);
  send(other, std::span<const std::byte>(large), {.type = 2});
  receive_into(large, {.type = 2});
  const std::int64_t values[4] = {1, 2, 3, 4};
  put(other, values[0], place.get(), {.acknowledge = true});
  wait_acknowledged();
  put_stride(other, values, place.get() + 8, {.count = 4, .remote = 2});
  std::int64_t got = 0;
  Flag arrived;
  get(other, got, place.get(), {.arrived = &arrived});
  wait_flag(arrived, 1);
  static_cast<void>(fetch_add(other, place.get() + 32, std::int64_t{1}));
  static_cast<void>(reduce_sum(me()));
  broadcast(cell(0), large);
  status::post(1);
  barrier();
}

std::vector<Recorded> record() {
  std::vector<Recorded> frames;
  testing_support::Processes processes({2, 1}, {1, 1});
  processes.modules.push_back(processes.net.module(0));
  processes.modules.push_back(std::make_unique<Recorder>(processes.net.module(1), frames));
  const testing_support::ProcessesOutcome outcome = processes.run(program);
  EXPECT_EQ(outcome.status, 0) << outcome.failure();
  return frames;
}

class Changes {
 public:
  explicit Changes(std::uint64_t seed) : random_(seed) {}

  void apply(std::vector<Recorded>& frames) {
    for (std::uint64_t count = 1 + draw() % 3; count != 0; --count) change(frames);
  }

 private:
  std::uint64_t draw() { return random_(); }
  std::uint32_t some() {
    static constexpr std::uint32_t numbers[] = {0, 1, 2, 3, 8, 77, 0xffff, 0x1'ffff, 0x4000'0001, 0x8000'0000, ~0U};
    return numbers[draw() % std::size(numbers)];
  }
  static bool reaches_memory(std::uint32_t kind) {
    return kind >= static_cast<std::uint32_t>(FrameKind::put) && kind <= static_cast<std::uint32_t>(FrameKind::fetch);
  }
  void change(std::vector<Recorded>& frames) {
    const std::size_t at = draw() % frames.size();
    Recorded& frame = frames[at];
    // Where a program has no memory, an access ends the process, as it should.
    const bool has_address = reaches_memory(frame.label.kind);
    switch (draw() % 10) {
      case 0:
        frame.label.kind = 1 + static_cast<std::uint32_t>(draw() % 21);
        if (!has_address && reaches_memory(frame.label.kind)) frame.label.key = frame.label.task = 0;
        break;
      case 1:
        frame.label.cell = some();
        break;
      case 2:
        frame.label.extra = some();
        break;
      case 3:
        if (!has_address) frame.label.task = some();
        break;
      case 4:
        if (!has_address) frame.label.key ^= std::uint64_t{1} << draw() % 64;
        break;
      case 5:
      case 6:
        if (!has_address && !frame.body.empty()) frame.body[draw() % frame.body.size()] ^= std::byte(1 << draw() % 8);
        break;
      case 7:
        if (!has_address) frame.body.resize(draw() % (frame.body.size() + 16));
        if (frame.is_large) frame.bytes = std::max<std::size_t>(frame.body.size(), comm::Module::large_from_bytes);
        break;
      case 8:
        if (draw() % 2 == 0) {
          frames.insert(frames.begin() + static_cast<std::ptrdiff_t>(at), Recorded(frame));
        } else if (frames.size() > 1) {
          frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(at));
        }
        break;
      default:
        if (frame.is_large && draw() % 2 == 0) frame.is_whole = false;
        std::swap(frame, frames[draw() % frames.size()]);
        break;
    }
  }

  std::mt19937_64 random_;
};

/// Feeds them to process 1, each when it has sent as much as before, or waits.
Report replay(std::vector<Recorded> frames) {
  constexpr std::size_t patience = 50;  // polls
  FedProcess process;
  std::atomic<std::size_t> sent{0};
  std::atomic<bool> all_fed{false};
  std::atomic<bool> has_ended{false};
  std::size_t next = 0;
  std::size_t polls = 0;
  process.module.sent = [&](comm::Peer, const comm::Label&, std::span<const std::byte>) { ++sent; };
  process.module.feed = [&](comm::Receiver& receiver) {
    if ((next == frames.size() || sent < frames[next].sent_before) && ++polls < patience) return false;
    polls = 0;
    if (next == frames.size()) {
      all_fed = true;  // it has done what it could
      return false;
    }
    if (!receiver.wants(0)) return false;
    Recorded& frame = frames[next++];
    if (!frame.is_large) {
      receiver.frame(0, frame.label, frame.body);
      return true;
    }
    frame.body.resize(frame.bytes);
    std::byte* const place = receiver.large_begin(0, frame.label, frame.bytes);
    if (place != nullptr && frame.is_whole) {
      std::memcpy(place, frame.body.data(), frame.bytes);
      receiver.large_end(0, frame.label, frame.bytes, true);
    } else {
      if (place != nullptr) receiver.large_end(0, frame.label, frame.bytes, false);
      receiver.peer_lost(0, "it has said so");
      next = frames.size();
    }
    return true;
  };
  std::thread launcher([&] {
    while (!all_fed && !has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (has_ended) return;
    ByteWriter stop = begin_note(NoteKind::stop);
    stop.number(std::uint32_t{0});
    stop.text("");
    process.note(stop.bytes());
  });
  const Report report = process.run(program, [&] {
    has_ended = true;
    launcher.join();
  });
  return report;
}

TEST(FramesFuzz, ThoseOfARunEndItWell) {
  const Report report = replay(record());
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST(FramesFuzz, ChangedOnesEndTheRunOneWayOrTheOther) {
  const std::vector<Recorded> right = record();
  ASSERT_GT(right.size(), 10U);
  const std::uint64_t first = testing_support::test_seed();
  int refused = 0;
  for (std::uint64_t seed = first; seed < first + testing_support::scaled(400, 8, 4); ++seed) {
    const testing_support::EndsInTime guard(fmt::format("FramesFuzz with APLIB_TEST_SEED={}", seed));
    SCOPED_TRACE(fmt::format("APLIB_TEST_SEED={}", seed));
    std::vector<Recorded> frames = right;
    Changes(seed).apply(frames);
    const Report report = replay(std::move(frames));
    if (report.exit_status != 0) {
      ++refused;
      EXPECT_NE(report.reason, "");
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace aplib
