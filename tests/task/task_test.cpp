// SPDX-License-Identifier: MIT
// Life of tasks: spawn, join, detach, yield, sleep, ids, exit.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/program_context.hpp"
#include "cell/processor.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr Shape one{{1, 1}, 1};

TEST(Task, RunsAtTheNextSwitchAndIsJoined) {
  run_well(one, [] {
    bool ran = false;
    Task task = spawn([&] { ran = true; });
    EXPECT_TRUE(task.joinable());
    EXPECT_FALSE(ran);
    task.join();
    EXPECT_TRUE(ran);
    EXPECT_FALSE(task.joinable());
  });
}

TEST(Task, JoinOfAnEndedTaskReturnsAtOnce) {
  run_well(one, [] {
    bool ran = false;
    Task task = spawn([&] { ran = true; });
    this_task::yield();
    EXPECT_TRUE(ran);
    task.join();
  });
}

TEST(Task, TakesMoveOnlyCallablesAndDestroysThem) {
  run_well(one, [] {
    auto value = std::make_shared<int>(7);
    const std::weak_ptr<int> watch = value;
    int seen = 0;
    Task task = spawn([value = std::move(value), only = std::make_unique<int>(1), &seen] { seen = *value + *only; });
    EXPECT_FALSE(watch.expired());
    task.join();
    EXPECT_EQ(seen, 8);
    EXPECT_TRUE(watch.expired());
  });
}

TEST(Task, CallablesAreAligned) {
  run_well(one, [] {
    struct alignas(64) Wide {
      double values[64];
    };
    Wide wide{};
    wide.values[63] = 1.5;
    double seen = 0;
    bool aligned = false;
    spawn([wide, &seen, &aligned] {
      seen = wide.values[63];
      aligned = reinterpret_cast<std::uintptr_t>(&wide) % 64 == 0;
    }).join();
    EXPECT_EQ(seen, 1.5);
    EXPECT_TRUE(aligned);
  });
}

TEST(Task, YieldGoesRoundRobin) {
  run_well(one, [] {
    std::string order;
    std::vector<Task> tasks;
    for (char name = 'a'; name <= 'c'; ++name) {
      tasks.push_back(spawn([&order, name] {
        for (int i = 0; i < 3; ++i) {
          order += name;
          this_task::yield();
        }
      }));
    }
    for (Task& task : tasks) task.join();
    EXPECT_EQ(order, "abcabcabc");
  });
}

TEST(Task, ADetachedTaskOutlivesItsHandleAndTheCellWaitsForIt) {
  bool ran = false;
  run_well(one, [&] {
    {
      const Task dropped = spawn([&] {
        for (int i = 0; i < 5; ++i) this_task::yield();
        ran = true;
      });
    }
    EXPECT_FALSE(ran);
  });
  EXPECT_TRUE(ran);
}

TEST(Task, SleepsAtLeastAsLongAsAskedAndInOrderOfDeadlines) {
  run_well(one, [] {
    std::string order;
    bool all_slept_in_time = false;  // else this thread has paused between two calls, and the deadlines are others
    while (!all_slept_in_time) {
      order.clear();
      const auto start = std::chrono::steady_clock::now();
      std::vector<Task> tasks;
      for (const int time : {3, 1, 2}) {
        tasks.push_back(spawn([&order, time, start] {
          this_task::sleep_for(time * 50ms);
          EXPECT_GE(std::chrono::steady_clock::now() - start, time * 50ms);
          order += static_cast<char>('0' + time);
        }));
      }
      this_task::yield();  // now all sleep
      all_slept_in_time = std::chrono::steady_clock::now() - start < 50ms;
      for (Task& task : tasks) task.join();
    }
    EXPECT_EQ(order, "123");
    this_task::sleep_for(0ns);
    this_task::sleep_for(-1s);
  });
}

TEST(Task, IdsCountFromOneAndCanBeChosen) {
  run_well(one, [] {
    EXPECT_EQ(this_task::id(), TaskId{0});
    TaskId inside{99};
    Task first = spawn([&] { inside = this_task::id(); });
    EXPECT_EQ(first.id(), TaskId{1});
    Task chosen = spawn([] {}, TaskId{5000});
    EXPECT_EQ(chosen.id(), TaskId{5000});
    const std::string text = error_text([] { spawn([] {}, TaskId{5000}); });
    EXPECT_NE(text.find("5000"), std::string::npos) << text;
    EXPECT_NE(text.find("cell 0 task 0: spawn"), std::string::npos) << text;
    EXPECT_NE(error_text([] { spawn([] {}, TaskId{task_id_max + 1}); }).find("cell 0 task 0: spawn"),
              std::string::npos);
    first.join();
    chosen.join();
    EXPECT_EQ(inside, TaskId{1});
  });
}

TEST(Task, JoiningWhatCannotBeJoinedIsAClearError) {
  run_well(one, [] {
    const std::string self = error_text([] { Task(this_task::id()).join(); });
    EXPECT_NE(self.find("cell 0 task 0: join"), std::string::npos) << self;
    EXPECT_NE(self.find("itself"), std::string::npos) << self;
    const std::string unknown = error_text([] { Task(TaskId{77}).join(); });
    EXPECT_NE(unknown.find("cell 0 task 0: join"), std::string::npos) << unknown;
    EXPECT_NE(unknown.find("task 77 does not exist in this cell"), std::string::npos) << unknown;
    Task task = spawn([] {});
    const TaskId id = task.id();
    task.join();
    EXPECT_NE(error_text([&] { Task(id).join(); }), "(no error)");  // twice
    EXPECT_NE(error_text([] { Task().join(); }), "(no error)");     // an empty handle
  });
}

