// SPDX-License-Identifier: MIT
// The form that Open MPI gives to handles, statuses and addresses: of convert.hpp, for libmpi.so.40.
//
// A predefined handle is the address of an exported object, in whose first word the standard's handle is. A program may
// have a copy of that object (COPY relocations), with the same word. All other handles are the same in both forms: what
// they point to begins with a pointer. So conversion is a load.
#pragma once

#include "mpi/front/numbers.hpp"

namespace aplib::mpi::front {

template <class Handle>
using Foreign = Handle;

/// What the address of is a predefined handle; `bytes` as Open MPI has it, so that programs copy all of it and no more.
template <std::size_t bytes>
struct Predefined {
  std::uintptr_t handle;
  std::array<std::byte, bytes - sizeof(std::uintptr_t)> rest{};
};

/// By the standard's handle; null: Open MPI has none.
extern const std::array<const void*, handles_end> objects;

template <class Handle>
Handle standard(Handle handle) noexcept {
  if (value_of(handle) < predefined_end) [[unlikely]]
    return handle;  // none, which the function says
  Handle word;
  std::memcpy(&word, static_cast<const void*>(handle), sizeof word);
  return value_of(word) < predefined_end ? word : handle;
}

template <class Handle>
Handle foreign(Handle handle) noexcept {
  const std::uintptr_t value = value_of(handle);
  if (value >= handles_end || objects[value] == nullptr) return handle;
  return static_cast<Handle>(const_cast<void*>(objects[value]));
}

template <class Handle>
MPI_Errhandler errhandler_for(MPI_Errhandler errhandler) noexcept {
  return standard(errhandler);
}

/// What a function gives is converted where the program has it.
template <class Handle, bool is_inout>
class MadeArray {
 public:
  MadeArray(Handle* places, long count) noexcept : places_(places), count_(places == nullptr ? 0 : count) {
    if constexpr (is_inout) {
      for (long i = 0; i < count_; ++i) places_[i] = standard(places_[i]);
    }
  }
  [[nodiscard]] Handle* data() const noexcept { return places_; }
  void give() const noexcept {
    for (long i = 0; i < count_; ++i) places_[i] = foreign(places_[i]);
  }

 private:
  Handle* places_;
  long count_;
};

template <class Handle, bool is_inout>
class Made : public MadeArray<Handle, is_inout> {
 public:
  explicit Made(Handle* place) noexcept : MadeArray<Handle, is_inout>(place, 1) {}
};

template <class Handle>
MPI_Fint number_of(Handle handle, MPI_Fint (*toint)(Handle)) {
  const Handle its = standard(handle);
  return value_of(its) < handles_end ? fortran_numbers[value_of(its)] : toint(its);
}
template <class Handle>
Handle handle_of(MPI_Fint number, Handle (*fromint)(MPI_Fint)) {
  const auto index = static_cast<std::size_t>(number);
  if (index >= fortran_handles<Handle>.size()) return foreign(fromint(number));
  return foreign(reinterpret_cast<Handle>(fortran_handles<Handle>[index]));
}

struct ForeignStatus {
  int source;
  int tag;
  int error;
  int is_cancelled;
  std::size_t bytes;
};

inline bool is_ignored(const ForeignStatus* place) noexcept { return place == nullptr; }

inline MPI_Status standard_status(const ForeignStatus& status) noexcept {
  MPI_Status result{};
  result.MPI_SOURCE = static_cast<int>(standard_rank(status.source));
  result.MPI_TAG = static_cast<int>(standard_any_tag(status.tag));
  result.MPI_ERROR = static_cast<int>(standard_code(status.error));
  std::memcpy(result.MPI_internal, &status.bytes, sizeof status.bytes);
  result.MPI_internal[2] = status.is_cancelled;
  return result;
}

/// Writes what was written to `status`.
inline void give_status(const MPI_Status& status, ForeignStatus& place) noexcept {
  if (status.MPI_SOURCE != unwritten) {
    place.source = static_cast<int>(foreign_rank(status.MPI_SOURCE));
    place.tag = static_cast<int>(foreign_any_tag(status.MPI_TAG));
    place.is_cancelled = status.MPI_internal[2];
    std::memcpy(&place.bytes, status.MPI_internal, sizeof place.bytes);
  }
  if (status.MPI_ERROR != unwritten) place.error = static_cast<int>(foreign_code(status.MPI_ERROR));
}

/// MPI_BUFFER_AUTOMATIC of Open MPI 6. MPI_IN_PLACE is the same.
inline void* const automatic = reinterpret_cast<void*>(std::uintptr_t{4});

template <class Pointer>
Pointer buffer_at(Pointer place) noexcept {
  return place == automatic ? MPI_BUFFER_AUTOMATIC : place;
}

inline void* foreign_buffer(void* place) noexcept { return place == MPI_BUFFER_AUTOMATIC ? automatic : place; }

template <class Int>
Int* weights_at(Int* place) noexcept {
  static int* const unweighted = reinterpret_cast<int*>(2);
  static int* const empty = reinterpret_cast<int*>(3);
  return place == unweighted ? MPI_UNWEIGHTED : place == empty ? MPI_WEIGHTS_EMPTY : place;
}

}  // namespace aplib::mpi::front
