// SPDX-License-Identifier: MIT
// apfarm as users run it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "process.hpp"

namespace aplib::test {
namespace {

using Words = std::vector<std::string>;
using namespace std::string_literals;

Start apfarm(const Words& words, const std::string& input = "") {
  Start start{.arguments = {APFARM_PROGRAM}, .input = input, .environment = {{"PARALLEL_SHELL", "/bin/sh"}}};
  start.arguments.insert(start.arguments.end(), words.begin(), words.end());
  return start;
}

std::string output_of(const Words& words, const std::string& input = "") {
  const Ended ended = run(apfarm(words, input));
  EXPECT_EQ(ended.status, 0) << ended.error;
  return ended.out;
}

std::string joblog_fields(const std::string& text) {
  std::string fields;  // number, exit value, signal, command
  std::size_t line_begin = text.find('\n') + 1;
  while (line_begin < text.size()) {
    const std::string line = text.substr(line_begin, text.find('\n', line_begin) - line_begin);
    line_begin += line.size() + 1;
    Words columns{""};
    for (const char c : line) c == '\t' ? columns.emplace_back() : columns.back() += c, void();
    EXPECT_EQ(columns.size(), 9U) << line;
    if (columns.size() == 9) fields += columns[0] + " " + columns[6] + " " + columns[7] + " " + columns[8] + "\n";
  }
  return fields;
}

/// Whether a process with this argument runs.
bool runs(const std::string& argument) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::string text;
    if (FILE* file = std::fopen((entry.path() / "cmdline").c_str(), "r")) {
      char bytes[4096];
      text.assign(bytes, std::fread(bytes, 1, sizeof bytes, file));
      std::fclose(file);
    }
    if (text.find(argument) != std::string::npos && text.find("apfarm") == std::string::npos) return true;
  }
  return false;
}

/// Waits until none runs: what was killed takes a moment to go, also after apfarm has.
void wait_until_gone(const std::string& argument) {
  while (runs(argument)) std::this_thread::yield();
}

TEST(Apfarm, ReplacesWhatGnuParallelReplaces) {
  EXPECT_EQ(output_of({"-k", "echo", "{.}", "{/}", "{//}", "{/.}", "{#}", ":::", "a/b.x", "d", "/x"}),
            "a/b b.x a b 1\nd d . d 2\n/x x / x 3\n");
  EXPECT_EQ(output_of({"-k", "echo", "{2}-{1.}", ":::", "a.b", "c", ":::", "1", "2"}), "1-a\n2-a\n1-c\n2-c\n");
  EXPECT_EQ(output_of({"-k", "echo", ":::", "a", "b", ":::+", "c", "d"}), "a c\nb d\n");
  EXPECT_EQ(output_of({"-k", "echo", "[{}]"}, "a\n\nb"), "[a]\n[]\n[b]\n");
  EXPECT_EQ(output_of({"-k", "-0", "printf", "%s,"}, std::string("a\nb\0c d\0", 8)), "a\nb,c d,");
  EXPECT_EQ(output_of({"-k", "-N2", "echo", "{2}", "{1}", ":::", "a", "b", "c"}), "b a\nc\n");
  EXPECT_EQ(output_of({"-k", "--colsep", ", ", "echo", "{2}-{1}"}, "a, b\nc, \n"), "b-a\n-c\n");
  EXPECT_EQ(output_of({"-k", "-C", "\\t", "echo", "{3} {1} {}", ":::", "a\tb b\tc", ":::", "d"}), "c a a b b c d\n");
  EXPECT_EQ(output_of({"-k", "-I", ",,", "echo", ",,{}", ":::", "a"}), "a{}\n");
}

