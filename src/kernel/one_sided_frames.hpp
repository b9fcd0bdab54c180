// SPDX-License-Identifier: MIT
// Bodies and labels of the frames of one_sided_network.hpp. All processes run the same build, so numbers lie as they do in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/module.hpp"
#include "memory/slot.hpp"

namespace aplib {

struct BlocksHead {
  std::uint64_t bytes;
  std::uint64_t count;
  std::int64_t stride;
};

struct GetRequest {
  BlocksHead blocks;
  std::uint64_t id;
};

struct FetchRequest {
  static constexpr std::uint32_t signed_bit = 0x100;
  std::uint64_t operand;
  std::uint64_t expected;
  std::uint64_t id;
  std::uint32_t what;
  std::uint32_t word;  ///< Bytes, and signed_bit.
};

struct OneSidedFrame {
  /// In Label::extra, beside the asking cell.
  static constexpr std::uint32_t acknowledge_bit = 0x8000'0000U;
  static constexpr std::uint32_t note_bit = 0x4000'0000U;  ///< Answer how many data frames have been carried out.
  static constexpr std::uint32_t cell_mask = 0x3fff'ffffU;
  /// A body that is not large, whatever head is in front.
  static constexpr std::size_t small_body_max = comm::Module::large_from_bytes - 64;

  /// Label::task: which word of the cell's slot is the flag, from 1; 0: none.
  static constexpr std::uint64_t flag_words = SlotPlan::bytes / sizeof(std::int32_t);
  static_assert(flag_words < 0xffff'ffffU);
  static std::uintptr_t slot_of(std::uint32_t cell) noexcept { return SlotPlan::base + cell * SlotPlan::bytes; }
  static std::uint32_t flag_word(std::uint32_t cell, const std::int32_t* flag) noexcept {
    if (flag == nullptr) return 0;
    return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(flag) - slot_of(cell)) / sizeof *flag) + 1;
  }
  static std::int32_t* flag_at(std::uint32_t cell, std::uint32_t word) noexcept {
    return word == 0 ? nullptr : reinterpret_cast<std::int32_t*>(slot_of(cell)) + (word - 1);
  }
};

}  // namespace aplib
