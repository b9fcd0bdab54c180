// SPDX-License-Identifier: MIT
// Output of cells: lines stay whole, partial lines appear when allowed, tags, files of each cell, full pipes, readers
// that leave.
#include "launch/output.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "launch/program_run.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch {
namespace {

/// A folder for the test's files, removed with it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "aplib-output-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// An Output whose streams are files that the test can read.
struct Files {
  Folder folder;
  int out = ::open((folder / "out").c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
  int error = ::open((folder / "error").c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
  ~Files() {
    ::close(out);
    ::close(error);
  }
  [[nodiscard]] std::string text() const { return contents(folder / "out"); }
  [[nodiscard]] std::string error_text() const { return contents(folder / "error"); }
};

TEST(Output, LinesAreShownWhenTheyAreWhole) {
  const Files files;
  Output output({}, files.out, files.error);
  output.write(0, Channel::out, "one ");
  output.flush(0, Channel::out);
  EXPECT_EQ(files.text(), "") << "a piece of a line was shown while other cells may write";
  output.write(1, Channel::out, "other\nrest");
  EXPECT_EQ(files.text(), "other\n");
  output.write(0, Channel::out, "two\nthree\nfour");
  EXPECT_EQ(files.text(), "other\none two\nthree\n");
  output.write(1, Channel::error, "wrong\n");
  EXPECT_EQ(files.error_text(), "wrong\n");
  output.end(0);
  EXPECT_EQ(files.text(), "other\none two\nthree\nfour") << "a last line is shown as it is";
  output.end(1);
  EXPECT_EQ(files.text(), "other\none two\nthree\nfour\nrest") << "another cell's output begins on a line of its own";
  EXPECT_EQ(output.problem(), "");
}

TEST(Output, ASoleCellAndTheHostProgramShowPiecesAtFlush) {
  const Files files;
  Output sole({.sole = true}, files.out, files.error);
  sole.write(0, Channel::out, "name? ");
  EXPECT_EQ(files.text(), "");
  sole.flush(0, Channel::out);
  sole.write(0, Channel::out, "thanks\n");
  EXPECT_EQ(files.text(), "name? thanks\n");

  Output output({}, files.out, files.error);
  output.write(Output::host, Channel::out, "more? ");
  output.flush(Output::host, Channel::out);
  output.write(2, Channel::out, "cell 2\n");
  output.write(Output::host, Channel::out, "done\n");
  EXPECT_EQ(files.text(), "name? thanks\nmore? \ncell 2\ndone\n");
}

TEST(Output, OnATerminalLinesThatAreDrawnAgainAppearAtOnce) {
  int master = -1;
  int terminal = -1;
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const auto shown = [&] {
    char bytes[256];
    const ssize_t count = ::read(master, bytes, sizeof bytes);
    return std::string(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  };
  Output output({}, terminal, terminal);
  output.write(3, Channel::error, "\r[## ]");
  output.flush(3, Channel::error);
  EXPECT_EQ(shown(), "\r[## ]");
  output.write(3, Channel::error, "\r\033[K");
  output.flush(3, Channel::error);
  EXPECT_EQ(shown(), "\r\033[K");
  output.write(1, Channel::out, "result\n");
  EXPECT_EQ(shown(), "result\r\n") << "no empty line stays where the bar was";
  ::close(master);
  ::close(terminal);
}

// A user who sees no prompt takes the program for one that hangs.
TEST(Output, OnATerminalThePromptOfTheCellThatReadsItIsShown) {
  int master = -1;
  int terminal = -1;
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const auto shown = [&] {
    char bytes[256];
    const ssize_t count = ::read(master, bytes, sizeof bytes);
    return std::string(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  };
  Output output({}, terminal, terminal);
  output.write(1, Channel::out, "piece");
  output.flush(1, Channel::out);
  output.write(0, Channel::out, "N = ");
  output.flush(0, Channel::out);
  EXPECT_EQ(shown(), "N = ");
  output.write(1, Channel::out, " and line\n");
  EXPECT_EQ(shown(), "\r\npiece and line\r\n");
  Output from_file({.input = "/dev/null"}, terminal, terminal);
  from_file.write(0, Channel::out, "N = ");
  from_file.flush(0, Channel::out);
  from_file.write(1, Channel::out, "line\n");
  EXPECT_EQ(shown(), "line\r\n");
  ::close(master);
  ::close(terminal);
}

TEST(Output, TagsStandAtTheStartOfEveryLine) {
  const Files files;
  Output output({.tags = true}, files.out, files.error);
  output.write(12, Channel::out, "a\n\nb");
  output.write(Output::host, Channel::out, "c");
  output.flush(Output::host, Channel::out);
  output.write(Output::host, Channel::out, "d\n");
  output.write(12, Channel::out, "e\n");
  EXPECT_EQ(files.text(), "[12] a\n[12] \n[host] cd\n[12] be\n");
  const std::size_t before = files.text().size();
  output.write(Output::host, Channel::out, "f");
  output.flush(Output::host, Channel::out);
  output.write(12, Channel::out, "g\n");
  output.write(Output::host, Channel::out, "h\n");
  EXPECT_EQ(files.text().substr(before), "[host] f\n[12] g\n[host] h\n");
}

TEST(Output, LinesWithoutEndAreCutRatherThanKeptForEver) {
  const Files files;
  Output output({}, files.out, files.error);
  const std::string piece(64 * 1024, 'x');
  for (int i = 0; i < 16; ++i) output.write(0, Channel::out, piece);
  EXPECT_EQ(files.text().size(), Output::line_bytes_max);
  output.write(0, Channel::out, "y");
  output.write(1, Channel::out, "other\n");
  output.write(0, Channel::out, "z\n");
  EXPECT_EQ(files.text().substr(Output::line_bytes_max), "\nother\nyz\n");
}

TEST(Output, EachCellMayHaveItsFiles) {
  Files files;
  Output output({.output = files.folder / "out.{cid}", .error = files.folder / "all.err", .tags = true}, files.out,
                files.error);
  output.prepare(3, true);
  EXPECT_TRUE(std::filesystem::exists(files.folder / "out.2")) << "also where a cell writes nothing";
  output.write(0, Channel::out, "zero");
  EXPECT_EQ(contents(files.folder / "out.0"), "zero") << "nobody else writes there: nothing need be kept";
  output.write(1, Channel::out, "one\n");
  output.write(Output::host, Channel::out, "host\n");
  output.write(0, Channel::error, "wrong 0\n");
  output.end(0);
  output.write(1, Channel::error, "wrong 1\n");
  output.end_all();
  EXPECT_EQ(contents(files.folder / "out.1"), "one\n");
  EXPECT_EQ(contents(files.folder / "out.host"), "host\n");
  EXPECT_EQ(contents(files.folder / "all.err"), "[0] wrong 0\n[1] wrong 1\n");
  EXPECT_EQ(files.text() + files.error_text(), "");
  Output again({.output = files.folder / "out.{cid}"}, files.out, files.error);
  again.prepare(1, false);
  EXPECT_EQ(contents(files.folder / "out.0"), "") << "of the run before";
}

TEST(Output, NamesOfFilesBeginWhereTheRunBegan) {
  const Folder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "elsewhere");
  std::ofstream(folder / "in.1") << "x";
  std::filesystem::current_path(folder / ".");
  Output output({.output = "out.{cid}", .input = "in.{cid}"});
  std::filesystem::current_path(folder / "elsewhere");  // as on a cell's thread, with --wd or after chdir
  output.write(1, Channel::out, "written\n");
  const int input = output.input(1);
  std::filesystem::current_path(before);
  output.end_all();
  EXPECT_EQ(contents(folder / "out.1"), "written\n");
  EXPECT_GE(input, 0);
  EXPECT_EQ(output.problem(), "");
}

TEST(Output, FilesThatCannotBeOpenedAreSaidBeforeAnythingRuns) {
  const auto problem = [](const OutputPlan& plan) {
    try {
      Output(plan).prepare(2, false);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(problem({.output = "/nowhere/{cid}"}), "cannot write /nowhere/0: No such file or directory");
  EXPECT_EQ(problem({.error = "/nowhere/e"}), "cannot write /nowhere/e: No such file or directory");
  EXPECT_EQ(problem({.input = "/nowhere/{cid}.in"}), "cannot read /nowhere/0.in: No such file or directory");
}

TEST(Output, InputBelongsToTheHostProgramOrCellZero) {
  Files files;
  Output cells({});
  cells.prepare(2, false);
  EXPECT_EQ(cells.input(0), 0);
  EXPECT_EQ(cells.input(1), -1);
  Output with_host({});
  with_host.prepare(2, true);
  EXPECT_EQ(with_host.input(Output::host), 0);
  EXPECT_EQ(with_host.input(0), -1);
  for (const char* cell : {"0", "1"}) std::ofstream(files.folder / (std::string("in.") + cell)) << "for " << cell;
  Output own({.input = files.folder / "in.{cid}"});
  own.prepare(2, true);
  EXPECT_EQ(own.input(Output::host), 0);
  char bytes[8] = {};
  EXPECT_EQ(::read(own.input(1), bytes, sizeof bytes), 5);
  EXPECT_STREQ(bytes, "for 1");
  EXPECT_EQ(own.input(1), own.input(1)) << "one open file, read on where it stands";
}

TEST(Output, ManyCellsAtOnceKeepTheirLinesWhole) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  constexpr std::uint32_t cells = 8;
  constexpr int lines = 300;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  std::string text;
  std::thread reader([&] {
    char bytes[4096];
    for (ssize_t count = 0; (count = ::read(pipe[0], bytes, sizeof bytes)) > 0;)
      text.append(bytes, static_cast<std::size_t>(count));
  });
  {
    ::fcntl(pipe[1], F_SETFL, O_NONBLOCK);  // as some programs leave a terminal
    Output output({}, pipe[1], pipe[1]);
    std::vector<std::thread> writers;
    for (std::uint32_t cell = 0; cell < cells; ++cell) {
      writers.emplace_back([&, cell] {
        std::mt19937 random(seed + cell);
        for (int line = 0; line < lines; ++line) {
          const Channel channel = line % 5 == 0 ? Channel::error : Channel::out;
          std::string rest = std::to_string(cell) + " " + std::to_string(line) + " " +
                             std::string(std::uniform_int_distribution<std::size_t>(0, 300)(random), 'a') + "\n";
          while (!rest.empty()) {
            const std::size_t piece = std::uniform_int_distribution<std::size_t>(1, 200)(random);
            output.write(cell, channel, rest.substr(0, piece));
            output.flush(cell, channel);
            rest.erase(0, piece);
          }
        }
        output.end(cell);
      });
    }
    for (std::thread& writer : writers) writer.join();
  }
  ::close(pipe[1]);
  reader.join();
  ::close(pipe[0]);
  std::istringstream stream(text);
  std::map<int, int> next;
  int count = 0;
  for (std::string line; std::getline(stream, line); ++count) {
    std::istringstream words(line);
    int cell = -1;
    int number = -1;
    std::string filling;
    words >> cell >> number >> filling;
    ASSERT_EQ(number, next[cell]++) << line;
    ASSERT_EQ(filling.find_first_not_of('a'), filling.npos) << line;
  }
  EXPECT_EQ(count, static_cast<int>(cells) * lines);
}

TEST(Output, AReaderWhoHasGoneIsNoProblemAFullDiskIs) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  ::close(pipe[0]);
  {
    Output output({}, pipe[1], pipe[1]);
    output.write(0, Channel::out, "nobody reads this\n");
    output.write(0, Channel::out, "nor this\n");
    output.end_all();
    EXPECT_EQ(output.problem(), "");
  }
  ::close(pipe[1]);
  std::signal(SIGPIPE, before);

  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Output output({}, full, full);
  output.write(0, Channel::out, "lost\n");
  output.end_all();
  EXPECT_EQ(output.problem(), "cannot write standard output: No space left on device");
  ::close(full);
}

TEST(Terminal, NoControlCharacterReachesIt) {
  EXPECT_EQ(printable("a line\n\tand another, caf\u00e9"), "a line\n\tand another, caf\u00e9");
  EXPECT_EQ(printable(std::string_view("\x1b[31m\r\b\x7f\0", 9)), "\\x1b[31m\\x0d\\x08\\x7f\\x00");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m");
  EXPECT_EQ(one_line("a\nb\tc"), "a\\nb\\x09c");
}

TEST(Placeholders, AreReplacedWhereverTheyStand) {
  EXPECT_EQ(expand("{cid} of {ncel}: {x},{y} {cid}", 5, {4, 2}), "5 of 8: 1,1 5");
  EXPECT_EQ(expand("{}{CID}{z}{", 5, {4, 2}), "{}{CID}{z}{");
  EXPECT_EQ(expand_cell("run-{cid}/{x}", "host"), "run-host/{x}");
  EXPECT_FALSE(names_cell("out"));
}

// Asio has numbers of its own beside the system's.
TEST(FailureText, TellsWhatAsioMeans) {
  namespace errors = boost::asio::error;
  EXPECT_EQ(failure_text(boost::system::system_error(errors::make_error_code(errors::not_found), "epoll")),
            "cannot wait for events: Element not found");
  EXPECT_EQ(failure_text(boost::system::system_error({ENOMEM, boost::system::system_category()}, "epoll")),
            "cannot wait for events: " + os::text_of(ENOMEM));
}

}  // namespace
}  // namespace aplib::launch
