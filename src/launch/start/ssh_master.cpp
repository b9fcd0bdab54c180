// SPDX-License-Identifier: MIT
#include "launch/start/ssh_master.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "aplib/error.hpp"
#include "launch/start/child.hpp"
#include "launch/start/launch_method.hpp"

namespace aplib::launch::start {

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 20s;  // for what talks to a process of this computer

/// Runs a command without input. Returns "" if it ends with status 0, else its last words.
std::string run_quietly(const std::vector<std::string>& argv) {
  std::string words;
  Child child(argv, "");
  child.close_input();
  const auto until = std::chrono::steady_clock::now() + patience;
  std::optional<int> status;
  while (!status && std::chrono::steady_clock::now() < until) {
    std::array<pollfd, 3> fds{{{child.output_fd(Child::output), POLLIN, 0},
                               {child.output_fd(Child::error), POLLIN, 0},
                               {child.end_fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), child.end_fd() < 0 ? 10 : 1000);
    status = child.ended();
    for (const Child::Stream stream : {Child::output, Child::error})
      for (std::string text = child.read(stream); !text.empty(); text = child.read(stream)) words += text;
  }
  if (status == 0) return {};
  while (words.ends_with('\n') || words.ends_with('\r')) words.pop_back();
  return words.empty() ? fmt::format("ssh {}", status ? how_it_ended(*status) : "does not end") : words;
}

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
    return run_quietly(argv);
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
