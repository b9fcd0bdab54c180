// SPDX-License-Identifier: MIT
#include "launch/start/ssh_master.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "aplib/error.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"

namespace aplib::launch::start {

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 20s;  // for what talks to a process of this computer

}  // namespace

SshMaster::SshMaster(const cluster::ClusterHost& host, std::string control)
    : options_(host.ssh_options), control_(std::move(control)) {
  const SshTarget target = ssh_target(host);
  destination_ = target.host;
  if (!target.port.empty()) options_.insert(options_.end(), {"-p", target.port});
}

std::vector<std::string> SshMaster::options(const std::string& control) {
  return {"-o", "ControlMaster=auto",        "-o", "ControlPath=" + control,  "-o", "ControlPersist=yes",
          "-o", "StreamLocalBindUnlink=yes", "-o", "StreamLocalBindMask=0177"};
}

std::string SshMaster::command(const std::string& word, const std::vector<std::string>& more) const {
  std::vector<std::string> argv{"ssh", "-S", control_, "-O", word};
  argv.insert(argv.end(), more.begin(), more.end());
  argv.insert(argv.end(), options_.begin(), options_.end());
  argv.insert(argv.end(), {"--", destination_});
  try {
    const CommandEnd end = run_command(argv, patience);
    return end.is_well() ? "" : end.words("ssh");
  } catch (const Error& error) {
    return error.what();
  }
}

bool SshMaster::stands() const { return command("check", {}).empty(); }

std::string SshMaster::forward(const std::string& local, const std::string& remote) const {
  ::unlink(local.c_str());
  return command("forward", {"-o", "ExitOnForwardFailure=yes", "-L", local + ":" + remote});
}

void SshMaster::end() const { static_cast<void>(command("exit", {})); }

}  // namespace aplib::launch::start