TEST(Apfarm, CombinesAndCutsValuesAsGnuParallelDoes) {
  EXPECT_EQ(output_of({"-k", "echo", ":::", "a", "b", "c", ":::+", "1", "2"}), "a 1\nb 2\n") << "the shorter one";
  EXPECT_EQ(output_of({"-k", "echo", "{-1}{-2}", ":::", "a", ":::", "b"}), "ba\n");
  EXPECT_EQ(output_of({"-k", "-N2", "echo", "x{}y", "{2}", ":::", "a", "b", "c"}), "xay xby b\nxcy\n");
  EXPECT_EQ(output_of({"-k", "-n2", "echo", "x{}y", ":::", "a", "b", "c"}), "xa by\nxcy\n");
  EXPECT_EQ(output_of({"-k", "-N2", "echo", ":::", "a", "b", ":::", "1", "2"}), "a 1 a 2\nb 1 b 2\n");
  EXPECT_EQ(output_of({"-k", "echo", "{.}", "{//}", ":::", "x.", "a/b/", "/", ""}), "x .\na/b/ a\n/ /\n .\n");
  EXPECT_EQ(output_of({"-k", "echo", "{}.", ":::", "a\nb", ":::", "x"}), "a x.\nb x.\n");
  EXPECT_EQ(output_of({"-k", "-d", "::", "echo"}, "a::b"), "a\nb\n");
  for (const char* const pattern : {"\\s+", "[ ]+", "(?: |\\t)+", " +(?=b)", "\\s+?b{0}\\s*"}) {
    EXPECT_EQ(output_of({"-C", pattern, "echo", "{2}-{1}", ":::", "a   b"})[0], 'b') << pattern;
    // What cannot cut a long line says so.
    const Ended ended = run(apfarm({"-C", pattern, "printf", "%.1s", "{2}"}, "a" + std::string(1'000'000, ' ') + "b"));
    EXPECT_TRUE(ended.out == "b" || ended.error.find("a line has more than") != std::string::npos) << pattern;
  }
  EXPECT_EQ(output_of({"-k", "-C", "", "echo", "{2}{1}", ":::", "ab"}), "ba\n");
  for (const char* const pattern : {"(?i)a", "\\h", "a++", "[a"})
    EXPECT_EQ(run(apfarm({"-C", pattern, "echo", ":::", "a"})).status, 255) << pattern;
  EXPECT_EQ(run({.arguments = {"/bin/sh", "-c",
                               "printf '1\\n2\\n' | while read x; do " APFARM_PROGRAM " 'cat; echo' ::: $x; done"}})
                .out,
            "1\n2\n")
      << "jobs leave standard input alone";
}

TEST(Apfarm, TakesOptionsOfScripts) {
  EXPECT_EQ(output_of({"--will-cite", "--lb", "-k", "-r", "--max-procs", "2", "--", "echo"}, "a\n\nb\n"), "a\nb\n");
  EXPECT_EQ(output_of({"-k", "-j2", "-X", "echo", "x{}", ":::", "a", "b", "c"}), "xa xb\nxc\n");
  EXPECT_EQ(output_of({"-k", "--tagstring", "{#}", "-v", "echo", ":::", "a"}), "1\techo a\n1\ta\n");
  EXPECT_EQ(output_of({"-k", "--header", ":", "echo", "{b}{a}", ":::", "a", "1", ":::", "b", "2"}), "21\n");
  const Folder folder;
  const std::string place = folder / "out";
  EXPECT_EQ(output_of({"--results", place, "echo {}; echo e >&2", ":::", "a/b"}), "");
  EXPECT_EQ(folder.read("out/1/a\\_b/stdout") + folder.read("out/1/a\\_b/stderr"), "a/b\ne\n");
  const Ended above = run(apfarm({"--results", place, "echo", ":::", ".."}));
  EXPECT_EQ(above.status, 255);
  EXPECT_NE(above.error.find("the value .. is no folder of its own"), std::string::npos) << above.error;
  folder.write("file", "");
  const Ended no_folder = run(apfarm({"--results", folder / "file/x", "echo", ":::", "a"}));
  EXPECT_EQ(no_folder.error,
            "apfarm: --results: cannot make the folder " + (folder / "file/x/1/a") + ": Not a directory\n");
  // Each start is later than the one before by the delay at least, whatever the machine does.
  EXPECT_EQ(run(apfarm({"-j4", "--delay", "0.05", "--joblog", folder / "log", "true", ":::", "1", "2", "3"})).status,
            0);
  std::vector<double> starts;
  for (const std::string& line : sorted_lines(folder.read("log"))) {
    const std::size_t at = line.find("\t:\t");
    if (at != std::string::npos) starts.push_back(std::stod(line.substr(at + 3)));
  }
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_GE(starts[1] - starts[0], 0.045);
  EXPECT_GE(starts[2] - starts[1], 0.045);
}

