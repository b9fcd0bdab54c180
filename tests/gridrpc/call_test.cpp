// SPDX-License-Identifier: MIT
// Arguments of all kinds come through, both ways.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <complex>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "client.hpp"

namespace aplib::gridrpc::test {
namespace {

using Calls = Grid;

TEST_F(Calls, HaveScalarsOfAllTypes) {
  initialize();
  double sum[10] = {};
  EXPECT_EQ(grpc_call(Function("scalars"), -1, -2, -3, -4L, 250, 60'000, 4'000'000'000U, 1UL << 40, 1.5, 2.25, sum),
            GRPC_NO_ERROR)
      << error();
  const double expected[10] = {-1, -2, -3, -4, 250, 60'000, 4e9, 0x1p40, 1.5, 2.25};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sum[i], expected[i]) << i;
  char c = 'a';
  short s = 7;
  long l = 1L << 50;
  float f = 3;
  double d = 1.5;
  EXPECT_EQ(grpc_call(Function("change"), &c, &s, &l, &f, &d), GRPC_NO_ERROR) << error();
  EXPECT_EQ(c, 'b');
  EXPECT_EQ(s, 14);
  EXPECT_EQ(l, -(1L << 50));
  EXPECT_EQ(f, 1.5);
  EXPECT_EQ(d, 2.25);
}

TEST_F(Calls, MultiplyMatricesOfAnySize) {
  initialize();
  Function dmmul("test/dmmul");
  std::mt19937_64 random(17);
  for (const int n : {1, 3, 50, 120, 2}) {  // in the stream and in shared memory
    const auto size = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
    std::vector<double> a(size), b(size), c(size), expected(size);
    for (double& each : a) each = static_cast<double>(random() % 100);
    for (double& each : b) each = static_cast<double>(random() % 100);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        for (int k = 0; k < n; ++k) expected[i * n + j] += a[i * n + k] * b[k * n + j];
    ASSERT_EQ(grpc_call(dmmul, n, a.data(), b.data(), c.data()), GRPC_NO_ERROR) << error();
    EXPECT_EQ(c, expected) << n;
  }
}

#ifdef TEST_LIBRARY_SERVER
TEST_F(Calls, GoToALibraryByItsTypes) {
  const ServersFile file(std::string("[[server]]\nname = \"test\"\nprogram = \"") + TEST_LIBRARY_SERVER + "\"\n");
  ASSERT_EQ(grpc_initialize(file.name()), GRPC_NO_ERROR) << error();
  int number = 0;
  EXPECT_EQ(grpc_call(Function("solve"), 40, 0.5, &number), GRPC_NO_ERROR) << error();
  EXPECT_EQ(number, 42);
  double mean = 0;
  EXPECT_EQ(grpc_call(Function("mean"), 1.5, 2, &mean), GRPC_NO_ERROR) << error();
  EXPECT_EQ(mean, 1.75);
  char* text = nullptr;
  EXPECT_EQ(grpc_call(Function("greet"), "you", &text), GRPC_NO_ERROR) << error();
  EXPECT_STREQ(text, "hello you");
  std::free(text);
  EXPECT_EQ(grpc_call(Function("greet"), "", &text), GRPC_NO_ERROR) << error();
  EXPECT_EQ(text, nullptr);
}
#endif

TEST_F(Calls, GoThroughPipesAsWell) {
  // As by ssh: what is between client and server carries no descriptors.
  const std::string command = std::string("cat | '") + TEST_SERVER + "' | cat";
  const ServersFile file("[[server]]\nname = \"test\"\nprogram = \"/bin/sh\"\narguments = [\"-c\", \"" + command +
                         "\"]\n");
  ASSERT_EQ(grpc_initialize(file.name()), GRPC_NO_ERROR) << error();
  Function reverse("reverse");
  for (const long n : {0L, 5L, 300'000L}) {
    std::vector<double> a(static_cast<std::size_t>(n));
    std::iota(a.begin(), a.end(), 0);
    std::vector<double> expected(a.rbegin(), a.rend());
    ASSERT_EQ(grpc_call(reverse, n, a.data(), nullptr), GRPC_NO_ERROR) << error();
    EXPECT_EQ(a, expected);
  }
}

TEST_F(Calls, ChangeArraysInPlaceWithAWorkArea) {
  initialize();
  Function reverse("reverse");
  for (const long n : {0L, 1L, 1000L, 100'000L, 10L}) {
    std::vector<double> a(static_cast<std::size_t>(n));
    std::iota(a.begin(), a.end(), 0);
    std::vector<double> expected(a.rbegin(), a.rend());
    ASSERT_EQ(grpc_call(reverse, n, a.data(), nullptr), GRPC_NO_ERROR) << error();
    EXPECT_EQ(a, expected);
  }
}

TEST_F(Calls, ComputeSizes) {
  initialize();
  Function larger("larger");
  std::string text(12, '.');
  EXPECT_EQ(grpc_call(larger, 5, text.data()), GRPC_NO_ERROR);
  EXPECT_EQ(text, "xxxxxxxxxx..");
  text.assign(12, '.');
  EXPECT_EQ(grpc_call(larger, 3, text.data()), GRPC_NO_ERROR);
  EXPECT_EQ(text, "xxxxxxxxx...");
}

TEST_F(Calls, MoveWhatRangesSayAndNoMore) {
  initialize();
  Function middle("middle");
  for (const int rows : {5, 2, 400}) {
    const int columns = 7;
    std::vector<int> a(static_cast<std::size_t>(rows) * columns, 1), b(a.size(), -1);
    long sum = 0;
    ASSERT_EQ(grpc_call(middle, rows, columns, a.data(), &sum, b.data()), GRPC_NO_ERROR) << error();
    EXPECT_EQ(sum, (rows - 2) * 4);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        const bool moved = i >= 1 && i < rows - 1 && j % 2 == 0;
        ASSERT_EQ(b[i * columns + j], moved ? 101 : -1) << i << ' ' << j;
      }
    }
  }
}

TEST_F(Calls, HaveComplexNumbers) {
  initialize();
  using Complex = std::complex<double>;
  struct DoubleComplex {
    double real, imaginary;
  };
  struct SingleComplex {
    float real, imaginary;
  };
  Complex z[2] = {{1, 2}, {3, -1}};
  std::complex<float> sum;
  EXPECT_EQ(grpc_call(Function("rotate"), DoubleComplex{0, 1}, 2, z, SingleComplex{0.5, 0.25}, &sum), GRPC_NO_ERROR);
  EXPECT_EQ(z[0], Complex(-2, 1));
  EXPECT_EQ(z[1], Complex(1, 3));
  EXPECT_EQ(sum, std::complex<float>(-0.5, 4.25));
}

TEST_F(Calls, HaveStrings) {
  initialize();
  Function greet("greet");
  char doctor[] = "Dr";
  char* title = doctor;
  char* greeting = nullptr;
  ASSERT_EQ(grpc_call(greet, "Ada", &greeting, &title), GRPC_NO_ERROR) << error();
  EXPECT_STREQ(greeting, "Hello, Ada");
  EXPECT_STREQ(title, "Prof");
  std::free(greeting);
  std::free(title);
  title = nullptr;
  ASSERT_EQ(grpc_call(greet, static_cast<char*>(nullptr), &greeting, &title), GRPC_NO_ERROR);
  EXPECT_EQ(greeting, nullptr);
  EXPECT_EQ(title, nullptr);
  const std::string long_name(100'000, 'a');
  ASSERT_EQ(grpc_call(greet, long_name.c_str(), &greeting, &title), GRPC_NO_ERROR) << error();
  EXPECT_EQ(greeting, "Hello, " + long_name);
  std::free(greeting);
  const char* words[] = {"first", "", "last"};
  char* ends[2] = {};
  ASSERT_EQ(grpc_call(Function("join"), 3, words, ends), GRPC_NO_ERROR);
  EXPECT_STREQ(ends[0], "first");
  EXPECT_STREQ(ends[1], "last");
  std::free(ends[0]);
  std::free(ends[1]);
}

/// A folder of files.
class Files {
 public:
  Files() { EXPECT_NE(::mkdtemp(folder_), nullptr); }
  ~Files() {
    for (const std::string& each : names_) ::unlink(each.c_str());
    ::rmdir(folder_);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  std::string path(const char* name) {
    names_.push_back(std::string(folder_) + "/" + name);
    return names_.back();
  }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  char folder_[32] = "/tmp/aplib-gridrpc-XXXXXX";
  std::vector<std::string> names_;
};

TEST_F(Calls, CarryFiles) {
  initialize();
  Files files;
  const std::string from = files.path("from"), to = files.path("to"), log = files.path("log");
  Function upper("upper");
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{10}, std::size_t{200'000}}) {
    Files::write(from, std::string(bytes, 'q'));
    Files::write(log, "begin\n");
    ASSERT_EQ(grpc_call(upper, from.c_str(), to.c_str(), log.c_str()), GRPC_NO_ERROR) << error();
    EXPECT_EQ(Files::read(to), std::string(bytes, 'Q'));
    EXPECT_EQ(Files::read(log), "begin\nupper\n");
  }
  EXPECT_EQ(grpc_call(upper, "/nowhere/file", to.c_str(), log.c_str()), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(), "the file /nowhere/file cannot be read: No such file or directory");
  EXPECT_EQ(grpc_call(upper, "/tmp", to.c_str(), log.c_str()), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(), "/tmp is no file with contents: name a regular file");
  EXPECT_EQ(grpc_call(upper, from.c_str(), "/nowhere/file", log.c_str()), GRPC_SESSION_FAILED);
  EXPECT_EQ(error(), "upper: OUT filename to: the file /nowhere/file cannot be written: No such file or directory");
  EXPECT_EQ(grpc_call(upper, from.c_str(), to.c_str(), log.c_str()), GRPC_NO_ERROR) << "the process is as good as new";
}

TEST_F(Calls, LeaveNoPartOfAFileForWhichThereIsNoRoom) {
  initialize();
  Files files;
  const std::string from = files.path("from"), to = files.path("to"), log = files.path("log");
  Function upper("upper");
  Files::write(from, std::string(200'000, 'q'));
  Files::write(log, "begin\n");
  ASSERT_EQ(grpc_call(upper, from.c_str(), to.c_str(), log.c_str()), GRPC_NO_ERROR) << error();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little{.rlim_cur = 100'000, .rlim_max = limit.rlim_max};
  ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);  // the server has begun, and has none
  EXPECT_EQ(grpc_call(upper, from.c_str(), to.c_str(), log.c_str()), GRPC_SESSION_FAILED);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(error(), "upper: OUT filename to: the file " + to +
                         " cannot be written: File too large; raise the limit on the size of files (ulimit -f)");
  EXPECT_NE(::access(to.c_str(), F_OK), 0);
  EXPECT_EQ(Files::read(log), "begin\nupper\nupper\n");
}

TEST_F(Calls, TakeArgumentsFromAStack) {
  initialize();
  Function twice("twice");
  int n = 4;
  int result = 0;
  grpc_arg_stack_t* stack = grpc_arg_stack_new(2);
  EXPECT_EQ(grpc_arg_stack_push_arg(stack, &n), 0);
  EXPECT_EQ(grpc_call_arg_stack(twice, stack), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(), "twice: the stack has 1 arguments: push 2, as in twice(IN int n, OUT int *result)");
  EXPECT_EQ(grpc_arg_stack_push_arg(stack, &result), 0);
  EXPECT_EQ(grpc_arg_stack_push_arg(stack, &result), -1) << "it is full";
  EXPECT_EQ(grpc_call_arg_stack(twice, stack), GRPC_NO_ERROR) << error();
  EXPECT_EQ(result, 8);
  n = 50;
  const int session = grpc_call_arg_stack_async(twice, stack);
  EXPECT_EQ(grpc_wait(session), GRPC_NO_ERROR);
  EXPECT_EQ(result, 100);
  EXPECT_EQ(grpc_arg_stack_pop_arg(stack), &result);
  EXPECT_EQ(grpc_arg_stack_pop_arg(stack), &n);
  EXPECT_EQ(grpc_arg_stack_pop_arg(stack), nullptr);
  EXPECT_EQ(grpc_arg_stack_destruct(stack), 0);

  stack = grpc_arg_stack_new(3);
  char* greeting = nullptr;
  char* title = nullptr;
  char name[] = "Bob";
  for (void* const each : std::initializer_list<void*>{name, &greeting, &title})
    EXPECT_EQ(grpc_arg_stack_push_arg(stack, each), 0);
  EXPECT_EQ(grpc_call_arg_stack(Function("greet"), stack), GRPC_NO_ERROR) << error();
  EXPECT_STREQ(greeting, "Hello, Bob");
  std::free(greeting);
  EXPECT_EQ(grpc_arg_stack_destruct(stack), 0);
  EXPECT_EQ(grpc_arg_stack_new(-1), nullptr);
  EXPECT_EQ(grpc_call_arg_stack(twice, nullptr), GRPC_OTHER_ERROR_CODE);
}

TEST_F(Calls, RefuseSizesThatCannotBe) {
  initialize();
  double one = 0;
  Function dmmul("dmmul");
  EXPECT_EQ(grpc_call(dmmul, -3, &one, &one, &one), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(), "dmmul: IN double A[n][n]: the size of dimension 1 is -3: use 0 or more");
  EXPECT_EQ(grpc_call(dmmul, 2'000'000'000, &one, &one, &one), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(),
            "dmmul: IN double A[n][n]: with a dimension 2 of 2000000000 elements it has no room in memory: use less");
  EXPECT_EQ(grpc_call(dmmul, 2, &one, nullptr, &one), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(), "dmmul: IN double B[n][n]: its address is NULL: pass that of memory for it");
  EXPECT_EQ(grpc_call(Function("reverse"), INT64_MAX, &one, nullptr), GRPC_OTHER_ERROR_CODE);
  long sum = 0;
  EXPECT_EQ(grpc_call(Function("middle"), 1, 4, &one, &sum, &one), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(),
            "middle: IN int a[rows:1,rows-1][columns:0,columns,2]: of dimension 1, 1,0,1 (low, high, stride) is to "
            "travel: use 0 <= low <= high <= 1, and 1 or more");
  EXPECT_EQ(grpc_call(Function("change"), nullptr, &one, &one, &one, &one), GRPC_OTHER_ERROR_CODE);
  EXPECT_EQ(error(), "change: INOUT char *c: its address is NULL: pass that of memory for it");
}

}  // namespace
}  // namespace aplib::gridrpc::test
