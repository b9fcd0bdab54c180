// SPDX-License-Identifier: MIT
// Journals of farms: what a program that was killed has done is not done again.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <aplib/farm.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "farm/journal.hpp"

namespace aplib::farm {
namespace {

/// A folder with a journal, and a file that has a byte for each run of a task.
class JournaledFarm : public testing::TestWithParam<Where> {
 protected:
  JournaledFarm() {
    std::string name = (std::filesystem::temp_directory_path() / "aplib-journal-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~JournaledFarm() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string journal() const { return folder_ / "journal"; }
  [[nodiscard]] std::string runs() const { return folder_ / "runs"; }
  [[nodiscard]] std::uintmax_t run_count() const {
    return std::filesystem::exists(runs()) ? std::filesystem::file_size(runs()) : 0;
  }
  /// Without copies of tasks that are late, which would be further runs.
  [[nodiscard]] Options options() const {
    return {.where = GetParam(), .workers = 2, .copies = false, .journal = journal()};
  }

  /// Squares, and words of them.
  void run_all(int count) const {
    Farm farm(options());
    std::vector<Future<std::string>> all;
    for (int i = 0; i < count; ++i) all.push_back(farm.submit(&noted, runs(), i));
    for (int i = 0; i < count; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)].get(), std::to_string(i * i));
  }

  static std::string noted(const std::string& file, int number) {
    std::ofstream(file, std::ios::app) << '.';
    return std::to_string(number * number);
  }

