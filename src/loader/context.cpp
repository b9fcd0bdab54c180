// SPDX-License-Identifier: MIT
#include "loader/context.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <locale.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>
#include <string_view>

#include "aplib/error.hpp"
#include "arch/elf.hpp"
#include "base/os/descriptor.hpp"
#include "loader/instance.hpp"
#include "loader/libc/end.hpp"

extern "C" void* __tls_get_addr(void* index);  // ld.so's

namespace aplib::loader {

namespace {

char* thread_pointer() noexcept { return static_cast<char*>(__builtin_thread_pointer()); }

// In the static block of every thread, because this library is loaded at start. Initial-exec is what gives it one
// offset for all threads.
[[gnu::tls_model("initial-exec")]] alignas(64) constinit thread_local char pool[static_tls_pool_bytes] = {};

/// The optimiser must not fold this with the thread pointer: it would write instructions that linkers cannot turn
/// into local-exec form.
char* this_pool() noexcept {
  char* place = pool;
  asm("" : "+r"(place));
  return place;
}

ProgramContext* inherit(ProgramContext& parent) { return new TaskContext(*static_cast<TaskContext&>(parent).instance); }

void run(ProgramContext& context, void (*entry)(void*), void* state) {
  auto& self = static_cast<TaskContext&>(context);
  const Outcome outcome = until_exit(self, [entry, state] {
    entry(state);
    return 0;
  });
  if (outcome.jumped) self.instance->services().task_exited(outcome.status);
}

[[noreturn]] void abandon(ProgramContext& context, int status, bool completes) {
  static_cast<TaskContext&>(context).instance->leave(status, completes);
}

void release(ProgramContext* context) { Instance::leave_for_good(static_cast<TaskContext*>(context)); }

void discard(ProgramContext* context) noexcept { Instance::drop(static_cast<TaskContext*>(context)); }

constexpr ProgramContextOps operations{inherit, run, release, abandon, discard, swap_thread_state};

}  // namespace

TaskContext::TaskContext(Instance& owner) : instance(&owner) {
  ops = &operations;
  const libc::LibcState& state = owner.libc();
  swaps = state.thread_locale != nullptr || state.thread_directory || state.thread_mask >= 0 || state.measures_cpu;
  start_static_tls(*this);
  owner.entered(*this);
}

TaskContext* adopt_thread(const void* caller) {
  Instance* const instance = calling(caller);
  if (instance == nullptr) return nullptr;
  auto* const context = new TaskContext(*instance);
  context->of_thread = context->of_pool = true;  // nobody tells us when it ends
  current_program_context = context;
  return context;
}

TaskContext::~TaskContext() {
  for (char* block : tls_blocks) std::free(block);
  instance->libc().cpu_of_ended += cpu.used();
}

// ---------------------------------------------------------------- CPU time
// The kernel's clock of a thread costs more than a switch. So what a flow used between two switches is the time that
// passed, unless that was long: then the thread may have waited for a core, and its own clock decides.

namespace {

constexpr std::int64_t long_time = 100'000;  // ns

std::int64_t ns_of(clockid_t clock) noexcept {
  timespec time{};
  return clock_gettime(clock, &time) == 0 ? time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec : 0;
}

std::int64_t steady_now() noexcept { return ns_of(CLOCK_MONOTONIC); }

/// The kernel's number for the CPU clock of a thread.
clockid_t cpu_clock_of(pid_t thread) noexcept {
  constexpr int of_thread_scheduled = 6;
  return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3U) | of_thread_scheduled);
}

/// Of the calling thread: what its clock said last, and what flows have used since.
constinit thread_local std::int64_t thread_used = 0;
constinit thread_local pid_t thread_number = 0;

}  // namespace

