// SPDX-License-Identifier: MIT
// Attributes: what a program attaches to communicators, datatypes and windows under keys of its own, with functions
// that copy and delete the values.
//
// A key that the program has freed lives on while attributes have it. Functions of the program run in the calling task,
// and may change attributes themselves; so nothing here keeps a place in a table across such a call.
#pragma once

#include <list>
#include <map>
#include <unordered_map>

#include "mpi/object.hpp"

namespace aplib::mpi {

/// The keys of one rank.
class Keyvals {
 public:
  // All three kinds of functions have these shapes; a handle is a pointer.
  using Copy = int (*)(void* handle, int keyval, void* state, void* value, void* copied, int* flag);
  using Delete = int (*)(void* handle, int keyval, void* value, void* state);
  struct Keyval {
    ObjectKind kind;  ///< Of the objects that may have it.
    Copy copy;
    Delete remove;
    void* state;
    int users = 1;  ///< Attributes that have it, and the program until it frees it.
    bool is_freed = false;
  };

  int add(const Keyval& keyval);
  /// Fails unless the key is one for objects of this kind. It may be freed, if attributes still have it.
  Keyval& find(int keyval, ObjectKind kind);
  void free(int keyval, ObjectKind kind);
  /// Of an attribute.
  Keyval& used(int keyval) { return keyvals_.at(keyval); }
  void release(int keyval);

 private:
  std::map<int, Keyval> keyvals_;
  int next_ = 4096;  // beyond the predefined ones
};

/// The attributes of one object, in the order in which they were set. Each call but copy() and clear() takes the same
/// time, however many there are.
class Attributes {
 public:
  /// Null: it has none. The program's own functions see `handle`.
  [[nodiscard]] void* const* find(int keyval) const noexcept;
  void set(Rank& rank, ObjectKind kind, void* handle, int keyval, void* value);
  void remove(Rank& rank, ObjectKind kind, void* handle, int keyval);
  /// Of a duplicate: takes those of `original`, each as its copy function says.
  void copy(Rank& rank, void* original_handle, const Attributes& original);
  /// All, the last one first. Stops at a delete function that fails.
  void clear(Rank& rank, void* handle);

 private:
  struct Attribute {
    int keyval;
    void* value;
  };
  void call_delete(Rank& rank, void* handle, const Attribute& attribute);

  using Order = std::list<Attribute>;
  [[nodiscard]] bool forget(int keyval);
  void add(Rank& rank, const Attribute& attribute);

  Order attributes_;
  std::unordered_map<int, Order::iterator> places_;  // by key
};

}  // namespace aplib::mpi
