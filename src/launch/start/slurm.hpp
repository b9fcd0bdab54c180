// SPDX-License-Identifier: MIT
// Slurm: what the allocation that we run in looks like.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aplib::launch::start {

/// "" inside an allocation (sbatch, salloc) with srun at hand; else what is missing and what to do.
[[nodiscard]] std::string slurm_hindrance();

/// Names of the allocation's hosts, in Slurm's order; none outside of one. For [[host]]s of a cluster file that
/// name none.
[[nodiscard]] std::vector<std::string> slurm_hosts();

/// "n[1-3,07-08]x,m" is n1x n2x n3x n07x n08x m: Slurm's compact lists (hostlist). A text that is no such list
/// comes back as one name.
[[nodiscard]] std::vector<std::string> expand_hostlist(std::string_view list);

}  // namespace aplib::launch::start
