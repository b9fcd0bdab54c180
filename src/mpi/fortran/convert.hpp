// SPDX-License-Identifier: MIT
// Arguments of Fortran as C's functions take them: handles are numbers, strings end with blanks, indices begin at 1,
// and variables in common blocks stand for what is absent. .TRUE. is 1 and .FALSE. is 0, as gfortran has them, so a
// LOGICAL is C's flag; a status has the same form in both languages. What differs between binary interfaces, form.hpp
// has.
//
// Each cell has this library for itself: the common blocks are those of its own program.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include APLIB_FORTRAN_FORM

namespace aplib::mpi::fortran {

// ---------------------------------------------------------------- handles

// What the program gets by these it gets by give(), after the call: a call does not return when the machine stops.

/// One handle that a function gives, or an array. What it has not written the program keeps.
template <class Handle, bool reads, bool writes>
class Handles {
 public:
  using Numbers = std::conditional_t<writes, int*, const int*>;

  Handles(Numbers numbers, long count) : numbers_(numbers), count_(count > 0 ? static_cast<std::size_t>(count) : 0) {
    if (count_ > few_.size()) {
      many_ = std::make_unique<Handle[]>(count_);
      handles_ = many_.get();
    }
    for (std::size_t i = 0; i < count_; ++i) handles_[i] = reads ? handle_of<Handle>(numbers[i]) : nullptr;
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  [[nodiscard]] Handle* data() noexcept { return handles_; }
  void give() const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (handles_[i] != nullptr) numbers_[i] = number_of(handles_[i]);
    }
  }

 private:
  Numbers numbers_;
  std::size_t count_;
  std::array<Handle, 8> few_;
  std::unique_ptr<Handle[]> many_;
  Handle* handles_ = few_.data();
};

/// An array of datatypes for a call that goes on when it has returned. It stays until the program ends, and equal ones
/// are one.
const MPI_Datatype* kept_datatypes(const int* numbers, int count);

// ---------------------------------------------------------------- what is absent

inline const void* buffer_at(const void* address) noexcept {
  if (is_bottom(address)) return MPI_BOTTOM;
  if (is_in_place(address)) return in_place;
  if (is_automatic(address)) return MPI_BUFFER_AUTOMATIC;
  return address;
}
inline void* buffer_at(void* address) noexcept {
  return const_cast<void*>(buffer_at(static_cast<const void*>(address)));
}

template <class Status>
Status* status_at(Status* place) noexcept {
  return is_no_status(place) ? MPI_STATUS_IGNORE : place;
}

template <class Int>
Int* weights_at(Int* place) noexcept {
  return is_unweighted(place) ? unweighted : is_weights_empty(place) ? weights_empty : place;
}

// ---------------------------------------------------------------- strings

/// A string that the program gives, without the blanks at its end and, in info objects, at its beginning.
class Text {
 public:
  Text(const char* text, std::size_t length, bool strips_begin = false) {
    std::string_view view(text, length);
    view = view.substr(0, view.find_last_not_of(' ') + 1);
    if (strips_begin) view.remove_prefix(std::min(view.find_first_not_of(' '), view.size()));
    text_ = view;
  }
  [[nodiscard]] const char* data() const noexcept { return text_.c_str(); }

 private:
  std::string text_;
};

/// Where a function writes a string of up to `room` bytes with the zero at its end; the program gets it with blanks
/// behind it. What is not written the program keeps.
class Room {
 public:
  Room(char* place, std::size_t length, long room)
      : place_(place), length_(length), text_(static_cast<std::size_t>(room > 0 ? room : 1), '\0') {
    text_.front() = unwritten;
  }
  [[nodiscard]] char* data() noexcept { return text_.data(); }
  void give() const {
    if (text_.front() == unwritten) return;
    const std::size_t used = std::min(std::strlen(text_.c_str()), length_);
    std::memcpy(place_, text_.data(), used);
    std::memset(place_ + used, ' ', length_ - used);
  }

 private:
  static constexpr char unwritten = '\xff';  // in no text of UTF-8

  char* place_;
  std::size_t length_;
  std::string text_;
};

// ---------------------------------------------------------------- indices

/// Of one request among many.
class Index {
 public:
  explicit Index(int* place) noexcept : place_(place) {}
  [[nodiscard]] int* data() noexcept { return &index_; }
  void give() const noexcept { *place_ = index_ == MPI_UNDEFINED ? MPI_UNDEFINED : index_ + 1; }

 private:
  int* place_;
  int index_ = MPI_UNDEFINED;
};

/// Of those that are complete.
class Indices {
 public:
  Indices(int* indices, int* count) noexcept : indices_(indices), count_(count) { *count_ = 0; }
  void give() const noexcept {
    for (int i = 0; i < *count_; ++i) ++indices_[i];
  }

 private:
  int* indices_;
  int* count_;
};

// ---------------------------------------------------------------- how many datatypes there are

/// For each rank that a collective call of `comm` is about; 0 where `buffer` says that nobody reads them.
int peers_of(int comm, const void* buffer = nullptr);
/// In a topology.
int sources_of(int comm);
int destinations_of(int comm);

}  // namespace aplib::mpi::fortran
