// SPDX-License-Identifier: MIT
// Operations of reductions: the predefined ones, which are loops over elements of one basic type, and those of
// programs.
#pragma once

#include "mpi/basic_type.hpp"
#include "mpi/handles.hpp"
#include "mpi/layout.hpp"
#include "mpi/object.hpp"

namespace aplib::mpi {

struct TypeHandle;

/// The values of the predefined handles.
enum class Operation : std::uint8_t {
  none = 0x20,
  sum = 0x21,
  min = 0x22,
  max = 0x23,
  product = 0x24,
  bit_and = 0x28,
  bit_or = 0x29,
  bit_xor = 0x2a,
  logical_and = 0x30,
  logical_or = 0x31,
  logical_xor = 0x32,
  min_location = 0x38,
  max_location = 0x39,
  replace = 0x3c,
  no_op = 0x3d,
};

/// As in programs: MPI_SUM.
[[nodiscard]] const char* name_of(Operation operation) noexcept;

/// What a handle MPI_Op points to.
struct OpHandle : Object {
  static constexpr ObjectKind kind = ObjectKind::op;

  OpHandle(Rank& rank, Operation operation) : Object(rank, kind), predefined(operation) {}

  Operation predefined;  ///< None: one of the program.
  bool is_commutative = true;
  // Of the program: one of them.
  MPI_User_function* function = nullptr;
  MPI_User_function_c* large_function = nullptr;
  AplibMpiOpCaller* caller = nullptr;  ///< Of the function; null: this library.
};

OpHandle& op_of(const Call& call, const char* parameter, MPI_Op handle);

/// into[i] = left[i] op right[i]. `into` is `right`, or overlaps neither.
using Kernel = void (*)(const void* left, const void* right, void* into, Count count);

/// Null: the operation is not defined for the type.
[[nodiscard]] Kernel kernel_of(Operation operation, BasicType type) noexcept;

/// An operation on elements of a type.
class Combine {
 public:
  /// Fails unless the operation is defined for the type, which is committed.
  Combine(OpHandle& op, TypeHandle& type);

  /// right[i] = left[i] op right[i]. The two do not overlap.
  void operator()(const void* left, void* right, Count count) const;
  /// The same in memory of its own. REQUIRES: is_predefined().
  void operator()(const void* left, const void* right, void* into, Count count) const {
    kernel_(left, right, into, count);
  }

  [[nodiscard]] Operation operation() const noexcept { return op_.predefined; }
  /// Any rank may carry it out for others.
  [[nodiscard]] bool is_predefined() const noexcept { return kernel_ != nullptr; }

 private:
  void call_function(const void* left, void* right, Count count) const;

  OpHandle& op_;
  TypeHandle& type_;
  Kernel kernel_ = nullptr;
};

}  // namespace aplib::mpi
