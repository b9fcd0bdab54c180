// SPDX-License-Identifier: MIT
#include "mpi/info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "mpi/rank.hpp"

namespace aplib::mpi {

namespace {

std::string checked_key(const char* key) {
  const std::size_t length = std::strlen(key);
  if (length == 0 || length >= MPI_MAX_INFO_KEY)
    fail(MPI_ERR_INFO_KEY, fmt::format("the key has {} characters; use 1..{}", length, MPI_MAX_INFO_KEY - 1));
  return key;
}

Info& changeable(const Call& call, Info& info) {
  if (&info == &call.rank().environment())
    fail(MPI_ERR_INFO, "info is MPI_INFO_ENV, which cannot be changed; change a copy of it");
  return info;
}

/// As much as fits into `room` bytes with the zero behind it.
void copy_text(const std::string& text, char* to, std::size_t room) {
  const std::size_t count = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

}  // namespace

Info::Info(Rank& rank, const Info& other) : Object(rank, kind) {
  for (const auto& [key, value] : other.entries_) set(key, value);
}

const std::string* Info::find(const std::string& key) const noexcept {
  const auto place = places_.find(key);
  return place != places_.end() ? &place->second->second : nullptr;
}

void Info::set(std::string key, std::string value) {
  if (const auto place = places_.find(key); place != places_.end()) {
    place->second->second = std::move(value);
    return;
  }
  const auto place = entries_.emplace(entries_.end(), std::move(key), std::move(value));
  places_.emplace(place->first, place);
  if (entries_.size() == 1) asked_place_ = place;
}

bool Info::erase(const std::string& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return false;
  const auto place = found->second;
  places_.erase(found);
  entries_.erase(place);
  asked_ = 0;
  asked_place_ = entries_.begin();
  return true;
}

const std::string& Info::nth(std::size_t n) {
  const std::size_t from_end = entries_.size() - n;
  if (n < std::min(asked_, from_end)) {
    asked_place_ = std::next(entries_.begin(), static_cast<std::ptrdiff_t>(n));
  } else if (from_end < n && (n < asked_ || from_end < n - asked_)) {
    asked_place_ = std::prev(entries_.end(), static_cast<std::ptrdiff_t>(from_end));
  } else {
    std::advance(asked_place_, static_cast<std::ptrdiff_t>(n) - static_cast<std::ptrdiff_t>(asked_));
  }
  asked_ = n;
  return asked_place_->first;
}

Info& info_of(const Call& call, const char* parameter, MPI_Info handle) {
  if (handle == MPI_INFO_ENV) return call.rank().environment();
  return object_of<Info>(MPI_ERR_INFO, parameter, handle, "an info object");
}

Info* hints_of(const Call& call, const char* parameter, MPI_Info handle) {
  return handle == MPI_INFO_NULL ? nullptr : &info_of(call, parameter, handle);
}

void info_create(const Call& call, MPI_Info* place) { *place = handle_of<MPI_Info>(*new Info(call.rank())); }

void info_create_env(const Call& call, int argc, char** argv, MPI_Info* place) {
  auto* const info = new Info(call.rank(), call.rank().environment());
  if (argc > 0 && argv != nullptr) {
    info->set("command", argv[0]);
    std::string rest;
    for (int i = 1; i < argc; ++i) rest += (i > 1 ? " " : "") + std::string(argv[i]);
    if (argc > 1) info->set("argv", rest);
  }
  *place = handle_of<MPI_Info>(*info);
}

// The one resource that MPI_Comm_split_type knows, which all cells of a process share.
void get_hw_resource_info(const Call& call, MPI_Info* place) {
  auto* const info = new Info(call.rank());
  info->set("mpi_shared_memory", "true");
  *place = handle_of<MPI_Info>(*info);
}

void info_dup(const Call& call, Info& info, MPI_Info* place) {
  *place = handle_of<MPI_Info>(*new Info(call.rank(), info));
}

void info_free(const Call& call, MPI_Info* place) {
  changeable(call, info_of(call, "info", *place)).release();
  *place = MPI_INFO_NULL;
}

void info_set(const Call& call, Info& info, const char* key, const char* value) {
  const std::size_t length = std::strlen(value);
  if (length >= MPI_MAX_INFO_VAL)
    fail(MPI_ERR_INFO_VALUE, fmt::format("the value has {} characters; use 0..{}", length, MPI_MAX_INFO_VAL - 1));
  changeable(call, info).set(checked_key(key), value);
}

void info_delete(const Call& call, Info& info, const char* key) {
  if (!changeable(call, info).erase(checked_key(key)))
    fail(MPI_ERR_INFO_NOKEY, fmt::format("the info object has no key \"{}\"", key));
}

void info_get(const Call& call, Info& info, const char* key, int room, char* value, int* flag) {
  if (room < 0) fail_length("valuelen", room);
  const std::string* const found = info.find(checked_key(key));
  *flag = found != nullptr ? 1 : 0;
  if (found == nullptr) return;
  check_place(call, "value", value);
  copy_text(*found, value, static_cast<std::size_t>(room) + 1);
}

void info_get_string(const Call& call, Info& info, const char* key, int* room, char* value, int* flag) {
  if (*room < 0) fail_length("buflen", *room);
  const std::string* const found = info.find(checked_key(key));
  *flag = found != nullptr ? 1 : 0;
  if (found == nullptr) return;
  if (*room > 0) {
    check_place(call, "value", value);
    copy_text(*found, value, static_cast<std::size_t>(*room));
  }
  *room = static_cast<int>(found->size()) + 1;
}

void info_get_valuelen(const Call&, Info& info, const char* key, int* length, int* flag) {
  const std::string* const found = info.find(checked_key(key));
  *flag = found != nullptr ? 1 : 0;
  if (found != nullptr) *length = static_cast<int>(found->size());
}

void info_get_nkeys(const Call&, Info& info, int* count) { *count = static_cast<int>(info.size()); }

void info_get_nthkey(const Call&, Info& info, int n, char* key) {
  if (n < 0 || static_cast<std::size_t>(n) >= info.size())
    fail(MPI_ERR_ARG, fmt::format("n is {}; the info object has {} keys, counted from 0", n, info.size()));
  copy_text(info.nth(static_cast<std::size_t>(n)), key, MPI_MAX_INFO_KEY);
}

}  // namespace aplib::mpi
