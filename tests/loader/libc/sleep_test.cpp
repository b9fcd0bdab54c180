// SPDX-License-Identifier: MIT
// Sleeping programs let the host run others.
#include <gtest/gtest.h>

#include "compile.hpp"
#include "journal.hpp"

namespace aplib::loader::test {
namespace {

using namespace std::chrono_literals;

/// Hours of sleep for which nobody waits: the recording host only adds them up.
struct Slept {
  int status = 0;
  std::chrono::nanoseconds slept{};
  int yields = 0;
};

class Sleep : public testing::Test {
 protected:
  Slept run_main(const std::string& body, const std::string& name = "p.so") {
    const std::string includes =
        "#include <errno.h>\n#include <poll.h>\n#include <sched.h>\n#include <sys/select.h>\n#include <sys/time.h>\n"
        "#include <threads.h>\n#include <time.h>\n#include <unistd.h>\n";
    const auto program = Program::load(
        shop_.compile(includes + "int main(int n, char** a) { " + body + " }", {"-shared", "-D_GNU_SOURCE"}, name));
    RecordingHost host;
    Slept slept;
    slept.status = run_instance(make_instance(program, host), call_main).status;
    slept.slept = host.slept;
    slept.yields = host.yields;
    return slept;
  }

  Workshop shop_;
};

TEST_F(Sleep, AllWordsForItReachTheHost) {
  const std::pair<const char*, std::chrono::nanoseconds> cases[] = {
      {"return sleep(3600);", 1h},
      {"return usleep(900000);", 900ms},
      {"struct timespec t = {7200, 5}, r = {1, 1}; return nanosleep(&t, &r) + r.tv_sec + r.tv_nsec;", 2h + 5ns},
      {"struct timespec t = {60, 0}; return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);", 1min},
      {"struct timespec t = {60, 1}; return thrd_sleep(&t, NULL);", 1min + 1ns},
      {"return poll(NULL, 0, 1500);", 1500ms},
      {"struct timespec t = {9, 0}; return ppoll(NULL, 0, &t, NULL);", 9s},
      {"struct timeval t = {8, 5}; return select(0, NULL, NULL, NULL, &t);", 8s + 5us},
      {"struct timespec t = {7, 0}; return pselect(0, NULL, NULL, NULL, &t, NULL);", 7s},
  };
  for (const auto& [body, expected] : cases) {
    const Slept slept = run_main(body);
    EXPECT_EQ(slept.status, 0) << body;
    EXPECT_EQ(slept.slept, expected) << body;
  }
}

TEST_F(Sleep, UntilATimeSleepsTheDifference) {
  const Slept past =
      run_main("struct timespec t = {1, 0}; return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL);");
  EXPECT_EQ(past.status, 0);
  EXPECT_EQ(past.slept, 0ns);
  // The time may have passed before the program comes to wait for it; then it is run again.
  Slept future;
  for (int tries = 0; tries < 20 && future.slept == 0ns; ++tries)
    future = run_main(
        "struct timespec t, now; clock_gettime(CLOCK_MONOTONIC, &t); t.tv_nsec += 100000000;"
        "if (t.tv_nsec >= 1000000000) { t.tv_sec++; t.tv_nsec -= 1000000000; }"
        "int error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);"
        "clock_gettime(CLOCK_MONOTONIC, &now);"
        "return error || now.tv_sec < t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec < t.tv_nsec);");
  EXPECT_EQ(future.status, 0);
  EXPECT_GT(future.slept, 0ns);
}

TEST_F(Sleep, NoTimeIsAYield) {
  EXPECT_EQ(run_main("return sched_yield() + sleep(0) + usleep(0);").yields, 3);
  EXPECT_EQ(run_main("thrd_yield(); return poll(NULL, 0, 0);").yields, 2);
}

// What waits for a time to come reads a clock again and again; what measures something does not.
TEST_F(Sleep, ALoopOfAnyClockYields) {
  const std::string includes =
      "#include <sys/resource.h>\n#include <sys/time.h>\n#include <sys/times.h>\n#include <time.h>\n"
      "static struct timespec t; static struct timeval v; static struct tms c; static struct rusage u;\n"
      "int main(int n, char** a) { for (int i = 0; i < READS; ++i) ";
  int number = 0;
  for (const char* read : {"clock_gettime(CLOCK_MONOTONIC, &t);", "gettimeofday(&v, NULL);", "time(NULL);", "clock();",
                           "times(&c);", "getrusage(RUSAGE_SELF, &u);", "timespec_get(&t, TIME_UTC);"}) {
    for (const auto& [reads, yields] : {std::pair("10", false), std::pair("100000", true)}) {
      const auto program = Program::load(shop_.compile(includes + read + " return 0; }",
                                                       {"-shared", "-D_GNU_SOURCE", std::string("-DREADS=") + reads},
                                                       "clock" + std::to_string(number++) + ".so"));
      RecordingHost host;
      EXPECT_EQ(run_instance(make_instance(program, host), call_main).status, 0) << read;
      EXPECT_EQ(host.yields != 0, yields) << read << " " << reads << " times";
    }
  }
}

TEST_F(Sleep, ATimeThatIsNoneIsAnError) {
  EXPECT_EQ(
      run_main("struct timespec t = {0, 1000000000}; return nanosleep(&t, NULL) == -1 && errno == EINVAL;").status, 1);
  EXPECT_EQ(
      run_main("struct timespec t = {-1, 0}; return clock_nanosleep(CLOCK_REALTIME, 0, &t, NULL) == EINVAL;").status,
      1);
}

TEST_F(Sleep, DescriptorsAreWaitedForByTheSystem) {
  const Slept slept = run_main(
      "int ends[2]; if (pipe(ends) != 0 || write(ends[1], \"x\", 1) != 1) return 9;"
      "struct pollfd one = {ends[0], POLLIN, 0}; return poll(&one, 1, 1000);");
  EXPECT_EQ(slept.status, 1);
  EXPECT_EQ(slept.slept, 0ns);
}

TEST_F(Sleep, OfTheCppLibraryToo) {
  const auto program = Program::load(
      shop_.compile_cpp("#include <thread>\nint main() { std::this_thread::sleep_for(std::chrono::hours(3)); "
                        "std::this_thread::yield(); return 0; }",
                        {"-shared", "-std=c++17"}, "cpp.so"));
  RecordingHost host;
  EXPECT_EQ(run_instance(make_instance(program, host), call_main).status, 0);
  EXPECT_EQ(host.slept, 3h);
  EXPECT_EQ(host.yields, 1);
}

TEST_F(Sleep, OfTheClocksOfTheCppLibraryToo) {
  for (const char* clock : {"steady_clock", "system_clock"}) {
    const auto program = Program::load(shop_.compile_cpp(
        std::string("#include <chrono>\nint main() { for (int i = 0; i < 100000; ++i) (void)std::chrono::") + clock +
            "::now(); return 0; }",
        {"-shared", "-std=c++17"}, std::string(clock) + ".so"));
    RecordingHost host;
    EXPECT_EQ(run_instance(make_instance(program, host), call_main).status, 0) << clock;
    EXPECT_GT(host.yields, 0) << clock;
  }
}

}  // namespace
}  // namespace aplib::loader::test
