// SPDX-License-Identifier: MIT
#include "task/parked_flow.hpp"

#include <boost/context/detail/fcontext.hpp>
#include <cstring>

namespace aplib {
namespace {

void never_run(boost::context::detail::transfer_t) {}

}  // namespace

// make_fcontext() leaves the function to be run where rbx will come from. Where that is, the others are; no header of Boost says it.
std::size_t parked_registers_offset() noexcept {
#if defined(__x86_64__)
  alignas(16) unsigned char stack[1024] = {};
  constexpr std::size_t word = sizeof(std::uint64_t);
  constexpr std::size_t before_rbx = 4 * word;
  auto* const context =
      static_cast<unsigned char*>(boost::context::detail::make_fcontext(stack + sizeof stack, sizeof stack, never_run));
  const auto wanted = reinterpret_cast<std::uint64_t>(&never_run);
  for (std::size_t offset = before_rbx; context + offset + word <= stack + sizeof stack; offset += word) {
    std::uint64_t found = 0;
    std::memcpy(&found, context + offset, word);
    if (found == wanted) return offset - before_rbx;
  }
#endif
  return SIZE_MAX;
}

}  // namespace aplib
