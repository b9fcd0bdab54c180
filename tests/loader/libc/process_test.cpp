// SPDX-License-Identifier: MIT
// Working directory, umask, children, names, and calls that are refused because several programs share the process.
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <thread>

#include "side_by_side.hpp"

namespace {

std::atomic<int> masks_of_none{0};

}  // namespace

/// In place of libc's, for the library and for us. Every thread that shares the umask has it meanwhile.
extern "C" mode_t umask(mode_t mask) noexcept {
  if (mask == 0) ++masks_of_none;
  return static_cast<mode_t>(::syscall(SYS_umask, mask));
}

namespace aplib::loader::test {
namespace {

class LibcProcess : public SideBySide {
 protected:
  /// Skips where the system forbids threads their own directory, as the program has reported.
  static bool directories_forbidden(const Side& side) {
    return std::ranges::any_of(side.warnings,
                               [](const std::string& text) { return text.find("unshare") != text.npos; });
  }
};

TEST_F(LibcProcess, EachProgramHasItsWorkingDirectory) {
  std::filesystem::create_directories(shop.folder() + "/a/deep");
  std::filesystem::create_directories(shop.folder() + "/b");
  shop.write("file", "x");
  const std::string before = std::filesystem::current_path().string();
  const auto in = [this](const char* name) {
    return Side{{"PATH=/usr/bin:/bin", "TOP=" + shop.folder(), std::string("NAME=") + name}};
  };
  const std::vector<Side> sides = by_turns(R"C(
    #include <fcntl.h>
    #include <sys/stat.h>
    void step(int n) {
      char text[4096];
      int file;
      switch (n) {
        case 0: say("%d ", chdir(getenv("TOP"))); break;
        case 1: say("%d ", chdir(getenv("NAME"))); break;
        case 2: say("%s ", strrchr(getcwd(text, sizeof text), '/')); break;
        case 3: file = open("made-here", O_CREAT | O_WRONLY, 0600); say("%d ", file >= 0); close(file); break;
        case 4: ended(chdir("missing"), ENOENT); ended(chdir("../file"), ENOTDIR); break;
        case 5: file = open("..", O_RDONLY | O_DIRECTORY); say("%d ", fchdir(file)); close(file); ended(fchdir(-100), EBADF); break;
        case 6: say("%d ", access("file", F_OK)); break;
        case 7: { char* name = get_current_dir_name(); say("%d ", strcmp(name, getenv("TOP"))); free(name);
                  setenv("PWD", "/nonsense", 1); name = get_current_dir_name(); say("%d", strcmp(name, getenv("TOP"))); free(name); break; }
      }
    })C",
                                           8, {in("a"), in("b")});
  EXPECT_EQ(std::filesystem::current_path().string(), before) << "the process's own directory";
  if (directories_forbidden(sides[0]))
    GTEST_SKIP() << "needs a working directory for each thread (unshare): " << sides[0].warnings[0];
  EXPECT_EQ(sides[0].said, "0 0 /a 1 -1 1 -1 1 0 -1 1 0 0 0");
  EXPECT_EQ(sides[1].said, "0 0 /b 1 -1 1 -1 1 0 -1 1 0 0 0");
  EXPECT_TRUE(std::filesystem::exists(shop.folder() + "/a/made-here"));
  EXPECT_TRUE(std::filesystem::exists(shop.folder() + "/b/made-here"));
  EXPECT_EQ(sides[0].warnings, std::vector<std::string>{});
}

// Where both work in one folder nothing is exchanged between them, until one of them leaves it, or walks.
TEST_F(LibcProcess, ProgramsThatWorkInOneDirectoryLeaveItApart) {
  std::filesystem::create_directories(shop.folder() + "/one/below");
  const std::string source = R"C(
    #define _XOPEN_SOURCE 700
    #include <ftw.h>
    #include <unistd.h>
    static int seen;
    static int visit(const char* path, const struct stat* status, int kind, struct FTW* at) { return ++seen, 0; }
    void step(int n) {
      char text[4096];
      int leaves = getenv("LEAVES") != NULL;
      switch (n) {
        case 0: say("%d ", chdir(getenv("TOP"))); break;
        case 1: case 3: case 5: case 7: say("%s ", strrchr(getcwd(text, sizeof text), '/')); break;
        case 2: if (leaves) say("%d ", chdir("below")); break;
        case 4: if (leaves) say("%d ", chdir("..")); break;
        case 6: if (leaves) { n = nftw(".", visit, 4, FTW_CHDIR); say("%d %d ", n, seen); } break;
      }
    })C";
  const std::string top = "TOP=" + shop.folder() + "/one";
  const std::vector<Side> sides = by_turns(source, 8, {Side{{top}}, Side{{top, "LEAVES=1"}}, Side{{top}}});
  if (directories_forbidden(sides[0]))
    GTEST_SKIP() << "needs a working directory for each thread (unshare): " << sides[0].warnings[0];
  EXPECT_EQ(sides[0].said, "0 /one /one /one /one ");
  EXPECT_EQ(sides[1].said, "0 /one 0 /below 0 /one 0 2 /one ");
  EXPECT_EQ(sides[2].said, "0 /one /one /one /one ");
}

TEST_F(LibcProcess, ADescriptorIsGivenBackForEachDirectory) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const char* source = "void step(int n) { say(\"%d\", chdir(\"/\")); }";
  const Side first = by_turns(source, 1, {Side{}})[0];
  if (directories_forbidden(first))
    GTEST_SKIP() << "needs a working directory for each thread (unshare): " << first.warnings[0];
  const auto before = count();
  by_turns(source, 5, {Side{}, Side{}, Side{}});
  // The program's file stays open as long as it may be loaded again.
  EXPECT_LE(count(), before + 1);
}

