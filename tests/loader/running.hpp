// SPDX-License-Identifier: MIT
// Runs loaded programs in a test without a machine: a host that records what the program does, and instances in their
// own slots.
//
//   Workshop shop;
//   const auto program = Program::load(shop.compile("int main() { puts(\"hi\"); return 3; }", {"-fPIC", "-shared"},
//   "p.so"));
//   const Ran first = run(program, {"p", "argument"});     // cell 0
//   EXPECT_EQ(first.outcome.status, 3);
//   EXPECT_EQ(first.out, "hi\n");
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loader/instance.hpp"
#include "loader/program.hpp"
#include "memory/slot.hpp"

#if APLIB_ASAN
#include <sanitizer/lsan_interface.h>
#endif

namespace aplib::loader::test {

/// While it lives, what this thread allocates is no leak. A program and its libraries leave things to the end of their
/// process, and LeakSanitizer looks when the instance that points to them has gone.
struct MayLeaveMemory {
#if APLIB_ASAN
  MayLeaveMemory() { __lsan_disable(); }
  ~MayLeaveMemory() { __lsan_enable(); }
#else
  MayLeaveMemory() {}
  ~MayLeaveMemory() {}
#endif
  MayLeaveMemory(const MayLeaveMemory&) = delete;
  MayLeaveMemory& operator=(const MayLeaveMemory&) = delete;
};

/// RecordingHost::fail throws this if there is no program to leave.
struct MachineFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class RecordingHost : public CellServices {
 public:
  explicit RecordingHost(std::string name = "cell 0 task 0", std::string input = {}) : name_(std::move(name)) {
    if (!input.empty()) {
      std::array<int, 2> ends{};
      if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe: out of descriptors");
      // The inputs of tests fit into a pipe.
      if (::write(ends[1], input.data(), input.size()) != static_cast<ssize_t>(input.size()))
        throw std::runtime_error("the test's input does not fit into a pipe");
      ::close(ends[1]);
      input_ = ends[0];
    }
  }
  ~RecordingHost() override {
    // Threads that libraries keep end a little after their program, and tell us last.
    std::unique_lock lock(mutex_);
    gone_.wait_for(lock, std::chrono::seconds(10), [this] { return instances_ == 0; });
    if (input_ >= 0) ::close(input_);
  }

  void instance_begins() override {
    const std::lock_guard lock(mutex_);
    ++instances_;
  }
  void instance_gone() noexcept override {
    const std::lock_guard lock(mutex_);
    --instances_;
    gone_.notify_all();  // under the lock: afterwards we may be gone, too
  }

  std::string name() override { return name_; }
  void write(Stream stream, std::span<const char> bytes) override {
    const std::lock_guard lock(mutex_);
    (stream == Stream::out ? out : err).append(bytes.data(), bytes.size());
  }
  void flush(Stream) override {}
  int input() override { return input_; }
  void sleep(std::chrono::nanoseconds duration) override {
    slept += duration;
    std::this_thread::yield();
  }
  void yield() override { ++yields; }
  void task_exited(int status) override { exited.push_back(status); }
  [[noreturn]] void fail(int status, const std::string& text) override {
    failed_status = status;
    failure = text;
    if (TaskContext* context = here(); context != nullptr) context->instance->leave(status, false);
    throw MachineFailed(text);
  }
  void warn(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    warnings.push_back(text);
  }

  std::string out;
  std::string err;
  std::vector<std::string> warnings;
  std::vector<int> exited;
  int failed_status = 0;
  std::string failure;
  std::chrono::nanoseconds slept{};
  int yields = 0;

 private:
  std::mutex mutex_;
  std::condition_variable gone_;
  int instances_ = 0;
  std::string name_;
  int input_ = -1;
};

/// The result of a program.
struct Ran {
  loader::Outcome outcome;
  std::string out;
  std::string err;
  std::vector<std::string> warnings;
  int failed_status = 0;
  std::string failure;
};

using Environment = std::shared_ptr<const std::vector<std::string>>;

inline Environment environment_of(std::vector<std::string> entries) {
  return std::make_shared<const std::vector<std::string>>(std::move(entries));
}

inline std::unique_ptr<Instance> make_instance(const std::shared_ptr<const Program>& program, CellServices& host,
                                               std::uint32_t cell = 0, std::vector<std::string> arguments = {"program"},
                                               Environment environment = environment_of({"PATH=/usr/bin:/bin"})) {
  return Instance::make(program, host, {SlotPlan::instances_of(cell), SlotPlan::instances_bytes()},
                        {std::move(arguments), std::move(environment)});
}

/// Runs `entry` of the instance on the calling thread until it ends.
inline loader::Outcome run_instance(std::unique_ptr<Instance> instance, const std::function<int(Instance&)>& entry) {
  return Instance::run(std::move(instance), entry, [](ProgramContext* context) { current_program_context = context; });
}

/// main(argc, argv, envp) of an instance, as an entry.
inline int call_main(Instance& instance) {
  using Main = int (*)(int, char**, char**);
  const Program::Definition entry = instance.program().find("main");
  if (!entry) throw std::runtime_error("the test's program has no main");
  return reinterpret_cast<Main>(instance.address_of(entry))(instance.argc(), instance.argv(), *instance.libc().environ);
}

/// A function of an instance by name, to be called inside an entry.
template <class Function>
Function* function_of(Instance& instance, std::string_view name) {
  const Program::Definition found = instance.program().find(name);
  if (!found) throw std::runtime_error("the test's program has no " + std::string(name));
  return reinterpret_cast<Function*>(instance.address_of(found));
}

/// Runs main of a fresh instance on cell `cell` until it ends.
inline Ran run(const std::shared_ptr<const Program>& program, std::vector<std::string> arguments = {"program"},
               std::uint32_t cell = 0, const std::string& input = {},
               Environment environment = environment_of({"PATH=/usr/bin:/bin"})) {
  RecordingHost host("cell " + std::to_string(cell) + " task 0", input);
  Ran ran;
  ran.outcome =
      run_instance(make_instance(program, host, cell, std::move(arguments), std::move(environment)), call_main);
  ran.out = host.out;
  ran.err = host.err;
  ran.warnings = host.warnings;
  ran.failed_status = host.failed_status;
  ran.failure = host.failure;
  return ran;
}

}  // namespace aplib::loader::test
