// SPDX-License-Identifier: MIT
// Runs command lines of all kinds.
#include <filesystem>

#include "tree.hpp"

namespace aplib::compile::test {
namespace {

class Program : public Tree {
 protected:
  void SetUp() override {
    Tree::SetUp();
    write("hello.c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 3; }\n");
  }
  /// A refusal: status 1 and a message with this beginning and continuation.
  void refused(const std::string& command, const std::string& begin, const std::string& remedy) const {
    const Outcome outcome = shell(command);
    EXPECT_EQ(outcome.status, 1) << command << outcome.output;
    EXPECT_TRUE(outcome.output.starts_with(begin)) << outcome.output;
    EXPECT_NE(outcome.output.find(remedy), std::string::npos) << outcome.output;
  }
};

TEST_F(Program, DefaultNameOfTheOutput) {
  silent("apcc hello.c");
  EXPECT_EQ(shell("./a.out").status, 3);
}

TEST_F(Program, FormsOfTheCommandLine) {
  for (const char* command : {"apcc -ohello hello.c",
                              "apcc hello.c -o hello",
                              "apcc -fPIE -pie -O2 hello.c -o hello",
                              "apcc -no-pie hello.c -o hello",
                              "apcc -x c - -o hello < hello.c",
                              "cp hello.c noname && apcc -xc noname -o hello",
                              "echo '-O1 -o hello \"hello.c\"' > rsp && apcc @rsp",
                              "echo '-pie hello.c' > rsp && apcc @rsp -o hello",
                              "apcc -c hello.c && apcc hello.o -o hello",
                              "apcc -S hello.c && apcc hello.s -o hello",
                              "apcc -E hello.c -o hello.i && apcc hello.i -o hello",
                              "apcc -c hello.c && apcc -r hello.o -o part.o && apcc part.o -o hello",
                              "apcc -g -O2 -flto hello.c -o hello",
                              "apcc -std=c99 -Wall -Wextra -Werror -pedantic hello.c -o hello",
                              "apcc -MD -MF hello.d hello.c -o hello",
                              "apcc -Wl,-O1,--as-needed -Xlinker --gc-sections hello.c -lm -o hello",
                              "apcc -rdynamic hello.c -o hello",
                              "apcc -Wl,-Bstatic -Wl,-Bdynamic hello.c -o hello -pthread",
                              "apcc -save-temps hello.c -o hello",
                              "apcc -fsanitize=undefined -fsanitize-undefined-trap-on-error hello.c -o hello"}) {
    silent(std::string("rm -f hello; ") + command);
    const Outcome outcome = shell("./hello");
    EXPECT_EQ(outcome.status, 3) << command << "\n" << outcome.output;
    EXPECT_EQ(outcome.output, "hello\n") << command;
  }
}

TEST_F(Program, WhatCannotBePrintedIsSaid) {
  for (const char* command : {"apcc --aplib-help", "apcc --aplib-show hello.c -o hello"}) {
    const Outcome outcome = shell(std::string(command) + " >/dev/full");
    EXPECT_EQ(outcome.status, 1) << command;
    EXPECT_EQ(outcome.output, "apcc: cannot write standard output: No space left on device\n") << command;
  }
}

TEST_F(Program, QuestionsGetTheCompilersAnswers) {
  for (const char* question : {"--version", "-dumpmachine", "-dumpversion", "-print-search-dirs",
                               "-print-file-name=libc.so", "-print-prog-name=ld", "-print-multiarch"}) {
    EXPECT_EQ(output(std::string("apcc ") + question), output(std::string("gcc ") + question));
  }
  EXPECT_EQ(shell("apcc -v").output.substr(shell("apcc -v").output.find('\n')),
            shell("gcc -v").output.substr(shell("gcc -v").output.find('\n')));
  EXPECT_NE(shell("apcc").status, 0);
  silent("apcc -fsyntax-only hello.c");
  EXPECT_NE(output("apcc -M hello.c").find("hello.o:"), std::string::npos);
  EXPECT_NE(output("echo __PIC__ | apcc -E -P -").find('2'), std::string::npos);
}

TEST_F(Program, FailuresOfTheCompilerAreOnesOfTheWrapper) {
  write("bad.c", "int main(void) { return syntax error; }\n");
  write("undefined.c", "int nowhere_to_be_found(void);\nint main(void) { return nowhere_to_be_found(); }\n");
  EXPECT_EQ(shell("apcc -c bad.c").status, 1);
  const Outcome link = shell("apcc undefined.c -o undefined");
  EXPECT_EQ(link.status, 1);
  EXPECT_NE(link.output.find("nowhere_to_be_found"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(work_ + "/undefined"));
  EXPECT_NE(shell("apcc no-such-file.c").status, 0);
  EXPECT_NE(shell("apcc hello.c -lnosuchlibrary").status, 0);
}

TEST_F(Program, Refusals) {
  refused("apcc -static hello.c", "apcc: -static: ", "leave -static out");
  refused("apcc -m32 -c hello.c", "apcc: -m32: ", "leave -m32 out");
  refused("apc++ -fsanitize=address -c hello.c", "apc++: -fsanitize=address: ", "leave it out");
  refused("apcc --aplib-shwo hello.c", "apcc: --aplib-shwo: unknown option", "--aplib-help");
  refused("AP_CC=apcc apcc hello.c", "apcc: AP_CC=apcc names apcc itself", "name the compiler");
  const Outcome missing = shell("AP_CC='no-such-cc -O' apcc hello.c");
  EXPECT_EQ(missing.status, 127);
  EXPECT_EQ(missing.output,
            "apcc: cannot run the compiler \"no-such-cc\": No such file or directory; install it, or name yours: "
            "AP_CC=COMMAND in the environment, or --aplib-cc=COMMAND\n");
  EXPECT_FALSE(std::filesystem::exists(work_ + "/a.out"));
}

TEST_F(Program, ShownCommandWorks) {
  const std::string command = output("apcc --aplib-show -DTEXT='\"a b\"' hello.c -o hello");
  EXPECT_EQ(command, output("apcc -show -DTEXT='\"a b\"' hello.c -o hello"));
  EXPECT_FALSE(std::filesystem::exists(work_ + "/hello"));
  silent(command);
  EXPECT_EQ(shell("./hello").status, 3);
  EXPECT_EQ(output("apcc --aplib-cc='ccache mycc -q' -show -c hello.c").substr(0, 15), "ccache mycc -q ");
}

TEST_F(Program, EntriesAreFoundWhereNoSymbolNamesThem) {
  write("all.map", "{ local: *; };\n");
  silent("apcc -Wl,--version-script=all.map -s hello.c -o hello");
  EXPECT_EQ(shell("./hello").status, 3);
  // Relative relocations in packed form, if the linker knows them: the words of the table are in the file.
  if (shell("apcc -Wl,-z,pack-relative-relocs hello.c -o packed").output.empty()) {
    const Outcome outcome = shell("./packed");
    EXPECT_EQ(outcome.status, 3) << outcome.output;
    EXPECT_EQ(outcome.output, "hello\n");
  }
}

TEST_F(Program, HistoricalHeadersAreFound) {
  write("old.c", "#include <stdio.h>\n#include \"ccell.c7.h\"\n#include \"aplib/cellos.h\"\nvoid cell_main(void) {}\n");
  silent("apcc -c old.c");
  write("cap2.c.h", "#define MINE 1\n");  // the user's own header of that name comes first
  write("own.c", "#include \"cap2.c.h\"\n#include <cap2.c.h>\nint mine = MINE;\n");
  silent("apcc -I. -c own.c");
}

// Two files of one program, as one would have found them: no headers, no types, a variable in both.
TEST_F(Program, OldSourcesCompileAsTheyAre) {
  write("one.c",
        "shared;\ntypedef char known[sizeof dgettime() == sizeof(double) ? 1 : -1];\n"
        "main(argc, argv) char** argv; {\n  shared = 3;\n  return put(4) == 7 ? two() : 1;\n}\n");
  write("two.c", "int shared;\ntwo() { return shared; }\nput(x) { return x + shared; }\n");
  write("host.c", "#include <unistd.h>\n#include <chost.c7.h>\nmain() { return 0; }\n");
  write(
      "new.c",
      "#include <unistd.h>\n#include <cap2.c.h>\nint x;\nvoid f(void) { put(1, &x, sizeof x, &x, 0, 0, 0); sync(0, 0); "
      "sync(); }\n");
  EXPECT_NE(shell("apcc one.c two.c -o old").status, 0);
  EXPECT_EQ(shell("apcc --old -w one.c two.c -o old").output, "");
  const Outcome ran = shell("./old");
  EXPECT_EQ(ran.status, 3) << ran.output;
  silent("apcc --old -w -c host.c");
  EXPECT_NE(output("nm host.o").find("host_main"), std::string::npos);
  silent("apcc --old -c new.c");
  EXPECT_NE(output("nm new.o").find("cellos_put"), std::string::npos);
  EXPECT_NE(shell("apc++ --old -c new.c").output.find("use apcc"), std::string::npos);
}

// Paths of the system that they were written on, which is gone.
TEST_F(Program, OldSourcesFindHeadersByOldPaths) {
  std::filesystem::create_directory(work_ + "/sub");
  write("sub/own", "#define OWN 5\n");
  write("sub/host.c",
        "#include <stdio.h>\n  # include \"/usr/cap/sys.c7/include/chost.c7.h\" /* of CellOS */\n#include \"own\"\n"
        "main() { return gethcid() + OWN; }\nwhere() { puts(__FILE__); return wrong type; }\n");
  const Outcome wrong = shell("apcc --old -w -c sub/host.c");
  EXPECT_NE(wrong.status, 0);
  EXPECT_NE(wrong.output.find("sub/host.c:5:"), std::string::npos) << wrong.output;
  silent("sed -i /wrong/d sub/host.c");
  silent("apcc --old -w -c sub/host.c");
  EXPECT_NE(output("nm host.o").find("host_main"), std::string::npos);
  silent("apcc --old -w -c sub/host.c -o other.o && nm other.o | grep -q host_main");
  silent("apcc --old -w sub/host.c -o host");
  EXPECT_NE(shell("apcc -w -c sub/host.c").status, 0) << "without --old, a path is a path";
}

}  // namespace
}  // namespace aplib::compile::test