/// From here on, unshare() fails with EPERM in this process, as with container profiles.
bool forbid_unshare() {
  std::array program{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(LibcProcess, WhereThreadsCannotHaveADirectoryOfTheirOwnChdirFailsAndSaysWhatToAllow) {
  const std::string source = R"C(
    #include <sys/stat.h>
    void step(int n) {
      char before[4096], after[4096];
      getcwd(before, sizeof before);
      ended(chdir("/"), EPERM);
      say("%d ", strcmp(before, getcwd(after, sizeof after)));
      umask(0);
      umask(077);
    })C";
  const auto check = [&] {
    if (!forbid_unshare()) std::_Exit(77);
    const Side side = by_turns(source, 1, {Side{}})[0];
    const bool warned = side.warnings.size() == 3 && side.warnings[0].starts_with("chdir: ") &&
                        side.warnings[0].find("unshare(CLONE_FS)") != std::string::npos &&
                        side.warnings[1].starts_with("umask: ");
    std::fputs((side.said + '\n').c_str(), stderr);
    std::_Exit(side.said == "-1 1 0 " && warned ? 0 : 1);
  };
  // On a new thread, because this one may already have its own directory.
  EXPECT_EXIT(std::thread(check).join(), ::testing::ExitedWithCode(0), "");
}

TEST_F(LibcProcess, EachProgramHasItsUmask) {
  const mode_t before = umask(022);
  const std::string source = R"C(
    #include <fcntl.h>
    #include <sys/stat.h>
    void step(int n) {
      struct stat status;
      int mask = strtol(getenv("MASK"), NULL, 8);
      char* name = getenv("FILE_NAME");
      switch (n) {
        case 0: say("%o ", umask(mask)); break;
        case 1: close(open(name, O_CREAT | O_WRONLY, 0777)); stat(name, &status); say("%o ", status.st_mode & 0777); break;
        case 2: say("%o ", umask(022)); say("%o", umask(022)); break;
      }
    })C";
  const std::vector<Side> sides = by_turns(source, 3,
                                           {Side{{"MASK=077", "FILE_NAME=" + shop.folder() + "/private"}},
                                            Side{{"MASK=002", "FILE_NAME=" + shop.folder() + "/group"}},
                                            Side{{"MASK=022", "FILE_NAME=" + shop.folder() + "/usual"}}});
  EXPECT_EQ(umask(before), 022U) << "the process's own";
  EXPECT_EQ(masks_of_none, 0) << "files that another thread makes meanwhile would be open to everybody";
  if (directories_forbidden(sides[0]))
    GTEST_SKIP() << "needs a working directory for each thread (unshare): " << sides[0].warnings[0];
  EXPECT_EQ(sides[0].said, "22 700 77 22");
  EXPECT_EQ(sides[1].said, "22 775 2 22");
  EXPECT_EQ(sides[2].said, "22 755 22 22");
}

TEST_F(LibcProcess, ForkAndExecAreRefusedWithReasonAndRemedy) {
  const std::vector<Side> sides = by_turns(R"C(
    #include <pty.h>
    #include <sched.h>
    #include <spawn.h>
    static int nothing(void* ignored) { return 0; }
    void step(int n) {
      char* words[] = {"sh", NULL};
      int results[] = {fork(), vfork(), _Fork(), daemon(0, 0), forkpty(&n, NULL, NULL, NULL), clone(nothing, words + 1, 0, NULL),
                       execv("/bin/sh", words), execve("/bin/sh", words, words + 1), execvp("sh", words), execvpe("sh", words, words + 1),
                       execl("/bin/sh", "sh", NULL), execlp("sh", "sh", NULL), execle("/bin/sh", "sh", NULL, words + 1), fexecve(0, words, words + 1)};
      for (unsigned i = 0; i < sizeof results / sizeof *results; ++i) say("%d ", results[i]);
      say("%d", errno == ENOSYS);
    })C",
                                           1, {Side{}, Side{}});
  EXPECT_EQ(sides[0].said, "-1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 1");
  ASSERT_EQ(sides[1].warnings.size(), 14U);
  EXPECT_TRUE(sides[1].warnings[0].starts_with("fork: ")) << sides[1].warnings[0];
  for (const std::string& text : sides[1].warnings) EXPECT_NE(text.find("posix_spawn()"), text.npos) << text;
}

TEST_F(LibcProcess, EachProgramHasItsBreak) {
  expect_private(R"C(
    static char* first;
    void step(int n) {
      switch (n) {
        case 0: first = sbrk(0); say("%d ", sbrk(100000) == first); memset(first, 7, 100000); break;
        case 1: say("%d %d ", (char*)sbrk(0) - first, first[99999]); break;
        case 2: say("%d ", brk(first + 10) == 0); say("%d ", sbrk(100000) == first + 10); break;
        case 3: say("%d %d %d ", first[9], first[10], first[50000]); break;
        case 4: ended(sbrk((intptr_t)1 << 60) == (void*)-1, ENOMEM); ended(brk((void*)-1), ENOMEM); break;
      }
    })C",
                 5);
}

