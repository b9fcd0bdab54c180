// SPDX-License-Identifier: MIT
// Where the bytes of a datatype lie in memory, in the order in which they travel, and copies from one such layout to
// another, without a buffer in between.
//
// A layout is a list of pieces. A piece is a loop over blocks; a block is contiguous or has a layout of its own. What a
// constructor of datatypes describes is brought into a normal form as it is built: blocks that touch are one block,
// loops that continue each other are one loop, blocks at regular distances are a loop, and other blocks of the same
// size are a list of offsets. So the inner loop of most types is one of a few simple loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace aplib::mpi {

/// Bytes, elements and displacements: MPI_Count and MPI_Aint.
using Count = std::int64_t;

/// A datatype that cannot be. The text says what was given and what is allowed.
class DatatypeError : public std::runtime_error {
 public:
  /// Error classes of MPI.
  enum Class { count = 2, type = 3, argument = 13 };

  DatatypeError(Class error_class, const std::string& text) : std::runtime_error(text), error_class_(error_class) {}

  [[nodiscard]] int error_class() const noexcept { return error_class_; }

 private:
  Class error_class_;
};

[[noreturn]] void throw_too_deep(int depth);

class Layout;
using LayoutPtr = std::shared_ptr<const Layout>;

/// `count` blocks of `block` bytes. Block i begins at offset + i * stride or, with `list`, at offset + list[i].
struct Piece {
  Count offset = 0;
  Count block = 0;
  Count count = 1;
  Count stride = 0;
  const Count* list = nullptr;
  const Layout* body = nullptr;  ///< How the bytes of a block lie; null: side by side.

  [[nodiscard]] bool is_block() const noexcept { return count == 1 && list == nullptr && body == nullptr; }
  [[nodiscard]] Count bytes() const noexcept { return block * count; }
  [[nodiscard]] Count at(Count i) const noexcept { return offset + (list != nullptr ? list[i] : i * stride); }
};

/// Immutable, so tasks, cells and processors may share it.
class Layout {
 public:
  /// Levels of pieces within pieces. Each level but those of long lists at least doubles the bytes, so types that make
  /// sense never come near.
  static constexpr int depth_max = 72;

  [[nodiscard]] Count bytes() const noexcept { return bytes_; }
  /// The range of what is read or written: [lower, upper). Both 0 without bytes.
  [[nodiscard]] Count lower() const noexcept { return lower_; }
  [[nodiscard]] Count upper() const noexcept { return upper_; }
  [[nodiscard]] std::span<const Piece> pieces() const noexcept { return pieces_; }
  /// Bytes before each piece.
  [[nodiscard]] std::span<const Count> begins() const noexcept { return begins_; }
  [[nodiscard]] int depth() const noexcept { return depth_; }
  /// The bytes of a layout that is one block at offset 0, as of most types; 0 of any other.
  [[nodiscard]] Count block() const noexcept { return block_; }

 private:
  friend class LayoutBuilder;

  std::vector<Piece> pieces_;
  std::vector<Count> begins_;
  std::vector<std::shared_ptr<const void>> kept_;  // the lists and bodies that pieces point to
  Count bytes_ = 0;
  Count lower_ = 0;
  Count upper_ = 0;
  Count block_ = 0;
  int depth_ = 1;
};

/// Makes a layout of other layouts. All functions throw DatatypeError for what does not fit into 64 bits.
class LayoutBuilder {
 public:
  /// Adds `bytes` bytes at `offset`.
  void add_block(Count offset, Count bytes);
  /// Adds `count` copies of the layout, the first one moved by `offset`, each further one by `stride`.
  void add(const LayoutPtr& layout, Count offset, Count count = 1, Count stride = 0);
  /// What was added, in that order. The builder is empty afterwards.
  [[nodiscard]] LayoutPtr finish();

  /// `count` copies, `stride` apart.
  [[nodiscard]] static LayoutPtr repeat(const LayoutPtr& layout, Count count, Count stride);

 private:
  void append(const Piece& piece);
  void compress();
  void compress_stretch(std::span<const Piece> stretch);
  void measure(Layout& layout) const;

  std::vector<Piece> pieces_;
  std::vector<Piece> compressed_;
  std::vector<std::shared_ptr<const void>> kept_;
};

