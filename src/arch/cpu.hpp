// SPDX-License-Identifier: MIT
// The core: its caches, its clock, and the jump from one stack to another. What two processors write never shares a
// cache line, nor the line's neighbour.
//   cache_line_bytes  what moves between caches at a time
//   cache_pair_bytes  how far apart two things must lie that two processors write
//   cpu_relax()       tells the core that the thread polls
//   fetch_line()      begins to bring a line here, which is read soon
//   copy_long(to, from, bytes)  as memcpy(), for some hundred bytes or more, as fast wherever they lie
//   copy_past_caches(to, from, bytes)  as memcpy(), for what another core reads next: in no cache of this core then,
//                     and seen by whoever sees what is written afterwards. REQUIRES: `to` begins a cache line.
//   cycles()          a clock that costs next to nothing and counts some billions a second, of no known rate: it tells
//                     whether a while has passed, and no more
//   float_flags(), set_float_flags(flags)  what computing has signalled (fetestexcept(3)), as far as a jump does not
//                     bring it along
//   jump(to, data)    as Boost.Context's jump_fcontext(), for src/task alone, which is linked with it
//   parked_words_before_entry  how many registers of a parked flow lie before the one that make_fcontext() leaves the
//                              function to be run in; src/kernel/aplib_gdb.py has their names and order
#pragma once

namespace aplib::arch {

/// What a jump brings along: the flow that was left, and the data that it handed over.
struct Arrival {
  void* from;
  void* data;
};

}  // namespace aplib::arch

#if defined(__x86_64__)
#include "arch/x86_64/cpu.hpp"
#else
#error "APlib does not know this machine yet: add a folder beside src/arch/x86_64 (ARCHITECTURE.md, Another machine)"
#endif
