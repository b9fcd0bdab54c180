// SPDX-License-Identifier: MIT
#include "cell/one_sided.hpp"

#include <fmt/format.h>

#include <cstring>

#include "aplib/error.hpp"
#include "arch/cpu.hpp"
#include "cell/copy.hpp"
#include "cell/domain.hpp"
#include "cell/processor.hpp"
#include "memory/mapping.hpp"
#include "memory/slot.hpp"

namespace aplib::one_sided {

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void bad_cell(const TaskControl& self, const char* call, std::uint32_t cell) {
  const Domain& domain = self.cell->processor->domain();
  if (self.cell->id >= domain.cell_count)
    refuse(self, Errc::bad_argument, call, "only cells can call it; the host program has no memory in the machine");
  if (domain.has_host && cell == domain.host_id)
    refuse(self, Errc::bad_argument, call,
           "the host program's memory cannot be reached; send it a message (h_send, send), or reach another cell");
  refuse(self, Errc::bad_argument, call,
         fmt::format("there is no cell {}; the machine has cells 0..{} ({}x{})", static_cast<std::int32_t>(cell),
                     domain.cell_count - 1, domain.grid.nx, domain.grid.ny));
}

[[noreturn, gnu::cold, gnu::noinline]] void bad_address(const TaskControl& self, const char* call, const void* address,
                                                        std::size_t bytes, const char* what) {
  const std::uintptr_t place = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t slot = SlotPlan::at(self.cell->id);
  if (place - slot < SlotPlan::bytes) {
    refuse(
        self, Errc::bad_argument, call,
        fmt::format("{} {} with {} bytes reaches beyond this cell's memory, which ends at {}; check address and size",
                    what, address, bytes, reinterpret_cast<const void*>(slot + SlotPlan::bytes)));
  }
  const std::size_t other = SlotPlan::cell_around(place);
  if (other < self.cell->processor->domain().cell_count) {
    refuse(self, Errc::bad_argument, call,
           fmt::format("{} {} lies in the memory of cell {}; give this cell's own address of the object, it is "
                       "translated to the target's",
                       what, address, other));
  }
  refuse(self, Errc::bad_argument, call,
         fmt::format("{} {} cannot be reached: it is {}; remote memory is a global of a program loaded by aprun, a "
                     "stack variable, or symmetric memory",
                     what, address, describe_memory(address)));
}

[[noreturn, gnu::cold, gnu::noinline]] void bad_alignment(const TaskControl& self, const char* call,
                                                          const void* address, std::size_t alignment,
                                                          const char* what) {
  refuse(self, Errc::bad_argument, call,
         fmt::format("{} {} is not aligned to {} bytes; give the address of {}", what, address, alignment,
                     alignment == 4 ? "an int" : "an 8-byte number"));
}

[[noreturn, gnu::cold, gnu::noinline]] void bad_blocks(const TaskControl& self, const char* call, const Blocks& blocks,
                                                       std::ptrdiff_t stride) {
  refuse(self, Errc::bad_argument, call,
         fmt::format("{} items of {} bytes at a distance of {} are more than a memory; check counts and strides",
                     blocks.count, blocks.bytes, stride));
}

/// Stacks of different cells are shifted against each other (see stack_colour()).
[[gnu::cold, gnu::noinline]] std::ptrdiff_t stack_shift(const TaskControl& self, const void* address,
                                                        std::uint32_t cell) noexcept {
  const auto* place = static_cast<const char*>(address);
  const auto holds = [place](const TaskControl& task) { return place >= task.stack.low && place < task.stack.top; };
  const TaskControl* owner = holds(self) ? &self : nullptr;
  for (std::uint32_t id = 0; owner == nullptr && id < self.cell->tasks.end(); ++id) {
    const TaskControl* task = self.cell->tasks.find(id);
    if (task != nullptr && holds(*task)) owner = task;
  }
  if (owner == nullptr) return 0;
  return static_cast<std::ptrdiff_t>(stack_colour(owner->stack.bytes(), self.cell->id, owner->id)) -
         static_cast<std::ptrdiff_t>(stack_colour(owner->stack.bytes(), cell, owner->id));
}

/// The other cell's address of what the caller has at `address`.
[[gnu::always_inline]] inline std::byte* translate(const TaskControl& self, const char* call, std::uint32_t cell,
                                                   const void* address, std::size_t bytes, const char* what) {
  const std::uint32_t own = self.cell->id;
  const std::uintptr_t place = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t offset = place - SlotPlan::at(own);
  if (offset >= SlotPlan::bytes || bytes > SlotPlan::bytes - offset) [[unlikely]]
    bad_address(self, call, address, bytes, what);
  std::uintptr_t there = SlotPlan::at(cell) + offset;
  if (SlotPlan::holds_stacks && offset >= SlotPlan::stacks_offset && cell != own) [[unlikely]]
    there += static_cast<std::uintptr_t>(stack_shift(self, address, cell));
  return reinterpret_cast<std::byte*>(there);
}

[[gnu::always_inline]] inline std::int32_t* translate_flag(const TaskControl& self, const char* call,
                                                           std::uint32_t cell, const Flag* flag) {
  if (flag == nullptr) return nullptr;
  if (reinterpret_cast<std::uintptr_t>(flag) % alignof(std::int32_t) != 0) [[unlikely]]
    bad_alignment(self, call, flag, alignof(std::int32_t), "the remote flag at");
  return reinterpret_cast<std::int32_t*>(translate(self, call, cell, flag, sizeof(Flag), "the remote flag at"));
}

[[gnu::always_inline]] inline std::int32_t* check_local_flag(const TaskControl& self, const char* call,
                                                             const Flag* flag) {
  if (reinterpret_cast<std::uintptr_t>(flag) % alignof(std::int32_t) != 0) [[unlikely]]
    bad_alignment(self, call, flag, alignof(std::int32_t), "the flag at");
  return reinterpret_cast<std::int32_t*>(const_cast<Flag*>(flag));
}

/// Throws unless there is such a cell. False: the machine stops, see Processor::stops().
[[nodiscard, gnu::always_inline]] inline bool check_cell(TaskControl& self, const char* call, std::uint32_t cell) {
  const Domain& domain = self.cell->processor->domain();
  if (cell >= domain.cell_count || self.cell->id >= domain.cell_count) [[unlikely]]
    bad_cell(self, call, cell);
  return !self.cell->processor->stops();
}

/// Checks all that a call says of many items, but for the flags. False: as check_cell().
[[nodiscard]] bool check_blocks(TaskControl& self, const char* call, std::uint32_t cell, const void* local,
                                const void* remote, const Blocks& blocks, Copy& copy) {
  if (!check_cell(self, call, cell)) return false;
  copy.cell = cell;
  copy.local = const_cast<std::byte*>(static_cast<const std::byte*>(local));
  copy.blocks = blocks;
  std::ptrdiff_t first = 0;
  std::size_t bytes = 0;
  if (!span_of(blocks, blocks.local_stride, first, bytes)) bad_blocks(self, call, blocks, blocks.local_stride);
  if (!span_of(blocks, blocks.remote_stride, first, bytes)) bad_blocks(self, call, blocks, blocks.remote_stride);
  if (bytes != 0)
    copy.remote =
        translate(self, call, cell, static_cast<const std::byte*>(remote) + first, bytes, "the remote address") - first;
  return true;
}

constexpr std::size_t together_from_bytes = 128 * 1024;  // smaller: asking for help takes a part of the copy's time

/// From or to a cell of this process.
[[gnu::always_inline]] inline void copy_local(const TaskControl& self, std::uint32_t cell, void* to, const void* from,
                                              std::size_t bytes) {
  if (cell == self.cell->id) [[unlikely]] {
    if (bytes != 0) std::memmove(to, from, bytes);  // they may overlap
  } else if (bytes <= MessageRing::inline_bytes_max) {
    copy_small(to, from, bytes);
  } else {
    Outbound& outbound = self.cell->processor->outbound();
    if (bytes >= together_from_bytes && outbound.copy_together(outbound.route(cell), to, from, bytes)) return;
    copy_long(to, from, bytes);
  }
}

template <class Number>
std::uint64_t operate_on(const Operation& operation) noexcept {
  auto* place = reinterpret_cast<Number*>(operation.remote);
  const auto operand = static_cast<Number>(operation.operand);
  // acq_rel: an atomic orders what the cells did before and after it
  const auto replace = [place](auto wanted) {
    Number old = __atomic_load_n(place, __ATOMIC_RELAXED);  // relaxed: the exchange decides
    while (!__atomic_compare_exchange_n(place, &old, wanted(old), true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return static_cast<std::uint64_t>(old);
  };
  const auto less = [signed_numbers = operation.word.is_signed](Number a, Number b) {
    using Signed = std::make_signed_t<Number>;
    return signed_numbers ? static_cast<Signed>(a) < static_cast<Signed>(b) : a < b;
  };
  switch (operation.what) {
    case detail::Fetch::add:
      return __atomic_fetch_add(place, operand, __ATOMIC_ACQ_REL);
    case detail::Fetch::bit_and:
      return __atomic_fetch_and(place, operand, __ATOMIC_ACQ_REL);
    case detail::Fetch::bit_or:
      return __atomic_fetch_or(place, operand, __ATOMIC_ACQ_REL);
    case detail::Fetch::bit_xor:
      return __atomic_fetch_xor(place, operand, __ATOMIC_ACQ_REL);
    case detail::Fetch::exchange:
      return __atomic_exchange_n(place, operand, __ATOMIC_ACQ_REL);
    case detail::Fetch::min:
      return replace([&](Number old) { return less(operand, old) ? operand : old; });
    case detail::Fetch::max:
      return replace([&](Number old) { return less(old, operand) ? operand : old; });
    case detail::Fetch::compare_exchange: {
      auto expected = static_cast<Number>(operation.expected);
      __atomic_compare_exchange_n(place, &expected, operand, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
      return expected;
    }
  }
  return 0;
}

}  // namespace

bool span_of(const Blocks& blocks, std::ptrdiff_t stride, std::ptrdiff_t& first, std::size_t& bytes) noexcept {
  first = 0;
  bytes = 0;
  if (blocks.count == 0 || blocks.bytes == 0) return true;
  std::ptrdiff_t last = 0;  // start of the last item
  if (blocks.count > std::size_t{PTRDIFF_MAX} || blocks.bytes > std::size_t{PTRDIFF_MAX} ||
      __builtin_mul_overflow(static_cast<std::ptrdiff_t>(blocks.count - 1), stride, &last) || last == PTRDIFF_MIN)
    return false;
  first = last < 0 ? last : 0;
  return !__builtin_add_overflow(static_cast<std::size_t>(last < 0 ? -last : last), blocks.bytes, &bytes);
}

void copy_blocks(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from, std::ptrdiff_t from_stride,
                 const Blocks& blocks) noexcept {
  if (blocks.bytes == 0) return;
  for (std::size_t i = 0; i < blocks.count; ++i) {
    const auto n = static_cast<std::ptrdiff_t>(i);
    std::memmove(to + n * to_stride, from + n * from_stride, blocks.bytes);  // own cell: they may overlap
  }
}

std::uint64_t operate(const Operation& operation) noexcept {
  return operation.word.bytes == 4 ? operate_on<std::uint32_t>(operation) : operate_on<std::uint64_t>(operation);
}

namespace {

[[gnu::noinline]] void put_anything(TaskControl& self, const char* call, std::uint32_t cell, const void* local,
                                    std::size_t bytes, void* remote, const PutFlags& flags) {
  if (!check_cell(self, call, cell)) return;
  std::byte* const to = bytes == 0 ? nullptr : translate(self, call, cell, remote, bytes, "the remote address");
  std::int32_t* const arrived = translate_flag(self, call, cell, flags.arrived);
  std::int32_t* const reusable = check_local_flag(self, call, flags.reusable);
  Domain& domain = self.cell->processor->domain();
  if (domain.is_elsewhere(cell)) [[unlikely]] {
    auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(local));
    domain.network->put(self, call, {cell, from, to, {.bytes = bytes}, reusable, arrived}, flags.acknowledge);
    return;
  }
  copy_local(self, cell, to, local, bytes);
  Watch::raise(arrived);
  Watch::raise(reusable);
  domain.wake_watcher(*domain.cells[cell]);
}

}  // namespace

// A few bytes for the memory of another cell of this process, by few branches; all else is put_anything().
void put(TaskControl& self, const char* call, std::uint32_t cell, const void* local, std::size_t bytes, void* remote,
         const PutFlags& flags) {
  const std::uint32_t own = self.cell->id;
  Processor& here = *self.cell->processor;
  Domain& domain = here.domain();
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(remote) - SlotPlan::at(own);
  constexpr std::uintptr_t end = SlotPlan::holds_stacks ? SlotPlan::stacks_offset : SlotPlan::bytes;
  if (cell >= domain.cell_count || own >= domain.cell_count || cell == own || domain.network != nullptr || bytes == 0 ||
      bytes > MessageRing::inline_bytes_max || offset > end - MessageRing::inline_bytes_max ||
      domain.stopping.load(std::memory_order_relaxed)) [[unlikely]]  // relaxed: as Processor::stops()
    return put_anything(self, call, cell, local, bytes, remote, flags);
  std::int32_t* const arrived = translate_flag(self, call, cell, flags.arrived);
  std::int32_t* const reusable = check_local_flag(self, call, flags.reusable);
  copy_small(reinterpret_cast<std::byte*>(SlotPlan::at(cell) + offset), local, bytes);
  Watch::raise(arrived);
  Watch::raise(reusable);
  // Who waits on our own processor does not sleep.
  if (here.outbound().route(cell) != here.index()) domain.wake_watcher(*domain.cells[cell]);
}

void put(TaskControl& self, const char* call, std::uint32_t cell, const void* local, void* remote, const Blocks& blocks,
         const PutFlags& flags) {
  Copy copy;
  if (!check_blocks(self, call, cell, local, remote, blocks, copy)) return;
  copy.remote_flag = translate_flag(self, call, cell, flags.arrived);
  copy.local_flag = check_local_flag(self, call, flags.reusable);
  Domain& domain = self.cell->processor->domain();
  if (domain.is_elsewhere(cell)) [[unlikely]] {
    domain.network->put(self, call, copy, flags.acknowledge);
    return;
  }
  copy_blocks(copy.remote, blocks.remote_stride, copy.local, blocks.local_stride, blocks);
  Watch::raise(copy.remote_flag);
  Watch::raise(copy.local_flag);
  domain.wake_watcher(*domain.cells[cell]);
}

void get(TaskControl& self, const char* call, std::uint32_t cell, void* local, std::size_t bytes, const void* remote,
         const GetFlags& flags) {
  if (!check_cell(self, call, cell)) return;
  std::byte* const from = bytes == 0 ? nullptr : translate(self, call, cell, remote, bytes, "the remote address");
  std::int32_t* const taken = translate_flag(self, call, cell, flags.taken);
  std::int32_t* const arrived = check_local_flag(self, call, flags.arrived);
  Domain& domain = self.cell->processor->domain();
  if (domain.is_elsewhere(cell)) [[unlikely]] {
    domain.network->get(self, call, {cell, static_cast<std::byte*>(local), from, {.bytes = bytes}, arrived, taken});
    return;
  }
  copy_local(self, cell, local, from, bytes);
  Watch::raise(arrived);
  if (taken != nullptr) {
    Watch::raise(taken);
    domain.wake_watcher(*domain.cells[cell]);
  }
}

void get(TaskControl& self, const char* call, std::uint32_t cell, void* local, const void* remote, const Blocks& blocks,
         const GetFlags& flags) {
  Copy copy;
  if (!check_blocks(self, call, cell, local, remote, blocks, copy)) return;
  copy.local_flag = check_local_flag(self, call, flags.arrived);
  copy.remote_flag = translate_flag(self, call, cell, flags.taken);
  Domain& domain = self.cell->processor->domain();
  if (domain.is_elsewhere(cell)) [[unlikely]] {
    domain.network->get(self, call, copy);
    return;
  }
  copy_blocks(copy.local, blocks.local_stride, copy.remote, blocks.remote_stride, blocks);
  Watch::raise(copy.local_flag);
  Watch::raise(copy.remote_flag);
  domain.wake_watcher(*domain.cells[cell]);
}

std::uint64_t fetch(TaskControl& self, const char* call, Operation operation) {
  const void* address = operation.remote;
  if (!check_cell(self, call, operation.cell)) return 0;
  operation.remote = translate(self, call, operation.cell, address, operation.word.bytes, "the remote address");
  if (reinterpret_cast<std::uintptr_t>(address) % operation.word.bytes != 0) [[unlikely]]
    bad_alignment(self, call, address, operation.word.bytes, "the remote address");
  Domain& domain = self.cell->processor->domain();
  if (domain.is_elsewhere(operation.cell)) [[unlikely]]
    return domain.network->fetch(self, call, operation);
  const std::uint64_t old = operate(operation);
  domain.wake_watcher(*domain.cells[operation.cell]);
  return old;
}

void wait_acknowledged(TaskControl& self, const char* call) {
  Processor::wait_flag(self, call, &self.cell->acknowledged,
                       static_cast<std::int32_t>(self.cell->acknowledges_requested));
}

}  // namespace aplib::one_sided
