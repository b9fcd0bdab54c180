// SPDX-License-Identifier: MIT
// What a program gives to collective calls that move data: a block for each rank, or elements for one.
#pragma once

#include "mpi/meeting.hpp"

namespace aplib::mpi {

/// A datatype that data travel as: fails unless it is committed.
TypeHandle& travelling(const Call& call, const char* parameter, MPI_Datatype handle);

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
  Blocks(const Call& call, const char* buffer_name, const void* buffer, const char* counts_name, Numbers counts,
         const char* places_name, Numbers displacements, const TypeHandle& type, int size)
      : first_(buffer_elements(buffer_name, buffer, 0, type)),
        name_(buffer_name),
        counts_(call.kept(counts, size)),
        places_(call.kept(displacements, size)),
        type_(&type) {
    check(counts_name, places_name, size);
  }
  /// The same with a type for each block; displacements are bytes.
  Blocks(const Call& call, const char* buffer_name, const void* buffer, const char* counts_name, Numbers counts,
         const char* places_name, Numbers displacements, const char* types_name, const MPI_Datatype* types, int size);

  /// Blocks of one size that together are few bytes.
  [[nodiscard]] bool are_small(int size) const noexcept {
    return counts_.is_null() && Meeting::is_small(first_.bytes()) && Meeting::is_small(first_.bytes() * size);
  }
  /// Shows the others their blocks. True: copies of them.
  bool show(Meeting& meeting) const;

  /// Of shown ones, other ranks call it, too: it makes nothing, and a check has found all blocks good.
  Elements operator[](int rank) const;

 private:
  /// Of a block without elements, programs may give no type.
  [[nodiscard]] bool has_no_type(std::size_t i) const noexcept {
    return counts_[i] == 0 && types_[i] == MPI_DATATYPE_NULL;
  }
  static Count bytes_of(Count elements, Count extent) noexcept {
    return static_cast<Count>(static_cast<std::uintptr_t>(elements) * static_cast<std::uintptr_t>(extent));
  }

  void check(const char* counts_name, const char* places_name, int size) const;

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
Elements sent_elements(const Call& call, const char* buffer_name, const void* buffer, const char* count_name,
                       MPI_Count count, const char* type_name, MPI_Datatype handle);

}  // namespace aplib::mpi
