// SPDX-License-Identifier: MIT
// State that the kernel or libc keeps per thread and a program believes to be its own: locale, working directory, umask, initial-exec thread-locals. Cells share threads, so the
// switch exchanges it (ProgramContextOps::swap), but only from and to contexts that have changed any of it.
#pragma once

#include "loader/context.hpp"

namespace aplib::loader {

/// The instance's thread_locale, thread_directory or thread_mask was changed: applies it to the calling thread and has every context of the instance swap from now on. Returns 0, or errno when
/// the thread cannot have a working directory of its own (unshare(CLONE_FS) forbidden). Call from: a flow of the instance.
int thread_state_changed(Instance& instance) noexcept;

/// ProgramContextOps::swap.
void swap_thread_state(ProgramContext* from, ProgramContext* to) noexcept;

}  // namespace aplib::loader
