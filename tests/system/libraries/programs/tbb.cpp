// SPDX-License-Identifier: MIT
// TBB: parallel loops, arenas, flow graphs, its scalable allocator; each rank has its own market of threads.
#include <tbb/concurrent_hash_map.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/parallel_reduce.h>
#include <tbb/parallel_sort.h>
#include <tbb/scalable_allocator.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "stress.h"

int main(int argc, char** argv) {
  begin(&argc, &argv);
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, 3);  // also where it sees one core
  for (int round = 0; round < 20; ++round) {
    const long sum = tbb::parallel_reduce(
        tbb::blocked_range<long>(0, 100000), 0L,
        [](const auto& range, long part) {
          for (long i = range.begin(); i != range.end(); ++i) part += i ^ rank;
          return part;
        },
        std::plus<>());
    long expected = 0;
    for (long i = 0; i < 100000; ++i) expected += i ^ rank;
    check(sum == expected, "a sum");
    meet(round);

    std::vector<int, tbb::scalable_allocator<int>> numbers(20000);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>((i * 7919 + rank) % 20011);
    tbb::parallel_sort(numbers);
    check(std::is_sorted(numbers.begin(), numbers.end()), "a sort");

    tbb::enumerable_thread_specific<int> counts(0);
    tbb::concurrent_hash_map<int, int> table;
    tbb::task_arena arena(3);
    arena.execute([&] {
      tbb::parallel_for(0, 1000, [&](int i) {
        ++counts.local();
        table.insert({i % 100, i});
      });
    });
    check(counts.combine(std::plus<>()) == 1000 && table.size() == 100, "an arena");

    tbb::flow::graph graph;
    int seen = 0;
    tbb::flow::function_node<int, int> square(graph, tbb::flow::unlimited, [](int i) { return i * i; });
    tbb::flow::function_node<int, int> add(graph, tbb::flow::serial, [&seen](int i) { return seen += i; });
    tbb::flow::make_edge(square, add);
    for (int i = 0; i <= 20; ++i) square.try_put(i);
    graph.wait_for_all();
    check(seen == 2870, "a graph");

    tbb::task_group group;
    bool thrown = false;
    group.run([] { throw rank; });
    try {
      group.wait();
    } catch (int number) {
      thrown = number == rank;
    }
    check(thrown, "an exception of a task");
    meet(round + 1);
  }
  return end();
}
