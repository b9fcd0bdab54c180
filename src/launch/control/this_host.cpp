// SPDX-License-Identifier: MIT
#include "launch/control/this_host.hpp"

#include <sched.h>
#include <unistd.h>

#include <climits>
#include <fstream>

namespace aplib::launch {

Hello describe_this_host() {
  Hello hello;
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof name - 1) == 0) hello.host = name;
  // The same in all containers of a computer: they share its cores.
  std::ifstream("/proc/sys/kernel/random/boot_id") >> hello.host_id;
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

void keep_to_cpus(const std::vector<std::uint32_t>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace aplib::launch
