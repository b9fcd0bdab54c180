// SPDX-License-Identifier: MIT
// The same promise as tests/launch/cluster/cluster_mutation_test.cpp.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "aplib/error.hpp"
#include "fuzzer.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/cluster/shares.hpp"

std::vector<aplib::fuzz::Input> aplib::fuzz::seeds() {
  return {input_of(R"([machine]
grid = "4x2"
program = "./scg"
args = ["--grid", 300, 'x', """two
lines"""]
poll-time = "5us"
bind = false
private-libraries = ["liba.so", "libb.so*"]
[[host]]
name = "ws[1-3]"
cells = 2
threads = 2
speed = 2.5
[[host]]
name = "ws9"
address = "fe80::1%eth0"
command = "rsh {host} {quoted-cmd}"
cells = "auto"
count = 2
speed-command = "echo 1"
[comm]
module = ["shm", "tcp"]
ports = "5100-5120"
secure = "tls"
)")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aplib::launch;
  try {
    const cluster::Cluster cluster =
        cluster::parse_cluster({reinterpret_cast<const char*>(data), size}, "c.toml");  // bytes as the file has them
    const std::vector<cluster::HostSpeed> speeds(cluster.hosts.size(), {.speed = 1, .threads = 2});
    (void)cluster::share_cells(cluster, speeds);
  } catch (const aplib::Error& error) {
    if (error.code() == aplib::Errc::bad_option && std::string_view(error.what()).starts_with("c.toml:")) return 0;
    std::fprintf(stderr, "not an error of the file: %s\n", error.what());
    std::abort();
  }
  return 0;
}
