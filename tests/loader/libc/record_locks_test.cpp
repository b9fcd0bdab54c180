// SPDX-License-Identifier: MIT
// Record locks belong to instances: they exclude each other as processes do.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "kernel/programs.hpp"
#include "machines.hpp"
#include "side_by_side.hpp"

namespace aplib::loader::test {
namespace {

using testing_support::options_of;
using testing_support::Shape;

class RecordLocks : public SideBySide {
 protected:
  /// The results of two instances that use one file in turn. `me` identifies the instance, `path` the file.
  std::vector<std::string> two_say(const std::string& text, int steps, const std::string& file) {
    const std::string prologue =
        "#include <fcntl.h>\n#include <sys/file.h>\n"
        "static int fd = -1; static int me; static const char* path;\n"
        "static int pid_of_other(void) {\n"
        "  char name[4096]; int pid = 0; snprintf(name, sizeof name, \"%s.%d\", path, 1 - me);\n"
        "  FILE* file = fopen(name, \"r\"); fscanf(file, \"%d\", &pid); fclose(file); return pid; }\n"
        "static void tell_pid(void) {\n"
        "  char name[4096]; snprintf(name, sizeof name, \"%s.%d\", path, me);\n"
        "  FILE* file = fopen(name, \"w\"); fprintf(file, \"%d\", getpid()); fclose(file); }\n"
        "static int lock(int fd, int command, int type, long start, long length) {\n"
        "  struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};\n"
        "  int result = fcntl(fd, command, &l);\n"
        "  if (command != F_GETLK) { say(\"%d \", result); return result; }\n"
        "  if (l.l_type == F_UNLCK) say(\"free \");\n"
        "  else say(\"%s %ld %ld %d \", l.l_type == F_WRLCK ? \"written\" : \"read\", (long)l.l_start, (long)l.l_len, "
        "l.l_pid == pid_of_other());\n"
        "  return result; }\n"
        "void body(int n);\n"
        "void step(int n) { if (fd < 0) { me = atoi(getenv(\"ME\")); path = getenv(\"FILE_NAME\"); fd = open(path, "
        "O_RDWR); tell_pid(); "
        "} body(n); }\n";
    std::vector<Side> sides;
    for (const char* me : {"ME=0", "ME=1"}) sides.push_back({.environment = {me, "FILE_NAME=" + file}});
    std::vector<std::string> said;
    for (const Side& side : by_turns(prologue + text, steps, std::move(sides))) said.push_back(side.said);
    return said;
  }

  std::string file_of_ten_bytes(const std::string& name) {
    const std::string path = shop.path(name);
    std::ofstream(path) << "0123456789";
    return path;
  }
};

TEST_F(RecordLocks, OneInstanceExcludesTheOther) {
  const auto said = two_say(R"C(
    void body(int n) {
      switch (n) {
        case 0: if (me == 0) { lock(fd, F_SETLK, F_WRLCK, 2, 3); lock(fd, F_GETLK, F_WRLCK, 0, 0); } break;
        case 1: if (me == 1) { lock(fd, F_SETLK, F_RDLCK, 4, 1); say("%d ", errno == EAGAIN || errno == EACCES);
                               lock(fd, F_GETLK, F_RDLCK, 0, 0); lock(fd, F_SETLK, F_WRLCK, 5, 0); } break;
        case 2: if (me == 0) { lock(fd, F_GETLK, F_WRLCK, 0, 0); lock(fd, F_SETLK, F_UNLCK, 0, 0); } break;
        case 3: if (me == 1) { lock(fd, F_SETLKW, F_RDLCK, 4, 1); lock(fd, F_GETLK, F_WRLCK, 0, 0); } break;
        case 4: if (me == 0) { lock(fd, F_SETLKW, F_RDLCK, 0, 5); lock(fd, F_SETLK, F_WRLCK, 0, 5); } break;
      }
    })C",
                            5, file_of_ten_bytes("a"));
  EXPECT_EQ(said[0], "0 free written 5 0 1 0 0 -1 ");
  EXPECT_EQ(said[1], "-1 1 written 2 3 1 0 0 free ");
}

TEST_F(RecordLocks, AProcessThatHoldsALockIsToldByItsPid) {
  const std::string file = file_of_ten_bytes("f");
  struct flock record {};
  record.l_type = F_RDLCK;
  record.l_start = 4;
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::fcntl(descriptor, F_SETLK, &record), 0);
  const auto said = two_say(R"C(
    void body(int n) {
      struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
      if (n == 0) lock(fd, F_SETLK, F_RDLCK, 2 + me, 1);
      if (n == 1) l.l_len = 4;
      if (n == 2) l.l_start = 4;
      if (n != 0) fcntl(fd, F_GETLK, &l);
      if (n == 1) say("%ld %d ", (long)l.l_start, l.l_pid == pid_of_other());
      if (n == 2) say("%ld %d", (long)l.l_start, l.l_pid == getppid());
    })C",
                            3, file);
  EXPECT_EQ(said[0], "0 3 1 4 1");
  EXPECT_EQ(said[1], "0 2 1 4 1");
  ::close(descriptor);
}

