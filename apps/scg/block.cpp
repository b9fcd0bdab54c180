// SPDX-License-Identifier: MIT
#include "block.hpp"

#include <aplib/cellos.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace scg {

Range part_of(int total, int parts, int index) {
  const auto begin = [&](long long i) { return static_cast<int>(total * i / parts); };
  return {begin(index), begin(index + 1) - begin(index)};
}

Block block_of(GridSize grid, GridSize cells, int cell_x, int cell_y) {
  return {grid, cells, cell_x, cell_y, part_of(grid.nx, cells.nx, cell_x), part_of(grid.ny, cells.ny, cell_y)};
}

std::string decomposition_problem(GridSize grid, GridSize cells) {
  if (cells.nx <= grid.nx && cells.ny <= grid.ny) return {};
  return fmt::format(
      "{}x{} cells cannot share a grid of {}x{} unknowns, because each cell needs at least one column and one row; the "
      "largest grid of cells possible is {}x{}: use --cells {}x{} or a larger --grid",
      cells.nx, cells.ny, grid.nx, grid.ny, grid.nx, grid.ny, std::min(cells.nx, grid.nx), std::min(cells.ny, grid.ny));
}

namespace {
constexpr std::ptrdiff_t place_doubles = 168;  // a third of a page of 4096 bytes, in whole cache lines

/// Room for nx unknowns and the two halo values in the same row, in whole cache lines.
std::ptrdiff_t padded(int nx) {
  const std::ptrdiff_t wanted = nx + 2;
  return (wanted + cache_line_doubles - 1) / cache_line_doubles * cache_line_doubles;
}
}  // namespace

Field::Field(int nx, int ny, int place)
    : nx_(nx),
      ny_(ny),
      stride_(padded(nx)),
      // One cache line before the first row, for its west halo, and one after the last: the loops load one vector
      // ahead.
      count_(static_cast<std::size_t>((ny + 2) * stride_ + 2 * cache_line_doubles + place * place_doubles)),
      memory_(
          static_cast<double*>(::operator new[](count_ * sizeof(double), std::align_val_t{alignment}, std::nothrow))) {
  if (memory_ == nullptr) {
    throw std::runtime_error(
        fmt::format("scg: no memory for a block of {} x {} unknowns, which takes 3 x {:.1f} GB: use a smaller --grid",
                    nx, ny, static_cast<double>(count_ * sizeof(double)) / 1e9));
  }
  first_ = memory_.get() + cache_line_doubles + stride_ + place * place_doubles;
  clear();
}

void Field::clear() { std::fill_n(memory_.get(), count_, 0.0); }

namespace {

/// Message types name the direction in which a side travels.
enum Direction { to_west = 1, to_east, to_south, to_north };

constexpr int bytes_of_doubles(int count) { return count * static_cast<int>(sizeof(double)); }

}  // namespace

Halo::Halo(const Block& block) : block_(block) {
  for (Columns* columns : {&mine_, &theirs_}) {
    columns->west.resize(static_cast<std::size_t>(block.y.count));
    columns->east.resize(static_cast<std::size_t>(block.y.count));
  }
}

void Halo::send(const Field& field) {
  send_columns();
  send_rows(field, 0, field.nx());
}

void Halo::receive(Field& field) {
  receive_columns();
  receive_rows(field, 0, field.nx());
}

void Halo::exchange_with_corners(Field& field) {
  for (int j = 0; j < field.ny(); ++j) {
    mine_.west[static_cast<std::size_t>(j)] = field.row(j)[0];
    mine_.east[static_cast<std::size_t>(j)] = field.row(j)[field.nx() - 1];
  }
  send_columns();
  receive_columns();
  place_columns(field);
  send_rows(field, -1, field.nx() + 2);
  receive_rows(field, -1, field.nx() + 2);
}

// xy_send(dx, dy, type, buffer, size) sends to the cell that is dx steps east and dy steps north of the caller. The
// buffer may be reused as soon as the call returns.
void Halo::send_columns() {
  const auto send_column = [&](const std::vector<double>& column, int dx, Direction direction) {
    xy_send(dx, 0, direction, column.data(), bytes_of_doubles(block_.y.count));
  };
  if (block_.has_west()) send_column(mine_.west, -1, to_west);
  if (block_.has_east()) send_column(mine_.east, +1, to_east);
}

void Halo::send_rows(const Field& field, int first, int count) {
  const auto send_row = [&](int j, int dy, Direction direction) {
    xy_send(0, dy, direction, field.row(j) + first, bytes_of_doubles(count));
  };
  if (block_.has_south()) send_row(0, -1, to_south);
  if (block_.has_north()) send_row(field.ny() - 1, +1, to_north);
}

// xy_recvs(dx, dy, type, buffer, size) waits for a message from the cell at (dx, dy) and stores it. A message from the
// west has travelled to the east.
void Halo::receive_columns() {
  const auto receive_column = [&](std::vector<double>& column, int dx, Direction direction) {
    xy_recvs(dx, 0, direction, column.data(), bytes_of_doubles(block_.y.count));
  };
  if (block_.has_west()) receive_column(theirs_.west, -1, to_east);
  if (block_.has_east()) receive_column(theirs_.east, +1, to_west);
}

void Halo::place_columns(Field& field) const {
  const auto place_column = [&](const std::vector<double>& column, int i) {
    for (int j = 0; j < field.ny(); ++j) field.row(j)[i] = column[static_cast<std::size_t>(j)];
  };
  if (block_.has_west()) place_column(theirs_.west, -1);
  if (block_.has_east()) place_column(theirs_.east, field.nx());
}

void Halo::receive_rows(Field& field, int first, int count) {
  const auto receive_row = [&](int j, int dy, Direction direction) {
    xy_recvs(0, dy, direction, field.row(j) + first, bytes_of_doubles(count));
  };
  if (block_.has_south()) receive_row(-1, -1, to_north);
  if (block_.has_north()) receive_row(field.ny(), +1, to_south);
}

}  // namespace scg
