// SPDX-License-Identifier: MIT
// The predefined operations: one loop for each operation and representation of elements, which compilers vectorise.
#include "mpi/op.hpp"

namespace aplib::mpi {

namespace {

__extension__ using Int128 = __int128;
__extension__ using Natural128 = unsigned __int128;
__extension__ using Float128 = __float128;  // REAL(16) of Fortran

template <class T>
struct Complex {
  T real;
  T imaginary;
};

/// What a sum or product of T is formed in: without overflow that is not defined.
template <class T>
struct Arithmetic {
  using Type = T;
};
template <>
struct Arithmetic<std::uint8_t> {
  using Type = unsigned;
};
template <>
struct Arithmetic<std::uint16_t> {
  using Type = unsigned;
};

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    using Wide = typename Arithmetic<T>::Type;
    return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
  template <class T>
  Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
};

struct Product {
  template <class T>
  T operator()(T a, T b) const {
    using Wide = typename Arithmetic<T>::Type;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  }
  template <class T>
  Complex<T> operator()(Complex<T> a, Complex<T> b) const {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
};

struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

struct BitAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

struct LogicalAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) & (b != 0));
  }
};

struct LogicalOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) | (b != 0));
  }
};

struct LogicalXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) != (b != 0));
  }
};

template <class Value, class Index>
struct Located {
  Value value;
  Index index;
};

// Of equal values the lower index. What is neither less nor equal (NaN) leaves the right one.
struct MinLocation {
  template <class Pair>
  Pair operator()(Pair a, Pair b) const {
    return a.value < b.value || (a.value == b.value && a.index < b.index) ? a : b;
  }
};

struct MaxLocation {
  template <class Pair>
  Pair operator()(Pair a, Pair b) const {
    return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
  }
};

template <class T, class Operator>
void combine(const void* left, const void* right, void* into, Count count) {
  const T* __restrict const a = static_cast<const T*>(left);
  T* __restrict const result = static_cast<T*>(into);
  if (right == into) {
    for (Count i = 0; i < count; ++i) result[i] = Operator{}(a[i], result[i]);
  } else {
    const T* __restrict const b = static_cast<const T*>(right);
    for (Count i = 0; i < count; ++i) result[i] = Operator{}(a[i], b[i]);
  }
}

/// The kernel for integers of `size` bytes, whose sign does not matter.
template <class Operator>
Kernel of_bits(unsigned size) {
  switch (size) {
    case 1:
      return combine<std::uint8_t, Operator>;
    case 2:
      return combine<std::uint16_t, Operator>;
    case 4:
      return combine<std::uint32_t, Operator>;
    case 8:
      return combine<std::uint64_t, Operator>;
    case 16:
      return combine<Natural128, Operator>;
    default:
      return nullptr;
  }
}

template <class Operator>
Kernel of_integer(unsigned size) {
  switch (size) {
    case 1:
      return combine<std::int8_t, Operator>;
    case 2:
      return combine<std::int16_t, Operator>;
    case 4:
      return combine<std::int32_t, Operator>;
    case 8:
      return combine<std::int64_t, Operator>;
    case 16:
      return combine<Int128, Operator>;
    default:
      return nullptr;
  }
}

// Two representations have 16 bytes: long double of C and REAL(16) of Fortran.
template <class Operator>
Kernel of_floating(BasicType type) {
  if (type == BasicType::long_double) return combine<long double, Operator>;
  switch (basic_info(type).size) {
    case 4:
      return combine<float, Operator>;
    case 8:
      return combine<double, Operator>;
    case 16:
      return combine<Float128, Operator>;
    default:
      return nullptr;
  }
}

template <class Operator>
Kernel of_complex(BasicType type) {
  if (type == BasicType::c_long_double_complex || type == BasicType::cxx_long_double_complex)
    return combine<Complex<long double>, Operator>;
  switch (basic_info(type).size) {
    case 8:
      return combine<Complex<float>, Operator>;
    case 16:
      return combine<Complex<double>, Operator>;
    case 32:
      return combine<Complex<Float128>, Operator>;
    default:
      return nullptr;
  }
}

template <class Operator>
Kernel of_arithmetic(BasicType type) {
  const BasicInfo& info = basic_info(type);
  switch (info.kind) {
    case Kind::integer:
    case Kind::natural:
      return of_bits<Operator>(info.size);
    case Kind::floating:
      return of_floating<Operator>(type);
    case Kind::complex:
      return of_complex<Operator>(type);
    default:
      return nullptr;
  }
}

template <class Operator>
Kernel of_order(BasicType type) {
  const BasicInfo& info = basic_info(type);
  switch (info.kind) {
    case Kind::integer:
      return of_integer<Operator>(info.size);
    case Kind::natural:
      return of_bits<Operator>(info.size);
    case Kind::floating:
      return of_floating<Operator>(type);
    default:
      return nullptr;
  }
}

template <class Operator>
Kernel of_kinds(BasicType type, Kind other) {
  const BasicInfo& info = basic_info(type);
  const bool is_defined = info.kind == Kind::integer || info.kind == Kind::natural || info.kind == other;
  return is_defined ? of_bits<Operator>(info.size) : nullptr;
}

template <class Operator>
Kernel of_pair(BasicType type) {
  const BasicInfo& info = basic_info(type);
  if (info.kind != Kind::pair) return nullptr;
  switch (info.value) {
    case BasicType::int16:
      return combine<Located<std::int16_t, std::int32_t>, Operator>;
    case BasicType::int32:
    case BasicType::integer:
      return combine<Located<std::int32_t, std::int32_t>, Operator>;
    case BasicType::int64:
      return combine<Located<std::int64_t, std::int32_t>, Operator>;
    case BasicType::float32:
      return combine<Located<float, std::int32_t>, Operator>;
    case BasicType::float64:
      return combine<Located<double, std::int32_t>, Operator>;
    case BasicType::long_double:
      return combine<Located<long double, std::int32_t>, Operator>;
    case BasicType::real:
      return combine<Located<float, float>, Operator>;
    case BasicType::double_precision:
      return combine<Located<double, double>, Operator>;
    default:
      return nullptr;
  }
}

}  // namespace

Kernel kernel_of(Operation operation, BasicType type) noexcept {
  switch (operation) {
    case Operation::sum:
      return of_arithmetic<Sum>(type);
    case Operation::product:
      return of_arithmetic<Product>(type);
    case Operation::min:
      return of_order<Min>(type);
    case Operation::max:
      return of_order<Max>(type);
    case Operation::bit_and:
      return of_kinds<BitAnd>(type, Kind::raw);
    case Operation::bit_or:
      return of_kinds<BitOr>(type, Kind::raw);
    case Operation::bit_xor:
      return of_kinds<BitXor>(type, Kind::raw);
    case Operation::logical_and:
      return of_kinds<LogicalAnd>(type, Kind::logical);
    case Operation::logical_or:
      return of_kinds<LogicalOr>(type, Kind::logical);
    case Operation::logical_xor:
      return of_kinds<LogicalXor>(type, Kind::logical);
    case Operation::min_location:
      return of_pair<MinLocation>(type);
    case Operation::max_location:
      return of_pair<MaxLocation>(type);
    case Operation::none:
    case Operation::replace:
    case Operation::no_op:
      break;
  }
  return nullptr;
}

}  // namespace aplib::mpi
