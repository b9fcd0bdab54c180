// SPDX-License-Identifier: MIT
#include "cell.hpp"

#include <gtest/gtest.h>

#include "solver.hpp"

namespace scg {
namespace {

TEST(Sampling, EverySampleHasExactlyOneProvider) {
  for (const int total : {1, 2, 5, 63, 640, 5000}) {
    for (const int parts : {1, 2, 3, 5, 17}) {
      if (parts > total) continue;
      for (const int side : {1, 7, 64, 640}) {
        int next = 0;
        for (int i = 0; i < parts; ++i) {
          const Range samples = samples_of(part_of(total, parts, i), total, side);
          EXPECT_EQ(samples.first, next);
          next = samples.end();
        }
        EXPECT_EQ(next, side) << total << " unknowns, " << parts << " parts, " << side << " samples";
      }
    }
  }
}

TEST(Sampling, ReproducesALinearFunctionWithItsEdge) {
  // Sampling between unknowns must be exact for a linear function, up to the edge of the square.
  const auto linear = [](double x, double y) { return 1 + 2 * x - 3 * y; };
  Problem problem{.name = "linear", .formula = "", .source = nullptr, .solution = linear, .charges = {}};
  for (const GridSize cells : {GridSize{1, 1}, GridSize{3, 2}}) {
    for (int cell_y = 0; cell_y < cells.ny; ++cell_y) {
      for (int cell_x = 0; cell_x < cells.nx; ++cell_x) {
        const Block block = block_of({7, 5}, cells, cell_x, cell_y);
        const Stencil stencil(block.grid);
        Field u(block.x.count, block.y.count);
        for (int j = -1; j <= u.ny(); ++j) {
          for (int i = -1; i <= u.nx(); ++i)
            u.row(j)[i] = linear(stencil.x(block.x.first + i), stencil.y(block.y.first + j));
        }
        fill_edge(u, problem, block);
        constexpr int side = 50;
        const Range columns = samples_of(block.x, 7, side);
        const Range rows = samples_of(block.y, 5, side);
        const std::vector<float> samples = sample_block(u, block, side);
        ASSERT_EQ(samples.size(), static_cast<std::size_t>(columns.count) * static_cast<std::size_t>(rows.count));
        std::size_t at = 0;
        for (int t = rows.first; t < rows.end(); ++t) {
          for (int s = columns.first; s < columns.end(); ++s) {
            EXPECT_NEAR(samples[at++], linear((s + 0.5) / side, (t + 0.5) / side), 1e-6);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace scg