 private:
  std::filesystem::path folder_;
};

/// Threads run none.
class CopiesOfJournaledTasks : public JournaledFarm {};

INSTANTIATE_TEST_SUITE_P(, CopiesOfJournaledTasks, testing::Values(Where::processes));
INSTANTIATE_TEST_SUITE_P(, JournaledFarm, testing::Values(Where::threads, Where::processes),
                         [](const auto& info) { return info.param == Where::threads ? "threads" : "processes"; });

TEST_P(JournaledFarm, RunsEachTaskOnce) {
  run_all(50);
  EXPECT_EQ(run_count(), 50U);
  run_all(80);
  EXPECT_EQ(run_count(), 80U);
}

TEST_P(CopiesOfJournaledTasks, GiveOneResult) {
  const auto late = [](const std::string& file, std::uintmax_t until) {
    std::ofstream(file, std::ios::app) << '.';
    while (std::filesystem::file_size(file) < until) ::usleep(1000);
    return static_cast<int>(::getpid());
  };
  Options with_copies = options();
  with_copies.copies = true;
  int first = 0;
  {
    Farm farm(with_copies);
    static_cast<void>(farm.submit(&noted, runs(), 1).get());     // from here on it knows what tasks usually take
    first = farm.submit(late, runs(), std::uintmax_t{3}).get();  // hangs, unless an idle worker runs it, too
  }
  EXPECT_EQ(run_count(), 3U);
  Farm farm(options());
  EXPECT_EQ(farm.submit(late, runs(), std::uintmax_t{3}).get(), first);
  EXPECT_EQ(run_count(), 3U);
  EXPECT_NE(farm.submit(late, runs(), std::uintmax_t{3}).get(), first) << "there is no second result";
  EXPECT_EQ(run_count(), 4U);
}

TEST_P(JournaledFarm, GivesEqualTasksTheirResultsInTurn) {
  const auto run_thrice = [&] {
    Farm farm(options());
    std::vector<int> results;
    for (int i = 0; i < 3; ++i)
      results.push_back(farm.submit([] { return static_cast<int>(std::random_device()()); }).get());
    return results;
  };
  const std::vector<int> first = run_thrice();
  EXPECT_EQ(run_thrice(), first);
}

TEST_P(JournaledFarm, RunsAgainWhatFailed) {
  for (int i = 0; i < 2; ++i) {
    Farm farm(options());
    const auto failing = farm.submit(
        [](const std::string& file) {
          std::ofstream(file, std::ios::app) << '.';
          throw std::runtime_error("no");
        },
        runs());
    EXPECT_THROW(failing.get(), std::exception);
  }
  EXPECT_EQ(run_count(), 2U);
}

TEST_P(JournaledFarm, GoesOnWhereItWasKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    Farm farm(options());
    std::vector<Future<std::string>> all;
    for (int i = 0; i < 200; ++i) all.push_back(farm.submit(&noted, runs(), i));
    for (int i = 0; i < 100; ++i) static_cast<void>(all[static_cast<std::size_t>(i)].get());
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  run_all(200);
  // What ran and was not told when the program was killed runs twice: one batch of each worker at most.
  EXPECT_LE(run_count(), 300U);
  const auto before = run_count();
  run_all(200);
  EXPECT_EQ(run_count(), before);
}

TEST_P(JournaledFarm, CutsATornRecord) {
  run_all(20);
  const auto size = std::filesystem::file_size(journal());
  for (const std::uintmax_t less : {1U, 9U, 40U}) {
    std::filesystem::resize_file(journal(), std::filesystem::file_size(journal()) - less);
    run_all(20);
    EXPECT_EQ(std::filesystem::file_size(journal()), size);
  }
  std::filesystem::resize_file(journal(), size + 4096);  // as a crash of the system may leave it
  run_all(20);
  EXPECT_EQ(std::filesystem::file_size(journal()), size);
  std::filesystem::resize_file(journal(), 5);  // of the title
  run_all(1);
}

int doubled(int number) { return 2 * number; }

TEST_P(JournaledFarm, TellsThatItCannotWriteIt) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little{.rlim_cur = journal_title.size(), .rlim_max = limit.rlim_max};
  const std::string problem =
      "journal " + journal() + ": cannot write it: File too large; raise the limit on the size of files (ulimit -f)";
  for (const bool goes_on : {true, false}) {
    std::string why;
    testing::internal::CaptureStderr();
    {
      Farm farm(options());
      EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
      EXPECT_EQ(farm.submit(&doubled, 4).get(), 8) << "the task itself is done";
      EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
      try {
        if (goes_on) static_cast<void>(farm.submit(&doubled, 5));
      } catch (const Error& error) {
        why = error.what();
      }
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(goes_on ? why : said,
              goes_on ? problem : "aplib: farm: " + problem + "; tasks whose results are missing there run again\n");
    EXPECT_EQ(goes_on ? said : why, "") << "once is enough";
  }
}

std::string why_refused(const Options& options) {
  try {
    const Farm farm(options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_P(JournaledFarm, RefusesOtherFilesAndDamage) {
  std::ofstream(journal()) << "Seq\tHost\n";
  EXPECT_NE(why_refused(options()).find("it is no journal of a farm"), std::string::npos);
  std::filesystem::remove(journal());
  run_all(20);
  std::fstream file(journal(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(journal_title.size() + 20));
  file << "XYZ";
  file.close();
  EXPECT_NE(why_refused(options()).find("it is damaged from byte 21 on"), std::string::npos) << why_refused(options());
  Options none = options();
  none.journal = "/no/such/journal";
  EXPECT_EQ(why_refused(none), "journal /no/such/journal: cannot open it: No such file or directory");
}

TEST_P(JournaledFarm, RefusesTasksThatAreNoBytes) {
  Farm farm(options());
  const std::string kept = "captured";
  EXPECT_THROW(static_cast<void>(farm.submit([kept] { return kept.size(); })), Error);
}

TEST(Journal, AnyBytesAreReadUpToWhatIsWhole) {
  launch::wire::Bytes bytes;
  const launch::wire::Bytes some(100, std::byte{7});
  for (int i = 0; i < 5; ++i) append_record(bytes, {.function = "f", .arguments = some, .result = some});
  const std::size_t record = bytes.size() / 5;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const JournalScan scan = scan_journal(std::span(bytes).first(size));
    ASSERT_EQ(scan.records.size(), size / record);
    ASSERT_EQ(scan.whole, size / record * record);
    ASSERT_FALSE(scan.damaged);
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    launch::wire::Bytes changed = bytes;
    changed[i] ^= std::byte{0x10};
    const JournalScan scan = scan_journal(changed);
    ASSERT_LE(scan.records.size(), i / record) << "nothing behind the change counts";
    ASSERT_TRUE(scan.damaged || i >= 4 * record) << "what is behind the change is not cut off";
  }
}

}  // namespace
}  // namespace aplib::farm
