// SPDX-License-Identifier: MIT
// Object: what a handle that a program has made points to, of the rank that made it. Predefined handles are numbers
// below 4096.
//
// Invariants: (1) an object is in its rank's list from its making to its end, so what a program never frees ends with
// the rank; (2) it lives while somebody holds it: the program's handle, or an object that uses it; (3) the kind becomes
// none at the end, so that a handle that was freed is recognised as long as nobody uses its memory.
//
// Only tasks of the rank's cell use an object, and these never at the same time: no locks.
#pragma once

#include <cstdint>

#include "mpi/call.hpp"

namespace aplib::mpi {

/// Odd numbers that memory seldom holds by accident.
enum class ObjectKind : std::uint32_t {
  none = 0,
  comm = 0x6d706901,
  group = 0x6d706903,
  errhandler = 0x6d706905,
  info = 0x6d706907,
  datatype = 0x6d706909,
  op = 0x6d70690b,
  request = 0x6d70690d,
  message = 0x6d70690f,
  win = 0x6d706911,
  file = 0x6d706913,
  session = 0x6d706915,
  tool_session = 0x6d706917,
};

class Object {
 public:
  /// Held once, by whoever makes it. Call from: a task of the rank's cell.
  Object(Rank& rank, ObjectKind kind);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  [[nodiscard]] ObjectKind object_kind() const noexcept { return kind_; }
  [[nodiscard]] Rank& rank() const noexcept { return rank_; }

  void hold() noexcept { ++holders_; }
  /// The last one ends it. Predefined objects belong to the rank and stay.
  void release() noexcept {
    if (--holders_ == 0) end();
  }

 protected:
  /// Nobody holds it any more.
  virtual void end() noexcept { delete this; }
  /// For end() of objects that are used again: it is no handle's object meanwhile,
  void retire() noexcept;
  /// and then held once, as at its making.
  void revive(ObjectKind kind) noexcept {
    kind_ = kind;
    holders_ = 1;
  }
  /// For destructors: releases what this object holds; but not when the rank ends, which deletes all in any order.
  void let_go(Object& held) const noexcept;

 private:
  friend class Rank;

  ObjectKind kind_;
  std::uint32_t holders_ = 1;
  Rank& rank_;
  int number_ = 0;          // of its handle, as Fortran has it; 0: nobody has asked
  Object* next_ = nullptr;  // of the rank's objects
  Object* previous_ = nullptr;
};

/// Handles below this are predefined.
inline constexpr std::uintptr_t predefined_end = 4096;

template <class Handle>
std::uintptr_t handle_value(Handle handle) noexcept {
  return reinterpret_cast<std::uintptr_t>(handle);
}

template <class Handle>
bool is_predefined(Handle handle) noexcept {
  return handle_value(handle) < predefined_end;
}

/// The handle of an object that a program has made.
template <class Handle>
Handle handle_of(Object& object) noexcept {
  return reinterpret_cast<Handle>(&object);
}

[[noreturn]] void fail_handle(int error_class, const char* parameter, std::uintptr_t handle, const char* wanted);

/// The object of a handle that is not predefined; null: it is no such object.
template <class T, class Handle>
T* find_made(Handle handle) noexcept {
  if (is_predefined(handle) || handle_value(handle) % alignof(Object) != 0) [[unlikely]]
    return nullptr;
  auto* const object = reinterpret_cast<Object*>(handle);
  return object->object_kind() == T::kind ? static_cast<T*>(object) : nullptr;
}

/// The same; fails if there is none. `wanted`: "a group".
template <class T, class Handle>
T& object_of(int error_class, const char* parameter, Handle handle, const char* wanted) {
  T* const found = find_made<T>(handle);
  if (found == nullptr) [[unlikely]]
    fail_handle(error_class, parameter, handle_value(handle), wanted);
  return *found;
}

}  // namespace aplib::mpi
