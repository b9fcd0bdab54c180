// SPDX-License-Identifier: MIT
// exit() and its relatives end a program, not the process, and call registered functions in C's order.
#include <gtest/gtest.h>

#include "compile.hpp"
#include "journal.hpp"

namespace aplib::loader::test {
namespace {

class Exit : public testing::Test {
 protected:
  std::shared_ptr<const Program> c(const std::string& text) {
    return Program::load(shop_.compile(journal_prologue + text, {"-shared", "-O1", "-D_GNU_SOURCE"}, "p.so"));
  }
  std::shared_ptr<const Program> cpp(const std::string& text) {
    return Program::load(shop_.compile_cpp(journal_prologue + text, {"-shared", "-O1"}, "p.so"));
  }

 private:
  Workshop shop_;
};

TEST_F(Exit, EndsTheProgramWithItsStatusAndNotTheProcess) {
  const auto program = c("int main(int n, char** a) { start(a); say(\"main\"); exit(n + 40); }");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.ran.outcome.status, 42);
    EXPECT_TRUE(run.ran.outcome.jumped);
    EXPECT_EQ(run.journal, "main");
  }
}

TEST_F(Exit, HandlersRunInReverseOrderAndMayUseMainsFrame) {
  const auto program = c(R"(
    static const char* of_main;
    static void first(void) { say("first "); }
    static void second(void) { say(of_main); }
    static void deep(void) { char other[400]; memset(other, 'x', sizeof other); __asm__("" : : "r"(other) : "memory"); exit(7); }
    int main(int n, char** a) {
      char local[] = "second ";
      start(a);
      of_main = local;
      atexit(first);
      atexit(second);
      deep();
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "second first ");
  EXPECT_EQ(run.ran.outcome.status, 7);
}

TEST_F(Exit, ReturningFromMainRunsHandlersToo) {
  const auto program = c(R"(
    static void handler(void) { say("handler"); }
    int main(int n, char** a) { start(a); atexit(handler); return 3; })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "handler");
  EXPECT_EQ(run.ran.outcome.status, 3);
  EXPECT_FALSE(run.ran.outcome.jumped);
}

TEST_F(Exit, AHandlerMayRegisterMore) {
  const auto program = c(R"(
    static void last(void) { say("last"); }
    static void late(void) { say("late "); }
    static void registers(void) { say("registers "); atexit(late); }
    int main(int n, char** a) { start(a); atexit(last); atexit(registers); exit(0); })");
  EXPECT_EQ(run_journal(program).journal, "registers late last");
}

TEST_F(Exit, ExitInAHandlerGoesOnWithTheRest) {
  const std::string text = R"(
    static void last(void) { say("last"); }
    static void exits(void) { say("exits "); exit(9); }
    int main(int n, char** a) { start(a); atexit(last); atexit(exits); )";
  for (const char* end : {"exit(1); }", "return 1; }"}) {
    const JournalRun run = run_journal(c(text + end));
    EXPECT_EQ(run.journal, "exits last") << end;
  }
  EXPECT_EQ(run_journal(c(text + "exit(1); }")).ran.outcome.status, 9);
}

TEST_F(Exit, OnExitHandlersGetStatusAndArgument) {
  const auto program = c(R"(
    static void handler(int status, void* argument) { if (status == 5) say("status 5 "); say(argument); }
    int main(int n, char** a) { start(a); on_exit(handler, "argument"); exit(5); })");
  EXPECT_EQ(run_journal(program).journal, "status 5 argument");
}

TEST_F(Exit, UnderscoreExitRunsNothing) {
  for (const char* name : {"_exit", "_Exit"}) {
    const auto program = c(std::string(R"(
      #include <unistd.h>
      static void handler(void) { say("handler"); }
      int main(int n, char** a) { start(a); atexit(handler); at_quick_exit(handler); )") +
                           name + "(6); }");
    const JournalRun run = run_journal(program);
    EXPECT_EQ(run.journal, "") << name;
    EXPECT_EQ(run.ran.outcome.status, 6) << name;
  }
}

TEST_F(Exit, QuickExitRunsItsOwnHandlersAlone) {
  const auto program = c(R"(
    static void slow(void) { say("slow "); }
    static void one(void) { say("one"); }
    static void two(void) { say("two "); }
    int main(int n, char** a) { start(a); atexit(slow); at_quick_exit(one); at_quick_exit(two); quick_exit(8); })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "two one");
  EXPECT_EQ(run.ran.outcome.status, 8);
}

