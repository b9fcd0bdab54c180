// SPDX-License-Identifier: MIT
// The getopt family compared with libc's own: every result, variable and message, and the final order of the arguments,
// for random option strings and arguments.
#include "loader/libc/getopt.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace aplib::loader::libc {
namespace {

/// A FILE that remembers what is written to it.
class Sink {
 public:
  Sink() : file_(open_memstream(&text_, &bytes_)) {}
  ~Sink() {
    std::fclose(file_);
    std::free(text_);
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  [[nodiscard]] std::FILE* file() const { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, bytes_};
  }

 private:
  char* text_ = nullptr;
  std::size_t bytes_ = 0;
  std::FILE* file_;
};

/// libc writes its messages to the current `stderr`.
class StderrInstead {
 public:
  explicit StderrInstead(std::FILE* file) : before_(stderr) { stderr = file; }
  ~StderrInstead() { stderr = before_; }
  StderrInstead(const StderrInstead&) = delete;
  StderrInstead& operator=(const StderrInstead&) = delete;

 private:
  std::FILE* before_;
};

enum class Member { plain, with_long, long_only };

struct Scene {
  Member member = Member::plain;
  std::string options;
  std::vector<option> long_options;
  std::vector<std::vector<std::string>> argument_lists;  ///< One after another, with optind set to 0 or 1 between them.
  int restart = 0;
  bool quiet = false;
  bool posixly_correct = false;
};

std::string describe(const Scene& scene) {
  std::ostringstream text;
  text << "member " << static_cast<int>(scene.member) << " options \"" << scene.options << "\" restart "
       << scene.restart << " quiet " << scene.quiet << " posix " << scene.posixly_correct << "\nlong:";
  for (const option& each : scene.long_options) {
    if (each.name != nullptr)
      text << ' ' << each.name << '/' << each.has_arg << '/' << each.val << (each.flag != nullptr ? "/flag" : "");
  }
  for (const auto& list : scene.argument_lists) {
    text << "\narguments:";
    for (const std::string& word : list) text << " [" << word << ']';
  }
  return text.str();
}

int flag_of_program = 0;

/// Calls until -1 (at most as many times as there are letters), and records everything that can be seen.
template <class Next, class Variables>
std::string play(const Scene& scene, const Next& next, const Variables& variables) {
  std::ostringstream log;
  Sink messages;
  int list_number = 0;
  std::vector<std::vector<std::string>> lists = scene.argument_lists;  // the scanner may look into the previous list
  for (std::vector<std::string>& words : lists) {
    std::vector<char*> argv;
    int letters = 2;
    for (std::string& word : words) {
      argv.push_back(word.data());
      letters += static_cast<int>(word.size()) + 1;
    }
    argv.push_back(nullptr);
    variables.begin(list_number++ == 0 ? 1 : scene.restart, scene.quiet ? 0 : 1, messages.file());
    for (int i = 0; i < letters; ++i) {
      int index = -7;
      flag_of_program = -1;
      const int result = next(static_cast<int>(words.size()), argv.data(), &index);
      log << result << " ind " << variables.optind() << " opt " << variables.optopt() << " arg "
          << (variables.optarg() != nullptr ? variables.optarg() : "(null)") << " index " << index << " flag "
          << flag_of_program << '\n';
      if (result == -1) break;
    }
    for (const char* word : argv) log << (word != nullptr ? word : "(end)") << ' ';
    log << '\n';
  }
  return log.str() + messages.text();
}

/// libc keeps its place over all calls of this process. 0 resets it, as in a fresh program.
struct OfLibc {
  mutable bool fresh = true;
  void begin(int index, int errors, std::FILE*) const {
    ::optind = fresh ? 0 : index;
    fresh = false;
    ::opterr = errors;
    ::optopt = '?';
  }
  static int optind() { return ::optind; }
  static int optopt() { return ::optopt; }
  static const char* optarg() { return ::optarg; }
};

struct OfState {
  libc::LibcState& state;
  void begin(int index, int errors, std::FILE* err) const {
    *state.optind = index;
    *state.opterr = errors;
    *state.optopt = '?';
    *state.err = err;
  }
  [[nodiscard]] int optind() const { return *state.optind; }
  [[nodiscard]] int optopt() const { return *state.optopt; }
  [[nodiscard]] const char* optarg() const { return *state.optarg; }
};

// libc never resets optopt, but an unknown long option sets it to its initial value.
void forget_optopt() {
  std::array<char*, 3> argv{const_cast<char*>("p"), const_cast<char*>("--unknown"), nullptr};
  const option none{nullptr, 0, nullptr, 0};
  ::optind = 0;
  ::opterr = 0;
  ::getopt_long(2, argv.data(), "", &none, nullptr);
}

std::string play_libc(const Scene& scene) {
  forget_optopt();
  if (scene.posixly_correct) {
    setenv("POSIXLY_CORRECT", "1", 1);
  } else {
    unsetenv("POSIXLY_CORRECT");
  }
  Sink sink;
  const StderrInstead instead(sink.file());
  std::string log = play(
      scene,
      [&scene](int argc, char** argv, int* index) {
        switch (scene.member) {
          case Member::plain:
            return ::getopt(argc, argv, scene.options.c_str());
          case Member::with_long:
            return ::getopt_long(argc, argv, scene.options.c_str(), scene.long_options.data(), index);
          case Member::long_only:
            return ::getopt_long_only(argc, argv, scene.options.c_str(), scene.long_options.data(), index);
        }
        return 0;
      },
      OfLibc{});
  unsetenv("POSIXLY_CORRECT");
  return log + sink.text();
}

std::string play_ours(const Scene& scene) {
  libc::LibcState state;
  return play(
      scene,
      [&](int argc, char** argv, int* index) {
        libc::GetoptCall call{.short_options = scene.options.c_str(), .posixly_correct = scene.posixly_correct};
        if (scene.member == Member::with_long || scene.member == Member::long_only) {
          call.long_options = scene.long_options.data();
          call.long_index = index;
          call.single_dash = scene.member == Member::long_only;
        }
        return libc::next_option(state, argc, argv, call);
      },
      OfState{state});
}

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  Scene scene() {
    Scene made;
    made.member = std::array{Member::plain, Member::with_long, Member::long_only}[below(3)];
    if (below(4) == 0) made.options += "+-"[below(2)];
    if (below(4) == 0) made.options += ':';
    for (const char letter : std::string("abcvo")) {
      if (below(3) == 0) continue;
      made.options += letter;
      made.options.append(below(3), ':');
    }
    if (below(5) == 0) made.options += "W;";
    static constexpr std::array<const char*, 9> names{"verbose", "version", "output", "out",     "over",
                                                      "add",     "a",       "append", "verbatim"};
    for (const char* name : names) {
      if (below(2) == 0) continue;
      const int value = below(2) == 0 ? static_cast<int>(1000 + below(3)) : 'a' + static_cast<int>(below(5));
      made.long_options.push_back(
          {name, static_cast<int>(below(3)), below(4) == 0 ? &flag_of_program : nullptr, value});
    }
    made.long_options.push_back({nullptr, 0, nullptr, 0});
    for (std::size_t lists = 1 + below(2); lists > 0; --lists) made.argument_lists.push_back(arguments());
    made.restart = static_cast<int>(below(2));
    made.quiet = below(5) == 0;
    made.posixly_correct = below(6) == 0;
    return made;
  }

