// SPDX-License-Identifier: MIT
// Halo exchange: neighbouring cells give each other the unknowns along their common side.
#pragma once

#include <vector>

#include "decomposition.hpp"
#include "field.hpp"

namespace scg {

/// The rows of a field are contiguous and are sent as they lie; its columns are set aside first, in columns().
/// Call from: a task of a cell. send() never waits (xy_send is buffered); receive() waits for the neighbours' send().
class Halo {
 public:
  explicit Halo(const Block& block);

  /// Where to put the first and the last column of a field before send(): one number a row.
  struct Columns {
    std::vector<double> west;
    std::vector<double> east;
  };
  [[nodiscard]] Columns& columns() { return mine_; }

  /// Gives this block's sides to the four neighbours: columns() and the field's first and last row.
  void send(const Field& field);

  /// Takes the neighbours' sides into the halo.
  void receive(Field& field);

  /// The columns of the neighbours that receive() has taken; 0 at the edge of the square.
  [[nodiscard]] const Columns& neighbours() const { return theirs_; }

  /// All of it in two steps, first along x and then along y with the new corners: slower, but fills the corners of the
  /// halo too.
  void exchange_with_corners(Field& field);

 private:
  void send_columns();
  void receive_columns(Field& field);
  void send_rows(const Field& field, int first, int count);
  void receive_rows(Field& field, int first, int count);

  Block block_;
  Columns mine_;
  Columns theirs_;
};

}  // namespace scg
