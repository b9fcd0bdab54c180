// SPDX-License-Identifier: MIT
// scg: Poisson's equation by conjugate gradients on a grid of cells. This file has the program's two halves, as
// programs of the AP1000 did. The host program reads the command line, starts the cells, and reports the results. The
// cell program solves; start reading in cell.cpp.
//
// The file is loaded once for the host program and once for each cell. Each has its own copy of every global variable,
// here and elsewhere, so they can only exchange messages.
#include <aplib/cellos.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <aplib/aplib.hpp>
#include <aplib/command_line.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cell.hpp"
#include "job.hpp"
#include "picture.hpp"
#include "report.hpp"

namespace scg {

namespace {

struct CommandLine {
  aplib::Options machine;  ///< --cells, --threads and the other options that every APlib program has.
  Job job;
  std::string image;    ///< Where the picture goes; empty: none.
  std::string history;  ///< Where the residuals go, as CSV; empty: nowhere.
  bool json = false;
  bool quiet = false;
};

/// The text of the exception that `parse(text)` throws, or an empty one, which is the form of CLI11's checks.
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

/// What is wrong with the command line as a whole. Empty when nothing is.
std::string overall_problem(const CommandLine& line, bool problem_chosen) {
  if (!line.job.problem.charges.empty() && problem_chosen && line.job.problem.name != "charges") {
    return fmt::format("--charge needs --problem charges, not {}", line.job.problem.name);
  }
  const GridSize cells{static_cast<int>(line.machine.cells.nx), static_cast<int>(line.machine.cells.ny)};
  return decomposition_problem(line.job.grid, cells);
}

/// Reads the command line and the environment. Returns nothing if the program should go on. Otherwise it has printed
/// help or what is wrong, and returns the status for main().
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

  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("scg: {}\nRun with --help for more information.\n", error.what());
  });
  if (const auto status = aplib::parse_command_line(app, into.machine, argc, argv)) return status;

  job.grid = parse_grid(grid);
  if (!charges.empty() && problem_option->count() == 0) problem = "charges";
  job.problem = *find_problem(problem);
  if (!charges.empty() && job.problem.name == "charges") job.problem.charges.clear();
  for (const std::string& charge : charges) job.problem.charges.push_back(parse_charge(charge));
  if (iterations->count() == 0) job.iterations_max = default_iterations_max(job.grid);

  if (const std::string wrong = overall_problem(into, problem_option->count() > 0); !wrong.empty()) {
    (void)say(stderr, fmt::format("scg: {}\n", wrong));
    return static_cast<int>(aplib::ExitStatus::usage);
  }
  job.wants_history = !into.history.empty();
  job.shows_progress = !into.quiet && Progress::possible();
  return std::nullopt;
}

}  // namespace

}  // namespace scg

namespace {

constexpr int job_type = 1;  // message types between host program and cells
constexpr int outcome_type = 2;

// Each cell has its own: 64 cells have 64 of each.
scg::Job job;
scg::Outcome outcome;

std::span<const std::byte> last_message(const void* body) {
  return {static_cast<const std::byte*>(body), static_cast<std::size_t>(getmlen())};
}

/// Prints what the user has asked for. If that fails, scg's status says so.
void print(const std::string& text) {
  if (!scg::say(stdout, text)) {
    throw std::runtime_error(fmt::format("cannot write standard output: {}", std::strerror(errno)));
  }
}

int run(int argc, char** argv) {
  scg::CommandLine line;
  line.machine = aplib::this_machine::options();
  if (const auto status = scg::read_command_line(argc, argv, line)) return *status;
  if (!line.image.empty()) line.job.picture_side = scg::picture_side;
  aplib::this_machine::set_options(line.machine);

  ccreat(argv[0], 0, nullptr);
  const auto order = scg::pack(line.job);
  cbroad(0, job_type, order.data(), static_cast<int>(order.size()));
  const void* answer = crecv();                                                       // waits for cell 0
  if (answer == nullptr) return static_cast<int>(aplib::ExitStatus::program_failed);  // the library has said why
  const scg::Outcome result = scg::unpack_outcome(last_message(answer));
  waitstable();

  if (!line.quiet) {
    const std::string text = scg::text_report(line.job, result);
    if (line.json) {
      (void)scg::say(stderr, text);
    } else {
      print(text);
    }
  }
  if (!line.image.empty())
    scg::draw_picture(result.picture, line.job.picture_side, scg::caption_of(line.job, result)).write_png(line.image);
  if (!line.history.empty()) scg::write_history(line.history, result);
  if (line.json) print(scg::json_report(line.job, result) + "\n");
  return result.converged ? 0 : static_cast<int>(aplib::ExitStatus::program_failed);
}

}  // namespace

int host_main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const aplib::Error&) {
    throw;  // the library's own; it reports the place and the cause
  } catch (const std::exception& error) {
    (void)scg::say(stderr, fmt::format("scg: {}\n", error.what()));
    return static_cast<int>(aplib::ExitStatus::program_failed);
  }
}

void cell_main() {
  job = scg::unpack_job(last_message(h_recv(job_type)));
  scg::cell_program(job, outcome);
  if (getcid() != 0) return;
  outcome.threads = static_cast<int>(aplib::this_machine::processor_count());
  const auto answer = scg::pack(outcome);
  h_send(outcome_type, answer.data(), static_cast<int>(answer.size()));
}
