// SPDX-License-Identifier: MIT
// Who calls: the task behind a call of the API, and how a call is refused in that task's name.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "aplib/error.hpp"
#include "cell/processor.hpp"

namespace aplib {

/// The task that runs on this thread; null: none.
[[gnu::always_inline]] inline TaskControl* running_task() noexcept {
  const Processor* processor = Processor::current();
  return processor != nullptr ? processor->running() : nullptr;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void outside_task(const char* call) {
  throw Error(Errc::bad_argument,
              fmt::format("{}: called outside a task; it works only inside a program that a Machine runs", call));
}

/// Throws Error: "cell 3 task 0: <call>: <text>".
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse(const TaskControl& self, Errc code, const char* call,
                                                          const std::string& text) {
  const Domain& domain = self.cell->processor->domain();
  throw Error(code, fmt::format("{} task {}: {}: {}", domain.name_of(self.cell->id), self.id, call, text));
}

[[gnu::always_inline]] inline TaskControl& self_or_throw(const char* call) {
  TaskControl* const self = running_task();
  if (self == nullptr) [[unlikely]]
    outside_task(call);
  return *self;
}

/// When a wait of this length that begins now ends. What no clock can count is some hundred years.
[[nodiscard]] inline Clock::time_point deadline_after(std::chrono::nanoseconds duration) noexcept {
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds(3'000'000'000);
  return Clock::now() + std::min(duration, longest);
}

}  // namespace aplib
