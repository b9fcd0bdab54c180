// SPDX-License-Identifier: MIT
// aprun --send and --fetch, and [[file]], as users run them: machines whose processes have folders of their own, as
// hosts without a common file system have.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "nodes.hpp"

namespace aplib::test {
namespace {

namespace fs = std::filesystem;

/// Reads data/in.txt, writes FILE, ends with STATUS in cell 1.
constexpr const char* program_text = R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  char line[100] = "nothing\n";
  char name[100];
  FILE* in = fopen("data/in.txt", "r");
  if (in != NULL && fgets(line, sizeof line, in) == NULL) return 9;
  printf("cell %d: %s", getcid(), line);
  snprintf(name, sizeof name, argv[1], getcid());
  FILE* out = fopen(name, "w");
  fprintf(out, "result %d\n", getcid());
  fclose(out);
  return getcid() == 1 ? atoi(argv[2]) : 0;
})";

class FileRun : public ::testing::Test {
 protected:
  FileRun() {
    for (const char* name : {"a", "b", "here/data"}) fs::create_directories(folder_ / name);
    folder_.write("here/data/in.txt", "some input\n");
    program_ = folder_.compile("prog", program_text);
  }

  /// A host for each of the folders a and b.
  [[nodiscard]] std::string cluster(const std::string& more = "") const {
    std::string text = "[machine]\ngrid = \"2x1\"\nlaunch = \"local\"\n";
    for (const std::string host : {"a", "b"})
      text += "[[host]]\nname = \"" + host + "\"\ncells = 1\nfolder = \"" + (folder_ / host) + "\"\n";
    return folder_.write("cluster.toml", text + more);
  }
  Ended run_here(const std::string& cluster, Strings arguments, const std::string& result, int status = 0) {
    for (const std::string& word : Strings{program_, result, std::to_string(status)}) arguments.push_back(word);
    return aprun_cluster(cluster, arguments, {.arguments = {}, .folder = folder_ / "here"});
  }
  /// Of `folder`, by path.
  [[nodiscard]] Strings files_in(const std::string& folder) const {
    Strings names;
    if (!fs::exists(folder_ / folder)) return names;
    for (const auto& each : fs::recursive_directory_iterator(folder_ / folder))
      if (!each.is_directory()) names.push_back(each.path().lexically_relative(folder_ / folder).string());
    std::ranges::sort(names);
    return names;
  }

  const Folder folder_;
  std::string program_;
};

TEST_F(FileRun, SentFilesAreThereWhenCellsStart) {
  const Ended ended = run_here(cluster(), {"--send", "data"}, "out");
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(ended.error, "");
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0: some input", "cell 1: some input"}));
  EXPECT_EQ(files_in("b"), (Strings{"data/in.txt", "out"}));
}

TEST_F(FileRun, WhatComesBackUnderOneNameGetsAFolderForEachHost) {
  const Ended ended = run_here(cluster(), {"--fetch", "ou*:results", "--fetch", "../b/out"}, "out");
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(files_in("here"), (Strings{"data/in.txt", "out", "results/a/out", "results/b/out"}));
  EXPECT_EQ(folder_.read("here/results/b/out"), "result 1\n");
  EXPECT_EQ(folder_.read("here/out"), "result 1\n");
}

TEST_F(FileRun, WhatComesBackUnderDifferentNamesSharesTheFolder) {
  const Ended ended = run_here(cluster(), {"--fetch", "out?"}, "out%d");
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(files_in("here"), (Strings{"data/in.txt", "out0", "out1"}));
}

TEST_F(FileRun, AFailedRunIsFetchedToo) {
  const Ended ended = run_here(cluster(), {"--fetch", "out?"}, "out%d", 7);
  EXPECT_EQ(ended.status, 7) << ended.error;
  EXPECT_EQ(files_in("here"), (Strings{"data/in.txt", "out0", "out1"}));
}

TEST_F(FileRun, AfterALostHostTheOthersAreFetched) {
  const std::string program = folder_.compile("waits", R"(
#include <aplib/cellos.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
  int sum = 0;
  fclose(fopen(getcid() == 0 ? "out0" : "out1", "w"));
  xy_isum(0, &sum);
  if (getcid() == 0) {
    puts("all have written");
    fflush(stdout);
  }
  while (getcid() == 1) pause();
  xy_isum(0, &sum);
  return 0;
})");
  Process launcher(
      {.arguments = {APRUN_PROGRAM, "-f", cluster(), "--fetch", "out?", program}, .folder = folder_ / "here"});
  ASSERT_TRUE(launcher.wait_for("all have written"));
  ::kill(nodes_of(launcher.pid(), 2)[1], SIGKILL);
  const Ended ended = launcher.wait();
  EXPECT_NE(ended.status, 0);
  EXPECT_TRUE(contains(ended.error, "b: its files were not fetched: its process was killed by signal 9"))
      << ended.error;
  EXPECT_EQ(files_in("here"), (Strings{"data/in.txt", "out0"})) << ended.error;
}

