// SPDX-License-Identifier: MIT
// The kernel's API for front ends that do something for each other between processes at once, whatever the tasks there
// do: errands, which whoever polls the network carries out.
//
// `call`: as in api.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "aplib/export.hpp"
#include "aplib/ids.hpp"

namespace aplib {

struct Domain;

/// What a front end in this process does for its like in others.
class Errands {
 public:
  /// A small body, whatever the module.
  static constexpr std::size_t bytes_max = 16 * 1024 - 1;

  virtual ~Errands() = default;
  /// Carries an errand out that another process has sent. Called while the network is polled, so it does not wait.
  /// False: it makes no sense.
  virtual bool take(std::uint32_t from, std::span<const std::byte> errand) = 0;
};

}  // namespace aplib

namespace aplib::api {

/// The front end's part in this process, which the first call makes. REQUIRES: there are other processes. Call from:
/// task.
[[nodiscard]] APLIB_API std::shared_ptr<Errands> errands(const char* call,
                                                         std::unique_ptr<Errands> (*make)(Domain& domain));

/// Sends an errand of at most Errands::bytes_max to the process that carries the cell, which is another one. Errands to
/// a process are carried out in order, and in order with messages. May wait. Call from: task.
APLIB_API void send_errand(const char* call, CellId to, std::span<const std::byte> errand);
/// The same in Errands::take(); does not wait.
APLIB_API void answer_errand(Domain& domain, std::uint32_t process, std::span<const std::byte> errand);

/// In Errands::take(): tasks of this process look at their conditions.
APLIB_API void stir_all(Domain& domain) noexcept;

}  // namespace aplib::api
