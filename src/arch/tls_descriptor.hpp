// SPDX-License-Identifier: MIT
// TLS descriptors: by them code reaches a thread-local without a call of __tls_get_addr. The first word of a
// descriptor is a function, the second what that function needs.
#pragma once

#include <cstdint>

extern "C" {
/// The first word of the descriptors that the loader writes. Called by the ABI's own rules, which differ from C's:
/// it gets the descriptor and keeps every register but the result's. Returns the offset from the thread pointer,
/// which it asks the function below for.
[[gnu::visibility("hidden")]] void aplib_tls_descriptor_resolver();

/// (loader/context.cpp) `argument`: the second word.
[[gnu::visibility("hidden")]] std::uint64_t aplib_tls_descriptor_offset(const void* argument);
}
