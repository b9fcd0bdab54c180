// SPDX-License-Identifier: MIT
// Attributes that Fortran has set: C finds the addresses of their values (MPI-5.0, 19.3.7). Each value has one address,
// until the program ends.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_set>

namespace aplib::mpi {

class AttributeValues {
 public:
  void* address_of(std::intptr_t value) {
    const std::lock_guard lock(mutex_);
    std::intptr_t* const address = &values_.emplace(value, value).first->second;
    addresses_.insert(address);
    return address;
  }
  /// Of what C has: other addresses are values themselves.
  std::intptr_t at(const void* address) {
    const std::lock_guard lock(mutex_);
    return addresses_.contains(address) ? *static_cast<const std::intptr_t*>(address)
                                        : reinterpret_cast<std::intptr_t>(address);
  }
  bool has(const void* address) {
    const std::lock_guard lock(mutex_);
    return addresses_.contains(address);
  }

 private:
  std::mutex mutex_;
  std::map<std::intptr_t, std::intptr_t> values_;
  std::unordered_set<const void*> addresses_;
};

}  // namespace aplib::mpi
