// SPDX-License-Identifier: MIT
// APLIB_ASAN and APLIB_TSAN: 1 where this file is compiled with AddressSanitizer or ThreadSanitizer, else 0.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define APLIB_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define APLIB_ASAN 1
#endif
#endif
#ifndef APLIB_ASAN
#define APLIB_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define APLIB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define APLIB_TSAN 1
#endif
#endif
#ifndef APLIB_TSAN
#define APLIB_TSAN 0
#endif

/// A function that reads memory which is not its own, as collectors do.
#define APLIB_NO_SANITIZE __attribute__((no_sanitize("address", "thread", "undefined")))
