// SPDX-License-Identifier: MIT
// Jobs and outcomes as messages. Host program and cells are separate instances of the program: a pointer of one, be it to a function or to a
// constant text, means nothing to another. So problems travel by name.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "job.hpp"

namespace scg {

[[nodiscard]] std::vector<std::byte> pack(const Job& job);
/// Throws std::runtime_error when `bytes` are no packed job.
[[nodiscard]] Job unpack_job(std::span<const std::byte> bytes);

[[nodiscard]] std::vector<std::byte> pack(const Outcome& outcome);
/// Throws std::runtime_error when `bytes` are no packed outcome.
[[nodiscard]] Outcome unpack_outcome(std::span<const std::byte> bytes);

}  // namespace scg
