// SPDX-License-Identifier: MIT
// Log: what a machine tells the person who runs it, on stderr. Each Machine owns one; there is no global log.
//
//   Log log(LogLevel::warn);
//   log.warn("cell {}: {}", 3, text);      // aplib: cell 3: ...
//   log.debug("processor {} sleeps", 0);   // aplib: debug: processor 0 sleeps   (only at level debug or trace)
//
// Thread safety: all functions may be called from any thread; lines do not mix. They make a system call: not for
// hot paths.
#pragma once

#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.hpp"

namespace aplib {

/// How much is told, least important first. The option "log-level" names the lowest one that is written.
enum class LogLevel { trace, debug, info, warn, error, off };

/// Names of the levels as options and lines spell them, in the order of LogLevel.
inline constexpr std::array<std::string_view, 6> log_level_names{"trace", "debug", "info", "warn", "error", "off"};

/// The level of that name, either case; nothing for another word.
[[nodiscard]] inline std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (std::size_t i = 0; i < log_level_names.size(); ++i) {
    if (text::equal_ignoring_case(name, log_level_names[i])) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

class Log {
 public:
  /// Writes messages of `lowest` and above to stderr.
  explicit Log(LogLevel lowest = LogLevel::warn);
  /// By name, from Options::log_level. Throws Error(bad_option) for an unknown one.
  explicit Log(std::string_view lowest);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  [[nodiscard]] bool wants(LogLevel level) const noexcept { return level >= lowest_ && level != LogLevel::off; }

  template <class... Args>
  void trace(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::trace, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::debug, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::info, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::warn, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::error, format, std::forward<Args>(args)...);
  }

  template <class... Args>
  void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (wants(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
  }

  /// A ready text, several lines allowed; only the first carries the prefix.
  void write(LogLevel level, std::string_view text) const;

 private:
  struct Sink;  // keeps the logging library out of our headers
  LogLevel lowest_;
  std::unique_ptr<Sink> sink_;
};

}  // namespace aplib