// A sequence lock with one writer, the thread that runs the flow. relaxed: `changes_` orders the rest
void CpuMeter::begin_change() noexcept {
  changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

void CpuMeter::end_change() noexcept {
  changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void CpuMeter::add(std::int64_t used) noexcept {
  begin_change();
  used_.store(used_.load(std::memory_order_relaxed) + used, std::memory_order_relaxed);
  end_change();
}

void CpuMeter::start(std::int64_t now) noexcept {
  if (thread_number == 0) {
    thread_number = ::gettid();
    thread_used = ns_of(CLOCK_THREAD_CPUTIME_ID);
  }
  begin_change();
  since_.store(now, std::memory_order_relaxed);
  thread_used_.store(thread_used, std::memory_order_relaxed);
  thread_.store(thread_number, std::memory_order_relaxed);
  end_change();
}

void CpuMeter::stop(std::int64_t now) noexcept {
  if (!runs()) return;
  std::int64_t used = now - since_.load(std::memory_order_relaxed);
  if (used > long_time) {
    const std::int64_t of_thread = ns_of(CLOCK_THREAD_CPUTIME_ID);
    used = std::clamp<std::int64_t>(of_thread - thread_used_.load(std::memory_order_relaxed), 0, used);
    thread_used = of_thread;
  } else {
    thread_used += used;
  }
  begin_change();
  used_.store(used_.load(std::memory_order_relaxed) + used, std::memory_order_relaxed);
  thread_.store(0, std::memory_order_relaxed);
  end_change();
}

std::int64_t CpuMeter::used() const noexcept {
  for (;;) {
    const std::uint32_t before = changes_.load(std::memory_order_acquire);
    std::int64_t used = used_.load(std::memory_order_relaxed);
    if (const pid_t thread = thread_.load(std::memory_order_relaxed); thread != 0) {
      const std::int64_t passed = steady_now() - since_.load(std::memory_order_relaxed);
      const std::int64_t of_thread = ns_of(cpu_clock_of(thread)) - thread_used_.load(std::memory_order_relaxed);
      used += std::clamp<std::int64_t>(of_thread, 0, std::max<std::int64_t>(passed, 0));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && before == changes_.load(std::memory_order_relaxed)) return used;
  }
}

void measure_cpu(Instance& instance) noexcept {
  libc::LibcState& state = instance.libc();
  TaskContext* const context = here();
  const bool is_measured = context == nullptr || context->cpu.runs();  // a thread of the program is from its beginning
  if (!state.measures_cpu.exchange(true)) {
    const std::int64_t before = std::max<std::int64_t>(instance.services().computed() - state.cpu_before, 0);
    if (is_measured) {
      state.cpu_of_ended += before;
    } else {
      context->cpu.add(before);
    }
    instance.for_each_context([](TaskContext& each) { each.swaps = true; });
  }
  if (!is_measured) context->cpu.start(steady_now());
}

void measure_thread(TaskContext& context) noexcept {
  if (!context.cpu.runs()) context.cpu.start(steady_now());
}

std::int64_t cpu_used(Instance& instance) noexcept {
  std::int64_t all = instance.libc().cpu_of_ended;
  instance.for_each_context([&all](TaskContext& context) { all += context.cpu.used(); });
  return all;
}

// ---------------------------------------------------------------- what belongs to the thread

mode_t mask_of_thread() noexcept {
  // The line stands near the beginning, behind the name.
  std::array<char, 512> text;
  const os::UniqueFd status(open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC));
  const ssize_t bytes = status ? read(status.get(), text.data(), text.size()) : 0;
  constexpr std::string_view name = "\nUmask:\t";
  const std::string_view read_text(text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  mode_t mask = 022;
  if (const std::size_t at = read_text.find(name); at != read_text.npos)
    std::from_chars(read_text.data() + at + name.size(), read_text.data() + read_text.size(), mask, 8);
  return mask;
}

namespace {

/// The process's own working directory and umask, for flows of other programs; known once a program has left them.
struct ProcessFiles {
  int directory = -1;
  std::optional<os::DirectoryId> id;
  mode_t mask = 022;
};

const ProcessFiles& process_files() noexcept {
  static const ProcessFiles files = [] {
    ProcessFiles found;
    found.directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    os::guard_descriptor(found.directory);
    found.id = os::id_of_directory(found.directory);
    found.mask = mask_of_thread();
    return found;
  }();
  return files;
}

/// Threads that are made from now on may share the files of one that exchanges them.
std::atomic<bool> some_separate{false};

/// Gives the calling thread a working directory and umask of its own. Returns 0 or errno.
int separate_thread() noexcept {
  thread_local bool separated = false;
  if (separated) return 0;
  process_files();  // while this thread still shares the process's
  some_separate.store(true);
  if (unshare(CLONE_FS) != 0) return errno;
  separated = true;
  return 0;
}

// Programs that are the ranks of one job mostly work in one directory, though each has said so: then there is nothing
// to exchange.
void load_files(const libc::LibcState* state) noexcept {
  thread_local std::optional<os::DirectoryId> current;  // what was loaded last; nothing: not known
  thread_local std::optional<mode_t> current_mask;
  const ProcessFiles& process = process_files();
  const bool has_directory = state != nullptr && state->thread_directory;
  const std::optional<os::DirectoryId>& id = has_directory ? state->thread_directory_id : process.id;
  if (!id || id != current) {
    // It was one when it was opened; one that was removed stays current.
    const bool done = fchdir(has_directory ? state->thread_directory.get() : process.directory) == 0;
    current = done ? id : std::nullopt;
  }
  const mode_t mask =
      state != nullptr && state->thread_mask >= 0 ? static_cast<mode_t>(state->thread_mask) : process.mask;
  if (current_mask != mask) umask(mask);
  current_mask = mask;
}

bool has_files(const libc::LibcState* state) noexcept {
  return state != nullptr && (state->thread_directory || state->thread_mask >= 0);
}

}  // namespace

int thread_state_changed(Instance& instance) noexcept {
  libc::LibcState& state = instance.libc();
  if (has_files(&state)) {
    if (const int error = separate_thread(); error != 0) return error;
  }
  instance.for_each_context([](TaskContext& context) { context.swaps = true; });
  if (has_files(&state)) load_files(&state);
  // A thread that the program has made keeps the one that it has chosen.
  if (const TaskContext* const flow = here(); flow == nullptr || !flow->of_thread)
    uselocale(state.thread_locale != nullptr ? state.thread_locale : LC_GLOBAL_LOCALE);
  return 0;
}

void start_thread_files(Instance& instance) noexcept {
  // The thread that has made it may have gone on to another program meanwhile.
  if (some_separate.load() && separate_thread() == 0) load_files(&instance.libc());
}

void swap_thread_state(ProgramContext* from, ProgramContext* to) noexcept {
  auto* const leaving = static_cast<TaskContext*>(from);
  auto* const coming = static_cast<TaskContext*>(to);
  if (leaving != nullptr && leaving->static_tls != nullptr)
    std::memcpy(leaving->static_tls.get(), this_pool(), leaving->static_tls_bytes);
  if (coming != nullptr && coming->static_tls != nullptr)
    std::memcpy(this_pool(), coming->static_tls.get(), coming->static_tls_bytes);
  if (leaving != nullptr && leaving->executable_tls != nullptr) {
    std::memcpy(leaving->executable_tls.get(), thread_pointer() - leaving->executable_tls_bytes,
                leaving->executable_tls_bytes);
  }
  if (coming != nullptr && coming->executable_tls != nullptr) {
    std::memcpy(thread_pointer() - coming->executable_tls_bytes, coming->executable_tls.get(),
                coming->executable_tls_bytes);
  }
  const bool measures = leaving != nullptr && leaving->instance->libc().measures_cpu;
  if (measures || (coming != nullptr && coming->instance->libc().measures_cpu)) {
    const std::int64_t now = steady_now();
    if (measures) leaving->cpu.stop(now);
    if (coming != nullptr && coming->instance->libc().measures_cpu) coming->cpu.start(now);
  }
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

// ---------------------------------------------------------------- thread-locals

namespace {

/// What the process's executable has lent, right below the thread pointer of every thread.
std::atomic<std::size_t> lent_bytes{0};
constexpr std::size_t lent_alignment = 64;

/// The block of image number `module` in `context`, made from the image's template.
[[gnu::noinline]] char* make_block(TaskContext& context, std::uint32_t module) {
  const LoadedImage* image = context.instance->image_of_module(module);
  if (image == nullptr || !image->file->tls()) {
    context.instance->services().fail(
        1, fmt::format("a thread-local of module {} was used, which the program does not have (any more)", module));
  }
  const TlsTemplate& tls = *image->file->tls();
  const std::size_t alignment = std::max<std::size_t>(tls.alignment, alignof(std::max_align_t));
  const std::size_t bytes = (tls.memory_bytes + alignment - 1) & ~(alignment - 1);
  auto* block = static_cast<char*>(std::aligned_alloc(alignment, std::max(bytes, alignment)));
  if (block == nullptr) throw std::bad_alloc();
  // From the instance, not from the file: initial values may have been relocated.
  std::memcpy(block, image->base + tls.address, tls.file_bytes);
  std::memset(block + tls.file_bytes, 0, bytes - tls.file_bytes);
  if (context.tls_blocks.size() <= module) context.tls_blocks.resize(module + 1, nullptr);
  context.tls_blocks[module] = block;
  return block;
}

[[gnu::noinline]] void* find_slowly(const TlsIndex* index, const void* caller) {
  TaskContext* context = here();
  if (context == nullptr) context = adopt_thread(caller);
  if (context == nullptr) std::abort();
  const auto module = static_cast<std::uint32_t>(index->module);
  const LoadedImage* image = context->instance->image_of_module(module);
  if (image != nullptr && image->file->uses_static_tls() && image->file->tls()) {
    // The file has initial-exec references too: both kinds must mean the same variable. Not remembered, as the pool
    // is the thread's and the task may change thread.
    return thread_pointer() + image->static_tls_offset + index->offset;
  }
  return make_block(*context, module) + index->offset;
}

}  // namespace

void* tls_get_addr(const TlsIndex* index) {
  if (static_cast<std::int64_t>(index->module) >= 0) [[unlikely]]
    return __tls_get_addr(const_cast<TlsIndex*>(index));
  const TaskContext* context = here();
  const auto module = static_cast<std::uint32_t>(index->module);
  if (context != nullptr && module < context->tls_blocks.size()) [[likely]] {
    if (char* block = context->tls_blocks[module]; block != nullptr) [[likely]]
      return block + index->offset;
  }
  return find_slowly(index, __builtin_return_address(0));
}

std::int64_t place_static_tls(const char* path, const TlsTemplate& tls, std::size_t used) {
  const std::size_t at = (used + tls.alignment - 1) & ~(tls.alignment - 1);
  if (tls.alignment > alignof(std::max_align_t) * 4 || tls.memory_bytes > static_tls_pool_bytes ||
      at + tls.memory_bytes > static_tls_pool_bytes) {
    throw Error(Errc::exhausted,
                fmt::format("{}: its initial-exec thread-locals need {} bytes, and {} of {} are taken; compile it with "
                            "-ftls-model=global-dynamic (the default of -fPIC)",
                            path, tls.memory_bytes, used, static_tls_pool_bytes));
  }
  return this_pool() + at - thread_pointer();
}

std::size_t static_tls_end(std::int64_t offset, const TlsTemplate& tls) noexcept {
  return static_cast<std::size_t>(thread_pointer() + offset - this_pool()) + tls.memory_bytes;
}

bool lend_executable_tls(const void* begin, std::size_t bytes) noexcept {
  if (static_cast<const char*>(begin) + bytes != thread_pointer()) return false;
  lent_bytes.store(bytes, std::memory_order_relaxed);  // relaxed: programs are loaded later
  return true;
}

std::size_t executable_tls_room() noexcept {
  return lent_bytes.load(std::memory_order_relaxed);  // relaxed: as above
}

std::int64_t place_executable_tls(const char* path, const TlsTemplate& tls) {
  // By the ABI the block ends at the thread pointer, but for its alignment.
  const std::uint64_t bytes = tls.memory_bytes + ((0 - tls.address - tls.memory_bytes) & (tls.alignment - 1));
  const std::size_t lent = lent_bytes.load(std::memory_order_relaxed);
  if (lent == 0) {
    throw Error(Errc::failed,
                fmt::format("{}: is an executable with thread-locals, for which this process has no room; run it with "
                            "aprun, or compile and link it with apcc",
                            path));
  }
  if (bytes > lent || tls.alignment > lent_alignment) {
    throw Error(Errc::failed,
                fmt::format("{}: its thread-locals need {} bytes aligned to {}, and executables may have {} aligned to "
                            "{}; compile and link it with apcc",
                            path, bytes, tls.alignment, lent, lent_alignment));
  }
  return -static_cast<std::int64_t>(bytes);
}

void start_static_tls(TaskContext& context, const LoadedImage& image, bool runs) {
  const TlsTemplate& tls = *image.file->tls();
  char* at = nullptr;
  if (image.file->is_executable()) {
    context.executable_tls_bytes = static_cast<std::size_t>(-image.static_tls_offset);
    context.executable_tls = std::make_unique<char[]>(context.executable_tls_bytes);
    at = context.executable_tls.get();
  } else {
    if (context.static_tls == nullptr) context.static_tls = std::make_unique<char[]>(static_tls_pool_bytes);
    context.static_tls_bytes = std::max(context.static_tls_bytes, static_tls_end(image.static_tls_offset, tls));
    at = runs ? thread_pointer() + image.static_tls_offset
              : context.static_tls.get() + (thread_pointer() + image.static_tls_offset - this_pool());
  }
  std::memcpy(at, image.base + tls.address, tls.file_bytes);
  std::memset(at + tls.file_bytes, 0, tls.memory_bytes - tls.file_bytes);
  context.swaps = true;
  context.stays = true;
}

void start_static_tls(TaskContext& context) {
  for (const LoadedImage& image : context.instance->images()) {
    if (image.file != nullptr && image.file->uses_static_tls() && image.file->tls())
      start_static_tls(context, image, false);
  }
}

}  // namespace aplib::loader

std::uint64_t aplib_tls_descriptor_offset(const void* argument) {
  return static_cast<std::uint64_t>(
      static_cast<char*>(aplib::loader::tls_get_addr(static_cast<const aplib::loader::TlsIndex*>(argument))) -
      static_cast<char*>(__builtin_thread_pointer()));
}
