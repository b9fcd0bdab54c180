// SPDX-License-Identifier: MIT
// Every instruction set of this computer, compared with simple loops.
#include "kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "block.hpp"

namespace scg {
namespace {

constexpr unsigned seed = 20'240'611;

void fill_at_random(Field& field, std::mt19937& random, bool with_halo) {
  std::uniform_real_distribution<double> value(-1, 1);
  const int frame = with_halo ? 1 : 0;
  for (int j = -frame; j < field.ny() + frame; ++j) {
    for (int i = -frame; i < field.nx() + frame; ++i) field.row(j)[i] = value(random);
  }
}

void copy(Field& to, const Field& from) {
  for (int j = -1; j <= from.ny(); ++j) {
    for (int i = -1; i <= from.nx(); ++i) to.row(j)[i] = from.row(j)[i];
  }
}

/// One pass, as the header describes it.
PassSums plain_pass(Field& p, Field& r, Field& x, const PassInput& in) {
  const int nx = p.nx();
  const int ny = p.ny();
  Field before(nx, ny);
  copy(before, p);
  for (int j = -1; j <= ny; ++j) {
    for (int i = -1; i <= nx; ++i) p.row(j)[i] = r.row(j)[i] + in.beta * p.row(j)[i];
  }
  PassSums sums;
  for (int j = 0; j < ny; ++j) {
    for (int i = 0; i < nx; ++i) {
      if (in.add_to_x) x.row(j)[i] += in.alpha_before * before.row(j)[i] + in.alpha * p.row(j)[i];
      const double matrix_p =
          p.row(j)[i] - in.cx * (p.row(j)[i - 1] + p.row(j)[i + 1]) - in.cy * (p.row(j - 1)[i] + p.row(j + 1)[i]);
      r.row(j)[i] -= in.alpha * matrix_p;
    }
  }
  for (int j = 0; j < ny; ++j) {
    for (int i = 0; i < nx; ++i) {
      sums.square += r.row(j)[i] * r.row(j)[i];
      if (i > 0) sums.horizontal += r.row(j)[i] * r.row(j)[i - 1];
      if (j > 0) sums.vertical += r.row(j)[i] * r.row(j - 1)[i];
    }
  }
  return sums;
}

double largest_difference(const Field& a, const Field& b, int frame) {
  double largest = 0;
  for (int j = -frame; j < a.ny() + frame; ++j) {
    for (int i = -frame; i < a.nx() + frame; ++i) largest = std::max(largest, std::abs(a.row(j)[i] - b.row(j)[i]));
  }
  return largest;
}

struct Size {
  int nx;
  int ny;
};

std::vector<Size> sizes() {
  std::vector<Size> all{{37, 38}, {64, 5}, {300, 3}, {5, 100}};
  for (int nx = 1; nx <= 26; ++nx) {
    for (int ny = 1; ny <= 4; ++ny) all.push_back({nx, ny});
  }
  return all;
}

class Loops : public testing::TestWithParam<const Kernels*> {};

TEST_P(Loops, PassEqualsThePlainLoops) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const auto [nx, ny] : sizes()) {
    for (const bool add_to_x : {false, true}) {
      SCOPED_TRACE(testing::Message() << nx << " x " << ny << (add_to_x ? " with x" : ""));
      Field p(nx, ny);
      Field r(nx, ny);
      Field x(nx, ny);
      fill_at_random(p, random, true);
      fill_at_random(r, random, true);
      fill_at_random(x, random, false);
      Field p_plain(nx, ny);
      Field r_plain(nx, ny);
      Field x_plain(nx, ny);
      copy(p_plain, p);
      copy(r_plain, r);
      copy(x_plain, x);

      const PassInput in{.cx = 0.2, .cy = 0.3, .alpha = 0.7, .beta = 0.4, .alpha_before = -0.3, .add_to_x = add_to_x};
      std::vector<double> west(static_cast<std::size_t>(ny));
      std::vector<double> east(static_cast<std::size_t>(ny));
      const PassSums sums = GetParam()->pass(p, r, x, in, {west.data(), east.data()});
      const PassSums plain = plain_pass(p_plain, r_plain, x_plain, in);

      // The corners of the halo are nobody's; neither the simple loops nor these treat them specially.
      EXPECT_LT(largest_difference(p, p_plain, 0), 1e-14);
      EXPECT_LT(largest_difference(r, r_plain, 1), 1e-14) << "r's halo must stay as it is";
      EXPECT_LT(largest_difference(x, x_plain, 0), 1e-14);
      for (int j = 0; j < ny; ++j) {
        EXPECT_NEAR(p.row(j)[-1], p_plain.row(j)[-1], 1e-14);
        EXPECT_NEAR(p.row(j)[nx], p_plain.row(j)[nx], 1e-14);
      }
      for (int j = 0; j < ny; ++j) {
        EXPECT_EQ(west[static_cast<std::size_t>(j)], r.row(j)[0]);
        EXPECT_EQ(east[static_cast<std::size_t>(j)], r.row(j)[nx - 1]);
      }
      for (int i = 0; i < nx; ++i) {
        EXPECT_NEAR(p.row(-1)[i], p_plain.row(-1)[i], 1e-14);
        EXPECT_NEAR(p.row(ny)[i], p_plain.row(ny)[i], 1e-14);
      }
      const double tolerance = 1e-13 * nx * ny;
      EXPECT_NEAR(sums.square, plain.square, tolerance);
      EXPECT_NEAR(sums.horizontal, plain.horizontal, tolerance);
      EXPECT_NEAR(sums.vertical, plain.vertical, tolerance);
    }
  }
}

TEST_P(Loops, DotEqualsThePlainLoop) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  for (int count = 0; count < 40; ++count) {
    std::vector<double> a(static_cast<std::size_t>(count));
    std::vector<double> b(a.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = value(random);
      b[i] = value(random);
      sum += a[i] * b[i];
    }
    EXPECT_NEAR(GetParam()->dot(a.data(), b.data(), count), sum, 1e-13);
  }
}

TEST_P(Loops, AddAndTriadEqualThePlainLoops) {
  std::mt19937 random(seed);
  for (const auto [nx, ny] : sizes()) {
    Field a(nx, ny);
    Field b(nx, ny);
    Field c(nx, ny);
    fill_at_random(a, random, false);
    fill_at_random(b, random, false);
    fill_at_random(c, random, false);
    Field was(nx, ny);
    copy(was, a);
    GetParam()->add(a, b, 0.5);
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) ASSERT_NEAR(a.row(j)[i], was.row(j)[i] + 0.5 * b.row(j)[i], 1e-15);
    }
    GetParam()->triad(a, b, c, 0.25);
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) ASSERT_NEAR(a.row(j)[i], b.row(j)[i] + 0.25 * c.row(j)[i], 1e-15);
    }
  }
}

std::vector<const Kernels*> all_usable() {
  std::vector<const Kernels*> all;
  for (const Kernels* const* at = usable_kernels(); *at != nullptr; ++at) all.push_back(*at);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, Loops, testing::ValuesIn(all_usable()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Kernels, TheWidestIsChosenAndThePortableIsAlwaysThere) {
  const auto all = all_usable();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(&kernels(), all.front());
  EXPECT_STREQ(all.back()->name, "portable");
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i]->lanes, all[i - 1]->lanes);
}

}  // namespace
}  // namespace scg
