// SPDX-License-Identifier: MIT
// Stand-ins until the parts land that define these.
#include "loader/instance.hpp"
#include "loader/libc/end.hpp"

namespace aplib::loader {

[[gnu::weak]] void run_exit_handlers(Instance&) {}
[[gnu::weak]] void run_quick_exit_handlers(Instance&) {}
[[gnu::weak]] void run_thread_exits(TaskContext&) {}
[[gnu::weak]] void abort_instance(Instance& instance, const std::string& text) {
  instance.host().fail(134, text);
  __builtin_unreachable();
}

namespace libc {
[[gnu::weak]] void stop_stdio(Instance&) {}
}  // namespace libc

}  // namespace aplib::loader
