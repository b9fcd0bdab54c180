// SPDX-License-Identifier: MIT
// Eigen: products by threads of OpenMP, cache sizes that it keeps, dense and sparse solutions.
#include <Eigen/Dense>
#include <Eigen/Sparse>
#include <vector>

#include "stress.h"

static void dense(int n, int round) {
  const Eigen::MatrixXd a =
      Eigen::MatrixXd::NullaryExpr(n, n, [](auto i, auto j) { return (i == j) * 10.0 + 1.0 / (i + j + 1 + rank); });
  const Eigen::MatrixXd product = a * a.transpose();
  meet(round);
  check((product - a.lazyProduct(a.transpose())).norm() < 1e-9, "a product");
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(a);
  check(std::abs(solver.eigenvalues().sum() - a.trace()) < 1e-8, "eigenvalues");
  const Eigen::VectorXd x = Eigen::VectorXd::LinSpaced(n, 1, n);
  check((a.fullPivLu().solve(a * x) - x).norm() < 1e-8, "a dense system");
}

static void sparse(int n, int round) {
  std::vector<Eigen::Triplet<double>> entries;
  for (int i = 0; i < n; ++i) {
    entries.emplace_back(i, i, 3 + rank);
    if (i > 0) entries.emplace_back(i, i - 1, -1), entries.emplace_back(i - 1, i, -1);
  }
  Eigen::SparseMatrix<double> a(n, n);
  a.setFromTriplets(entries.begin(), entries.end());
  const Eigen::VectorXd x = Eigen::VectorXd::Constant(n, rank + 1);
  const Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> direct(a);
  meet(round);
  check((direct.solve(a * x) - x).norm() < 1e-9, "a sparse system");
  Eigen::ConjugateGradient<Eigen::SparseMatrix<double>, Eigen::Lower | Eigen::Upper> iterated(a);
  check((iterated.solve(a * x) - x).norm() < 1e-8, "an iteration");
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  for (int round = 0; round < 6; ++round) {
    Eigen::setNbThreads(1 + (rank + round) % 3);
    Eigen::setCpuCacheSizes(16 << 10, 256 << 10, 1 << (20 + rank % 4));
    dense(50 + 10 * (rank % 4), round);
    sparse(300 + rank, round);
    check(Eigen::l3CacheSize() == 1 << (20 + rank % 4), "the sizes of caches");
  }
  return end();
}
