// SPDX-License-Identifier: MIT
// apbench as its users see it: the names and the form of its JSON lines are an interface, and its errors are for
// people.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "program.hpp"

namespace {

// "bench case bytes unit" of one line. The line must have exactly the known keys in their order, and plain numbers.
std::string key_of(const std::string& line) {
  std::array<char, 32> bench{}, place{}, bytes{}, value{}, low{}, high{}, unit{};
  int end = 0;
  const int found =
      std::sscanf(line.c_str(),
                  R"({"bench":"%31[a-z]","case":"%31[a-z0-9-]","bytes":%31[0-9],"value":%31[0-9.],)"
                  R"("low":%31[0-9.],"high":%31[0-9.],"unit":"%31[^"]"}%n)",
                  bench.data(), place.data(), bytes.data(), value.data(), low.data(), high.data(), unit.data(), &end);
  if (found != 7 || static_cast<std::size_t>(end) != line.size()) return "not in form: " + line;
  const double median = std::stod(value.data());
  if (std::stod(low.data()) > median || median > std::stod(high.data())) return "out of order: " + line;
  return std::string(bench.data()) + " " + place.data() + " " + bytes.data() + " " + unit.data();
}

Outcome apbench(std::vector<std::string> arguments) { return run_program(APBENCH_PROGRAM, arguments); }

std::set<std::string> keys_of(std::vector<std::string> arguments) {
  for (const char* quick : {"--json", "--samples", "1", "--sample-ms", "0", "--idle-seconds", "0.02"})
    arguments.emplace_back(quick);
  const Outcome outcome = apbench(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::set<std::string> keys;
  for (const std::string& line : lines_of(outcome.out)) {
    EXPECT_TRUE(keys.insert(key_of(line)).second) << "twice: " << line;
  }
  return keys;
}

using Keys = std::set<std::string>;

TEST(Apbench, LatencyHasFourCasesForEachSize) {
  EXPECT_EQ(
      keys_of({"latency", "--bytes", "8,64k"}),
      (Keys{"latency two-processors 8 ns", "latency two-processors 65536 ns", "latency two-processors-posted 8 ns",
            "latency two-processors-posted 65536 ns", "latency one-processor 8 ns", "latency one-processor 65536 ns",
            "latency one-processor-posted 8 ns", "latency one-processor-posted 65536 ns"}));
}

TEST(Apbench, LatencyTakesEmptyMessagesAndTouches) {
  EXPECT_EQ(keys_of({"latency", "--bytes", "0", "--touch", "--case", "two-processors"}),
            Keys{"latency two-processors 0 ns"});
  EXPECT_EQ(keys_of({"latency", "--bytes", "1m", "--touch", "--case", "two-processors-posted"}),
            Keys{"latency two-processors-posted 1048576 ns"});
}

TEST(Apbench, BandwidthHasFourCases) {
  EXPECT_EQ(keys_of({"bandwidth", "--bytes", "1m"}),
            (Keys{"bandwidth two-processors 1048576 GB/s", "bandwidth two-processors-posted 1048576 GB/s",
                  "bandwidth one-processor 1048576 GB/s", "bandwidth one-processor-posted 1048576 GB/s"}));
}

TEST(Apbench, Rate) {
  EXPECT_EQ(keys_of({"rate"}), (Keys{"rate two-processors 8 M/s", "rate two-processors-posted 8 M/s"}));
}

TEST(Apbench, Put) {
  EXPECT_EQ(keys_of({"put", "--bytes", "8,64k"}),
            (Keys{"put two-processors 8 ns", "put two-processors 65536 ns", "put one-processor 8 ns",
                  "put one-processor 65536 ns", "put stream 8 GB/s", "put stream 65536 GB/s", "put memcpy 8 GB/s",
                  "put memcpy 65536 GB/s", "put rate 8 M/s"}));
}

TEST(Apbench, Get) {
  EXPECT_EQ(keys_of({"get", "--bytes", "8,64k"}),
            (Keys{"get two-processors 8 ns", "get two-processors 65536 ns", "get one-processor 8 ns",
                  "get one-processor 65536 ns", "get stream 8 GB/s", "get stream 65536 GB/s",
                  "get two-processors-fresh 8 ns", "get fetch-add 8 ns", "get fetch-add-contended 8 ns"}));
}

TEST(Apbench, ModulesAloneAndBelowCells) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  if (CPU_COUNT(&cores) < 2) GTEST_SKIP() << "needs two cores: one for each process";
  EXPECT_EQ(keys_of({"module", "--case", "tcp-latency,shm-stream,tcp-cells-latency,tcp-cells-put", "--bytes", "64"}),
            (Keys{"module tcp-latency 64 ns", "module shm-stream 64 GB/s", "module tcp-cells-latency 64 ns",
                  "module tcp-cells-put 64 ns"}));
}

TEST(Apbench, SwitchAndSpawnTogether) {
  EXPECT_EQ(keys_of({"spawn", "switch"}), (Keys{"switch one-cell 0 ns", "spawn one-cell 0 ns"}));
}

