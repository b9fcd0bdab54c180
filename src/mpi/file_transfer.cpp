// SPDX-License-Identifier: MIT
#include "mpi/file_transfer.hpp"

#include <cstring>
#include <memory>
#include <optional>

namespace aplib::mpi {

void Transfer::copy(std::byte* stage, Count offset, Count first, Count last) const noexcept {
  const std::uintptr_t base = reinterpret_cast<std::uintptr_t>(stage) - static_cast<std::uintptr_t>(offset);
  Cursor staged(view->elements(base, last), first);
  Cursor own(memory, first - begin);
  if (is_write) {
    mpi::copy(staged, own, last - first);
  } else {
    mpi::copy(own, staged, last - first);
  }
}

void fill_stage(const DiskFile& disk, std::byte* stage, Count first, Count end) {
  const Count got = disk.read(stage, end - first, first);
  std::memset(stage + got, 0, static_cast<std::size_t>(end - first - got));
}

namespace {

// From here on a call of the system for each piece takes less time than the bytes between the pieces.
constexpr Count direct_from_bytes = 16 * 1024;

/// A transfer without other ranks, at work.
class Alone {
 public:
  Alone(const File& file, const Transfer& transfer)
      : file_(file), transfer_(transfer), memory_(transfer.memory.contiguous()) {}

  Count move() {
    std::optional<RangeLock> lock;
    if (file_.is_atomic && transfer_.bytes > 0) lock_all(lock);
    Count position = transfer_.begin;
    while (position < transfer_.end()) {
      const Extent piece = transfer_.view->at(position);
      const Count bytes = std::min(piece.bytes, transfer_.end() - position);
      const Count end = stretch_end(position, {piece.offset, bytes});
      const bool is_piece = end == position + bytes;
      const Count moved = is_piece ? move_piece(position, {piece.offset, bytes}) : move_stretch(position, end);
      if (moved < end - position) return position + moved - transfer_.begin;
      position = end;
    }
    return transfer_.bytes;
  }

 private:
  void lock_all(std::optional<RangeLock>& lock) const {
    const auto kind = transfer_.is_write ? RangeLock::Kind::exclusive : RangeLock::Kind::shared;
    if (!transfer_.view->is_ordered()) {
      lock.emplace(file_.disk, kind, 0, 0);
    } else {
      const Count first = transfer_.first_offset();
      lock.emplace(file_.disk, kind, first, transfer_.end_offset() - first);
    }
  }

  /// Up to which position it makes sense to go at once, with a stage; otherwise, the piece's end.
  [[nodiscard]] Count stretch_end(Count position, const Extent& piece) const {
    const View& view = *transfer_.view;
    const Count piece_end = position + piece.bytes;
    const bool has_stage = view.is_ordered() && (!transfer_.is_write || (file_.can_lock && file_.disk.is_readable()));
    if (piece_end == transfer_.end() || piece.bytes >= direct_from_bytes || !has_stage) return piece_end;
    const Count end = std::min(transfer_.end(), view.position_at(piece.offset + file_.hints.buffer_bytes));
    const bool is_sparse = (end - position) * sparse_max < view.offset_of(end - 1) + 1 - piece.offset;
    return is_sparse ? piece_end : std::max(end, piece_end);
  }

  Count move_piece(Count position, const Extent& piece) {
    std::optional<RangeLock> lock;
    if (transfer_.is_write) lock_write(lock, piece, false);
    const Count begin = position - transfer_.begin;
    if (memory_ != nullptr) return move_at_once(memory_ + begin, piece);
    for (Count done = 0; done < piece.bytes;) {
      const Extent part{piece.offset + done, std::min(piece.bytes - done, file_.hints.buffer_bytes)};
      if (transfer_.is_write) pack(stage(), transfer_.memory, begin + done, part.bytes);
      const Count moved = move_at_once(stage(), part);
      if (!transfer_.is_write) unpack(transfer_.memory, stage(), begin + done, moved);
      done += moved;
      if (moved < part.bytes) return done;
    }
    return piece.bytes;
  }

  Count move_stretch(Count position, Count end) {
    const View& view = *transfer_.view;
    const Count first = view.offset_of(position);
    const Extent stretch{first, view.offset_of(end - 1) + 1 - first};
    if (transfer_.is_write) {
      const bool has_gaps = stretch.bytes != end - position;
      std::optional<RangeLock> lock;
      lock_write(lock, stretch, has_gaps);
      if (has_gaps) fill_stage(file_.disk, stage(), first, first + stretch.bytes);
      transfer_.copy(stage(), first, position, end);
      move_at_once(stage(), stretch);
      return end - position;
    }
    const Count got = move_at_once(stage(), stretch);
    const Count last = got == stretch.bytes ? end : std::max(position, view.position_at(first + got));
    if (last > position) transfer_.copy(stage(), first, position, last);
    return last - position;
  }

  /// Others that write back what lies between their pieces must not do so while we write.
  void lock_write(std::optional<RangeLock>& lock, const Extent& range, bool writes_back) const {
    if (file_.is_atomic || !file_.has_gaps || !file_.can_lock) return;
    lock.emplace(file_.disk, writes_back ? RangeLock::Kind::exclusive : RangeLock::Kind::shared, range.offset,
                 range.bytes);
  }

  Count move_at_once(void* place, const Extent& extent) const {
    if (!transfer_.is_write) return file_.disk.read(place, extent.bytes, extent.offset);
    file_.disk.write(place, extent.bytes, extent.offset);
    return extent.bytes;
  }

  std::byte* stage() {
    if (stage_ == nullptr)
      stage_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(file_.hints.buffer_bytes));
    return stage_.get();
  }

  const File& file_;
  const Transfer& transfer_;
  char* memory_;  // null: it does not lie side by side
  std::unique_ptr<std::byte[]> stage_;
};

}  // namespace

Count move_alone(const File& file, const Transfer& transfer) { return Alone(file, transfer).move(); }

}  // namespace aplib::mpi
