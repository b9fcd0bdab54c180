// SPDX-License-Identifier: MIT
// The fixed tree of reductions. A node of level k covers the cells [a, a + 2^k), clipped at the number of cells; a is a
// multiple of 2^k. The node's value combines those of its two children; where the right child is empty, it is the left
// child's. Every processor combines along this one tree. So results have the same bits wherever the cells are, also
// those of floating-point numbers.
//
// Fold takes parts in the order of their first cell and merges siblings as soon as both are there. What remains are
// maximal subtrees ("pieces"), which a processor publishes for the cells it carries.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "aplib/collective.hpp"

namespace aplib {

/// One operand or result: the number's bits and, for max and min with location, who has it. `Operand x;` sets nothing,
/// because a Fold has room for many.
struct Operand {
  std::uint64_t bits;
  std::int32_t location;

  template <class T>
  static Operand of(T value, std::int32_t location = 0) noexcept {
    Operand operand{};
    std::memcpy(&operand.bits, &value, sizeof(T));
    operand.location = location;
    return operand;
  }
  template <class T>
  [[nodiscard]] T as() const noexcept {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
};

using detail::NumberType;

namespace detail {

template <class T>
Operand combine_numbers(ReduceOp op, bool located, const Operand& left, const Operand& right) noexcept {
  const T a = left.as<T>();
  const T b = right.as<T>();
  switch (op) {
    case ReduceOp::sum:
      if constexpr (std::is_integral_v<T>) {  // wraps around, as the machine does; signed overflow would be undefined
        using Unsigned = std::make_unsigned_t<T>;
        return Operand::of(static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
      } else {
        return Operand::of(a + b);
      }
    case ReduceOp::max:
      if (located && a == b) return left.location <= right.location ? left : right;
      return b > a ? right : left;
    case ReduceOp::min:
      if (located && a == b) return left.location <= right.location ? left : right;
      return b < a ? right : left;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case ReduceOp::bit_or:
        return Operand::of(a | b);
      case ReduceOp::bit_and:
        return Operand::of(a & b);
      case ReduceOp::bit_xor:
        return Operand::of(a ^ b);
      default:
        break;
    }
  }
  return left;
}

}  // namespace detail

/// What is combined and how.
struct Combine {
  ReduceOp op = ReduceOp::sum;
  NumberType type = NumberType::float64;
  bool located = false;

  [[nodiscard]] std::size_t number_bytes() const noexcept {
    return type == NumberType::int32 || type == NumberType::uint32 || type == NumberType::float32 ? 4 : 8;
  }
  [[nodiscard]] bool is_integral() const noexcept { return type != NumberType::float32 && type != NumberType::float64; }
  /// Floating-point numbers have no bits to combine.
  [[nodiscard]] bool needs_integers() const noexcept {
    return op == ReduceOp::bit_or || op == ReduceOp::bit_and || op == ReduceOp::bit_xor;
  }
  [[nodiscard]] Operand operator()(const Operand& left, const Operand& right) const noexcept {
    switch (type) {
      case NumberType::int32:
        return detail::combine_numbers<std::int32_t>(op, located, left, right);
      case NumberType::float32:
        return detail::combine_numbers<float>(op, located, left, right);
      case NumberType::int64:
        return detail::combine_numbers<std::int64_t>(op, located, left, right);
      case NumberType::uint32:
        return detail::combine_numbers<std::uint32_t>(op, located, left, right);
      case NumberType::uint64:
        return detail::combine_numbers<std::uint64_t>(op, located, left, right);
      case NumberType::float64:
        break;
    }
    return detail::combine_numbers<double>(op, located, left, right);
  }
};

/// left[i] = combine(left[i], right[i]), without locations.
inline void combine_arrays(const Combine& combine, void* left, const void* right, std::size_t count) noexcept {
  const auto loop = [&]<class T>(T) {
    auto* const into = static_cast<T*>(left);
    const auto* const from = static_cast<const T*>(right);
    for (std::size_t i = 0; i < count; ++i)
      into[i] =
          detail::combine_numbers<T>(combine.op, false, Operand::of(into[i]), Operand::of(from[i])).template as<T>();
  };
  switch (combine.type) {
    case NumberType::int32:
      return loop(std::int32_t{});
    case NumberType::float32:
      return loop(float{});
    case NumberType::int64:
      return loop(std::int64_t{});
    case NumberType::uint32:
      return loop(std::uint32_t{});
    case NumberType::uint64:
      return loop(std::uint64_t{});
    case NumberType::float64:
      return loop(double{});
  }
}

/// Invariants: (1) parts are pushed in the order of `first`, without gaps, and each is a node of the tree (is_node);
/// (2) the stack never holds two siblings, and so at most two parts of each level.
class Fold {
 public:
  struct Part {
    std::uint32_t first;
    std::uint32_t level;
    Operand value;
  };
  static constexpr std::uint32_t level_max = 19;  // of the tree: more cells than any machine has
  static constexpr std::uint32_t part_count_max = 2 * (level_max + 1);

  /// The tree has such a node. For parts that come from elsewhere.
  [[nodiscard]] static constexpr bool is_node(std::uint32_t first, std::uint32_t level) noexcept {
    return level <= level_max && first % (1U << level) == 0;
  }

  explicit Fold(Combine combine) noexcept : combine_(combine) {}

  void push(std::uint32_t first, std::uint32_t level, const Operand& value) noexcept {
    Part part{first, level, value};
    while (count_ > 0) {
      const Part& left = parts_[count_ - 1];
      if (left.level != part.level || ((left.first >> left.level) & 1U) != 0) break;
      part = Part{left.first, left.level + 1, combine_(left.value, part.value)};
      --count_;
    }
    parts_[count_++] = part;
  }

  /// From the start again.
  void clear() noexcept { count_ = 0; }

  /// The parts left, in order.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] const Part& part(std::uint32_t i) const noexcept { return parts_[i]; }

  [[nodiscard]] std::span<const Part> parts() const noexcept { return {parts_, count_}; }

  /// The value of the whole tree, all cells pushed from cell 0. Requires count() > 0.
  [[nodiscard]] Operand finish() const noexcept {
    Operand value = parts_[count_ - 1].value;
    for (std::uint32_t i = count_ - 1; i-- > 0;) value = combine_(parts_[i].value, value);
    return value;
  }

 private:
  Combine combine_;
  std::uint32_t count_ = 0;
  Part parts_[part_count_max];
};

/// The pieces of the tree that some of its cells make, for example those of one process. Cells are pushed in ascending
/// order, with gaps. Siblings stand side by side, so nothing merges across a gap: each run has a Fold.
class Pieces {
 public:
  explicit Pieces(Combine combine) noexcept : run_(combine) {}

  void push(std::uint32_t cell, const Operand& value) {
    if (cell != next_) end_run();
    run_.push(cell, 0, value);
    next_ = cell + 1;
  }
  /// All pieces, in order. REQUIRES: nothing is pushed afterwards.
  [[nodiscard]] std::span<const Fold::Part> parts() {
    if (parts_.empty()) return run_.parts();
    end_run();
    return parts_;
  }

 private:
  void end_run() {
    parts_.insert(parts_.end(), run_.parts().begin(), run_.parts().end());
    run_.clear();
  }

  Fold run_;
  std::uint32_t next_ = 0;
  std::vector<Fold::Part> parts_;  // of the runs before
};

}  // namespace aplib
