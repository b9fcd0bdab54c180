// SPDX-License-Identifier: MIT
#include "report.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace apbench {
namespace {

std::string people_bytes(std::size_t bytes) {
  if (bytes == 0) return "-";
  if (bytes % (1U << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes % (1U << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

}  // namespace

std::string number(double value) {
  if (!std::isfinite(value)) throw std::runtime_error("a sample gave no finite number: its time was zero");
  const double size = std::fabs(value);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  if (size >= 100) return fmt::format("{:.1f}", value);
  if (size >= 10) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

std::string json_line(const Result& r) {
  return fmt::format(R"({{"bench":"{}","case":"{}","bytes":{},"value":{},"low":{},"high":{},"unit":"{}"}})", r.bench,
                     r.case_name, r.bytes, number(r.summary.median), number(r.summary.low), number(r.summary.high),
                     r.unit);
}

std::string table(const std::vector<Result>& results) {
  std::string text = fmt::format("{:<10} {:<22} {:>8} {:>10} {:>10} {:>10}  {}\n", "bench", "case", "bytes", "median",
                                 "p10", "p90", "unit");
  for (const Result& r : results) {
    text += fmt::format("{:<10} {:<22} {:>8} {:>10} {:>10} {:>10}  {}\n", r.bench, r.case_name, people_bytes(r.bytes),
                        number(r.summary.median), number(r.summary.low), number(r.summary.high), r.unit);
  }
  return text;
}

std::size_t parse_bytes(std::string_view text) {
  std::size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  unsigned shift = 0;
  if (suffix == "k" || suffix == "K") {
    shift = 10;
  } else if (suffix == "m" || suffix == "M") {
    shift = 20;
  } else if (!suffix.empty()) {
    shift = 64;
  }
  constexpr std::size_t bytes_max = std::size_t{1} << 30;
  if (error != std::errc{} || shift == 64 || value > (bytes_max >> shift)) {
    throw std::invalid_argument(
        fmt::format("'{}' is not a message size; write 8, 64k or 1m, at most 1024m, several with commas", text));
  }
  return value << shift;
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw std::runtime_error(fmt::format("cannot write standard output: {}", std::strerror(errno)));
}

}  // namespace apbench
