// SPDX-License-Identifier: MIT
// Two processes on a core each: this one and one that it forks.
#pragma once

#include <functional>

#include "wire.hpp"

namespace bench_module {

/// Runs `far` in the other process and `near` in this one, and returns what `near` returns. The other process has ended
/// by then. Throws std::runtime_error, and what `near` throws.
double on_two_processes(const std::function<double(const Wire&)>& near, const std::function<void(const Wire&)>& far);

}  // namespace bench_module
