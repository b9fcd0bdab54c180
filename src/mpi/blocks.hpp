// SPDX-License-Identifier: MIT
// What a program gives to collective calls that move data: a block for each rank, or elements for one.
#pragma once

#include <fmt/format.h>

#include "mpi/meeting.hpp"

namespace aplib::mpi {

/// A datatype that data travel as: fails unless it is committed.
inline TypeHandle& travelling(const Call& call, const char* parameter, MPI_Datatype handle) {
  TypeHandle& type = datatype_of(call, parameter, handle);
  static_cast<void>(committed(parameter, type));
  return type;
}

inline TypeHandle& travelling(const char* parameter, TypeHandle& type) {
  static_cast<void>(committed(parameter, type));
  return type;
}

inline void* moved(const void* address, Count bytes) noexcept {  // it may be MPI_BOTTOM
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) + static_cast<std::uintptr_t>(bytes));
}

/// A program's buffer with a block for each rank, and its names for errors.
class Blocks {
 public:
  /// Blocks of `count` elements, one behind the other.
  Blocks(const char* buffer_name, const void* buffer, MPI_Count count, const TypeHandle& type)
      : first_(buffer_elements(buffer_name, buffer, count, type)) {}
  /// Block i has counts[i] elements and begins displacements[i] elements behind the buffer's begin.
  Blocks(const char* buffer_name, const void* buffer, const char* counts_name, Numbers counts, const char* places_name,
         Numbers displacements, const TypeHandle& type, int size)
      : first_(buffer_elements(buffer_name, buffer, 0, type)),
        name_(buffer_name),
        counts_(counts),
        places_(displacements),
        type_(&type) {
    check(counts_name, places_name, size);
  }
  /// The same with a type for each block; displacements are bytes.
  Blocks(const Call& call, const char* buffer_name, const void* buffer, const char* counts_name, Numbers counts,
         const char* places_name, Numbers displacements, const char* types_name, const MPI_Datatype* types, int size)
      : first_(bytes_at(buffer, 0)),
        name_(buffer_name),
        counts_(counts),
        places_(displacements),
        call_(&call),
        types_name_(types_name),
        types_(types) {
    if (types == nullptr && size > 0) fail_null(types_name);
    if (buffer == MPI_IN_PLACE) fail(MPI_ERR_BUFFER, fmt::format("{} is MPI_IN_PLACE, which is not allowed", name_));
    check(counts_name, places_name, size);
  }

  /// Blocks of one size that together are few bytes.
  [[nodiscard]] bool are_small(int size) const noexcept {
    return counts_.is_null() && Meeting::is_small(first_.bytes()) && Meeting::is_small(first_.bytes() * size);
  }
  /// Shows the others their blocks. True: copies of them.
  bool show(Meeting& meeting) const {
    if (counts_.is_null()) return meeting.show_blocks(first_);
    meeting.show(
        Given{.block = [](const void* blocks, int rank) { return (*static_cast<const Blocks*>(blocks))[rank]; },
              .blocks = this});
    return false;
  }

  /// Of shown ones, other ranks call it, too: it makes nothing, and a check has found all blocks good.
  Elements operator[](int rank) const {
    const auto i = static_cast<std::size_t>(rank);
    if (counts_.is_null()) return part_of(first_, first_.count * rank, first_.count);
    if (types_ == nullptr)
      return elements_at(name_, moved(first_.address, bytes_of(places_[i], first_.extent)), counts_[i],
                         *type_->datatype);
    return elements_at(name_, moved(first_.address, places_[i]), counts_[i],
                       *travelling(*call_, types_name_, types_[i]).datatype);
  }

 private:
  static Count bytes_of(Count elements, Count extent) noexcept {
    return static_cast<Count>(static_cast<std::uintptr_t>(elements) * static_cast<std::uintptr_t>(extent));
  }

  // All errors come before the first message.
  void check(const char* counts_name, const char* places_name, int size) const {
    if (size == 0) return;
    if (counts_.is_null()) fail_null(counts_name);
    if (places_.is_null()) fail_null(places_name);
    for (int i = 0; i < size; ++i) {
      const MPI_Count count = counts_[static_cast<std::size_t>(i)];
      if (count < 0) fail_count(fmt::format("{}[{}]", counts_name, i).c_str(), count);
      static_cast<void>((*this)[i]);
    }
  }

  Elements first_;  // of equal blocks; otherwise its count is 0
  const char* name_ = nullptr;
  Numbers counts_{static_cast<const int*>(nullptr)};
  Numbers places_{static_cast<const int*>(nullptr)};
  const TypeHandle* type_ = nullptr;
  const Call* call_ = nullptr;
  const char* types_name_ = nullptr;
  const MPI_Datatype* types_ = nullptr;
};

/// What the caller sends to one rank, or to all.
inline Elements sent_elements(const Call& call, const char* buffer_name, const void* buffer, const char* count_name,
                              MPI_Count count, const char* type_name, MPI_Datatype handle) {
  TypeHandle& type = travelling(call, type_name, handle);
  check_count(call, count_name, count);
  return buffer_elements(buffer_name, buffer, count, type);
}

}  // namespace aplib::mpi
