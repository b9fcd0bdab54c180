// SPDX-License-Identifier: MIT
// Programs of MPI in C, made by apcc and run by aprun.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "commands.hpp"

namespace aplib {
namespace {

class MpiProgram : public MpiCommands {};

TEST_F(MpiProgram, EachRankHasItsOwnMpi) {
  EXPECT_EQ(output("apcc -Wall -Werror " MPI_PROGRAMS "/hello.c -I" BUILD_TREE
                   "/lib/aplib/mpi/include -L" MPI_LIBRARY_FOLDER " -lmpi_abi -o hello"),
            "");
  EXPECT_EQ(output("aprun -n 4 ./hello | sort"),
            "rank 0 of 4, 1 errors\nrank 1 of 4, 2 errors\nrank 2 of 4, 3 errors\nrank 3 of 4, 4 errors\n");
  int status = 0;
  const std::string text = output("aprun -n 2 ./hello x", &status);
  EXPECT_EQ(status, 1);
  EXPECT_NE(text.find("MPI_Comm_call_errhandler: MPI_ERR_OTHER: "), std::string::npos) << text;
}

TEST_F(MpiProgram, CollectivesAgreeWithANaiveComputation) {
  EXPECT_EQ(output("apcc -O2 -Wall -Werror " MPI_PROGRAMS "/collectives.c -I" BUILD_TREE
                   "/lib/aplib/mpi/include -L" MPI_LIBRARY_FOLDER " -lmpi_abi -o collectives"),
            "");
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const std::string number = std::to_string(ranks);
    EXPECT_EQ(output("aprun -n " + number + " ./collectives " + number), "No Errors\n") << number << " ranks";
  }
  for (const char* const threads : {"1", "2", "per-cell"}) {
    for (const char* const ranks : {"7", "33"}) {
      EXPECT_EQ(output(std::string("aprun --threads ") + threads + " -n " + ranks + " ./collectives 3"), "No Errors\n")
          << ranks << " ranks, threads " << threads;
    }
  }
  write("cluster.toml",
        "[machine]\ngrid = \"5x1\"\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = 2\n"
        "[[host]]\nname = \"b\"\ncells = 3\n");
  EXPECT_EQ(output("aprun -f cluster.toml ./collectives 4"), "No Errors\n");
  // They share a board.
  for (const char* const ranks : {"2", "5", "8"})
    EXPECT_EQ(output(std::string("aprun --processes -n ") + ranks + " ./collectives 5"), "No Errors\n") << ranks;
}

TEST_F(MpiProgram, WhatLeavesMainOrAThreadEndsItByItsTerminateHandler) {
  write("leaves.cpp",
        "#include <cstdio>\n#include <cstdlib>\n#include <exception>\n#include <mpi.h>\n#include <stdexcept>\n"
        "#include <thread>\n"
        "int main(int argc, char** argv) {\n"
        "  MPI_Init(&argc, &argv);\n"
        "  if (argc > 2) std::set_terminate([] { std::puts(\"last words\"); std::_Exit(42); });\n"
        "  const auto fail = [] { throw std::runtime_error(\"boom\"); };\n"
        "  if (*argv[1] == 't') std::thread(fail).join();\n"
        "  fail();\n"
        "}\n");
  EXPECT_EQ(output("mpicxx -Wall -Werror leaves.cpp -o leaves"), "");
  for (const char* const way : {"main", "thread"}) {
    for (const char* const options : {"", "--processes "}) {
      const std::string command = std::string("timeout 60 mpiexec ") + options + "-n 1 ./leaves " + way;
      int status = 0;
      std::string text = output(command + " handled", &status);
      EXPECT_EQ(status, 42) << command;
      EXPECT_EQ(text.substr(0, 11), "last words\n") << command;
      text = output(command + " 2>&1", &status);
      EXPECT_EQ(status, 134) << command;
      EXPECT_NE(text.find("boom"), std::string::npos) << text;
    }
  }
}

// The compiler puts code on the stack for them.
TEST_F(MpiProgram, FunctionsInFunctionsAreCalledFromOutside) {
  write("nested.c",
        "#include <mpi.h>\n#include <pthread.h>\n#include <stdio.h>\n"
        "static int (*volatile outer)(int (*)(int), int);\n"
        "static int call(int (*function)(int), int of) { return function(of); }\n"
        "static void* run(void* result) {\n"
        "  int base = 20;\n"
        "  int add(int what) { return base + what; }\n"
        "  *(int*)result = outer(add, 1);\n"
        "  return NULL;\n"
        "}\n"
        "int main(int argc, char** argv) {\n"
        "  MPI_Init(&argc, &argv);\n"
        "  outer = call;\n"
        "  int of_main = 0, of_thread = 0;\n"
        "  run(&of_main);\n"
        "  pthread_t thread;\n"
        "  pthread_create(&thread, NULL, run, &of_thread);\n"
        "  pthread_join(thread, NULL);\n"
        "  printf(\"%d %d\\n\", of_main, of_thread);\n"
        "  MPI_Finalize();\n"
        "}\n");
  EXPECT_EQ(output("mpicc -Wall -Werror nested.c -o nested 2>/dev/null"), "");
  for (const char* const options : {"-n 3", "--processes -n 3"})
    EXPECT_EQ(output(std::string("timeout 60 mpiexec ") + options + " ./nested 2>&1"), "21 21\n21 21\n21 21\n");
}

TEST_F(MpiProgram, ProcessesOfAHostMeetInMemory) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror " MPI_PROGRAMS "/meetings.c -o meetings"), "");
  for (const char* const ranks : {"2", "5", "9"})
    EXPECT_EQ(output(std::string("timeout 100 aprun --processes -n ") + ranks + " ./meetings"), "No Errors\n") << ranks;
  write("cluster.toml",
        "[machine]\ngrid = \"5x1\"\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = 2\n"
        "[[host]]\nname = \"b\"\ncells = 3\n");
  EXPECT_EQ(output("timeout 100 aprun -f cluster.toml ./meetings"), "No Errors\n");
  EXPECT_EQ(output("timeout 100 aprun --processes -n 3 ./meetings ends"), "ended\nended\nended\nended\n");
  int status = 0;
  const std::string text = output("timeout 100 aprun --processes -n 2 ./meetings disagree 2>&1", &status);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(text.find("wrong"), std::string::npos) << text;
  EXPECT_NE(text.find("is in MPI_B"), std::string::npos) << text;
}

