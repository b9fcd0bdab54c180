// SPDX-License-Identifier: MIT
#include "loader/libc/start.hpp"

#include "loader/libc/streams.hpp"

namespace aplib::loader {

void start_libc(Instance& instance) {
  libc::start_environment(instance);
  libc::start_program_name(instance);
  libc::start_locale(instance);
  libc::start_time_zone(instance);
  libc::start_stdio(instance);
}

}  // namespace aplib::loader
