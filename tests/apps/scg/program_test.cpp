// SPDX-License-Identifier: MIT
// scg as users run it: its text, JSON and files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <png.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Ended {
  int status = -1;
  std::string output;  ///< stdout, or both streams if asked for
};

Ended run(std::string command, bool with_errors) {
  command += with_errors ? " 2>&1" : " 2>/dev/null";
  Ended run;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char piece[4096];
  std::size_t bytes = 0;
  while ((bytes = std::fread(piece, 1, sizeof piece, pipe)) > 0) run.output.append(piece, bytes);
  const int ended = pclose(pipe);
  run.status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  return run;
}

Ended scg(const std::string& arguments, bool with_errors = false) {
  return run(std::string(SCG_PROGRAM) + " " + arguments, with_errors);
}

/// The same by aprun, with aprun's own options.
Ended by_aprun(const std::string& options, const std::string& arguments) {
  return run(std::string(APRUN_PROGRAM) + " " + options + " " + SCG_PROGRAM + " " + arguments, false);
}

/// The text of a value in a JSON object of numbers, texts and lists.
std::string value_of(const std::string& json, const std::string& key) {
  const std::string name = "\"" + key + "\":";
  const std::size_t found = json.find(name);
  if (found == std::string::npos) return "missing";
  const std::size_t from = found + name.size();
  const std::size_t to = json[from] == '[' ? json.find(']', from) + 1 : json.find_first_of(",}", from);
  return json.substr(from, to - from);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "scg-test-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

TEST(Program, EndsWithOneJsonObjectOnOneLine) {
  const Ended run = scg("--cells 2x2 --threads 2 --grid 60x50 --json");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(run.output.find('\n'), run.output.size() - 1) << run.output;
  EXPECT_EQ(run.output.rfind("{\"grid\":[60,50],\"cells\":[2,2],\"iterations\":", 0), 0U) << run.output;
  EXPECT_EQ(run.output.substr(run.output.size() - 2), "}\n");
  EXPECT_GT(std::stoi(value_of(run.output, "iterations")), 50);
  EXPECT_LE(std::stod(value_of(run.output, "residual")), 1e-8);
  EXPECT_LT(std::stod(value_of(run.output, "error_max")), 5e-3);
  EXPECT_GT(std::stod(value_of(run.output, "seconds")), 0);
  EXPECT_GT(std::stod(value_of(run.output, "mflops")), 0);
  EXPECT_GT(std::stod(value_of(run.output, "gbytes_per_second")), 0);
  EXPECT_GT(std::stod(value_of(run.output, "triad_gbytes_per_second")), 0);
  EXPECT_EQ(value_of(run.output, "threads"), "2");
  EXPECT_EQ(value_of(run.output, "problem"), "\"steep\"");
  EXPECT_EQ(value_of(run.output, "flops_per_unknown"), "16");
}

TEST(Program, RunsTheSameUnderAprun) {
  const std::string same[] = {"iterations", "residual", "error_max", "true_residual"};
  const Ended direct = scg("--cells 2x2 --grid 60x50 --json");
  const Ended launched = by_aprun("-g 2x2", "--grid 60x50 --json");
  ASSERT_EQ(launched.status, 0);
  for (const std::string& key : same) EXPECT_EQ(value_of(launched.output, key), value_of(direct.output, key)) << key;
  EXPECT_EQ(value_of(by_aprun("-n 4", "--grid 20 --json").output, "cells"), "[4,1]");
  EXPECT_EQ(value_of(by_aprun("-n 4", "--cells 1x3 --grid 20 --json").output, "cells"), "[1,3]")
      << "the program's own options come later";
  setenv("APLIB_CELLS", "5x1", 1);
  EXPECT_EQ(value_of(by_aprun("-n 4", "--grid 20 --json").output, "cells"), "[4,1]")
      << "aprun's wins over the environment";
  EXPECT_EQ(value_of(scg("--grid 20 --json").output, "cells"), "[5,1]");
  unsetenv("APLIB_CELLS");
}

TEST(Program, WithoutAnExactSolutionTheErrorIsNull) {
  const Ended run = scg("--problem charges --grid 30 --json --quiet");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(value_of(run.output, "error_max"), "null");
}

TEST(Program, TellsPeopleWhatTheyAskedFor) {
  const Ended run = scg("--cells 2x1 --threads 1 --grid 40 --tol 1e-6");
  ASSERT_EQ(run.status, 0);
  for (const char* text :
       {"problem          steep: u = exp(3x - 2y) sin(pi x) sin(2 pi y)\n", "grid             40 x 40, 1600 unknowns\n",
        "cells            2 x 1 on 1 thread\n", "iterations       ", "residual         ",
        " at most, against the exact solution\n", "time             ",
        " MFlops, counting 16 operations per unknown and iteration\n",
        " GB/s, counting 40 bytes per unknown and iteration; triad on the same memory: ", "time in messages "}) {
    EXPECT_NE(run.output.find(text), std::string::npos) << "no \"" << text << "\" in\n" << run.output;
  }
}

TEST(Program, QuietSaysNothing) {
  const Ended run = scg("--grid 20 --quiet", true);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.output, "");
}

