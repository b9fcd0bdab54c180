// SPDX-License-Identifier: MIT
// The loops of kernels.hpp, written once over vectors of `lanes` doubles. This file is compiled once for each
// instruction set, which SCG_LOOPS names. The portable compilation (SCG_CHOOSES) also chooses among them at run time.
// Everything the loops use is in an unnamed namespace, and what they call from other headers is always inlined. So the
// linker cannot give an older computer code for a wider instruction set.
#include "kernels.hpp"

#include <array>
#include <utility>

#include "block.hpp"

namespace scg {

namespace {

#if defined(__AVX512F__)
constexpr int lanes = 8;
#elif defined(__AVX2__)
constexpr int lanes = 4;
#else
constexpr int lanes = 2;
#endif

using Vector = double __attribute__((vector_size(lanes * sizeof(double))));
using Mask = long long __attribute__((vector_size(lanes * sizeof(double))));

inline Vector load(const double* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
inline void store(double* to, Vector v) { __builtin_memcpy(to, &v, sizeof v); }

template <int... i>
inline Vector one_left(Vector before, Vector v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(before, v, (lanes - 1 + i)...);
}
template <int... i>
inline Vector one_right(Vector v, Vector after, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, after, (1 + i)...);
}
/// The western neighbours of v's values. `before` is the vector west of v.
inline Vector west_of(Vector before, Vector v) { return one_left(before, v, std::make_integer_sequence<int, lanes>{}); }
/// The eastern neighbours of v's values. `after` is the vector east of v.
inline Vector east_of(Vector v, Vector after) { return one_right(v, after, std::make_integer_sequence<int, lanes>{}); }

/// A mask of the first `count` lanes.
inline Mask first_lanes(int count) {
  Mask mask;
  for (int i = 0; i < lanes; ++i) mask[i] = i < count ? -1 : 0;
  return mask;
}

inline double sum_of_lanes(Vector v) {
  double sum = 0;
  for (int i = 0; i < lanes; ++i) sum += v[i];
  return sum;
}

/// The coefficients of a pass, each in all lanes of a vector.
struct Coefficients {
  Vector cx;
  Vector cy;
  Vector alpha;
  Vector beta;
  Vector alpha_before;