// Calls that libc has functions for.
TEST_F(LibcProcess, CallsByNumberDoWhatFunctionsDo) {
  const std::string source = R"C(
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    #include <sched.h>
    static int caught;
    static void handler(int signal) { ++caught; }
    struct action { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; };
    void step(int n) {
      const unsigned long one = 1UL << (SIGUSR1 - 1);
      struct action action = {handler, 0x04000000 | SA_RESTART, NULL, one}, old = {0};
      unsigned long mask = 0;
      char text[300];
      switch (n) {
        case 0: say("%d ", syscall(SYS_chdir, getenv("FOLDER"))); break;
        case 1: say("%s ", getcwd(text, 300)); syscall(SYS_umask, atoi(getenv("MASK"))); break;
        case 2: say("%ld ", syscall(SYS_umask, 0)); umask(022); break;
        case 3: say("%ld ", syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8)); break;
        case 4: say("%ld ", syscall(SYS_rt_sigaction, SIGUSR1, NULL, &old, 8)); say("%d %d %d ", old.handler == handler, (old.flags & SA_RESTART) != 0, old.mask == one); break;
        case 5: say("%ld ", syscall(SYS_rt_sigprocmask, SIG_BLOCK, &one, &mask, 8)); say("%lu ", mask & one); break;
        case 6: raise(SIGUSR1); syscall(SYS_rt_sigpending, &mask, 8); say("%d %d ", caught, mask == one); break;
        case 7: syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &one, NULL, 8); say("%d ", caught); break;
        case 8: say("%ld %d ", syscall(SYS_getpriority, PRIO_PROCESS, 0) == 20 - getpriority(PRIO_PROCESS, 0), syscall(SYS_getpid) == getpid()); break;
        case 9: say("%d ", syscall(SYS_sched_getaffinity, 0, 256, text) > 0); break;
        case 10: say("%d ", syscall(SYS_brk, 0) == (long)sbrk(0)); break;
        case 11: say("%ld ", syscall(SYS_write, 1, "", 0)); ended(syscall(SYS_write, 77, "", 1), EBADF); break;
        case 12: ended(syscall(SYS_setitimer, 77, NULL, NULL), EINVAL); ended(syscall(SYS_mprotect, 1, 1, 0), EINVAL); break;
        case 13: ended(syscall(SYS_munmap, 1, 1), EINVAL); ended(syscall(SYS_close, 77), EBADF); break;
        case 14: ended(syscall(SYS_msgsnd, -1, text, 1, 0), EINVAL); ended(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &one, NULL, 16), EINVAL); break;
        case 15: ended(syscall(SYS_clock_nanosleep, 77, 0, NULL, NULL), EINVAL); ended(syscall(SYS_rt_sigsuspend, NULL, 8), EFAULT); break;
        case 16: { siginfo_t info = {0}; info.si_code = SI_QUEUE; caught = 0; say("%ld ", syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info)); say("%d ", caught); break; }
      }
    })C";
  const auto in = [](const char* folder, const char* mask) {
    return Side{{"PATH=/usr/bin:/bin", std::string("FOLDER=") + folder, std::string("MASK=") + mask}};
  };
  const std::vector<Side> sides =
      by_turns("#include <signal.h>\n#include <sys/resource.h>\n" + source, 17, {in("/usr", "18"), in("/etc", "63")});
  if (directories_forbidden(sides[0])) GTEST_SKIP() << "threads cannot have a directory of their own here";
  const std::string rest = " 0 0 1 1 1 0 0 0 1 1 1 1 1 1 0 -1 1 -1 1 -1 1 -1 1 -1 1 -1 1 -1 1 -1 1 -1 1 0 1 ";
  EXPECT_EQ(sides[0].said, "0 /usr 18" + rest);
  EXPECT_EQ(sides[1].said, "0 /etc 63" + rest);
  const Side refused = by_turns(R"C(
    #include <sys/syscall.h>
    void step(int n) { ended(syscall(SYS_fork), ENOSYS); ended(syscall(SYS_execve, "/bin/true", NULL, NULL), ENOSYS); })C",
                                1, {Side{}})[0];
  EXPECT_EQ(refused.said, "-1 1 -1 1 ");
  EXPECT_EQ(refused.warnings.size(), 2U);
}

TEST_F(LibcProcess, WhatWouldBeSoForOtherCellsIsRefused) {
  const std::vector<Side> sides = by_turns(R"C(
    #include <linux/seccomp.h>
    #include <sched.h>
    #include <sys/personality.h>
    #include <sys/syscall.h>
    void step(int n) {
      const struct sched_param none = {0}, high = {5};
      ended(unshare(CLONE_NEWNS), EPERM);
      ended(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL), EPERM);
      ended(sched_setscheduler(0, SCHED_FIFO, &high), EPERM);
      const int now = personality(0xffffffff);
      ended(personality(now ^ ADDR_NO_RANDOMIZE), EPERM);
      say("%d %d %d", sched_setparam(0, &none), personality(now) == now, unshare(0));
    })C",
                                           1, {Side{}, Side{}});
  EXPECT_EQ(sides[0].said, "-1 1 -1 1 -1 1 -1 1 0 1 0");
  ASSERT_EQ(sides[1].warnings.size(), 4U);
  for (const std::string& text : sides[1].warnings) EXPECT_NE(text.find("--processes"), text.npos) << text;
}

TEST_F(LibcProcess, ChildrenIgnoreWhatTheirProgramIgnores) {
  expect_private(R"C(
    #include <signal.h>
    #include <spawn.h>
    #include <sys/wait.h>
    static int run(const char* command) { const int status = system(command); return WIFSIGNALED(status) ? WTERMSIG(status) : 100 + WEXITSTATUS(status); }
    void step(int n) {
      char* words[] = {"sh", "-c", "kill -USR1 $$; kill -TERM $$; exit 3", NULL};
      posix_spawnattr_t defaults;
      sigset_t set;
      pid_t child;
      int status;
      switch (n) {
        case 0: say("%d ", run("kill -USR1 $$")); break;
        case 1: signal(SIGUSR1, SIG_IGN); say("%d ", run("kill -USR1 $$; exit 5")); break;
        case 2: signal(SIGTERM, SIG_IGN); say("%d ", posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ)); waitpid(child, &status, 0); say("%d ", WEXITSTATUS(status)); break;
        case 3: posix_spawnattr_init(&defaults); sigemptyset(&set); sigaddset(&set, SIGTERM); posix_spawnattr_setsigdefault(&defaults, &set); posix_spawnattr_setflags(&defaults, POSIX_SPAWN_SETSIGDEF);
          say("%d ", posix_spawnp(&child, "sh", NULL, &defaults, words, environ)); waitpid(child, &status, 0); say("%d ", WTERMSIG(status)); break;
        case 4: signal(SIGUSR1, SIG_DFL); say("%d ", run("kill -USR1 $$")); break;
      }
    })C",
                 5);
}

