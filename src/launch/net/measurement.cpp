// SPDX-License-Identifier: MIT
// Only the standard library: net-probe, which goes to every host, has it too.
#include "launch/net/measurement.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <span>
#include <system_error>

namespace aplib::launch::net {
namespace {

/// Its one thread never waits.
constexpr double whole_core = 0.9;
constexpr double mostly = 0.5;

constexpr std::string_view measured_word = "measured";
constexpr std::string_view round_word = "round ";

/// Calls `each` for all numbers, in the order of a line.
template <class Self, class Each>
void list(Self& self, Each&& each) {
  each(self.from);
  each(self.to);
  each(self.round_trip);
  each(self.round_trip_median);
  each(self.bytes);
  each(self.time);
  each(self.streams);
  each(self.sent);
  each(self.sent_again);
  each(self.busy);
  each(self.receiver_limited);
  each(self.sender_limited);
  each(self.sender_cores);
  each(self.receiver_cores);
}

/// Takes the next number of a line, and the blank before it.
template <class Number>
bool take(std::string_view& text, Number& into) {
  if (!text.starts_with(' ')) return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if constexpr (std::is_floating_point_v<Number>) return std::isfinite(into) && into >= 0;
  return true;
}

}  // namespace

Limit Measurement::limit() const {
  if (sender_cores > whole_core) return Limit::sender_processor;
  if (receiver_cores > whole_core) return Limit::receiver_processor;
  if (streams == 0) return Limit::unknown;
  if (receiver_limited > mostly * busy) return Limit::receiver_buffer;
  if (sender_limited > mostly * busy) return Limit::sender_buffer;
  return Limit::path;
}

std::string measurement_line(const Measurement& measurement) {
  std::string line(measured_word);
  list(measurement, [&line](auto number) {
    std::array<char, 32> text{};
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
    line += ' ';
    line.append(text.data(), error == std::errc() ? end : text.data());
  });
  return line + '\n';
}

std::optional<Measurement> read_measurement(std::string_view line) {
  if (!line.starts_with(measured_word)) return std::nullopt;
  line.remove_prefix(measured_word.size());
  Measurement measurement;
  bool good = true;
  list(measurement, [&](auto& number) { good = good && take(line, number); });
  if (!good || !line.empty()) return std::nullopt;
  return measurement;
}

std::string round_line(std::uint32_t round) { return std::string(round_word) + std::to_string(round) + '\n'; }

std::optional<std::uint32_t> read_round(std::string_view line) {
  if (!line.starts_with(round_word)) return std::nullopt;
  line.remove_prefix(round_word.size() - 1);
  std::uint32_t round = 0;
  if (!take(line, round) || !line.empty()) return std::nullopt;
  return round;
}

}  // namespace aplib::launch::net
