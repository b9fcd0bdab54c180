// SPDX-License-Identifier: MIT
#include "calls/extents.hpp"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "aplib/error.hpp"

namespace aplib::calls {
namespace {

/// Of an integer type.
std::int64_t integer_at(Type type, const void* address) {
  return with_type(type, [address](auto value) -> std::int64_t {
    std::memcpy(&value, address, sizeof value);
    if constexpr (std::is_same_v<decltype(value), std::uint64_t>)
      if (value > INT64_MAX) return INT64_MAX;  // no array has so many elements
    if constexpr (std::is_integral_v<decltype(value)>) return static_cast<std::int64_t>(value);
    return 0;
  });
}

}  // namespace

void refuse_argument(const Function& function, const Parameter& parameter, const std::string& why) {
  throw Error(Errc::bad_argument,
              fmt::format("{}: {}", function.name, print_parameter(function, parameter)) + ": " + why);
}

// --- Extents ---

void Extents::measure(const Function& function, std::span<void* const> addresses) {
  const std::size_t count = function.parameters.size();
  if (extents_.size() < count) extents_.resize(count);
  values_.assign(count, 0);
  bytes_ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = function.parameters[i];
    if (!parameter.is_scalar() || !parameter.goes_in()) continue;
    if (addresses[i] == nullptr) refuse_argument(function, parameter, "its address is NULL: pass that of the value");
    if (is_integer(parameter.type)) values_[i] = integer_at(parameter.type, addresses[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    extents_[i].elements = 1;
    extents_[i].moved = 1;
    extents_[i].ranges.clear();
    extents_[i].offset = Extent::in_stream;
    measure_array(function, i);
    if (__builtin_add_overflow(bytes_, extents_[i].bytes, &bytes_) || bytes_ > array_bytes_max)
      refuse_argument(function, function.parameters[i], "the arguments have no room in memory: pass less at a time");
  }
}

void Extents::measure_array(const Function& function, std::size_t which) {
  const Parameter& parameter = function.parameters[which];
  Extent& extent = extents_[which];
  std::size_t number = 0;
  const auto value = [&](const Expression& expression, const char* what) {
    try {
      return expression.value(values_);
    } catch (const Error& error) {
      refuse_argument(
          function, parameter,
          fmt::format("{} of dimension {}: {}: check the arguments that it is made of", what, number, error.what()));
    }
  };
  bool whole = true;
  for (const Dimension& dimension : parameter.dimensions) {
    ++number;
    const std::int64_t size = value(dimension.size, "the size");
    const std::int64_t low = dimension.low ? value(*dimension.low, "the low end") : 0;
    const std::int64_t high = dimension.high ? value(*dimension.high, "the high end") : size;
    const std::int64_t stride = dimension.stride ? value(*dimension.stride, "the stride") : 1;
    if (size < 0)
      refuse_argument(function, parameter, fmt::format("the size of dimension {} is {}: use 0 or more", number, size));
    if (low < 0 || high > size || low > high || stride < 1) {
      refuse_argument(function, parameter,
                      fmt::format("of dimension {}, {},{},{} (low, high, stride) is to travel: use 0 <= low <= high <= "
                                  "{}, and 1 or more",
                                  number, low, high, stride, size));
    }
    const Range range{.size = static_cast<std::uint64_t>(size),
                      .low = static_cast<std::uint64_t>(low),
                      .count = static_cast<std::uint64_t>((high - low) / stride + ((high - low) % stride != 0 ? 1 : 0)),
                      .stride = static_cast<std::uint64_t>(stride)};
    whole = whole && range.count == range.size;
    extent.ranges.push_back(range);
    if (__builtin_mul_overflow(extent.elements, range.size, &extent.elements) || extent.elements > array_bytes_max) {
      refuse_argument(
          function, parameter,
          fmt::format("with a dimension {} of {} elements it has no room in memory: use less", number, size));
    }
    extent.moved *= range.count;
  }
  if (whole) extent.ranges.clear();
  const std::uint64_t each = bytes_of(parameter.type);
  if (extent.elements > array_bytes_max / each)
    refuse_argument(function, parameter, fmt::format("{} elements have no room in memory: use less", extent.elements));
  extent.bytes = extent.elements * each;
  extent.moved_bytes = extent.moved * each;
}

std::uint64_t Extents::place_in_arena(const Function& function) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < function.parameters.size(); ++i) {
    const Parameter& parameter = function.parameters[i];
    Extent& extent = extents_[i];
    if (!parameter.is_array() || is_text(parameter.type) || parameter.mode == Mode::work ||
        extent.moved_bytes < arena_array_min)
      continue;
    extent.offset = end;
    end = rounded_to_lines(end + extent.moved_bytes);
  }
  return end;
}

}  // namespace aplib::calls
