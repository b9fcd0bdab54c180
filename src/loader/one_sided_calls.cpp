// SPDX-License-Identifier: MIT
#include "loader/one_sided_calls.hpp"

#include <algorithm>
#include <array>

namespace aplib::loader {

// Beginnings of names: those of aplib/cellos_one_sided.h, and what the templates of aplib/one_sided.hpp call.
bool is_one_sided_call(std::string_view symbol) noexcept {
  static constexpr std::array<std::string_view, 13> beginnings{
      "cellos_put",
      "cellos_get",
      "cellos_fetch_",
      "cellos_swap",
      "cellos_compare_swap",
      "put_stride",
      "get_stride",
      "amcheck",
      "amackwait",
      "_ZN5aplib6detail3putE",
      "_ZN5aplib6detail3getE",
      "_ZN5aplib6detail5fetchE",
      "_ZN5aplib6detail9wait_flagE",
  };
  return std::ranges::any_of(beginnings, [symbol](std::string_view begin) { return symbol.starts_with(begin); });
}

}  // namespace aplib::loader