TEST(Program, SameBitsForEveryNumberOfThreads) {
  const std::string arguments = "--cells 4x2 --grid 75x61 --json --quiet --threads ";
  const Ended reference = scg(arguments + "1");
  ASSERT_EQ(reference.status, 0);
  for (const char* threads : {"2", "3", "per-cell"}) {
    const Ended run = scg(arguments + threads);
    EXPECT_EQ(value_of(run.output, "iterations"), value_of(reference.output, "iterations"));
    EXPECT_EQ(value_of(run.output, "residual"), value_of(reference.output, "residual"));
    EXPECT_EQ(value_of(run.output, "error_max"), value_of(reference.output, "error_max"));
  }
}

TEST(Program, PictureIsAPngOfTheSolution) {
  const TemporaryFolder folder;
  const std::string path = folder.file("sine.png");
  ASSERT_EQ(scg("--cells 2x2 --problem sine --grid 25 --quiet --image " + path).status, 0);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_file(&image, path.c_str()), 0) << image.message;
  image.format = PNG_FORMAT_RGB;
  EXPECT_EQ(image.width, 868U);
  EXPECT_EQ(image.height, 792U);
  std::vector<png_byte> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0) << image.message;
  const auto brightness = [&](std::size_t x, std::size_t y) {
    const png_byte* at = &pixels[(y * image.width + x) * 3];
    return at[0] + at[1] + at[2];
  };
  // A hill in the middle of the square (64..703 x 100..739), dark at its sides, on white paper.
  EXPECT_GT(brightness(384, 420), 450);
  EXPECT_LT(brightness(70, 420), 200);
  EXPECT_LT(brightness(384, 733), 200);
  EXPECT_EQ(brightness(860, 785), 765);
  EXPECT_LT(brightness(740, 735), 200) << "the colour scale is dark at its foot";
  EXPECT_GT(brightness(740, 104), 450) << "and light at its head";
}

TEST(Program, HistoryHasALinePerIteration) {
  const TemporaryFolder folder;
  const std::string path = folder.file("history.csv");
  const Ended run = scg("--cells 2 --grid 40 --json --quiet --history " + path);
  ASSERT_EQ(run.status, 0);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "iteration,residual");
  int lines = 0;
  std::string last;
  while (std::getline(file, line)) {
    EXPECT_EQ(line.rfind(std::to_string(lines) + ",", 0), 0U) << line;
    ++lines;
    last = line;
  }
  EXPECT_EQ(std::to_string(lines - 1), value_of(run.output, "iterations"));
  EXPECT_LE(std::stod(last.substr(last.find(',') + 1)), 1e-8);
}

TEST(Program, NotConvergingIsSaidAndIsAFailure) {
  const Ended run = scg("--grid 50 --max-iter 5");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.output.find("iterations       5: not converged (tolerance 1e-08); raise --max-iter\n"),
            std::string::npos)
      << run.output;
}

TEST(Program, OverflowIsSaidAndJsonStaysJson) {
  const Ended run = scg("--grid 20 --charge 0.5,0.5,1e300 --json", true);
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.output.find("iterations       0: stopped, because numbers overflowed; use smaller charges\n"),
            std::string::npos)
      << run.output;
  EXPECT_EQ(value_of(run.output, "residual"), "null") << run.output;
}

struct Refusal {
  const char* arguments;
  const char* text;
};

class Refuses : public testing::TestWithParam<Refusal> {};

TEST_P(Refuses, InWords) {
  const Ended run = scg(GetParam().arguments, true);
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_NE(run.output.find(GetParam().text), std::string::npos) << run.output;
  EXPECT_EQ(run.output.rfind("scg: ", 0), 0U) << run.output;
}

