// SPDX-License-Identifier: MIT
// The verbs of apctl that carry files to and from the hosts of a pool. docs/pool.md says what they do.
#pragma once

#include <string>
#include <vector>

#include "launch/files/target.hpp"

namespace aplib::launch::ctl {

/// `words`: files and folders of this computer, and POOL[:HOST]:FOLDER last. Returns an exit status. Throws Error.
[[nodiscard]] int put_files(std::vector<std::string> words, files::Existing existing);
/// `words`: POOL[:HOST]:PATTERN..., and a folder of this computer last.
[[nodiscard]] int get_files(std::vector<std::string> words);

}  // namespace aplib::launch::ctl