TEST(Apfarm, QuotesValuesForTheShellAndRunsCommandsThatAreValues) {
  EXPECT_EQ(output_of({"--dry-run", "echo", ":::", "a b", "c'd", "", "*", "x-1"}),
            "echo 'a b'\necho 'c'\"'\"'d'\necho ''\necho '*'\necho x-1\n");
  EXPECT_EQ(output_of({"-k", "printf", "%s\\\\n", ":::", "a  b", "$HOME", "`x`", "\\n"}), "a  b\n$HOME\n`x`\n\\n\n");
  EXPECT_EQ(output_of({"-k", "/bin/echo", ":::", "a  b", "$HOME"}), "a  b\n$HOME\n") << "without a shell";
  EXPECT_EQ(output_of({":::", "echo a  b"}), "a b\n");
  EXPECT_EQ(output_of({"-q", "/bin/echo", "a  b;", ":::", "c"}), "a  b; c\n");
}

/// Under -q, a shell's parser finds the command's words again as they were, with the values in them.
TEST(Apfarm, QuotesWordsThatHoldReplacementStringsOrBraces) {
  const Folder folder;
  folder.write("f", "a b\n");
  const std::string f = folder / "f";
  EXPECT_EQ(output_of({"-q", "awk", "{print $1}", ":::", f}), "a\n");
  EXPECT_EQ(output_of({"-q", "sed", "-n", "/a/ { s/b/c/; p }", ":::", f}), "a c\n");
  EXPECT_EQ(output_of({"-q", "sh", "-c", "cat {}; echo $0", "{/}", ":::", f}), "a b\nf\n");
  const Words all{"x y", "$HOME", "; touch " + (folder / "made"), "`touch " + (folder / "made") + "`", "it's", "\\",
                  "*",   ""};
  for (const char* const placeholder : {"{}", "@", ",,"}) {
    for (const Words& words : {Words{"printf", "[%s]"}, Words{"/usr/bin/printf", "[%s]"}}) {
      Words line{"-k", "-q", "-I", placeholder};
      line.insert(line.end(), words.begin(), words.end());
      line.push_back("{a; b} "s + placeholder + "'");
      line.insert(line.end(), {"$x {", ":::"});
      line.insert(line.end(), all.begin(), all.end());
      std::string expected;
      for (const std::string& value : all) expected += "[{a; b} " + value + "'][$x {]";
      EXPECT_EQ(output_of(line), expected) << placeholder;
    }
    EXPECT_EQ(output_of({"-k", "-I", placeholder, "echo", placeholder, ":::", "a  b", "$(touch " + f + "x)"}),
              "a  b\n$(touch " + f + "x)\n");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "made"));
  EXPECT_FALSE(std::filesystem::exists(f + "x"));
}

TEST(Apfarm, KeepsOutputsWholeAndInOrder) {
  const Words slow_first{"-j4", "-k", "sleep 0.$((4-{})); echo {}; echo end {}", ":::", "1", "2", "3", "4"};
  EXPECT_EQ(output_of(slow_first), "1\nend 1\n2\nend 2\n3\nend 3\n4\nend 4\n");
  EXPECT_EQ(output_of({"-k", "--tag", "printf 'x\\ny\\n'", ":::", "a", "b"}), "a\tx\na\ty\nb\tx\nb\ty\n");
  const std::string large = output_of({"-j2", "head -c 3000000 /dev/zero | tr '\\0' {}", ":::", "a", "b"});
  ASSERT_EQ(large.size(), 6'000'000U);
  EXPECT_EQ(large.find(large[0] == 'a' ? 'b' : 'a'), 3'000'000U);
  std::string many;
  for (int i = 0; i < 600; ++i) many += std::to_string(i) + "\n";
  EXPECT_EQ(output_of({"-j3", "-k", "/bin/echo"}, many), many) << "more than descriptors";
}

