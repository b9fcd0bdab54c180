// SPDX-License-Identifier: MIT
// The predefined datatypes of the standard ABI. A basic type's code is the low byte of its handle (0x200..0x2ff).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace aplib::mpi {

/// Some codes by name; every low byte of a predefined handle is a value of this type.
enum class BasicType : std::uint8_t {
  null = 0x00,
  packed = 0x07,
  int16 = 0x08,
  int32 = 0x09,
  int64 = 0x0a,
  float32 = 0x10,
  float64 = 0x14,
  real = 0x1a,
  double_precision = 0x1c,
  integer = 0x19,
  long_double = 0x20,
  c_long_double_complex = 0x24,
  cxx_long_double_complex = 0x25,
  byte = 0x47,
};

/// What an element's bits mean. Two types of one kind and size match each other, whatever the language.
enum class Kind : std::uint8_t {
  none,     ///< No type, or one that this machine's compilers lack: its size is 0.
  integer,  ///< With a sign.
  natural,  ///< Without one.
  floating,
  complex,    ///< Two floating ones.
  logical,    ///< Of C, C++ and Fortran.
  character,  ///< Text.
  raw,        ///< MPI_BYTE.
  packed,     ///< MPI_PACKED.
  pair,       ///< A value and an index, for MPI_MINLOC and MPI_MAXLOC: two elements, perhaps with a gap.
};

struct BasicInfo {
  const char* name = nullptr;  ///< Null: the code is no type's.
  Kind kind = Kind::none;
  std::uint8_t size = 0;  ///< Bytes of the values, without the gap of a pair.
  std::uint8_t alignment = 1;
  std::uint8_t external_size = 0;     ///< In the representation external32.
  BasicType value = BasicType::null;  ///< Of a pair.
  BasicType index = BasicType::null;
};

namespace detail {

class BasicTable {
 public:
  constexpr BasicTable() {
    add_languages_own();
    add_pairs();
    add_sized();
  }
  [[nodiscard]] constexpr const BasicInfo& operator[](BasicType type) const {
    return table_[static_cast<std::size_t>(type)];
  }

 private:
  constexpr BasicInfo& add(unsigned code, const char* name, Kind kind, std::size_t size, std::size_t alignment) {
    const auto bytes = static_cast<std::uint8_t>(size);
    return table_[code] = BasicInfo{name, kind, bytes, static_cast<std::uint8_t>(alignment), bytes};
  }
  constexpr BasicInfo& add(unsigned code, const char* name, Kind kind, std::size_t size) {
    return add(code, name, kind, size, kind == Kind::complex ? size / 2 : size);
  }
  constexpr void add_pair(unsigned code, const char* name, BasicType value, BasicType index) {
    const BasicInfo& first = (*this)[value];
    const BasicInfo& second = (*this)[index];
    const unsigned alignment = first.alignment > second.alignment ? first.alignment : second.alignment;
    BasicInfo& pair = add(code, name, Kind::pair, std::size_t{first.size} + second.size, alignment);
    pair.value = value;
    pair.index = index;
    pair.external_size = static_cast<std::uint8_t>(first.external_size + second.external_size);
  }

