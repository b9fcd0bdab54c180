// SPDX-License-Identifier: MIT
#include "base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <string>

#include "aplib/error.hpp"
#include "base/text.hpp"

namespace aplib {
namespace {

LogLevel level_or_throw(std::string_view name) {
  if (const auto level = parse_log_level(name)) return *level;
  throw Error(Errc::bad_option,
              fmt::format("option log-level: \"{}\" is not a level: use one of {}", name, text::join(log_level_names)));
}

constexpr spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

}  // namespace

// Not registered with spdlog: two machines of one process have two loggers and neither outlives its machine.
struct Log::Sink {
  spdlog::logger logger{"aplib", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
};

Log::Log(LogLevel lowest) : lowest_(lowest), sink_(std::make_unique<Sink>()) {
  sink_->logger.set_level(spdlog_level(lowest));
  sink_->logger.set_pattern("aplib: %v");
}

Log::Log(std::string_view lowest) : Log(level_or_throw(lowest)) {}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view text) const {
  if (!wants(level)) return;
  const spdlog::string_view_t view(text.data(), text.size());
  if (level >= LogLevel::warn) {
    sink_->logger.log(spdlog_level(level), view);
  } else {
    // What is read every day carries no level; what was asked for says which.
    const std::string named = fmt::format("{}: {}", log_level_names[static_cast<std::size_t>(level)], text);
    sink_->logger.log(spdlog_level(level), spdlog::string_view_t(named.data(), named.size()));
  }
}

}  // namespace aplib
