// SPDX-License-Identifier: MIT
// Runs a program and reads its output.
#pragma once

#include <string>
#include <vector>

/// How a program ended and what it printed.
struct Outcome {
  int status = -1;  ///< Exit status; -1 when a signal ended it.
  std::string out;
  std::string err;
};

/// Runs `program` with `arguments` and waits for it.
Outcome run_program(const std::string& program, const std::vector<std::string>& arguments);

/// The lines of a text, without empty ones.
std::vector<std::string> lines_of(const std::string& text);
