// SPDX-License-Identifier: MIT
// The form that MPICH gives to handles, statuses and addresses: of convert.hpp, for libmpi.so.12.
//
// A handle is a number, except a file's. MPICH's predefined numbers have a kind in their first six bits and an index in
// their last seven, and none has both of the first two bits. All other handles are the numbers that Fortran has for
// them, with these two bits.
#pragma once

#include "mpi/front/numbers.hpp"

namespace aplib::mpi::front {

template <class Handle>
struct Number {
  unsigned value;
};

template <class Handle>
using Foreign = std::conditional_t<std::is_same_v<Handle, MPI_File>, MPI_File, Number<Handle>>;

inline constexpr unsigned made_bits = 3U << 30;

constexpr std::size_t place_of_number(unsigned number) noexcept { return number >> 26 << 7 | (number & 0x7f); }

/// Where in predefined_numbers a number is, plus 1; 0: nowhere. MPI_MESSAGE_NULL is MPI_REQUEST_NULL there.
inline constexpr auto places_of_numbers = [] {
  static_assert(std::size(predefined_numbers) <= UINT8_MAX);
  std::array<std::uint8_t, 1 << 13> places{};
  for (std::size_t i = 0; i < std::size(predefined_numbers); ++i) {
    std::uint8_t& place = places[place_of_number(predefined_numbers[i].number)];
    if (place == 0) place = static_cast<std::uint8_t>(i + 1);
  }
  return places;
}();
/// By the standard's handle; 0: MPICH has none.
inline constexpr auto numbers = [] {
  std::array<unsigned, handles_end> result{};
  for (const auto& [number, handle] : predefined_numbers) {
    if (result[handle] == 0) result[handle] = number;
  }
  return result;
}();

template <class Handle>
Handle standard(Number<Handle> handle) {
  if constexpr (std::is_same_v<Handle, MPI_Message>) {
    if (handle.value == numbers[value_of(MPI_MESSAGE_NULL)]) return MPI_MESSAGE_NULL;
  }
  if (const std::size_t place = places_of_numbers[place_of_number(handle.value)]; place != 0) {
    const auto& [number, predefined] = predefined_numbers[place - 1];
    if (number == handle.value) return reinterpret_cast<Handle>(std::uintptr_t{predefined});
  }
  if ((handle.value & made_bits) != made_bits) return nullptr;  // none, which the function says
  return static_cast<Handle>(aplib_mpi_handle(static_cast<int>(handle.value & ~made_bits)));
}
inline MPI_File standard(MPI_File file) noexcept { return file == nullptr ? MPI_FILE_NULL : file; }

/// C++ throws the error that a call returns where the error handler is this one, so that must be known from others that
/// return. In the standard ABI it is a handler of communicators, files or windows, which does nothing.
inline constexpr unsigned errors_throw = 0x5400'0002;
inline std::array<MPI_Errhandler, 3> throwing{};
template <class Handle>
void let_return(Handle*, int*, ...) {}

template <class Handle>
MPI_Errhandler errhandler_for(Number<MPI_Errhandler> errhandler) {
  if (errhandler.value != errors_throw) return standard(errhandler);
  constexpr std::size_t kind = std::is_same_v<Handle, MPI_Comm> ? 0 : std::is_same_v<Handle, MPI_File> ? 1 : 2;
  MPI_Errhandler& its = throwing[kind];
  if (its != nullptr) return its;
  if constexpr (kind == 0) own.Comm_create_errhandler(let_return<MPI_Comm>, &its);
  if constexpr (kind == 1) own.File_create_errhandler(let_return<MPI_File>, &its);
  if constexpr (kind == 2) own.Win_create_errhandler(let_return<MPI_Win>, &its);
  return its;
}

template <class Handle>
Foreign<Handle> foreign(Handle handle) {
  if constexpr (std::is_same_v<Handle, MPI_File>) {
    return handle == MPI_FILE_NULL ? nullptr : handle;
  } else {
    if constexpr (std::is_same_v<Handle, MPI_Errhandler>) {
      if (handle != nullptr && std::find(throwing.begin(), throwing.end(), handle) != throwing.end())
        return {errors_throw};
    }
    const std::uintptr_t value = value_of(handle);
    if (value < handles_end && numbers[value] != 0) return {numbers[value]};
    return {made_bits | static_cast<unsigned>(aplib_mpi_number(handle))};
  }
}

/// What a function does not write stays.
template <class Handle, bool is_inout>
class Made {
 public:
  explicit Made(Foreign<Handle>* place) : place_(place) {
    if constexpr (is_inout) {
      if (place != nullptr) before_ = handle_ = standard(*place);
    }
  }
  [[nodiscard]] Handle* data() noexcept { return place_ == nullptr ? nullptr : &handle_; }
  void give() const {
    if (handle_ != before_) *place_ = foreign(handle_);
  }

