// SPDX-License-Identifier: MIT
// std::cout and the other standard streams of loaded C++ programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "compile.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

class IostreamTest : public testing::Test {
 protected:
  std::shared_ptr<const Program> program(const std::string& source) {
    return Program::load(shop_.compile_cpp(
        "#include <cstdio>\n#include <fstream>\n#include <iomanip>\n#include <iostream>\n#include <sstream>\n"
        "#include <string>\n" +
            source,
        {"-shared", "-w"}, fmt::format("p{}.so", count_++)));
  }
  Workshop shop_;

 private:
  MayLeaveMemory libstdcxx_;
  int count_ = 0;
};

TEST_F(IostreamTest, StreamsReachTheHost) {
  const Ran ran = run(program(R"(
    struct Early { Early() { std::cout << "constructed\n"; } ~Early() { std::cout << "destroyed\n"; } } early;
    int main() {
      std::cout << "a " << 1 << '\n'; printf("b\n"); std::cout << "c" << std::endl;
      std::cerr << "d " << 2.5 << '\n'; std::clog << "e\n"; std::wcout << L"f " << 3 << L'\n';
      std::wcerr << L"g\n";
      return 0;
    })"));
  EXPECT_EQ(ran.out, "constructed\na 1\nb\nc\nf 3\ndestroyed\n");
  EXPECT_EQ(ran.err, "d 2.5\ne\ng\n");
}

TEST_F(IostreamTest, FormatsOfOneInstanceDoNotShowInOthers) {
  const auto shared = program(R"(
    extern "C" void hexadecimal() { std::cout << std::hex << std::showbase << std::setfill('*'); std::cout.exceptions(std::ios::badbit); }
    extern "C" void show() { std::cout << std::setw(5) << 255 << '\n'; }
    int main() { show(); return std::cout.exceptions() == std::ios::goodbit ? 0 : 1; })");
  RecordingHost host;
  auto first = make_instance(shared, host, 0);
  Ran other;
  run_instance(std::move(first), [&](Instance& instance) {
    function_of<void()>(instance, "hexadecimal")();
    ProgramContext* mine = current_program_context;
    current_program_context = nullptr;
    other = run(shared, {"p"}, 1);
    current_program_context = mine;
    function_of<void()>(instance, "show")();
    return 0;
  });
  EXPECT_EQ(host.out, "*0xff\n");
  EXPECT_EQ(other.out, "  255\n");
  EXPECT_EQ(other.outcome.status, 0);
  // The process's own stream is not touched either.
  EXPECT_EQ(std::cout.flags() & std::ios_base::basefield, std::ios_base::dec);
  EXPECT_EQ(std::cout.fill(), ' ');
}

TEST_F(IostreamTest, EachReadsItsOwnInput) {
  const auto reads = program(R"(
    int main() {
      int number = 0; std::string word, line; char c = 0;
      std::cin >> number >> word; std::cin.get(c); std::getline(std::cin, line);
      std::cout << number << word << int(c) << line;
      std::cin.get(c); std::cin.unget(); std::cout << char(std::cin.get()) << std::cin.peek();
      int next = 0; if (scanf("%d", &next) == 1) std::cout << " then " << next;
      std::cin >> word; return std::cin.eof() ? 0 : 1;
    })");
  EXPECT_EQ(run(reads, {"p"}, 0, "7 seven\nrest of it\nxy\n").out, "7seven10rest of itx121");
  EXPECT_EQ(run(reads, {"p"}, 1, "8 eight\n\nz9 17\n").out, "8eight10z57 then 9");
  EXPECT_EQ(run(reads, {"p"}, 1, "1 w\nl\nq 5").outcome.status, 0);
}

TEST_F(IostreamTest, WithoutSynchronization) {
  const auto unsynced = program(R"(
    int main() {
      bool first = std::ios::sync_with_stdio(false), second = std::ios_base::sync_with_stdio(true);
      std::cin.tie(nullptr);
      std::string line; long sum = 0; int value = 0;
      while (std::cin >> value) sum += value;
      std::cout << first << second << ' ' << sum << '\n' << std::string(20000, 'x') << "\nno newline and no flush";
      return 0;
    })");
  const Ran ran = run(unsynced, {"p"}, 0, "1 2 3\n4 5");
  EXPECT_EQ(ran.out, "10 15\n" + std::string(20000, 'x') + "\nno newline and no flush");
  // The others stay synchronised.
  const Ran other = run(program(R"(int main() { std::cout << std::ios::sync_with_stdio(true); return 0; })"), {"p"}, 1);
  EXPECT_EQ(other.out, "1");
}

TEST_F(IostreamTest, PutBackOverTheEdgeOfTheBuffer) {
  const auto edge = program(R"(
    int main() {
      std::ios::sync_with_stdio(false);
      for (int i = 0; i < 8192; ++i) std::cin.get();
      std::cin.peek(); std::cin.unget(); std::cout << char(std::cin.get()) << char(std::cin.get());
      return 0;
    })");
  EXPECT_EQ(run(edge, {"p"}, 0, std::string(8191, '-') + "ab").out, "ab");
}

TEST_F(IostreamTest, TiesAndBuffersAreAsInAFreshProcess) {
  const Ran ran = run(program(R"(
    int main() {
      if (std::cin.tie() != &std::cout || std::cerr.tie() != &std::cout || std::clog.tie() || std::cout.tie()) return 1;
      if (std::wcin.tie() != &std::wcout || std::wcerr.tie() != &std::wcout) return 2;
      if (!(std::cerr.flags() & std::ios::unitbuf) || (std::cout.flags() & std::ios::unitbuf)) return 3;
      if (!dynamic_cast<std::ios*>(&std::cout)) return 4;
      std::ostringstream text; std::streambuf* before = std::cout.rdbuf(text.rdbuf());
      std::cout << "caught"; std::cout.rdbuf(before);
      std::cout << text.str() << '!';
      static std::ofstream gone("/dev/null"); std::cerr.rdbuf(gone.rdbuf());  // left so
      return 0;
    })"));
  EXPECT_EQ(ran.outcome.status, 0);
  EXPECT_EQ(ran.out, "caught!");
}

TEST_F(IostreamTest, AnInstanceThatEndsByAnExceptionShowsItsOutput) {
  const auto throws = program(R"(int main() { std::cout << "seen"; throw 1; })");
  RecordingHost host;
  const auto in_words = [](Instance& instance) {  // libstdc++'s copy goes with the instance, and so does the int
    try {
      return call_main(instance);
    } catch (int number) {
      throw std::runtime_error(std::to_string(number));
    }
  };
  EXPECT_THROW(run_instance(make_instance(throws, host), in_words), std::runtime_error);
  EXPECT_EQ(host.out, "seen");
}

TEST_F(IostreamTest, TheGlobalLocaleIsTheInstances) {
  const auto sets = program(R"(
    struct Comma : std::numpunct<char> { char do_decimal_point() const override { return ','; } };
    int main(int count, char**) {
      if (count > 1) std::locale::global(std::locale(std::locale(), new Comma));
      std::ostringstream text;
      text << 1.5;
      std::cout << text.str();
    })");
  EXPECT_EQ(run(sets, {"p", "x"}).out, "1,5");
  EXPECT_EQ(run(sets, {"p"}).out, "1.5");
}

}  // namespace
}  // namespace aplib::loader::test
