// SPDX-License-Identifier: MIT
#include "launch/this_host.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>

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

}  // namespace

wire::Hello describe_this_host() {
  wire::Hello hello;
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof name - 1) == 0) hello.host = name;
  hello.host_id = boot_id();  // containers share the cores
  if (hello.host_id.empty()) hello.host_id = hello.host;
  hello.pid = static_cast<std::uint64_t>(::getpid());
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

void keep_slots_free(char* const* argv) noexcept {
  constexpr const char* own_limit = "AP_STACK_LIMIT";  // what we tell ourselves, once
  constexpr rlim_t ordinary = rlim_t{8} << 20;
  constexpr rlim_t moves_mappings = rlim_t{1} << 40;  // far above that room for the stack costs others theirs
  constexpr unsigned long ask = 0xffffffff;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return;
  if (const char* text = std::getenv(own_limit)) {
    limit.rlim_cur = std::strtoull(text, nullptr, 10);
    ::setrlimit(RLIMIT_STACK, &limit);
    ::unsetenv(own_limit);
    return;
  }
  const int layout = ::personality(ask);
  const bool from_below = layout >= 0 && (layout & ADDR_COMPAT_LAYOUT) != 0;
  if (limit.rlim_cur < moves_mappings && !from_below) return;
  try {
    ::setenv(own_limit, fmt::format("{}", limit.rlim_cur).c_str(), 1);
  } catch (...) {
    return;  // no memory: the rest will say so
  }
  const rlimit small{std::min(limit.rlim_cur, ordinary), limit.rlim_max};
  if (from_below) ::personality(static_cast<unsigned long>(layout) & ~static_cast<unsigned long>(ADDR_COMPAT_LAYOUT));
  if (::setrlimit(RLIMIT_STACK, &small) == 0) ::execv("/proc/self/exe", argv);
  ::setrlimit(RLIMIT_STACK, &limit);
  ::unsetenv(own_limit);
}

void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace aplib::launch