TEST_F(RecordLocks, ClosingAnyDescriptorOfTheFileGivesThemUp) {
  const auto said = two_say(R"C(
    void body(int n) {
      FILE* stream;
      switch (n) {
        case 0: if (me == 0) { lock(fd, F_SETLK, F_WRLCK, 0, 0); close(open("/dev/null", O_RDONLY)); } break;
        case 1: if (me == 1) lock(fd, F_SETLK, F_WRLCK, 0, 0); break;
        case 2: if (me == 0) close(open(path, O_RDONLY)); break;
        case 3: if (me == 1) lock(fd, F_SETLK, F_WRLCK, 0, 0); break;
        case 4: if (me == 1) { stream = fopen(path, "r+"); fputs("written", stream); fclose(stream); } break;
        case 5: if (me == 0) lock(fd, F_SETLK, F_WRLCK, 0, 0); break;
      }
    })C",
                            6, file_of_ten_bytes("b"));
  EXPECT_EQ(said[0], "0 0 ");
  EXPECT_EQ(said[1], "-1 0 ");
}

TEST_F(RecordLocks, LockfCountsFromThePosition) {
  const auto said = two_say(R"C(
    void body(int n) {
      switch (n) {
        case 0: lseek(fd, me == 0 ? 4 : 2, SEEK_SET);
                if (me == 0) say("%d ", lockf(fd, F_LOCK, 2)); break;
        case 1: if (me == 1) { say("%d ", lockf(fd, F_TEST, 2)); say("%d ", lockf(fd, F_TEST, 3)); ended(lockf(fd, F_TLOCK, 0), EAGAIN);
                               say("%d ", lockf(fd, F_TLOCK, 2)); } break;
        case 2: if (me == 0) { say("%d ", lockf(fd, F_TEST, 6)); say("%d ", lockf(fd, F_TEST, -3)); say("%d ", lockf(fd, F_ULOCK, 0)); } break;
        case 3: if (me == 1) { say("%d ", lockf(fd, F_LOCK, 0)); ended(lockf(fd, 77, 0), EINVAL); } break;
      }
    })C",
                            4, file_of_ten_bytes("c"));
  EXPECT_EQ(said[0], "0 0 -1 0 ");
  EXPECT_EQ(said[1], "0 -1 -1 1 0 0 -1 1 ");
}

TEST_F(RecordLocks, WhatCannotBeLockedIsAnErrorAsInAProcess) {
  const std::string file = file_of_ten_bytes("d");
  expect_private(R"C(
    #include <fcntl.h>
    void step(int n) {
      struct flock l = {.l_type = n == 1 ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
      int fd = open(getenv("FILE_NAME"), n == 0 ? O_RDONLY : n == 1 ? O_WRONLY : O_RDWR);
      if (n == 2) close(fd);
      if (n == 3) l.l_type = 99;
      if (n == 4) l.l_start = -1;
      if (n == 5) { close(fd); fd = open("/dev/null", O_RDWR); }
      ended(fcntl(fd, F_SETLK, &l), n < 3 ? EBADF : EINVAL);
      say("%d %d\n", fcntl(fd, F_GETFD), fcntl(fd, F_SETFD, FD_CLOEXEC));
      if (n != 2) close(fd);
    })C",
                 6, {"FILE_NAME=" + file});
}

