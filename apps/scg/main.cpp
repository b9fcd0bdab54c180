// SPDX-License-Identifier: MIT
// scg: Poisson's equation by conjugate gradients on a grid of cells. The cells' part is in cell.cpp; start reading
// there.
#include <fmt/format.h>

#include <aplib/aplib.hpp>
#include <cstdio>
#include <exception>

#include "cell.hpp"
#include "options.hpp"
#include "picture.hpp"
#include "report.hpp"

namespace {

int run(int argc, char** argv) {
  scg::CommandLine line;
  if (const auto status = scg::read_command_line(argc, argv, line)) return *status;
  scg::Job& job = line.job;
  if (!line.image.empty()) job.picture_side = scg::picture_side;

  aplib::Machine machine(line.machine);
  scg::Outcome outcome;
  const aplib::Report report = machine.run([&] {
    scg::cell_program(job, outcome);
    if (aplib::index(aplib::this_cell::id()) == 0)
      outcome.threads = static_cast<int>(aplib::this_machine::processor_count());
  });
  if (report.exit_status != 0) return report.exit_status;  // the library has said why

  if (!line.quiet) {
    std::FILE* people = line.json ? stderr : stdout;
    fmt::print(people, "{}", scg::text_report(job, outcome));
    std::fflush(people);
  }
  if (!line.image.empty())
    scg::draw_picture(outcome.picture, job.picture_side, scg::caption_of(job, outcome)).write_png(line.image);
  if (!line.history.empty()) scg::write_history(line.history, outcome);
  if (line.json) fmt::print("{}\n", scg::json_report(job, outcome));
  return outcome.converged ? 0 : static_cast<int>(aplib::ExitStatus::program_failed);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "scg: {}\n", error.what());
    return static_cast<int>(aplib::ExitStatus::program_failed);
  }
}
