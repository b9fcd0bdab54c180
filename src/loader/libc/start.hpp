// SPDX-License-Identifier: MIT
// What must be made in an instance before any code of it runs, constructors included. Instance::make() calls start_libc() once the images lie and argv is known.
#pragma once

namespace aplib::loader {

class Instance;

/// Calls all of the functions below. Throws what they throw. Call from: any thread, before the program's first instruction.
void start_libc(Instance& instance);

namespace libc {

/// environ from Instance::arguments().environment; the program may change and replace it. May throw std::bad_alloc.
void start_environment(Instance& instance);
/// program_invocation_name and its kin from argv[0], which they point into.
void start_program_name(Instance& instance) noexcept;
/// "C", whatever the process uses. May throw std::bad_alloc.
void start_locale(Instance& instance);
/// tzname before the first tzset(), as in a fresh process.
void start_time_zone(Instance& instance) noexcept;

}  // namespace libc
}  // namespace aplib::loader
