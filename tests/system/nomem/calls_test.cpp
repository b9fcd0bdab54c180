// SPDX-License-Identifier: MIT
// There is no memory in the middle of a call, or of what the library does between calls: an error says so, and what
// cannot fail does not.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"
#include "cell/buffer_pool.hpp"
#include "cell/condition.hpp"
#include "fed_module.hpp"
#include "kernel/condition.hpp"
#include "kernel/one_sided_network.hpp"
#include "machines.hpp"
#include "new_hook.hpp"

namespace aplib {
namespace {

using testing_support::FedProcess;
using testing_support::NoMemory;

TEST(NoMemoryForCalls, ABufferOfAnotherProcessorIsPutBackAllTheSame) {
  const std::unique_ptr<BufferPools, BufferPools::Retire> pools(new BufferPools);
  constexpr std::uint32_t count = 40;
  std::vector<BufferPool*> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    all.push_back(&pools->add());
    all.back()->set_place(i, count);
  }
  std::vector<Buffer*> buffers;
  for (std::uint32_t i = 1; i < count; ++i) buffers.push_back(all[i]->get(100));
  const NoMemory none;
  for (Buffer* buffer : buffers) all[0]->put(buffer);
  all[0]->flush();
  EXPECT_FALSE(none.failed());
}

class Never final : public Condition {
 public:
  [[nodiscard]] bool holds() const noexcept override { return false; }
  [[nodiscard]] bool is_about_memory() const noexcept override { return false; }
  [[nodiscard]] bool needs(std::uint32_t) const noexcept override { return false; }
  [[nodiscard]] std::string missing() const override { return "nothing"; }
  void let_go() noexcept override { was_let_go = true; }
  bool was_let_go = false;
};

TEST(NoMemoryForCalls, AWaitForAConditionThrows) {
  testing_support::run_well({{1, 1}, 1}, [] {
    Never never;
    const auto wait = [&] {
      const NoMemory none;
      static_cast<void>(api::wait(api::task("wait"), "wait", never));
    };
    EXPECT_THROW(wait(), std::bad_alloc);
    EXPECT_TRUE(never.was_let_go);
  });
}

TEST(NoMemoryForCalls, ACollectiveThatThrowsHasNotBegun) {
  testing_support::run_well({{2, 1}, 2}, [] {
    const auto try_it = [] {
      const NoMemory none;
      barrier();
    };
    if (testing_support::me() == 0) {
      EXPECT_THROW(try_it(), std::bad_alloc);
    }
    barrier();
    barrier();
  });
}

TEST(NoMemoryForCalls, AStatusThatCannotBeToldEndsTheMachine) {
  FedProcess process;
  std::atomic<bool> is_short{false};
  process.told = [&](NoteKind kind, std::span<const std::byte>) {
    if (kind == NoteKind::status && is_short) throw std::bad_alloc();
  };
  const Report report = process.run([&] {
    is_short = true;
    status::post(1);
    static_cast<void>(receive());
  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::program_failed));
  EXPECT_NE(report.reason.find("bad_alloc"), std::string::npos) << report.reason;
}

TEST(NoMemoryForCalls, RepliesAreTakenAllTheSame) {
  FedProcess process;
  constexpr int gets = 20;
  std::vector<std::uint64_t> asked;
  process.module.sent = [&](comm::Peer, const comm::Label& label, std::span<const std::byte> body) {
    GetRequest request{};
    if (label.kind != static_cast<std::uint32_t>(FrameKind::get) || body.size() != sizeof request) return;
    std::memcpy(&request, body.data(), sizeof request);
    asked.push_back(request.id);
  };
  std::atomic<bool> answers{false};
  bool failed = false;
  process.module.feed = [&](comm::Receiver& receiver) {
    if (!answers || asked.empty()) return false;
    comm::Label label;
    label.key = asked.back();
    label.cell = 1;
    label.kind = static_cast<std::uint32_t>(FrameKind::reply);
    asked.pop_back();
    label.task = static_cast<std::uint32_t>(gets - asked.size());
    constexpr int value = 7;
    const NoMemory none;
    receiver.frame(0, label, std::as_bytes(std::span(&value, 1)));
    failed = failed || none.failed();
    return true;
  };
  const Report report = process.run([&] {
    const auto place = make_symmetric<int>();
    std::array<int, gets> got{};
    Flag arrived;
    for (int& each : got) get(CellId{0}, each, place.get(), {.arrived = &arrived});
    answers = true;
    wait_flag(arrived, gets);
    for (const int each : got) EXPECT_EQ(each, 7);
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
  EXPECT_FALSE(failed);
}

}  // namespace
}  // namespace aplib
