// SPDX-License-Identifier: MIT
// Info: keys with values, in the order in which a program has set them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mpi/object.hpp"

namespace aplib::mpi {

struct Info : Object {
  static constexpr ObjectKind kind = ObjectKind::info;

  explicit Info(Rank& rank) : Object(rank, kind) {}
  Info(Rank& rank, const Info& other) : Object(rank, kind), entries(other.entries) {}

  /// Null: it has no such key.
  [[nodiscard]] const std::string* find(const std::string& key) const noexcept;
  void set(std::string key, std::string value);

  std::vector<std::pair<std::string, std::string>> entries;
};

Info& info_of(const Call& call, const char* parameter, MPI_Info handle);
/// Hints: null for MPI_INFO_NULL.
Info* hints_of(const Call& call, const char* parameter, MPI_Info handle);

}  // namespace aplib::mpi
