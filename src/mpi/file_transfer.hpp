// SPDX-License-Identifier: MIT
// Transfer: what one call moves between a rank's memory and its view of a file.
//
// What lies side by side in the file goes there at once. Small pieces are put together on a *stage*: a stretch of the
// file in memory. It is read, and what is written into it is written back with the bytes between ("data sieving").
// Nobody else may write there meanwhile, so the stretch is locked.
#pragma once

#include <optional>

#include "mpi/file.hpp"

namespace aplib::mpi {

struct Transfer {
  bool is_write = false;
  Elements memory{};  ///< Its first `bytes` bytes.
  const View* view = nullptr;
  Count begin = 0;  ///< Position in the view's stream.
  Count bytes = 0;

  [[nodiscard]] Count end() const noexcept { return begin + bytes; }
  /// Of the first byte, and behind the last one. REQUIRES: it has bytes, and the view is ordered.
  [[nodiscard]] Count first_offset() const noexcept { return view->offset_of(begin); }
  [[nodiscard]] Count end_offset() const noexcept { return view->offset_of(end() - 1) + 1; }

  /// Between the memory and a stage, positions [first, last). The stage begins with the file's byte at `offset`.
  void copy(std::byte* stage, Count offset, Count first, Count last) const noexcept;
};

/// With less than one byte to move in so many, a stretch is not worth reading.
inline constexpr Count sparse_max = 16;

/// Reads the bytes from `first` to `end` for a write into them. What lies behind the file's end is 0.
void fill_stage(const DiskFile& disk, std::byte* stage, Count first, Count end);

/// Moves it, without other ranks. Returns how many bytes: fewer than asked for where the file ends.
Count move_alone(const File& file, const Transfer& transfer);

/// The same, collective: each rank gives its own. Their pieces are put together (file_together.cpp). All fail if one
/// does; `failure`: this rank has failed before, and comes without bytes.
Count move_together(const Call& call, const File& file, const Transfer& transfer, std::optional<Failure> failure);

}  // namespace aplib::mpi
