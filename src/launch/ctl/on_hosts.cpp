// SPDX-License-Identifier: MIT
#include "launch/ctl/on_hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/os/thread.hpp"
#include "comm/job_key.hpp"
#include "launch/pool/way_lanes.hpp"
#include "launch/program_path.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/starter.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::ctl {

bool run_on_hosts(const pool::Pool& pool, std::span<const std::size_t> hosts, const HostWork& work) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t over = 0;
  bool all_well = true;
  const auto complain = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    tell_user("apctl", printable(text));
    all_well = false;
  };
  const auto end = [&] {
    const std::lock_guard lock(mutex);
    ++over;
    changed.notify_all();
  };
  const auto name = [&](std::uint32_t host) { return pool.hosts()[host].name; };
  std::list<std::thread> threads;
  start::StartEvents events;
  events.said = [&](std::uint32_t host, const std::string& line) { complain(fmt::format("{}: {}", name(host), line)); };
  events.failed = [&](std::uint32_t /*host*/, const std::string& text) {
    complain(text);
    end();
  };
  events.ended = [&](std::uint32_t host, int status, const std::string& said) {
    if (status != 0 && said.empty())
      complain(fmt::format("{}: what ran there {}", name(host), start::how_it_ended(status)));
    end();
  };
  std::map<std::uint32_t, std::uint64_t> tokens;
  events.greets = [&](start::Contact contact) {
    const auto ends = std::make_shared<os::Ends>(std::move(contact.ends));
    threads.push_back(os::quiet_thread("apctl-host", [&, ends, host = contact.process] {
      try {
        std::optional<pool::WayLanes> lanes;
        if (work.takes_lanes) lanes.emplace(pool, host, tokens.at(host));
        for (const std::string& problem : work.here(host, *ends, lanes ? &*lanes : nullptr))
          complain(fmt::format("{}: {}", name(host), problem));
      } catch (const std::exception& error) {
        complain(fmt::format("{}: {}", name(host), error.what()));
      }
      *ends = {};
    }));
  };
  const std::string folder = std::filesystem::path(own_program()).parent_path().string();
  const cluster::Cluster standing = pool.standing_cluster();
  std::vector<start::NodeStart> starts;
  for (const std::size_t host : hosts) {
    start::NodeStart start{.process = static_cast<std::uint32_t>(host),
                           .host = standing.hosts[pool.hosts()[host].members.front()],
                           .command = {pool.keeper_program(host, folder)},
                           .input = {}};
    if (work.takes_lanes) {
      comm::fill_random(std::as_writable_bytes(std::span(&start.token, 1)));
      tokens[start.process] = start.token;
    }
    start.host.folder = "/";  // what is relative begins at the user's own folder
    std::ranges::move(work.words(host), std::back_inserter(start.command));
    starts.push_back(std::move(start));
  }
  const std::unique_ptr<start::Starter> starter = start::make_starter();
  starter->start(std::move(starts), std::move(events));
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return over == hosts.size(); });
  }
  for (std::thread& thread : threads) thread.join();
  return all_well;
}

}  // namespace aplib::launch::ctl
