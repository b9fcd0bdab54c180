// SPDX-License-Identifier: MIT
// Operand: memory for elements that are combined on the way.
#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "mpi/datatype.hpp"

namespace aplib::mpi {

/// Memory for elements, made when it is first used.
class Operand {
 public:
  Operand(const Datatype& type, Count count) noexcept : type_(type), count_(count) {}

  const Elements& elements() {
    if (!is_made_) make();
    return elements_;
  }

 private:
  static constexpr Count alignment = 16;

  // Operations may read and write all from the first element's bounds to the last one's, gaps too.
  void make() {
    const Count low = std::min(type_.lb(), type_.true_lb());
    const Count high = std::max(type_.ub(), type_.true_lb() + type_.true_extent());
    const Count span = std::max<Count>(count_ - 1, 0) * type_.extent();
    const Count first = (low + std::min<Count>(span, 0)) & ~Count{alignment - 1};
    const auto bytes = static_cast<std::size_t>(high + std::max<Count>(span, 0) - first);
    std::byte* place = inside_.data();
    if (bytes > inside_.size()) {
      outside_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      place = outside_.get();
    }
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(place) - static_cast<std::uintptr_t>(first);
    elements_ = {reinterpret_cast<void*>(address), &type_.layout(), count_, type_.extent()};
    is_made_ = true;
  }

  const Datatype& type_;
  Count count_;
  bool is_made_ = false;
  Elements elements_{};
  alignas(alignment) std::array<std::byte, 256> inside_;
  std::unique_ptr<std::byte[]> outside_;
};

}  // namespace aplib::mpi