// Ranks of one process take data straight from each other; those of several send messages.
TEST_F(MpiProgram, ReductionsHaveTheSameBitsInAnyNumberOfProcesses) {
  EXPECT_EQ(output("apcc -Wall -Werror " MPI_PROGRAMS "/bits.c -I" BUILD_TREE
                   "/lib/aplib/mpi/include -L" MPI_LIBRARY_FOLDER " -lmpi_abi -o bits"),
            "");
  write("cluster.toml",
        "[machine]\ngrid = \"7x1\"\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = 3\n"
        "[[host]]\nname = \"b\"\ncells = 4\n");
  const std::string one = output("aprun -n 7 ./bits");
  EXPECT_NE(one, "");
  EXPECT_EQ(output("aprun --threads 1 -n 7 ./bits"), one);
  EXPECT_EQ(output("aprun --threads per-cell -n 7 ./bits"), one);
  EXPECT_EQ(output("aprun -f cluster.toml ./bits"), one);
  EXPECT_EQ(output("aprun --processes -n 7 ./bits"), one);
}

TEST_F(MpiProgram, MessagesReachTheirRanksOnAnyNumberOfThreads) {
  EXPECT_EQ(output("apcc -Wall -Werror " MPI_PROGRAMS "/messages.c -I" BUILD_TREE
                   "/lib/aplib/mpi/include -L" MPI_LIBRARY_FOLDER " -lmpi_abi -o messages"),
            "");
  for (const char* const threads : {"1", "2", "per-cell"}) {
    for (const char* const ranks : {"4", "9"}) {
      EXPECT_EQ(output(std::string("aprun --threads ") + threads + " -n " + ranks + " ./messages"), "sum 3540\n")
          << ranks << " ranks, threads " << threads;
    }
  }
}

