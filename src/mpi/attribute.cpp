// SPDX-License-Identifier: MIT
#include "mpi/attribute.hpp"

#include <fmt/format.h>

#include <utility>

#include "kernel/program_threads.hpp"
#include "mpi/comm.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {

// ---------------------------------------------------------------- keys

int Keyvals::add(const Keyval& keyval) {
  keyvals_.emplace(next_, keyval);
  return next_++;
}

Keyvals::Keyval& Keyvals::find(int keyval, ObjectKind kind) {
  const auto place = keyvals_.find(keyval);
  if (place == keyvals_.end()) {
    fail(MPI_ERR_KEYVAL, fmt::format("{} is no key of attributes that the program can use here; give one that "
                                     "MPI_..._create_keyval gave and that was not freed",
                                     keyval));
  }
  if (place->second.kind != kind)
    fail(MPI_ERR_KEYVAL, fmt::format("the key {} was made for another kind of object", keyval));
  return place->second;
}

void Keyvals::free(int keyval, ObjectKind kind) {
  if (!std::exchange(find(keyval, kind).is_freed, true)) release(keyval);
}

void Keyvals::release(int keyval) {
  const auto place = keyvals_.find(keyval);
  if (--place->second.users == 0) keyvals_.erase(place);
}

// ---------------------------------------------------------------- attributes

void* const* Attributes::find(int keyval) const noexcept {
  const auto place = places_.find(keyval);
  return place != places_.end() ? &place->second->value : nullptr;
}

/// False: it is not there.
bool Attributes::forget(int keyval) {
  const auto place = places_.find(keyval);
  if (place == places_.end()) return false;
  attributes_.erase(place->second);
  places_.erase(place);
  return true;
}

void Attributes::add(Rank& rank, const Attribute& attribute) {
  places_[attribute.keyval] = attributes_.insert(attributes_.end(), attribute);
  ++rank.keyvals.used(attribute.keyval).users;
}

void Attributes::call_delete(Rank& rank, void* handle, const Attribute& attribute) {
  const Keyvals::Keyval& key = rank.keyvals.used(attribute.keyval);
  if (key.remove == nullptr) return;
  const api::InCallback callback;
  const int code = key.remove(handle, attribute.keyval, attribute.value, key.state);
  if (code != MPI_SUCCESS)
    fail(code, fmt::format("the delete function of the key {} returned {}", attribute.keyval, code));
}

void Attributes::set(Rank& rank, ObjectKind kind, void* handle, int keyval, void* value) {
  if (rank.keyvals.find(keyval, kind).is_freed)
    fail(MPI_ERR_KEYVAL, fmt::format("the key {} was freed; make another by MPI_..._create_keyval", keyval));
  if (void* const* const old = find(keyval)) {
    call_delete(rank, handle, {keyval, *old});
    if (const auto place = places_.find(keyval); place != places_.end()) {
      place->second->value = value;
      return;
    }
  }
  add(rank, {keyval, value});
}

void Attributes::remove(Rank& rank, ObjectKind kind, void* handle, int keyval) {
  rank.keyvals.find(keyval, kind);
  void* const* const value = find(keyval);
  if (value == nullptr) fail(MPI_ERR_KEYVAL, fmt::format("the object has no attribute of the key {}", keyval));
  call_delete(rank, handle, {keyval, *value});
  if (forget(keyval)) rank.keyvals.release(keyval);
}

void Attributes::copy(Rank& rank, void* original_handle, const Attributes& original) {
  const Order all = original.attributes_;
  for (const Attribute& one : all) {
    const Keyvals::Keyval& key = rank.keyvals.used(one.keyval);
    if (key.copy == nullptr) continue;
    void* value = one.value;
    int is_copied = 1;
    // MPI_COMM_DUP_FN and its like are the number 1.
    if (handle_value(key.copy) != 1) {
      const api::InCallback callback;
      const int code = key.copy(original_handle, one.keyval, key.state, one.value, &value, &is_copied);
      if (code != MPI_SUCCESS) fail(code, fmt::format("the copy function of the key {} returned {}", one.keyval, code));
    }
    if (is_copied == 0) continue;
    add(rank, {one.keyval, value});
  }
}

void Attributes::clear(Rank& rank, void* handle) {
  while (!attributes_.empty()) {
    const Attribute last = attributes_.back();
    call_delete(rank, handle, last);
    if (forget(last.keyval)) rank.keyvals.release(last.keyval);
  }
}

// ---------------------------------------------------------------- calls

namespace {

template <class CopyFunction, class DeleteFunction>
int create(const Call& call, ObjectKind kind, CopyFunction* copy, DeleteFunction* remove, void* state) {
  return call.rank().keyvals.add({.kind = kind,
                                  .copy = reinterpret_cast<Keyvals::Copy>(copy),
                                  .remove = reinterpret_cast<Keyvals::Delete>(remove),
                                  .state = state});
}

void free(const Call& call, ObjectKind kind, int* keyval) {
  call.rank().keyvals.free(*keyval, kind);
  *keyval = MPI_KEYVAL_INVALID;
}

}  // namespace

void comm_create_keyval(const Call& call, MPI_Comm_copy_attr_function* copy, MPI_Comm_delete_attr_function* remove,
                        int* keyval, void* state) {
  *keyval = create(call, ObjectKind::comm, copy, remove, state);
}
void type_create_keyval(const Call& call, MPI_Type_copy_attr_function* copy, MPI_Type_delete_attr_function* remove,
                        int* keyval, void* state) {
  *keyval = create(call, ObjectKind::datatype, copy, remove, state);
}
void win_create_keyval(const Call& call, MPI_Win_copy_attr_function* copy, MPI_Win_delete_attr_function* remove,
                       int* keyval, void* state) {
  *keyval = create(call, ObjectKind::win, copy, remove, state);
}
void comm_free_keyval(const Call& call, int* keyval) { free(call, ObjectKind::comm, keyval); }
void type_free_keyval(const Call& call, int* keyval) { free(call, ObjectKind::datatype, keyval); }
void win_free_keyval(const Call& call, int* keyval) { free(call, ObjectKind::win, keyval); }

void comm_set_attr(const Call& call, Comm& comm, int keyval, void* value) {
  comm.attributes.set(call.rank(), ObjectKind::comm, comm.handle(), keyval, value);
}

void comm_delete_attr(const Call& call, Comm& comm, int keyval) {
  comm.attributes.remove(call.rank(), ObjectKind::comm, comm.handle(), keyval);
}

void comm_get_attr(const Call& call, Comm& comm, int keyval, void* place, int* flag) {
  check_place(call, "attribute_val", place);
  auto& value = *static_cast<const void**>(place);
  *flag = 1;
  if (const int* const predefined = call.rank().predefined_attribute(keyval)) {
    value = predefined;
    return;
  }
  call.rank().keyvals.find(keyval, ObjectKind::comm);
  void* const* const found = comm.attributes.find(keyval);
  *flag = found != nullptr ? 1 : 0;
  if (found != nullptr) value = *found;
}

}  // namespace aplib::mpi
