// SPDX-License-Identifier: MIT
#include "launch/program_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "aplib/error.hpp"
#include "launch/output.hpp"

namespace aplib::launch {

namespace {

std::string replaced(std::string_view text, std::string_view name, std::string_view value) {
  std::string result;
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(name, at);
    result += text.substr(at, found - at);
    if (found == text.npos) return result;
    result += value;
    at = found + name.size();
  }
}

}  // namespace

std::string expand(std::string_view text, std::uint32_t cid, Grid grid) {
  std::string result = expand_cell(text, std::to_string(cid));
  result = replaced(result, "{x}", std::to_string(cid % grid.nx));
  result = replaced(result, "{y}", std::to_string(cid / grid.nx));
  return replaced(result, "{ncel}", std::to_string(grid.count()));
}

std::string expand_cell(std::string_view text, std::string_view cell) { return replaced(text, "{cid}", cell); }

namespace {

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw Error(Errc::failed, fmt::format("cannot make the folder {}: {}", path, error.message()));
}

/// What Open MPI's and MPICH's launchers tell a rank, which scripts and programs read before they call MPI. The last
/// one says whose it is (src/mpi/rank.cpp).
std::vector<std::pair<std::string, std::string>> rank_variables(std::uint32_t cell, std::uint32_t cells,
                                                                const std::vector<std::uint32_t>& host_cells) {
  const std::string rank = std::to_string(cell);
  const std::string size = std::to_string(cells);
  const std::string local = std::to_string(std::ranges::lower_bound(host_cells, cell) - host_cells.begin());
  const std::string locals = std::to_string(host_cells.size());
  return {{"OMPI_COMM_WORLD_RANK", rank},
          {"OMPI_COMM_WORLD_SIZE", size},
          {"OMPI_COMM_WORLD_LOCAL_RANK", local},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", locals},
          {"OMPI_COMM_WORLD_NODE_RANK", local},
          {"OMPI_UNIVERSE_SIZE", size},
          {"PMI_RANK", rank},
          {"PMI_SIZE", size},
          {"MPI_LOCALRANKID", local},
          {"MPI_LOCALNRANKS", locals},
          {"AP_RANK", rank + "/" + size}};
}

ProgramRun run_of(const RunText& text, const wire::ProgramText& program, const std::vector<std::string>& files) {
  ProgramRun run;
  if (program.file >= files.size()) throw Error(Errc::failed, fmt::format("there is no file {}", program.file));
  run.file = files[program.file];
  run.first_cell = program.first_cell;
  run.arguments = program.arguments;
  run.arguments.insert(run.arguments.begin(), program.name);
  for (const wire::NamedValue& variable : program.variables) run.variables.emplace_back(variable.name, variable.value);
  if (text.expand) {
    run.arguments_of = [arguments = run.arguments, grid = text.grid](std::uint32_t cell) {
      std::vector<std::string> expanded = arguments;
      for (std::size_t i = 1; i < expanded.size() && cell != OutputSink::host; ++i)
        expanded[i] = expand(expanded[i], cell, grid);
      return expanded;
    };
  }
  if (!program.folder.empty()) {
    const std::string pattern = std::filesystem::absolute(program.folder);
    run.folder_of = [pattern](std::uint32_t cell) {
      std::string folder = expand_cell(pattern, cell_text(cell));
      make_folder(folder);
      return folder;
    };
  }
  return run;
}

}  // namespace

ProgramRun make_run(const RunText& text, const std::vector<std::string>& files) {
  if (text.programs.empty()) throw Error(Errc::failed, "there is no program");
  ProgramRun run = run_of(text, text.programs.front(), files);
  run.entry = text.entry;
  run.entry_arguments = text.entry_arguments;
  if (!text.host_cells.empty()) {
    run.variables_of = [cells = text.grid.count(), host_cells = text.host_cells](std::uint32_t cell) {
      return rank_variables(cell, cells, host_cells);
    };
  }
  for (std::size_t i = 1; i < text.programs.size(); ++i) run.others.push_back(run_of(text, text.programs[i], files));
  return run;
}

}  // namespace aplib::launch
