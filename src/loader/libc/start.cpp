// SPDX-License-Identifier: MIT
#include "loader/libc/start.hpp"

#include <array>
#include <cstdlib>

#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/state.hpp"

namespace aplib::loader::libc {

namespace {

using Main = decltype(LibcState::main);

// `init`: of executables that were linked before glibc 2.34, where it calls the constructors, which Instance does.
[[noreturn]] void own_start_main(Main main, int /*argc*/, char** /*argv*/, void (* /*init*/)(), void (* /*fini*/)(),
                                 void (* /*end_of_linker*/)(), void* /*stack_end*/) {
  TaskContext* const context = here();
  if (context == nullptr) std::abort();
  context->instance->libc().main = main;
  exit_to_frame(*context, 0);
}

}  // namespace

Main main_of(Instance& instance, Program::Definition start) {
  // The code there takes argc and argv from above the stack pointer, and hands them over unread.
  until_exit(*here(), [&instance, start] {
    reinterpret_cast<void (*)()>(instance.address_of(start))();
    return 0;
  });
  return instance.libc().main;
}

std::span<const Binding> start_bindings() {
  static const std::array table{Binding::of("__libc_start_main", &own_start_main)};
  return table;
}

}  // namespace aplib::loader::libc
