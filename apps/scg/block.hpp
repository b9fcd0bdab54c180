// SPDX-License-Identifier: MIT
// The unknowns of one cell. The grid of unknowns is cut into one rectangular Block per cell. A Field holds one value
// per unknown of a block, with a frame of halo values around them. Halo fills that frame with the neighbours' unknowns.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace scg {

/// nx x ny unknowns or cells, numbered with x fastest.
struct GridSize {
  int nx = 1;
  int ny = 1;
  [[nodiscard]] long long count() const { return static_cast<long long>(nx) * ny; }
  friend bool operator==(GridSize, GridSize) = default;
};

/// Consecutive unknowns in one direction: first, first + 1, ..., first + count - 1.
struct Range {
  int first = 0;
  int count = 0;
  [[nodiscard]] int end() const { return first + count; }
};

/// Part `index` of `total` unknowns that are cut into `parts`. The sizes of the parts differ by at most one.
[[nodiscard]] Range part_of(int total, int parts, int index);

/// The block of the cell at (cell_x, cell_y). Numbers of unknowns are those of the whole grid.
struct Block {
  GridSize grid;   ///< The whole grid of unknowns.
  GridSize cells;  ///< The whole grid of cells.
  int cell_x = 0;
  int cell_y = 0;
  Range x;
  Range y;

  [[nodiscard]] bool has_west() const { return cell_x > 0; }
  [[nodiscard]] bool has_east() const { return cell_x + 1 < cells.nx; }
  [[nodiscard]] bool has_south() const { return cell_y > 0; }
  [[nodiscard]] bool has_north() const { return cell_y + 1 < cells.ny; }
};

[[nodiscard]] Block block_of(GridSize grid, GridSize cells, int cell_x, int cell_y);

/// Why these cells cannot share this grid, and what helps. Empty when they can.
[[nodiscard]] std::string decomposition_problem(GridSize grid, GridSize cells);

inline constexpr std::ptrdiff_t cache_line_doubles = 8;

/// One value per unknown of a block and a frame of halo values, laid out for the vector loops. Rows are `stride`
/// doubles apart, and each starts on a cache line. With nx unknowns in a row:
///     row(j)[0 .. nx-1]   the unknowns
///     row(j)[nx]          halo: the east neighbour's value
///     row(j)[-1]          halo: the west neighbour's value (in the last place of the row before)
///     row(-1), row(ny)    halo: rows of the south and the north neighbour
///
/// At the edge of the square the halo stays 0, because boundary values are part of the right-hand side.
///
/// What the loops call is always inlined. Otherwise the linker might keep a copy that was compiled for a wider
/// instruction set, for all callers.
class Field {
 public:
  /// `place`: 0, 1 or 2, different for each of the fields that loops use together. It sets the field's offset in a
  /// page. Loads and stores at equal offsets would make a processor wait, because it first compares only the low bits
  /// of addresses.
  Field(int nx, int ny, int place = 0);

  [[nodiscard, gnu::always_inline]] int nx() const { return nx_; }
  [[nodiscard, gnu::always_inline]] int ny() const { return ny_; }
  [[nodiscard, gnu::always_inline]] std::ptrdiff_t stride() const { return stride_; }

  /// Row j, -1 <= j <= ny.
  [[nodiscard, gnu::always_inline]] double* row(int j) { return first_ + j * stride_; }
  [[nodiscard, gnu::always_inline]] const double* row(int j) const { return first_ + j * stride_; }

  /// Sets all values to 0, halo included.
  void clear();

 private:
  struct Free {
    void operator()(double* memory) const { ::operator delete[](memory, std::align_val_t{alignment}); }
  };
  static constexpr std::size_t alignment = 4096;

  int nx_;
  int ny_;
  std::ptrdiff_t stride_;
  std::size_t count_;
  std::unique_ptr<double[], Free> memory_;
  double* first_ = nullptr;
};

/// Halo exchange: neighbouring cells send each other the unknowns along their common side. The rows of a field are
/// contiguous, so they are sent directly. Its columns are first copied into columns(). Call from: a task of a cell.
/// send() never waits (xy_send is buffered); receive() waits for the neighbours' send(). A column touches a cache line
/// of every row, so it goes into the field only when a loop is about to read these rows anyway: place_columns().
class Halo {
 public:
  explicit Halo(const Block& block);

  /// The first and the last column of a field, one number per row. The caller fills them in before send().
  struct Columns {
    std::vector<double> west;
    std::vector<double> east;
  };
  [[nodiscard]] Columns& columns() { return mine_; }

  /// Sends this block's sides to the four neighbours: columns() and the field's first and last row.
  void send(const Field& field);

  /// Receives the neighbours' sides: rows into the halo, columns into neighbours().
  void receive(Field& field);

  /// The neighbours' columns that receive() has received; 0 before that, and at the edge of the square.
  [[nodiscard]] const Columns& neighbours() const { return theirs_; }

  /// Puts neighbours() into the halo.
  void place_columns(Field& field) const;

  /// The whole exchange in two steps: first along x, then along y with the new corners. It is slower, but also fills
  /// the corners of the halo.
  void exchange_with_corners(Field& field);

 private:
  void send_columns();
  void receive_columns();
  void send_rows(const Field& field, int first, int count);
  void receive_rows(Field& field, int first, int count);

  Block block_;
  Columns mine_;
  Columns theirs_;
};

}  // namespace scg
