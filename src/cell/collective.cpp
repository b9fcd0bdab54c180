// SPDX-License-Identifier: MIT
#include "cell/collective.hpp"

#include <fmt/format.h>

#include <iterator>

namespace aplib {

namespace {

const char* name_of(NumberType type) noexcept {
  switch (type) {
    case NumberType::int32:
      return "int";
    case NumberType::float32:
      return "float";
    case NumberType::float64:
      return "double";
    case NumberType::int64:
      return "long";
    case NumberType::uint32:
      return "unsigned int";
    case NumberType::uint64:
      return "unsigned long";
  }
  return "?";
}

const char* name_of(ReduceOp op) noexcept {
  constexpr const char* names[] = {"sum", "max", "min", "or", "and", "xor"};
  static_assert(std::size(names) == static_cast<std::size_t>(ReduceOp::last) + 1);
  return names[static_cast<std::size_t>(op)];
}

}  // namespace

std::string describe(const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveKind::barrier:
      return call.call;
    case CollectiveKind::reduce:
      return fmt::format("{} ({} of {}{})", call.call, name_of(call.combine.op), name_of(call.combine.type),
                         call.combine.located ? " with location" : "");
    case CollectiveKind::broadcast:
      return fmt::format("{} ({} bytes from cell {})", call.call, call.bytes, call.root);
  }
  return call.call;
}

}  // namespace aplib
