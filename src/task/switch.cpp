// SPDX-License-Identifier: MIT
#include "task/switch.hpp"

#include <ctype.h>
#include <cxxabi.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/sanitizer.hpp"

namespace aplib {

void ThreadState::attach() noexcept {
  errno_location = &errno;
  exceptions = reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
  program = &current_program_context;
  kept_places = {&errno, &h_errno, __ctype_b_loc(), __ctype_tolower_loc(), __ctype_toupper_loc()};
}

namespace {

// The first landing on a new stack. Boost.Context calls this with what switch_to() handed over.
void first_landing(boost::context::detail::transfer_t arrived) noexcept {
  Flow& self = *static_cast<ThreadState*>(arrived.data)->arriving;
  detail::landed(self, arrived);
  self.body(self);
  __builtin_unreachable();
}

void never_run(boost::context::detail::transfer_t) {}

}  // namespace

// Senders may copy into buffers on the stack meanwhile. They do not write where an address is found.
APLIB_NO_SANITIZE void rebase_flow(Flow& flow, const char* top, const ThreadState& from,
                                   const ThreadState& to) noexcept {
  auto* const begin = static_cast<const void**>(flow.context);
  auto* const end = begin + used_stack(flow, top) / sizeof *begin;
  // All lie in the thread's own block, so most words are out of the question at once.
  const auto [lowest, highest] = std::ranges::minmax(from.kept_places);
  for (const void** word = begin; word != end; ++word) {
    if (*word < lowest || *word > highest) [[likely]]
      continue;
    for (std::size_t i = 0; i < from.kept_places.size(); ++i) {
      if (*word == from.kept_places[i]) {
        *word = to.kept_places[i];
        break;
      }
    }
  }
}

void prepare_flow(Flow& flow, void (*body)(Flow&), void* top, std::size_t bytes) noexcept {
  flow.body = body;
  flow.context = boost::context::detail::make_fcontext(top, bytes, first_landing);
  flow.saved_errno = 0;
  flow.saved_exceptions = {};
  flow.saved_float_flags = 0;
  flow.program = nullptr;
#if APLIB_ASAN
  flow.fake_stack = nullptr;
  flow.stack_low = static_cast<char*>(top) - bytes;
  flow.stack_bytes = bytes;
#endif
#if APLIB_TSAN
  flow.fiber = __tsan_create_fiber(0);
#endif
}

void adopt_thread([[maybe_unused]] Flow& flow) noexcept {
#if APLIB_TSAN
  flow.fiber = __tsan_get_current_fiber();
#endif
}

void dispose_flow([[maybe_unused]] Flow& flow) noexcept {
#if APLIB_TSAN
  if (flow.fiber != nullptr) __tsan_destroy_fiber(flow.fiber);
  flow.fiber = nullptr;
#endif
}

// make_fcontext() leaves the function to be run in the place of one of the registers. The others lie around it; no
// header of Boost says where.
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
