// SPDX-License-Identifier: MIT
// Symbol visibility: only symbols with APLIB_API are visible.
#pragma once

#if defined(APLIB_STATIC)
#define APLIB_API
#else
#define APLIB_API __attribute__((visibility("default")))
#endif
