// SPDX-License-Identifier: MIT
// aprun -f as users run it, on machines of several processes on this computer: what programs get, and their output.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>

#include "nodes.hpp"

namespace aplib::test {
namespace {

constexpr const char* counting = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int sum = 0;
  xy_isum(getcid(), &sum);
  printf("cell %d of %d: %d", getcid(), getncel(), sum);
  for (int i = 1; i < argc; ++i) printf(" <%s>", argv[i]);
  printf("\n");
  return 0;
})";

class ClusterRun : public ::testing::Test {
 protected:
  Folder folder_;
};

class Processes : public ClusterRun, public ::testing::WithParamInterface<unsigned> {};

TEST_P(Processes, CellsAreSharedOutAndSumUp) {
  const unsigned hosts = GetParam();
  const std::string program = folder_.compile("count", counting);
  const Ended ended = aprun_cluster(local_cluster(folder_, hosts, 2), {program, "a b"});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(ended.error, "");
  const unsigned cells = 2 * hosts;
  std::string expected;
  for (unsigned cell = 0; cell < cells; ++cell)
    expected += "cell " + std::to_string(cell) + " of " + std::to_string(cells) + ": " +
                std::to_string(cells * (cells - 1) / 2) + " <a b>\n";
  EXPECT_EQ(sorted_lines(ended.out), sorted_lines(expected));
}

INSTANTIATE_TEST_SUITE_P(Some, Processes, ::testing::Values(1, 2, 4, 8));

class Security : public ClusterRun, public ::testing::WithParamInterface<const char*> {};

TEST_P(Security, MakesNoDifferenceToPrograms) {
  const std::string program = folder_.compile("count", counting);
  const Ended ended = aprun_cluster(
      local_cluster(folder_, 2, 1, "", std::string("module = \"tcp\"\nsecure = \"") + GetParam() + "\""), {program});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0 of 2: 1", "cell 1 of 2: 1"}));
}

INSTANTIATE_TEST_SUITE_P(All, Security, ::testing::Values("auth", "tls", "off"));

TEST_F(ClusterRun, TheFileHasTheProgramAndTheCommandLineWins) {
  const std::string program = folder_.compile("count", counting);
  const std::string file = local_cluster(folder_, 2, 1, "program = \"" + program + "\"\nargs = [\"from\", \"file\"]");
  EXPECT_EQ(sorted_lines(aprun_cluster(file, {}).out),
            (Strings{"cell 0 of 2: 1 <from> <file>", "cell 1 of 2: 1 <from> <file>"}));
  EXPECT_EQ(sorted_lines(aprun_cluster(file, {program, "mine"}).out),
            (Strings{"cell 0 of 2: 1 <mine>", "cell 1 of 2: 1 <mine>"}));
  EXPECT_EQ(sorted_lines(aprun_cluster(file, {"--tag-output"}).out),
            (Strings{"[0] cell 0 of 2: 1 <from> <file>", "[1] cell 1 of 2: 1 <from> <file>"}));
  const Ended none = aprun_cluster(local_cluster(folder_, 2, 1), {});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(contains(none.error, "aprun: no program is given")) << none.error;
}

TEST_F(ClusterRun, AFileThatNobodyWritesIsToldOf) {
  const std::string program = folder_.compile("count", counting);
  const std::string text = folder_.read(std::filesystem::path(local_cluster(folder_, 1, 1)).filename());
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), S_IRWXU), 0);
  Process process({.arguments = {"/bin/sh", "-c", "exec \"$0\" -f \"$1\" \"$2\" 2>&1", APRUN_PROGRAM, pipe, program}});
  ASSERT_TRUE(process.wait_for("aprun: waits for what comes from " + pipe + ", a pipe, until its writers close it\n"));
  folder_.write("pipe", text);
  EXPECT_EQ(process.wait().status, 0);
}

