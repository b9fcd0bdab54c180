// SPDX-License-Identifier: MIT
// Executing a program: what the stub passes to aprun, and its messages when it cannot.
#include <filesystem>

#include "tree.hpp"

namespace aplib::compile::test {
namespace {

class Start : public Tree {
 protected:
  void SetUp() override {
    Tree::SetUp();
    write("say.c", R"(#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv, char** envp) {
  for (int i = 0; i < argc; ++i) printf("[%s]", argv[i]);
  const char* variable = getenv("SAY");
  printf("{%s}\n", variable ? variable : "");
  return envp[0] == NULL ? 1 : argc;
})");
    silent("apcc say.c -o say");
  }
};

TEST_F(Start, ArgumentsEnvironmentAndStatusPassThrough) {
  const Outcome outcome = shell("export STAND_IN_RECORD=record; SAY='a b' ./say one 'two words' '' --direct");
  EXPECT_EQ(outcome.status, 5);
  EXPECT_EQ(outcome.output, "[./say][one][two words][][--direct]{a b}\n");
  EXPECT_EQ(read("record"), "<./say>\n<./say>\n<one>\n<two words>\n<>\n<--direct>\n");
}

TEST_F(Start, FileIsWhatWasExecutedAndNameIsWhatTheCallerSaid) {
  silent("mkdir -p sub/bin && mv say sub/bin/renamed");
  output(
      "export STAND_IN_RECORD=record; PATH=$PWD/sub/bin:$PATH; (exec -a login-name renamed x) || test $? = 2 || bash "
      "-c 'exec -a login-name renamed x' || test $? = 2");
  EXPECT_EQ(read("record"), "<" + work_ + "/sub/bin/renamed>\n<login-name>\n<x>\n");
}

TEST_F(Start, ManyArguments) {
  const Outcome outcome = shell("set -- $(seq 20000); ./say \"$@\" | tr -d '\\n' | tail -c 23");
  EXPECT_EQ(outcome.output, "[19998][19999][20000]{}");
}

TEST_F(Start, NoAprunIsSaidInFull) {
  std::filesystem::remove(tree_ + "/bin/aprun");
  const Outcome outcome = shell("./say");
  EXPECT_EQ(outcome.status, 127);
  EXPECT_EQ(outcome.output,
            "./say: cannot start " + tree_ +
                "/lib/aplib/../../bin/aprun, which runs programs made by apcc: no such file; install APlib there, or " +
                "link the program again with the apcc of an installed APlib, or run: aprun ./say\n");
}

TEST_F(Start, AprunThatIsNoProgramIsSaid) {
  silent("chmod -x '" + tree_ + "/bin/aprun'");
  const Outcome outcome = shell("./say");
  EXPECT_EQ(outcome.status, 127);
  EXPECT_NE(outcome.output.find("permission denied"), std::string::npos) << outcome.output;
}

TEST_F(Start, StubAloneIsNoProgram) {
  const Outcome outcome = shell("'" + tree_ + "/lib/aplib/aplib-start' x");
  EXPECT_EQ(outcome.status, 127);
  EXPECT_NE(outcome.output.find("run the program"), std::string::npos) << outcome.output;
}

TEST_F(Start, ProgramsTakeNoPrivilegesFromTheirFile) {
  if (shell("command -v setpriv && test $(id -u) = 0").status != 0)
    GTEST_SKIP() << "needs root and setpriv: a set-user-ID program runs as another user";
  silent("chmod u+s say");
  const Outcome outcome = shell("setpriv --reuid 65534 --clear-groups ./say");
  if (outcome.status == 1) GTEST_SKIP() << "needs temporary files that may be set-user-ID";
  EXPECT_EQ(outcome.status, 127) << outcome.output;
  EXPECT_NE(outcome.output.find("chmod ug-s"), std::string::npos) << outcome.output;
}

TEST_F(Start, NothingOfTheProgramRunsBeforeAprun) {
  write("early.cpp",
        "#include <unistd.h>\nstruct Early { Early() { (void)!write(1, \"ran it\\n\", 7); } } early;\nint main() {}\n");
  silent("apc++ early.cpp -o early");
  EXPECT_EQ(output("./early"), "ran it\n");
  std::filesystem::remove(tree_ + "/bin/aprun");
  EXPECT_EQ(shell("./early").output.find("ran it\n"), std::string::npos);
}

TEST_F(Start, MovedTreeLinksAgain) {
  std::filesystem::rename(tree_, root_ + "/moved");
  tree_ = root_ + "/moved";
  EXPECT_NE(shell("./say").status, 0);
  silent("apcc say.c -o say");
  EXPECT_EQ(output("./say || test $? = 1"), "[./say]{}\n");
}

TEST_F(Start, MovedTreeStartsRetargetedPrograms) {
  const std::string moved = root_ + "/a-place-with-a-longer-name-than-before";
  std::filesystem::rename(tree_, moved);
  tree_ = moved;
  silent("apcc --aplib-retarget say");
  EXPECT_EQ(output("./say || test $? = 1"), "[./say]{}\n");
  EXPECT_NE(output("readelf -lW say").find(moved + "/lib/aplib/aplib-start]"), std::string::npos);

  const Outcome other = shell("apcc --aplib-retarget /bin/ls");
  EXPECT_EQ(other.status, 1);
  EXPECT_EQ(other.output, "apcc: /bin/ls: it is not started by APlib; name a program made by apcc\n");
  EXPECT_EQ(shell("apcc --aplib-retarget say.c").output, "apcc: say.c: not a program; name one made by apcc\n");
  const std::string deep(250, 'd');
  const Outcome room = shell("apcc --aplib-retarget --aplib-root=/" + deep + " say");
  EXPECT_EQ(room.status, 1);
  EXPECT_NE(room.output.find("link it again"), std::string::npos) << room.output;
  EXPECT_EQ(output("./say || test $? = 1"), "[./say]{}\n");
}

TEST_F(Start, ProgramsForATreeThatIsElsewhereLater) {
  silent("apcc --aplib-root=/opt/later say.c -o later");
  EXPECT_NE(output("readelf -lW later").find("[Requesting program interpreter: /opt/later/lib/aplib/aplib-start]"),
            std::string::npos);
  const std::string deep(1000, 'd');
  silent("apcc --aplib-root=/" + deep + " say.c -o later");  // longer than the room in every program
}

TEST_F(Start, TreeThatCannotBeWrittenServesToo) {
  if (shell("command -v setpriv && test $(id -u) = 0").status != 0)
    GTEST_SKIP() << "needs root and setpriv: a user who may not write there";
  silent("chmod 777 . && rm -f say '" + tree_ + "'/lib/aplib/program-*.o");
  EXPECT_EQ(output("setpriv --reuid 65534 --clear-groups sh -c 'apcc say.c -o say && ./say' || test $? = 1"),
            "[./say]{}\n");
  silent("! ls '" + tree_ + "'/lib/aplib/program-*.o 2>/dev/null");
  // As the installation does beforehand.
  silent("apcc --aplib-prepare && ls '" + tree_ + "'/lib/aplib/program-*.o >/dev/null");
  EXPECT_EQ(output("setpriv --reuid 65534 --clear-groups apcc --aplib-show say.c").find("/proc/self/fd"),
            std::string::npos);
}

}  // namespace
}  // namespace aplib::compile::test
