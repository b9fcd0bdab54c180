// SPDX-License-Identifier: MIT
// FarmTally: what a farm tells of itself while it runs, to whoever looks: numbers and the last failures, in a file that
// its process maps. Telling costs a few stores; nobody has to listen, or to answer. The file has a lock as long as the
// process lives, and goes with the farm. Whoever has it open then still reads how the farm has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib {

struct FarmCounts {
  std::uint64_t workers = 0;
  std::uint64_t queued = 0;
  std::uint64_t running = 0;
  std::uint64_t done = 0;    ///< Without failures.
  std::uint64_t failed = 0;  ///< For good: not those that run again.
  std::uint64_t total = 0;   ///< 0: nobody knows yet.
};

class FarmTally {
 public:
  static constexpr std::size_t failures_kept = 12;

  /// `kind`: whose farm it is, a word; `title`: what it runs. If there can be no file, nobody sees the farm, which is
  /// no failure.
  FarmTally(std::string_view kind, std::string_view title) noexcept;
  /// As end(), with status -1, if nobody has called that. Removes the file.
  ~FarmTally();
  FarmTally(const FarmTally&) = delete;
  FarmTally& operator=(const FarmTally&) = delete;

  // One thread at a time.
  void set(const FarmCounts& counts) noexcept;
  void note_failure(std::string_view text) noexcept;
  void end(int status, std::string_view reason) noexcept;

 private:
  struct Sheet;
  friend class FarmWatch;
  std::string path_;
  os::UniqueFd file_;  // its lock would go with it
  int process_ = 0;    // of a fork of it, the tally is not
  Sheet* sheet_ = nullptr;
};

/// What the file says. Texts are anybody's.
struct FarmReport {
  struct Failure {
    double time;  ///< Seconds since 1970, as all times here.
    std::string text;
  };
  std::string kind{};
  std::string title{};
  double begun = 0;
  std::optional<double> ended{};  ///< With status and reason.
  int status = 0;
  std::string reason{};
  FarmCounts counts{};
  std::vector<Failure> failures{};  ///< The last ones, the oldest first.
  int process = 0;                  ///< That has the farm; 0: none any more, or one that cannot be seen from here.
  bool lives = false;
};

/// An open tally.
class FarmWatch {
 public:
  /// The tallies in the folder, by the names of their files. Removes what processes have left that were killed, if it
  /// was written more than a minute ago.
  [[nodiscard]] static std::vector<std::string> find(const std::string& folder);

  /// May fail: then read() returns nothing.
  FarmWatch(const std::string& folder, const std::string& name);
  /// Nothing: it is no tally, or does not stand still.
  [[nodiscard]] std::optional<FarmReport> read() const;

 private:
  os::UniqueFd file_;
};

}  // namespace aplib