 private:
  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_); }

  std::vector<std::string> arguments() {
    static constexpr std::array<const char*, 40> words{
        "x",         "operand",  "-",         "--",          "-a",        "-b",       "-c",       "-abc",
        "-avalue",   "-z",       "-o",        "-ofile",      "--verbose", "--ver",    "--verb",   "--v",
        "--output",  "--out",    "--out=1",   "--output=",   "--o",       "--over=2", "--add",    "--a",
        "--app",     "--append", "--nothing", "--nothing=3", "-verbose",  "-out=4",   "-version", "-W",
        "-Wverbose", "-Wout=5",  "-:",        "-;",          "",          "-a:",      "--=",      "-vao"};
    std::vector<std::string> list{"program"};
    for (std::size_t count = below(9); count > 0; --count) list.emplace_back(words[below(words.size())]);
    return list;
  }

  std::mt19937_64 random_;
};

TEST(Getopt, DoesWhatLibcDoesOnRandomOptionsAndArguments) {
  constexpr std::uint64_t seed = 20240611;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Maker maker(seed);
  for (int i = 0; i < 40'000; ++i) {
    const Scene scene = maker.scene();
    ASSERT_EQ(play_ours(scene), play_libc(scene)) << "scene " << i << ": " << describe(scene);
  }
}

TEST(Getopt, PosixGetoptStopsAtTheFirstOperand) {
  libc::LibcState state;
  std::array<char*, 4> argv{const_cast<char*>("p"), const_cast<char*>("file"), const_cast<char*>("-a"), nullptr};
  EXPECT_EQ(libc::next_option(state, 3, argv.data(), {.short_options = "a", .keeps_order = true}), -1);
  EXPECT_EQ(*state.optind, 1);
}

TEST(Getopt, TwoStatesDoNotKnowOfEachOther) {
  libc::LibcState first;
  libc::LibcState second;
  std::array<char*, 3> cluster{const_cast<char*>("p"), const_cast<char*>("-ab"), nullptr};
  std::array<char*, 3> other{const_cast<char*>("p"), const_cast<char*>("-ba"), nullptr};
  const libc::GetoptCall call{.short_options = "ab"};
  EXPECT_EQ(libc::next_option(first, 2, cluster.data(), call), 'a');
  EXPECT_EQ(libc::next_option(second, 2, other.data(), call), 'b');
  EXPECT_EQ(libc::next_option(first, 2, cluster.data(), call), 'b');
  EXPECT_EQ(libc::next_option(second, 2, other.data(), call), 'a');
  EXPECT_EQ(libc::next_option(first, 2, cluster.data(), call), -1);
  EXPECT_EQ(*first.optind, 2);
}

TEST(Getopt, AnEmptyArgumentVectorIsFinished) {
  libc::LibcState state;
  std::array<char*, 1> argv{nullptr};
  EXPECT_EQ(libc::next_option(state, 0, argv.data(), {.short_options = "a"}), -1);
}

}  // namespace
}  // namespace aplib::loader::libc
