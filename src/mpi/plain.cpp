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

[[gnu::cold]] void refuse_size(const Subject& its, const api::Arrived& arrived, MPI_Datatype type) {
  check_other_size(*its.comm, arrived, static_cast<MPI_Count>(its.bytes),
                   *Datatype::named(static_cast<BasicType>(code_of(type))));
}

[[gnu::cold]] void receive_failed(const char* call, const Subject& its, int source, Wake how) {
  static_cast<void>(wait_for_rank(
      source, fail_unsent, [&] { return api::inlined::receive_failed(*its.self, call, mailbox_of(*its.rank), how); }));
}

}  // namespace aplib::mpi::plain