TEST(Apfarm, EndsWithTheNumberOfFailures) {
  EXPECT_EQ(run(apfarm({"exit {}", ":::", "0", "1", "2"})).status, 2);
  std::string many;
  for (int i = 0; i < 110; ++i) many += "x\n";
  EXPECT_EQ(run(apfarm({"false"}, many)).status, 101);
  EXPECT_EQ(run(apfarm({"true"}, "")).status, 0);
  EXPECT_EQ(run(apfarm({"--halt", "now,fail=1", "sleep 0.{}; exit {}", ":::", "3", "50"})).status, 3);
  const Ended soon = run(apfarm({"-j1", "--halt", "soon,fail=1", "echo {}; exit {}", ":::", "0", "4", "5"}));
  EXPECT_EQ(soon.status, 4);
  EXPECT_EQ(soon.out, "0\n4\n");
}

TEST(Apfarm, WritesAJoblogAndGoesOnFromIt) {
  const Folder folder;
  const std::string log = folder / "log";
  EXPECT_EQ(run(apfarm({"-j1", "--joblog", log, "exit {}", ":::", "0", "1", "2"})).status, 2);
  EXPECT_EQ(joblog_fields(folder.read("log")), "1 0 0 exit 0\n2 1 0 exit 1\n3 2 0 exit 2\n");
  const Words again{"echo {}; test {} != 2", ":::", "0", "1", "2", "7"};
  Words rest{"-k", "--resume", "--joblog", log};
  rest.insert(rest.end(), again.begin(), again.end());
  EXPECT_EQ(output_of(rest), "7\n");
  folder.write("log", folder.read("log") + "5\t:\t12.0");  // torn
  rest[1] = "--resume-failed";
  const Ended failed = run(apfarm(rest));
  EXPECT_EQ(failed.status, 1);
  EXPECT_EQ(failed.out, "1\n2\n");
  EXPECT_EQ(joblog_fields(folder.read("log")),
            "1 0 0 exit 0\n2 1 0 exit 1\n3 2 0 exit 2\n4 0 0 echo 7; test 7 != 2\n2 0 0 echo 1; test 1 != 2\n"
            "3 1 0 echo 2; test 2 != 2\n");
}

TEST(Apfarm, AppendsToAJoblogAndLeavesOtherFilesAsTheyAre) {
  const Folder folder;
  const std::string log = folder / "log";
  EXPECT_EQ(output_of({"--joblog", "+" + log, "echo", ":::", "a"}), "a\n");
  folder.write("log", folder.read("log") + "5\t:\t12.0");  // torn
  EXPECT_EQ(output_of({"--joblog", "+" + log, "echo", ":::", "b"}), "b\n");
  EXPECT_EQ(joblog_fields(folder.read("log")), "1 0 0 echo a\n1 0 0 echo b\n");
  EXPECT_EQ(output_of({"-k", "--resume", "--joblog", log, "echo", ":::", "a", "c"}), "c\n");
  // GNU Parallel writes no title there.
  folder.write("log", folder.read("log").substr(folder.read("log").find('\n') + 1));
  EXPECT_EQ(output_of({"-k", "--resume", "--joblog", log, "echo", ":::", "a", "c", "d"}), "d\n");

  const std::string before = folder.read("log") + "5\t:\t12.0";
  folder.write("log", before);
  EXPECT_EQ(output_of({"--dry-run", "--joblog", log, "echo", ":::", "a"}), "echo a\n");
  EXPECT_EQ(output_of({"--dry-run", "--resume", "--joblog", log, "echo", ":::", "a", "c", "d", "e"}), "echo e\n");
  EXPECT_EQ(folder.read("log"), before);
  for (const char* const text : {"mine\nunfinished", "unfinished"}) {
    folder.write("notes", text);
    EXPECT_EQ(run(apfarm({"--joblog", "+" + (folder / "notes"), "echo", ":::", "a"})).status, 255);
    EXPECT_EQ(run(apfarm({"--resume", "--joblog", folder / "notes", "echo", ":::", "a"})).status, 255);
    EXPECT_EQ(folder.read("notes"), text);
  }
}

