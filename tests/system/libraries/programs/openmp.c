/* SPDX-License-Identifier: MIT */
/* OpenMP, by gcc's library and clang's: teams of changing sizes, tasks, nested regions, locks, thread-locals. */
#include <omp.h>

#include "stress.h"

static int own;
#pragma omp threadprivate(own)

static long fibonacci(int n) {
  long a = 0, b = 0;
  if (n < 2) return n;
#pragma omp task shared(a) if (n > 8)
  a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 8)
  b = fibonacci(n - 2);
#pragma omp taskwait
  return a + b;
}

static int nested(void) {
  int inner = 0;
#pragma omp parallel num_threads(2) reduction(+ : inner)
  {
    const int outer = omp_get_thread_num();
#pragma omp parallel num_threads(2) reduction(+ : inner)
    inner += 10 * outer + omp_get_thread_num();
  }
  return inner;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  omp_set_dynamic(0);
  omp_set_max_active_levels(2);
  omp_lock_t lock;
  omp_init_lock(&lock);
  for (int round = 0; round < 20; ++round) {
    const int threads = 1 + (rank + round) % 4;
    long sum = 0, fib = 0, kept = 0;
    int locked = 0;
#pragma omp parallel num_threads(threads)
    own = 100 * rank + omp_get_thread_num();
    meet(round);
#pragma omp parallel num_threads(threads) reduction(+ : kept)
    kept += own;
    check(kept == 100L * rank * threads + threads * (threads - 1) / 2, "thread-locals");
#pragma omp parallel for schedule(dynamic, 7) reduction(+ : sum) num_threads(threads)
    for (int i = 0; i < 10000; ++i) sum += i + rank;
    check(sum == 49995000L + 10000L * rank, "a loop");
    meet(round + 1);
#pragma omp parallel num_threads(threads)
#pragma omp single
    fib = fibonacci(15);
    check(fib == 610, "tasks");
    check(nested() == 22, "nested regions");
#pragma omp parallel num_threads(threads)
    for (int i = 0; i < 100; ++i) {
      omp_set_lock(&lock);
      ++locked;
      omp_unset_lock(&lock);
    }
    check(locked == 100 * threads, "a lock");
#pragma omp parallel num_threads(threads)
#pragma omp master
    meet(round + 2);
  }
  omp_destroy_lock(&lock);
  return end();
}
