// SPDX-License-Identifier: MIT
// StaticBuffers: what libc's older functions return pointers to. One set per instance, made at the first use; tasks of an instance share it as threads of a
// process share libc's.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "loader/libc/state.hpp"

namespace aplib::loader {

struct SearchTable;     // static_buffers.cpp: hsearch
struct PatternMatcher;  // static_buffers.cpp: re_comp
struct Lookups;         // databases.cpp: getpwnam, gethostbyname, ...
struct Conversions;     // conversions.cpp: mbtowc, ...

struct StaticBuffers {
  std::tm broken_down{};       ///< gmtime and localtime: one and the same, as in libc.
  std::string time_text;       ///< asctime, ctime
  char* next_token = nullptr;  ///< strtok
  std::string error_text;
  std::string signal_text;
  std::vector<char> name;  ///< tmpnam, ttyname, ptsname, getlogin
  std::vector<char> ecvt, fcvt, qecvt, qfcvt;
  std::string base64;        ///< l64a
  std::string address_text;  ///< inet_ntoa
  std::string ether_text;    ///< ether_ntoa
  std::vector<unsigned char> ether_address;

  Lazy<SearchTable> search;
  Lazy<PatternMatcher> pattern;
  Lazy<Lookups> lookups;
  Lazy<Conversions> conversions;
};

/// What asctime() makes of `time`, in `buffers`; null, and errno EINVAL, for null. May throw std::bad_alloc.
char* print_time(StaticBuffers& buffers, const std::tm* time);

}  // namespace aplib::loader
