// SPDX-License-Identifier: MIT
// Files of jobs on the hosts of a pool: what goes to all jobs (--basefile), to one job (--transferfile), and comes back
// from it (--return).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "launch/files/manifest.hpp"

namespace aplib::farm {

/// What of it each job needs.
struct JobFileNames {
  std::vector<std::string> sends{};    ///< Before it begins.
  std::vector<std::string> returns{};  ///< When it has ended.
  bool cleanup = false;                ///< They are removed there afterwards, except for what was there before.

  [[nodiscard]] bool empty() const noexcept { return sends.empty() && returns.empty(); }
};

/// As launch::files::Manifest::host.
[[nodiscard]] const std::string& own_host_id();

/// Names of files and folders of this computer, below the current folder. Others, and those that are not there, are
/// problems of the manifest.
[[nodiscard]] std::shared_ptr<launch::files::Manifest> manifest_of_names(std::span<const std::string> names);

/// A path of an offer of files is one of the names, or below one.
[[nodiscard]] bool is_among(const std::string& path, std::span<const std::string> names);

/// Below the current folder. What cannot be removed stays, and so do folders around it, which other jobs may use.
void remove_files(std::span<const launch::files::Entry> entries);

}  // namespace aplib::farm