TEST(Task, TwoCannotJoinOne) {
  run_well(one, [] {
    Task sleeper = spawn([] {
      for (int i = 0; i < 10; ++i) this_task::yield();
    });
    const TaskId id = sleeper.id();
    Task joiner = spawn([&] { sleeper.join(); });
    this_task::yield();
    const std::string text = error_text([&] { Task(id).join(); });
    EXPECT_NE(text.find("cell 0 task 0: join"), std::string::npos) << text;
    joiner.join();
  });
}

TEST(Task, ExitUnwindsTheStackAndGivesTheCellItsStatus) {
  bool unwound = false;
  bool after = false;
  const Report report = run({{2, 1}, 1}, [&] {
    if (me() != 1) return;
    struct Watch {
      bool& flag;
      ~Watch() { flag = true; }
    } watch{unwound};
    this_task::exit(9);
    after = true;
  });
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(after);
  EXPECT_EQ(report.cell_status, (std::vector<int>{0, 9}));
  EXPECT_EQ(report.exit_status, 9);
}

TEST(Task, ExitZeroIsAGoodEnd) {
  run_well({{2, 1}, 2}, [] { spawn([] { this_task::exit(0); }).join(); });
}

TEST(Task, InsideTellsTasksFromThreads) {
  EXPECT_FALSE(this_task::inside());
  run_well(one, [] { EXPECT_TRUE(this_task::inside()); });
  EXPECT_FALSE(this_task::inside());
}

TEST(Task, CallsOutsideATaskAreAClearError) {
  for (const std::string& text :
       {error_text([] { this_task::yield(); }), error_text([] { static_cast<void>(receive()); }),
        error_text([] { send(CellId{0}, 1); }), error_text([] { spawn([] {}); }), error_text([] { barrier(); }),
        error_text([] { static_cast<void>(this_cell::id()); })}) {
    EXPECT_NE(text.find("task"), std::string::npos) << text;
    EXPECT_NE(text, "(no error)");
  }
}

// The address of the next task's stack in this cell.
std::uintptr_t place_of_a_task() {
  std::uintptr_t place = 0;
  spawn([&] { place = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }, TaskId{77}).join();
  return place;
}

TEST(Task, ThatCannotBeMadeLeavesNothingBehind) {
  struct Stubborn {
    explicit Stubborn(int moves) : moves_left(moves) {}
    Stubborn(Stubborn&& other) : moves_left(other.moves_left - 1) {
      if (moves_left < 0) throw std::runtime_error("it does not move");
    }
    void operator()() const { ADD_FAILURE() << "it ran"; }
    int moves_left;
  };
  run_well(one, [] {
    const std::uintptr_t place = place_of_a_task();
    for (int moves = 0; moves < 3; ++moves) {
      for (int i = 0; i < 5; ++i) {
        try {
          spawn(Stubborn{0}, TaskId{5}).detach();
          ADD_FAILURE() << "it was made";
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "it does not move");
        }
        this_task::yield();
      }
    }
    EXPECT_EQ(place_of_a_task(), place);  // its stack is reused
    bool ran = false;
    spawn([&] { ran = true; }, TaskId{5}).join();  // and so is its id
    EXPECT_TRUE(ran);
  });
}

// A task that a loaded program spawns runs in it, and gives its context back.
TEST(Task, RunsInTheProgramThatSpawnsIt) {
  struct Program : ProgramContext {
    Program* parent = nullptr;
    int inherited = 0;
    int run = 0;
    int released = 0;
  };
  static constexpr ProgramContextOps ops{.inherit = [](ProgramContext& parent) -> ProgramContext* {
                                           auto* child = new Program;
                                           child->ops = parent.ops;
                                           child->parent = static_cast<Program*>(&parent);
                                           ++child->parent->inherited;
                                           return child;
                                         },
                                         .run =
                                             [](ProgramContext& context, void (*entry)(void*), void* state) {
                                               ++static_cast<Program&>(context).parent->run;
                                               entry(state);
                                             },
                                         .release =
                                             [](ProgramContext* context) {
                                               auto* child = static_cast<Program*>(context);
                                               ++child->parent->released;
                                               delete child;
                                             },
                                         .abandon = nullptr,
                                         .discard = nullptr,
                                         .swap = nullptr};
  run_well(one, [] {
    Program program;
    program.ops = &ops;
    TaskControl& self = *Processor::current()->running();
    self.program = &program;
    const ProgramContext* seen = nullptr;
    spawn([&] { seen = current_program_context; }).join();
    self.program = nullptr;
    EXPECT_NE(seen, nullptr);
    EXPECT_EQ(program.inherited, 1);
    EXPECT_EQ(program.run, 1);
    EXPECT_EQ(program.released, 1);
  });
}

// A task of a loaded program does not run without a context if none can be made.
TEST(Task, ThatCannotInheritItsProgramDoesNotRun) {
  run_well(one, [] {
    const std::uintptr_t place = place_of_a_task();
    static constexpr ProgramContextOps ops{
        .inherit = [](ProgramContext&) -> ProgramContext* { throw Error(Errc::exhausted, "no context"); },
        .run = nullptr,
        .release = nullptr,
        .abandon = nullptr,
        .discard = nullptr,
        .swap = nullptr};
    ProgramContext program;
    program.ops = &ops;
    TaskControl& self = *Processor::current()->running();
    self.program = &program;
    EXPECT_EQ(error_text([] { spawn([] { ADD_FAILURE() << "it ran"; }).detach(); }), "no context");
    self.program = nullptr;
    for (int i = 0; i < 3; ++i) this_task::yield();
    EXPECT_EQ(place_of_a_task(), place);
  });
}

}  // namespace
}  // namespace aplib
