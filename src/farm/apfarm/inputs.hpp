// SPDX-License-Identifier: MIT
// Inputs: where the values of apfarm's jobs come from: words of the command line, files, standard input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib::farm {

struct InputSource {
  std::vector<std::string> words{};  ///< Of ":::".
  std::string file{};                ///< Of "::::" and -a. "-": standard input. Empty: words.
  bool linked = false;               ///< ":::+": goes along with the source before it.
};

/// Cuts a stream into values, without waiting for it longer than its owner wants.
class ValueReader {
 public:
  ValueReader(os::UniqueFd descriptor, std::string name, char separator);

  enum class State : std::uint8_t { value, waits, ended };
  /// One read at most. `waits`: nothing whole has come yet. Throws Error(failed) when it cannot be read.
  State next(std::string& value);
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  os::UniqueFd descriptor_;
  std::string name_;
  char separator_;
  std::string buffer_;
  std::size_t begin_ = 0;
  bool ended_ = false;
};

/// All combinations of the sources' values, the last source's changing first. The first source is read as it comes, all
/// others at once. Thread safety: none.
class Inputs {
 public:
  struct Style {
    char separator = '\n';
    std::size_t group = 1;  ///< Values of one source for each job (-N).
    std::string columns{};  ///< What stands between the values of one line (--colsep). Empty: a line is one.
  };
  /// No sources: standard input. Reads what must be known at once, and waits for that. Throws Error.
  Inputs(std::vector<InputSource> sources, const Style& style);

  /// The values of the next job. `waits`: descriptor() says when to ask again.
  ValueReader::State next(std::vector<std::string>& values);
  /// -1: it never waits.
  [[nodiscard]] int descriptor() const noexcept { return first_ ? first_->descriptor() : -1; }
  /// Standard input is a source.
  [[nodiscard]] bool reads_standard_input() const noexcept { return reads_standard_input_; }
  /// The number of jobs, where it is known.
  [[nodiscard]] std::optional<std::uint64_t> count() const noexcept { return count_; }

 private:
  using Row = std::vector<std::string>;  // a value of each of some sources that are linked

  ValueReader open(const std::string& file, char separator);
  Row all_of(const InputSource& source, char separator);
  ValueReader::State next_first(Row& row);

  std::optional<ValueReader> first_;  // else first_rows_
  std::vector<Row> first_rows_;
  std::size_t next_first_row_ = 0;
  std::vector<std::vector<Row>> others_;
  std::vector<std::size_t> place_;  // in others_
  std::size_t group_;
  std::string columns_;
  Row gathered_;                // of a group
  std::optional<Row> current_;  // of the first source, with all combinations of the others
  bool ended_ = false;
  bool reads_standard_input_ = false;
  std::optional<std::uint64_t> count_;
};

}  // namespace aplib::farm
