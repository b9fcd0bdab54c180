// SPDX-License-Identifier: MIT
#include "mpi/file_view.hpp"

#include <fmt/format.h>

#include "mpi/error.hpp"

namespace aplib::mpi {

namespace {

// What every offset stays below: room for the length of an access and more.
constexpr Count offset_end = Count{1} << 62;

Count lower_of(const Piece& piece) noexcept { return piece.body != nullptr ? piece.body->lower() : 0; }
Count upper_of(const Piece& piece) noexcept { return piece.body != nullptr ? piece.body->upper() : piece.block; }

/// Where blocks begin that lie side by side.
struct Begins {
  Count first;
  Count last;
  bool go_up;  ///< None is in front of one before it.
};

Begins begins_of(const Layout& layout);

Begins begins_of(const Piece& piece) {
  const Begins inner = piece.body != nullptr ? begins_of(*piece.body) : Begins{0, 0, true};
  Begins all{piece.at(0) + inner.first, piece.at(piece.count - 1) + inner.last, inner.go_up};
  const Count span = inner.last - inner.first;
  if (piece.list == nullptr) {
    all.go_up = all.go_up && (piece.count == 1 || piece.stride >= span);
  } else {
    for (Count i = 1; i < piece.count && all.go_up; ++i) all.go_up = piece.list[i] - piece.list[i - 1] >= span;
  }
  return all;
}

Begins begins_of(const Layout& layout) {
  Begins all = begins_of(layout.pieces().front());
  for (const Piece& piece : layout.pieces().subspan(1)) {
    const Begins its = begins_of(piece);
    all.go_up = all.go_up && its.go_up && its.first >= all.last;
    all.last = its.last;
  }
  return all;
}

bool is_ordered_layout(const Layout& layout);

/// The same of whole blocks: they do not overlap either.
bool is_ordered_piece(const Piece& piece) {
  if (piece.body != nullptr && !is_ordered_layout(*piece.body)) return false;
  const Count span = upper_of(piece) - lower_of(piece);
  if (piece.list == nullptr) return piece.count == 1 || piece.stride >= span;
  for (Count i = 1; i < piece.count; ++i) {
    if (piece.list[i] - piece.list[i - 1] < span) return false;
  }
  return true;
}

bool is_ordered_layout(const Layout& layout) {
  Count reached = layout.lower();
  for (const Piece& piece : layout.pieces()) {
    if (piece.at(0) + lower_of(piece) < reached || !is_ordered_piece(piece)) return false;
    reached = piece.at(piece.count - 1) + upper_of(piece);
  }
  return true;
}

/// What the standard asks of etypes and filetypes.
void check_places(const char* parameter, const Datatype& type, bool is_written) {
  const Layout& layout = type.layout();
  if (layout.bytes() == 0) return;
  if (layout.lower() < 0 || type.extent() < 0) {
    fail(MPI_ERR_TYPE, fmt::format("{} begins at {} and has an extent of {}; let its displacements and its extent be 0 "
                                   "or more",
                                   parameter, layout.lower(), type.extent()));
  }
  if (!begins_of(layout).go_up)
    fail(MPI_ERR_TYPE, fmt::format("{} has displacements that become smaller; order them", parameter));
  if (is_written && !is_ordered_layout(layout)) {
    fail(MPI_ERR_TYPE,
         fmt::format("{} has bytes twice, and the file is open for writing; open it with MPI_MODE_RDONLY, "
                     "or let nothing overlap",
                     parameter));
  }
}

double blocks_of(const Layout& layout) {
  double count = 0;
  for (const Piece& piece : layout.pieces())
    count += static_cast<double>(piece.count) * (piece.body != nullptr ? blocks_of(*piece.body) : 1.0);
  return count;
}

Count bytes_below(const Layout& layout, Count end) noexcept;

/// Of an ordered piece: the bytes at offsets below `end`.
Count bytes_below(const Piece& piece, Count end) noexcept {
  const Count reach = end - 1 - piece.offset - lower_of(piece);
  if (reach < 0) return 0;
  Count index = 0;  // of the last block that begins below
  if (piece.list != nullptr) {
    index = std::upper_bound(piece.list, piece.list + piece.count, reach) - piece.list - 1;
  } else if (piece.count > 1) {
    index = std::min(piece.count - 1, reach / piece.stride);
  }
  const Count rest = end - piece.at(index);
  return index * piece.block + (piece.body != nullptr ? bytes_below(*piece.body, rest) : std::min(rest, piece.block));
}

Count bytes_below(const Layout& layout, Count end) noexcept {
  const auto pieces = layout.pieces();
  const auto behind = std::partition_point(pieces.begin(), pieces.end(),
                                           [&](const Piece& piece) { return piece.at(0) + lower_of(piece) < end; });
  if (behind == pieces.begin()) return 0;
  const auto last = static_cast<std::size_t>(behind - pieces.begin() - 1);
  return layout.begins()[last] + bytes_below(pieces[last], end);
}

}  // namespace

View::View() : View(0, Datatype::named(BasicType::byte), Datatype::named(BasicType::byte), true) {}

View::View(Count displacement, DatatypePtr etype, DatatypePtr filetype, bool is_written)
    : displacement_(displacement), etype_(std::move(etype)), filetype_(std::move(filetype)) {
  if (displacement > offset_end)
    fail(MPI_ERR_ARG,
         fmt::format("disp is {}, beyond the offsets that a file can have; give a smaller one", displacement));
  if (unit() == 0) fail(MPI_ERR_TYPE, "etype has no bytes; give one with some");
  check_places("etype", *etype_, is_written);
  check_places("filetype", *filetype_, is_written);
  const Layout& layout = filetype_->layout();
  if (filetype_->size() % unit() != 0) {
    fail(MPI_ERR_TYPE, fmt::format("filetype has {} bytes, no multiple of the {} of etype; make it of etypes",
                                   filetype_->size(), unit()));
  }
  if (filetype_->size() == 0) return;
  is_contiguous_ = Elements{nullptr, &layout, 2, filetype_->extent()}.piece().is_block();
  is_ordered_ = is_contiguous_ || (filetype_->extent() >= layout.upper() - layout.lower() && is_ordered_layout(layout));
  block_bytes_ =
      is_contiguous_ ? offset_end : static_cast<Count>(static_cast<double>(layout.bytes()) / blocks_of(layout));
}

void View::check_end(Count end) const {
  if (end == 0) return;
  const Count size = filetype_->size();
  if (size == 0) fail(MPI_ERR_ARG, "the view's filetype has no bytes; set a view with some before data go there");
  Count offset = 0;
  const bool is_far = end < 0 || end > offset_end ||
                      __builtin_mul_overflow((end - 1) / size + 1, filetype_->extent(), &offset) ||
                      __builtin_add_overflow(offset, displacement_, &offset) ||
                      __builtin_add_overflow(offset, filetype_->layout().upper(), &offset) || offset > offset_end;
  if (is_far) fail(MPI_ERR_ARG, "the data would lie beyond the offsets that a file can have; give a smaller offset");
}

Elements View::elements(std::uintptr_t base, Count end) const noexcept {
  return {reinterpret_cast<void*>(base + static_cast<std::uintptr_t>(displacement_)), &filetype_->layout(),
          end / filetype_->size() + 1, filetype_->extent()};
}

Extent View::at(Count position) const noexcept {
  if (filetype_->size() == 0) return {displacement_, 0};
  const Cursor cursor(elements(origin, position), position);
  const Run run = cursor.run();
  const char* const place = run.list != nullptr ? run.address + *run.list : run.address;
  return {static_cast<Count>(reinterpret_cast<std::uintptr_t>(place) - origin),
          is_contiguous_ ? offset_end - position : run.block};
}

Count View::position_at(Count offset) const noexcept {
  const Layout& layout = filetype_->layout();
  if (layout.bytes() == 0) return 0;
  // As many copies of the filetype as begin below the offset.
  const Count copies =
      std::max<Count>((offset - displacement_ - layout.lower()) / std::max<Count>(filetype_->extent(), 1), 0) + 1;
  return bytes_below(Elements{nullptr, &layout, copies, filetype_->extent()}.piece(), offset - displacement_);
}

}  // namespace aplib::mpi
