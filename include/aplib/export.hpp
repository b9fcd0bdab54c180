// SPDX-License-Identifier: MIT
// Symbol visibility: everything is hidden but what carries APLIB_API.
#pragma once

#if defined(APLIB_STATIC)
#define APLIB_API
#else
#define APLIB_API __attribute__((visibility("default")))
#endif
