// SPDX-License-Identifier: MIT
// MPI_Dims_create: factors of a number that are as close to each other as can be.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mpi/call.hpp"
#include "mpi/error.hpp"

namespace aplib::mpi {

namespace {

/// More factors than this are 1.
constexpr std::size_t factors_max = 31;

/// Finds the factors with the least difference between the largest and the smallest; of several such choices the one
/// whose smallest factors are largest.
class Balance {
 public:
  Balance(int product, std::size_t count) : tried_(count, 1), best_(count, 1), difference_(product - 1) {
    best_.back() = product;
    for (int low = 1; static_cast<std::int64_t>(low) * low <= product; ++low) {
      if (product % low != 0) continue;
      divisors_.push_back(low);
      if (low != product / low) divisors_.push_back(product / low);
    }
    std::ranges::sort(divisors_, std::greater<>{});
    if (count > 1) search(0, product);
  }

  /// The smallest one first.
  [[nodiscard]] std::span<const int> factors() const noexcept { return best_; }

 private:
  /// Whether base to the power of `exponent` is at most `bound`.
  static bool is_power_within(std::int64_t base, std::size_t exponent, std::int64_t bound) noexcept {
    std::int64_t power = 1;
    for (; exponent > 0 && base > 1; --exponent) {
      power *= base;
      if (power > bound) return false;
    }
    return power <= bound;
  }

  /// Tries factors from `place` on, whose product is `rest`, from the largest that is possible: these are the closest
  /// ones, so what comes after them is soon too far away.
  void search(std::size_t place, int rest) {
    const std::size_t left = tried_.size() - place;
    const int least = place == 0 ? 1 : tried_[place - 1];
    if (left == 1) {
      if (rest - tried_.front() >= difference_) return;
      difference_ = rest - tried_.front();
      tried_[place] = rest;
      best_ = tried_;
      return;
    }
    for (const int factor : divisors_) {
      if (factor < least) return;
      if (rest % factor != 0 || !is_power_within(factor, left, rest)) continue;
      const int smallest = place == 0 ? factor : tried_.front();
      // The others would have to be below this bound to be better.
      if (is_power_within(static_cast<std::int64_t>(smallest) + difference_ - 1, left - 1, rest / factor - 1)) return;
      tried_[place] = factor;
      search(place + 1, rest / factor);
    }
  }

  std::vector<int> divisors_;  // the largest one first
  std::vector<int> tried_;
  std::vector<int> best_;
  int difference_;
};

}  // namespace

void dims_create(const Call& call, int nnodes, int ndims, int dims[]) {
  if (nnodes <= 0) fail(MPI_ERR_ARG, fmt::format("nnodes is {}; a grid has 1 node or more", nnodes));
  if (ndims < 0) fail(MPI_ERR_DIMS, fmt::format("ndims is {}; a grid has 0 dimensions or more", ndims));
  check_array(call, "dims", dims, ndims);
  std::int64_t given = 1;
  std::size_t open = 0;
  for (int i = 0; i < ndims; ++i) {
    if (dims[i] < 0)
      fail(MPI_ERR_DIMS, fmt::format("dims[{}] is {}; give a size of 1 or more, or 0 to have it chosen", i, dims[i]));
    if (dims[i] == 0) ++open;
    if (dims[i] > 0) given *= dims[i];
    if (given > nnodes) break;
  }
  if (nnodes % given != 0 || (ndims == 0 && nnodes != 1)) {
    fail(MPI_ERR_DIMS,
         fmt::format("the given dims have the product {}, which does not divide nnodes, {}; give divisors "
                     "of it, and 0 for what is to be chosen",
                     given, nnodes));
  }
  if (open == 0) return;
  const Balance balance(nnodes / static_cast<int>(given), std::min(open, factors_max));
  std::span<const int> rest = balance.factors();
  for (int& dim : std::span(dims, static_cast<std::size_t>(ndims))) {
    if (dim != 0) continue;
    dim = rest.empty() ? 1 : rest.back();
    if (!rest.empty()) rest = rest.first(rest.size() - 1);
  }
}

}  // namespace aplib::mpi
