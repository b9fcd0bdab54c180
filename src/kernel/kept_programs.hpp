// SPDX-License-Identifier: MIT
// KeptPrograms: program files that stay loaded from one run of a machine to the next.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kernel/programs.hpp"

namespace aplib {

namespace loader {
class Program;
}

/// The resolved forms of files, by their paths. The files must not change as long as they are here, and all runs have
/// the same options. Any thread.
class KeptPrograms {
 public:
  /// Null: it is not here.
  [[nodiscard]] std::shared_ptr<const loader::Program> find(const std::string& file) const {
    const std::lock_guard lock(mutex_);
    const auto found = programs_.find(file);
    return found == programs_.end() ? nullptr : found->second;
  }
  void keep(const std::string& file, std::shared_ptr<const loader::Program> program) {
    const std::lock_guard lock(mutex_);
    programs_[file] = std::move(program);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const loader::Program>> programs_;
};

/// As run_program(), with files that are kept, to which others that it loads are added.
APLIB_API Report run_program(Machine& machine, const ProgramRun& run, OutputSink& output, KeptPrograms& kept);

}  // namespace aplib
