// SPDX-License-Identifier: MIT
// Two processes, each on a core of its own: this one and one that it forks.
#pragma once

#include <functional>

#include "wire.hpp"

namespace bench_module {

/// What `near` returns, here, while `far` runs in the other process, which ends before this returns. Throws
/// std::runtime_error, and what `near` throws.
double on_two_processes(const std::function<double(const Wire&)>& near, const std::function<void(const Wire&)>& far);

}  // namespace bench_module
