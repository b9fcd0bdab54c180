// SPDX-License-Identifier: MIT
// Thread-locals: one set per task of an instance, with every model that a shared object can use.
#include "loader/context.hpp"

#include <thread>

#include "aplib/error.hpp"
#include "loaded.hpp"

namespace aplib::loader {
namespace {

using test::Loaded;
using Results = std::vector<int>;

constexpr const char* source = R"(
  __thread int exported = 5;
  static __thread int local_a = 7, local_zero[300];
  static int target = 1000;
  static __thread int* relocated = &target;
  __thread long aligned __attribute__((aligned(128))) = 3;
  int step(int by) {
    exported += by; local_a += by; local_zero[299] += by; *relocated += by; aligned += by;
    if ((unsigned long)&aligned % 128 != 0) return -1;
    return exported + local_a + local_zero[299] + *relocated + (int)aligned;
  })";
constexpr int start = 5 + 7 + 0 + 1000 + 3;

class ThreadLocals : public Loaded, public ::testing::WithParamInterface<const char*> {};

TEST_P(ThreadLocals, AreEachCellsOwn) {
  const std::string flag = GetParam();
  if (!flag.empty() && !shop.knows({flag})) GTEST_SKIP() << "needs a compiler that knows " << flag;
  const auto program = load(source, flag.empty() ? test::Workshop::Flags{} : test::Workshop::Flags{flag});
  EXPECT_EQ(in_turns(program, "step", {1, 100}), (Results{start + 10, start + 1000}));
}

INSTANTIATE_TEST_SUITE_P(Models, ThreadLocals,
                         ::testing::Values("", "-O2", "-ftls-model=local-dynamic", "-mtls-dialect=gnu2"),
                         [](const auto& model) {
                           switch (model.index) {
                             case 0:
                               return "general_dynamic";
                             case 1:
                               return "optimised";
                             case 2:
                               return "local_dynamic";
                             default:
                               return "descriptors";
                           }
                         });

TEST_F(Loaded, ThreadLocalsOfAUsersLibraryAreEachCellsOwn) {
  shop.compile("__thread int there = 40; int* where(void) { return &there; }", {"-shared", "-Wl,-soname,libtls.so"},
               "libtls.so");
  const auto program = load(
      "extern __thread int there; int* where(void); int step(int by) { there += by; return where() == &there ? there : "
      "-1; }",
      {"-L" + shop.folder(), "-ltls", "-Wl,-rpath,$ORIGIN"});
  EXPECT_EQ(in_turns(program, "step", {1, 10}), (Results{42, 60}));
}

TEST_F(Loaded, DescriptorsKeepAllRegisters) {
  if (!shop.knows({"-mtls-dialect=gnu2"})) GTEST_SKIP() << "needs a compiler that knows -mtls-dialect=gnu2";
  // The loop's sums stay in vector registers across the access, because the compiler knows that it keeps them.
  const auto program = load(R"(
    __thread double first = 1;
    static double values[64];
    int step(int by) {
      double a = 0, b = 1, c = 2, d = 3, e = 4, f = 5;
      for (int i = 0; i < 64; ++i) { values[i] = i * by; a += values[i]; b += a; c += b; d -= c; e += d; f -= e; if (i % 16 == 3) first += 1; }
      return (int)(a + first) + (b + c + d + e + f == 0.5);
    })",
                            {"-O2", "-mtls-dialect=gnu2"});
  EXPECT_EQ(in_turns(program, "step", {1, 2}), (Results{2016 + 9, 4032 + 9}));
}

TEST_F(Loaded, ThreadLocalsOfSpawnedContextsAreTheirOwn) {
  const auto program = load(source);
  test::RecordingHost host;
  test::run_instance(test::make_instance(program, host), [](Instance& instance) {
    auto* const step = test::function_of<int(int)>(instance, "step");
    EXPECT_EQ(step(1), start + 5);
    ProgramContext* const main = current_program_context;
    ProgramContext* const child = main->ops->inherit(*main);
    current_program_context = child;
    EXPECT_EQ(step(1), start + 6) << "globals are shared by the tasks of an instance, thread-locals are not";
    child->ops->release(child);
    current_program_context = main;
    EXPECT_EQ(step(1), start + 5 + 5 + 1);
    return 0;
  });
}