TEST_F(MpiProgram, ThreadSanitizerSeesTheProgramAlone) {
  write("x.c", "int x;\n");
  int status = 0;
  static_cast<void>(output("cc -shared -fPIC -fsanitize=thread x.c -o x.so", &status));
  if (status != 0) GTEST_SKIP() << "needs the library libtsan.so.2";
  write("race.c", R"(
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static int shared;
static void* add(void* arg) { return shared++, arg; }
int main(int argc, char** argv) {
  int rank, ranks, sum, level, *in = calloc(100000, sizeof *in), *out = calloc(100000, sizeof *out);
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 0; i < 20; i++) {
    MPI_Request both[2];
    MPI_Irecv(in, 100000, MPI_INT, (rank + 1) % ranks, 1, MPI_COMM_WORLD, &both[0]);
    MPI_Isend(out, 100000, MPI_INT, (rank + 1) % ranks, 1, MPI_COMM_WORLD, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    out[0] = in[0] + 1;
    MPI_Allreduce(&out[0], &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
  if (argc > 1) {
    pthread_t thread;
    pthread_create(&thread, NULL, add, NULL);
    add(NULL);
    pthread_join(thread, NULL);
  }
  if (rank == 0) printf("sum %d\n", sum);
  return MPI_Finalize();
})");
  EXPECT_EQ(output("cc -g -fsanitize=thread -I" BUILD_TREE "/lib/aplib/mpi/include race.c -o race -pthread "
                   "-L" MPI_LIBRARY_FOLDER " -lmpi_abi -Wl,-rpath," MPI_LIBRARY_FOLDER),
            "");
  const std::string run = "TSAN_OPTIONS=ignore_noninstrumented_modules=1 timeout 60 aprun --processes -n 2 ./race";
  for (const char* const modules : {"auto", "tcp"})
    EXPECT_EQ(output("APLIB_MODULE=" + std::string(modules) + " " + run), "sum 40\n") << modules;
  const std::string text = output(run + " x 2>&1", &status);
  EXPECT_NE(status, 0);
  EXPECT_NE(text.find("data race"), std::string::npos) << text;
  EXPECT_NE(text.find(" in add"), std::string::npos) << text;
}

// One thread carries all ranks, which wait for each other where MPI does not see it.
TEST_F(MpiProgram, RanksThatShareAThreadRunWhileOneWaitsOrComputes) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror -pthread " MPI_PROGRAMS "/together.c -o together"), "");
  for (const char* const how : {"begin", "compute", "spin", "synchronize", "fifo", "socket"}) {
    for (const char* const threads : {"1", "2", "per-cell"}) {
      EXPECT_EQ(output(std::string("rm -f begun; timeout 60 aprun --threads ") + threads + " -n 4 ./together " + how),
                "OK\n")
          << how << ", threads " << threads;
    }
  }
}

TEST_F(MpiProgram, RanksThatMoveHoldWhatTheyHaveLocked) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror -pthread " MPI_PROGRAMS "/holds.c -o holds"), "");
  for (const char* const options : {"--threads 1", "--threads 2", "--threads 3", "--threads per-cell", "--processes"})
    EXPECT_EQ(output(std::string("timeout 60 aprun ") + options + " -n 8 ./holds"), "No Errors\n") << options;
}

TEST_F(MpiProgram, ProcessesOfProgramsThatForkHaveThemForThemselves) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror " MPI_PROGRAMS "/forks.c -o forks"), "");
  EXPECT_EQ(output("timeout 60 mpiexec --processes -n 3 ./forks 'a word'"), "No Errors\n");
  int status = 0;
  const std::string text = output("timeout 60 mpiexec -n 3 ./forks 'a word' 2>&1", &status);
  EXPECT_NE(text.find("or run this one with --processes"), std::string::npos) << text;
}

TEST_F(MpiProgram, ChildrenOfALibrary) {
  EXPECT_EQ(
      output("cc -O2 -Wall -Werror -DLIBRARY -shared -fPIC " MPI_PROGRAMS "/library_children.c -o libchildren.so"), "");
  EXPECT_EQ(output("echo 'int none(void) { return 0; }' | cc -shared -fPIC -x c - -o libnone.so"), "");
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror " MPI_PROGRAMS
                   "/library_children.c -L. -Wl,--no-as-needed -lnone -lchildren -Wl,-rpath,$PWD -o children"),
            "");
  EXPECT_EQ(output("timeout 60 mpiexec --processes -n 3 ./children"), "No Errors\n");
  EXPECT_EQ(output("timeout 60 mpiexec -n 3 ./children 2>errors"), "fork: wrong on 3 ranks\n");
  EXPECT_EQ(output("grep -c 'or run this one with --processes' errors"), "1\n");
  EXPECT_EQ(output("grep -c 'setrlimit(RLIMIT_CPU): .*run the program with --processes' errors"), "1\n");
}

