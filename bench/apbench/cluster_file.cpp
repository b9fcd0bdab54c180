// SPDX-License-Identifier: MIT
#include "cluster_file.hpp"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "benches.hpp"
#include "child.hpp"

namespace apbench {

ClusterFile::ClusterFile(const std::string& text) : file_(memfd_create("apbench", MFD_CLOEXEC)) {
  if (file_ < 0 || write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error(fmt::format("no memory for a cluster file: {}", std::strerror(errno)));
  path_ = fmt::format("/proc/{}/fd/{}", getpid(), file_);
}

ClusterFile::~ClusterFile() { close(file_); }

std::string two_processes(unsigned cells_each, const std::string& comm) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) {
    throw std::runtime_error("two usable cores are needed for two processes and this one has one (see taskset)");
  }
  std::string text = fmt::format("[machine]\ncells = {}\n[comm]\n{}", 2 * cells_each, comm);
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

double parse_number(const std::string& program, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{})
    throw std::runtime_error(fmt::format("{} printed '{}' where a number belongs", program, text));
  return value;
}

double measured_on(const std::string& file, const std::vector<std::string>& program) {
  std::vector<std::string> words{beside("aprun"), "-f", file, beside(program.front())};
  words.insert(words.end(), program.begin() + 1, program.end());
  return parse_number(program.front(), output_of(words));
}

}  // namespace apbench
