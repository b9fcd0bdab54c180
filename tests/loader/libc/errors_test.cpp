// SPDX-License-Identifier: MIT
// perror, err, error and assert of loaded programs.
#include <argp.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compile.hpp"
#include "running.hpp"
#include "side_by_side.hpp"

namespace aplib::loader::test {
namespace {

class ErrorsTest : public testing::Test {
 protected:
  /// Runs a program with the given main in an instance named "folder/tool".
  Ran run_main(const std::string& body) {
    const std::string source = fmt::format(
        "#define _GNU_SOURCE\n#include <assert.h>\n#include <err.h>\n#include <errno.h>\n#include <error.h>\n"
        "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
        "static void bye(void) {{ printf(\"bye\\n\"); }}\n"
        "static void name(void) {{ fputs(\"named\", stderr); }}\n"
        "int main() {{ {} }}",
        body);
    return run(Program::load(shop_.compile(source, {"-shared", "-w"}, fmt::format("p{}.so", count_++))),
               {"folder/tool"});
  }

 private:
  Workshop shop_;
  int count_ = 0;
};

TEST_F(ErrorsTest, PerrorAndPsignal) {
  const Ran ran =
      run_main("errno = ENOENT; perror(\"file\"); errno = EACCES; perror(NULL); psignal(SIGSEGV, \"why\"); return 0;");
  EXPECT_EQ(ran.err, "file: No such file or directory\nPermission denied\nwhy: Segmentation fault\n");
}

TEST_F(ErrorsTest, PrintingLeavesErrnoAlone) {
  const Ran ran = run_main(
      "errno = ENOENT; fprintf(stderr, \"a\\n\"); fputs(\"b\\n\", stdout); fflush(stdout); perror(\"x\"); return 0;");
  EXPECT_EQ(ran.err, "a\nx: No such file or directory\n");
}

TEST_F(ErrorsTest, WarnSaysTheProgramsName) {
  const Ran ran = run_main("errno = ENOENT; warn(\"a %d\", 1); warnx(\"b\"); errno = EACCES; warn(NULL); return 4;");
  EXPECT_EQ(ran.err, "tool: a 1: No such file or directory\ntool: b\ntool: Permission denied\n");
  EXPECT_EQ(ran.outcome.status, 4);
}

TEST_F(ErrorsTest, ErrEndsTheProgramByItsHandlers) {
  const Ran ran = run_main("atexit(bye); printf(\"hello\\n\"); errno = ENOENT; err(5, \"no %s\", \"luck\"); return 0;");
  EXPECT_EQ(ran.err, "tool: no luck: No such file or directory\n");
  EXPECT_EQ(ran.out, "hello\nbye\n");
  EXPECT_EQ(ran.outcome.status, 5);
  EXPECT_EQ(run_main("errx(6, \"end\");").outcome.status, 6);
}

TEST_F(ErrorsTest, ErrorCountsInEachInstance) {
  const Ran ran = run_main(
      "error(0, ENOENT, \"x %d\", 1); error_at_line(0, 0, \"f.c\", 12, \"y\"); error_one_per_line = 1;"
      "error_at_line(0, 0, \"f.c\", 13, \"z\"); error_at_line(0, 0, \"f.c\", 13, \"unseen\");"
      "error_print_progname = name; error(0, 0, \"w\"); error(error_message_count, 0, \"end\"); return 0;");
  EXPECT_EQ(ran.err,
            "folder/tool: x 1: No such file or directory\nfolder/tool:f.c:12: y\nfolder/tool:f.c:13: z\n"
            "named w\nnamed end\n");
  EXPECT_EQ(ran.outcome.status, 4);
  EXPECT_EQ(run_main("return error_message_count;").outcome.status, 0);
}

TEST_F(ErrorsTest, FailedAssertionsNameWhatFailed) {
  const Ran ran = run_main("assert(1 == 2); return 0;");
  EXPECT_EQ(ran.failed_status, 134);
  EXPECT_NE(ran.failure.find("tool: "), std::string::npos) << ran.failure;
  EXPECT_NE(ran.failure.find(": Assertion `1 == 2' failed."), std::string::npos) << ran.failure;
}

// --help and wrong options end the program, by its handlers, and say what libc says.
TEST_F(ErrorsTest, ArgpEndsTheProgramAlone) {
  const MayLeaveMemory parser;  // the program leaves argp_parse() by exit()
  Workshop shop;
  const std::string source = R"(
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
const char* argp_program_version = "tool 1.2";
const char* argp_program_bug_address = "<bugs@tool>";
static void bye(void) { printf("bye\n"); }
static struct argp_option options[] = {{"level", 'l', "N", 0, "Work so much"}, {"bad", 'b', 0, 0, "Complain"},
                                       {"fail", 'f', 0, 0, "Fail"}, {"inner", 'z', 0, 0, "Parse within"}, {"lever", 'r', 0, 0, "Pull"}, {0}};
static struct argp parser;
static error_t parse(int key, char* argument, struct argp_state* state) {
  switch (key) {
    case 'l': *(int*)state->input = atoi(argument); return 0;
    case 'b': argp_error(state, "no %s", "good"); return EINVAL;
    case 'f': argp_failure(state, 5, ENOENT, "file %d", 1); return EINVAL;
    case 'z': return argp_parse(&parser, 2, (char*[]){"/inner/one", "--none", NULL}, ARGP_NO_EXIT, 0, 0);
    case ARGP_KEY_ARG: return strcmp(argument, "refused") == 0 ? EINVAL : 0;
    case ARGP_KEY_END: if (state->arg_num > 1) argp_usage(state); return 0;
  }
  return ARGP_ERR_UNKNOWN;
}
static struct argp parser = {options, parse, "[WHAT]", "Works.\vMore of it."};
int main(int count, char** words) {
  int level = 0;
  atexit(bye);
  setvbuf(stdout, NULL, _IONBF, 0);
  const unsigned flags = getenv("FLAGS") ? atoi(getenv("FLAGS")) : 0;
  error_t error = argp_parse(&parser, count, words, flags, 0, &level);
  printf("level %d error %d\n", level, error);
  return 0;
})";
  const std::string alone = shop.compile(source, {"-w"}, "tool");
  const auto program = Program::load(shop.compile(source, {"-shared", "-w"}, "tool.so"));
  struct Call {
    std::vector<std::string> words;
    unsigned flags = 0;
  };
  const std::vector<Call> calls{{{"-l", "3"}},
                                {{"--help"}},
                                {{"--usage"}},
                                {{"-V"}},
                                {{"-b"}},
                                {{"--fail"}},
                                {{"--wrong"}},
                                {{"--wrong=1", "a"}},
                                {{"a", "-xl3"}},
                                {{"-l"}},
                                {{"--level"}},
                                {{"--lev"}},
                                {{"--bad=3"}},
                                {{"-z"}},
                                {{"refused"}},
                                {{"a", "b"}},
                                {{"-wrong"}, ARGP_LONG_ONLY},
                                {{"-level"}, ARGP_LONG_ONLY},
                                {{"-wrong"}, ARGP_NO_EXIT},
                                {{"--wrong"}, ARGP_NO_ERRS},
                                {{"-l"}, ARGP_NO_ERRS},
                                {{"-l"}, ARGP_IN_ORDER},
                                {{"-:"}}};
  for (const auto& [words, flags] : calls) {
    const std::string variable = fmt::format("FLAGS={}", flags);
    std::vector<std::string> command{alone};
    command.insert(command.end(), words.begin(), words.end());
    const auto said = [&](const std::string& redirections) {
      std::vector<std::string> whole{"env", variable, "sh", "-c", "\"$@\" " + redirections, "sh"};
      whole.insert(whole.end(), command.begin(), command.end());
      return run_command(whole);
    };
    const Outcome out = said("2>/dev/null");
    const Ran ran = run(program, command, 0, {}, environment_of({variable}));
    EXPECT_EQ(ran.outcome.status, out.status) << words[0];
    EXPECT_EQ(ran.out, out.output) << words[0];
    EXPECT_EQ(ran.err, said("2>&1 >/dev/null").output) << words[0];
  }
}

// Also where nothing in the program names stderr.
TEST_F(ErrorsTest, GetoptComplainsToTheProgramsErrors) {
  Workshop shop;
  const auto program = Program::load(shop.compile(
      "#include <unistd.h>\nint main(int count, char** words) { return getopt(count, words, \"a\") == '?'; }",
      {"-shared", "-w"}, "tool.so"));
  const Ran ran = run(program, {"/my/tool", "-x"});
  EXPECT_EQ(ran.outcome.status, 1);
  EXPECT_EQ(ran.err, "/my/tool: invalid option -- 'x'\n");
}

using SystemLogTest = SideBySide;

TEST_F(SystemLogTest, EachProgramHasItsNameItsOptionsAndItsMask) {
  expect_private(R"C(
    #include <fcntl.h>
    #include <syslog.h>
    static int two[2];
    static void read_line(void) {
      char text[200] = "";
      const int bytes = read(two[0], text, sizeof text - 1);
      char number[20];
      snprintf(number, sizeof number, "[%d]", getpid());
      char* const found = bytes > 0 ? strstr(text, number) : NULL;
      if (found != NULL) memset(found + 1, '#', strlen(number) - 2), say("%d", (int)strlen(number) > 2);
      say("%s", bytes > 0 && found == NULL ? text : bytes > 0 ? "(with a pid)" : "(nothing)\n");
      if (found != NULL) say("%s", strchr(found, ']'));
    }
    void step(int n) {
      const int saved = fcntl(2, F_DUPFD, 10);
      pipe2(two, O_NONBLOCK);
      dup2(two[1], 2);
      program_invocation_short_name = "changed";
      if (n == 0) syslog(LOG_INFO, "not told");
      if (n == 1) openlog(NULL, LOG_PERROR, LOG_LOCAL1), errno = ENOENT, syslog(LOG_INFO, "%s: %m", "first");
      if (n == 2) openlog("named", LOG_PERROR | LOG_PID, 0), syslog(LOG_ERR, "with a %s\n", "line");
      if (n == 3) say("%d ", setlogmask(LOG_MASK(LOG_ERR))), syslog(LOG_INFO, "masked");
      if (n == 4) say("%d ", setlogmask(0)), syslog(LOG_ERR, "seen");
      if (n == 5) closelog(), syslog(LOG_ERR, "after");
      read_line();
      dup2(saved, 2);
      close(saved);
      close(two[0]);
      close(two[1]);
    })C",
                 6);
}

}  // namespace
}  // namespace aplib::loader::test
