// SPDX-License-Identifier: MIT
#include "mpi/info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

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

auto place_of(Info& info, const std::string& key) {
  return std::ranges::find(info.entries, key, [](const auto& entry) { return entry.first; });
}

/// As much as fits into `room` bytes with the zero behind it.
void copy_text(const std::string& text, char* to, std::size_t room) {
  const std::size_t count = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

}  // namespace

const std::string* Info::find(const std::string& key) const noexcept {
  for (const auto& [name, value] : entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Info::set(std::string key, std::string value) {
  const auto place = place_of(*this, key);
  if (place != entries.end()) {
    place->second = std::move(value);
  } else {
    entries.emplace_back(std::move(key), std::move(value));
  }
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
  const auto place = place_of(changeable(call, info), checked_key(key));
  if (place == info.entries.end()) fail(MPI_ERR_INFO_NOKEY, fmt::format("the info object has no key \"{}\"", key));
  info.entries.erase(place);
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

void info_get_nkeys(const Call&, Info& info, int* count) { *count = static_cast<int>(info.entries.size()); }

void info_get_nthkey(const Call&, Info& info, int n, char* key) {
  if (n < 0 || static_cast<std::size_t>(n) >= info.entries.size())
    fail(MPI_ERR_ARG, fmt::format("n is {}; the info object has {} keys, counted from 0", n, info.entries.size()));
  copy_text(info.entries[static_cast<std::size_t>(n)].first, key, MPI_MAX_INFO_KEY);
}

}  // namespace aplib::mpi
