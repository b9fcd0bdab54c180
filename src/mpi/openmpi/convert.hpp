// SPDX-License-Identifier: MIT
// Arguments of programs that were compiled for Open MPI, as the functions of the standard ABI take them, and back.
// "Foreign" is what has Open MPI's form. Handles have the standard's types in both forms.
//
// A predefined handle is foreign as the address of an exported object, in whose first word the standard's handle is. A
// program may have a copy of that object (COPY relocations), with the same word. All other handles are the same in both
// forms: what they point to begins with a pointer. So conversion is a load.
//
// Each cell has this library for itself: the addresses of the objects are those that its own program sees.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

// Here these are functions of the library.
#define APLIB_MPI_OMIT_CONVERSIONS
#include <aplib_mpi_functions.hpp>
#include <openmpi_values.hpp>

#include "mpi/handles.hpp"

/// A function of MPI, PMPI_NAME, which is MPI_NAME too unless a tool defines that. Within extern "C".
#define APLIB_FUNCTION(name, parameters)                              \
  [[gnu::weak, gnu::alias("PMPI_" #name)]] int MPI_##name parameters; \
  int PMPI_##name parameters

namespace aplib::mpi::openmpi {

// ---------------------------------------------------------------- handles

inline constexpr std::uintptr_t predefined_end = 4096;
/// Beyond the predefined handles that there are.
inline constexpr std::uintptr_t objects_end = 0x300;
/// In objects that stand for no handle: no handle's value.
inline constexpr std::uintptr_t no_handle = predefined_end - 1;

/// What the address of is a predefined handle; `bytes` as Open MPI has it, so that programs copy all of it and no more.
template <std::size_t bytes>
struct Predefined {
  std::uintptr_t handle;
  std::array<std::byte, bytes - sizeof(std::uintptr_t)> rest{};
};

/// By the standard's handle; null: Open MPI has none.
extern const std::array<const void*, objects_end> objects;

template <class Handle>
Handle standard(Handle handle) noexcept {
  if (reinterpret_cast<std::uintptr_t>(handle) < predefined_end) [[unlikely]]
    return handle;  // none, which the function says
  Handle word;
  std::memcpy(&word, handle, sizeof word);
  return reinterpret_cast<std::uintptr_t>(word) < predefined_end ? word : handle;
}

template <class Handle>
Handle foreign(Handle handle) noexcept {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value >= objects_end || objects[value] == nullptr) return handle;
  return static_cast<Handle>(const_cast<void*>(objects[value]));
}

// What a function gives is converted where the program has it: some functions give it only when the request is
// complete, and handles that were made meanwhile have one form.

template <class Handle>
void take(Handle* places, long count = 1) noexcept {
  for (long i = 0; places != nullptr && i < count; ++i) places[i] = standard(places[i]);
}

template <class Handle>
void show(Handle* places, long count = 1) noexcept {
  for (long i = 0; places != nullptr && i < count; ++i) places[i] = foreign(places[i]);
}

/// Of an array that the program keeps.
template <class Handle>
class Handles {
 public:
  Handles(const Handle* places, long count) : is_given_(places != nullptr) {
    const auto length = static_cast<std::size_t>(is_given_ ? std::max(count, 0L) : 0);
    if (length > few_.size()) many_ = std::make_unique<Handle[]>(length);
    std::transform(places, places + length, begin(), standard<Handle>);
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
const MPI_Datatype* kept_datatypes(const MPI_Datatype* datatypes, int count);

// How many datatypes there are. These take foreign handles.

/// For each rank that a collective call of `comm` is about; 0 where `buffer` says that nobody reads them.
int peers_of(MPI_Comm comm, const void* buffer = nullptr);
/// In a topology.
int sources_of(MPI_Comm comm);
int destinations_of(MPI_Comm comm);

// ---------------------------------------------------------------- statuses

struct ForeignStatus {
  int source;
  int tag;
  int error;
  int is_cancelled;
  std::size_t bytes;
};

MPI_Status standard_status(const ForeignStatus& status) noexcept;

/// One that nobody has written.
inline constexpr int unwritten = -0x7fff'fff0;
inline void blank(MPI_Status& status) noexcept { status.MPI_SOURCE = status.MPI_ERROR = unwritten; }

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

template <bool reads, bool writes>
class Status {
 public:
  using Place = std::conditional_t<writes, MPI_Status*, const MPI_Status*>;

  explicit Status(Place place) noexcept : place_(place) {
    if constexpr (reads) {
      if (place != MPI_STATUS_IGNORE) status_ = standard_status(*reinterpret_cast<const ForeignStatus*>(place));
    } else {
      blank(status_);
    }
  }
  [[nodiscard]] MPI_Status* data() noexcept { return place_ == MPI_STATUS_IGNORE ? MPI_STATUS_IGNORE : &status_; }
  void give() const noexcept {
    if (place_ != MPI_STATUS_IGNORE) give_status(status_, *reinterpret_cast<ForeignStatus*>(place_));
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
  Statuses(MPI_Status* places, long count)
      : places_(reinterpret_cast<ForeignStatus*>(places)),
        count_(static_cast<std::size_t>(places != MPI_STATUSES_IGNORE ? std::max(count, 0L) : 0)) {
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

// ---------------------------------------------------------------- numbers and strings

inline int returned(int error) noexcept {
  return error == MPI_SUCCESS ? MPI_SUCCESS : static_cast<int>(foreign_code(error));
}

template <class Int>
Int* weights_at(Int* place) noexcept {
  static int* const unweighted = reinterpret_cast<int*>(2);
  static int* const empty = reinterpret_cast<int*>(3);
  return place == unweighted ? MPI_UNWEIGHTED : place == empty ? MPI_WEIGHTS_EMPTY : place;
}

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

}  // namespace aplib::mpi::openmpi
