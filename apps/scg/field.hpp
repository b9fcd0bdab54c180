// SPDX-License-Identifier: MIT
// Field: one value per unknown of a block, with a frame of halo values around it, laid out for the vector loops.
//
//   Rows of `stride` doubles, each row starting on a cache line. With nx unknowns in a row:
//
//     row(j)[0 .. nx-1]   the unknowns
//     row(j)[nx]          halo: value of the east neighbour
//     row(j)[-1]          halo: value of the west neighbour (it lies in the last place of the row before)
//     row(-1), row(ny)    halo: rows of the south and the north neighbour
//
// Where the block ends at the edge of the square, the halo stays 0: boundary values are part of the right-hand side.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace scg {

inline constexpr std::ptrdiff_t cache_line_doubles = 8;

/// What the loops call is always inlined: a copy of it compiled for a wider instruction set must not serve all others.
class Field {
 public:
  /// `place`: which of the fields that loops use together this is, 0, 1 or 2. Fields in different places start at
  /// different offsets in a page: loads and stores at equal offsets make a processor wait, because it first compares
  /// only the low bits of addresses.
  Field(int nx, int ny, int place = 0);

  [[nodiscard, gnu::always_inline]] int nx() const { return nx_; }
  [[nodiscard, gnu::always_inline]] int ny() const { return ny_; }
  [[nodiscard, gnu::always_inline]] std::ptrdiff_t stride() const { return stride_; }

  /// Row j, -1 <= j <= ny.
  [[nodiscard, gnu::always_inline]] double* row(int j) { return first_ + j * stride_; }
  [[nodiscard, gnu::always_inline]] const double* row(int j) const { return first_ + j * stride_; }

  /// Everything back to 0, halo included.
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

}  // namespace scg
