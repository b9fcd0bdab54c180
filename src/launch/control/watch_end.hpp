// SPDX-License-Identifier: MIT
// Tells when the other end of a pipe has gone.
#pragma once

#include <functional>

#include "launch/control/event_loop.hpp"

namespace aplib::launch {

/// Calls `ended`, on the loop's thread, when reading `descriptor` would give the end; throws away what else comes. What cannot be waited for (a plain file) never ends. Takes a copy of the descriptor.
void watch_end(EventLoop& loop, int descriptor, std::function<void()> ended);

}  // namespace aplib::launch
