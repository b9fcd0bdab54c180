// SPDX-License-Identifier: MIT
// A cluster file that uses every kind of value, for tests that change it.
#pragma once

#include <string_view>

namespace aplib::launch {

inline constexpr std::string_view whole_cluster = R"(# a machine
[machine]
grid = "4x2"
program = "./scg"
args = ["--grid", 300, 'x',
  """two
lines"""]
poll-time = "5us"
bind = false
private-libraries = ["liba.so", "libb.so*"]
[[host]]
name = "ws[1-3]"
cells = 2
threads = 2
speed = 2.5
[[host]]
name = "ws9"
address = "fe80::1%eth0"
command = "rsh {host} {quoted-cmd}"
cells = "auto"
count = 2
speed-command = "echo 1"
[[file]]
source = "input.dat"
target = "in/input.dat"
hosts = ["ws1", "ws9"]
replace = true
[[file]]
source = "out-*"
fetch = true
[comm]
module = ["shm", "tcp"]
ports = "5100-5120"
secure = "tls"
)";

}  // namespace aplib::launch