TEST_F(ClusterRun, PlaceholdersFoldersAndFilesForEachCell) {
  const std::string program = folder_.compile("where", R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  char folder[4096];
  printf("%d %s %s\n", getcid(), argv[1], getcwd(folder, sizeof folder));
  return 0;
})");
  const Ended ended = aprun_cluster(local_cluster(folder_, 2, 2),
                                    {"--expand", "--wd", "run-{cid}", "--output", "out.{cid}", program, "{x}.{y}"},
                                    {.arguments = {}, .folder = folder_.path()});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(ended.out, "");
  for (int cell = 0; cell < 4; ++cell) {
    const std::string number = std::to_string(cell);
    EXPECT_EQ(folder_.read("out." + number), number + " " + number + ".0 " + (folder_ / "run-") + number + "\n");
  }
}

TEST_F(ClusterRun, LinesOfManyCellsStayWholeAndInOrder) {
  const std::string program = folder_.compile("print", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  for (int i = 0; i < 20000; ++i) { printf("%d: line ", getcid()); if (i % 7 == 0) fflush(stdout); printf("%d\n", i); }
  return 0;
})");
  const Ended ended = aprun_cluster(local_cluster(folder_, 3, 2), {program});
  EXPECT_EQ(ended.status, 0) << ended.error;
  std::map<int, int> next;
  std::istringstream stream(ended.out);
  std::string line;
  int count = 0;
  while (std::getline(stream, line)) {
    int cell = -1;
    int number = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d: line %d", &cell, &number), 2) << line;
    ASSERT_EQ(number, next[cell]++) << line;
    ++count;
  }
  EXPECT_EQ(count, 6 * 20000);
}

constexpr const char* reading = R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  char line[256];
  long lines = 0, sum = 0, number = 0;
  while (fgets(line, sizeof line, stdin)) { ++lines; if (sscanf(line, "%ld", &number) == 1) sum += number; }
  printf("cell %d: %ld lines, %ld\n", getcid(), lines, sum);
  return 0;
})";

TEST_F(ClusterRun, StandardInputIsTheFirstCells) {
  const std::string program = folder_.compile("read", reading);
  std::string input;
  for (int i = 1; i <= 100'000; ++i) input += std::to_string(i) + "\n";
  // A pipe holds less than that, so the test writes while aprun reads.
  const std::string file = folder_.write("input", input);
  const Ended ended = run({.arguments = {"/bin/sh", "-c",
                                         std::string("cat '") + file + "' | " + APRUN_PROGRAM + " -f '" +
                                             local_cluster(folder_, 2, 2) + "' '" + program + "'"}});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0: 100000 lines, 5000050000", "cell 1: 0 lines, 0",
                                              "cell 2: 0 lines, 0", "cell 3: 0 lines, 0"}));
}

TEST_F(ClusterRun, InputFilesOfTheLauncherReachTheCells) {
  const std::string program = folder_.compile("read", reading);
  folder_.write("in.0", "10\n");
  folder_.write("in.1", "20\n22");
  const std::string file = local_cluster(folder_, 2, 1);
  const Ended ended = aprun_cluster(file, {"--input", folder_ / "in.{cid}", program});
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0: 1 lines, 10", "cell 1: 2 lines, 42"})) << ended.error;
  std::filesystem::remove(folder_ / "in.1");
  const Ended missing = aprun_cluster(file, {"--input", folder_ / "in.{cid}", program});
  EXPECT_EQ(missing.status, 2);
  EXPECT_EQ(missing.out, "") << "nothing may run before all inputs are there";
  EXPECT_TRUE(contains(missing.error, "cannot read " + (folder_ / "in.1") + ": No such file")) << missing.error;
}

TEST_F(ClusterRun, AnOpenPromptIsShownAndInputComesLater) {
  const std::string program = folder_.compile("ask", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  char name[100] = "";
  printf("who?\n"); fflush(stdout);
  if (getcid() == 0 && fgets(name, sizeof name, stdin)) printf("hello %s", name);
  return 0;
})");
  Process process({.arguments = {APRUN_PROGRAM, "-f", local_cluster(folder_, 2, 1), program},
                   .input = "you\n",
                   .keep_input_open = true});
  EXPECT_TRUE(process.wait_for("hello you\n"));
  EXPECT_EQ(process.wait().status, 0) << "it must end though its input stays open";
}

