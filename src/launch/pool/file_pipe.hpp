// SPDX-License-Identifier: MIT
// One end of a transfer of files (launch/files) over two descriptors, such as the standard streams of what a keeper has
// started.
#pragma once

#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"

namespace aplib::launch::pool {

/// Carries the transfer to its end. Blocks. Returns all that went wrong; none: all files are there. Both descriptors
/// become ones that do not block.
[[nodiscard]] std::vector<std::string> carry(files::Sender& sender, const os::Ends& ends);
[[nodiscard]] std::vector<std::string> carry(files::Receiver& receiver, const os::Ends& ends);

}  // namespace aplib::launch::pool
