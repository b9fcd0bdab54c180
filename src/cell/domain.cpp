// SPDX-License-Identifier: MIT
#include "cell/domain.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "cell/collectives.hpp"
#include "cell/ended_error.hpp"
#include "cell/processor.hpp"

namespace aplib {

Domain::Domain() { failure.text.reserve(failure_bytes); }
Domain::~Domain() = default;

HeapSource Domain::heap_source(std::uint32_t cell) const noexcept {
  if (heap_file == nullptr || !is_local(cell)) return {};
  return heap_file->source(cell_map.local_index(cell));
}

void Domain::build_cells(Grid new_grid) {
  grid = new_grid;
  cell_count = grid.count();
  if (cell_map.processes() == 1) cell_map = CellMap(cell_count);
  host_id = cell_count > 4096 ? cell_count : 4096;
  owned_cells.clear();
  cells.clear();
  for (std::uint32_t c = 0; c < cell_count; ++c) {
    owned_cells.push_back(std::make_unique<Cell>());
    owned_cells.back()->id = owned_cells.back()->number = c;
    owned_cells.back()->x = c % grid.nx;
    owned_cells.back()->y = c / grid.nx;
    cells.push_back(owned_cells.back().get());
  }
  if (has_host) {
    if (host_cell == nullptr) host_cell = std::make_unique<Cell>();
    host_cell->id = cell_count;
    host_cell->number = host_id;
    cells.push_back(host_cell.get());
  }
  exchanges.clear();
  const auto set_up = [this](Group& group, Scope scope, std::uint32_t first, std::uint32_t stride,
                             std::uint32_t count) {
    group.scope = scope;
    group.first = first;
    group.stride = stride;
    group.count = count;
    group.local.clear();
    std::vector<bool> has_members(cell_map.processes());
    for (std::uint32_t cell = first; cell < first + count * stride; cell += stride) {
      has_members[cell_map.process_of(cell)] = true;
      if (is_local(cell)) group.local.push_back(cell);
    }
    if (group.local.empty() || group.local.size() == count) return;
    std::vector<std::uint32_t> processes;
    std::uint32_t place = 0;
    for (std::uint32_t p = 0; p < cell_map.processes(); ++p) {
      if (!has_members[p]) continue;
      if (p == process) place = static_cast<std::uint32_t>(processes.size());
      processes.push_back(p);
    }
    const std::uint32_t index = scope == Scope::row ? first / grid.nx : scope == Scope::column ? first : 0;
    exchanges.push_back(std::make_unique<Exchange>(*this, group, index, std::move(processes), place));
    group.exchange = exchanges.back().get();
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

void Domain::fail(int status, std::string_view text) noexcept {
  try {
    const std::lock_guard lock(failure_mutex);
    // What goes wrong while the machine stops already is a consequence, not a cause.
    if (failure.text.empty() && !stopping.load(std::memory_order_acquire)) {  // acquire: pairs with stop()
      failure.status = status;
      try {
        failure.text = text;
      } catch (const std::bad_alloc&) {
        failure.text = text.substr(0, failure_bytes);
      }
      report(failure.text);
    }
  } catch (...) {  // no memory to report it by the usual way
    const std::string_view end = "\n";
    for (const std::string_view part : {std::string_view("aplib: "), text, end})
      static_cast<void>(!::write(STDERR_FILENO, part.data(), part.size()));
  }
  stop();
}

void Domain::fail_by_exception(const char* subject) noexcept {
  char text[failure_bytes];
  int status = static_cast<int>(ExitStatus::program_failed);
  const auto compose = [&](const char* format, const auto&... parts) {
    const auto end = fmt::format_to_n(text, sizeof text, fmt::runtime(format), parts...);
    fail(status, {text, std::min(end.size, sizeof text)});
  };
  char cells[64];
  if (subject == nullptr) {
    const std::string_view mine = "cells of this process";
    subject = cells;
    try {
      const std::string own = cell_map.text(process);
      cells[own.copy(cells, sizeof cells - 1)] = '\0';
    } catch (...) {
      cells[mine.copy(cells, sizeof cells - 1)] = '\0';
    }
  }
  try {
    throw;
  } catch (const Error& error) {
    // Who waits for a cell that has failed fails by that: the cell failed first.
    if (const auto* ended = dynamic_cast<const EndedError*>(&error); ended != nullptr && ended->status() != 0)
      status = ended->status();
    const std::string_view said = error.what();
    if (said.starts_with(subject)) {
      fail(status, said);
    } else if (said.size() + 100 < sizeof text) {
      compose("{}: {}", subject, said);
    } else {
      fail(status, said);
    }
  } catch (const std::exception& error) {
    compose("{}: uncaught exception: {}{}", subject, error.what(), os::remedy_of(error));
  } catch (...) {
    compose("{}: uncaught exception of a type not derived from std::exception", subject);
  }
}

std::int64_t Domain::unread_bytes() const noexcept {
  std::int64_t sum = 0;
  for (const auto& processor : processors) sum += processor->unread().bytes();
  return sum;
}

void Domain::count_unread(UnreadMeter<>& meter) noexcept {
  const std::int64_t unread = unread_bytes();
  const auto limit = static_cast<std::int64_t>(options.unread_limit_bytes);
  send_gate.judge(unread, limit);
  meter.look_again_after(unread_step(unread, limit, processors.size()));
}

void Domain::stop() noexcept {
  stopping.store(true, std::memory_order_release);  // release: pairs with park()
  send_gate.stop();
  // Own store of stopping before the looks at the count and at who is there; pairs with publish_processors().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (network != nullptr) {
    // A process whose cells have all ended waits for the others no longer; see Processor::drop_live_cell().
    if (live_cells.load(std::memory_order_acquire) == 0)  // acquire: what the last cell wrote
      over.store(true, std::memory_order_release);        // release: to Idle::await_ready()
  }
  wake_all();
}

void Domain::take_memory_back() noexcept {
  std::call_once(memory_is_back, [this] {
    for (const std::uint32_t cell : local_cells()) {
      if (SlotHeap* const heap = cells[cell]->heap.made()) heap->keep_freed();
    }
    if (network != nullptr) guarded([this] { network->end(); });
  });
}

void Domain::begun(Cell& cell) noexcept {
  if (cell.has_begun) return;
  cell.has_begun = true;
  const std::uint32_t all = begun_cells.fetch_add(1, std::memory_order_acq_rel) + 1;  // acq_rel: as AllBegun::holds()
  if (all == local_count()) wake_carriers();
}

void Domain::wake_carriers() noexcept {
  if (!some_carrier_sleeps()) return;
  const Clock::time_point began = os.now();
  std::atomic<std::uint32_t>* only = nullptr;
  std::uint32_t count = 0;
  const auto gather = [&](std::atomic<std::uint32_t>& state) {
    if (!os::FutexGroup::can_wake_together()) return os.wake(state);
    only = &state;
    ++count;
  };
  for (std::uint32_t p = 0; p < carriers; ++p) processors[p]->parker().wake_if_asleep(gather, began);
  if (count == 1) os.wake(*only);
  if (count > 1) os.group.wake_all();
}

void Domain::publish_processors() {
  auto list = std::make_unique<std::vector<Processor*>>();
  for (const auto& processor : processors) list->push_back(processor.get());
  wakeable.store(list.get(), std::memory_order_release);  // release: the list
  wake_lists.push_back(std::move(list));
  // Who stops the machine and does not see the new list yet has said so before: processors that start now see it.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Domain::wake_all() noexcept {
  const std::vector<Processor*>* const list = wakeable.load(std::memory_order_acquire);  // acquire: the list
  if (list == nullptr) return;
  for (Processor* processor : *list) processor->parker().wake_if_asleep();
}

namespace {

std::string refusal(const TaskControl& self, const char* call, const std::string& text) {
  const Domain& domain = self.cell->processor->domain();
  std::string said = fmt::format("{} task {}: {}: {}", domain.name_of(self.cell->id), self.id, call, text);
  const std::string place = domain.place_of_call != nullptr ? domain.place_of_call() : std::string();
  if (!place.empty()) said += fmt::format(" (called at {})", place);
  return said;
}

}  // namespace

void refuse(const TaskControl& self, Errc code, const char* call, const std::string& text) {
  throw Error(code, refusal(self, call, text));
}

void refuse_ended(const TaskControl& self, const CellEnd& end, const char* call, const std::string& text) {
  throw EndedError(end, refusal(self, call, text));
}

}  // namespace aplib
