// SPDX-License-Identifier: MIT
// Info: keys with values, in the order in which a program has set them.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "mpi/object.hpp"

namespace aplib::mpi {

/// Each call takes the same time, however many keys there are; nth() does so where the keys are asked for one by one.
struct Info : Object {
  static constexpr ObjectKind kind = ObjectKind::info;

  explicit Info(Rank& rank) : Object(rank, kind) {}
  Info(Rank& rank, const Info& other);

  /// Null: it has no such key.
  [[nodiscard]] const std::string* find(const std::string& key) const noexcept;
  void set(std::string key, std::string value);
  /// False: it has no such key.
  [[nodiscard]] bool erase(const std::string& key);
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// The key at this place, from 0. REQUIRES: n < size().
  [[nodiscard]] const std::string& nth(std::size_t n);

 private:
  using Entries = std::list<std::pair<std::string, std::string>>;

  Entries entries_;
  std::unordered_map<std::string_view, Entries::iterator> places_;  // of keys; they view what entries_ has
  std::size_t asked_ = 0;                                           // where nth() was last,
  Entries::iterator asked_place_ = entries_.begin();                // and the entry there
};

Info& info_of(const Call& call, const char* parameter, MPI_Info handle);
/// Hints: null for MPI_INFO_NULL.
Info* hints_of(const Call& call, const char* parameter, MPI_Info handle);

}  // namespace aplib::mpi