  explicit Coefficients(const PassInput& in)
      : cx(Vector{} + in.cx),
        cy(Vector{} + in.cy),
        alpha(Vector{} + in.alpha),
        beta(Vector{} + in.beta),
        alpha_before(Vector{} + in.alpha_before) {}
};

/// p = r + beta p, and the step of x, for one vector. Returns the new p.
template <bool with_x>
inline Vector advance_p(double* p, const double* r, double* x, const Coefficients& by) {
  const Vector before = load(p);
  const Vector after = load(r) + by.beta * before;
  store(p, after);
  if constexpr (with_x) store(x, load(x) + by.alpha_before * before + by.alpha * after);
  return after;
}

/// p = r + beta p along a whole row, including its padding, which holds halo values.
template <bool with_x>
inline void advance_p_row(double* p, const double* r, double* x, std::ptrdiff_t count, const Coefficients& by) {
  for (std::ptrdiff_t i = 0; i < count; i += lanes) advance_p<with_x>(p + i, r + i, x + i, by);
}

struct Sums {
  Vector square{};
  Vector horizontal{};
  Vector vertical{};
};

/// The rows that one step of a pass works on. It advances p on the row above, and r on the row itself.
struct Rows {
  double* p;              ///< This row. The row above is one stride further on, the row below one stride before.
  double* r;              ///< The same for r. The row below is already advanced.
  const double* r_below;  ///< The row below, or a row of zeros below the first one.
  double* x_above;
};

template <bool with_x>
inline Sums step(Rows at, std::ptrdiff_t tail, std::ptrdiff_t stride, Mask tail_mask, const Coefficients& by,
                 Sums sums) {
  double* const p_above = at.p + stride;
  const double* const p_below = at.p - stride;
  const double* const r_above = at.r + stride;
  Vector p_west = load(at.p - lanes);
  Vector p_here = load(at.p);
  Vector r_west{};

  const auto advance = [&](std::ptrdiff_t i, auto last) {
    const Vector p_north = advance_p<with_x>(p_above + i, r_above + i, at.x_above + i, by);
    const Vector p_east = load(at.p + i + lanes);
    const Vector beside = west_of(p_west, p_here) + east_of(p_here, p_east);
    const Vector matrix_p = p_here - by.cx * beside - by.cy * (load(p_below + i) + p_north);
    const Vector r_before = load(at.r + i);
    Vector r = r_before - by.alpha * matrix_p;
    if constexpr (last) {
      store(at.r + i, tail_mask ? r : r_before);
      r = tail_mask ? r : Vector{};
    } else {
      store(at.r + i, r);
    }
    sums.square += r * r;
    sums.horizontal += r * west_of(r_west, r);
    sums.vertical += r * load(at.r_below + i);
    p_west = p_here;
    p_here = p_east;
    r_west = r;
  };
  // The last vector is always masked, because halo values follow the end of the row.
  for (std::ptrdiff_t i = 0; i < tail; i += lanes) advance(i, std::false_type{});
  advance(tail, std::true_type{});
  for (std::ptrdiff_t i = tail + lanes; i < stride; i += lanes) {
    advance_p<with_x>(p_above + i, r_above + i, at.x_above + i, by);
  }
  return sums;
}

template <bool with_x>
PassSums pass_with(Field& p, Field& r, Field& x, const PassInput& in, PassColumns columns) {
  const std::ptrdiff_t last = p.nx() - 1;
  const std::ptrdiff_t tail = (p.nx() - 1) / lanes * lanes;
  const std::ptrdiff_t stride = p.stride();
  const Mask tail_mask = first_lanes((p.nx() - 1) % lanes + 1);
  const Coefficients by(in);

  // Row -1 is first, because the west halo of row 0 lies at its end.
  advance_p_row<false>(p.row(-1) - cache_line_doubles, r.row(-1) - cache_line_doubles, x.row(-1) - cache_line_doubles,
                       stride + cache_line_doubles, by);
  advance_p_row<with_x>(p.row(0), r.row(0), x.row(0), stride, by);

  // Nothing reads x's halo, so its row -1 serves as the row of zeros below the first row of r.
  Rows at{p.row(0), r.row(0), x.row(-1), x.row(1)};
  Sums sums;
  for (int j = p.ny() - 1; j > 0; --j) {
    sums = step<with_x>(at, tail, stride, tail_mask, by, sums);
    *columns.west++ = at.r[0];
    *columns.east++ = at.r[last];
    at = {at.p + stride, at.r + stride, at.r, at.x_above + stride};
  }
  sums = step<false>(at, tail, stride, tail_mask, by, sums);
  *columns.west = at.r[0];
  *columns.east = at.r[last];
  return {sum_of_lanes(sums.square), sum_of_lanes(sums.horizontal), sum_of_lanes(sums.vertical)};
}

PassSums pass(Field& p, Field& r, Field& x, const PassInput& in, PassColumns columns) {
  return in.add_to_x ? pass_with<true>(p, r, x, in, columns) : pass_with<false>(p, r, x, in, columns);
}

void add(Field& x, const Field& p, double alpha) {
  for (int j = 0; j < x.ny(); ++j) {
    for (std::ptrdiff_t i = 0; i < x.stride(); i += lanes)
      store(x.row(j) + i, load(x.row(j) + i) + alpha * load(p.row(j) + i));
  }
}

double dot(const double* a, const double* b, int count) {
  Vector products{};
  int i = 0;
  for (; i + lanes <= count; i += lanes) products += load(a + i) * load(b + i);
  double sum = sum_of_lanes(products);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void triad(Field& a, const Field& b, const Field& c, double s) {
  double* to = a.row(0);
  const double* from = b.row(0);
  const double* scaled = c.row(0);
  const std::ptrdiff_t count = a.ny() * a.stride();
  for (std::ptrdiff_t i = 0; i < count; i += lanes) store(to + i, load(from + i) + s * load(scaled + i));
}

}  // namespace

#define SCG_JOINED(a, b) a##b
#define SCG_NAMED(a, b) SCG_JOINED(a, b)
#define SCG_QUOTED(a) #a
#define SCG_TEXT(a) SCG_QUOTED(a)
extern const Kernels SCG_NAMED(kernels_, SCG_LOOPS);
const Kernels SCG_NAMED(kernels_, SCG_LOOPS){SCG_TEXT(SCG_LOOPS), lanes, pass, add, dot, triad};

#if SCG_CHOOSES

#if SCG_X86_KERNELS
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

namespace {

struct Usable {
  std::array<const Kernels*, 4> list{};
  std::size_t count = 0;

  Usable() {
#if SCG_X86_KERNELS
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f")) list[count++] = &kernels_avx512;
    if (avx2) list[count++] = &kernels_avx2;
#endif
    list[count++] = &kernels_portable;
  }
};

const Usable& usable() {
  static const Usable found;
  return found;
}

}  // namespace

const Kernels& kernels() { return *usable().list[0]; }

const Kernels* const* usable_kernels() { return usable().list.data(); }

#endif  // SCG_CHOOSES

}  // namespace scg
