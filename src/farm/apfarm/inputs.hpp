// SPDX-License-Identifier: MIT
// Inputs: where the values of apfarm's jobs come from: words of the command line, files, standard input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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
  ValueReader(os::UniqueFd descriptor, std::string name, std::string separator);

  enum class State : std::uint8_t { value, waits, ended };
  /// One read at most. `waits`: nothing whole has come yet. Throws Error(failed) when it cannot be read.
  State next(std::string& value);
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  os::UniqueFd descriptor_;
  std::string name_;
  std::string separator_;
  std::string buffer_;
  std::size_t begin_ = 0;
  bool ended_ = false;
};

/// All combinations of the sources' values, the last source's changing first: records, of which a job gets one or
/// several. The first source is read as it comes, all others at once. Thread safety: none.
class Inputs {
 public:
  using State = ValueReader::State;
  using Values = std::vector<std::string>;
  struct Style {
    std::string separator = "\n";          ///< Ends a value.
    std::size_t group = 1;                 ///< Records for each job at most; 0: as many as there is room for.
    bool lines = false;                    ///< A value that ends with a blank goes on in the next one (-L).
    std::optional<std::string> columns{};  ///< A regular expression of what stands between the values of a value.
    bool trims = false;                    ///< Blanks around those are none of them (GNU Parallel: with --colsep).
    bool linked = false;                   ///< All sources go along with the first one, short ones from their start.
    bool skips_blank = false;              ///< Values without anything but blanks are none (-r).
    std::optional<std::string> last{};     ///< A value that ends its source, without being one (-E).
    bool named = false;                    ///< The first value of a source names the others (--header).
    bool shuffled = false;                 ///< Jobs come in a random order.
  };
  /// No sources: standard input. Reads what must be known at once, and waits for that. Throws Error.
  Inputs(std::vector<InputSource> sources, Style style);
  ~Inputs();

  /// The values of the next job. `waits`: descriptor() says when to ask again.
  State next(Values& values);
  /// -1: it never waits.
  [[nodiscard]] int descriptor() const noexcept { return first_ ? first_->descriptor() : -1; }
  /// The number of jobs, where it is known.
  [[nodiscard]] std::optional<std::uint64_t> count() const noexcept { return count_; }
  /// Of a record's values, where sources name them.
  [[nodiscard]] const Values& names() const noexcept { return names_; }
  /// 0: as many as the columns of each one.
  [[nodiscard]] std::size_t values_in_record() const noexcept { return columns_ ? 0 : values_in_record_; }
  /// A job takes records whose sizes sum up to `room`; the last ones are spread over so many jobs. 0: not spread.
  /// REQUIRES: called before next().
  void fill(std::size_t room, std::size_t spread, std::function<std::size_t(const Values&)> size_of) {
    room_ = std::max<std::size_t>(room, 1);
    spread_ = spread;
    size_of_ = std::move(size_of);
    count_.reset();
  }

 private:
  class Columns;
  /// Values of a source, as they come, until what Style says.
  struct Filter {
    bool ended = false;
    std::string begun{};  // of a value that goes on
  };

  ValueReader open(const std::string& file);
  State filtered(const std::function<State(std::string&)>& read, Filter& filter, std::string& value) const;
  Values all_of(const InputSource& source);
  void note_names(Values& values);
  static std::vector<Values> side_by_side(const std::vector<Values>& columns, bool again);
  State next_first(Values& row);
  State next_record(Values& values);
  State gather();
  State next_job(Values& values);

  Style style_;
  std::unique_ptr<Columns> columns_;
  Values names_;
  std::size_t values_in_record_ = 0;
  std::optional<ValueReader> first_;  // else first_rows_
  Filter first_filter_;
  std::optional<std::string> first_value_;  // read to be named
  std::vector<Values> first_rows_;          // a value of each of some sources that are linked
  std::size_t next_first_row_ = 0;
  bool first_had_any_ = false;
  std::vector<std::vector<Values>> others_;
  std::vector<std::size_t> place_;  // in others_
  std::optional<Values> current_;   // of the first source, with all combinations of the others
  std::deque<Values> gathered_;     // records
  std::size_t gathered_size_ = 0;
  std::size_t each_ = 0;  // of them, when the last ones are here
  std::size_t room_ = 0;  // 0: any
  std::size_t spread_ = 0;
  std::function<std::size_t(const Values&)> size_of_;
  bool ended_ = false;
  bool reads_standard_input_ = false;
  std::vector<Values> shuffled_;
  bool shuffling_ = false;
  std::optional<std::uint64_t> count_;
};

}  // namespace aplib::farm
