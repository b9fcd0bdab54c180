// SPDX-License-Identifier: MIT
#include "task/parked_flow.hpp"

#include <boost/context/detail/fcontext.hpp>
#include <cstring>

#include "arch/stack_switch.hpp"

namespace aplib {
namespace {

void never_run(boost::context::detail::transfer_t) {}

}  // namespace

// make_fcontext() leaves the function to be run in the place of one of the registers. Where that is, the others
// are; no header of Boost says it.
std::size_t parked_registers_offset() noexcept {
  alignas(16) unsigned char stack[1024] = {};
  constexpr std::size_t word = sizeof(std::uint64_t);
  constexpr std::size_t before_entry = arch::parked_words_before_entry * word;
  auto* const context =
      static_cast<unsigned char*>(boost::context::detail::make_fcontext(stack + sizeof stack, sizeof stack, never_run));
  const auto wanted = reinterpret_cast<std::uint64_t>(&never_run);
  for (std::size_t offset = before_entry; context + offset + word <= stack + sizeof stack; offset += word) {
    std::uint64_t found = 0;
    std::memcpy(&found, context + offset, word);
    if (found == wanted) return offset - before_entry;
  }
  return SIZE_MAX;
}

}  // namespace aplib
