// SPDX-License-Identifier: MIT
// SpeedKernel: work of a known amount, in small pieces, for one thread.
#pragma once

#include <cstddef>
#include <memory>

namespace aplib::launch {

class SpeedKernel {
 public:
  virtual ~SpeedKernel() = default;
  SpeedKernel() = default;
  SpeedKernel(const SpeedKernel&) = delete;
  SpeedKernel& operator=(const SpeedKernel&) = delete;

  /// Does the next piece, some ten microseconds of work; returns how much that was.
  virtual double step() = 0;
  /// Something that depends on all results, so that no compiler leaves the work out.
  [[nodiscard]] virtual double result() const = 0;
};

/// Conjugate gradients on a grid of `points` x `points`: a 5-point stencil, dot products and updates of four arrays of doubles, which is bound by memory when they do not
/// fit into a cache. Unit: grid points of a whole iteration. Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<SpeedKernel> make_memory_kernel(std::size_t points);
/// Multiply-adds of doubles in registers. Unit: one of them.
[[nodiscard]] std::unique_ptr<SpeedKernel> make_compute_kernel();

/// A grid for each of `threads` so that their arrays together are larger than this computer's caches, within limits (64 .. 128 MiB).
[[nodiscard]] std::size_t memory_kernel_points(std::size_t threads);

}  // namespace aplib::launch
