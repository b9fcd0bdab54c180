// SPDX-License-Identifier: MIT
// apbench farm: its files, right and wrong, its columns, its jobs, the paper's scenarios, and the model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "farm/job.hpp"
#include "farm/model.hpp"
#include "farm/scenarios.hpp"
#include "farm/setup.hpp"
#include "program.hpp"

namespace apbench::farm {
namespace {

using aplib::farm::Where;

/// The paper's example, with a line for each element.
const std::string usual_setup = R"(<?xml version="1.0" encoding="UTF-8"?>
<BenchmarkSetup>
  <NTasks>10</NTasks>
  <NNodes>1</NNodes>
  <InputFile>input.10.30.5</InputFile>
  <TaskDataSize>5</TaskDataSize>
  <SharedDataSize>5.5</SharedDataSize>
  <WriteDataSize>5</WriteDataSize>
</BenchmarkSetup>
)";
const std::string usual_times = "# seconds\n30\n30.5\n\n  29 \r\n1e1\n0\n# five more\n1\n2\n3\n4\n5\n6\n";

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "aplib-farm-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    write("setup.xml", usual_setup);
    write("input.10.30.5", usual_times);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  /// The usual setup with one text in place of another.
  void change(const std::string& what, const std::string& with) const {
    std::string text = usual_setup;
    const std::size_t at = text.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    write("setup.xml", text.replace(at, what.size(), with));
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// What is wrong with the files, without their folder.
  [[nodiscard]] std::string fault() const {
    try {
      static_cast<void>(read_setup(path("setup.xml")));
      return "";
    } catch (const aplib::Error& error) {
      EXPECT_EQ(error.code(), aplib::Errc::bad_option);
      std::string text = error.what();
      const std::string prefix = folder_.string() + "/";
      for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
        text.erase(at, prefix.size());
      return text;
    }
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Files, OfThePaperAreRead) {
  const auto setup = read_setup(path("setup.xml"));
  EXPECT_EQ(setup.tasks, 10U);
  EXPECT_EQ(setup.nodes, 1U);
  EXPECT_EQ(setup.input_file, "input.10.30.5");
  EXPECT_EQ(setup.task_kb, 5);
  EXPECT_EQ(setup.shared_kb, 5.5);
  EXPECT_EQ(setup.write_kb, 5);
  EXPECT_EQ(setup.sleeps, (std::vector<double>{30, 30.5, 29, 10, 0, 1, 2, 3, 4, 5}));  // the eleventh is not asked for
}

TEST_F(Files, MayHaveCommentsAndMore) {
  change("<NTasks>10</NTasks>", "<!-- few --><Author>x</Author><NTasks> 2 </NTasks>");
  EXPECT_EQ(read_setup(path("setup.xml")).sleeps, (std::vector<double>{30, 30.5}));
}

TEST_F(Files, ThatAreNoXmlAreRefusedWithTheLine) {
  change("</NNodes>", "</NNode>");
  EXPECT_EQ(
      fault(),
      "setup.xml:4: no XML: Start-end tags mismatch, at \"<NNodes>1</NNode>\"; close each element by its own name");
  write("setup.xml", "");
  EXPECT_EQ(fault(), "setup.xml:1: no XML: No document element found, at \"\"; close each element by its own name");
  write("setup.xml", "<Benchmark/>");
  EXPECT_EQ(fault(), "setup.xml:1: the outer element is <Benchmark>; the benchmark's is <BenchmarkSetup>");
}

TEST_F(Files, LackNoElementAndHaveNoneTwice) {
  change("WriteDataSize>5</WriteDataSize", "WriteDatasize>5</WriteDatasize");
  EXPECT_EQ(fault(),
            "setup.xml:2: <BenchmarkSetup> has no <WriteDataSize>; the benchmark needs NTasks, NNodes, InputFile, "
            "TaskDataSize, SharedDataSize and WriteDataSize");
  change("<NNodes>1</NNodes>", "<NTasks>1</NTasks>\n<NNodes>1</NNodes>");
  EXPECT_EQ(fault(), "setup.xml:4: a second <NTasks>; leave one");
}

TEST_F(Files, HaveNumbersThatArePossible) {
  const auto with = [this](const std::string& element, const std::string& value) {
    change(element, element.substr(0, element.find('>') + 1) + value);
    return fault();
  };
  EXPECT_EQ(with("<NTasks>10", "ten"), "setup.xml:3: NTasks is \"ten\"; write a whole number from 1 to 1000000");
  EXPECT_EQ(with("<NTasks>10", "0"), "setup.xml:3: NTasks is \"0\"; write a whole number from 1 to 1000000");
  EXPECT_EQ(with("<NTasks>10", ""), "setup.xml:3: NTasks is \"\"; write a whole number from 1 to 1000000");
  EXPECT_EQ(with("<NNodes>1", "1.5"), "setup.xml:4: NNodes is \"1.5\"; write a whole number from 1 to 10000");
  EXPECT_EQ(with("<TaskDataSize>5", "-1"), "setup.xml:6: TaskDataSize is \"-1\"; write a number from 0 to 1000000");
  EXPECT_EQ(with("<SharedDataSize>5.5", "5,5"),
            "setup.xml:7: SharedDataSize is \"5,5\"; write a number from 0 to 1000000");
  EXPECT_EQ(with("<WriteDataSize>5", "nan"), "setup.xml:8: WriteDataSize is \"nan\"; write a number from 0 to 1000000");
  EXPECT_EQ(with("<InputFile>input.10.30.5", " "),
            "setup.xml:5: InputFile is empty; name a file with the seconds of each task, one a line");
}

TEST_F(Files, HaveATimeForEachTask) {
  write("input.10.30.5", "# times\n1\n2 3\n");
  EXPECT_EQ(
      fault(),
      "input.10.30.5:3: \"2 3\" is no time; write the seconds of one task, from 0 to 1000000, or # and a comment");
  write("input.10.30.5", "1\n-2\n");
  EXPECT_EQ(fault(),
            "input.10.30.5:2: \"-2\" is no time; write the seconds of one task, from 0 to 1000000, or # and a comment");
  write("input.10.30.5", "1\n2\n3");
  EXPECT_EQ(
      fault(),
      "input.10.30.5:4: it ends after 3 times, and NTasks in setup.xml:3 asks for 10; add a line for each task, or "
      "lower NTasks");
  change("input.10.30.5", "elsewhere");
  EXPECT_EQ(
      fault(),
      "elsewhere: cannot be read: No such file or directory; it should be the file of times that InputFile names");
  change("input.10.30.5", ".");
  EXPECT_EQ(fault(), ".: cannot be read: Is a directory; it should be the file of times that InputFile names");
}

TEST_F(Files, MakeTheColumnsOfThePaper) {
  change("<NNodes>1", "<NNodes>4");
  const Outcome outcome = run_program(APBENCH_PROGRAM, {"farm", "--setup", path("setup.xml"), "--scale", "1000"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 11U);
  EXPECT_EQ(lines[0],
            "# NTasks=10 NNodes=4 InputFile=input.10.30.5 TaskDataSize=5 SharedDataSize=5.5 WriteDataSize=5 scale=1000 "
            "workers=threads");
  const std::regex line("(\\d+)( \\d+\\.\\d{6}){5} \\S+");
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::smatch match;
    ASSERT_TRUE(std::regex_match(lines[i], match, line)) << lines[i];
    EXPECT_EQ(match[1], std::to_string(i - 1));
  }
  EXPECT_EQ(lines[1].substr(0, 11), "0 0.030000 ");
}

TEST(Columns, AreSecondsWithSixDecimals) {
  const Job job{.nodes = 2, .sleeps = {0.5, 30}};
  EXPECT_EQ(columns(job, {{0.25, 0.5, 1, 1.0000004, "a"}, {0.3, 0.6, 30.6, 30.7, "b"}}),
            "0 0.500000 0.250000 0.500000 1.000000 1.000000 a\n1 30.000000 0.300000 0.600000 30.600000 30.700000 b\n");
}

class Jobs : public testing::TestWithParam<Where> {};

INSTANTIATE_TEST_SUITE_P(, Jobs, testing::Values(Where::threads, Where::processes),
                         [](const auto& info) { return info.param == Where::threads ? "threads" : "processes"; });

TEST_P(Jobs, MoveAllDataAndSleep) {
  Job job{.nodes = 5, .task_bytes = 1'000'001, .shared_bytes = 3'000'000, .write_bytes = 99'999};
  for (int i = 0; i < 20; ++i) job.sleeps.push_back(0.0005 * i);
  const std::vector<TaskTimes> times = run(job, GetParam());
  ASSERT_EQ(times.size(), job.sleeps.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_GT(times[i].submit, 0);
    EXPECT_LT(times[i].submit, times[i].calc_in);
    EXPECT_GE(times[i].calc_out - times[i].calc_in, job.sleeps[i]);
    EXPECT_LT(times[i].calc_out, times[i].retrieve);
    EXPECT_FALSE(times[i].host.empty());
  }
}

TEST(JobsInThreads, MayHaveMoreDataThanMayWait) {
  const Job job{.nodes = 4, .sleeps = std::vector<double>(6, 0), .task_bytes = 150'000'000, .write_bytes = 50'000'000};
  EXPECT_LT(bytes_needed(job, Where::threads), 1'000'000'000U);
  EXPECT_EQ(run(job, Where::threads).size(), 6U);
}

TEST_P(Jobs, FailWithTheirTasks) {  // others wait for memory then, and must not wait for ever
  const Job job{.nodes = 2, .sleeps = std::vector<double>(50, 0), .task_bytes = 10, .write_bytes = 1ULL << 62};
  try {
    static_cast<void>(run(job, GetParam()));
    FAIL() << "it went well";
  } catch (const aplib::Error& error) {
    EXPECT_TRUE(std::regex_match(error.what(), std::regex("task \\d+ failed: std::bad_alloc"))) << error.what();
  }
}

TEST(Scenarios, AreThePapersCases) {
  const std::array<std::size_t, scenario_count> counts{36, 30, 5, 108, 108, 60};
  for (int number = 1; number <= scenario_count; ++number)
    EXPECT_EQ(cases(number).size(), counts.at(static_cast<std::size_t>(number - 1)));
  const Case thousand{.cores = 100, .tasks = 1000, .sleep = 0.1};
  EXPECT_EQ(peers(6, thousand).symphony, "6.65 / 1.037");
  EXPECT_EQ(peers(6, thousand).ninf_g, "20.25 / 3.998");
  EXPECT_EQ(peers(6, {.cores = 100, .tasks = 100, .sleep = 0.1}).symphony, "");  // 10 s in all: no figures
  EXPECT_EQ(peers(2, {.cores = 100, .tasks = 400, .sleep = 1, .task_kb = 100}).symphony, "9.8");
  EXPECT_EQ(peers(2, {.cores = 100, .tasks = 400, .sleep = 1, .task_kb = 1000}).symphony, "17.0");
}

TEST(Scenarios, SayWhenAllHadBegun) {
  const Job job{.nodes = 2, .sleeps = {1, 1, 1}};
  const Figures found = figures(job, {{0.5, 0.75, 1.75, 2, "a"}, {0.5, 1, 2, 2.25, "a"}, {0.5, 2, 3, 3.25, "a"}});
  EXPECT_DOUBLE_EQ(found.total, 3.25);
  EXPECT_DOUBLE_EQ(found.standing, 2.75);
  EXPECT_DOUBLE_EQ(found.work, 2);
  EXPECT_DOUBLE_EQ(found.first_start, 0.25);
  EXPECT_DOUBLE_EQ(found.all_started, 0.5);
}

/// All cases of a scenario, as the model says that they would go.
std::vector<Observation> made(std::initializer_list<int> scenarios, const Model& model) {
  std::vector<Observation> all;
  for (const int number : scenarios) {
    for (const Case& one : cases(number)) {
      const Job job = job_of(one, 1);
      Observation each = observation(job, {.work = 1});
      each.total = model.total(each);
      all.push_back(each);
    }
  }
  return all;
}

TEST(Models, AreFoundFromWhatTheyPredict) {
  const Model ninf_g{.seconds = {4.2, 0.15, 0.001, 8 / 835e6, 8 / 880e6, 8 / 570e6}};
  const std::vector<Observation> all = made({1, 4, 5}, ninf_g);
  const Model found = fit(all);
  for (std::size_t i = 0; i < Model::terms; ++i)
    EXPECT_NEAR(found.seconds[i] / ninf_g.seconds[i], 1, 1e-3) << "term " << i;
  EXPECT_NE(describe(found, all)
                .find("work + 4.20 s start-up + 0.15 s for each core + 1.00 ms for each task + task "
                      "data / 835 Mb/s + common data x cores / 880 Mb/s + output / 570 Mb/s\n"),
            std::string::npos)
      << describe(found, all);
}

TEST(Models, LeaveOutWhatTheirCasesDoNotTell) {  // scenario 6 has always 100 cores, no common data and no output
  const Model model{.seconds = {2, 0, 0.01, 8 / 800e6, 0, 0}};
  const Model found = fit(made({6}, model));
  EXPECT_NEAR(found.seconds[0], 2, 1e-3);
  EXPECT_EQ(found.seconds[1], 0);
  EXPECT_NEAR(found.seconds[2], 0.01, 1e-5);
  EXPECT_EQ(found.seconds[4], 0);
  EXPECT_EQ(found.seconds[5], 0);
}

TEST(FarmCommand, RunsScenariosBesideThePaper) {
  const Outcome outcome =
      run_program(APBENCH_PROGRAM, {"farm", "--scenario", "3,6", "--scale", "100000", "--kb", "0,10"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Scenario 3: start-up; the sleeps of the table divided by 100000\n"), std::string::npos);
  EXPECT_NE(outcome.out.find("| 6.65 / 1.037               | 20.25 / 3.998\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("Model, by 35 cases: total = work + "), std::string::npos) << outcome.out;
  EXPECT_EQ(lines_of(outcome.out).size(), 2 * 3 + 35 + 4U);
}

TEST(FarmCommand, RefusesWhatItDoesNotKnow) {
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "farm");
    const Outcome outcome = run_program(APBENCH_PROGRAM, arguments);
    EXPECT_EQ(outcome.status, 2);
    return outcome.err;
  };
  EXPECT_EQ(refused({}), "apbench: --setup or --scenario is required; see apbench farm --help\n");
  EXPECT_EQ(refused({"--scenario", "7"}).find("apbench: --scenario: Value 7 not in range"), 0U);  // CLI11 says where
  EXPECT_EQ(refused({"--scenario", "3", "--cores", "7"}),
            "apbench: no case was run: the chosen scenarios have none for --kb, --cores and --tasks that fits into "
            "memory; see apbench farm --help\n");
  EXPECT_EQ(refused({"--setup", "missing.xml"}),
            "apbench: missing.xml: cannot be read: No such file or directory; it should be the benchmark's XML file\n");
}

}  // namespace
}  // namespace apbench::farm
