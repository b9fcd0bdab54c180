// SPDX-License-Identifier: MIT
// scg on a slower computer, for scripts/paper. bench-scg is scg linked with this file, which comes between the solver
// and the loops. The variable BENCH_PASSES says how many passes a pass over a cell's unknowns counts as, whole and in
// part (1.76: three quarters of a pass more; 100: 99 more). A host with that variable computes so many times slower,
// and does everything else at full speed.
//
// The additional passes go over as many unknowns in vectors of their own, which fit a core's cache. So they change no
// result, and two hosts that are really two cores of one computer do not compete for memory.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "../../apps/scg/block.hpp"
#include "../../apps/scg/kernels.hpp"

// scg::kernels(), and what the linker puts into its place (--wrap).
const scg::Kernels& real_kernels() __asm__("__real__ZN3scg7kernelsEv");
const scg::Kernels& slower_kernels() __asm__("__wrap__ZN3scg7kernelsEv");

namespace {

constexpr int columns = 256;
constexpr int rows = 32;  // three vectors of 64 KiB

/// Vectors for a pass over so many rows.
struct Load {
  explicit Load(int count)
      : p(columns, count, 0),
        r(columns, count, 1),
        x(columns, count, 2),
        west(static_cast<std::size_t>(count)),
        east(static_cast<std::size_t>(count)) {}

  void pass() {
    const scg::PassInput input{.alpha = 0.5, .beta = 0.5, .alpha_before = 0.5, .add_to_x = odd};
    static_cast<void>(real_kernels().pass(p, r, x, input, {west.data(), east.data()}));
    odd = !odd;
  }

  scg::Field p;
  scg::Field r;
  scg::Field x;
  std::vector<double> west;
  std::vector<double> east;
  bool odd = false;  // as in the solver, every second pass changes x
};

/// What a pass over a block takes in addition. Every cell of a loaded program has its own.
class More {
 public:
  explicit More(double unknowns) : whole_(static_cast<long>(unknowns / (columns * rows))) {
    const double rest = unknowns / columns - static_cast<double>(whole_) * rows;
    const int part = static_cast<int>(std::lround(rest));
    if (part > 0) part_ = std::make_unique<Load>(part);
  }
  void pass() {
    for (long i = 0; i < whole_; ++i) load_.pass();
    if (part_ != nullptr) part_->pass();
  }

 private:
  long whole_;
  Load load_{rows};
  std::unique_ptr<Load> part_;
};

double passes() {
  const char* text = std::getenv("BENCH_PASSES");
  return text == nullptr ? 1 : std::strtod(text, nullptr);
}

std::unique_ptr<More> more;

scg::PassSums slower_pass(scg::Field& p, scg::Field& r, scg::Field& x, const scg::PassInput& input,
                          scg::PassColumns into) {
  if (more == nullptr) more = std::make_unique<More>((passes() - 1) * p.nx() * p.ny());
  more->pass();
  return real_kernels().pass(p, r, x, input, into);
}

}  // namespace

const scg::Kernels& slower_kernels() {
  static const scg::Kernels slower = [] {
    scg::Kernels made = real_kernels();
    made.pass = slower_pass;
    return made;
  }();
  return slower;
}