TEST_F(ClusterRun, StatusesAreThoseOfOneHostRuns) {
  const std::string program = folder_.compile("fail", R"(
#include <aplib/cellos.h>
int main(void) { return getcid() == 2 ? 5 : 0; })");
  const Ended ended = aprun_cluster(local_cluster(folder_, 2, 2), {program});
  EXPECT_EQ(ended.status, 5);
  EXPECT_EQ(ended.error, "aprun: cells 0-1, 3: status 0; cell 2: status 5\n");
}

TEST_F(ClusterRun, ADryRunAsksTheHostsAndRunsNothing) {
  const std::string program = folder_.compile("count", counting);
  const Ended ended = aprun_cluster(local_cluster(folder_, 2, 2), {"--dry-run", program});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_TRUE(contains(ended.out, "4x1")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "2-3 (2)")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "127.0.0.1")) << ended.out;
  EXPECT_FALSE(contains(ended.out, "cell 0 of")) << ended.out;
}

TEST_F(ClusterRun, VariablesReachProgramsOnHostsOfAnotherEnvironment) {
  const std::string file = folder_.write("elsewhere.toml",
                                         "[machine]\ngrid = \"1x1\"\n[[host]]\nname = \"a\"\nlaunch = \"command\"\n"
                                         "command = \"env -i {cmd}\"\n");
  const std::string program = folder_.compile("variables",
                                              "#include <stdio.h>\n#include <stdlib.h>\nint main(void) {\n  const char "
                                              "*names[] = {\"ONE\", \"TWO\", \"SIX\"};\n"
                                              "  for (int i = 0; i < 3; ++i) printf(\"%s \", getenv(names[i]) ? "
                                              "getenv(names[i]) : \"none\");\n  return 0;\n}\n");
  Start start{.arguments = {}, .environment = {{"ONE", "1"}, {"SIX", "6"}}};
  const Ended ended = aprun_cluster(file, {"-x", "ONE", "-x", "TWO=2=b", program}, start);
  EXPECT_EQ(ended.out, "1 2=b none ") << ended.error;
  const Ended unknown = aprun_cluster(file, {"-x", "NO_SUCH", program});
  EXPECT_EQ(unknown.error, "aprun: -x NO_SUCH: there is no such variable; set it, or write -x NO_SUCH=VALUE\n");
  EXPECT_EQ(unknown.status, 2);
}

TEST_F(ClusterRun, NamesOfModulesAreOrders) {
  const std::string program = folder_.compile("count", counting);
  const std::string file = local_cluster(folder_, 2, 1);
  const auto dry_run = [&](const char* modules) {
    return aprun_cluster(file, {"--module", modules, "--dry-run", program});
  };
  EXPECT_TRUE(contains(dry_run("auto").out, "messages     the best of shm, ")) << dry_run("auto").out;
  EXPECT_TRUE(contains(dry_run("tcp,shm").out, "messages     the best of shm, tcp for each pair, "));
  EXPECT_TRUE(contains(dry_run("tcp").out, "messages     tcp, "));
  const Ended unknown = aprun_cluster(file, {"--module", "tpc", program});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(contains(unknown.error, " is not ready: there is no module \"tpc\": did you mean \"tcp\"?"))
      << unknown.error;
  EXPECT_TRUE(contains(unknown.error, "; nothing was started\n")) << unknown.error;
}