/// One side of a copy: `count` elements with a layout, `extent` bytes apart. The address is that of offset 0, which
/// itself need not belong to the elements (null for absolute offsets, MPI_BOTTOM). It owns nothing.
struct Elements {
  void* address;
  const Layout* layout;
  Count count;
  Count extent;

  [[nodiscard]] Count bytes() const noexcept { return layout->bytes() * count; }
  /// All elements as one piece.
  [[nodiscard]] Piece piece() const noexcept;
  /// Where the bytes begin if they lie side by side, else null. Elements without bytes have no address.
  [[nodiscard]] char* contiguous() const noexcept {
    const bool is_plain = layout->block() == extent && extent != 0 && count > 0;
    return is_plain ? static_cast<char*>(address) : contiguous_piece();
  }

 private:
  [[nodiscard]] char* contiguous_piece() const noexcept;
};

/// `bytes` bytes side by side.
[[nodiscard]] Elements bytes_in(void* memory, Count bytes);
[[nodiscard]] inline Elements bytes_at(const void* address, Count bytes) {
  return bytes_in(const_cast<void*>(address), bytes);
}

/// Blocks that one simple loop copies. Block i begins at address + i * stride or, with `list`, at address + list[i].
struct Run {
  char* address;
  Count block;
  Count count;
  Count stride;
  const Count* list;
};

/// Blocks with a layout of their own, which has no further levels: for copies that take one piece of all blocks at a
/// time.
struct Tiles {
  char* address;  ///< of the first block's offset 0
  Count stride;
  Count count;  ///< 0: there are none.
  const Layout* body;
};

/// A position in the bytes of elements. It moves only forwards.
class Cursor {
 public:
  /// At byte `first` of the stream, which is at most elements.bytes().
  Cursor(const Elements& elements, Count first) noexcept : Cursor(elements.piece(), elements.address, first) {}
  /// The same for the piece that elements make.
  Cursor(const Piece& piece, const void* address, Count first) noexcept;
  Cursor(const Cursor&) = delete;  // it points into itself
  Cursor& operator=(const Cursor&) = delete;

  /// What comes next: at least the rest of a block. At the end, `count` is 0.
  [[nodiscard]] Run run() const noexcept {
    if (done_ == 0) return run_;
    return Run{block_address() + done_, run_.block - done_, 1, 0, nullptr};
  }
  /// Over the first `count` blocks of run(), which has as many.
  void skip_blocks(Count count) noexcept {
    if (done_ != 0) {  // run() was the rest of one block
      done_ = 0;
      count = 1;
    }
    run_.count -= count;
    if (run_.list != nullptr) {
      run_.list += count;
    } else {
      run_.address += count * run_.stride;
    }
    if (run_.count == 0) next_run();
  }
  /// The blocks that begin here, if they are tiles.
  [[nodiscard]] Tiles tiles() const noexcept;
  /// Over the first `count` of them.
  void skip_tiles(Count count) noexcept;
  /// Over fewer bytes than the first block of run() has.
  void skip_bytes(Count bytes) noexcept { done_ += bytes; }

 private:
  struct Frame {
    const Piece* piece;   // the one we are in, among its siblings
    const Piece* end;     // behind the last sibling
    Count index;          // of the block we are in, if it has a body
    std::uintptr_t base;  // the address that offsets count from; an integer, because it may be outside of all memory
  };

  [[nodiscard]] char* block_address() const noexcept {
    return run_.list != nullptr ? run_.address + *run_.list : run_.address;
  }
  void seek(Count first) noexcept;
  void enter_leaf(Count index) noexcept;
  void next_run() noexcept;

  Run run_;
  Count done_ = 0;  // bytes of the first block
  int depth_ = 0;
  Piece root_;
  Frame frames_[Layout::depth_max];
};

/// Copies the next `bytes` bytes of the one stream to those of the other. Both have as many left.
void copy(Cursor& to, Cursor& from, Count bytes) noexcept;

/// Copies the bytes [first, first + bytes) of the stream `from` to the same bytes of the stream `to`. Different parts
/// may be copied at the same time by different threads. The memory of the two sides must not overlap.
void copy(const Elements& to, const Elements& from, Count first, Count bytes) noexcept;

/// Copies bytes [first, first + bytes) of the elements into a buffer, or from it. `packed` is where byte `first` is.
void pack(void* packed, const Elements& from, Count first, Count bytes) noexcept;
void unpack(const Elements& to, const void* packed, Count first, Count bytes) noexcept;

}  // namespace aplib::mpi
