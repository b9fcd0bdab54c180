// SPDX-License-Identifier: MIT
// Where the registers of a flow lie that does not run: for debuggers, which walk its stack from them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aplib {

/// Offset from Flow::context of the saved registers r12, r13, r14, r15, rbx, rbp, rip, which follow each other;
/// behind them is the stack as the flow finds it when it goes on. Versions of Boost.Context differ in what comes
/// before. SIZE_MAX: this version, or this processor, keeps them otherwise.
std::size_t parked_registers_offset() noexcept;

}  // namespace aplib
