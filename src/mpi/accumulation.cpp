// SPDX-License-Identifier: MIT
#include "mpi/accumulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "mpi/error.hpp"

namespace aplib::mpi {

namespace {

/// The basic type that all elements of a datatype have; nothing: they have several.
std::optional<BasicType> element_type_of(const Datatype& type) {
  const Datatype* leaf = &type;
  while (leaf->code() == BasicType::null) {
    const auto& parts = leaf->contents().types;
    const auto part = std::ranges::find_if(parts, [](const DatatypePtr& each) { return each->size() != 0; });
    if (part == parts.end()) return std::nullopt;
    leaf = part->get();
  }
  const Digest one = leaf->signature().digest();
  if (leaf != &type && type.signature().digest() != one.times(type.size() / leaf->size())) return std::nullopt;
  return leaf->code();
}

/// Some elements of a basic type as an array.
class ElementArray {
 public:
  explicit ElementArray(const Datatype& type) noexcept : type_(type) {}

  [[nodiscard]] Count room() const noexcept { return static_cast<Count>(memory_.size()) / type_.extent(); }
  [[nodiscard]] void* data() noexcept { return memory_.data(); }
  [[nodiscard]] Elements first(Count count) noexcept { return {data(), &type_.layout(), count, type_.extent()}; }

 private:
  const Datatype& type_;
  alignas(16) std::array<std::byte, 2048> memory_;
};

void copy_part(const Elements& to, Count to_first, const Elements& from, Count from_first, Count bytes) noexcept {
  Cursor to_cursor(to, to_first);
  Cursor from_cursor(from, from_first);
  copy(to_cursor, from_cursor, bytes);
}

}  // namespace

Accumulation::Accumulation(Operation operation, BasicType type) noexcept
    : operation_(operation), type_(type), kernel_(is_copy() ? nullptr : kernel_of(operation, type)) {}

Accumulation::Accumulation(Operation operation, const Datatype& target) : operation_(operation) {
  if (operation == Operation::none)
    fail(MPI_ERR_OP, "op is an operation of the program; use a predefined one, as MPI_SUM or MPI_REPLACE");
  if (target.size() == 0) return;
  const std::optional<BasicType> type = element_type_of(target);
  if (!type && is_copy()) return;
  if (!type)
    fail(MPI_ERR_TYPE, "target_datatype has elements of several types; use one whose elements are all the same");
  *this = Accumulation(operation, *type);
  if (!is_defined()) {
    fail(MPI_ERR_OP, fmt::format("op is {}, which is not defined for {}", name_of(operation), basic_info(*type).name));
  }
}

void Accumulation::check_origin(const Datatype& origin) const {
  if (kernel_ == nullptr || origin.size() == 0 || origin.code() == type_) return;
  const auto digest = [](BasicType type) { return Datatype::named(type)->signature().digest(); };
  const std::optional<BasicType> type = element_type_of(origin);
  if (!type || digest(*type) != digest(type_)) {
    fail(MPI_ERR_TYPE, fmt::format("target_datatype has elements of {}, origin_datatype others; let them agree",
                                   basic_info(type_).name));
  }
}

/// Elements side by side, as the kernel wants them.
bool Accumulation::is_plain(const Elements& elements) const noexcept {
  const BasicInfo& info = basic_info(type_);
  const char* const place = elements.contiguous();
  return place != nullptr && reinterpret_cast<std::uintptr_t>(place) % info.alignment == 0 &&
         info.size % info.alignment == 0;
}

// Some elements at a time.
void Accumulation::combine_scattered(const Elements& target, const Elements& origin, Count first,
                                     Count bytes) const noexcept {
  const Datatype& type = *Datatype::named(type_);
  ElementArray left(type);
  ElementArray right(type);
  for (const Count end = first + bytes; first < end;) {
    const Count count = std::min(left.room(), (end - first) / type.size());
    const Count part = count * type.size();
    copy_part(left.first(count), 0, origin, first, part);
    copy_part(right.first(count), 0, target, first, part);
    kernel_(left.data(), right.data(), right.data(), count);
    copy_part(target, first, right.first(count), 0, part);
    first += part;
  }
}

void compare_and_swap(WindowBoard::Member& member, void* target, const void* value, const void* compared, void* result,
                      std::size_t bytes) noexcept {
  const std::lock_guard lock(*member.combining);
  const bool is_equal = std::memcmp(target, compared, bytes) == 0;
  std::memcpy(result, target, bytes);
  if (is_equal) std::memcpy(target, value, bytes);
}

void Accumulation::combine(WindowBoard::Member& member, const Elements& target, const Elements& origin,
                           const Elements* result, Count bytes) const {
  constexpr Count locked_bytes = 16 * 1024;
  const bool plain = kernel_ != nullptr && is_plain(target) && is_plain(origin);
  const Count step = locked_bytes / size() * size();
  for (Count first = 0; first < bytes; first += step) {
    const Count part = std::min(step, bytes - first);
    const std::lock_guard lock(*member.combining);
    if (result != nullptr) copy(*result, target, first, part);
    if (only_reads()) continue;
    if (kernel_ == nullptr) {
      copy(target, origin, first, part);
    } else if (plain) {
      char* const into = target.contiguous() + first;
      kernel_(origin.contiguous() + first, into, into, part / size());
    } else {
      combine_scattered(target, origin, first, part);
    }
  }
}

}  // namespace aplib::mpi
