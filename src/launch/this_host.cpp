// SPDX-License-Identifier: MIT
#include "launch/this_host.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/cpus.hpp"
#include "base/sanitizer.hpp"
#include "kernel/process.hpp"

namespace aplib::launch {

namespace {

/// Identifies the computer: it is the same in all its containers.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

/// Identifies a file, a mount or a namespace while the system runs.
std::string identity_of(const char* path) {
  struct stat is {};
  return ::stat(path, &is) == 0 ? fmt::format("{:x}.{:x}", is.st_dev, is.st_ino) : std::string("none");
}

// What a program tells itself when it executes itself again: the user's own settings.
constexpr const char* own_limit = "AP_STACK_LIMIT";
constexpr const char* own_tunables = "AP_GLIBC_TUNABLES";
constexpr const char* tunables = "GLIBC_TUNABLES";

/// False: nothing was changed.
bool restore_settings() noexcept {
  const char* const limit_text = std::getenv(own_limit);
  const char* const tunables_text = std::getenv(own_tunables);
  rlimit limit{};
  if (limit_text != nullptr && ::getrlimit(RLIMIT_STACK, &limit) == 0) {
    limit.rlim_cur = std::strtoull(limit_text, nullptr, 10);
    ::setrlimit(RLIMIT_STACK, &limit);
  }
  if (tunables_text != nullptr) {
    if (*tunables_text != 0) {
      ::setenv(tunables, tunables_text, 1);
    } else {
      ::unsetenv(tunables);
    }
  }
  const bool changed = limit_text != nullptr || tunables_text != nullptr;
  ::unsetenv(own_limit);
  ::unsetenv(own_tunables);
  if (changed) ::prctl(PR_SET_NAME, program_invocation_short_name);  // instead of "exe"
  return changed;
}

/// True: the stack's limit is an ordinary one now, and counts from the next start.
bool limit_stack() {
  constexpr rlim_t ordinary = rlim_t{8} << 20;
  constexpr rlim_t moves_mappings = rlim_t{1} << 40;  // far above that room for the stack costs others theirs
  constexpr unsigned long ask = 0xffffffff;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return false;
  const int layout = ::personality(ask);
  const bool from_below = layout >= 0 && (layout & ADDR_COMPAT_LAYOUT) != 0;
  if (limit.rlim_cur < moves_mappings && !from_below) return false;
  ::setenv(own_limit, fmt::format("{}", limit.rlim_cur).c_str(), 1);
  const rlimit small{std::min(limit.rlim_cur, ordinary), limit.rlim_max};
  if (from_below) ::personality(static_cast<unsigned long>(layout) & ~static_cast<unsigned long>(ADDR_COMPAT_LAYOUT));
  return ::setrlimit(RLIMIT_STACK, &small) == 0;
}

/// True: libc's malloc has settings for the next start. All cells share its heap, and what one of them gives back to
/// the system costs all of them: page faults, and a stop of the other processors.
bool tune_heap() {
  const auto variable = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text != nullptr ? text : "");
  };
  const std::string of_user = variable(tunables);
  if (APLIB_ASAN || APLIB_TSAN || of_user.find("glibc.malloc.") != std::string::npos) return false;
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {  // what the heap reserves would count
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return false;
  }
  // valgrind has its own malloc, and would not follow.
  if (variable("LD_PRELOAD").find("vgpreload") != std::string::npos) return false;
  ::setenv(own_tunables, of_user.c_str(), 1);
  ::setenv(tunables,
           fmt::format("glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold={}:glibc.malloc.trim_threshold={}:"
                       "glibc.malloc.top_pad={}{}{}",
                       32U << 20,               // the highest that libc takes
                       std::uint64_t{1} << 40,  // never
                       64U << 20,               // a whole heap of a thread at once, which so gets large pages
                       of_user.empty() ? "" : ":", of_user)
               .c_str(),
           1);
  return true;
}

}  // namespace

wire::Hello describe_this_host() {
  wire::Hello hello;
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof name - 1) == 0) hello.host = name;
  hello.host_id = boot_id();  // containers share the cores
  if (hello.host_id.empty()) hello.host_id = hello.host;
  hello.pid = static_cast<std::uint64_t>(::getpid());
  hello.heap_layout = heap_layout();
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (::sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &cpus)) hello.cpus.push_back(cpu);
  }
  return hello;
}

std::string shared_memory_domain() {
  return fmt::format("{}/{}/{}", boot_id(), identity_of("/dev/shm"), identity_of("/proc/self/ns/net"));
}

void keep_to_cpus(const std::vector<std::uint32_t>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

bool has_openmp_threads() noexcept {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  return text == nullptr || std::string_view(text) != "1";
}

void share_cpus(std::uint32_t cells) {
  if (cells < 2) return;
  const std::uint32_t cpus = usable_cpu_count(allowed_cpus().size(), cpu_quota());
  ::setenv("OMP_NUM_THREADS", fmt::format("{}", std::max(cpus / cells, 1U)).c_str(), 0);
}

void settle(char* const* argv, Heap heap) noexcept {
  if (!restore_settings()) {
    try {
      const bool tunes = heap == Heap::of_cells && tune_heap();
      const bool limits = limit_stack();
      if (tunes || limits) ::execv("/proc/self/exe", argv);
    } catch (...) {  // no memory: the rest will say so
    }
    restore_settings();
  }
}

void settle_beforehand(Heap heap) noexcept {
  try {
    static_cast<void>(heap == Heap::of_cells && tune_heap());
    static_cast<void>(limit_stack());
  } catch (...) {  // no memory: aprun sees to it itself
  }
}

void take_stack_limit() noexcept {
  constexpr const char* name = "APLIB_PROGRAM_STACK";
  constexpr rlim_t usual = rlim_t{8} << 20;
  constexpr rlim_t most = rlim_t{1} << 30;
  rlimit stack{};
  rlimit space{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || ::getrlimit(RLIMIT_AS, &space) != 0) return;
  if (stack.rlim_cur <= usual || space.rlim_cur != RLIM_INFINITY) return;
  try {
    ::setenv(name, fmt::format("{}k", std::min(stack.rlim_cur, most) >> 10).c_str(), 0);
  } catch (...) {  // no memory: the rest will say so
  }
}

void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace aplib::launch