TEST_F(RecordLocks, AnEndedInstanceHoldsNone) {
  const std::string file = file_of_ten_bytes("e");
  two_say("void body(int n) { if (me == 0) lock(fd, F_SETLK, F_WRLCK, 0, 0); }", 1, file);
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  struct flock record {};
  record.l_type = F_WRLCK;
  EXPECT_EQ(::fcntl(descriptor, F_OFD_SETLK, &record), 0);
  ::close(descriptor);
}

class Silent : public OutputSink {
 public:
  void write(std::uint32_t, Stream, std::span<const char>) override {}
  void flush(std::uint32_t, Stream) override {}
  int input(std::uint32_t) override { return -1; }
  void ended(std::uint32_t, int) override {}
  void warn(const std::string&) override {}
};

class RecordLocksOfCells : public testing::TestWithParam<Shape> {
 protected:
  /// All cells count in two files, one after the other. `lock` and `unlock` are what they do with the lock `l` of the
  /// file `at`, which is the second one where `i` is odd.
  void expect_turns(const std::string& lock, const std::string& unlock) {
    const std::string program = shop.compile(R"C(
      #include <fcntl.h>
      #include <stdio.h>
      #include <stdlib.h>
      #include <string.h>
      #include <sys/file.h>
      #include <sys/syscall.h>
      #include <unistd.h>
      static int lock(int i, int at, struct flock* l) { return )C" +
                                                 lock + R"C(; }
      static int unlock(int i, int at, struct flock* l) { return )C" +
                                                 unlock + R"C(; }
      int main(int n, char** a) {
        int files[] = {open(a[1], O_RDWR), open(a[2], O_RDWR)};
        for (int i = 0; i < 20; ++i) {
          char text[16] = "";
          struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
          int at = files[i % 2];
          if (lock(i, at, &l)) return 1;
          pread(at, text, 15, 0);
          usleep(10);
          snprintf(text, sizeof text, "%-10d", atoi(text) + 1);
          pwrite(at, text, 10, 0);
          l.l_type = F_UNLCK;
          if (unlock(i, at, &l)) return 2;
        }
        return 0;
      })C",
                                             {"-shared", "-O1", "-w", "-D_GNU_SOURCE"}, "p.so");
    const std::string counter = shop.path("counter");
    const std::string beside = shop.path("beside");
    for (const std::string& each : {counter, beside}) std::ofstream(each) << "0         ";
    Machine machine(options_of(GetParam()));
    Silent sink;
    ProgramRun what;
    what.file = program;
    what.arguments = {"program", counter, beside};
    const Report report = run_program(machine, what, sink);
    EXPECT_EQ(report.exit_status, 0) << report.reason;
    const int cells = static_cast<int>(GetParam().cells.nx * GetParam().cells.ny);
    for (const std::string& each : {counter, beside}) {
      int count = 0;
      std::ifstream(each) >> count;
      EXPECT_EQ(count, 10 * cells) << each;
    }
  }

  Workshop shop;
};

// Cells on one thread wait for each other's locks, so a waiting cell must let the holder run.
TEST_P(RecordLocksOfCells, WaitersGetTheirTurn) {
  expect_turns("i % 2 ? flock(at, LOCK_EX) : fcntl(at, F_SETLKW, l)",
               "i % 2 ? flock(at, LOCK_UN) : fcntl(at, F_SETLK, l)");
}

TEST_P(RecordLocksOfCells, WaitersForLocksOfOpenFilesGetTheirTurn) {
  expect_turns("i % 2 ? syscall(SYS_fcntl, at, F_OFD_SETLKW, l) : fcntl(at, F_OFD_SETLKW, l)",
               "fcntl(at, F_OFD_SETLK, l)");
}

INSTANTIATE_TEST_SUITE_P(Shapes, RecordLocksOfCells,
                         testing::Values(Shape{{1, 1}, 1}, Shape{{4, 1}, 1}, Shape{{6, 1}, 2},
                                         Shape{{3, 1}, Options::threads_per_cell}),
                         testing_support::shape_name);

}  // namespace
}  // namespace aplib::loader::test
