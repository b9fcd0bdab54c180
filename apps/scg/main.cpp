// SPDX-License-Identifier: MIT
// scg: Poisson's equation by conjugate gradients on a grid of cells. This file has its two halves, as programs of the AP1000 had them: the
// host program reads the command line, starts the cells, and tells what came out; the cell program solves. What a cell does
// is in cell.cpp; start reading there.
//
// The file is loaded once for the host program and once for each cell, all in one process. Each has its own copy of every global variable here
// and elsewhere, so they tell each other things by messages only.
#include <aplib/cellos.h>
#include <fmt/format.h>
#include <aplib/aplib.hpp>

#include <cstdio>
#include <exception>
#include <span>

#include "cell.hpp"
#include "options.hpp"
#include "picture.hpp"
#include "report.hpp"
#include "wire.hpp"

namespace {

constexpr int job_type = 1;  // message types between host program and cells
constexpr int outcome_type = 2;

// A cell's own: 64 cells have 64 of each.
scg::Job job;
scg::Outcome outcome;

std::span<const std::byte> last_message(const void* body) {
  return {static_cast<const std::byte*>(body), static_cast<std::size_t>(getmlen())};
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
    std::FILE* people = line.json ? stderr : stdout;
    fmt::print(people, "{}", scg::text_report(line.job, result));
    std::fflush(people);
  }
  if (!line.image.empty())
    scg::draw_picture(result.picture, line.job.picture_side, scg::caption_of(line.job, result)).write_png(line.image);
  if (!line.history.empty()) scg::write_history(line.history, result);
  if (line.json) fmt::print(stdout, "{}\n", scg::json_report(line.job, result));
  return result.converged ? 0 : static_cast<int>(aplib::ExitStatus::program_failed);
}

}  // namespace

int host_main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const aplib::Error&) {
    throw;  // the library's own: it says whose and why
  } catch (const std::exception& error) {
    fmt::print(stderr, "scg: {}\n", error.what());
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
