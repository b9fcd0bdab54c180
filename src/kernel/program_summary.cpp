// SPDX-License-Identifier: MIT
#include "kernel/program_summary.hpp"

#include <sys/mman.h>

#include "cell/placement.hpp"
#include "kernel/program_start.hpp"
#include "loader/program.hpp"

namespace aplib {
namespace {

constexpr std::uint64_t whole_pages(std::uint64_t first, std::uint64_t end) {
  constexpr std::uint64_t mask = loader::page_bytes - 1;
  return ((end + mask) & ~mask) - (first & ~mask);
}

std::vector<ProgramSummary::Carrier> plan_carriers(const Options& options) {
  const Placement placement = plan_placement(options);
  const std::uint32_t cells = options.cells.count();
  std::vector<ProgramSummary::Carrier> carriers;
  for (std::uint32_t p = 0; p < placement.processors; ++p) {
    const int core = p < placement.core_of_processor.size() ? static_cast<int>(placement.core_of_processor[p]) : -1;
    carriers.push_back({.first_cell = first_cell_of_processor(p, cells, placement.processors),
                        .last_cell = first_cell_of_processor(p + 1, cells, placement.processors) - 1,
                        .core = core});
  }
  return carriers;
}

}  // namespace

ProgramSummary summarize_program(const Options& options, const ProgramRun& run) {
  const auto program = loader::Program::load(run.file, load_options(options));
  const ProgramStart start = choose_start(*program, run);

  ProgramSummary summary;
  summary.path = program->path();
  summary.build_id = program->images().front().file->build_id();
  summary.is_host = start.is_host;
  summary.entry = start.entry.text();
  for (std::size_t i = 0; i < program->images().size(); ++i) {
    const loader::ElfFile& file = *program->images()[i].file;
    if (i > 0) summary.libraries.push_back({file.path(), true});
    for (const loader::Segment& segment : file.segments()) {
      const std::uint64_t bytes = whole_pages(segment.address, segment.address + segment.memory_bytes);
      ((segment.protection & PROT_WRITE) != 0 ? summary.private_bytes : summary.shared_bytes) += bytes;
    }
  }
  for (const loader::Library& library : program->shared_libraries()) summary.libraries.push_back({library.path, false});
  summary.carriers = plan_carriers(options);
  return summary;
}

}  // namespace aplib
