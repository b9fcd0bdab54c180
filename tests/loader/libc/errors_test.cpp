// SPDX-License-Identifier: MIT
// perror, err, error and assert of loaded programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "compile.hpp"
#include "running.hpp"

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

}  // namespace
}  // namespace aplib::loader::test
