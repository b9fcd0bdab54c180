// SPDX-License-Identifier: MIT
#include "mpi/plain.hpp"

#include "mpi/basic_type.hpp"

namespace aplib::mpi::plain {

constinit const std::array<std::uint8_t, 256> element_bytes = [] {
  std::array<std::uint8_t, 256> bytes{};
  for (std::size_t code = 0; code < bytes.size(); ++code) {
    const BasicInfo& info = basic_info(static_cast<BasicType>(code));
    if (info.size % info.alignment == 0) bytes[code] = info.size;
  }
  return bytes;
}();

}  // namespace aplib::mpi::plain
