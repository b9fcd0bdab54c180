// SPDX-License-Identifier: MIT
// A fence for other processes of this host: membarrier. In a header alone, for modules in files of their own. Linux
// only.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace aplib::os {

/// Registers this process for host_barrier(). False where the kernel (or a container's filter) has no membarrier. The
/// first time waits for some 10 ms where the process has several threads already.
inline bool host_barrier_register() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/// Every running thread of every process of this host that has registered passes a full memory fence before this
/// returns.
inline void host_barrier() noexcept { ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }

/// Registers it for host_barrier() and for process_barrier() (thread.hpp), early, so that nothing waits later.
inline void register_barriers() noexcept {
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  host_barrier_register();
}

}  // namespace aplib::os
