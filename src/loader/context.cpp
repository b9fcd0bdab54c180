// SPDX-License-Identifier: MIT
#include "loader/context.hpp"

#include <fcntl.h>
#include <locale.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "loader/exit_frame.hpp"
#include "loader/instance.hpp"
#include "loader/libc/end.hpp"
#include "loader/tls.hpp"

namespace aplib::loader {

namespace {

ProgramContext* inherit(ProgramContext& parent) { return new TaskContext(*static_cast<TaskContext&>(parent).instance); }

void run(ProgramContext& context, void (*entry)(void*), void* state) {
  auto& self = static_cast<TaskContext&>(context);
  const Outcome outcome = until_exit(self, [entry, state] {
    entry(state);
    return 0;
  });
  if (outcome.jumped) self.instance->services().task_exited(outcome.status);
}

void release(ProgramContext* context) { Instance::leave_for_good(static_cast<TaskContext*>(context)); }

void discard(ProgramContext* context) noexcept { Instance::drop(static_cast<TaskContext*>(context)); }

constexpr ProgramContextOps operations{inherit, run, release, discard, swap_thread_state};

}  // namespace

TaskContext::TaskContext(Instance& owner) : instance(&owner) {
  ops = &operations;
  const libc::LibcState& state = owner.libc();
  swaps = state.thread_locale != nullptr || state.thread_directory >= 0 || state.thread_mask >= 0;
  start_static_tls(*this);
  owner.entered(*this);
}

TaskContext::~TaskContext() {
  for (char* block : tls_blocks) std::free(block);
}

// ---------------------------------------------------------------- what belongs to the thread

namespace {

/// The process's own working directory and umask, for flows of other programs; known once a program has left them.
struct ProcessFiles {
  int directory = -1;
  mode_t mask = 022;
};

const ProcessFiles& process_files() noexcept {
  static const ProcessFiles files = [] {
    ProcessFiles found;
    found.directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    found.mask = umask(0);
    umask(found.mask);
    return found;
  }();
  return files;
}

/// Gives the calling thread a working directory and umask of its own. Returns 0 or errno.
int separate_thread() noexcept {
  thread_local bool separated = false;
  if (separated) return 0;
  process_files();  // while this thread still shares the process's
  if (unshare(CLONE_FS) != 0) return errno;
  separated = true;
  return 0;
}

void load_files(const libc::LibcState* state) noexcept {
  const ProcessFiles& process = process_files();
  const int directory = state != nullptr && state->thread_directory >= 0 ? state->thread_directory : process.directory;
  const mode_t mask =
      state != nullptr && state->thread_mask >= 0 ? static_cast<mode_t>(state->thread_mask) : process.mask;
  [[maybe_unused]] const int failed =
      fchdir(directory);  // it was one when it was opened; one that was removed stays current
  umask(mask);
}

bool has_files(const libc::LibcState* state) noexcept {
  return state != nullptr && (state->thread_directory >= 0 || state->thread_mask >= 0);
}

}  // namespace

int thread_state_changed(Instance& instance) noexcept {
  libc::LibcState& state = instance.libc();
  if (has_files(&state)) {
    if (const int error = separate_thread(); error != 0) return error;
  }
  instance.for_each_context([](TaskContext& context) { context.swaps = true; });
  if (has_files(&state)) load_files(&state);
  uselocale(state.thread_locale != nullptr ? state.thread_locale : LC_GLOBAL_LOCALE);
  return 0;
}

void swap_thread_state(ProgramContext* from, ProgramContext* to) noexcept {
  auto* const leaving = static_cast<TaskContext*>(from);
  auto* const coming = static_cast<TaskContext*>(to);
  if (leaving != nullptr && leaving->static_tls != nullptr)
    std::memcpy(leaving->static_tls.get(), static_tls_pool(), static_tls_used());
  if (coming != nullptr && coming->static_tls != nullptr)
    std::memcpy(static_tls_pool(), coming->static_tls.get(), static_tls_used());
  const libc::LibcState* before = leaving != nullptr ? &leaving->instance->libc() : nullptr;
  const libc::LibcState* after = coming != nullptr ? &coming->instance->libc() : nullptr;
  if (before == after) return;
  const locale_t old_locale = before != nullptr ? before->thread_locale : nullptr;
  const locale_t new_locale = after != nullptr ? after->thread_locale : nullptr;
  if (old_locale != new_locale) uselocale(new_locale != nullptr ? new_locale : LC_GLOBAL_LOCALE);
  // A thread that cannot be separated never gets here with files of its own: the call that would have changed them
  // has failed.
  if ((has_files(before) || has_files(after)) && separate_thread() == 0) load_files(after);
}

}  // namespace aplib::loader