TEST_F(MpiProgram, MainEndsWhileAThreadIsInACallback) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror " MPI_PROGRAMS "/ends_in_callback.c -pthread -o ends"), "");
  EXPECT_EQ(output("gcc -O2 -Wall -Werror -I$(mpicc -showme:incdirs) " MPI_PROGRAMS
                   "/ends_in_callback.c -L" MPI_LIBRARY_FOLDER " -lmpi_abi -pthread -o ends_plainly"),
            "");
  for (const char* const what : {"operation", "attribute", "handler", "request", "waits", "calls", "returns"}) {
    for (const char* const status : {"0", "3"}) {
      for (const char* const program : {"./ends", "--processes ./ends_plainly"}) {
        const std::string words = std::string(program) + " " + what + " " + status;
        int ended = 0;
        EXPECT_EQ(output("timeout 30 mpiexec -n 2 " + words + " 2>/dev/null", &ended), "main ends\nmain ends\n")
            << words;
        EXPECT_EQ(std::to_string(ended), status) << words;
      }
    }
  }
}

// It would take the core from a rank each time.
TEST_F(MpiProgram, RanksThatWaitAllTheTimeDoNotStirTheProgressThread) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror " MPI_PROGRAMS "/progress.c -o progress"), "");
  for (const char* const poll_time : {"0", "20us"}) {
    EXPECT_EQ(output(std::string("timeout 60 aprun --processes --poll-time ") + poll_time + " -n 8 ./progress"),
              "seldom\n")
        << poll_time;
  }
}

// One that has found what it looked for kept the others waiting once more.
TEST_F(MpiProgram, RanksThatTestLeaveTheCoreOnceForEachMessage) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror " MPI_PROGRAMS "/gives_way.c -o gives_way"), "");
  EXPECT_EQ(output("core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//'); "
                   "timeout 60 taskset -c $core mpiexec --processes -n 2 ./gives_way"),
            "once\n");
}

TEST_F(MpiProgram, EachRankHasItsOwnTimers) {
  EXPECT_EQ(output("mpicc -O2 -Wall -Werror " MPI_PROGRAMS "/timers.c -o timers"), "");
  for (const char* const threads : {"1", "per-cell"}) {
    EXPECT_EQ(output(std::string("timeout 60 aprun --threads ") + threads + " -n 4 ./timers"), "OK\n")
        << "threads " << threads;
  }
}

TEST_F(MpiProgram, ProcessesOfAHostShareMemory) {
  EXPECT_EQ(output("mpicc -Wall -Werror " MPI_PROGRAMS "/shared_window.c -o shared"), "");
  const std::string all = "3 of 3 ranks, sum 303, counted 3000\n";
  EXPECT_EQ(output("aprun -n 3 ./shared"), all);
  EXPECT_EQ(output("aprun --processes -n 3 ./shared"), all);
  write("cluster.toml",
        "[machine]\ngrid = \"3x1\"\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = 2\n"
        "[[host]]\nname = \"b\"\ncells = 1\n");
  EXPECT_EQ(output("aprun -f cluster.toml ./shared"), all);
  int status = 0;
  const std::string text = output("aprun --processes -n 3 ./shared 1", &status);
  EXPECT_NE(status, 0);
  EXPECT_NE(text.find("cell 1"), std::string::npos) << text;
}

TEST_F(MpiProgram, ThreadsThatAProgramMakesCall) {
  EXPECT_EQ(output("mpicc -Wall -Werror " MPI_PROGRAMS "/threads.c -pthread -o threads"), "");
  for (const char* const what :
       {"turns", "early", "requests", "blocked", "at_once", "alone", "beside", "fair", "handled", "jump", "make"}) {
    for (const char* const ranks : {"1", "2", "5"})
      EXPECT_EQ(output(std::string("mpiexec -n ") + ranks + " ./threads " + what), "No Errors\n")
          << what << ", ranks: " << ranks;
  }
  write("cluster.toml",
        "[machine]\ngrid = \"3x1\"\nlaunch = \"local\"\nthreads = \"per-cell\"\n[[host]]\nname = \"a\"\ncells = 1\n"
        "[[host]]\nname = \"b\"\ncells = 2\n");
  for (const char* const what : {"turns", "requests", "blocked", "at_once", "alone", "beside", "fair"})
    EXPECT_EQ(output(std::string("aprun -f cluster.toml ./threads ") + what), "No Errors\n") << what;
  const std::string cells = std::to_string(2 * std::max(std::thread::hardware_concurrency(), 1U));
  write("auto.toml", "[machine]\nlaunch = \"local\"\n[[host]]\nname = \"a\"\ncells = " + cells + "\n");
  EXPECT_EQ(output("aprun -f auto.toml ./threads turns"), "No Errors\n");
}

