// SPDX-License-Identifier: MIT
#include "problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "system.hpp"

namespace scg {
namespace {

TEST(Problem, SourcesBelongToTheirSolutions) {
  // Fourth-order differences of the solution, at a place without symmetry.
  const double h = 1e-3;
  for (const Problem& problem : problems()) {
    if (problem.solution == nullptr) continue;
    SCOPED_TRACE(problem.name);
    const Charge places[] = {{0.3, 0.7, 0}, {0.81, 0.12, 0}, {0.5, 0.5, 0}};
    for (const Charge& place : places) {
      const double x = place.x;
      const double y = place.y;
      const auto second = [&](double dx, double dy) {
        const auto u = [&](int steps) { return problem.solution(x + steps * dx, y + steps * dy); };
        return (-u(-2) + 16 * u(-1) - 30 * u(0) + 16 * u(1) - u(2)) / (12 * h * h);
      };
      const double scale = 1 + std::abs(problem.source(x, y));
      EXPECT_NEAR(problem.source(x, y), -(second(h, 0) + second(0, h)), 1e-7 * scale);
    }
  }
}

TEST(Problem, NamesAreFoundAndListed) {
  EXPECT_EQ(problem_names(), "steep, sine, polynomial, harmonic, charges");
  for (const Problem& problem : problems()) EXPECT_EQ(find_problem(problem.name)->name, problem.name);
  EXPECT_EQ(find_problem("cosine"), nullptr);
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_charge(text);
    return "accepted";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Charge, IsReadOrRefusedInWords) {
  const Charge charge = parse_charge("0.25,0.5,-3e-1");
  EXPECT_EQ(charge.x, 0.25);
  EXPECT_EQ(charge.y, 0.5);
  EXPECT_EQ(charge.q, -0.3);
  EXPECT_EQ(refusal("0.5,0.5"),
            "\"0.5,0.5\" is not a charge: it needs three numbers separated by commas; use x,y,q with 0 < x < 1 and 0 < "
            "y < 1, for "
            "example 0.3,0.5,-1");
  EXPECT_NE(refusal("1,0.5,1").find("it lies outside the square"), std::string::npos);
  EXPECT_NE(refusal("nan,0.5,1").find("its numbers must be finite"), std::string::npos);
  EXPECT_NE(refusal("0.5,0.5,1,2").find("something follows the third number"), std::string::npos);
  EXPECT_NE(refusal("").find("it needs three numbers"), std::string::npos);
}

TEST(System, ChargesKeepTheirSumAndPlaceHoweverTheGridIsCut) {
  Problem problem = *find_problem("charges");
  problem.charges = {{0.37, 0.61, 2.5}};
  const GridSize grid{23, 17};
  const Stencil stencil(grid);
  for (const GridSize cells : {GridSize{1, 1}, GridSize{3, 2}, GridSize{23, 17}}) {
    double sum = 0;
    double x = 0;
    double y = 0;
    for (int cell_y = 0; cell_y < cells.ny; ++cell_y) {
      for (int cell_x = 0; cell_x < cells.nx; ++cell_x) {
        const Block block = block_of(grid, cells, cell_x, cell_y);
        Field b(block.x.count, block.y.count);
        fill_right_side(b, problem, block);
        for (int j = 0; j < b.ny(); ++j) {
          for (int i = 0; i < b.nx(); ++i) {
            const double q = b.row(j)[i] * stencil.diagonal * stencil.hx * stencil.hy;
            sum += q;
            x += q * stencil.x(block.x.first + i);
            y += q * stencil.y(block.y.first + j);
          }
        }
      }
    }
    EXPECT_NEAR(sum, 2.5, 1e-12);
    EXPECT_NEAR(x / sum, 0.37, 1e-12);
    EXPECT_NEAR(y / sum, 0.61, 1e-12);
  }
}

TEST(System, TheExactSolutionLeavesAResidualThatShrinksAsHSquared) {
  // b - A u of the exact solution, times the diagonal, is the truncation error of the stencil.
  for (const Problem& problem : problems()) {
    if (problem.solution == nullptr) continue;
    SCOPED_TRACE(problem.name);
    const auto truncation = [&](int n) {
      const GridSize grid{n, n};
      const Block block = block_of(grid, {1, 1}, 0, 0);
      const Stencil stencil(grid);
      Field b(n, n);
      Field u(n, n);
      fill_right_side(b, problem, block);
      for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) u.row(j)[i] = problem.solution(stencil.x(i), stencil.y(j));
      }
      return std::sqrt(squared_residual(b, u, block)) / n * stencil.diagonal;
    };
    const double ratio = truncation(31) / truncation(63);
    EXPECT_GT(ratio, 3.6);
    EXPECT_LT(ratio, 4.4);
  }
}

TEST(System, EdgeValuesFillTheHaloOnlyAtTheEdge) {
  const Problem& problem = *find_problem("harmonic");
  const Block block = block_of({8, 6}, {2, 1}, 1, 0);  // east half
  Field u(block.x.count, block.y.count);
  fill_edge(u, problem, block);
  const Stencil stencil(block.grid);
  EXPECT_EQ(u.row(2)[-1], 0) << "the west halo is a neighbour's";
  EXPECT_EQ(u.row(2)[4], problem.solution(1, stencil.y(2)));
  EXPECT_EQ(u.row(-1)[1], problem.solution(stencil.x(block.x.first + 1), 0));
  EXPECT_EQ(u.row(6)[4], problem.solution(1, 1));
}

}  // namespace
}  // namespace scg
