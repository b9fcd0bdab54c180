// SPDX-License-Identifier: MIT
#include "launch/cluster/speed_kernel.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace aplib::launch {
namespace {

constexpr std::size_t arrays = 4;
constexpr std::size_t bytes_min = std::size_t{64} << 20;
constexpr std::size_t bytes_max = std::size_t{128} << 20;
constexpr std::size_t points_min = 64;
constexpr std::size_t points_per_step = 8192;

/// Passes over the arrays in one iteration: each reads and writes some of them, and its rows count for that share of the iteration's work.
class MemoryKernel : public SpeedKernel {
 public:
  explicit MemoryKernel(std::size_t points)
      : n_(points), stride_(points + 2), p_(cells(), 1.0), q_(cells(), 0.0), x_(cells(), 0.0), r_(cells(), 1.0) {}

  double step() override {
    const std::size_t end = std::min(row_ + std::max<std::size_t>(points_per_step / n_, 1), n_ + 1);
    const double done = static_cast<double>((end - row_) * n_);
    double share = 0;
    switch (pass_) {
      case 0:
        stencil(row_, end);
        share = 0.25;  // 3 streams of 12: p, and q twice (it is read before it is written)
        break;
      case 1:
        update(row_, end);
        share = 0.5;  // 6 of 12: p, q, x and r twice
        break;
      default:
        direction(row_, end);
        share = 0.25;  // 3 of 12: r, p twice
    }
    row_ = end;
    if (row_ == n_ + 1) next_pass();
    return done * share;
  }

  [[nodiscard]] double result() const override { return x_[stride_ + 1] + pq_ + rr_; }

 private:
  [[nodiscard]] std::size_t cells() const { return stride_ * stride_; }

  void stencil(std::size_t row, std::size_t end) {
    double sum = 0;
    for (std::size_t y = row; y < end; ++y) {
      const double* p = &p_[y * stride_];
      double* q = &q_[y * stride_];
      for (std::size_t i = 1; i <= n_; ++i) {
        q[i] = 4.0 * p[i] - p[i - 1] - p[i + 1] - p[i - stride_] - p[i + stride_];
        sum += p[i] * q[i];
      }
    }
    pq_ += sum;
  }

  void update(std::size_t row, std::size_t end) {
    double sum = 0;
    for (std::size_t y = row; y < end; ++y) {
      const double* p = &p_[y * stride_];
      const double* q = &q_[y * stride_];
      double* x = &x_[y * stride_];
      double* r = &r_[y * stride_];
      for (std::size_t i = 1; i <= n_; ++i) {
        x[i] += alpha_ * p[i];
        r[i] -= alpha_ * q[i];
        sum += r[i] * r[i];
      }
    }
    rr_ += sum;
  }

  void direction(std::size_t row, std::size_t end) {
    for (std::size_t y = row; y < end; ++y) {
      double* p = &p_[y * stride_];
      const double* r = &r_[y * stride_];
      for (std::size_t i = 1; i <= n_; ++i) p[i] = r[i] + beta_ * p[i];
    }
  }

  void next_pass() {
    row_ = 1;
    pass_ = (pass_ + 1) % 3;
    if (pass_ == 1) {
      alpha_ = pq_ > 0 ? rr_before_ / pq_ : 0;
      rr_ = 0;
    } else if (pass_ == 2) {
      beta_ = rr_before_ > 0 ? rr_ / rr_before_ : 0;
      // It has converged: from here numbers become so small that processors slow down, which is not what we measure.
      if (!(rr_ > 1e-20)) restart();
      rr_before_ = rr_;
    } else {
      pq_ = 0;
    }
  }

  void restart() {
    std::ranges::fill(r_, 1.0);
    beta_ = 0;
    rr_ = static_cast<double>(n_ * n_);
  }

  const std::size_t n_;
  const std::size_t stride_;
  std::vector<double> p_, q_, x_, r_;  // with a border of one point, which stays as it is
  std::size_t row_ = 1;
  int pass_ = 0;
  double alpha_ = 0;
  double beta_ = 0;
  double pq_ = 0;
  double rr_ = 0;
  double rr_before_ = 1;
};

class ComputeKernel : public SpeedKernel {
 public:
  double step() override {
    constexpr int rounds = 4096;
    std::array<double, lanes> x = x_;  // registers: the loop below has no loads
    for (int i = 0; i < rounds; ++i) {
      for (double& each : x) each = each * 0.999 + 0.5;
    }
    x_ = x;
    return static_cast<double>(rounds) * lanes;
  }

  [[nodiscard]] double result() const override {
    double sum = 0;
    for (const double each : x_) sum += each;
    return sum;
  }

 private:
  static constexpr int lanes = 16;  // enough independent chains to fill the pipelines of two wide units
  std::array<double, lanes> x_{};
};

}  // namespace

std::unique_ptr<SpeedKernel> make_memory_kernel(std::size_t points) {
  return std::make_unique<MemoryKernel>(std::max(points, points_min));
}

std::unique_ptr<SpeedKernel> make_compute_kernel() { return std::make_unique<ComputeKernel>(); }

std::size_t memory_kernel_points(std::size_t threads) {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1: not known
  const std::size_t wanted = std::clamp(2 * static_cast<std::size_t>(std::max(cache, 0L)), bytes_min, bytes_max);
  const double each = static_cast<double>(wanted) / (static_cast<double>(std::max<std::size_t>(threads, 1)) * arrays);
  return std::max(points_min, static_cast<std::size_t>(std::sqrt(each / sizeof(double))));
}

}  // namespace aplib::launch
