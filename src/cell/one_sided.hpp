// SPDX-License-Identifier: MIT
// One-sided communication: a task copies between its memory and another cell's. By the address plan (slot.hpp), the
// object that the caller has at address a lies at a + (target - own) * distance of slots. Within the process the caller
// copies, raises the flags and wakes tasks that wait for them (Watch). The network does it for cells of other
// processes.
//
// REQUIRES: called from a task. Throws Error, and ends the task when the machine stops (Processor::stops).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "aplib/one_sided.hpp"
#include "cell/cell.hpp"

namespace aplib::one_sided {

/// Items of `bytes` each, and their distances on both sides.
using Blocks = detail::Blocks;

/// A checked copy. Remote addresses are the other cell's own.
struct Copy {
  std::uint32_t cell = 0;
  std::byte* local = nullptr;
  std::byte* remote = nullptr;
  Blocks blocks;
  std::int32_t* local_flag = nullptr;
  std::int32_t* remote_flag = nullptr;
};

/// A checked atomic operation.
struct Operation {
  detail::Fetch what{};
  detail::Word word{};
  std::uint32_t cell = 0;
  std::byte* remote = nullptr;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;
};

/// Carries the operation out here. Returns the old value, sign-extended or not, as the caller reads it.
std::uint64_t operate(const Operation& operation) noexcept;

/// Copies items between memory of this process.
void copy_blocks(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from, std::ptrdiff_t from_stride,
                 const Blocks& blocks) noexcept;

void put(TaskControl& self, const char* call, std::uint32_t cell, const void* local, std::size_t bytes, void* remote,
         const PutFlags& flags);
void get(TaskControl& self, const char* call, std::uint32_t cell, void* local, std::size_t bytes, const void* remote,
         const GetFlags& flags);
void put(TaskControl& self, const char* call, std::uint32_t cell, const void* local, void* remote, const Blocks& blocks,
         const PutFlags& flags);
void get(TaskControl& self, const char* call, std::uint32_t cell, void* local, const void* remote, const Blocks& blocks,
         const GetFlags& flags);
std::uint64_t fetch(TaskControl& self, const char* call, Operation operation);
void wait_acknowledged(TaskControl& self, const char* call);

/// The span of items whose starts are `stride` apart: `first` is the offset of the lowest byte (0 or negative), `bytes`
/// the number from there to the end. False: more than an address space.
bool span_of(const Blocks& blocks, std::ptrdiff_t stride, std::ptrdiff_t& first, std::size_t& bytes) noexcept;

}  // namespace aplib::one_sided
