// SPDX-License-Identifier: MIT
// Shared: an object that cells 0 and 1 have at the same place in their slots, so that each can name the other's by its
// own address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "aplib/aplib.hpp"
#include "benches.hpp"

namespace apbench {

struct Shared {
  static constexpr std::size_t bytes_max = 4U << 20;
  static constexpr std::size_t line = 64;

  Shared() noexcept {}  // not defaulted: the body is not cleared, so only the used part is touched

  alignas(4096) std::array<std::byte, bytes_max> body;
  alignas(line) std::uint64_t word = 0;  // a small object and its flag share a cache line, as in a user's struct
  aplib::Flag beside_word;
  alignas(line) aplib::Flag arrived;
  alignas(line) std::uint64_t counter = 0;
};

/// Calls `act(shared, first)` on cells 0 and 1; `first` is true on cell 0. Both begin together and leave together.
/// `act` returns seconds; cell 0's are the result.
template <class Act>
double with_shared(aplib::Machine& machine, Act act) {
  double seconds = 0;
  run_placed(machine, [&seconds, &act] {
    const auto memory = aplib::make_symmetric<Shared>();
    Shared& shared = *memory;
    const bool first = aplib::this_cell::id() == aplib::CellId{0};
    aplib::barrier();
    const double mine = act(shared, first);
    if (first) seconds = mine;
    aplib::barrier();
  });
  return seconds;
}

inline aplib::CellId other_cell() noexcept { return aplib::CellId{1 - aplib::index(aplib::this_cell::id())}; }

/// Operations before the timed ones.
inline std::uint64_t warm_up(std::uint64_t count) { return std::min<std::uint64_t>(count / 5 + 4, 10'000); }

/// The sizes of --bytes, or the usual ones. Throws std::invalid_argument for sizes beyond Shared's.
[[nodiscard]] std::vector<std::size_t> one_sided_sizes(const Wishes& wishes);

}  // namespace apbench
