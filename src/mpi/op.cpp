// SPDX-License-Identifier: MIT
#include "mpi/op.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "kernel/program_threads.hpp"
#include "mpi/rank.hpp"
#include "mpi/type.hpp"

namespace aplib::mpi {

const char* name_of(Operation operation) noexcept {
  for (const Name* known = predefined_handles; known->name != nullptr; ++known) {
    if (known->value == static_cast<int>(operation)) return known->name;
  }
  return "the operation";
}

namespace {

OpHandle* find_predefined_op(Rank& rank, std::uintptr_t value) {
  constexpr std::uintptr_t first = 0x20;
  if (value <= first || value >= first + rank.predefined_ops.size()) return nullptr;
  OpHandle*& place = rank.predefined_ops[value - first];
  if (place == nullptr) {
    const char* const name = name_of(static_cast<Operation>(value));
    if (*name != 'M') return nullptr;  // a number between theirs
    place = new OpHandle(rank, static_cast<Operation>(value));
  }
  return place;
}

}  // namespace

OpHandle& op_of(const Call& call, const char* parameter, MPI_Op handle) {
  if (is_predefined(handle)) {
    if (OpHandle* const found = find_predefined_op(call.rank(), handle_value(handle)); found != nullptr) return *found;
  }
  return object_of<OpHandle>(MPI_ERR_OP, parameter, handle, "an operation");
}

Combine::Combine(OpHandle& op, TypeHandle& type) : op_(op), type_(type) {
  const Datatype& datatype = *committed("datatype", type);
  if (op.predefined == Operation::none) return;
  kernel_ = kernel_of(op.predefined, datatype.code());
  if (kernel_ != nullptr) return;
  if (op.predefined == Operation::replace || op.predefined == Operation::no_op)
    fail(MPI_ERR_OP, fmt::format("op is {}, which is for MPI_Accumulate and its kin alone", name_of(op.predefined)));
  fail(MPI_ERR_OP, datatype.code() == BasicType::null
                       ? fmt::format("{} is not defined for derived datatypes; make an operation by MPI_Op_create",
                                     name_of(op.predefined))
                       : fmt::format("{} is not defined for {}; use a datatype of the kind that it is for, or make an "
                                     "operation by MPI_Op_create",
                                     name_of(op.predefined), type.name));
}

void Combine::operator()(const void* left, void* right, Count count) const {
  if (count == 0) return;
  if (kernel_ != nullptr) {
    kernel_(left, right, right, count);
  } else {
    call_function(left, right, count);
  }
}

void Combine::call_function(const void* left, void* right, Count count) const {
  const api::InCallback callback;
  MPI_Datatype handle = type_.handle();
  void* const given = const_cast<void*>(left);  // the standard's functions have no const
  if (op_.large_function != nullptr) {
    MPI_Count length = count;
    if (op_.caller != nullptr)
      return op_.caller(reinterpret_cast<void (*)()>(op_.large_function), given, right, length, handle);
    return op_.large_function(given, right, &length, &handle);
  }
  const Count extent = type_.datatype->extent();
  for (Count done = 0; done < count;) {
    const Count part = std::min<Count>(count - done, INT_MAX);
    char* const in = static_cast<char*>(given) + done * extent;
    char* const inout = static_cast<char*>(right) + done * extent;
    if (op_.caller != nullptr) {
      op_.caller(reinterpret_cast<void (*)()>(op_.function), in, inout, part, handle);
    } else {
      int length = static_cast<int>(part);
      op_.function(in, inout, &length, &handle);
    }
    done += part;
  }
}

void op_create(const Call& call, MPI_User_function_c* function, int commute, MPI_Op* place) {
  check_place(call, "user_fn", reinterpret_cast<const void*>(function));
  auto* const op = new OpHandle(call.rank(), Operation::none);
  op->is_commutative = commute != 0;
  if (call.is_large()) {
    op->large_function = function;
  } else {
    op->function = reinterpret_cast<MPI_User_function*>(reinterpret_cast<void (*)()>(function));
  }
  *place = handle_of<MPI_Op>(*op);
}

void op_free(const Call& call, MPI_Op* place) {
  OpHandle& op = op_of(call, "op", *place);
  if (op.predefined != Operation::none)
    fail(MPI_ERR_OP, fmt::format("op is {}, which is predefined and cannot be freed", name_of(op.predefined)));
  op.release();
  *place = MPI_OP_NULL;
}

void op_commutative(const Call&, OpHandle& op, int* commute) { *commute = op.is_commutative ? 1 : 0; }

void reduce_local(const Call&, const void* inbuf, void* inoutbuf, MPI_Count count, TypeHandle& type, OpHandle& op) {
  const Combine combine(op, type);
  static_cast<void>(elements_at("inbuf", inbuf, count, *type.datatype));
  static_cast<void>(elements_at("inoutbuf", inoutbuf, count, *type.datatype));
  if (inbuf == inoutbuf && count > 0)
    fail(MPI_ERR_BUFFER, "inbuf and inoutbuf are the same memory; give two buffers that do not overlap");
  combine(inbuf, inoutbuf, count);
}

}  // namespace aplib::mpi
