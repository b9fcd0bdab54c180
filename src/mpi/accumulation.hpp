// SPDX-License-Identifier: MIT
// Accumulation: how a one-sided call combines elements of its own with those in a window.
//
// Who combines holds the lock of the target's memory. So each element changes at once for all such calls, whatever
// their datatypes; large ones give the lock away now and then.
#pragma once

#include <optional>

#include "mpi/datatype.hpp"
#include "mpi/op.hpp"
#include "mpi/window_board.hpp"

namespace aplib::mpi {

class Accumulation {
 public:
  /// Fails unless the operation is defined for elements of the target's datatype.
  Accumulation(Operation operation, const Datatype& target);
  /// Of a basic type.
  Accumulation(Operation operation, BasicType type) noexcept;

  /// Nothing is changed, and there is no origin.
  [[nodiscard]] bool only_reads() const noexcept { return operation_ == Operation::no_op; }
  /// The target's elements are replaced, or stay.
  [[nodiscard]] bool is_copy() const noexcept { return operation_ == Operation::replace || only_reads(); }
  [[nodiscard]] Operation operation() const noexcept { return operation_; }
  [[nodiscard]] BasicType type() const noexcept { return type_; }
  /// Bytes of an element; 1 where elements of several types are replaced or stay.
  [[nodiscard]] Count size() const noexcept { return basic_info(type_).size; }
  /// The operation is defined.
  [[nodiscard]] bool is_defined() const noexcept { return kernel_ != nullptr || is_copy(); }

  /// Fails unless the origin has the same elements.
  void check_origin(const Datatype& origin) const;

  /// Combines the first `bytes` bytes of both. `result`: gets what was in the target; null: nobody wants it.
  void combine(WindowBoard::Member& member, const Elements& target, const Elements& origin, const Elements* result,
               Count bytes) const;

 private:
  [[nodiscard]] bool is_plain(const Elements& elements) const noexcept;
  void combine_scattered(const Elements& target, const Elements& origin, Count first, Count bytes) const noexcept;

  Operation operation_;
  BasicType type_ = BasicType::byte;
  Kernel kernel_ = nullptr;  // null: is_copy()
};

/// What is in the target's memory goes to `result`. It becomes `value` if it is `compared`.
void compare_and_swap(WindowBoard::Member& member, void* target, const void* value, const void* compared, void* result,
                      std::size_t bytes) noexcept;

}  // namespace aplib::mpi
