// SPDX-License-Identifier: MIT
// A progress bar on a terminal: how far the residual has come on its way to the tolerance, on a logarithmic scale.
#pragma once

namespace scg {

class Progress {
 public:
  /// `on` false: does nothing at all.
  Progress(bool on, double tolerance) : on_(on), tolerance_(tolerance) {}

  /// Cheap: looks at the clock once in 32 iterations, draws at most ten times a second. `residual` is relative.
  void show(int iteration, double residual);

  /// Takes the bar away.
  void clear();

  /// True when stderr is a terminal that a bar can be drawn on.
  [[nodiscard]] static bool possible();

 private:
  void draw(int iteration, double residual);

  bool on_;
  bool drawn_ = false;
  double tolerance_;
  double next_ = 0;
};

}  // namespace scg
