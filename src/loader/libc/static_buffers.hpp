// SPDX-License-Identifier: MIT
// StaticBuffers: what libc's older functions return pointers to. One set per instance, made at the first use; tasks
// of an instance share it as threads of a process share libc's.
#pragma once

#include <array>
#include <ctime>
#include <vector>

#include "loader/libc/state.hpp"

namespace aplib::loader::libc {

struct SearchTable;     // static_buffers.cpp: hsearch
struct PatternMatcher;  // static_buffers.cpp: re_comp
struct Lookups;         // static_buffers.cpp: getpwnam, gethostbyname, ...
struct Conversions;     // static_buffers.cpp: mbtowc, ...

/// Fixed places, as libc's: a program may keep a pointer and see the next result through it.
struct StaticBuffers {
  std::tm broken_down{};               ///< gmtime and localtime: one and the same, as in libc.
  std::array<char, 128> time_text{};   ///< asctime, ctime
  char* next_token = nullptr;          ///< strtok
  std::array<char, 256> error_text{};  ///< strerror
  std::array<char, 256> signal_text{};
  std::array<char, 512> name{};                ///< tmpnam, ttyname, ptsname, getlogin, cuserid
  std::array<char, 8> base64{};                ///< l64a
  std::array<char, 32> address_text{};         ///< inet_ntoa
  std::array<char, 32> ether_text{};           ///< ether_ntoa
  std::array<char, 8> ether_address{};         ///< ether_aton
  std::vector<char> ecvt, fcvt, qecvt, qfcvt;  ///< Of one size from the first use on.

  Lazy<SearchTable> search;
  Lazy<PatternMatcher> pattern;
  Lazy<Lookups> lookups;
  Lazy<Conversions> conversions;
};

/// What asctime() makes of `time`, in `buffers`; null, and errno EINVAL, for null.
char* print_time(StaticBuffers& buffers, const std::tm* time);

}  // namespace aplib::loader::libc
