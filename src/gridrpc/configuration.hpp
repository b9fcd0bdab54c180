// SPDX-License-Identifier: MIT
// The servers that a client knows: from a file, or from APLIB_GRIDRPC_PATH.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::gridrpc {

/// How a server's processes are started, and what is expected of them.
struct ServerEntry {
  std::string name;
  std::string program;  ///< A path, or a name that is looked for in PATH.
  std::vector<std::string> arguments{};
  std::string pool{};                                 ///< On whose hosts it runs; empty: here.
  std::string host{};                                 ///< On one of them; empty: on each in turn.
  unsigned processes = 0;                             ///< Of a function handle, at once.
  std::optional<std::chrono::nanoseconds> timeout{};  ///< Of a call.
  std::chrono::nanoseconds start_timeout = std::chrono::seconds(30);
};

/// One for each core.
[[nodiscard]] unsigned default_processes();

/// `name` is the file's, for messages; paths in it begin at its folder. Throws Error(bad_option)
/// "NAME:line:column: [[server]] ...: what is wrong: remedy".
[[nodiscard]] std::vector<ServerEntry> read_configuration(std::string_view text, const std::string& name);

/// Files and folders, with : between them: each program is a server of its name. In folders these are the programs
/// whose files say that they are servers; nothing is run to find out. The calling program is none.
[[nodiscard]] std::vector<ServerEntry> servers_of_path(std::string_view path);

}  // namespace aplib::gridrpc
