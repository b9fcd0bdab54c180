// SPDX-License-Identifier: MIT
// aprun as a shell runs it.
#pragma once

#include <string>
#include <vector>

#include "process.hpp"

namespace aplib::test {

inline Ended aprun(const std::vector<std::string>& arguments, Start start = {.arguments = {}}) {
  start.arguments = arguments;
  start.arguments.insert(start.arguments.begin(), APRUN_PROGRAM);
  return run(start);
}

}  // namespace aplib::test
