// SPDX-License-Identifier: MIT
// The representation external32: elements side by side, big-endian, with sizes of its own.
#include <algorithm>
#include <array>
#include <cstring>

#include "mpi/datatype.hpp"

namespace aplib::mpi {

namespace {

__extension__ typedef __float128 Quadruple;

constexpr std::size_t number_bytes_max = 16;

// How many numbers an element is, and the bytes of one here and there.
struct NumberForm {
  Kind kind;
  std::size_t count;
  std::size_t bytes;
  std::size_t external_bytes;

  explicit NumberForm(BasicType type) {
    const BasicInfo& info = basic_info(type);
    kind = info.kind;
    count = kind == Kind::complex ? 2 : 1;
    bytes = info.size / count;
    external_bytes = info.external_size / count;
    is_extended = type == BasicType::long_double || type == BasicType::c_long_double_complex ||
                  type == BasicType::cxx_long_double_complex;
  }

  bool is_extended;  // a long double, which is no quadruple
};

void to_external(char* external, const char* number, const NumberForm& form) {
  std::array<char, number_bytes_max> bytes{};
  std::memcpy(bytes.data(), number, form.bytes);
  if (form.is_extended) {
    long double value = 0;
    std::memcpy(&value, number, sizeof value);
    const Quadruple quadruple = value;
    std::memcpy(bytes.data(), &quadruple, sizeof quadruple);
  }
  std::reverse_copy(bytes.data(), bytes.data() + form.external_bytes, external);
}

void from_external(char* number, const char* external, const NumberForm& form) {
  // What is shorter there gets the sign that it has.
  const bool negative = form.kind == Kind::integer && external[0] < 0;
  std::array<char, number_bytes_max> bytes;
  bytes.fill(negative ? static_cast<char>(-1) : '\0');
  std::reverse_copy(external, external + form.external_bytes, bytes.data());
  if (form.is_extended) {
    Quadruple quadruple = 0;
    std::memcpy(&quadruple, bytes.data(), sizeof quadruple);
    const auto value = static_cast<long double>(quadruple);
    std::memcpy(number, &value, sizeof value);
  } else {
    std::memcpy(number, bytes.data(), form.bytes);
  }
}

// Goes through the elements in pieces that fit into a buffer: handle(cursor, buffer, bytes, form, how many numbers).
template <class Handle>
void for_each_piece(const Elements& elements, const SignaturePtr& signature, const Handle& handle) {
  Cursor cursor(elements, 0);
  if (signature->bytes() == 0) return;
  Signature::repeat(signature, elements.bytes() / signature->bytes())->for_each([&](BasicType type, Count count) {
    std::array<char, 4096> buffer;
    const NumberForm form(type);
    const auto element_bytes = static_cast<Count>(form.count * form.bytes);
    while (count > 0) {
      const Count piece = std::min(count, static_cast<Count>(buffer.size()) / element_bytes);
      handle(cursor, buffer.data(), piece * element_bytes, form, static_cast<std::size_t>(piece) * form.count);
      count -= piece;
    }
  });
}

}  // namespace

void pack_external(void* external, const Elements& from, const SignaturePtr& signature) {
  auto* next = static_cast<char*>(external);
  for_each_piece(from, signature,
                 [&](Cursor& cursor, char* buffer, Count bytes, const NumberForm& form, std::size_t numbers) {
                   Cursor into(bytes_at(buffer, bytes), 0);
                   copy(into, cursor, bytes);
                   for (std::size_t i = 0; i < numbers; ++i, next += form.external_bytes) {
                     to_external(next, buffer + i * form.bytes, form);
                   }
                 });
}

void unpack_external(const Elements& to, const void* external, const SignaturePtr& signature) {
  const auto* next = static_cast<const char*>(external);
  for_each_piece(to, signature,
                 [&](Cursor& cursor, char* buffer, Count bytes, const NumberForm& form, std::size_t numbers) {
                   for (std::size_t i = 0; i < numbers; ++i, next += form.external_bytes) {
                     from_external(buffer + i * form.bytes, next, form);
                   }
                   Cursor source(bytes_at(buffer, bytes), 0);
                   copy(cursor, source, bytes);
                 });
}

}  // namespace aplib::mpi