TEST(Apbench, Barrier) {
  EXPECT_EQ(keys_of({"barrier"}), (Keys{"barrier 2-on-2 0 ns", "barrier 8-on-2 0 ns", "barrier 32-on-2 0 ns"}));
}

TEST(Apbench, Reduce) {
  EXPECT_EQ(keys_of({"reduce"}), (Keys{"reduce 2-on-2 8 ns", "reduce 8-on-2 8 ns", "reduce 32-on-2 8 ns"}));
}

TEST(Apbench, Idle) { EXPECT_EQ(keys_of({"idle"}), Keys{"idle two-processors 0 %"}); }

TEST(Apbench, Scg) {
  EXPECT_EQ(keys_of({"scg"}),
            (Keys{"scg 1x1-on-1 0 MFlops", "scg 2x1-on-2 0 MFlops", "scg 8x8-on-2 0 MFlops",
                  "scg 2x1-on-2-1200 0 MFlops", "scg 8x8-on-2-1200 0 MFlops", "scg 2x1-over-1x1 0 ratio",
                  "scg 8x8-over-2x1 0 ratio", "scg 8x8-over-2x1-1200 0 ratio"}));
}

TEST(Apbench, Floors) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  if (CPU_COUNT(&cores) < 2) GTEST_SKIP() << "needs two cores";
  EXPECT_EQ(keys_of({"floors", "--bytes", "8k", "--case", "cache-line,cache-line-pause,memcpy,memcpy-both-sides"}),
            (Keys{"floors cache-line 8 ns", "floors cache-line-pause 8 ns", "floors memcpy 8192 GB/s",
                  "floors memcpy-both-sides 8192 GB/s"}));
}

TEST(Apbench, AllIsEveryBenchButFloors) {
  std::set<std::string> benches;
  for (const std::string& key : keys_of({"all", "--bytes", "8"})) benches.insert(key.substr(0, key.find(' ')));
  EXPECT_EQ(benches, (Keys{"latency", "bandwidth", "rate", "put", "get", "switch", "spawn", "barrier", "reduce", "idle",
                           "scg"}));
}

TEST(Apbench, WithoutJsonItPrintsATable) {
  const Outcome outcome = apbench({"switch", "--samples", "1", "--sample-ms", "0"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2U) << outcome.out;
  EXPECT_EQ(lines[0].substr(0, 5), "bench");
  EXPECT_EQ(lines[1].substr(0, 19), "switch     one-cell");
}

struct Complaint {
  std::string name;
  std::vector<std::string> arguments;
  std::string text;  // what stderr must contain
};

void PrintTo(const Complaint& complaint, std::ostream* out) { *out << complaint.name; }

class ApbenchComplains : public testing::TestWithParam<Complaint> {};

TEST_P(ApbenchComplains, InOneLineWithStatusTwo) {
  const Outcome outcome = apbench(GetParam().arguments);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
  EXPECT_NE(outcome.err.find(GetParam().text), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("see apbench --help"), std::string::npos) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Usage, ApbenchComplains,
    testing::Values(
        Complaint{"NoBenchmark", {}, "bench is required"},
        Complaint{
            "UnknownBenchmark", {"latancy"}, "there is no benchmark 'latancy'; there are latency, bandwidth, rate,"},
        Complaint{"UnknownCase",
                  {"barrier", "--case", "one-processor"},
                  "--case: the chosen benchmarks have no case 'one-processor'; they have 2-on-2, 8-on-2, 32-on-2"},
        Complaint{
            "ImpossibleSize", {"latency", "--bytes", "8q"}, "--bytes: '8q' is not a message size; write 8, 64k or 1m"},
        Complaint{"SizeForNothing",
                  {"switch", "--bytes", "8"},
                  "--bytes: the chosen benchmarks have no sizes; latency, bandwidth, put, get, hosts, module and "
                  "floors have"},
        Complaint{"UnknownModule",
                  {"module", "--module", "pigeon"},
                  "--module: pigeon not in {tcp,shm,rdma,rdma-tcp,rdma-shm}"},
        Complaint{"NoSamples", {"switch", "--samples", "0"}, "--samples: Value 0 not in range"},
        Complaint{"UnknownOption", {"switch", "--nope"}, "--nope"}),
    [](const auto& row) { return row.param.name; });

TEST(ApbenchHelp, NamesEveryBenchAndCase) {
  const Outcome outcome = apbench({"--help"});
  EXPECT_EQ(outcome.status, 0);
  for (const char* word : {"latency", "two-processors-posted", "one-processor-posted", "32-on-2", "floors", "scg",
                           "put", "MODULE-cells-latency", "--touch", "--json"}) {
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word;
  }
}

TEST(ApbenchEnvironment, AnOptionOfTheMachineThatIsNoneIsRefused) {
  setenv("APLIB_POLL_TMIE", "1us", 1);
  const Outcome outcome = apbench({"switch"});
  unsetenv("APLIB_POLL_TMIE");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("APLIB_POLL_TMIE"), std::string::npos) << outcome.err;
}

}  // namespace