TEST(Apfarm, GoesOnAfterItWasKilled) {
  const Folder folder;
  const std::string log = folder / "log";
  std::string values;
  for (int i = 1; i <= 300; ++i) values += std::to_string(i) + "\n";
  const std::string list = folder.write("list", values);
  const std::string run_once = "mkdir " + (folder / "run.{}") + " && echo {} >> " + (folder / "done");
  {
    Process killed(apfarm({"-j2", "-a", list, "--joblog", log, run_once + "; echo {}"}));
    ASSERT_TRUE(killed.wait_for("20\n"));
    killed.signal(SIGKILL);
    EXPECT_EQ(killed.wait().status, 128 + SIGKILL);
  }
  const Words words{
      "-j2", "-a", list, "--joblog", log, "--resume", "rmdir " + (folder / "run.{}") + " 2>&-; " + run_once};
  EXPECT_EQ(run(apfarm(words)).status, 0);
  const auto lines = sorted_lines(joblog_fields(folder.read("log")));
  EXPECT_EQ(lines.size(), 300U) << "each job once";
  EXPECT_LE(sorted_lines(folder.read("done")).size(), 300U + 16) << "what had not been printed ran again";
}

TEST(Apfarm, RunsFailingJobsAgain) {
  const Folder folder;
  const std::string script = "echo x >> " + (folder / "runs") + "; test $(wc -l < " + (folder / "runs") + ") = 3 && :";
  EXPECT_EQ(run(apfarm({"--retries", "3", script, ":::", "1"})).status, 0);
  EXPECT_EQ(folder.read("runs"), "x\nx\nx\n");
}

