// SPDX-License-Identifier: MIT
// ProgramEntries: the functions that a program made by apcc says it starts with. They need not be visible. Source: src/compile/start/program.S.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "loader/elf_file.hpp"
#include "loader/relocation.hpp"

namespace aplib::loader {

class ProgramEntries {
 public:
  /// All entries there are, in the table's order.
  static constexpr std::array<std::string_view, 4> names{"main", "cell_main", "host_main", "MAIN__"};

  ProgramEntries() = default;
  /// Of `file`, whose own relocations are `plan`. None where apcc did not link the file.
  ProgramEntries(const ElfFile& file, const RelocationPlan& plan);

  /// Address in the image of the entry called `name`; 0: the program lacks it, or no entry has that name.
  [[nodiscard]] std::uint64_t find(std::string_view name) const noexcept;

 private:
  std::array<std::uint64_t, names.size()> addresses_{};  // by names
};

}  // namespace aplib::loader
