// SPDX-License-Identifier: MIT
#include "halo.hpp"

#include <aplib/cellos.h>

namespace scg {

namespace {

/// Message types say which way a side travels.
enum Way { to_west = 1, to_east, to_south, to_north };

constexpr int size_of(int count) { return count * static_cast<int>(sizeof(double)); }

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
  receive_columns(field);
  receive_rows(field, 0, field.nx());
}

void Halo::exchange_with_corners(Field& field) {
  for (int j = 0; j < field.ny(); ++j) {
    mine_.west[static_cast<std::size_t>(j)] = field.row(j)[0];
    mine_.east[static_cast<std::size_t>(j)] = field.row(j)[field.nx() - 1];
  }
  send_columns();
  receive_columns(field);
  send_rows(field, -1, field.nx() + 2);
  receive_rows(field, -1, field.nx() + 2);
}

// xy_send(dx, dy, type, buffer, size) sends to the cell dx to the east and dy to the north of the caller. The buffer
// may be used again as soon as it returns.
void Halo::send_columns() {
  const auto send_column = [&](const std::vector<double>& column, int dx, Way way) {
    xy_send(dx, 0, way, column.data(), size_of(block_.y.count));
  };
  if (block_.has_west()) send_column(mine_.west, -1, to_west);
  if (block_.has_east()) send_column(mine_.east, +1, to_east);
}

void Halo::send_rows(const Field& field, int first, int count) {
  const auto send_row = [&](int j, int dy, Way way) { xy_send(0, dy, way, field.row(j) + first, size_of(count)); };
  if (block_.has_south()) send_row(0, -1, to_south);
  if (block_.has_north()) send_row(field.ny() - 1, +1, to_north);
}

// xy_recvs(dx, dy, type, buffer, size) waits for a message from the cell at (dx, dy) and stores it: what comes from
// the west travelled to the east.
void Halo::receive_columns(Field& field) {
  const auto receive_column = [&](std::vector<double>& column, int i, int dx, Way way) {
    xy_recvs(dx, 0, way, column.data(), size_of(block_.y.count));
    for (int j = 0; j < field.ny(); ++j) field.row(j)[i] = column[static_cast<std::size_t>(j)];
  };
  if (block_.has_west()) receive_column(theirs_.west, -1, -1, to_east);
  if (block_.has_east()) receive_column(theirs_.east, field.nx(), +1, to_west);
}

void Halo::receive_rows(Field& field, int first, int count) {
  const auto receive_row = [&](int j, int dy, Way way) { xy_recvs(0, dy, way, field.row(j) + first, size_of(count)); };
  if (block_.has_south()) receive_row(-1, -1, to_north);
  if (block_.has_north()) receive_row(field.ny(), +1, to_south);
}

}  // namespace scg
