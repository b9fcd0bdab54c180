// SPDX-License-Identifier: MIT
// Numbers, texts and lists as bytes, little-endian, for what processes tell each other; and back, where the bytes
// may be anybody's.
//
//   ByteWriter out;  out.number(std::uint32_t{7});  out.text("ws1");
//   ByteReader in(out.bytes());  in.number<std::uint32_t>();  in.text();  if (!in.ended()) ...
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aplib {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

class ByteWriter {
 public:
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  void number(T value) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + sizeof value);
    std::memcpy(bytes_.data() + end, &value, sizeof value);
  }
  /// With its length.
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    raw(std::as_bytes(std::span(value)));
  }
  void texts(const std::vector<std::string>& values) {
    number(static_cast<std::uint64_t>(values.size()));
    for (const std::string& value : values) text(value);
  }
  template <class T>
  void numbers(const std::vector<T>& values) {
    number(static_cast<std::uint64_t>(values.size()));
    for (const T value : values) number(value);
  }
  /// Without their length.
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  [[nodiscard]] const std::vector<std::byte>& bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Once something does not fit, all that is read is empty or 0, and good() is false.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  T number() noexcept {
    static_assert(!std::same_as<T, bool>, "a byte of a stranger may be neither 0 nor 1: read a std::uint8_t");
    T value{};
    const std::span<const std::byte> bytes = raw(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    const std::span<const std::byte> bytes = raw(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<std::string> texts() {
    std::vector<std::string> values;
    for (auto left = count(sizeof(std::uint64_t)); left != 0 && good_; --left) values.push_back(text());
    return values;
  }
  template <class T>
  std::vector<T> numbers() {
    std::vector<T> values;
    for (auto left = count(sizeof(T)); left != 0; --left) values.push_back(number<T>());
    return values;
  }
  std::span<const std::byte> raw(std::uint64_t size) noexcept {
    if (size > rest_.size()) {
      good_ = false;
      rest_ = {};
    }
    const std::span<const std::byte> bytes = rest_.first(good_ ? static_cast<std::size_t>(size) : 0);
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }
  std::span<const std::byte> rest() noexcept { return raw(rest_.size()); }

  [[nodiscard]] bool good() const noexcept { return good_; }
  /// All was read, and all of it was there.
  [[nodiscard]] bool ended() const noexcept { return good_ && rest_.empty(); }

 private:
  /// A number of elements for which there is room, or 0.
  std::uint64_t count(std::size_t bytes_each) noexcept {
    const auto elements = number<std::uint64_t>();
    if (elements <= rest_.size() / bytes_each) return elements;
    good_ = false;
    rest_ = {};
    return 0;
  }

  std::span<const std::byte> rest_;
  bool good_ = true;
};

}  // namespace aplib
