// SPDX-License-Identifier: MIT
// The usual one-sided calls: some elements of a predefined type, to or from a rank whose memory lies here as one piece.
// As plain.hpp: they are carried out in the exported function itself, and what is not plain takes the long way
// (one_sided.cpp, epoch.cpp).
#pragma once

#include <cstring>
#include <mutex>

#include "arch/cpu.hpp"
#include "mpi/op.hpp"
#include "mpi/plain.hpp"
#include "mpi/window.hpp"

namespace aplib::mpi::plain {

/// The window of a call in time; null: it is not plain.
[[gnu::always_inline]] inline Win* window_of(MPI_Win handle) noexcept {
  if (running_task() == nullptr) [[unlikely]]
    return nullptr;
  Win* const win = find_made<Win>(handle);
  return win != nullptr && win->owner().phase == Rank::Phase::initialized ? win : nullptr;
}

/// Where `bytes` bytes of a rank's memory are; null: they may not be reached, or not in a plain way.
[[gnu::always_inline]] inline std::byte* place_of(Win* win, int rank, MPI_Aint displacement,
                                                  std::size_t bytes) noexcept {
  if (win == nullptr || static_cast<std::uint32_t>(rank) >= static_cast<std::uint32_t>(win->size()) ||
      !win->reaches(rank)) [[unlikely]]
    return nullptr;
  const WindowBoard::Member& its = win->member(rank);
  Count offset = 0;
  const bool overflows = __builtin_mul_overflow(displacement, its.unit, &offset);
  const auto room = static_cast<std::uint64_t>(its.bytes_here);
  if (overflows || static_cast<std::uint64_t>(offset) > room || bytes > room - static_cast<std::uint64_t>(offset))
      [[unlikely]]
    return nullptr;
  win->is_used = true;
  return its.base + offset;
}

/// Bytes of elements at a program's address that are the same on both sides; 0: none, or not plain.
[[gnu::always_inline]] inline std::size_t bytes_of(const void* address, MPI_Count count, MPI_Datatype type,
                                                   MPI_Count other_count, MPI_Datatype other_type) noexcept {
  constexpr std::uint64_t count_max = 4096;
  const std::uintptr_t code = code_of(type);
  if (handle_value(address) <= in_place_value || count != other_count || type != other_type ||
      static_cast<std::uint64_t>(count) > count_max || code >= element_bytes.size()) [[unlikely]]
    return 0;
  return element_bytes[code] * static_cast<std::size_t>(count);
}

[[gnu::always_inline]] inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes == sizeof(std::uint64_t)) {
    std::memcpy(to, from, sizeof(std::uint64_t));
  } else {
    copy_long(to, from, bytes);
  }
}

[[gnu::always_inline]] inline bool put(const char*, const void* address, MPI_Count count, MPI_Datatype type, int rank,
                                       MPI_Aint displacement, MPI_Count target_count, MPI_Datatype target_type,
                                       MPI_Win win) {
  const std::size_t bytes = bytes_of(address, count, type, target_count, target_type);
  std::byte* const there = bytes != 0 ? place_of(window_of(win), rank, displacement, bytes) : nullptr;
  if (there == nullptr) [[unlikely]]
    return false;
  copy_bytes(there, address, bytes);
  return true;
}

[[gnu::always_inline]] inline bool get(const char*, void* address, MPI_Count count, MPI_Datatype type, int rank,
                                       MPI_Aint displacement, MPI_Count target_count, MPI_Datatype target_type,
                                       MPI_Win win) {
  const std::size_t bytes = bytes_of(address, count, type, target_count, target_type);
  const std::byte* const there = bytes != 0 ? place_of(window_of(win), rank, displacement, bytes) : nullptr;
  if (there == nullptr) [[unlikely]]
    return false;
  copy_bytes(address, there, bytes);
  return true;
}

/// Integers of 8 bytes that are added up, replaced or read.
[[gnu::always_inline]] inline bool fetch_and_op(const char*, const void* address, void* result, MPI_Datatype type,
                                                int rank, MPI_Aint displacement, MPI_Op op, MPI_Win handle) {
  const std::uintptr_t code = code_of(type);
  const auto operation = static_cast<Operation>(handle_value(op));
  if (code >= element_bytes.size() || handle_value(op) > 0xff || handle_value(result) <= in_place_value ||
      (handle_value(address) <= in_place_value && operation != Operation::no_op)) [[unlikely]]
    return false;
  const BasicInfo& info = basic_info(static_cast<BasicType>(code));
  if (info.size != sizeof(std::uint64_t) || (info.kind != Kind::integer && info.kind != Kind::natural)) [[unlikely]]
    return false;
  Win* const win = window_of(handle);
  std::byte* const there = place_of(win, rank, displacement, sizeof(std::uint64_t));
  if (there == nullptr ||
      (operation != Operation::sum && operation != Operation::replace && operation != Operation::no_op)) [[unlikely]]
    return false;
  std::uint64_t operand = 0;
  if (operation != Operation::no_op) std::memcpy(&operand, address, sizeof operand);
  std::uint64_t value = 0;
  {
    const std::lock_guard lock(*win->member(rank).combining);
    std::memcpy(&value, there, sizeof value);
    if (operation != Operation::no_op) {  // who only reads undoes nothing that others store
      const std::uint64_t combined = operation == Operation::replace ? operand : value + operand;
      std::memcpy(there, &combined, sizeof combined);
    }
  }
  std::memcpy(result, &value, sizeof value);
  return true;
}

[[gnu::cold]] void yield();

/// A program that asks again and again what others have done lets them run now and then.
[[gnu::always_inline]] inline void let_others_run(Win& win) {
  if (win.looks.spin()) [[unlikely]]
    yield();
}

/// What calls have asked for is done already.
[[gnu::always_inline]] inline bool win_flush(const char*, int rank, MPI_Win handle) {
  Win* const win = window_of(handle);
  if (win == nullptr || static_cast<std::uint32_t>(rank) >= static_cast<std::uint32_t>(win->size()) ||
      !win->is_passive() || !win->reaches(rank) || !win->unflushed.empty()) [[unlikely]]
    return false;
  let_others_run(*win);
  return true;
}

[[gnu::always_inline]] inline bool win_flush_local(const char* call, int rank, MPI_Win win) {
  return win_flush(call, rank, win);
}

}  // namespace aplib::mpi::plain
