// SPDX-License-Identifier: MIT
#include "launch/this_host.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <fstream>

namespace aplib::launch {

namespace {

/// The same in all containers of a computer.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

/// What a file, a mount or a namespace is, as long as the system runs.
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

void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace aplib::launch