TEST_F(LibcProcess, ChildrenHaveTheProgramsLimitsAndPriority) {
  const Side side = by_turns(R"C(
    #include <sys/resource.h>
    #include <sys/wait.h>
    void step(int n) {
      struct rlimit limit = {123, 456};
      setrlimit(RLIMIT_NOFILE, &limit);
      nice(3);
      const int status = system("sleep 0.2; test $(ulimit -n) = 123 && test $(ps -o ni= -p $$) -ge 3");
      say("%d", WEXITSTATUS(status));
    })C",
                             1, {Side{}})[0];
  EXPECT_EQ(side.said, "0");
}

TEST_F(LibcProcess, WordsAndNamesAreExpandedFromTheProgramsEnvironment) {
  const std::string source = R"C(
    #include <glob.h>
    #include <wordexp.h>
    void step(int n) {
      wordexp_t words;
      glob_t found;
      switch (n) {
        case 0: say("%d ", wordexp("$WHO ~/x", &words, 0)); say("%s %s ", words.we_wordv[0], words.we_wordv[1]); wordfree(&words); break;
        case 1: say("%d ", wordexp("$(echo $WHO) ${NEW:=value}", &words, 0)); say("%s %s ", words.we_wordv[0], getenv("NEW")); wordfree(&words); break;
        case 2: say("%d ", glob("~", GLOB_TILDE, NULL, &found)); say("%s ", found.gl_pathv[0]); globfree(&found); break;
        case 3: { char* name = tempnam(NULL, "x"); say("%d", strncmp(name, getenv("TMPDIR"), strlen(getenv("TMPDIR")))); free(name); break; }
      }
    })C";
  const auto of = [](const char* who, const char* folder) {
    return Side{{"PATH=/usr/bin:/bin", std::string("WHO=") + who, std::string("HOME=") + folder,
                 std::string("TMPDIR=") + folder}};
  };
  const std::vector<Side> sides = by_turns(source, 4, {of("first", "/tmp"), of("second", "/var/tmp")});
  EXPECT_EQ(sides[0].said, "0 first /tmp/x 0 first value 0 /tmp 0");
  EXPECT_EQ(sides[1].said, "0 second /var/tmp/x 0 second value 0 /var/tmp 0");
}

TEST_F(LibcProcess, ChildrenSeeTheProgramsEnvironmentDirectoryAndInput) {
  std::filesystem::create_directories(shop.folder() + "/tools");
  const std::string tool = shop.write("tools/tool", "#!/bin/sh\nexit $((40 + $1))\n");
  ASSERT_EQ(::chmod(tool.c_str(), 0755), 0);
  const std::string source = R"C(
    #include <spawn.h>
    #include <sys/wait.h>
    static FILE* stream;
    void step(int n) {
      char text[300] = "";
      int status = -1;
      pid_t child;
      char* words[] = {"tool", "2", NULL};
      switch (n) {
        case 0: setenv("WHO", getenv("NAME"), 1); say("%d ", system(NULL) != 0); break;
        case 1: status = system("test \"$WHO\" = \"$NAME\" && exit 7"); say("%d ", WEXITSTATUS(status)); break;
        case 2: status = system("kill -9 $$"); say("%d ", WIFSIGNALED(status) && WTERMSIG(status) == 9); break;
        case 3: stream = popen("echo $WHO; exit 3", "r"); break;
        case 4: say("%s", fgets(text, 300, stream)); break;
        case 5: status = pclose(stream); say("%d ", WEXITSTATUS(status)); break;
        case 6: stream = popen("read word; test \"$word\" = \"$WHO\"", "we"); fprintf(stream, "%s\n", getenv("WHO")); break;
        case 7: status = pclose(stream); say("%d ", WEXITSTATUS(status)); break;
        case 8: ended(popen("true", "x") == NULL, EINVAL); break;
        case 9: setenv("PATH", getenv("TOOLS"), 1); say("%d ", posix_spawnp(&child, "tool", NULL, NULL, words, environ)); waitpid(child, &status, 0); say("%d ", WEXITSTATUS(status)); break;
        case 10: say("%d ", posix_spawnp(&child, "no-such-tool", NULL, NULL, words, environ) == ENOENT); break;
        case 11: setenv("PATH", "/usr/bin:/bin", 1); stream = popen("cat", "r"); say("%s", fgets(text, 300, stream) ? text : "(end)"); pclose(stream); break;
      }
    })C";
  const auto surroundings = [this](const char* name, const char* input) {
    return Side{{"PATH=/usr/bin:/bin", std::string("NAME=") + name, "TOOLS=/nowhere:" + shop.folder() + "/tools"},
                input};
  };
  const std::vector<Side> sides =
      by_turns(source, 12, {surroundings("first", "for first\n"), surroundings("second", "")});
  EXPECT_EQ(sides[0].said, "1 7 1 first\n3 0 1 1 0 42 1 for first\n");
  EXPECT_EQ(sides[1].said, "1 7 1 second\n3 0 1 1 0 42 1 (end)");
}

TEST_F(LibcProcess, ChildrenStartInTheProgramsDirectory) {
  const std::string source = R"C(
    void step(int n) {
      char text[300] = "";
      if (n == 0) say("%d ", chdir(getenv("TOP")));
      if (n == 1) { FILE* stream = popen("pwd -P", "r"); fgets(text, 300, stream); pclose(stream); say("%s", text); }
    })C";
  const std::vector<Side> sides = by_turns(
      source, 2, {Side{{"PATH=/usr/bin:/bin", "TOP=" + shop.folder()}}, Side{{"PATH=/usr/bin:/bin", "TOP=/"}}});
  if (directories_forbidden(sides[0]))
    GTEST_SKIP() << "needs a working directory for each thread (unshare): " << sides[0].warnings[0];
  EXPECT_EQ(sides[0].said, "0 " + shop.folder() + "\n");
  EXPECT_EQ(sides[1].said, "0 /\n");
}