TEST_F(ClusterRun, AFileThatAHostLacksIsSentAndRemovedInTheEnd) {
  if (run({.arguments = {"/bin/sh", "-c", "unshare -m true || unshare -rm true"}}).status != 0)
    GTEST_SKIP() << "needs namespaces: a folder is hidden from a process";
  const std::string unshare =
      run({.arguments = {"/bin/sh", "-c", "unshare -m true"}}).status == 0 ? "unshare -m" : "unshare -rm";
  const Folder hidden;
  const Folder temporary;
  const std::string library = hidden.compile("libown.so", "int own = 40; int next(void) { return ++own; }");
  const std::string program = hidden.compile("where", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int next(void);
int main(void) {
  next();
  printf("cell %d: %d\n", getcid(), next());
  return 0;
})",
                                             "-L'" + hidden.path() + "' -lown -Wl,-rpath,'" + hidden.path() + "'");
  const std::string file =
      folder_.write("cluster.toml",
                    "[machine]\ngrid = \"4x1\"\nprivate-libraries = \"libown.so\"\n"
                    "[[host]]\nname = \"a\"\nlaunch = \"local\"\ncells = 2\n"
                    "[[host]]\nname = \"b\"\nlaunch = \"command\"\ncells = 2\n"
                    "command = \"" +
                        unshare + " sh -c 'mount -t tmpfs none " + hidden.path() + " && exec \\\"$@\\\"' sh {cmd}\"\n");
  const Ended ended = aprun_cluster(file, {program}, {.arguments = {}, .environment = {{"TMPDIR", temporary.path()}}});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0: 42", "cell 1: 42", "cell 2: 42", "cell 3: 42"}));
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

TEST_F(ClusterRun, HostProgramsLoadCellProgramsOnEveryHost) {
  const std::string cells = folder_.compile("square", R"(
#include <aplib/cellos.h>
int main(void) {
  int number;
  int* told = crecv();
  number = *told * getcid();
  l_asend(gethcid(), 0, 5, &number, sizeof number);
  return 0;
})");
  const std::string host = folder_.compile("front", R"(
#include <aplib/cellos.h>
#include <stdio.h>
int host_main(int argc, char** argv) {
  int factor = 10, sum = 0, cells;
  if (argc > 1) cconfxy(3, 2);
  if (!ccreat("square", 0, 0)) return 1;
  cells = getncel();
  for (int cell = 0; cell < cells; ++cell) l_asend(cell, 0, 0, &factor, sizeof factor);
  for (int cell = 0; cell < cells; ++cell) sum += *(int*)crecv();
  printf("%d cells: %d\n", cells, sum);
  return 0;
})");
  const std::string cluster = local_cluster(folder_, 2, 2);
  const Ended ended = aprun_cluster(cluster, {host});
  EXPECT_EQ(ended.error, "");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.out, "4 cells: 60\n");
  const Ended chosen = aprun_cluster(cluster, {host, "another grid"});
  EXPECT_EQ(chosen.error, "");
  EXPECT_EQ(chosen.out, "6 cells: 150\n");
}

TEST_F(ClusterRun, AnotherLauncherMayStartTheProcesses) {
  if (run({.arguments = {"/bin/sh", "-c", "command -v mpirun"}}).status != 0)
    GTEST_SKIP() << "needs the tool mpirun (package openmpi-bin)";
  const std::string program = folder_.compile("count", counting);
  const std::string file = folder_.write(
      "pmix.toml", "[machine]\ngrid = \"4x1\"\nlaunch = \"pmix\"\nspeed = 1\nprogram = \"" + program + "\"\n");
  const auto mpirun = [&](const std::string& processes, const std::string& cluster) {
    return run({.arguments = {"mpirun", "--oversubscribe", "-np", processes, APRUN_PROGRAM, "-f", cluster},
                .environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                {"ASAN_OPTIONS", "detect_leaks=0"}}});  // libpmix leaks some bytes at its end
  };
  const Ended ended = mpirun("2", file);
  if (contains(ended.error, "built without PMIx") || contains(ended.error, "libpmix"))
    GTEST_SKIP() << "needs PMIx: " << ended.error;
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0 of 4: 6", "cell 1 of 4: 6", "cell 2 of 4: 6", "cell 3 of 4: 6"}));
  const Ended other = mpirun("3", local_cluster(folder_, 2, 1));
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(contains(other.error, "it names 2 hosts, and another launcher has started 3 processes")) << other.error;
}

}  // namespace
}  // namespace aplib::test
