// SPDX-License-Identifier: MIT
// One-sided communication: a task copies between its memory and another cell's. Addresses are those of the address
// plan (slot.hpp), so the object that the caller has at a lies at a + (target - own) * slot bytes. Inside the
// process the caller copies itself, raises the flags and wakes who waits for them (Watch); to another process
// the network brings it.
//
// Functions throw Error, and end the task when the machine stops (Processor::stops). Call from: task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "aplib/one_sided.hpp"
#include "cell/cell.hpp"

namespace aplib::one_sided {

/// Items of `bytes` each, and how far apart they lie on both sides.
using Blocks = detail::Blocks;

/// A copy, checked; remote addresses are the other cell's own.
struct Copy {
  std::uint32_t cell = 0;
  std::byte* local = nullptr;
  std::byte* remote = nullptr;
  Blocks blocks;
  std::int32_t* local_flag = nullptr;
  std::int32_t* remote_flag = nullptr;
};

/// An atomic operation, checked.
struct Operation {
  detail::Fetch what{};
  detail::Word word{};
  std::uint32_t cell = 0;
  std::byte* remote = nullptr;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;
};

/// Does it here. Returns the old value, sign-extended or not as the caller reads it.
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

/// How far up and down from `address` the items reach, with `stride` between their starts: offset of the lowest
/// byte (0 or negative) and bytes from there to the end. False: more than an address space.
bool span_of(const Blocks& blocks, std::ptrdiff_t stride, std::ptrdiff_t& first, std::size_t& bytes) noexcept;

}  // namespace aplib::one_sided
