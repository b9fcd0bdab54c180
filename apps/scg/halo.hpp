// SPDX-License-Identifier: MIT
// Halo exchange: neighbouring cells give each other the unknowns along their common side.
#pragma once

#include <vector>

#include "decomposition.hpp"
#include "field.hpp"

namespace scg {

/// Call from: a task of a cell. send() never waits (xy_send is buffered); receive() waits for the neighbours' send().
class Halo {
 public:
  explicit Halo(const Block& block);

  /// Gives this block's sides to the four neighbours.
  void send(const Field& field);

  /// Takes the neighbours' sides into the halo.
  void receive(Field& field);

  /// The same in two steps, first along x and then along y with the new corners: slower, but fills the corners of the
  /// halo too.
  void exchange_with_corners(Field& field);

 private:
  void send_columns(const Field& field);
  void receive_columns(Field& field);
  void send_rows(const Field& field, int first, int count);
  void receive_rows(Field& field, int first, int count);

  Block block_;
  std::vector<double> column_;  ///< A column on its way: the rows of a field are contiguous, its columns are not.
};

}  // namespace scg
