// SPDX-License-Identifier: MIT
// The core and its caches. What two processors write never shares a line, nor the line's neighbour.
//   cache_line_bytes  what moves between caches at a time
//   cache_pair_bytes  how far apart two things must lie that two processors write
//   cpu_relax()       tells the core that the thread polls
//   cycles()          a clock that costs next to nothing and counts some billions a second, of no known rate: it tells
//                     whether a while has passed, and no more
#pragma once

#if defined(__x86_64__)
#include "arch/x86_64/cpu.hpp"
#else
#error "APlib does not know this machine yet: add a folder beside src/arch/x86_64 (ARCHITECTURE.md, Another machine)"
#endif