TEST_F(LibcProcess, ChildrenWriteWhereTheProgramsStreamsLead) {
  const std::string source = R"C(
    #include <fcntl.h>
    #include <spawn.h>
    #include <sys/wait.h>
    void step(int n) {
      char* words[] = {"sh", "-c", "echo spawned $NAME", NULL};
      pid_t child;
      int file;
      switch (n) {
        case 0: say("%d ", freopen(getenv("OUT"), "w", stdout) != NULL); break;
        case 1: printf("printed\n"); fflush(stdout); say("%d ", system("echo child of $NAME")); break;
        case 2: say("%d ", posix_spawnp(&child, "sh", NULL, NULL, words, environ)); waitpid(child, &n, 0); break;
        case 3: close(0); say("%d", WEXITSTATUS(system("read x"))); break;
      }
    })C";
  const auto surroundings = [this](const std::string& name) {
    return Side{{"PATH=/usr/bin:/bin", "NAME=" + name, "OUT=" + shop.folder() + "/" + name}};
  };
  const std::vector<Side> sides = by_turns(source, 4, {surroundings("one"), surroundings("two")});
  for (const char* name : {"one", "two"}) {
    std::stringstream text;
    text << std::ifstream(shop.folder() + "/" + name).rdbuf();
    EXPECT_EQ(text.str(), fmt::format("printed\nchild of {0}\nspawned {0}\n", name));
  }
  EXPECT_TRUE(sides[0].said.starts_with("1 0 0 ") && sides[0].said != "1 0 0 0") << sides[0].said;
}

TEST_F(LibcProcess, WaitingForAnyChildSeesTheProgramsOwn) {
  const std::string source = R"C(
    #include <signal.h>
    #include <spawn.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    static pid_t children[2];
    static pid_t spawn(const char* command) {
      char* words[] = {"sh", "-c", (char*)command, NULL};
      pid_t child = -1;
      posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ);
      return child;
    }
    void step(int n) {
      int status = -1;
      struct rusage usage;
      pid_t child;
      switch (n) {
        case 0: children[0] = spawn("exit $CODE"); break;
        case 1: child = wait(&status); say("%d %d ", child == children[0], WEXITSTATUS(status)); break;
        case 2: ended(wait(&status), ECHILD); break;
        case 3: children[0] = spawn("read x"); children[1] = spawn("exit $((CODE + 1))"); break;
        case 4: child = waitpid(children[1], &status, 0); say("%d %d ", child == children[1], WEXITSTATUS(status)); break;
        case 5: child = wait3(&status, 0, &usage); say("%d %d ", child == children[0], WEXITSTATUS(status)); break;
        case 6: children[0] = spawn("kill -STOP $$"); child = wait4(children[0], &status, WUNTRACED, NULL); say("%d ", child == children[0] && WIFSTOPPED(status));
                say("%d ", waitpid(-1, &status, WNOHANG)); kill(children[0], SIGKILL); child = waitpid(-1, NULL, 0); say("%d ", child == children[0]); break;
        case 7: children[0] = spawn("exit $CODE"); break;
        case 8: { siginfo_t info; say("%d ", waitid(P_ALL, 0, &info, WEXITED)); say("%d %d ", info.si_pid == children[0], info.si_status); ended(waitid(P_ALL, 0, &info, WEXITED), ECHILD); break; }
        case 9: children[0] = spawn("exit 1"); child = waitpid(0, NULL, 0); say("%d ", child == children[0]); ended(waitpid(-getpgrp(), NULL, 0), ECHILD); break;
      }
    })C";
  const auto surroundings = [](const char* code) { return Side{{"PATH=/usr/bin:/bin", std::string("CODE=") + code}}; };
  const std::vector<Side> sides = by_turns(source, 10, {surroundings("3"), surroundings("13")});
  EXPECT_EQ(sides[0].said, "1 3 -1 1 1 4 1 1 1 0 1 0 1 3 -1 1 1 -1 1 ");
  EXPECT_EQ(sides[1].said, "1 13 -1 1 1 14 1 1 1 0 1 0 1 13 -1 1 1 -1 1 ");
}

TEST_F(LibcProcess, TheProgramsNamesComeFromItsArguments) {
  const Side side = by_turns(R"C(
    extern const char *__progname, *__progname_full;
    void step(int n) { say("%s %s %s %s", program_invocation_name, program_invocation_short_name, __progname, __progname_full); })C",
                             1, {Side{}})[0];
  EXPECT_EQ(side.said, "./bin/program program program ./bin/program");
}

// Scratch files are named by it, and seeds are made of it.
TEST_F(LibcProcess, EachProgramHasAPidOfItsOwn) {
  const std::string source = R"C(
    #include <signal.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    static int caught;
    static void note(int signal, siginfo_t* info, void* context) { caught += info->si_pid == getpid(); }
    void step(int n) {
      struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
      char name[64];
      switch (n) {
        case 0: snprintf(name, sizeof name, "/proc/%d", getpid()); say("%d ", access(name, F_OK)); break;
        case 1: say("%d %d %d ", gettid() == getpid(), syscall(SYS_getpid) == getpid(), syscall(SYS_gettid) == getpid()); break;
        case 2: say("%d ", getppid() == syscall(SYS_getppid) && getppid() != getpid()); break;
        case 3: sigaction(SIGUSR1, &action, NULL); kill(getpid(), SIGUSR1); sigqueue(getpid(), SIGUSR1, (union sigval){0});
                tgkill(getpid(), gettid(), SIGUSR1); syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1); say("%d ", caught); break;
        case 4: say("%d %d ", kill(getpid(), 0), setpgid(0, 0)); say("%d %d ", getpgrp() == getpid(), getpgid(0) == getpid()); break;
        case 5: ended(setsid(), EPERM); break;
      }
    })C";
  EXPECT_EQ(by_turns(source, 6, {Side{}, Side{}})[1].said, "0 1 1 1 1 4 0 0 1 1 -1 1 ");
  const std::vector<Side> sides = by_turns("void step(int n) { say(\"%d\", getpid()); }", 1, {Side{}, Side{}});
  EXPECT_NE(sides[0].said, sides[1].said);
  EXPECT_NE(sides[0].said, fmt::format("{}", ::getpid()));
}

