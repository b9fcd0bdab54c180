// SPDX-License-Identifier: MIT
// C++ exceptions in instances: thrown, caught, across libraries, while other cells load and throw.
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <latch>
#include <stdexcept>
#include <thread>

#include "loaded.hpp"
#include "loader/elf_file.hpp"
#include "loader/known_images.hpp"
#include "memory/slot.hpp"

namespace aplib::loader {
namespace {

using test::Loaded;
using Results = std::vector<int>;

constexpr const char* thrower = R"(
  #include <stdexcept>
  #include <string>
  static int caught;
  struct Own { int value; };
  struct Guard { ~Guard() { ++caught; } };
  static void deep(int n) { Guard guard; if (n == 0) throw Own{100}; deep(n - 1); }
  extern "C" int step(int by) {
    try { deep(3); } catch (const Own& own) { caught += own.value; }
    try { throw std::runtime_error(std::to_string(by)); } catch (const std::exception& error) { caught += std::stoi(error.what()); }
    try { try { throw by; } catch (...) { throw; } } catch (int value) { caught += value; }
    return caught;
  }
  extern "C" void let_out(int value) { throw std::out_of_range(std::to_string(value)); })";

TEST_F(Loaded, ExceptionsAreThrownAndCaughtInEveryCell) {
  EXPECT_EQ(in_turns(load_cpp(thrower), "step", {1, 10}), (Results{2 * 106, 2 * 124}));
}

TEST_F(Loaded, ExceptionsCrossIntoTheLibraryThatRunsTheProgram) {
  const auto program = load_cpp(thrower);
  test::RecordingHost host;
  std::string caught;
  test::run_instance(test::make_instance(program, host), [&](Instance& instance) {
    try {
      test::function_of<void(int)>(instance, "let_out")(42);
    } catch (const std::out_of_range& error) {  // libstdc++'s type: one for all
      caught = error.what();
    }
    return 0;
  });
  EXPECT_EQ(caught, "42");
}

TEST_F(Loaded, ExceptionsCrossLibrariesOfTheUser) {
  shop.compile_cpp(R"(struct Shared { virtual ~Shared() = default; int value = 9; };
    void throw_shared() { throw Shared(); }
    void call(void (*function)()) { function(); })",
                   {"-shared", "-Wl,-soname,libthrow.so"}, "libthrow.so");
  const auto program = load_cpp(R"(
    struct Shared { virtual ~Shared() = default; int value = 9; };
    void throw_shared(); void call(void (*)());
    static int sum;
    extern "C" int step(int by) {
      try { throw_shared(); } catch (const Shared& shared) { sum += shared.value; }
      try { call([] { throw 5; }); } catch (int value) { sum += value * by; }
      return sum;
    })",
                                {"-L" + shop.folder(), "-lthrow", "-Wl,-rpath,$ORIGIN"});
  EXPECT_EQ(in_turns(program, "step", {1, 2}), (Results{28, 38}));
}

TEST_F(Loaded, CellsThrowWhileOthersThrowLoadAndUnload) {
  const auto program = load_cpp(thrower);
  constexpr int throwers = 3;
  constexpr int rounds = 300;
  std::atomic<int> wrong{0};
  std::atomic<int> running{throwers};
  std::latch started(throwers + 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < throwers; ++t) {
    threads.emplace_back([&, t] {
      test::RecordingHost host;
      test::run_instance(test::make_instance(program, host, static_cast<std::uint32_t>(t)), [&](Instance& instance) {
        auto* const step = test::function_of<int(int)>(instance, "step");
        started.arrive_and_wait();
        for (int i = 1; i <= rounds; ++i) {
          if (step(1) != 106 * i) ++wrong;
        }
        return 0;
      });
      --running;
    });
  }
  started.arrive_and_wait();
  int loaded = 0;
  while (running.load() > 0 || loaded < 10) {  // also on the throwers' cells, as a second instance there
    const test::Ran ran = [&] {
      test::RecordingHost host;
      test::Ran result;
      result.outcome =
          test::run_instance(test::make_instance(program, host, static_cast<std::uint32_t>(loaded % (throwers + 1))),
                             [](Instance& instance) { return test::function_of<int(int)>(instance, "step")(1); });
      return result;
    }();
    EXPECT_EQ(ran.outcome.status, 106);
    ++loaded;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_F(Loaded, AnAddressLeadsToItsImageUntilThatIsUnloaded) {
  const auto program = load("int step(int x) { return x; }");
  FoundImage found;
  const void* inside = nullptr;
  test::RecordingHost host;
  test::run_instance(test::make_instance(program, host), [&](Instance& instance) {
    inside = reinterpret_cast<const void*>(test::function_of<int(int)>(instance, "step"));
    EXPECT_TRUE(find_image(inside, found));
    EXPECT_EQ(found.instance, &instance);
    EXPECT_EQ(found.low, instance.images()[0].base);
    EXPECT_FALSE(find_image(found.high, found));
    return 0;
  });
  EXPECT_FALSE(find_image(inside, found));
  EXPECT_FALSE(find_image(nullptr, found));
  EXPECT_FALSE(find_image(reinterpret_cast<const void*>(&find_image), found));
  EXPECT_FALSE(find_image(reinterpret_cast<const void*>(~std::uintptr_t{0}), found));
}

// As the signal of a time slice does, whatever its thread is at. To wait for the end of the thread's own change would
// be for ever.
TEST(KnownImages, AreLookedForInTheMiddleOfAChange) {
  static std::atomic<int> looks;
  static const char* const base = reinterpret_cast<const char*>(SlotPlan::at(7));
  looks = 0;
  struct sigaction look {};
  struct sigaction before {};
  look.sa_handler = [](int) {
    FoundImage found;
    static_cast<void>(find_image(base, found));
    ++looks;
  };
  ASSERT_EQ(::sigaction(SIGUSR1, &look, &before), 0);
  alignas(std::max_align_t) std::byte nobody[64]{};  // in place of an instance, at which nobody looks
  const std::shared_ptr<const ElfFile> file = ElfFile::open("/proc/self/exe");
  LoadedImage image;
  image.file = file.get();
  image.base = const_cast<char*>(base);

  std::atomic<bool> over{false};
  std::thread sender([&over, to = pthread_self()] {
    while (!over) ::pthread_kill(to, SIGUSR1);
  });
  while (looks < 5'000) {
    add_image(reinterpret_cast<Instance&>(nobody), image);
    remove_image(base);
  }
  over = true;
  sender.join();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
  FoundImage found;
  EXPECT_FALSE(find_image(base, found));
}

}  // namespace
}  // namespace aplib::loader
