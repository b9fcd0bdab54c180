// SPDX-License-Identifier: MIT
#include "fiber.hpp"

#include <boost/context/detail/fcontext.hpp>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define APLIB_DET_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define APLIB_DET_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define APLIB_DET_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define APLIB_DET_TSAN 1
#endif
#if defined(APLIB_DET_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(APLIB_DET_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace aplib::det {

namespace context = boost::context::detail;

struct Fiber::Switch {
  static void into(Fiber& fiber) {
#if defined(APLIB_DET_TSAN)
    fiber.tsan_outside_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.tsan_inside_, 0);
#endif
#if defined(APLIB_DET_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, fiber.stack_.get(), stack_bytes);
#endif
    const context::transfer_t back = context::jump_fcontext(fiber.inside_, &fiber);
#if defined(APLIB_DET_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
    fiber.inside_ = back.fctx;
  }

  static void arrived(Fiber& fiber, [[maybe_unused]] void* fake_stack) {
#if defined(APLIB_DET_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, &fiber.outside_stack_, &fiber.outside_stack_bytes_);
#else
    static_cast<void>(fiber);
#endif
  }

  static void out_of(Fiber& fiber) {
    void* fake_stack = nullptr;
#if defined(APLIB_DET_TSAN)
    __tsan_switch_to_fiber(fiber.tsan_outside_, 0);
#endif
#if defined(APLIB_DET_ASAN)
    __sanitizer_start_switch_fiber(fiber.ended_ ? nullptr : &fake_stack, fiber.outside_stack_,
                                   fiber.outside_stack_bytes_);
#endif
    const context::transfer_t again = context::jump_fcontext(fiber.outside_, &fiber);
    arrived(fiber, fake_stack);
    fiber.outside_ = again.fctx;
  }

  static void entry(context::transfer_t from) {
    auto& fiber = *static_cast<Fiber*>(from.data);
    arrived(fiber, nullptr);
    fiber.outside_ = from.fctx;
    fiber.entry_(fiber.argument_);
    fiber.ended_ = true;
    out_of(fiber);
  }
};

Fiber::Fiber() : stack_(new std::byte[stack_bytes]) {}

Fiber::~Fiber() {
#if defined(APLIB_DET_TSAN)
  if (tsan_inside_ != nullptr) __tsan_destroy_fiber(tsan_inside_);
#endif
#if defined(APLIB_DET_ASAN)
  __asan_unpoison_memory_region(stack_.get(), stack_bytes);
#endif
}

void Fiber::start(Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
#if defined(APLIB_DET_TSAN)
  if (tsan_inside_ != nullptr && !ended_) {  // an abandoned call stack stays in its shadow
    __tsan_destroy_fiber(tsan_inside_);
    tsan_inside_ = nullptr;
  }
  if (tsan_inside_ == nullptr) tsan_inside_ = __tsan_create_fiber(0);
#endif
#if defined(APLIB_DET_ASAN)
  __asan_unpoison_memory_region(stack_.get(), stack_bytes);
#endif
  ended_ = false;
  inside_ = context::make_fcontext(stack_.get() + stack_bytes, stack_bytes, &Switch::entry);
}

void Fiber::resume() { Switch::into(*this); }

void Fiber::suspend() { Switch::out_of(*this); }

}  // namespace aplib::det
