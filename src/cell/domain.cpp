// SPDX-License-Identifier: MIT
#include "cell/domain.hpp"

#include <fmt/format.h>

#include "cell/processor.hpp"

namespace aplib {

void Domain::build_cells(Grid new_grid) {
  grid = new_grid;
  cell_count = grid.count();
  host_id = cell_count > 4096 ? cell_count : 4096;
  owned_cells.clear();
  cells.clear();
  for (std::uint32_t c = 0; c < cell_count; ++c) {
    owned_cells.push_back(std::make_unique<Cell>());
    owned_cells.back()->id = c;
    owned_cells.back()->x = c % grid.nx;
    owned_cells.back()->y = c / grid.nx;
    cells.push_back(owned_cells.back().get());
  }
  if (has_host) {
    if (host_cell == nullptr) host_cell = std::make_unique<Cell>();
    host_cell->id = cell_count;
    cells.push_back(host_cell.get());
  }
  const auto set_up = [](Group& group, Scope scope, std::uint32_t first, std::uint32_t stride, std::uint32_t count) {
    group.scope = scope;
    group.first = first;
    group.stride = stride;
    group.count = count;
  };
  set_up(all, Scope::all, 0, 1, cell_count);
  rows = std::vector<Group>(grid.ny);
  columns = std::vector<Group>(grid.nx);
  for (std::uint32_t y = 0; y < grid.ny; ++y) set_up(rows[y], Scope::row, y * grid.nx, 1, grid.nx);
  for (std::uint32_t x = 0; x < grid.nx; ++x) set_up(columns[x], Scope::column, x, grid.nx, grid.ny);
}

std::string Domain::name_of(std::uint32_t cell) const {
  return has_host && cell == cell_count ? std::string("host program") : fmt::format("cell {}", cell);
}

void Domain::fail(int status, const std::string& text) {
  {
    const std::lock_guard lock(failure_mutex);
    // What goes wrong while the machine stops already is a consequence, not a cause.
    if (failure.text.empty() && !stopping.load(std::memory_order_acquire)) {  // acquire: pairs with stop()
      failure = Failure{status, text};
      report(text);
    }
  }
  stop();
}

void Domain::stop() noexcept {
  stopping.store(true, std::memory_order_release);  // release: pairs with park()
  wake_all();
}

void Domain::wake_all() noexcept {
  for (const auto& processor : processors) processor->parker().wake_if_asleep();
}

}  // namespace aplib