// Cells move to idle threads while they wait. The address of errno is the thread's, and compilers keep it.
TEST_F(MpiProgram, ErrnoIsTheRanksWhereverItsCellMoves) {
  write("errno.c", R"(
#include <errno.h>
#include <mpi.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
int main(int argc, char** argv) {
  int rank, wrong = 0;
  sem_t never;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  sem_init(&never, 0, 0);
  for (int round = 0; round < 100; ++round) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += (3 + (rank + round) % 5) * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    errno = 0;
    if (sem_timedwait(&never, &time) == 0 || errno != ETIMEDOUT) ++wrong;
    for (volatile int work = (rank + round) % 6 * 300000; work > 0; --work) {
    }
  }
  if (wrong != 0) printf("rank %d: %d of 100 times errno was another's, or a wait was interrupted\n", rank, wrong);
  MPI_Finalize();
  return 0;
})");
  EXPECT_EQ(output("mpicc -O2 errno.c -o errno -pthread"), "");
  for (int run = 0; run < 3; ++run) EXPECT_EQ(output("mpiexec -n 6 ./errno"), "");
}

TEST_F(MpiProgram, AThreadOtherThanTheMainOneBegins) {
  write("begins.c", R"(
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void* all(void* wanted) {
  int level, is_main, rank, size, sum;
  MPI_Init_thread(NULL, NULL, *(int*)wanted, &level);
  MPI_Is_thread_main(&is_main);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("level %d, main %d, sum %d\n", level - *(int*)wanted, is_main, sum);
  MPI_Finalize();
  return wanted;
}
int main(int argc, char** argv) {
  int levels[] = {MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE}, level = levels[atoi(argv[1])];
  pthread_t thread;
  pthread_create(&thread, NULL, all, &level);
  pthread_join(thread, NULL);
  return argc != 2;
}
)");
  EXPECT_EQ(output("mpicc -Wall -Werror begins.c -pthread -o begins"), "");
  for (const char* const level : {"0", "1", "2"})
    EXPECT_EQ(output(std::string("mpiexec -n 4 ./begins ") + level), "level 0, main 1, sum 6\n") << level;
}

TEST_F(MpiProgram, ThreadsOfOrdinaryProcessesCall) {
  EXPECT_EQ(output("gcc -Wall -Werror -I$(mpicc -showme:incdirs) " MPI_PROGRAMS "/threads.c -L" MPI_LIBRARY_FOLDER
                   " -lmpi_abi -pthread -o threads"),
            "");
  for (const char* const what :
       {"turns", "early", "requests", "blocked", "at_once", "alone", "beside", "fair", "jump", "make"}) {
    for (const char* const ranks : {"1", "3"})
      EXPECT_EQ(output(std::string("mpiexec --processes -n ") + ranks + " ./threads " + what), "No Errors\n")
          << what << ", ranks: " << ranks;
  }
  expect_end("mpiexec --processes -n 2 ./threads abort", 7,
             "cell 0 thread: MPI_Abort: rank 0 of MPI_COMM_WORLD ends the machine with code 7");
  expect_end("mpiexec --processes -n 2 ./threads wrong", 1,
             " thread: MPI_Send: count is -1; a count is 0 or more (MPI_ERR_COUNT on MPI_COMM_WORLD)");
  expect_end("mpiexec --processes -n 2 ./threads below", 1,
             " thread: MPI_Comm_rank: it came from a thread that the program made, and MPI_Init_thread has ");
  expect_end("mpiexec --processes -n 2 ./threads late", 1, "MPI_Comm_rank: it came after MPI_Finalize");
}

