// SPDX-License-Identifier: MIT
// Cluster files for machines of several processes on this computer, and what the programs measure there.
#pragma once

#include <string>
#include <vector>

namespace apbench {

/// A file in memory, which ends with this object: others open it by its path.
class ClusterFile {
 public:
  explicit ClusterFile(const std::string& text);
  ~ClusterFile();
  ClusterFile(const ClusterFile&) = delete;
  ClusterFile& operator=(const ClusterFile&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  int file_;
  std::string path_;
};

/// Two processes on the first two cores that this program may use, like the floors. `comm`: lines of that section, each
/// with its end.
[[nodiscard]] std::string two_processes(unsigned cells_each, const std::string& comm);

/// `processes` processes, wherever the system puts them.
[[nodiscard]] std::string many_processes(unsigned processes, unsigned cells_each);

/// The number that a program of cells (bench-cells, bench-puts) prints when it runs on the file's cluster.
[[nodiscard]] double measured_on(const std::string& file, const std::vector<std::string>& program);

/// A number in a program's output. Throws std::runtime_error.
[[nodiscard]] double parse_number(const std::string& program, const std::string& text);

}  // namespace apbench