  constexpr void add_languages_own() {
    add(0x00, "MPI_DATATYPE_NULL", Kind::none, 0, 1);
    add(0x01, "MPI_AINT", Kind::integer, 8);
    add(0x02, "MPI_COUNT", Kind::integer, 8);
    add(0x03, "MPI_OFFSET", Kind::integer, 8);
    add(0x07, "MPI_PACKED", Kind::packed, 1);
    add(0x08, "MPI_SHORT", Kind::integer, 2);
    add(0x09, "MPI_INT", Kind::integer, 4);
    add(0x0a, "MPI_LONG", Kind::integer, 8).external_size = 4;
    add(0x0b, "MPI_LONG_LONG_INT", Kind::integer, 8);
    add(0x0c, "MPI_UNSIGNED_SHORT", Kind::natural, 2);
    add(0x0d, "MPI_UNSIGNED", Kind::natural, 4);
    add(0x0e, "MPI_UNSIGNED_LONG", Kind::natural, 8).external_size = 4;
    add(0x0f, "MPI_UNSIGNED_LONG_LONG", Kind::natural, 8);
    add(0x10, "MPI_FLOAT", Kind::floating, 4);
    add(0x12, "MPI_C_COMPLEX", Kind::complex, 8);
    add(0x13, "MPI_CXX_FLOAT_COMPLEX", Kind::complex, 8);
    add(0x14, "MPI_DOUBLE", Kind::floating, 8);
    add(0x16, "MPI_C_DOUBLE_COMPLEX", Kind::complex, 16);
    add(0x17, "MPI_CXX_DOUBLE_COMPLEX", Kind::complex, 16);
    add(0x18, "MPI_LOGICAL", Kind::logical, 4);
    add(0x19, "MPI_INTEGER", Kind::integer, 4);
    add(0x1a, "MPI_REAL", Kind::floating, 4);
    add(0x1b, "MPI_COMPLEX", Kind::complex, 8);
    add(0x1c, "MPI_DOUBLE_PRECISION", Kind::floating, 8);
    add(0x1d, "MPI_DOUBLE_COMPLEX", Kind::complex, 16);
    add(0x1e, "MPI_CHARACTER", Kind::character, 1);
    add(0x20, "MPI_LONG_DOUBLE", Kind::floating, sizeof(long double), alignof(long double));
    add(0x24, "MPI_C_LONG_DOUBLE_COMPLEX", Kind::complex, 2 * sizeof(long double), alignof(long double));
    add(0x25, "MPI_CXX_LONG_DOUBLE_COMPLEX", Kind::complex, 2 * sizeof(long double), alignof(long double));
    add(0x38, "MPI_C_BOOL", Kind::logical, 1);
    add(0x39, "MPI_CXX_BOOL", Kind::logical, 1);
    add(0x3c, "MPI_WCHAR", Kind::character, sizeof(wchar_t)).external_size = 2;
  }
  constexpr void add_pairs() {
    add_pair(0x28, "MPI_FLOAT_INT", BasicType::float32, BasicType::int32);
    add_pair(0x29, "MPI_DOUBLE_INT", BasicType::float64, BasicType::int32);
    add_pair(0x2a, "MPI_LONG_INT", BasicType::int64, BasicType::int32);
    add_pair(0x2b, "MPI_2INT", BasicType::int32, BasicType::int32);
    add_pair(0x2c, "MPI_SHORT_INT", BasicType::int16, BasicType::int32);
    add_pair(0x2d, "MPI_LONG_DOUBLE_INT", BasicType::long_double, BasicType::int32);
    add_pair(0x30, "MPI_2REAL", BasicType::real, BasicType::real);
    add_pair(0x31, "MPI_2DOUBLE_PRECISION", BasicType::double_precision, BasicType::double_precision);
    add_pair(0x32, "MPI_2INTEGER", BasicType::integer, BasicType::integer);
  }
  constexpr void add_sized() {
    add(0x40, "MPI_INT8_T", Kind::integer, 1);
    add(0x41, "MPI_UINT8_T", Kind::natural, 1);
    add(0x43, "MPI_CHAR", Kind::integer, 1);  // the standard has it for text, but programs add it up, and MPIs let them
    add(0x44, "MPI_SIGNED_CHAR", Kind::integer, 1);
    add(0x45, "MPI_UNSIGNED_CHAR", Kind::natural, 1);
    add(0x47, "MPI_BYTE", Kind::raw, 1);
    add(0x48, "MPI_INT16_T", Kind::integer, 2);
    add(0x49, "MPI_UINT16_T", Kind::natural, 2);
    add(0x50, "MPI_INT32_T", Kind::integer, 4);
    add(0x51, "MPI_UINT32_T", Kind::natural, 4);
    add(0x58, "MPI_INT64_T", Kind::integer, 8);
    add(0x59, "MPI_UINT64_T", Kind::natural, 8);
    add(0xc0, "MPI_LOGICAL1", Kind::logical, 1);
    add(0xc1, "MPI_INTEGER1", Kind::integer, 1);
    add(0xc8, "MPI_LOGICAL2", Kind::logical, 2);
    add(0xc9, "MPI_INTEGER2", Kind::integer, 2);
    add(0xca, "MPI_REAL2", Kind::none, 0, 1);
    add(0xd0, "MPI_LOGICAL4", Kind::logical, 4);
    add(0xd1, "MPI_INTEGER4", Kind::integer, 4);
    add(0xd2, "MPI_REAL4", Kind::floating, 4);
    add(0xd3, "MPI_COMPLEX4", Kind::none, 0, 1);
    add(0xd8, "MPI_LOGICAL8", Kind::logical, 8);
    add(0xd9, "MPI_INTEGER8", Kind::integer, 8);
    add(0xda, "MPI_REAL8", Kind::floating, 8);
    add(0xdb, "MPI_COMPLEX8", Kind::complex, 8);
    add(0xe0, "MPI_LOGICAL16", Kind::logical, 16);
    add(0xe1, "MPI_INTEGER16", Kind::integer, 16);
    add(0xe2, "MPI_REAL16", Kind::floating, 16);
    add(0xe3, "MPI_COMPLEX16", Kind::complex, 16);
    add(0xeb, "MPI_COMPLEX32", Kind::complex, 32);
  }

  std::array<BasicInfo, 256> table_{};
};

inline constexpr BasicTable basic_table;

}  // namespace detail

[[nodiscard]] constexpr const BasicInfo& basic_info(BasicType type) { return detail::basic_table[type]; }

}  // namespace aplib::mpi
