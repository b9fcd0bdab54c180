// SPDX-License-Identifier: MIT
// Collectives and the status network.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "support.hpp"

using namespace cellos_test;

namespace {

TEST_P(Shapes, Behaviour12_XyBrdFromEveryRoot) {
  expect_cells(GetParam(), [] {
    for (int root = 0; root < getncel(); ++root) {
      std::vector<int> words(1 + std::size_t(root) * 700, getcid() == root ? root + 5 : -1);
      EXPECT_EQ(xy_brd(root, words.data(), int(words.size() * sizeof(int))), 1);
      EXPECT_EQ(std::count(words.begin(), words.end(), root + 5), std::ptrdiff_t(words.size()));
    }
  });
}

TEST_P(Shapes, RowAndColumnBroadcastTakeCoordinateOrCid) {
  expect_cells(GetParam(), [] {
    const int nx = getncelx();
    const int ny = getncely();
    for (int x = 0; x < nx; ++x) {
      const int cid = x + getcidy() * nx;
      for (const int root : {x, cid}) {
        int word = getcid() == (root < nx ? root + getcidy() * nx : root) ? getcid() + 100 : -1;
        EXPECT_EQ(x_brd(root, &word, sizeof word), 1);
        EXPECT_EQ(word, cid + 100);
      }
    }
    for (int y = 0; y < ny; ++y) {
      int word = getcidy() == y ? getcid() + 100 : -1;
      EXPECT_EQ(y_brd(y, &word, sizeof word), 1);
      EXPECT_EQ(word, getcidx() + y * nx + 100);
      const int cid = getcidx() + y * nx;
      if (cid < ny) continue;  // a number below ncely is a coordinate
      // All cells of a column name the same row; the cids differ from column to column.
      word = getcid() == cid ? cid + 200 : -1;
      EXPECT_EQ(y_brd(cid, &word, sizeof word), 1);
      EXPECT_EQ(word, cid + 200);
    }
  });
}

struct Sums {
  int (*i)(int, int*);
  int (*f)(float, float*);
  int (*d)(double, double*);
};

TEST_P(Shapes, Behaviour12_SumsOfAllRowAndColumn) {
  expect_cells(GetParam(), [] {
    const int nx = getncelx();
    const int ny = getncely();
    int all = 0;
    int row = 0;
    int column = 0;
    for (int cid = 0; cid < nx * ny; ++cid) {
      all += cid + 1;
      if (cid / nx == getcidy()) row += cid + 1;
      if (cid % nx == getcidx()) column += cid + 1;
    }
    const std::pair<Sums, int> cases[] = {
        {{xy_isum, xy_fsum, xy_dsum}, all}, {{x_isum, x_fsum, x_dsum}, row}, {{y_isum, y_fsum, y_dsum}, column}};
    for (const auto& [sum, expected] : cases) {
      int i = getcid() + 1;
      EXPECT_EQ(sum.i(i, &i), 1);  // the result may overwrite the value's variable
      EXPECT_EQ(i, expected);
      auto f = float(getcid() + 1);
      EXPECT_EQ(sum.f(f, &f), 1);
      EXPECT_EQ(f, float(expected));
      double d = getcid() + 1;
      EXPECT_EQ(sum.d(d, &d), 1);
      EXPECT_EQ(d, double(expected));
    }
    double wide = 0;
    xy_fsum(getcid() + 0.5, &wide);  // the C++ overload keeps the double's digits
    EXPECT_EQ(wide, all - 0.5 * nx * ny);
    x_fsum(1e-12, &wide);
    EXPECT_NEAR(wide, 1e-12 * nx, 1e-24);
    y_fsum(1e-12, &wide);
    EXPECT_NEAR(wide, 1e-12 * ny, 1e-24);
  });
}

TEST_P(Shapes, Behaviour12_MaxAndMinWithLocation) {
  expect_cells(GetParam(), [] {
    const int n = getncel();
    int i = 0;
    int id = -1;
    // Values decrease with the cid; ids are the caller's own numbers.
    EXPECT_EQ(xy_imax(-getcid(), getcid() + 1000, &i, &id), 1);
    EXPECT_EQ(i, 0);
    EXPECT_EQ(id, 1000);
    xy_imin(-getcid(), getcid() + 1000, &i, &id);
    EXPECT_EQ(i, 1 - n);
    EXPECT_EQ(id, 999 + n);
    float f = 0;
    xy_fmax(float(getcid()) / 4, getcid(), &f, &id);
    EXPECT_EQ(f, float(n - 1) / 4);
    EXPECT_EQ(id, n - 1);
    xy_fmin(float(getcid()) / 4, getcid(), &f, &id);
    EXPECT_EQ(f, 0.0F);
    EXPECT_EQ(id, 0);
    double d = 0;
    xy_dmax(0.25, n - getcid(), &d, &id);  // a tie: the smallest id
    EXPECT_EQ(d, 0.25);
    EXPECT_EQ(id, 1);
    xy_dmin(0.25, n - getcid(), &d, &id);
    EXPECT_EQ(id, 1);

    const int nx = getncelx();
    const int ny = getncely();
    x_imax(getcid(), getcid(), &i, &id);
    EXPECT_EQ(i, getcidy() * nx + nx - 1);
    x_imin(getcid(), getcid(), &i, &id);
    EXPECT_EQ(id, getcidy() * nx);
    x_fmax(float(getcid()), getcid(), &f, &id);
    EXPECT_EQ(id, getcidy() * nx + nx - 1);
    x_fmin(float(getcid()), getcid(), &f, &id);
    EXPECT_EQ(f, float(getcidy() * nx));
    x_dmax(getcid(), getcid(), &d, &id);
    EXPECT_EQ(d, getcidy() * nx + nx - 1);
    x_dmin(getcid(), getcid(), &d, &id);
    EXPECT_EQ(d, getcidy() * nx);
    y_imax(getcid(), getcid(), &i, &id);
    EXPECT_EQ(i, getcidx() + (ny - 1) * nx);
    y_imin(getcid(), getcid(), &i, &id);
    EXPECT_EQ(id, getcidx());
    y_fmax(float(getcid()), getcid(), &f, &id);
    EXPECT_EQ(id, getcidx() + (ny - 1) * nx);
    y_fmin(float(getcid()), getcid(), &f, &id);
    EXPECT_EQ(f, float(getcidx()));
    y_dmax(getcid(), getcid(), &d, &id);
    EXPECT_EQ(id, getcidx() + (ny - 1) * nx);
    y_dmin(getcid(), getcid(), &d, &id);
    EXPECT_EQ(d, getcidx());
  });
}

TEST_P(Shapes, Bits) {
  expect_cells(GetParam(), [] {
    const int nx = getncelx();
    const int ny = getncely();
    const int bit = 1 << getcid();
    int result = 0;
    EXPECT_EQ(xy_ior(bit, &result), 1);
    EXPECT_EQ(result, (1 << nx * ny) - 1);
    xy_iand(bit | 0x4000'0000, &result);
    EXPECT_EQ(result, 0x4000'0000 | (nx * ny == 1 ? 1 : 0));
    xy_ixor(3, &result);
    EXPECT_EQ(result, nx * ny % 2 == 1 ? 3 : 0);
    x_ior(1 << getcidx(), &result);
    EXPECT_EQ(result, (1 << nx) - 1);
    x_iand(~bit, &result);
    EXPECT_EQ(result, ~(((1 << nx) - 1) << getcidy() * nx));
    x_ixor(3, &result);
    EXPECT_EQ(result, nx % 2 == 1 ? 3 : 0);
    y_ior(1 << getcidy(), &result);
    EXPECT_EQ(result, (1 << ny) - 1);
    y_iand(~(1 << getcidy()), &result);
    EXPECT_EQ(result, ~((1 << ny) - 1));
    y_ixor(3, &result);
    EXPECT_EQ(result, ny % 2 == 1 ? 3 : 0);
  });
}

// Rounding makes the order of additions visible. Every cell and every number of threads must give the same bits.
TEST(Behaviour12, FloatSumsAreBitwiseTheSameEverywhere) {
  std::mutex mutex;
  std::set<std::uint64_t> doubles;
  std::set<std::uint32_t> floats;
  for (const std::uint32_t threads : {1U, 2U, 3U, 7U}) {
    expect_cells({{5, 3}, threads}, [&] {
      double d = 0;
      float f = 0;
      xy_dsum(0.1 / (getcid() + 1), &d);
      xy_fsum(float(0.1 / (getcid() + 1)), &f);
      std::uint64_t d_bits = 0;
      std::uint32_t f_bits = 0;
      std::memcpy(&d_bits, &d, sizeof d);
      std::memcpy(&f_bits, &f, sizeof f);
      const std::lock_guard lock(mutex);
      doubles.insert(d_bits);
      floats.insert(f_bits);
    });
  }
  EXPECT_EQ(doubles.size(), 1U);
  EXPECT_EQ(floats.size(), 1U);
}

TEST_P(Shapes, Behaviour13_SyncReturnsTheOrOfBitZero) {
  expect_cells(GetParam(), [] {
    const int last = getncel() - 1;
    EXPECT_EQ(sync(0, 0), 0);
    EXPECT_EQ(sync(0, 1), 1);
    EXPECT_EQ(sync(0, getcid() == last ? 1 : 0), 1);
    EXPECT_EQ(sync(3, getcid() == last ? 2 : 0), 0);  // only bit 0 counts; the line is ignored
    EXPECT_EQ(sync(0, getcid() == 0 ? 3 : 0), 1);
  });
}

TEST_P(Shapes, Behaviour13_SyncIsABarrierAmongCellsAlone) {
  std::atomic<int> arrived = 0;
  expect_cells(GetParam(), [&] {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      sync(0, 0);
      EXPECT_GE(arrived, round * getncel());
      sync(0, 0);
      EXPECT_EQ(arrived, round * getncel());
      sync(0, 0);
    }
  });
}

TEST_P(Shapes, Behaviour13_StatusNeedsNoBarrier) {
  expect_cells(GetParam(), [] {
    EXPECT_EQ(cstat(), 0);
    sync(0, 0);
    EXPECT_EQ(pstat(1), 0);
    sync(0, 0);
    EXPECT_EQ(cstat(), 16);
    EXPECT_EQ(sync(0, 0), 0);  // independent of sync's stat
    if (getcid() != 0) pstat(0);
    sync(0, 0);
    EXPECT_EQ(cstat(), 16);  // cell 0's word is still 1
    sync(0, 0);
    pstat(0);
    sync(0, 0);
    EXPECT_EQ(cstat(), 0);
    sync(0, 0);
    pstat(2 << getcid());
    sync(0, 0);
    EXPECT_EQ(cstat(), 0);  // only bit 0 counts
    EXPECT_EQ(gstat(), ((1 << getncel()) - 1) << 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Collective, Shapes, several_shapes(), shape_name);

}  // namespace
