// SPDX-License-Identifier: MIT
// Converts structures to bytes, field by field, and back, where the bytes may come from anybody. A structure names its
// fields once:
//
//   template <class Self, class Fields>
//   static void list(Self& self, Fields&& fields) { fields(self.first, self.second); }
//
// An enumeration's largest value is called `last`; larger ones are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/cell_map.hpp"

namespace aplib::launch::wire {

using Bytes = std::vector<std::byte>;

class FieldWriter {
 public:
  template <class... Field>
  void operator()(const Field&... fields) {
    (put(fields), ...);
  }
  Bytes take() { return out_.take(); }

 private:
  template <class Field>
  void put(const Field& field) {
    if constexpr (std::is_same_v<Field, bool>) {
      out_.number(std::uint8_t{field});
    } else if constexpr (std::is_enum_v<Field>) {
      out_.number(static_cast<std::uint8_t>(field));
    } else if constexpr (std::is_arithmetic_v<Field>) {
      out_.number(field);
    } else if constexpr (std::is_same_v<Field, std::string>) {
      out_.text(field);
    } else {
      Field::list(field, *this);
    }
  }
  void put(const CellMap& cells) { put(cells.words()); }
  void put(const Bytes& bytes) { put_bytes(bytes); }
  void put(std::span<const std::byte> bytes) { put_bytes(bytes); }
  template <class Each>
  void put(const std::vector<Each>& all) {
    out_.number(static_cast<std::uint64_t>(all.size()));
    for (const Each& each : all) put(each);
  }
  void put_bytes(std::span<const std::byte> bytes) {
    out_.number(static_cast<std::uint64_t>(bytes.size()));
    out_.raw(bytes);
  }

  ByteWriter out_;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : in_(bytes) {}

  template <class... Field>
  void operator()(Field&... fields) {
    (get(fields), ...);
  }
  /// Whether everything was there and valid, and nothing is left.
  [[nodiscard]] bool ended() const { return good_ && in_.ended(); }

 private:
  template <class Field>
  void get(Field& field) {
    if constexpr (std::is_same_v<Field, bool>) {
      field = limited(1) == 1;
    } else if constexpr (std::is_enum_v<Field>) {
      field = static_cast<Field>(limited(static_cast<std::uint8_t>(Field::last)));
    } else if constexpr (std::is_arithmetic_v<Field>) {
      field = in_.number<Field>();
    } else if constexpr (std::is_same_v<Field, std::string>) {
      field = in_.text();
    } else {
      Field::list(field, *this);
    }
  }
  void get(CellMap& into) {
    std::vector<std::uint32_t> words;
    get(words);
    std::optional<CellMap> cells = CellMap::from_words(words);
    good_ = good_ && cells.has_value();
    if (cells) into = std::move(*cells);
  }
  void get(Bytes& into) {
    const std::span<const std::byte> bytes = in_.raw(in_.number<std::uint64_t>());
    into.assign(bytes.begin(), bytes.end());
  }
  /// A view of the message.
  void get(std::span<const std::byte>& into) { into = in_.raw(in_.number<std::uint64_t>()); }
  template <class Each>
  void get(std::vector<Each>& all) {
    const auto count = in_.number<std::uint64_t>();
    all.clear();
    // Makes room for one element at a time, so that a false length costs nothing.
    for (std::uint64_t i = 0; i < count && good_ && in_.good(); ++i) get(all.emplace_back());
  }
  std::uint8_t limited(std::uint8_t last) {
    const auto value = in_.number<std::uint8_t>();
    if (value <= last) return value;
    good_ = false;
    return 0;
  }

  ByteReader in_;
  bool good_ = true;
};

template <class Structure>
[[nodiscard]] Bytes encode(const Structure& value) {
  FieldWriter writer;
  Structure::list(value, writer);
  return writer.take();
}

/// Nothing: these bytes are not such a structure. Views in the result are views of `bytes`.
template <class Structure>
[[nodiscard]] std::optional<Structure> decode(std::span<const std::byte> bytes) {
  std::optional<Structure> value(std::in_place);
  FieldReader reader(bytes);
  Structure::list(*value, reader);
  if (!reader.ended()) value.reset();
  return value;
}

}  // namespace aplib::launch::wire