 private:
  Foreign<Handle>* place_;
  Handle before_ = reinterpret_cast<Handle>(no_handle);
  Handle handle_ = before_;
};

template <class Handle, bool is_inout>
class MadeArray {
 public:
  MadeArray(Foreign<Handle>* places, long count)
      : places_(places), count_(static_cast<std::size_t>(places == nullptr ? 0 : std::max(count, 0L))) {
    if (count_ > few_.size() / 2) many_ = std::make_unique<Handle[]>(2 * count_);
    for (std::size_t i = 0; i < count_; ++i)
      handles()[i] = before()[i] = is_inout ? standard(places[i]) : reinterpret_cast<Handle>(no_handle);
  }
  [[nodiscard]] Handle* data() noexcept { return places_ == nullptr ? nullptr : handles(); }
  void give() {
    for (std::size_t i = 0; i < count_; ++i) {
      if (handles()[i] != before()[i]) places_[i] = foreign(handles()[i]);
    }
  }

 private:
  Handle* handles() noexcept { return many_ != nullptr ? many_.get() : few_.data(); }
  Handle* before() noexcept { return handles() + count_; }

  Foreign<Handle>* places_;
  std::size_t count_;
  std::array<Handle, 16> few_;
  std::unique_ptr<Handle[]> many_;
};

template <class Handle>
MPI_Fint number_of(Number<Handle> handle, MPI_Fint (*)(Handle)) noexcept {
  return static_cast<MPI_Fint>(handle.value);
}
inline MPI_Fint number_of(MPI_File file, MPI_Fint (*toint)(MPI_File)) { return toint(standard(file)); }
template <class Handle>
Foreign<Handle> handle_of(MPI_Fint number, Handle (*fromint)(MPI_Fint)) {
  if constexpr (std::is_same_v<Handle, MPI_File>) {
    return foreign(fromint(number));
  } else {
    return {static_cast<unsigned>(number)};
  }
}

struct ForeignStatus {
  unsigned low_bytes;
  unsigned high_bytes_and_cancelled;
  int source;
  int tag;
  int error;
};

inline bool is_ignored(const ForeignStatus* place) noexcept { return reinterpret_cast<std::uintptr_t>(place) <= 1; }

inline MPI_Status standard_status(const ForeignStatus& status) noexcept {
  MPI_Status result{};
  result.MPI_SOURCE = static_cast<int>(standard_rank(status.source));
  result.MPI_TAG = static_cast<int>(standard_any_tag(status.tag));
  result.MPI_ERROR = static_cast<int>(standard_code(status.error));
  const std::uint64_t bytes = std::uint64_t{status.high_bytes_and_cancelled >> 1} << 32 | status.low_bytes;
  std::memcpy(result.MPI_internal, &bytes, sizeof bytes);
  result.MPI_internal[2] = static_cast<int>(status.high_bytes_and_cancelled & 1);
  return result;
}

/// Writes what was written to `status`.
inline void give_status(const MPI_Status& status, ForeignStatus& place) noexcept {
  if (status.MPI_SOURCE != unwritten) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, status.MPI_internal, sizeof bytes);
    place.low_bytes = static_cast<unsigned>(bytes);
    place.high_bytes_and_cancelled =
        static_cast<unsigned>(bytes >> 32) << 1 | static_cast<unsigned>(status.MPI_internal[2] != 0);
    place.source = static_cast<int>(foreign_rank(status.MPI_SOURCE));
    place.tag = static_cast<int>(foreign_any_tag(status.MPI_TAG));
  }
  if (status.MPI_ERROR != unwritten) place.error = static_cast<int>(foreign_code(status.MPI_ERROR));
}

/// MPI_IN_PLACE is -1, and in later versions MPI_BUFFER_AUTOMATIC -2.
template <class Pointer>
Pointer buffer_at(Pointer place) noexcept {
  const auto value = reinterpret_cast<std::intptr_t>(place);
  if (value == -1) [[unlikely]]
    return MPI_IN_PLACE;
  return value == -2 ? MPI_BUFFER_AUTOMATIC : place;
}

inline void* foreign_buffer(void* place) noexcept {
  return place == MPI_BUFFER_AUTOMATIC ? reinterpret_cast<void*>(std::intptr_t{-2}) : place;
}

/// MPI_UNWEIGHTED and MPI_WEIGHTS_EMPTY are variables of the library.
template <class Int>
Int* weights_at(Int* place) noexcept {
  return place;
}

}  // namespace aplib::mpi::front
