// SPDX-License-Identifier: MIT
// hosts: what lies between the processes of a machine. Starts machines of two processes with aprun, each on a core of its own, that run bench-cells; and one of 64 processes, that
// says hello. bench-net gives the floors.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "benches.hpp"
#include "child.hpp"

namespace apbench {
namespace {

constexpr int samples_max = 5;

/// A cluster file that is gone with this object.
class ClusterFile {
 public:
  explicit ClusterFile(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "apbench-XXXXXX").string();
    const int file = mkstemp(name.data());
    if (file < 0) throw std::runtime_error(fmt::format("no temporary file {}: {}", name, std::strerror(errno)));
    close(file);
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~ClusterFile() { std::remove(path_.c_str()); }
  ClusterFile(const ClusterFile&) = delete;
  ClusterFile& operator=(const ClusterFile&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Two processes on cores 0 and 1 of those that this program may use, as the floors have them.
std::string two_processes(unsigned cells_each, const char* secure) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) {
    throw std::runtime_error("hosts: two usable cores are needed and this process has one (see taskset)");
  }
  std::string text = fmt::format("[machine]\ncells = {}\n[comm]\nsecure = \"{}\"\n", 2 * cells_each, secure);
  for (int i = 0; i < 2; ++i) {
    text += fmt::format(
        "[[host]]\nname = \"process{}\"\nlaunch = \"command\"\ncommand = \"taskset -c {} {{cmd}}\"\ncells = "
        "{}\nthreads = 1\n",
        i, cores[static_cast<std::size_t>(i)], cells_each);
  }
  return text;
}

std::string many_processes(unsigned processes, unsigned cells_each) {
  return fmt::format(
      "[machine]\ncells = {}\n[[host]]\nname = \"process\"\nlaunch = \"local\"\ncount = {}\ncells = {}\nthreads = 1\n",
      processes * cells_each, processes, cells_each);
}

double number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{})
    throw std::runtime_error(fmt::format("bench-cells printed '{}' where a number belongs", text));
  return value;
}

/// What bench-cells measures on the cluster of the file.
double measured_on(const std::string& file, const std::string& what, std::size_t bytes) {
  return number(output_of({beside("aprun"), "-f", file, beside("bench-cells"), what, std::to_string(bytes)}));
}

struct Case {
  const char* name;
  const char* what;  // bench-cells' word for it
  const char* unit;
  unsigned cells_each;
  const char* secure;
  std::vector<std::size_t> bytes;
};

const std::vector<Case>& cases() {
  static const std::vector<std::size_t> large{65536, 1U << 20};
  static const std::vector<Case> table{
      {"latency", "latency", "ns", 1, "auth", {8}},
      {"latency-posted", "latency-posted", "ns", 1, "auth", {8}},
      {"stream", "stream", "GB/s", 1, "auth", large},
      {"stream-posted", "stream-posted", "GB/s", 1, "auth", large},
      {"stream-tls", "stream", "GB/s", 1, "tls", {1U << 20}},
      {"stream-posted-tls", "stream-posted", "GB/s", 1, "tls", {1U << 20}},
      {"round-trip-of-32", "round-trip", "ns", 16, "auth", {8}},
      {"sum-of-32", "sum", "ns", 16, "auth", {8}},
      {"sum-over-round-trip", "sum-over-round-trip", "x", 16, "auth", {8}},
  };
  return table;
}

void add(Plan& plan, const char* name, std::size_t bytes, const char* unit, std::function<double()> run) {
  plan.push_back({.bench = "hosts",
                  .case_name = name,
                  .bytes = bytes,
                  .unit = unit,
                  .run = [run = std::move(run)](std::uint64_t) { return run(); },
                  .value = [](double value, std::uint64_t) { return value; },
                  .samples_max = samples_max,
                  .calibrated = false});
}

/// Seconds from the start to the end of a machine of 64 processes and 1,024 cells.
double start_and_end() {
  constexpr unsigned processes = 64;
  constexpr unsigned cells_each = 16;
  const ClusterFile file(many_processes(processes, cells_each));
  const double start = now_seconds();
  static_cast<void>(output_of({beside("aprun"), "-f", file.path(), beside("bench-hello")}));
  return now_seconds() - start;
}

}  // namespace

void plan_hosts(Plan& plan, Machines&, const Wishes& wishes) {
  for (const Case& c : cases()) {
    if (!wishes.wants(c.name)) continue;
    for (const std::size_t bytes : wishes.bytes.empty() ? c.bytes : wishes.bytes) {
      add(plan, c.name, bytes, c.unit, [&c, bytes, own = wishes.cluster] {
        if (!own.empty()) return measured_on(own, c.what, bytes);
        const ClusterFile file(two_processes(c.cells_each, c.secure));
        return measured_on(file.path(), c.what, bytes);
      });
    }
  }
  if (wishes.wants("start-64-processes")) add(plan, "start-64-processes", 0, "s", start_and_end);
}

}  // namespace apbench
