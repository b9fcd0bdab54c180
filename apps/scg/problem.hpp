// SPDX-License-Identifier: MIT
// What is solved: -Laplace(u) = f on the unit square, u given on its edge.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace scg {

/// A point charge inside the square.
struct Charge {
  double x = 0;
  double y = 0;
  double q = 0;
};

/// A function of the place.
using Function = double (*)(double x, double y);

struct Problem {
  std::string_view name;
  std::string_view formula;       ///< For people: u where it is known, else f.
  Function source = nullptr;      ///< f; null: only charges.
  Function solution = nullptr;    ///< u, also on the edge; null: not known, and 0 on the edge.
  std::vector<Charge> charges{};  ///< Added to f.

  /// u on the edge of the square.
  [[nodiscard]] double edge(double x, double y) const { return solution != nullptr ? solution(x, y) : 0.0; }
};

/// All built-in problems. `charges` comes with a default set.
[[nodiscard]] const std::vector<Problem>& problems();

/// The problem of that name, or null.
[[nodiscard]] const Problem* find_problem(std::string_view name);

/// "sine, polynomial, ..." for messages and help.
[[nodiscard]] std::string problem_names();

/// Reads "x,y,q". Throws std::invalid_argument saying what is wrong.
[[nodiscard]] Charge parse_charge(const std::string& text);

}  // namespace scg
