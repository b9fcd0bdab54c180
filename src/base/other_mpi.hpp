// SPDX-License-Identifier: MIT
// Names of other MPIs' libraries, and which of ours take their places: in cells (src/loader/program.cpp), and in
// ordinary processes (src/mpi/front/audit.cpp), which is why this needs no library.
#pragma once

#include <cstddef>
#include <string_view>

namespace aplib::other_mpi {

/// True when `pattern`, with * and ?, is the whole of `name`. Takes time in proportion to the product of their lengths,
/// whatever they are.
constexpr bool matches(std::string_view pattern, std::string_view name) noexcept {
  constexpr std::size_t none = std::string_view::npos;
  std::size_t p = 0;
  std::size_t n = 0;
  // Where the last star was, and how much of the name it stands for so far: on a mismatch it takes one letter more.
  std::size_t star = none;
  std::size_t star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != none) {
      p = star + 1;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == none;
}

struct FrontEnd {
  std::string_view name;  ///< What programs ask for.
  const char* file;       ///< Ours, from libaplib's folder.
};

/// What other MPIs' programs ask for, and what they get.
inline constexpr FrontEnd front_ends[] = {
    {"libmpi.so.40", "aplib/mpi/openmpi/libmpi.so.40"},
    {"libopen_mpi.so.40", "aplib/mpi/openmpi/libmpi.so.40"},  // Open MPI 6 has most of libmpi.so.40 there
    {"libmpi_mpifh.so.40", "aplib/mpi/openmpi/libmpi_mpifh.so.40"},
    {"libmpi.so.12", "aplib/mpi/mpich/libmpi.so.12"},
    {"libmpich.so.12", "aplib/mpi/mpich/libmpi.so.12"},
};

/// By Open MPI, MPICH and what is made of it. libmpi_abi.so is the standard's.
inline constexpr std::string_view other_mpis[] = {"libmpi.so*",         "libmpi_cxx.so*",    "libmpi_mpifh.so*",
                                                  "libmpi_usempi*.so*", "libmpich.so*",      "libopen_mpi.so*",
                                                  "libmpichcxx.so*",    "libmpicxx.so*",     "libmpichfort.so*",
                                                  "libmpifort.so*",     "libmpich_intel.so*"};

/// Of other languages: they call only what the libraries above have, so programs get their own ones.
inline constexpr std::string_view kept_libraries[] = {"libmpichcxx.so.12",
                                                      "libmpicxx.so.12",
                                                      "libmpichfort.so.12",
                                                      "libmpifort.so.12",
                                                      "libmpi_cxx.so.40",
                                                      "libmpi_usempif08.so.40",
                                                      "libmpi_usempi_ignore_tkr.so.40"};

template <class Patterns>
constexpr bool any_matches(const Patterns& patterns, std::string_view name) noexcept {
  for (const auto& each : patterns) {
    if (matches(each, name)) return true;
  }
  return false;
}

/// The front end that stands for `name`; null: there is none.
constexpr const FrontEnd* front_end_for(std::string_view name) noexcept {
  for (const FrontEnd& each : front_ends) {
    if (matches(each.name, name)) return &each;
  }
  return nullptr;
}

/// A library of another MPI for which we have nothing.
constexpr bool is_foreign_mpi(std::string_view name) noexcept {
  return any_matches(other_mpis, name) && !any_matches(kept_libraries, name) && front_end_for(name) == nullptr;
}

}  // namespace aplib::other_mpi
