// SPDX-License-Identifier: MIT
// libgomp and the threads that it keeps are the instance's, and end with it.
#include <gtest/gtest.h>

#include "compile.hpp"
#include "journal.hpp"
#include "running.hpp"

namespace aplib::loader::test {
namespace {

class OpenMp : public testing::Test {
 protected:
  void SetUp() override {
    if (APLIB_TSAN)
      GTEST_SKIP()
          << "needs a build without ThreadSanitizer: it does not see how libgomp's threads wait for each other";
    if (!shop_.knows({"-fopenmp"})) GTEST_SKIP() << "needs OpenMP";
  }
  std::shared_ptr<const Program> c(const std::string& text) {
    return Program::load(shop_.compile(journal_prologue + "#include <stdint.h>\n#include <omp.h>\n" + text,
                                       {"-shared", "-O1", "-D_GNU_SOURCE", "-fopenmp"}, "p.so"));
  }

 private:
  Workshop shop_;
  MayLeaveMemory libgomp_;
};

TEST_F(OpenMp, RegionsUseGlobalsAndThreadprivateDataOfTheirInstance) {
  const auto program = c(R"(
    static int number;
    static int mine = 100;
    #pragma omp threadprivate(mine)
    static void handler(void) { say("handler"); }
    int main(int n, char** a) {
      int sum = 0, kept = 0;
      start(a);
      atexit(handler);
      number = n;
      omp_set_dynamic(0);
      #pragma omp parallel num_threads(3) reduction(+ : sum)
      { mine += number + omp_get_thread_num(); sum += mine; }
      if (sum != 300 + 3 * n + 3) return 1;
      #pragma omp parallel num_threads(3) reduction(+ : kept)
      kept += mine - omp_get_thread_num();
      if (kept != 300 + 3 * n) return 2;
      return 0;
    })");
  for (int n = 2; n < 6; ++n) {
    Journal journal;
    std::vector<std::string> arguments = journal.arguments();
    arguments.resize(static_cast<std::size_t>(n), "more");
    const Ran ran = run(program, arguments, static_cast<std::uint32_t>(n));
    EXPECT_EQ(ran.outcome.status, 0) << n;
    EXPECT_EQ(journal.text(), "handler") << "the pool's threads do not keep the instance";
    EXPECT_EQ(ran.warnings, std::vector<std::string>{});
  }
  EXPECT_EQ(program.use_count(), 1);
}

TEST_F(OpenMp, LoopsSectionsAndTasksWork) {
  const auto program = c(R"(
    static __thread int local = 1;
    static long fibonacci(int n) {
      long x, y;
      if (n < 2) return n * local;
      #pragma omp task shared(x) firstprivate(n)
      x = fibonacci(n - 1);
      #pragma omp task shared(y) if (n > 5)
      y = fibonacci(n - 2);
      #pragma omp taskwait
      return x + y;
    }
    int main(int n, char** a) {
      long sum = 0, result = 0;
      int seen[3] = {0, 0, 0};
      omp_set_dynamic(0);
      #pragma omp parallel for num_threads(3) reduction(+ : sum)
      for (int i = 0; i < 1000; ++i) sum += i * local;
      if (sum != 499500) return 1;
      sum = 0;
      #pragma omp parallel for num_threads(3) reduction(+ : sum) schedule(dynamic, 7)
      for (int i = 0; i < 1000; ++i) sum += i * local;
      if (sum != 499500) return 2;
      sum = 0;
      #pragma omp parallel for num_threads(3) reduction(+ : sum) schedule(guided)
      for (int i = 0; i < 1000; ++i) sum += i * local;
      if (sum != 499500) return 3;
      sum = 0;
      #pragma omp parallel for num_threads(3) reduction(+ : sum) schedule(runtime)
      for (int i = 0; i < 1000; ++i) sum += i * local;
      if (sum != 499500) return 4;
      #pragma omp parallel sections num_threads(3)
      {
        #pragma omp section
        seen[0] = local;
        #pragma omp section
        seen[1] = local;
        #pragma omp section
        seen[2] = local;
      }
      if (seen[0] + seen[1] + seen[2] != 3) return 5;
      #pragma omp parallel num_threads(3)
      #pragma omp single
      result = fibonacci(12);
      if (result != 144) return 6;
      sum = 0;
      #pragma omp parallel num_threads(3) reduction(task, + : sum)
      {
        #pragma omp single
        for (int i = 0; i < 10; ++i) {
          #pragma omp task in_reduction(+ : sum)
          sum += i * local;
        }
      }
      return sum == 45 ? 0 : 7;
    })");
  for (const std::uint32_t cell : {0U, 1U}) EXPECT_EQ(run(program, {"p"}, cell).outcome.status, 0);
}

}  // namespace
}  // namespace aplib::loader::test
