// SPDX-License-Identifier: MIT
// The worker of an apfarm on a host of a pool, which the host's keeper starts: it runs jobs for as long as that apfarm
// is there.
#pragma once

namespace aplib::farm {

/// Speaks host_messages.hpp at the standard streams. Returns an exit status. Throws Error.
[[nodiscard]] int run_worker();

}  // namespace aplib::farm
