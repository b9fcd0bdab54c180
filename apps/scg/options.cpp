// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <aplib/command_line.hpp>
#include <charconv>
#include <cstdio>
#include <stdexcept>

#include "progress.hpp"

namespace scg {

namespace {

constexpr int side_max = 100'000;  // unknowns in one direction

/// Text of the exception that `parse(text)` throws, or nothing: the form in which CLI11 wants its checks.
template <class Parse>
std::string problem_with(Parse parse, const std::string& text) {
  try {
    (void)parse(text);
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

std::string check_problem(const std::string& name) {
  if (find_problem(name) != nullptr) return {};
  return fmt::format("there is no problem \"{}\"; there are {}", name, problem_names());
}

std::string problem_help() {
  std::string help = "What to solve.";
  for (const Problem& problem : problems()) help += fmt::format(" {}: {}.", problem.name, problem.formula);
  return help;
}

/// What only shows once everything is read. Empty when all is well.
std::string overall_problem(const CommandLine& line, bool problem_chosen) {
  if (!line.job.problem.charges.empty() && problem_chosen && line.job.problem.name != "charges") {
    return fmt::format("--charge needs --problem charges, not {}", line.job.problem.name);
  }
  const GridSize cells{static_cast<int>(line.machine.cells.nx), static_cast<int>(line.machine.cells.ny)};
  return decomposition_problem(line.job.grid, cells);
}

}  // namespace

GridSize parse_grid(const std::string& text) {
  const auto refuse = [&] {
    throw std::invalid_argument(fmt::format(
        "\"{}\" is not a grid: use N or NXxNY with 1 to {} unknowns in each direction, for example 300 or 400x300",
        text, side_max));
  };
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [after, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || value < 1 || value > side_max) refuse();
    at = after;
    return value;
  };
  GridSize grid;
  grid.nx = grid.ny = number();
  if (at != end && *at == 'x') {
    ++at;
    grid.ny = number();
  }
  if (at != end) refuse();
  return grid;
}

int default_iterations_max(GridSize grid) { return 100 + 20 * std::max(grid.nx, grid.ny); }

std::optional<int> read_command_line(int argc, char** argv, CommandLine& into) {
  CLI::App app(
      "scg: solves Poisson's equation -Laplace(u) = f on the unit square, u given on its edge, by conjugate gradients "
      "with\n"
      "diagonal scaling on a grid of cells.");
  Job& job = into.job;
  std::string grid = "300";
  std::string problem = "steep";
  std::vector<std::string> charges;

  app.add_option("--grid", grid, "Unknowns inside the square: N for N x N, or NXxNY.")
      ->type_name("N|NXxNY")
      ->capture_default_str()
      ->check([](const std::string& text) { return problem_with(parse_grid, text); });
  app.add_option("--tol", job.tolerance, "Stop when |b - A u| <= tol * |b|.")
      ->type_name("NUMBER")
      ->capture_default_str()
      ->check([](const std::string& text) {
        double value = 0;
        const bool fine = CLI::detail::lexical_cast(text, value) && value > 0 && value < 1;
        return fine ? std::string{}
                    : fmt::format("\"{}\" is not a tolerance: use a number between 0 and 1, for example 1e-8", text);
      });
  auto* iterations =
      app.add_option("--max-iter", job.iterations_max, "Stop after so many iterations at the latest.")
          ->type_name("N")
          ->default_str("100 + 20 * side of the grid")
          ->check([](const std::string& text) {
            int value = 0;
            const bool fine = CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 100'000'000;
            return fine ? std::string{} : fmt::format("\"{}\" is not a number of iterations: use 0 to 100000000", text);
          });
  auto* problem_option = app.add_option("--problem", problem, problem_help())
                             ->type_name("NAME")
                             ->capture_default_str()
                             ->check(check_problem);
  app.add_option("--charge", charges, "A point charge q at (x, y) instead of the default set; may be given many times.")
      ->type_name("x,y,q")
      ->allow_extra_args(false)
      ->check([](const std::string& text) { return problem_with(parse_charge, text); });
  app.add_option("--image", into.image, "Write a picture of the solution, with a colour scale, as PNG.")
      ->type_name("FILE");
  app.add_option("--history", into.history, "Write the residual of every iteration as CSV.")->type_name("FILE");
  app.add_flag("--json", into.json, "End with one JSON object on one line; the text for people goes to stderr.");
  app.add_flag("--quiet", into.quiet, "No text for people, no progress bar.");

  if (const auto status = aplib::parse_command_line(app, into.machine, argc, argv)) return status;

  job.grid = parse_grid(grid);
  if (!charges.empty() && problem_option->count() == 0) problem = "charges";
  job.problem = *find_problem(problem);
  if (!charges.empty() && job.problem.name == "charges") job.problem.charges.clear();
  for (const std::string& charge : charges) job.problem.charges.push_back(parse_charge(charge));
  if (iterations->count() == 0) job.iterations_max = default_iterations_max(job.grid);

  if (const std::string wrong = overall_problem(into, problem_option->count() > 0); !wrong.empty()) {
    fmt::print(stderr, "scg: {}\n", wrong);
    return static_cast<int>(aplib::ExitStatus::usage);
  }
  job.wants_history = !into.history.empty();
  job.shows_progress = !into.quiet && Progress::possible();
  return std::nullopt;
}

}  // namespace scg
