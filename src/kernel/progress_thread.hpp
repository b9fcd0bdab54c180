// SPDX-License-Identifier: MIT
// ProgressThread: a thread that looks after the network while no processor does. Processors poll it when they are idle, and one of them sleeps in it; but all of them may be busy for long. Then the
// progress thread sends what was held back and takes what has come, within about a millisecond; when it was not needed for some time, what comes may wait up to 16 ms. It also notices when all processors have gone to sleep for good, and tells the overseer. While they sleep, so does it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace aplib {

class ModuleNetwork;
struct Domain;
class Supervisor;

class ProgressThread {
 public:
  ProgressThread(Domain& domain, ModuleNetwork& network, Supervisor& supervisor);
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

 private:
  void run();
  void sleep_until_stirred(std::uint64_t quiet_word);
  void pause(std::chrono::milliseconds time);

  Domain& domain_;
  ModuleNetwork& network_;
  Supervisor& supervisor_;
  std::atomic<bool> closing_{false};
  std::atomic<std::uint32_t> tick_{0};
  std::thread thread_;
};

}  // namespace aplib