// One writes its pid into a file, as servers do, and the other sends a signal there.
TEST_F(LibcProcess, ASignalToTheOtherProgramIsCaughtThere) {
  const std::string source = R"C(
    #include <signal.h>
    static int caught;
    static void note(int signal) { ++caught; }
    void step(int n) {
      FILE* file;
      int pid = 0;
      if (getenv("SENDS") == NULL) {
        sigset_t none;
        sigemptyset(&none);
        if (n == 0) { signal(SIGUSR1, note); file = fopen(getenv("FILE"), "w"); fprintf(file, "%d", getpid()); fclose(file); }
        if (n == 2) sigprocmask(SIG_SETMASK, &none, NULL);
        if (n >= 1) say("%d ", caught);
      } else if (n == 1) {
        file = fopen(getenv("FILE"), "r"); fscanf(file, "%d", &pid); fclose(file);
        say("%d %d ", kill(pid, 0), kill(pid, SIGUSR1));
      }
    })C";
  const std::string file = "FILE=" + shop.folder() + "/pid";
  const std::vector<Side> sides = by_turns(source, 3, {Side{{file}}, Side{{file, "SENDS=1"}}});
  EXPECT_EQ(sides[0].said, "0 1 ");
  EXPECT_EQ(sides[1].said, "0 0 ");
}

// Each works while the other waits, on one thread.
TEST_F(LibcProcess, CpuTimeIsTheProgramsOwn) {
  const std::string source = R"C(
    #include <sys/resource.h>
    #include <sys/times.h>
    #include <time.h>
    static volatile double sink;
    static double of(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
    static double by_usage(int who) { struct rusage u; getrusage(who, &u);
      return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6; }
    static double most, least, all;
    static void note(double used) { if (used > most) most = used; if (used < least) least = used; }
    void step(int n) {
      if (getenv("WORKS") != NULL) for (double end = of(CLOCK_PROCESS_CPUTIME_ID) + 0.05; of(CLOCK_PROCESS_CPUTIME_ID) < end;) sink += 1;
      if (n < 3) return;
      struct tms t;
      times(&t);
      clockid_t which;
      clock_getcpuclockid(getpid(), &which);
      least = most = which == CLOCK_PROCESS_CPUTIME_ID ? of(which) : 0;
      note((double)clock() / CLOCKS_PER_SEC);
      note(by_usage(RUSAGE_SELF));
      note(by_usage(RUSAGE_THREAD));
      note(of(CLOCK_THREAD_CPUTIME_ID));
      say("%d %d", most < 0.1, least > 0.2 && (t.tms_utime + t.tms_stime) >= 0.19 * sysconf(_SC_CLK_TCK));
    })C";
  const std::vector<Side> sides = by_turns(source, 4, {Side{{"WORKS=1"}}, Side{}});
  EXPECT_EQ(sides[0].said, "0 1");
  EXPECT_EQ(sides[1].said, "1 0");
}

TEST_F(LibcProcess, AProgramClosesItsOwnDescriptorsOnly) {
  const std::string source = R"C(
    #include <dirent.h>
    #include <fcntl.h>
    #include <mntent.h>
    #include <mqueue.h>
    #include <sys/epoll.h>
    static int file, ends[2];
    static DIR* folder;
    static FILE *stream, *mounts;
    static mqd_t queue;
    void step(int n) {
      const int closes = getenv("CLOSES") != NULL;
      if (n == 0) { file = open(".", O_RDONLY); pipe(ends); stream = fopen("/dev/null", "w"); folder = opendir("/");
        char name[50];
        snprintf(name, sizeof name, "/aplib-%d-%d", getpid(), closes);
        queue = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
        mq_unlink(name);
        mounts = setmntent("/proc/self/mounts", "r");
      }
      if (n == 1 && closes) { for (int i = 3; i < 1000; ++i) close(i); closefrom(3); close_range(3, 500, 0); }
      if (n == 2) say("%d %d %d %d ", fcntl(file, F_GETFD) >= 0, write(ends[1], "x", 1) == 1, fputs("x", stream) >= 0 && fflush(stream) == 0, readdir(folder) != NULL);
      if (n == 2) say("%d %d ", queue < 0 || fcntl(queue, F_GETFD) >= 0, fcntl(fileno(mounts), F_GETFD) >= 0);
      if (n == 3 && closes) { file = open("/", O_RDONLY); say("%d ", close(file)); ended(close(file), EBADF); }
      if (n == 4 && !closes) { int other = dup(file); say("%d ", close(other)); ended(close(other), EBADF); say("%d", close(file)); }
      if (n == 4) closedir(folder);
      if (n == 4 && !closes) say(" %d %d", queue < 0 || mq_close(queue) == 0, endmntent(mounts));
    })C";
  const std::vector<Side> sides = by_turns(source, 5, {Side{}, Side{{"CLOSES=1"}}});
  EXPECT_EQ(sides[0].said, "1 1 1 1 1 1 0 -1 1 0 1 1");
  EXPECT_EQ(sides[1].said, "0 0 0 0 0 0 0 -1 1 ");
}