TEST_F(MpiProgram, RegionsOfOpenMpCall) {
  EXPECT_EQ(output("mpicc -Wall -Werror -fopenmp " MPI_PROGRAMS "/openmp.c -o openmp"), "");
  for (const char* const ranks : {"1", "2", "5"})
    EXPECT_EQ(output(std::string("mpiexec -n ") + ranks + " ./openmp"), "No Errors\n") << "ranks: " << ranks;
  // Whoever wants no threads of OpenMP has ranks share threads.
  const auto carriers = [this](const std::string& settings, const std::string& options) {
    return output(settings + " mpiexec -dry-run -n 64 " + options + " ./openmp | grep -c ^thread");
  };
  EXPECT_EQ(carriers("", ""), "64\n");
  EXPECT_EQ(carriers("OMP_NUM_THREADS=2", ""), "64\n");
  EXPECT_NE(carriers("OMP_NUM_THREADS=1", ""), "64\n");
  EXPECT_NE(carriers("", "-x OMP_NUM_THREADS=1"), "64\n");
}

TEST_F(MpiProgram, RegionsOfOpenMpShareTheCores) {
  write("most.c",
        "#include <omp.h>\n#include <stdio.h>\nint main(void) { printf(\"%d\\n\", omp_get_max_threads()); }\n");
  EXPECT_EQ(output("mpicc -fopenmp most.c -o most"), "");
  const std::string ranks = std::to_string(2 * std::max(std::thread::hardware_concurrency(), 1U));
  EXPECT_EQ(output("mpiexec -n " + ranks + " ./most | sort -u"), "1\n");
  EXPECT_EQ(output("OMP_NUM_THREADS=3 mpiexec -n 2 ./most"), "3\n3\n");
  EXPECT_EQ(output("mpiexec -n 2 -env OMP_NUM_THREADS 3 ./most"), "3\n3\n");
}

TEST_F(MpiProgram, TrapsAreCaughtOrTold) {
  write("trap.c", R"(
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
static void handler(int signal) { printf("signal %d\n", signal); }
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc == 1) signal(SIGTRAP, handler);
  __asm__ volatile("int3");
  MPI_Finalize();
  return 0;
})");
  EXPECT_EQ(output("mpicc trap.c -o trap"), "");
  EXPECT_EQ(output("mpiexec -n 2 ./trap"), "signal 5\nsignal 5\n");
  expect_end("mpiexec -n 2 ./trap uncaught", 128 + SIGTRAP, " task 0: SIGTRAP, trap");
}

// As many ranks as cores: their threads are bound to one each.
TEST_F(MpiProgram, RanksHaveTheCoresOfTheProcess) {
  write("cores.c", R"(
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
int main(int argc, char** argv) {
  cpu_set_t process, thread;
  MPI_Init(&argc, &argv);
  sched_getaffinity(0, sizeof process, &process);
  pthread_getaffinity_np(pthread_self(), sizeof thread, &thread);
  printf("%d %d\n", CPU_COUNT(&process), CPU_EQUAL(&process, &thread));
  MPI_Finalize();
  return 0;
})");
  EXPECT_EQ(output("mpicc cores.c -o cores"), "");
  const std::string cores = output("nproc");
  EXPECT_EQ(output("mpiexec -n $(nproc) ./cores | sort -u"), cores.substr(0, cores.size() - 1) + " 1\n");
}

// Ranks share threads, and the C library keeps the values of its keys by thread.
TEST_F(MpiProgram, ValuesOfKeysGoWithTheRank) {
  write("keys.c", R"(
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void gone(void* value) { printf("destructor of %s\n", (char*)value); }
int main(int argc, char** argv) {
  int rank, size, lost = 0, all = 0;
  pthread_key_t key;
  char mine[8];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  pthread_key_create(&key, gone);
  if (rank % 2 == 0) pthread_setspecific(key, mine);
  for (int round = 0; round < 100; ++round) {
    int got;
    MPI_Sendrecv(&round, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    lost += pthread_getspecific(key) != (rank % 2 == 0 ? mine : NULL);
  }
  MPI_Reduce(&lost, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d lost\n", all);
  MPI_Finalize();
  return 0;  // as in a process, no destructor runs
})");
  EXPECT_EQ(output("mpicc keys.c -o keys -pthread"), "");
  for (const char* const threads : {"1", "2"})
    EXPECT_EQ(output(std::string("aprun --threads ") + threads + " -n 6 ./keys"), "0 lost\n");
}

// libgomp keeps what it knows of a region in the thread, which ranks that wait give to others.
TEST_F(MpiProgram, RegionsOfOneThreadWait) {
  write("waits.c", R"(
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, size, errors = 0, all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < 50; ++round) {
#pragma omp parallel reduction(+ : errors)
    {
      int got = -1;
      MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (got != (rank + size - 1) % size || omp_get_num_threads() != 1 || omp_get_level() > 1) ++errors;
    }
    int seen[12] = {0};
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 12; ++i) {
      int flag;
      ++seen[i];
      for (int probes = 0; probes < 5; ++probes)
        MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 12; ++i) errors += seen[i] != 1;
  }
  MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf(all == 0 ? "No Errors\n" : "%d errors\n", all);
  MPI_Finalize();
})");
  EXPECT_EQ(output("mpicc -Wall -Werror -fopenmp waits.c -o waits"), "");
  for (const char* const threads : {"1", "2"}) {
    EXPECT_EQ(output(std::string("OMP_NUM_THREADS=1 aprun --threads ") + threads + " -n 5 ./waits"), "No Errors\n")
        << "threads: " << threads;
  }
}

