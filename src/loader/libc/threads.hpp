// SPDX-License-Identifier: MIT
// Threads that programs make themselves (pthread_create, std::thread, OpenMP): foreign to the machine, but flows of their instance.
#pragma once

namespace aplib::loader {

class Instance;

/// The calling thread was made by a program. False on the machine's own threads, hence in tasks.
bool on_program_thread() noexcept;

/// Says that main has ended and threads that the program made have not, if so. Call from: whoever takes main's result.
void warn_of_threads(Instance& instance);

}  // namespace aplib::loader