TEST_F(LibcProcess, WhatAProgramLeavesOpenIsClosedAtItsEnd) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const char* source = "#include <fcntl.h>\nvoid step(int n) { say(\"%d\", open(\"/\", O_RDONLY) >= 0); }";
  by_turns(source, 1, {Side{}});
  const auto before = count();
  EXPECT_EQ(by_turns(source, 5, {Side{}, Side{}})[1].said, "11111");
  EXPECT_LE(count(), before + 1);
}

// Limits, priority, cores, name: told back, and not the other's or the thread's.
TEST_F(LibcProcess, WhatAProgramSetsForItsProcessIsItsOwn) {
  const std::string source = R"C(
    #include <fcntl.h>
    #include <grp.h>
    #include <pthread.h>
    #include <sched.h>
    #include <sys/auxv.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    void step(int n) {
      struct rlimit limit;
      cpu_set_t all, one, now;
      char name[16], path[4096];
      int files[8];
      switch (n) {
        case 0: getrlimit(RLIMIT_NOFILE, &limit); limit.rlim_cur = 7; say("%d ", setrlimit(RLIMIT_NOFILE, &limit));
                getrlimit(RLIMIT_NOFILE, &limit); say("%d ", (int)limit.rlim_cur); break;
        case 1: for (int i = 0; i < 5; ++i) { errno = 0; files[i] = open("/", O_RDONLY); say("%d", files[i] >= 0 ? 0 : errno == EMFILE ? 1 : 2); }
                for (int i = 0; i < 4; ++i) close(files[i]); break;
        case 2: n = getpriority(PRIO_PROCESS, 0); say(" %d ", nice(3) == n + 3); say("%d ", getpriority(PRIO_PROCESS, getpid()) == n + 3); break;
        case 3: sched_getaffinity(0, sizeof all, &all); CPU_ZERO(&one);
                for (int i = 0; i < CPU_SETSIZE; ++i) if (CPU_ISSET(i, &all)) { CPU_SET(i, &one); break; }
                say("%d ", pthread_setaffinity_np(pthread_self(), sizeof one, &one)); CPU_ZERO(&all); ended(sched_setaffinity(0, sizeof all, &all), EINVAL);
                sched_getaffinity(getpid(), sizeof now, &now); say("%d ", CPU_EQUAL(&one, &now)); break;
        case 4: prctl(PR_SET_NAME, getenv("NAME")); break;
        case 5: prctl(PR_GET_NAME, name); say("%d ", strcmp(name, getenv("NAME"))); pthread_getname_np(pthread_self(), name, 16); say("%d ", strcmp(name, getenv("NAME"))); break;
        case 6: n = readlink("/proc/self/exe", path, sizeof path - 1); path[n] = 0; say("%d ", strcmp(path, (char*)getauxval(AT_EXECFN)));
                { char* real = realpath("/proc/self/exe", NULL); say("%s ", strrchr(real, '/')); free(real); } break;
        case 7: say("%d %d", setuid(geteuid()), setgid(getegid())); ended(setuid(12345), EPERM); break;
        case 8: { gid_t other = 12345, mine[100]; const int has = getgroups(100, mine); say("%d ", setgroups(has, mine)); ended(setgroups(1, &other), EPERM); ended(initgroups("root", 12345), EPERM); } break;
      }
    })C";
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  const int priority = getpriority(PRIO_PROCESS, 0);
  const std::vector<Side> sides = by_turns(source, 9, {Side{{"NAME=one"}}, Side{{"NAME=other"}}});
  for (const Side& side : sides) EXPECT_EQ(side.said, "0 7 00001 1 1 0 -1 1 1 0 0 0 /program.so 0 0-1 1 0 -1 1 -1 1 ");
  cpu_set_t after;
  sched_getaffinity(0, sizeof after, &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), priority);
}

TEST_F(LibcProcess, LimitsOfDescriptorsAreToldByAllNames) {
  expect_private(R"C(
    #include <sys/resource.h>
    #include <ulimit.h>
    void step(int n) {
      struct rlimit limit = {100, 200};
      setrlimit(RLIMIT_NOFILE, &limit);
      say("%ld %d %ld ", sysconf(_SC_OPEN_MAX), getdtablesize(), ulimit(4));
      say("%d %d ", sysconf(_SC_PAGESIZE) > 0, ulimit(UL_GETFSIZE) > 0);
      ended(ulimit(77), EINVAL);
    })C",
                 1);
}

TEST_F(LibcProcess, ItsGroupIsItselfAndItsChildren) {
  expect_private(R"C(
    #include <signal.h>
    #include <spawn.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    extern char** environ;
    static volatile int got;
    static void note(int signal) { got += signal; }
    void step(int n) {
      char* words[] = {"sleep", "100", NULL};
      pid_t child = -1;
      int status = 0;
      if (n == 0) setpgid(0, 0);
      signal(SIGTERM, note);
      posix_spawn(&child, "/bin/sleep", NULL, NULL, words, environ);
      const int sent = n == 0   ? killpg(getpgrp(), SIGTERM)
                       : n == 1 ? kill(0, SIGTERM)
                       : n == 2 ? kill(-getpid(), SIGTERM)
                       : n == 3 ? (int)syscall(SYS_kill, 0, SIGTERM)
                                : killpg(0, SIGTERM);
      say("%d %d ", sent, got);
      say("%d ", waitpid(child, &status, 0) == child);
      say("%d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
      ended(killpg(-5, SIGTERM), EINVAL);
    })C",
                 5);
}

// Of a process, it would be the tests' own.
TEST_F(LibcProcess, TheGroupThatItBeganInIsItselfAndItsChildren) {
  const auto sides = by_turns(R"C(
    #include <signal.h>
    static volatile int got;
    static void note(int signal) { got += signal; }
    void step(int n) {
      signal(SIGTERM, note);
      const int sent = n == 0 ? killpg(getpgrp(), SIGTERM) : kill(-getpgid(0), SIGTERM);
      say("%d %d\n", sent, got);
    })C",
                              2, {Side{}, Side{}});
  for (const Side& side : sides) EXPECT_EQ(side.said, "0 15\n0 30\n");
}

