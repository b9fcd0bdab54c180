// SPDX-License-Identifier: MIT
#include "launch/open_files.hpp"

#include <sys/resource.h>

namespace aplib::launch {

void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace aplib::launch
