// SPDX-License-Identifier: MIT
// Fiber: a stack that runs a function until it suspends. The deterministic scheduler gives one to each thread of a
// scenario, and tells the sanitizers about every switch. For tests only; the library's own switch is in src/task/.
#pragma once

#include <cstddef>
#include <memory>

namespace aplib::det {

class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Prepares `entry(argument)`, which runs at the next resume(). What was on the stack before is discarded without
  /// unwinding.
  void start(Entry entry, void* argument);
  /// Runs the fiber until it suspends or ends. Call from: the thread that owns it, outside the fiber.
  void resume();
  /// Goes back to resume()'s caller. Call from: inside the fiber.
  void suspend();
  [[nodiscard]] bool ended() const noexcept { return ended_; }

 private:
  struct Switch;  // jumps and tells the sanitizers

  static constexpr std::size_t stack_bytes = 128 * 1024;
  std::unique_ptr<std::byte[]> stack_;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  void* inside_ = nullptr;   // the fiber's saved context while it is suspended
  void* outside_ = nullptr;  // the resumer's saved context while the fiber runs
  bool ended_ = true;
  [[maybe_unused]] const void* outside_stack_ = nullptr;  // AddressSanitizer: the resumer's stack
  [[maybe_unused]] std::size_t outside_stack_bytes_ = 0;
  [[maybe_unused]] void* tsan_inside_ = nullptr;  // ThreadSanitizer's names for both sides
  [[maybe_unused]] void* tsan_outside_ = nullptr;
};

}  // namespace aplib::det
