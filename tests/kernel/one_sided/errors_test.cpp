// SPDX-License-Identifier: MIT
// The messages of one-sided calls for wrong use, and when nothing can arrive any more.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"
#include "aplib/cellos.h"
#include "checks.hpp"
#include "machines.hpp"
#include "shared_block.hpp"

namespace aplib {
namespace {

using testing_support::cell;
using testing_support::contains;
using testing_support::error_text;
using testing_support::me;
using testing_support::run;
using testing_support::run_well;
using testing_support::Shape;
using testing_support::SharedBlock;

struct Numbers {
  std::array<std::int64_t, 4> numbers{};
  Flag flag;
};

int global_number = 0;

TEST(OneSidedErrors, BadArguments) {
  run_well(Shape{{2, 1}, 2}, [] {
    SharedBlock<Numbers> block;
    if (me() == 0) {
      std::int64_t* number = &block->numbers[1];
      EXPECT_EQ(error_text([&] { put(cell(7), 1, number); }),
                "cell 0 task 0: put: there is no cell 7; the machine has cells 0..1 (2x1)");
      std::vector<std::int64_t> heap(4);
      const std::string of_heap = error_text([&] { put(cell(1), 1, heap.data()); });
      EXPECT_PRED2(contains, of_heap, std::string("cell 0 task 0: put: the remote address 0x"));
      EXPECT_PRED2(contains, of_heap, std::string("cannot be reached: it is memory of the C library's heap"));
      EXPECT_PRED2(contains, of_heap, std::string("remote memory is a global of a program loaded by aprun"));
      EXPECT_PRED2(contains, error_text([&] { put(cell(1), 1, &global_number); }),
                   std::string("one_sided_test, whose globals all cells of this process share"));
      EXPECT_PRED2(contains, error_text([&] { put(cell(1), 1, static_cast<int*>(nullptr)); }),
                   std::string("it is NULL"));
      auto* of_other = reinterpret_cast<std::int64_t*>(reinterpret_cast<char*>(number) + SlotPlan::distance);
      EXPECT_PRED2(contains, error_text([&] { put(cell(1), 1, of_other); }),
                   std::string("lies in the memory of cell 1; give this cell's own address of the object"));
      EXPECT_PRED2(contains, error_text([&] {
                     get(cell(1), std::span(static_cast<std::int64_t*>(nullptr), SlotPlan::bytes / 8), number);
                   }),
                   std::string("get: the remote address"));
      EXPECT_PRED2(contains, error_text([&] { raise_flag(cell(1), reinterpret_cast<Flag*>(&global_number)); }),
                   std::string("raise_flag: the remote flag at 0x"));
      EXPECT_PRED2(contains, error_text([&] {
                     raise_flag(cell(1), reinterpret_cast<Flag*>(reinterpret_cast<char*>(number) + 1));
                   }),
                   std::string("is not aligned to 4 bytes; give the address of an int"));
      EXPECT_PRED2(contains, error_text([&] {
                     fetch_add(cell(1), reinterpret_cast<std::int64_t*>(reinterpret_cast<char*>(number) + 4), 1);
                   }),
                   std::string("fetch_add: the remote address"));
      EXPECT_PRED2(contains, error_text([&] {
                     put_stride(cell(1), number, number, {.count = std::size_t{1} << 60, .local = 1, .remote = 64});
                   }),
                   std::string("are more than a memory; check counts and strides"));
      EXPECT_PRED2(contains, error_text([&] { cellos_put(-1, number, 8, number, nullptr, nullptr, 0); }),
                   std::string("put: there is no cell -1"));
      EXPECT_PRED2(contains, error_text([&] { cellos_put(1, number, -8, number, nullptr, nullptr, 0); }),
                   std::string("put: size is -8"));
      EXPECT_PRED2(contains, error_text([&] { cellos_get(1, nullptr, 8, number, nullptr, nullptr); }),
                   std::string("get: the buffer is NULL"));
      EXPECT_PRED2(contains, error_text([&] { amcheck(nullptr, 1); }), std::string("amcheck: the flag is NULL"));
    }
    barrier();
  });
  EXPECT_PRED2(contains, error_text([] { put(cell(0), 1, &global_number); }),
               std::string("put: called outside a task"));
}

TEST(OneSidedErrors, HostProgramsHaveNoMemory) {
  Machine machine(testing_support::options_of(Shape{{1, 1}, 1}));
  const Report report = machine.run_host([] {
    EXPECT_PRED2(contains, error_text([] { put(cell(0), 1, &global_number); }),
                 std::string("host program task 0: put: only cells"));
    this_machine::start_cells([] {
      SharedBlock<Numbers> block;
      EXPECT_PRED2(contains, error_text([&] { put(this_machine::host_cell(), 1, &block->numbers[0]); }),
                   std::string("the host program's memory cannot be reached"));
    });
    this_machine::wait_cells();
    return 0;
  });
  EXPECT_EQ(report.exit_status, 0) << report.reason;
}

TEST(OneSidedErrors, AFlagThatNobodyRaisesIsADeadlock) {
  for (const std::uint32_t threads : {1U, 2U}) {
    const Report report = run(Shape{{2, 1}, threads}, [] {
      SharedBlock<Numbers> block;
      raise_flag(cell(1 - me()), &block->flag);
      wait_flag(block->flag, 3);
    });
    EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
    EXPECT_PRED2(contains, report.reason, std::string("cell 1 task 0: waits in wait_flag for flag 0x"));
    EXPECT_PRED2(contains, report.reason, std::string(" to reach 3, it is 1"));
  }
}

TEST(OneSidedErrors, AStoppingMachineWakesThoseWhoWait) {
  const Report report = run(Shape{{3, 1}, 2}, [] {
    SharedBlock<Numbers> block;
    barrier();
    if (me() == 2) throw std::runtime_error("enough");
    wait_flag(block->flag, 1);
  });
  EXPECT_PRED2(contains, report.reason, std::string("cell 2 task 0: uncaught exception: enough"));
}

}  // namespace
}  // namespace aplib
