// SPDX-License-Identifier: MIT
// What a runner and its cell (JobCell) say to each other, by messages.hpp: one job after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "farm/messages.hpp"

namespace aplib::farm {

enum class CellMessage : std::uint8_t { cell_job = 1, cell_ended, last = cell_ended };

/// With its first byte come three descriptors: standard input, output and error.
struct CellJob {
  static constexpr CellMessage type = CellMessage::cell_job;
  static constexpr std::size_t descriptors = 3;
  std::vector<std::string> words{};
  std::uint64_t sequence = 0;     ///< PARALLEL_SEQ
  std::uint32_t slot_number = 0;  ///< PARALLEL_JOBSLOT
  std::string entry{};            ///< Not empty: the words behind the first are this function's arguments.
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.words, self.sequence, self.slot_number, self.entry);
  }
};

struct CellEnded {
  static constexpr CellMessage type = CellMessage::cell_ended;
  bool loaded = false;  ///< Else no cell can run this program: nothing has run. With an entry, it always is.
  bool spent = false;   ///< The cell takes no other job: the program has left something, or failed.
  std::uint8_t exit_value = 0;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.loaded, self.spent, self.exit_value);
  }
};

}  // namespace aplib::farm
