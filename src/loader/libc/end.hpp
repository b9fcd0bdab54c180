// SPDX-License-Identifier: MIT
// The ends of programs and tasks. (exit.cpp)
#pragma once

#include <string>

namespace aplib::loader {

class Instance;
struct TaskContext;

/// Handlers of atexit, on_exit and __cxa_atexit, last registered first; they may register more. A handler that calls exit() leaves by Instance::leave: call again until it returns.
void run_exit_handlers(Instance& instance);
/// Handlers of at_quick_exit.
void run_quick_exit_handlers(Instance& instance);
/// Destructors of thread_locals of a task or thread that ends.
void run_thread_exits(TaskContext& context);
/// Ends the machine as abort() does, with exit status 134. `text` says why, for people.
[[noreturn]] void abort_instance(Instance& instance, const std::string& text);

}  // namespace aplib::loader