TEST_F(FileRun, WhatIsThereAndDiffersKeepsAllFromStarting) {
  fs::create_directories(folder_ / "b/data");
  folder_.write("b/data/in.txt", "another input\n");
  const Ended ended = run_here(cluster(), {"--send", "data"}, "out");
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_TRUE(contains(ended.error, "b is not ready: data/in.txt is there and differs; remove it")) << ended.error;
  EXPECT_EQ(files_in("b"), Strings{"data/in.txt"});
  const Ended replaced = run_here(cluster(), {"--send", "data", "--replace"}, "out");
  EXPECT_EQ(replaced.status, 0) << replaced.error;
  EXPECT_EQ(sorted_lines(replaced.out), (Strings{"cell 0: some input", "cell 1: some input"}));
}

TEST_F(FileRun, ACommonFolderStaysAsItIs) {
  const std::string file = local_cluster(folder_, 3, 1);
  const auto before = fs::last_write_time(folder_ / "here/data");
  const Ended ended = run_here(file, {"--send", "data", "--replace", "--fetch", "out*", "--fetch", "data"}, "out%d");
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(files_in("here"), (Strings{"data/in.txt", "out0", "out1", "out2"}));
  EXPECT_EQ(fs::last_write_time(folder_ / "here/data"), before);
}

TEST_F(FileRun, TheClusterFileNamesFiles) {
  const std::string file = cluster(R"(
[[file]]
source = "data/in.txt"
hosts = ["b"]
[[file]]
source = "data"
target = "copy"
[[file]]
source = "out?"
target = "results"
fetch = true
)");
  const Ended ended = run_here(file, {}, "out%d");
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"cell 0: nothing", "cell 1: some input"}));
  EXPECT_EQ(files_in("a"), (Strings{"copy/in.txt", "out0"}));
  EXPECT_EQ(files_in("here"), (Strings{"data/in.txt", "results/out0", "results/out1"}));
}

TEST_F(FileRun, ProcessesGetFilesToo) {
  const Ended ended = aprun_cluster(
      cluster(), {"--processes", "--send", "data", "--fetch", "out", "sh", "-c", "cat data/in.txt; echo done > out"},
      {.arguments = {}, .folder = folder_ / "here"});
  EXPECT_EQ(ended.status, 0) << ended.error;
  EXPECT_EQ(sorted_lines(ended.out), (Strings{"some input", "some input"}));
  EXPECT_EQ(files_in("here"), (Strings{"a/out", "b/out", "data/in.txt"}));
}

TEST_F(FileRun, WhatCannotBeSentIsToldBeforeAnythingStarts) {
  const auto error = [this](const Strings& options, const std::string& more = "") {
    const Ended ended = run_here(cluster(more), options, "out");
    EXPECT_EQ(ended.status, 2);
    return ended.error;
  };
  EXPECT_TRUE(contains(error({"--send", "nothing"}), "cannot read nothing: No such file or directory"));
  EXPECT_TRUE(contains(error({"--send", "data:../x"}), "\"../x\" is not in the working folder of a host"));
  EXPECT_TRUE(contains(error({"--send", "data:x", "--send", "../a:x"}), "another file goes to x, too"));
  EXPECT_TRUE(contains(error({}, "[[file]]\nsource = \"nothing\"\n"), "cannot read nothing"));
  EXPECT_TRUE(files_in("a").empty());
}

TEST_F(FileRun, WhereNothingMatchesTheUserIsTold) {
  const Ended ended = run_here(cluster(), {"--fetch", "nothing*"}, "out");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.error, "aprun: no host has a file nothing* to fetch\n");
}

/// At any moment of the transfer.
TEST_F(FileRun, AKilledNodeLeavesNoPartOfAFile) {
  const std::size_t bytes = std::size_t{64} << 20;
  folder_.write("here/big", std::string(bytes, 'x'));
  const std::string file = cluster();
  for (int round = 0; round < 3; ++round) {
    Process launcher(
        {.arguments = {APRUN_PROGRAM, "-f", file, "--send", "big", program_, "out", "0"}, .folder = folder_ / "here"});
    for (const pid_t node : nodes_of(launcher.pid(), 2)) ::kill(node, SIGKILL);
    static_cast<void>(launcher.wait());
    for (const char* host : {"a", "b"}) {
      for (const std::string& name : files_in(host)) {
        EXPECT_EQ(name.find("aplib-part"), std::string::npos) << name;
        if (name == "big") {
          EXPECT_EQ(fs::file_size(fs::path(folder_ / host) / name), bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace aplib::test
