// SPDX-License-Identifier: MIT
#include "task/switch.hpp"

#include <cxxabi.h>
#include <cerrno>

namespace aplib {

void ThreadState::attach() noexcept {
  errno_location = &errno;
  exceptions = reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
  program = &current_program_context;
}

namespace {

// First landing on a new stack: Boost.Context calls this with what switch_to() handed over.
void first_landing(boost::context::detail::transfer_t arrived) noexcept {
  Flow& self = *static_cast<ThreadState*>(arrived.data)->arriving;
  detail::landed(self, arrived);
  self.body(self);
  __builtin_unreachable();
}

}  // namespace

void prepare_flow(Flow& flow, void (*body)(Flow&), void* top, std::size_t bytes) noexcept {
  flow.body = body;
  flow.context = boost::context::detail::make_fcontext(top, bytes, first_landing);
  flow.saved_errno = 0;
  flow.saved_exceptions = {};
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

}  // namespace aplib
