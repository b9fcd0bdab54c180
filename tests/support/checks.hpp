// SPDX-License-Identifier: MIT
// What tests of every folder ask: what an error says, what a text holds, which seed to take, how often to repeat.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "aplib/error.hpp"

namespace aplib::testing_support {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif
#if defined(NDEBUG)
inline constexpr bool debug = false;
#else
inline constexpr bool debug = true;
#endif

/// A count for release builds, reduced where every step costs much more.
constexpr std::uint64_t scaled(std::uint64_t count, std::uint64_t sanitized_divisor = 20,
                               std::uint64_t debug_divisor = 5) {
  if (sanitized) return count / sanitized_divisor;
  return debug ? count / debug_divisor : count;
}

/// The text of the Error that `action` throws, or why there is none. With `code`, the error must have that.
template <class Action>
std::string error_text(Action action, std::optional<Errc> code = std::nullopt) {
  try {
    action();
  } catch (const Error& error) {
    if (code) {
      EXPECT_EQ(error.code(), *code);
    }
    return error.what();
  }
  return "(no error)";
}

/// Compares by memcmp. (std::equal goes byte by byte, which takes seconds for megabytes when it is instrumented.)
inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

/// The same, for bytes that are all alike.
inline bool all_bytes_are(std::byte value, std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes.front() == value && same_bytes(bytes.subspan(1), bytes.first(bytes.size() - 1)));
}

/// A body that differs from place to place and from salt to salt. It repeats after 64 KiB and is copied, for the same
/// reason: each salt's is a part of one sequence.
inline std::vector<std::byte> body_of(std::size_t bytes, unsigned salt) {
  constexpr std::size_t period = 65536;
  static const std::vector<std::byte> sequence = [] {
    std::vector<std::byte> made(2 * period);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>(i * 131 + i / 256);
    return made;
  }();
  std::vector<std::byte> body(bytes);
  for (std::size_t i = 0; i < bytes; i += period)
    std::memcpy(&body[i], &sequence[salt % 256 * 256], std::min(period, bytes - i));
  return body;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The value of the environment variable `name`, or `otherwise`. (Names with APLIB_ are the library's options.)
inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 0) : otherwise;
}

/// Of tests that throw dice: the same in every run, another one by APLIB_TEST_SEED=n.
inline std::uint64_t test_seed(std::uint64_t usual = 20240229) {
  return number_from_environment("APLIB_TEST_SEED", usual);
}

}  // namespace aplib::testing_support
