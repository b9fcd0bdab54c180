// SPDX-License-Identifier: MIT
// The loop keeps the promises of modules, with each of its faults that does not break them. Another seed:
// APLIB_TEST_SEED=n.
#include <chrono>
#include <cstdlib>

#include "checks.hpp"
#include "conformance.hpp"
#include "loop/loop_net.hpp"

namespace aplib::comm::test {
namespace {

using testing_support::test_seed;

class LoopSubject final : public Net {
 public:
  LoopSubject(std::uint32_t processes, const loop::LoopFaults& faults) : net_(processes, faults, test_seed()) {}
  std::unique_ptr<Module> module(Peer process) override { return net_.module(process); }
  bool kill(Peer process) override {
    net_.kill(process);
    return true;
  }
  bool corrupt(Peer from, Peer to) override {
    net_.corrupt(from, to);
    return true;
  }

 private:
  loop::LoopNet net_;
};

Subject loop(const char* name, const loop::LoopFaults& faults) {
  return {name, [faults](std::uint32_t processes) { return std::make_unique<LoopSubject>(processes, faults); }};
}

std::vector<Subject> subjects() {
  std::vector<Subject> all{loop("plain", {})};
#if !defined(__SANITIZE_THREAD__)  // the faults change nothing of what the threads do
  all.push_back(loop("awkward", {.delay_polls_max = 3,
                                 .delay_time_max = std::chrono::microseconds(20),
                                 .shuffle_peers = true,
                                 .piece_bytes_max = 60'000,
                                 .capacity_bytes = 50'000,
                                 .hold_back_bytes = 500}));
#if !defined(__SANITIZE_ADDRESS__)  // "awkward" has them all
  all.push_back(loop("late", {.delay_polls_max = 5, .shuffle_peers = true}));
  all.push_back(loop("narrow", {.capacity_bytes = 20'000, .hold_back_bytes = 100}));
  all.push_back(loop("slow", {.delay_time_max = std::chrono::microseconds(100)}));
#endif
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Loop, Conformance, ::testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