TEST(Apfarm, EndsWhatTakesTooLongWithAllItsProcesses) {
  const Folder folder;
  const Ended ended = run(apfarm({"--timeout", "0.3", "--joblog", folder / "log", "sleep 5417; :", ":::", "1"}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.error.find("job 1 was ended"), std::string::npos) << ended.error;
  EXPECT_EQ(joblog_fields(folder.read("log")), "1 -1 15 sleep 5417; : 1\n");
  wait_until_gone("5417");
}

TEST(Apfarm, LeavesNothingBehindAfterASignal) {
  for (const int number : {SIGINT, SIGTERM, SIGKILL}) {
    Process session(apfarm({"-j2", "echo begun; trap '' TERM; sleep 5418", ":::", "1", "2", "3"}));
    Process first(apfarm({"-u", "-j2", "echo begun; sleep 5418 & wait; :", ":::", "1", "2", "3"}));
    ASSERT_TRUE(first.wait_for("begun\n"));
    while (!runs("5418")) std::this_thread::yield();
    session.signal(number);
    first.signal(number);
    EXPECT_EQ(session.wait().status, 128 + number);
    EXPECT_EQ(first.wait().status, 128 + number);
    wait_until_gone("5418");  // after SIGKILL, the guard's work
  }
}

TEST(Apfarm, WritesLinesOfJson) {
  const std::string out = output_of({"--json", "printf '\\377\"\\t'; echo e >&2", ":::", "ä"});
  EXPECT_NE(out.find("\"Exitval\":0,\"Signal\":0,"), std::string::npos) << out;
  EXPECT_NE(out.find(R"("V":["ä"],"Stdout":"\ufffd\"\t","Stderr":"e ä\n"})"), std::string::npos) << out;
}

TEST(Apfarm, TellsWhenOutputIsLost) {
  const std::string program = APFARM_PROGRAM;
  for (const char* const words : {" echo ::: 1", " --json echo ::: 1", " echo ::: 1 2 3 4 5", " -k echo ::: 1 2"}) {
    const Ended full = run({.arguments = {"/bin/sh", "-c", program + words + " >/dev/full"}});
    EXPECT_EQ(full.status, 255) << words;
    EXPECT_EQ(full.error,
              "apfarm: what jobs have printed cannot be written: No space left on device; make room there, or write "
              "elsewhere; --joblog with --resume runs again what is lost\n")
        << words;
  }
  const std::string file = testing::TempDir() + "/apfarm-limited";
  const Ended limited =
      run({.arguments = {"/bin/bash", "-c", "ulimit -f 8; " + program + " seq {} ::: 999 1000 1001 1002 >" + file}});
  EXPECT_EQ(limited.status, 255);
  EXPECT_NE(limited.error.find("File too large"), std::string::npos) << limited.error;
  std::filesystem::remove(file);
}

TEST(Apfarm, TellsWhenThereIsNoRoomForOutput) {
  const auto can = [](const char* command) { return run({.arguments = {"/bin/sh", "-c", command}}).status == 0; };
  const bool root = can("unshare -m true");
  if (!root && !can("unshare -rm true")) GTEST_SKIP() << "needs namespaces: a small file system";
  const Folder folder;
  const Folder small;
  const std::string problem =
      small.path() + ": No space left on device; make room there, or set TMPDIR to a folder that has more\n";
  const auto run_there = [&](const std::string& before, const std::string& words) {
    const std::string script = "mount -t tmpfs -o size=64k none $TMPDIR && " + before + " cd " + folder.path() +
                               " && exec " + APFARM_PROGRAM + " --joblog log " + words;
    return run({.arguments = {"unshare", root ? "-m" : "-rm", "sh", "-c", script},
                .environment = {{"PARALLEL_SHELL", "/bin/sh"}, {"TMPDIR", small.path()}}});
  };
  const auto lost = [&](int job) {
    return "apfarm: what job " + std::to_string(job) + " has written may be lost in part: " + problem;
  };
  const Ended full = run_there("dd if=/dev/zero of=$TMPDIR/fill bs=1k 2>/dev/null;", "-k -j1 'echo {}; :' ::: a b");
  EXPECT_EQ(full.status, 2);
  EXPECT_EQ(full.error, lost(1) + lost(2));
  EXPECT_EQ(joblog_fields(folder.read("log")), "1 255 0 echo a; :\n2 255 0 echo b; :\n");
  const Ended large = run_there("", "-j1 'head -c {} /dev/zero 2>/dev/null; :' ::: 65536 1 65537");
  EXPECT_EQ(large.status, 2) << "what has filled it goes when it is printed";
  EXPECT_EQ(large.error, lost(1) + lost(3));
  // A neighbour fills it, and makes room again before the job ends.
  const Ended beside = run_there("",
                                 "-j2 'until [ {} = 1 -o -e full ]; do sleep 0.01; done;"
                                 "if [ {} = 1 ]; then yes 2>/dev/null; touch full; else echo x; touch done; fi;"
                                 "until [ -e done ]; do sleep 0.01; done;"
                                 "until [ {} = 1 ] || grep -q ^1 log; do sleep 0.01; done' ::: 1 2");
  EXPECT_EQ(beside.status, 2) << beside.error;
  EXPECT_EQ(beside.error, lost(1) + lost(2));
}

TEST(Apfarm, TellsWhatCannotBeStarted) {
  Start start = apfarm({"echo {};", ":::", "1"});
  start.environment = {{"PARALLEL_SHELL", "/no/such/shell"}};
  const Ended shell = run(start);
  EXPECT_EQ(shell.status, 1);
  EXPECT_NE(shell.error.find("cannot start \"echo 1;\": No such file or directory: the shell /no/such/shell"),
            std::string::npos)
      << shell.error;
  const Ended large = run(apfarm({"echo"}, std::string(200'000, 'x')));
  EXPECT_EQ(large.status, 1);
  EXPECT_NE(large.error.find(": Argument list too long"), std::string::npos) << large.error;
}

// Those of version 20221122. What is not there is refused with what to do instead.
TEST(Apfarm, KnowsAllOptionsOfGnuParallel) {
  std::istringstream names(R"(
    debug D xargs m X v sql sql-master sqlmaster sql-worker sqlworker sql-and-worker sqlandworker joblog jl results
    result res resume resume-failed resumefailed retry-failed retryfailed silent keep-order keeporder k
    no-keep-order nokeeporder nok no-k group g ungroup u latest-line latestline ll line-buffer line-buffered
    linebuffer linebuffered lb tmux tmux-pane tmuxpane null 0 quote q parens rpl plus I extensionreplace er U
    basenamereplace bnr dirnamereplace dnr basenameextensionreplace bner seqreplace slotreplace jobs j delay
    ssh-delay sshdelay load noswap max-line-length-allowed maxlinelengthallowed number-of-cpus numberofcpus
    number-of-sockets numberofsockets number-of-cores numberofcores number-of-threads numberofthreads
    use-sockets-instead-of-threads usesocketsinsteadofthreads use-cores-instead-of-threads usecoresinsteadofthreads
    use-cpus-instead-of-cores usecpusinsteadofcores shell-quote shellquote shell_quote nice tag tag-string tagstring
    ctag ctag-string ctagstring color colour color-failed colour-failed colorfailed colourfailed color-fail
    colour-fail colorfail colourfail cf onall nonall filter-hosts filterhosts filter-host sshlogin S sshloginfile
    slf controlmaster M ssh transfer-file transferfile transfer-files transferfiles tf return trc transfer cleanup
    basefile bf template tmpl B ctrl-c ctrlc no-ctrl-c no-ctrlc noctrlc work-dir workdir wd W rsync-opts rsyncopts
    tmpdir tempdir use-compress-program compress-program usecompressprogram compressprogram use-decompress-program
    decompress-program usedecompressprogram decompressprogram compress open-tty o tty T H dry-run dryrun dr progress
    eta bar total-jobs totaljobs total shuf arg-sep argsep arg-file-sep argfilesep trim env recordenv record-env
    session plain profile J tollef gnu link xapply linkinputsource xapplyinputsource will-cite willcite nn nonotice
    no-notice halt-on-error haltonerror halt limit memfree memsuspend retries timeout term-seq termseq max-procs
    maxprocs P delimiter d max-chars maxchars s arg-file argfile a no-run-if-empty norunifempty r replace i E eof e
    process-slot-var processslotvar max-args maxargs n max-replace-args maxreplaceargs N col-sep colsep C csv help h
    L max-lines maxlines l interactive p verbose t version V min-version minversion show-limits showlimits exit x
    semaphore semaphore-timeout semaphoretimeout st semaphore-name semaphorename id fg bg wait shebang hashbang Y
    skip-first-line skipfirstline bug pipe spreadstdin round-robin roundrobin round recstart recend regexp regex
    remove-rec-sep removerecsep rrs output-as-files outputasfiles files block-size blocksize block block-timeout
    blocktimeout bt header cat fifo pipe-part pipepart tee shard bin group-by groupby hgrp hostgrp hostgroup
    hostgroups embed filter shell-completion shellcompletion)");
  for (std::string name; names >> name;) {
    const std::string option = (name.size() == 1 ? "-" : "--") + name;
    const Ended ended = run(apfarm({option}));
    EXPECT_EQ(ended.error.find("unknown option"), std::string::npos) << option << ": " << ended.error;
    EXPECT_EQ(ended.error.find("The following argument"), std::string::npos) << option << ": " << ended.error;
  }
  EXPECT_NE(run(apfarm({"--block=1M", "--pipe", "wc"})).error.find("split -l 1000 FILE part."), std::string::npos);
  EXPECT_NE(run(apfarm({"-s20", "echo", ":::", "a"})).error.find("-n N limits the values"), std::string::npos);
}

TEST(Apfarm, RefusesInWords) {
  const std::vector<std::pair<Words, std::string>> wrong{
      {{"--frob", "ls", ":::", "a"}, "unknown option --frob\n"},
      {{"--job", "2", "ls", ":::", "a"}, "unknown option --job; did you mean --jobs?"},
      {{"-S", "host", "ls", ":::", "a"}, "other computers are those of a pool: --in POOL"},
      {{"-j", "x", "ls", ":::", "a"}, "-j x: use a number of jobs"},
      {{"--timeout", "-1", "ls", ":::", "a"}, "use seconds"},
      {{"--halt", "often", "ls", ":::", "a"}, "--halt often: use never"},
      {{"--resume", "ls", ":::", "a"}, "name the file by --joblog"},
      {{"ls", "::::", "/nonexistent/list"}, "cannot open /nonexistent/list: No such file"},
      {{"echo {= s/a/b/ =}", ":::", "a"}, "needs Perl"},
      {{"--plus", "echo {##}", ":::", "a"}, "the number of all jobs is not known"},
      {{"--joblog", "/etc/passwd", "--resume", "ls", ":::", "a"}, "line 1 is none of a joblog"},
  };
  for (const auto& [words, text] : wrong) {
    const Ended ended = run(apfarm(words));
    EXPECT_EQ(ended.status, 255) << text;
    EXPECT_NE(ended.error.find(text), std::string::npos) << ended.error;
  }
}

}  // namespace
}  // namespace aplib::test
