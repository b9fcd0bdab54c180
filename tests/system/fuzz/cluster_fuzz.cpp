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
#include "whole_cluster.hpp"

std::vector<aplib::fuzz::Input> aplib::fuzz::seeds() { return {input_of(launch::whole_cluster)}; }

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
