// SPDX-License-Identifier: MIT
// RegistrationCache: registrations of local memory, kept for the next time, because making one costs microseconds and a system call. It survives what programs do to their memory: a registration whose pages
// were unmapped, given back or moved is never used again, whatever lies at its addresses now (MemoryWatch). Where the kernel does not tell of that, nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>

#include "comm/rdma/memory_watch.hpp"

namespace aplib::comm {

/// Registered as long as it lives.
class Registration {
 public:
  virtual ~Registration() = default;
  Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  /// What the provider wants to see beside an address.
  [[nodiscard]] virtual void* descriptor() const noexcept = 0;
};

/// Thread safety: none (the module's lock); memory may be unmapped by any thread at any time.
class RegistrationCache {
 public:
  /// Registers whole pages. Null: not possible now.
  using Make = std::function<std::shared_ptr<Registration>(std::span<const std::byte> pages)>;
  struct Limits {
    std::size_t entries = 1024;
    std::size_t bytes = std::size_t{4} << 30U;
  };

  /// `watch`: false: as where the kernel does not tell.
  RegistrationCache(Make make, Limits limits, bool watch);

  /// The memory is mapped now, and stays so as long as the registration is used. Null: not possible now.
  [[nodiscard]] std::shared_ptr<Registration> find_or_make(std::span<const std::byte> memory);

  [[nodiscard]] bool watches() const noexcept { return watch_ != nullptr; }
  [[nodiscard]] std::size_t entries() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

 private:
  struct Entry {
    std::uintptr_t end;
    std::shared_ptr<Registration> registration;
    std::list<std::uintptr_t>::iterator use;
  };
  using Entries = std::map<std::uintptr_t, Entry>;  // By begin; they do not overlap.

  void hear();
  void forget(std::uintptr_t begin, std::uintptr_t end);
  Entries::iterator drop(Entries::iterator entry);
  [[nodiscard]] Entries::iterator first_behind(std::uintptr_t begin);

  Make make_;
  Limits limits_;
  std::unique_ptr<MemoryWatch> watch_;
  Entries entries_;
  std::list<std::uintptr_t> used_;  // Begins of entries, the latest first.
  std::size_t bytes_ = 0;
  std::uint64_t made_ = 0;
};

}  // namespace aplib::comm