TEST_F(Exit, InstancesKeepListsOfTheirOwn) {
  const auto program = c(R"(
    static void handler(void) { say("handler "); }
    void add(char** a) { start(a); atexit(handler); }
    int main(int n, char** a) { say("main "); return 0; })");
  Journal one;
  Journal two;
  RecordingHost host_one;
  RecordingHost host_two;
  const auto both = [](Journal& journal, const std::function<void()>& inside) {
    return [&journal, inside](Instance& instance) {
      std::string address = journal.address();
      char* arguments[] = {nullptr, address.data(), nullptr};
      function_of<void(char**)>(instance, "add")(arguments);
      inside();
      return call_main(instance);
    };
  };
  TaskContext* outer = nullptr;
  run_instance(make_instance(program, host_one, 0), both(one, [&] {
                 outer = here();
                 current_program_context = nullptr;  // another task of the same thread
                 run_instance(make_instance(program, host_two, 1), both(two, [] {}));
                 EXPECT_EQ(two.text(), "main handler ");
                 EXPECT_EQ(one.text(), "");
                 current_program_context = outer;
               }));
  EXPECT_EQ(one.text(), "main handler ");
}

TEST_F(Exit, DestroysThreadLocalsThenStatics) {
  const auto program = cpp(R"(
    struct Speaker { const char* name; ~Speaker() { say(name); } };
    static Speaker of_file{"file"};
    Speaker& of_function() { static Speaker made{"function "}; return made; }
    thread_local Speaker of_thread{"thread "};
    int main(int, char** a) { start(a); of_function(); if (of_thread.name == nullptr) return 1; Speaker automatic{"automatic "}; exit(2); })");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.journal, "thread function file");
    EXPECT_EQ(run.ran.outcome.status, 2);
  }
}

TEST_F(Exit, LeavesThroughFramesThatMustNotThrow) {
  const auto program = cpp(R"(
    struct Holder { ~Holder() { say("unwound"); } };
    __attribute__((noinline)) static void leaves() noexcept { Holder holder; exit(4); }
    int main(int, char** a) { start(a); leaves(); })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "");
  EXPECT_EQ(run.ran.outcome.status, 4);
}

TEST_F(Exit, AbortEndsTheMachineWithStatus134AndWords) {
  const auto program = c(R"(
    static void handler(void) { say("handler"); }
    int main(int n, char** a) { start(a); atexit(handler); abort(); })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.ran.failed_status, 134);
  EXPECT_NE(run.ran.failure.find("abort()"), std::string::npos) << run.ran.failure;
  EXPECT_EQ(run.journal, "");
}

TEST_F(Exit, AbortCallsTheProgramsHandlerFirst) {
  const auto program = c(R"(
    #include <signal.h>
    static void handler(int signal) { say(signal == SIGABRT ? "handler" : "?"); }
    int main(int n, char** a) { start(a); signal(SIGABRT, handler); abort(); })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "handler");
  EXPECT_EQ(run.ran.failed_status, 134);
}

TEST_F(Exit, AHandlerOfAbortMayLeaveByLongjmp) {
  const auto program = c(R"(
    #include <signal.h>
    #include <setjmp.h>
    static sigjmp_buf place;
    static void handler(int signal) { siglongjmp(place, 1); }
    int main(int n, char** a) {
      start(a);
      signal(SIGABRT, handler);
      for (int i = 0; i < 2; ++i) {
        if (sigsetjmp(place, 1) == 0) abort();
        say("back ");
      }
      return 0;
    })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "back back ");
  EXPECT_EQ(run.ran.failed_status, 0);
}

TEST_F(Exit, PthreadExitEndsMain) {
  const auto program = c(R"(
    #include <pthread.h>
    static void handler(void) { say("handler"); }
    int main(int n, char** a) { start(a); atexit(handler); pthread_exit(NULL); })");
  const JournalRun run = run_journal(program);
  EXPECT_EQ(run.journal, "handler");
  EXPECT_EQ(run.ran.outcome.status, 0);
}

TEST_F(Exit, ATerminateHandlerBelongsToItsInstance) {
  const auto program = cpp(R"(
    #include <exception>
    static void mine() { exit(11); }
    __attribute__((noinline)) static void breaks() noexcept { throw 1; }
    int main(int, char** a) {
      start(a);
      const std::terminate_handler before = std::set_terminate(mine);
      if (std::get_terminate() == mine && before != mine) say("set ");
      breaks();
    })");
  for (const std::uint32_t cell : {0U, 1U}) {
    const JournalRun run = run_journal(program, cell);
    EXPECT_EQ(run.journal, "set ");
    EXPECT_EQ(run.ran.outcome.status, 11);
  }
}

}  // namespace
}  // namespace aplib::loader::test