TEST_F(Loaded, InitialExecOnesComeFromThePoolAndAreSwapped) {
  const auto program = load("__thread int counter = 5; int step(int by) { counter += by; return counter; }",
                            {"-ftls-model=initial-exec"});
  ASSERT_TRUE(program->images()[0].file->uses_static_tls());
  // In turn on one thread, doing by hand what a task switch does.
  test::RecordingHost host;
  const auto swap = [](ProgramContext* to) {
    ProgramContext* const from = current_program_context;
    (from != nullptr ? from : to)->ops->swap(from, to);
    current_program_context = to;
  };
  test::run_instance(test::make_instance(program, host, 0), [&](Instance& first) {
    auto* const step = test::function_of<int(int)>(first, "step");
    ProgramContext* const one = current_program_context;
    EXPECT_TRUE(one->swaps);
    EXPECT_EQ(step(1), 6);
    ProgramContext* const two = one->ops->inherit(*one);
    swap(two);
    EXPECT_EQ(step(10), 15);
    swap(one);
    EXPECT_EQ(step(1), 7);
    swap(two);
    EXPECT_EQ(step(10), 25);
    swap(one);
    two->ops->discard(two);
    return 0;
  });
}

TEST_F(Loaded, InitialExecOnesOfAnyNumberOfProgramsAreEachProgramsOwn) {
  std::vector<std::shared_ptr<const Program>> programs;  // all stay loaded
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i);
    programs.push_back(load("__thread int much[400] = {" + number +
                                "};"
                                "int step(int by) { much[399] += by; return much[0] + much[399]; }",
                            {"-ftls-model=initial-exec"}, "many" + number + ".so"));
  }
  const auto call = [](ProgramContext* context, int by) {
    context->ops->swap(nullptr, context);
    current_program_context = context;
    const int result = test::function_of<int(int)>(*static_cast<TaskContext*>(context)->instance, "step")(by);
    context->ops->swap(context, nullptr);
    return result;
  };
  test::RecordingHost host;
  test::run_instance(test::make_instance(programs[98], host, 0), [&](Instance&) {
    ProgramContext* const one = current_program_context;
    one->ops->swap(one, nullptr);
    current_program_context = nullptr;
    test::run_instance(test::make_instance(programs[99], host, 1), [&](Instance&) {
      ProgramContext* const two = current_program_context;
      two->ops->swap(two, nullptr);
      EXPECT_EQ(call(one, 100), 198);
      EXPECT_EQ(call(two, 1000), 1099);
      EXPECT_EQ(call(one, 1), 199);
      EXPECT_EQ(call(two, 1), 1100);
      two->ops->swap(nullptr, two);
      current_program_context = two;
      return 0;
    });
    one->ops->swap(nullptr, one);
    current_program_context = one;
    return 0;
  });
}

TEST_F(Loaded, BothKindsOfReferencesMeanTheSameVariable) {
  const auto program = load(R"(
    __thread int counter __attribute__((tls_model("initial-exec"))) = 5;
    int* general(void) { extern __thread int other_name; return &other_name; }
    __asm__(".globl other_name\n .type other_name, @object\n .set other_name, counter\n");
    int step(int by) { *general() += by; return counter; })");
  ASSERT_TRUE(program->images()[0].file->uses_static_tls());
  test::RecordingHost host;
  test::run_instance(test::make_instance(program, host), [](Instance& instance) {
    EXPECT_EQ(test::function_of<int(int)>(instance, "step")(2), 7);
    return 0;
  });
}

TEST_F(Loaded, TooManyInitialExecOnesAreRefusedWithTheFlag) {
  const std::string file = shop.compile("__thread char much[4000]; char* get(void) { return much; }",
                                        {"-shared", "-ftls-model=initial-exec"}, "much.so");
  try {
    Program::load(file);
    FAIL() << "4,000 bytes fit into the pool";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), Errc::exhausted);
    EXPECT_NE(text.find(file), text.npos) << text;
    EXPECT_NE(text.find("-ftls-model=global-dynamic"), text.npos) << text;
  }
}

TEST_F(Loaded, DestructorsOfThreadLocalsRunWhenTheTaskEnds) {
  const auto program = load_cpp(R"(
    static int* report;
    struct Noisy { int value = 1; ~Noisy() { *report += value; } };
    static thread_local Noisy noisy;
    extern "C" void set(int* place) { report = place; noisy.value = 7; })");
  int reported = 0;
  test::RecordingHost host;
  test::run_instance(test::make_instance(program, host), [&reported](Instance& instance) {
    test::function_of<void(int*)>(instance, "set")(&reported);
    EXPECT_EQ(reported, 0);
    return 0;
  });
  EXPECT_EQ(reported, 7);
}

}  // namespace
}  // namespace aplib::loader
