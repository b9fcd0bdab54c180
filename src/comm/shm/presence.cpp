// SPDX-License-Identifier: MIT
#include <sys/prctl.h>

#include <cstdint>
#include <cstring>
#include <fstream>

#include "comm/shm/remote_memory.hpp"
#include "comm/shm/settings.hpp"

namespace aplib::comm::shm {
namespace {

/// Where the kernel lets a process reach only its descendants' memory (Yama), it lets others name who else may reach theirs: those of the same user, whom it lets everywhere else.
void permit_access() {
  int scope = 0;
  if (std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope && scope == 1)
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace

Presence::Presence(const std::string& host) : own(Endpoint::make(host)), listener(listen_at(own)) {
  Board& board = bell->board();
  std::memcpy(board.name, own.name.data(), sizeof board.name);
  own.board = reinterpret_cast<std::uintptr_t>(&board);
  permit_access();
}

}  // namespace aplib::comm::shm
