// SPDX-License-Identifier: MIT
// View: which bytes of a file a rank sees, and in which order. They are a stream: copies of the filetype one behind the
// other, from the displacement on. A position in the stream is a number of its bytes, an offset one of the file.
//
// The layout engine goes through files as it does through memory: offsets take the place of addresses.
#pragma once

#include <algorithm>

#include "mpi/datatype.hpp"

namespace aplib::mpi {

/// Bytes of a file that lie side by side.
struct Extent {
  Count offset;
  Count bytes;
};

class View {
 public:
  /// The bytes of the file.
  View();
  /// Fails if etype and filetype make no view; `is_written`: of a file that is open for writing.
  View(Count displacement, DatatypePtr etype, DatatypePtr filetype, bool is_written);

  [[nodiscard]] Count displacement() const noexcept { return displacement_; }
  [[nodiscard]] const DatatypePtr& etype() const noexcept { return etype_; }
  [[nodiscard]] const DatatypePtr& filetype() const noexcept { return filetype_; }
  /// Bytes of an etype: pointers and offsets of programs count these.
  [[nodiscard]] Count unit() const noexcept { return etype_->size(); }

  [[nodiscard]] bool is_contiguous() const noexcept { return is_contiguous_; }
  /// No byte of the stream lies in front of one before it, and none is there twice.
  [[nodiscard]] bool is_ordered() const noexcept { return is_ordered_; }
  /// Of the blocks that lie side by side, on average.
  [[nodiscard]] Count block_bytes() const noexcept { return block_bytes_; }

  /// Fails unless the stream's bytes before `end` have offsets. The following functions REQUIRE that they have.
  void check_end(Count end) const;
  /// At least the first `end` bytes of the stream, if the file lay in memory from `base` on.
  [[nodiscard]] Elements elements(std::uintptr_t base, Count end) const noexcept;
  /// What lies side by side from the position on, perhaps not all of it.
  [[nodiscard]] Extent at(Count position) const noexcept;
  [[nodiscard]] Count offset_of(Count position) const noexcept { return at(position).offset; }
  /// How many bytes of the stream lie in front of the offset. REQUIRES: is_ordered().
  [[nodiscard]] Count position_at(Count offset) const noexcept;
  /// Calls visit(extent) for each part of [first, end) of the stream that lies side by side.
  template <class Visit>
  void for_each_block(Count first, Count end, const Visit& visit) const;

 private:
  // So that no address is null.
  static constexpr std::uintptr_t origin = 4096;

  Count displacement_ = 0;
  DatatypePtr etype_;
  DatatypePtr filetype_;
  bool is_contiguous_ = true;
  bool is_ordered_ = true;
  Count block_bytes_ = 0;
};

template <class Visit>
void View::for_each_block(Count first, Count end, const Visit& visit) const {
  Cursor cursor(elements(origin, end), first);
  for (Count left = end - first; left > 0;) {
    const Run run = cursor.run();
    for (Count i = 0; i < run.count && left > 0; ++i) {
      const char* const place = run.address + (run.list != nullptr ? run.list[i] : i * run.stride);
      const Count bytes = std::min(run.block, left);
      visit(Extent{static_cast<Count>(reinterpret_cast<std::uintptr_t>(place) - origin), bytes});
      left -= bytes;
    }
    if (left > 0) cursor.skip_blocks(run.count);
  }
}

}  // namespace aplib::mpi
