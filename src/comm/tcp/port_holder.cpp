// SPDX-License-Identifier: MIT
#include "comm/tcp/port_holder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace aplib::comm {
namespace {

namespace fs = std::filesystem;

/// The inode of the socket that listens on the port, "" if none does.
std::string listening_inode(const char* table, unsigned port) {
  std::ifstream file(table);
  std::string line;
  const std::string ending = fmt::format(":{:04X}", port);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state == "0A" && local.ends_with(ending)) return inode;
  }
  return {};
}

bool holds(const fs::path& process, const std::string& socket) {
  std::error_code error;
  for (fs::directory_iterator entry(process / "fd", error), end; !error && entry != end; entry.increment(error)) {
    std::error_code no_link;
    if (fs::read_symlink(entry->path(), no_link) == socket) return true;
  }
  return false;
}

}  // namespace

std::string port_holder(unsigned port) {
  std::string inode = listening_inode("/proc/net/tcp", port);
  if (inode.empty()) inode = listening_inode("/proc/net/tcp6", port);
  if (inode.empty()) return {};
  const std::string socket = "socket:[" + inode + "]";
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string number = entry->path().filename();
    if (!std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    if (!holds(entry->path(), socket)) continue;
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm"), name);
    return fmt::format("process {} ({})", number, name);
  }
  return "a process of another user";
}

}  // namespace aplib::comm