// FreeFEM ends where it does not get the level.
TEST_F(MpiProgram, WhoMakesNoThreadsGetsTheLevelThatItAsksFor) {
  write("level.c", R"(
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int level, rank, sum;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d %d\n", level == MPI_THREAD_MULTIPLE, sum);
  MPI_Finalize();
})");
  EXPECT_EQ(output("mpicc -Wall -Werror level.c -o level"), "");
  EXPECT_EQ(output("mpiexec -n 40 ./level"), "1 780\n");
  EXPECT_EQ(output("APLIB_THREADS=1 mpiexec -n 4 ./level"), "0 6\n");
}

// Ranks that share threads cannot wait for threads of their own: the level says so, and a call that comes all the same.
TEST_F(MpiProgram, ThreadsNeedAThreadForEachRank) {
  EXPECT_EQ(output("mpicc -Wall -Werror " MPI_PROGRAMS "/threads.c -pthread -o threads"), "");
  EXPECT_EQ(output("APLIB_THREADS=1 mpiexec -n 2 ./threads level funneled"), "No Errors\n");
  EXPECT_NE(output("APLIB_THREADS=1 APLIB_LOG_LEVEL=debug mpiexec -n 2 ./threads level funneled")
                .find("MPI_Init_thread: the rank shares its thread with others, so MPI_THREAD_FUNNELED is provided"),
            std::string::npos);
  int status = 0;
  const std::string text = output("mpiexec -n 1 ./threads below", &status);
  EXPECT_EQ(status, 1);
  EXPECT_NE(text.find("cell 0: MPI_Comm_rank: it came from a thread that the program made, and MPI_Init_thread has "
                      "provided MPI_THREAD_FUNNELED; ask MPI_Init_thread for MPI_THREAD_SERIALIZED"),
            std::string::npos)
      << text;
}

TEST_F(MpiProgram, WhatThreadsDoWrongEndsTheMachine) {
  EXPECT_EQ(output("mpicc -Wall -Werror " MPI_PROGRAMS "/threads.c -pthread -o threads"), "");
  expect_end("mpiexec -n 3 ./threads abort", 7,
             "cell 0 thread: MPI_Abort: rank 0 of MPI_COMM_WORLD ends the machine with code 7");
  expect_end("mpiexec -n 3 ./threads wrong", 1,
             " thread: MPI_Send: count is -1; a count is 0 or more (MPI_ERR_COUNT on MPI_COMM_WORLD)");
  expect_end("mpiexec -n 3 ./threads late", 1, " thread: MPI_Comm_rank: it came after MPI_Finalize");
}

// gfortran puts arrays there with -fstack-arrays, and users then say `ulimit -s unlimited`.
TEST_F(MpiProgram, StacksAreAsLargeAsTheUserAllows) {
  write("deep.c", R"C(
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char** argv) {
  volatile char room[32 << 20];
  MPI_Init(&argc, &argv);
  memset((char*)room, 1, sizeof room);
  printf("%d\n", room[1]);
  MPI_Finalize();
  return 0;
})C");
  EXPECT_EQ(output("mpicc deep.c -o deep"), "");
  EXPECT_EQ(output("ulimit -s 65536 && mpiexec -n 2 ./deep"), "1\n1\n");
  if (output("ulimit -Hs") != "unlimited\n") return;
  EXPECT_EQ(output("ulimit -s unlimited && mpiexec -n 2 ./deep"), "1\n1\n");
  EXPECT_EQ(output("ulimit -s unlimited && mpiexec --processes -n 2 ./deep"), "1\n1\n");
}

