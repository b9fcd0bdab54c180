// SPDX-License-Identifier: MIT
// Who listens on a port of this host, for messages.
#pragma once

#include <string>

namespace aplib::comm {

/// "process 4711 (sshd)", "a process of another user", or "" when nobody is seen to listen there. Reads /proc: slow, for errors.
[[nodiscard]] std::string port_holder(unsigned port);

}  // namespace aplib::comm
