// SPDX-License-Identifier: MIT
// Arguments of programs that were compiled for another MPI, as the functions of the standard ABI take them, and back.
// "Foreign" is what has the other MPI's form. What that is, its own header says (mpich.hpp, openmpi.hpp):
//
//   Foreign<Handle>           a handle
//   standard(foreign)         in the other form, and back; null is no handle, which the function says that gets it
//   foreign(handle)
//   errhandler_for<Handle>    an error handler for what has such handles
//   Made<Handle, is_inout>    a place for a handle, MadeArray several, which a function writes: the program has it when
//                             give() has been called
//   number_of, handle_of      handles as Fortran has them
//   ForeignStatus             a status, with standard_status(foreign), give_status(status, place), is_ignored(place)
//   buffer_at, weights_at     addresses, some of which mean something else; foreign_buffer the other way
//
// Each cell has such a library for itself: the addresses of its objects are those that its own program sees.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>

#include APLIB_FRONT_FORM
#include "mpi/front/numbers.hpp"

/// A function of MPI, PMPI_NAME, which is MPI_NAME too unless a tool defines that. Within extern "C".
#define APLIB_FUNCTION(name, parameters)                              \
  [[gnu::weak, gnu::alias("PMPI_" #name)]] int MPI_##name parameters; \
  int PMPI_##name parameters

/// A function that nothing here does: it says so by the name that it is `called`. Within extern "C".
#define APLIB_REFUSED(name, called)                                                            \
  int name() {                                                                                 \
    return returned(aplib_mpi_raise(called, MPI_ERR_UNSUPPORTED_OPERATION,                     \
                                    "this version of APlib does not have this function yet")); \
  }
/// An extension, MPIX_NAME and PMPIX_NAME.
#define APLIB_MISSING(name)                  \
  APLIB_REFUSED(PMPIX_##name, "MPIX_" #name) \
  [[gnu::alias("PMPIX_" #name)]] int MPIX_##name();

namespace aplib::mpi::front {

// ---------------------------------------------------------------- handles

/// Of an array that the program keeps.
template <class Handle>
class Handles {
 public:
  Handles(const Foreign<Handle>* places, long count) : is_given_(places != nullptr) {
    const auto length = static_cast<std::size_t>(is_given_ ? std::max(count, 0L) : 0);
    if (length > few_.size()) many_ = std::make_unique<Handle[]>(length);
    std::transform(places, places + length, begin(), [](Foreign<Handle> each) { return standard(each); });
  }

  [[nodiscard]] const Handle* data() const noexcept {
    return !is_given_ ? nullptr : many_ != nullptr ? many_.get() : few_.data();
  }

 private:
  Handle* begin() noexcept { return many_ != nullptr ? many_.get() : few_.data(); }

  bool is_given_;
  std::array<Handle, 8> few_;
  std::unique_ptr<Handle[]> many_;
};

/// An array of datatypes for a call that goes on when it has returned. It stays until the program ends, and equal ones
/// are one.
const MPI_Datatype* kept_datatypes(const Foreign<MPI_Datatype>* datatypes, int count);

// How many datatypes there are.

/// For each rank that a collective call of `comm` is about; 0 where `buffer` says that nobody reads them.
int peers_of(Foreign<MPI_Comm> comm, const void* buffer = nullptr);
/// In a topology.
int sources_of(Foreign<MPI_Comm> comm);
int destinations_of(Foreign<MPI_Comm> comm);

// ---------------------------------------------------------------- statuses

template <bool reads, bool writes>
class Status {
 public:
  using Place = std::conditional_t<writes, ForeignStatus*, const ForeignStatus*>;

  explicit Status(Place place) noexcept : place_(place) {
    if constexpr (reads) {
      if (!is_ignored(place)) status_ = standard_status(*place);
    } else {
      blank(status_);
    }
  }
  [[nodiscard]] MPI_Status* data() noexcept { return is_ignored(place_) ? MPI_STATUS_IGNORE : &status_; }
  void give() const noexcept {
    if (!is_ignored(place_)) give_status(status_, *place_);
  }

 private:
  Place place_;
  MPI_Status status_;
};

/// Those that a function writes.
template <bool reads, bool writes>
class Statuses {
  static_assert(!reads && writes);

 public:
  Statuses(ForeignStatus* places, long count)
      : places_(is_ignored(places) ? nullptr : places),
        count_(static_cast<std::size_t>(places_ != nullptr ? std::max(count, 0L) : 0)) {
    if (count_ > few_.size()) many_ = std::make_unique<MPI_Status[]>(count_);
    std::for_each_n(begin(), count_, blank);
  }
  [[nodiscard]] MPI_Status* data() noexcept { return places_ == nullptr ? MPI_STATUSES_IGNORE : begin(); }
  void give() noexcept {
    for (std::size_t i = 0; i < count_; ++i) give_status(begin()[i], places_[i]);
  }

 private:
  MPI_Status* begin() noexcept { return many_ != nullptr ? many_.get() : few_.data(); }

  ForeignStatus* places_;
  std::size_t count_;
  std::array<MPI_Status, 8> few_;
  std::unique_ptr<MPI_Status[]> many_;
};

// ---------------------------------------------------------------- strings

/// Where a function writes a string of up to `standard_room` bytes, of which the program has room for fewer: it is cut.
template <int standard_room, int room>
class Text {
 public:
  explicit Text(char* place, int* length = nullptr) noexcept : place_(place), length_(length) {}

  [[nodiscard]] char* data() noexcept { return place_ == nullptr ? nullptr : text_; }
  void give() noexcept {
    text_[room - 1] = '\0';
    std::memcpy(place_, text_, std::strlen(text_) + 1);
    if (length_ != nullptr) *length_ = std::min(*length_, room - 1);
  }

 private:
  char* place_;
  int* length_;
  char text_[standard_room];
};

}  // namespace aplib::mpi::front