TEST_F(LibcProcess, MasksInOldWordsAreItsOwn) {
  expect_private(R"C(
    #include <signal.h>
    #include <sys/time.h>
    int old_sigpause(int) __asm__("sigpause");
    int __sigpause(int, int);
    static volatile int got;
    static void note(int signal) { got += signal; }
    static void soon(void) {
      struct itimerval time = {{0, 0}, {0, 20000}};
      setitimer(ITIMER_REAL, &time, NULL);
    }
    void step(int n) {
      signal(SIGUSR1, note);
      signal(SIGALRM, note);
      say("%d ", sigblock(sigmask(SIGUSR1) | sigmask(SIGALRM)));
      raise(SIGUSR1);
      say("%d %d ", got, siggetmask() == (sigmask(SIGUSR1) | sigmask(SIGALRM)));
      soon();
      ended(n == 0 ? sigpause(SIGALRM) : n == 1 ? __sigpause(SIGALRM, 1) : old_sigpause(sigmask(SIGUSR1)), EINTR);
      say("%d ", got);
      say("%d ", sigsetmask(0) == (sigmask(SIGUSR1) | sigmask(SIGALRM)));
      say("%d\n", got);
    })C",
                 3);
}

TEST_F(LibcProcess, CallsByNumberMeanItsDescriptors) {
  expect_private(R"C(
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    void step(int n) {
      char text[10] = "";
      const int saved[3] = {fcntl(0, F_DUPFD, 10), fcntl(1, F_DUPFD, 10), fcntl(2, F_DUPFD, 10)};
      #define CALL(...) say("%ld ", (long)syscall(__VA_ARGS__));
      CALL(SYS_close, 0)
      CALL(SYS_close, 0)
      CALL(SYS_memfd_create, "x", 0)
      CALL(SYS_write, 0, "abc", 3)
      CALL(SYS_lseek, 0, 1, SEEK_SET)
      CALL(SYS_dup2, 0, 2)
      CALL(SYS_read, 2, text, 9)
      say("%s ", text);
      close(0);
      CALL(SYS_dup, 2)
      CALL(SYS_dup3, 0, 1, O_CLOEXEC)
      say("%d ", fcntl(1, F_GETFD));
      close(2);
      CALL(SYS_write, 2, "x", 1)
      CALL(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY)
      for (int i = 0; i < 3; ++i) { dup2(saved[i], i); close(saved[i]); }
    })C",
                 1);
}

TEST_F(LibcProcess, CallsByNumberOfPiecesAndOfAChildsUsageDoWhatFunctionsDo) {
  expect_private(R"C(
    #include <fcntl.h>
    #include <spawn.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <sys/wait.h>
    void step(int n) {
      char text[10] = "", *words[] = {"sh", "-c", "exit 3", NULL};
      struct iovec in = {"abcdef", 6}, out = {text, 2}, nothing = {text, 0};
      struct rusage usage;
      siginfo_t info;
      pid_t child;
      const int saved = fcntl(0, F_DUPFD, 10);
      ended(syscall(SYS_pwritev, 1, &in, 1, 0L, 0L), ESPIPE);
      say("%ld ", syscall(SYS_pwritev2, 1, &nothing, 1, -1L, -1L, 0));
      close(0);
      syscall(SYS_memfd_create, "x", 0);
      say("%ld ", syscall(SYS_pwritev, 0, &in, 1, 1L, 0L));
      say("%ld ", syscall(SYS_pwritev2, 0, &in, 1, 3L, 0L, 0));
      say("%ld %s ", syscall(SYS_preadv, 0, &out, 1, 2L, 0L), text);
      say("%ld %s ", syscall(SYS_preadv2, 0, &out, 1, 5L, 0L, 0), text);
      dup2(saved, 0);
      close(saved);
      memset(&usage, 0xff, sizeof usage);
      posix_spawn(&child, "/bin/sh", NULL, NULL, words, NULL);
      say("%ld ", syscall(SYS_waitid, P_PID, child, &info, WEXITED, &usage));
      say("%d %d %d ", info.si_pid == child, info.si_status, usage.ru_maxrss > 0);
    })C",
                 1);
}

TEST_F(LibcProcess, FutexesWhoseOwnerIsAThreadAreRefused) {
  const Side side = by_turns(R"C(
    #include <linux/futex.h>
    #include <sys/syscall.h>
    static int word;
    void step(int n) { ended(syscall(SYS_futex, &word, FUTEX_LOCK_PI, 0, NULL), ENOSYS); say("%d", word); })C",
                             1, {Side{}})[0];
  EXPECT_EQ(side.said, "-1 1 0");
  ASSERT_EQ(side.warnings.size(), 1U);
  EXPECT_NE(side.warnings[0].find("--processes"), std::string::npos) << side.warnings[0];
}

/// Libc would send the signal to the process.
TEST_F(LibcProcess, ALookUpThatEndsWithASignalIsRefused) {
  const Side side = by_turns(R"C(
    #include <netdb.h>
    #include <signal.h>
    void step(int n) {
      struct gaicb one = {.ar_name = "127.0.0.1"};
      struct gaicb* list[] = {&one};
      struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
      ended(getaddrinfo_a(GAI_NOWAIT, list, 1, &event) == EAI_SYSTEM ? -1 : 0, ENOSYS);
      say("%d", getaddrinfo_a(GAI_WAIT, list, 1, NULL));
      if (one.ar_result != NULL) freeaddrinfo(one.ar_result);
    })C",
                             1, {Side{}})[0];
  EXPECT_EQ(side.said, "-1 1 0");
  ASSERT_EQ(side.warnings.size(), 1U);
  EXPECT_NE(side.warnings[0].find("--processes"), std::string::npos) << side.warnings[0];
}

}  // namespace
}  // namespace aplib::loader::test