INSTANTIATE_TEST_SUITE_P(
    BadInput, Refuses,
    testing::Values(
        Refusal{"--cells 5x2 --grid 3x300",
                "scg: 5x2 cells cannot share a grid of 3x300 unknowns, because each cell needs at least one column and "
                "one row; the "
                "largest grid of cells possible is 3x300: use --cells 3x2 or a larger --grid\n"},
        Refusal{"--grid 0", "--grid: \"0\" is not a grid: use N or NXxNY with 1 to 100000 unknowns in each direction"},
        Refusal{"--cells 0x4", "--cells: \"0x4\""},
        Refusal{"--tol 2", "--tol: \"2\" is not a tolerance: use a number between 0 and 1"},
        Refusal{"--max-iter -1", "--max-iter: \"-1\" is not a number of iterations"},
        Refusal{"--problem cosine",
                "--problem: there is no problem \"cosine\"; there are steep, sine, polynomial, harmonic, charges"},
        Refusal{"--charge 2,2,1", "--charge: \"2,2,1\" is not a charge: it lies outside the square"},
        Refusal{"--problem sine --charge 0.5,0.5,1", "scg: --charge needs --problem charges, not sine\n"},
        Refusal{"--gird 300", "--gird"}),
    [](const auto& info) { return "case" + std::to_string(info.index); });

TEST(Program, FilesThatCannotBeWrittenAreNamed) {
  const Ended picture = scg("--grid 10 --quiet --image /nowhere/at/all.png", true);
  EXPECT_EQ(picture.status, 1);
  EXPECT_EQ(picture.output, "scg: cannot write the picture \"/nowhere/at/all.png\": No such file or directory\n");
  const Ended history = scg("--grid 10 --quiet --history /nowhere/at/all.csv", true);
  EXPECT_EQ(history.status, 1);
  EXPECT_EQ(history.output, "scg: cannot write the history \"/nowhere/at/all.csv\": No such file or directory\n");
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Program, WhatIsNoRegularFileIsWrittenAsItIs) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int held = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(held, 0);
  EXPECT_EQ(scg("--cells 1 --grid 10 --quiet --history " + pipe).status, 0);
  char text[64] = {};
  EXPECT_GT(read(held, text, sizeof text - 1), 0);
  EXPECT_EQ(std::string(text).rfind("iteration,residual\n0,", 0), 0U) << text;
  close(held);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  const std::string link = folder.file("link.png");
  std::filesystem::create_symlink("full", link);
  const std::string full = folder.file("full");
  if (mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0 || access("/dev/full", F_OK) != 0 ||
      std::ofstream(full).put('x').good() == false) {
    GTEST_SKIP() << "needs devices that one can make and open: " << std::strerror(errno);
  }
  for (const char* option : {"image", "history"}) {
    for (const std::string& name : {full, link}) {
      const Ended run = scg("--grid 10 --quiet --" + std::string(option) + " " + name, true);
      EXPECT_EQ(run.status, 1) << name;
      EXPECT_NE(run.output.find("\"" + name + "\": No space left on device\n"), std::string::npos) << run.output;
      EXPECT_TRUE(std::filesystem::is_character_file(full)) << "the device is gone";
      EXPECT_TRUE(std::filesystem::is_symlink(link));
    }
  }
}

TEST(Program, AFileIsReplacedAsAWholeOrStays) {
  const TemporaryFolder folder;
  const std::string path = folder.file("history.csv");
  std::ofstream(path) << "as it was";
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::string link = folder.file("link");
  std::filesystem::create_symlink("history.csv", link);
  EXPECT_EQ(
      run("(ulimit -f 0; trap '' XFSZ; " SCG_PROGRAM " --cells 1 --grid 10 --quiet --history " + link + ")", false)
          .status,
      1);
  EXPECT_EQ(contents(path), "as it was");
  EXPECT_EQ(scg("--cells 1 --grid 10 --quiet --history " + link).status, 0);
  EXPECT_EQ(contents(path).rfind("iteration,residual\n0,", 0), 0U);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(path).parent_path()))
    ++files;
  EXPECT_EQ(files, 2U) << "nothing is left beside it";
}

TEST(Program, StandardOutputThatCannotBeWrittenIsAFailureInWords) {
  const Ended full = run("{ " SCG_PROGRAM " --cells 1 --threads 1 --grid 10 >/dev/full; }", true);
  EXPECT_EQ(full.status, 1) << full.output;
  EXPECT_NE(full.output.find("standard output"), std::string::npos) << full.output;
}

TEST(Program, HelpNamesEveryProblemAndMachineOption) {
  const Ended run = scg("--help");
  EXPECT_EQ(run.status, 0);
  for (const char* text : {"--grid", "--tol", "--max-iter", "--problem", "--charge", "--image", "--history", "--json",
                           "--quiet", "--cells", "--threads", "polynomial: u = 32 x^3 (1 - x) y (1 - y)"}) {
    EXPECT_NE(run.output.find(text), std::string::npos) << text;
  }
}

}  // namespace
