// SPDX-License-Identifier: MIT
// RelocationPlan: what remains to be done for an image in each instance once every symbol is resolved: add bases, store values. Replayed in the order of the members.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/binding.hpp"

namespace aplib::loader {

struct RelocationPlan {
  /// word at offset = value
  struct Store {
    std::uint64_t offset;
    std::uint64_t value;
  };
  /// word at offset = base of image `image` + value
  struct Based {
    std::uint64_t offset;
    std::uint64_t value;
    std::uint32_t image;
  };
  /// word at offset = place made by `binding` + value
  struct Made {
    std::uint64_t offset;
    std::uint64_t value;
    const Binding* binding;
  };
  /// `bytes` bytes at offset = those at `value` of image `image`, or, with image == of_state, of the instance's LibcState
  struct Copy {
    std::uint64_t offset;
    std::uint64_t value;
    std::uint64_t bytes;
    std::uint32_t image;
  };
  static constexpr std::uint32_t of_state = 0xffff'ffff;

  std::vector<std::uint64_t> packed;  ///< word at offset += own base (DT_RELR)
  std::vector<Store> relative;        ///< word at offset = own base + value
  std::vector<Store> absolute;        ///< the process's symbols; modules and offsets of thread-locals
  std::vector<Based> based;           ///< symbols of other images of the instance
  std::vector<Store> state;           ///< word at offset = the instance's LibcState + value
  std::vector<Made> made;
  std::vector<Copy> copies;  ///< R_X86_64_COPY
  std::vector<Based>
      indirect;  ///< word at offset = result of the resolver at base of image `image` + value; last of all
};

}  // namespace aplib::loader