// As under other launchers, whose ranks write to pipes: Fortran keeps lines back that go to a file.
TEST_F(MpiProgram, FortranLosesNoLinesWhenAnotherRankAborts) {
  if (output("command -v gfortran || true").empty()) GTEST_SKIP() << "needs the tool gfortran";
  write("aborts.f90", R"(
program aborts
  include 'mpif.h'
  integer error, rank
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  if (rank == 0) print '(a)', 'first'
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 1) print '(a)', 'second'
  if (rank == 1) call MPI_Abort(MPI_COMM_WORLD, 5, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
end
)");
  EXPECT_EQ(output("mpifort aborts.f90 -o aborts"), "");
  EXPECT_EQ(output("mpiexec -n 2 ./aborts >out 2>err; sort out"), "first\nsecond\n");
}

TEST_F(MpiProgram, IsNotLoadedBesideAnotherOne) {
  write("c.toml", "[[host]]\nlaunch = \"local\"\ncells = 1\n");
  write("first.c", R"(
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc > 1) fclose(fopen(argv[1], "w"));
  while (access("enough", F_OK) != 0) usleep(10000);
  MPI_Finalize();
  puts("first");
}
)");
  write("plain.c", "#include <stdio.h>\nint main(void) { puts(\"plain\"); }\n");
  EXPECT_EQ(output("mpicc first.c -o first && apcc plain.c -o plain"), "");
  const std::string text = output(R"(export XDG_RUNTIME_DIR=$PWD
aprun -f c.toml ./first begun >out 2>&1 &
until [ -e begun ] || ! kill -0 $!; do sleep 0.05; done
apctl load $! ./first; echo "status $?"
apctl load $! ./plain >loaded; echo "status $?"
touch enough; wait $!; echo "status $?"; sort out)");
  EXPECT_NE(text.find("only one program of a rank can: start it by an aprun of its own\nstatus 1\n"), text.npos)
      << text;
  EXPECT_TRUE(text.ends_with("status 1\nstatus 0\nstatus 0\nfirst\nplain\n")) << text;
}

TEST_F(MpiProgram, FortranByTheModule) {
  if (output("command -v gfortran || true").empty()) GTEST_SKIP() << "needs the tool gfortran";
  EXPECT_EQ(output("mpifort " MPI_PROGRAMS "/module.f90 -o module"), "");
  for (const char* const run : {"-n 1", "-n 2", "--threads 1 -n 5", "--threads per-cell -n 5"})
    EXPECT_EQ(output("aprun " + std::string(run) + " ./module"), "No Errors\n") << run;
  EXPECT_EQ(output("gfortran $(mpifort -showme:compile | tr ' ' '\\n' | grep ^-I) " MPI_PROGRAMS
                   "/module.f90 -L" MPI_LIBRARY_FOLDER " -lmpifort_abi -lmpi_abi -o plain && mpiexec -n 3 ./plain"),
            "No Errors\n");
}

TEST_F(MpiProgram, FortranByTheHeader) {
  if (output("command -v gfortran || true").empty()) GTEST_SKIP() << "needs the tool gfortran";
  write("free.f90", "program p\n  implicit none\n  include 'mpif.h'\n  print '(i0)', MPI_COMM_WORLD\nend program\n");
  EXPECT_EQ(output("mpif77 -w " MPI_PROGRAMS "/fixed.f -o fixed && mpif90 -Wall -Werror free.f90 -o free && ./free"),
            "257\n");
  std::string all;
  for (int rank = 0; rank < 8; ++rank) all += "rank  " + std::to_string(rank) + " of  8\n";
  EXPECT_EQ(output("mpiexec -n 8 ./fixed | sort"), all);
  expect_end("mpiexec -n 2 ./fixed stop", 3, "STOP 3");
  expect_end("mpiexec -n 2 ./fixed error", 1, "ERROR STOP");
  expect_end("mpiexec -n 2 ./fixed abort", 5, "MPI_Abort: rank ");
  expect_end("mpiexec -n 2 ./fixed rank", 1, "MPI_Send: dest is 2");
  expect_end("mpiexec -n 2 ./fixed address", 1, "MPI_Address: the address or size does not fit an INTEGER");
}

}  // namespace
}  // namespace aplib
