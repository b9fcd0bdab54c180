// SPDX-License-Identifier: MIT
// What a run of a program file would be, without running it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aplib/export.hpp"
#include "aplib/options.hpp"

namespace aplib {

struct ProgramRun;

struct ProgramSummary {
  struct File {
    std::string path;
    bool separate = false;  ///< Every cell has its own copy.
  };
  /// A thread and the consecutive cells that it carries first.
  struct Carrier {
    std::uint32_t first_cell = 0;
    std::uint32_t last_cell = 0;
    int core = -1;  ///< -1: not bound
  };

  std::string path;      ///< Absolute.
  std::string build_id;  ///< Hexadecimal; empty: none.
  std::string entry;     ///< For people: "main(argc, argv, envp)".
  bool is_host = false;  ///< It runs as host program.
  std::vector<File> libraries;
  std::uint64_t shared_bytes = 0;   ///< Of the program and its separate libraries: pages that all instances share.
  std::uint64_t private_bytes = 0;  ///< Pages that an instance may write to: at most so many are its own.
  std::vector<Carrier> carriers;
};

/// Loads the file as run_program() would, and plans. Runs no code of it. Throws the same errors.
[[nodiscard]] APLIB_API ProgramSummary summarize_program(const Options& options, const ProgramRun& run);

}  // namespace aplib
