// SPDX-License-Identifier: MIT
// ProgressThread: looks after the network while no processor does. Idle processors poll the network, and one of them
// sleeps in it; but all of them may compute for long. Then this thread sends what was held back and takes what has
// come, within about a millisecond. After some time in which it was not needed, it looks every 16 ms only.
//
// It also notices that all processors sleep for good, and tells the overseer; while they sleep, it sleeps, too.
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
