// SPDX-License-Identifier: MIT
// The deadlock report: one line per task, with what it waits for.
#pragma once

#include <string>

namespace aplib {

struct Domain;
class Processor;

/// A line per task of this process, each after a line end. Call only while every processor sleeps;
[[nodiscard]] std::string describe_tasks(Domain& domain);
/// of one processor's cells: call on its thread.
[[nodiscard]] std::string describe_tasks(Domain& domain, const Processor& processor);

/// Call only while every processor sleeps.
[[nodiscard]] std::string describe_deadlock(Domain& domain);

}  // namespace aplib
