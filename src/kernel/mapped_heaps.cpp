// SPDX-License-Identifier: MIT
#include "kernel/mapped_heaps.hpp"

#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "base/os/map_at.hpp"
#include "cell/domain.hpp"
#include "kernel/module_network.hpp"
#include "kernel/one_sided_network.hpp"

namespace aplib {

MappedHeaps::MappedHeaps(ModuleNetwork& network, Domain& domain)
    : network_(network),
      domain_(domain),
      cells_(domain.cell_count),
      states_(std::make_unique<std::atomic<State>[]>(cells_)) {
  // Shared memory between processes is this module's business: who chooses another one may want to see that.
  const bool wanted = std::string_view(network.module().name()) == "shm";
  if (wanted) domain.heap_file = HeapFile::make(domain.local_count());
  if (domain.heap_file != nullptr) return;
  for (std::uint32_t cell = 0; cell < cells_; ++cell)
    states_[cell].store(State::refused, std::memory_order_relaxed);  // relaxed: nobody else is here
}

MappedHeaps::~MappedHeaps() {
  for (std::uint32_t cell = 0; cell < cells_; ++cell) {
    if (states_[cell].load(std::memory_order_acquire) == State::mapped) unmap(cell);  // pairs with take()
  }
}

void MappedHeaps::ask(const TaskControl& self, std::uint32_t cell) {
  State state = State::unknown;
  // relaxed: one of those who ask at the same time does it
  if (!states_[cell].compare_exchange_strong(state, State::asked, std::memory_order_relaxed)) return;
  comm::Label label;
  label.key = reinterpret_cast<std::uintptr_t>(SlotPlan::heap_of(cell));
  label.cell = cell;
  label.extra = self.cell->id;
  network_.post(domain_.process_of(cell), FrameKind::heap_request, label, {});
}

void MappedHeaps::answer_request(comm::Peer from, const comm::Label& label) {
  const comm::Label answer = OneSidedFrame::answer_to(label);
  HeapPlace place{};
  std::span<const std::byte> body;
  const SlotHeap* const heap = domain_.cells[label.cell]->heap.made();
  if (const auto file = heap != nullptr ? SharedFile::place_of(heap->source().descriptor) : std::nullopt) {
    place = {*file, heap->source().offset};
    body = std::as_bytes(std::span(&place, 1));
  }
  network_.post(from, FrameKind::heap_place, answer, body);
}

bool MappedHeaps::take(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) {
  if (label.extra >= cells_ || domain_.process_of(label.extra) != from) return false;
  std::atomic<State>& state = states_[label.extra];
  HeapPlace place{};
  if (state.load(std::memory_order_relaxed) != State::asked ||  // relaxed: only we go on from there
      (!body.empty() && body.size() != sizeof place))
    return false;
  if (!body.empty()) std::memcpy(&place, body.data(), sizeof place);
  const bool mapped = !body.empty() && map(place, label.extra);
  state.store(mapped ? State::mapped : State::refused, std::memory_order_release);  // release: the mapping
  return true;
}

bool MappedHeaps::map(const HeapPlace& place, std::uint32_t cell) {
  constexpr std::size_t page_bytes = 4096;
  if (place.offset % page_bytes != 0 || place.offset > ~std::uint64_t{0} - SlotPlan::heap_bytes()) return false;
  const os::UniqueFd file = SharedFile::open(place.file, HeapFile::name, place.offset + SlotPlan::heap_bytes());
  if (!file) return false;
  return os::map_at(SlotPlan::heap_of(cell), SlotPlan::heap_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    file.get(), place.offset);
}

void MappedHeaps::unmap(std::uint32_t cell) noexcept { ::munmap(SlotPlan::heap_of(cell), SlotPlan::heap_bytes()); }

}  // namespace aplib
