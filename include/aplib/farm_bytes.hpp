// SPDX-License-Identifier: MIT
// How values go to another process and back: as bytes, if they are numbers or other trivially copyable types, strings,
// vectors, pairs, tuples, optionals, or structures that list their fields:
//
//   struct Point {
//     double x, y;
//     std::string name;
//     template <class Self, class Fields>
//     static void list(Self& self, Fields&& fields) { fields(self.x, self.y, self.name); }
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace aplib::farm {

using Bytes = std::vector<std::byte>;

namespace detail {

struct AnyField {
  template <class... T>
  void operator()(T&...) const {}
};
template <class T>
concept ListsFields = requires(T& value) { T::list(value, AnyField{}); };

template <class T>
struct IsSendable : std::bool_constant<ListsFields<T> || (std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>)> {};
template <>
struct IsSendable<std::string> : std::true_type {};
template <class T>
struct IsSendable<std::vector<T>> : IsSendable<T> {};
template <class T>
struct IsSendable<std::optional<T>> : IsSendable<T> {};
template <class A, class B>
struct IsSendable<std::pair<A, B>> : std::conjunction<IsSendable<A>, IsSendable<B>> {};
template <class... T>
struct IsSendable<std::tuple<T...>> : std::conjunction<IsSendable<T>...> {};

}  // namespace detail

/// Whether values of this type can go to another process.
template <class T>
concept Sendable = std::is_default_constructible_v<T> && detail::IsSendable<T>::value;

/// Appends values.
class BytesWriter {
 public:
  explicit BytesWriter(Bytes& to) : to_(to) {}
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  void raw(const void* from, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(from);
    to_.insert(to_.end(), begin, begin + size);
  }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    raw(text.data(), text.size());
  }
  template <class T>
  void put(const std::vector<T>& all) {
    put(std::uint64_t{all.size()});
    if constexpr (std::is_trivially_copyable_v<T> && !detail::ListsFields<T> && !std::is_same_v<T, bool>) {
      raw(all.data(), all.size() * sizeof(T));
    } else {
      for (const T& each : all) put(each);
    }
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class... T>
  void put(const std::tuple<T...>& all) {
    std::apply([this](const T&... each) { (*this)(each...); }, all);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (detail::ListsFields<T>) {
      T::list(value, *this);
    } else {
      raw(&value, sizeof value);
    }
  }

  Bytes& to_;
};

/// Takes values off. What does not fit leaves them empty, and good() false.
class BytesReader {
 public:
  explicit BytesReader(std::span<const std::byte> from) : rest_(from) {}
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  [[nodiscard]] bool ended() const noexcept { return good_ && rest_.empty(); }

 private:
  bool has(std::uint64_t size) {
    good_ = good_ && size <= rest_.size();
    return good_;
  }
  void raw(void* to, std::size_t size) {
    if (size == 0 || !has(size)) return;
    std::memcpy(to, rest_.data(), size);
    rest_ = rest_.subspan(size);
  }
  std::uint64_t size() {
    std::uint64_t value = 0;
    raw(&value, sizeof value);
    return value;
  }
  void get(bool& value) {
    std::uint8_t byte = 0;
    raw(&byte, 1);
    good_ = good_ && byte <= 1;
    value = byte == 1;
  }
  void get(std::string& text) {
    const std::uint64_t count = size();
    text.assign(has(count) ? count : 0, '\0');
    raw(text.data(), text.size());
  }
  template <class T>
  void get(std::vector<T>& all) {
    const std::uint64_t count = size();
    all.clear();
    if constexpr (std::is_trivially_copyable_v<T> && !detail::ListsFields<T> && !std::is_same_v<T, bool>) {
      if (count > rest_.size() / sizeof(T)) good_ = false;
      if (!good_) return;
      all.resize(count);
      raw(all.data(), count * sizeof(T));
    } else {
      for (std::uint64_t i = 0; i < count && good_; ++i) {  // a false count costs nothing
        if (rest_.empty()) good_ = false;
        T each{};
        get(each);
        if (good_) all.push_back(std::move(each));
      }
    }
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <class A, class B>
  void get(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class... T>
  void get(std::tuple<T...>& all) {
    std::apply([this](T&... each) { (*this)(each...); }, all);
  }
  template <class T>
  void get(T& value) {
    if constexpr (detail::ListsFields<T>) {
      T::list(value, *this);
    } else {
      raw(&value, sizeof value);
    }
  }

  std::span<const std::byte> rest_;
  bool good_ = true;
};

}  // namespace aplib::farm
