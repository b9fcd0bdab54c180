// SPDX-License-Identifier: MIT
#include "launch/pool/way_lanes.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/thread.hpp"
#include "launch/files/lanes.hpp"
#include "launch/start/ssh_master.hpp"
#include "launch/start/starter.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t lanes_of_way = 2;
static_assert(files::lanes_max <= lanes_of_way * ways_max);
constexpr auto near = 3ms;  // to whom answers so soon one lane carries all that a network does
constexpr auto answer_patience = 10s;

}  // namespace

WayLanes::WayLanes(const Pool& pool, std::size_t host, std::uint64_t token) : pool_(pool), host_(host), token_(token) {
  if (pool.hosts()[host].host.launch != cluster::LaunchKind::ssh) return;
  thread_ = os::quiet_thread("apctl-lanes", [this] { work(); });
}

WayLanes::~WayLanes() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

os::UniqueFd WayLanes::take() {
  come_.clear();
  const std::lock_guard lock(mutex_);
  if (lanes_.empty()) return {};
  os::UniqueFd lane = std::move(lanes_.front());
  lanes_.pop_front();
  return lane;
}

void WayLanes::want(std::size_t lanes) {
  if (lanes <= asked_) return;
  asked_ = lanes;
  {
    const std::lock_guard lock(mutex_);
    wanted_ = lanes;
  }
  changed_.notify_all();
}

bool WayLanes::stands(std::size_t way) const { return ::access(pool_.way(host_, way).socket.c_str(), F_OK) == 0; }

/// False: there is none by that way.
bool WayLanes::open_lane(std::size_t way) {
  const KeeperAddress address = pool_.way(host_, way);
  try {
    os::UniqueFd lane = knock_at(address, {.purpose = Knock::Purpose::lane, .token = token_});
    const std::lock_guard lock(mutex_);
    lanes_.push_back(std::move(lane));
  } catch (const Error&) {
    if (way != 0) ::unlink(address.socket.c_str());  // its ssh has ended
    return false;
  }
  come_.signal();
  return true;
}

/// Further connections of ssh, and by each a way to the keeper's socket `remote`. What fails is not there then: a
/// transfer needs none of them.
void WayLanes::open_ways(const std::vector<std::size_t>& ways, const std::string& remote) {
  std::set<std::uint32_t> made;
  std::size_t over = 0;
  std::vector<start::NodeStart> logins;
  const cluster::ClusterHost& host = pool_.hosts()[host_].host;
  for (const std::size_t way : ways) {
    start::SshMaster(host, pool_.control(host_, way)).end();
    ::unlink(pool_.control(host_, way).c_str());
    start::NodeStart login;
    login.process = static_cast<std::uint32_t>(way);
    login.host = host;
    login.command = {"true"};
    login.leaves_some = true;
    const std::vector<std::string> master = start::SshMaster::options(pool_.control(host_, way));
    login.host.ssh_options.insert(login.host.ssh_options.begin(), master.begin(), master.end());
    login.host.folder.clear();
    logins.push_back(std::move(login));
  }
  start::StartEvents events;
  const auto end = [&](std::uint32_t way, bool stands) {
    {
      const std::lock_guard lock(mutex_);
      ++over;
      if (stands) made.insert(way);
    }
    changed_.notify_all();
  };
  events.said = [](std::uint32_t /*way*/, const std::string& /*line*/) {};
  events.failed = [&](std::uint32_t way, const std::string& /*text*/) { end(way, false); };
  events.ended = [&](std::uint32_t way, int status, const std::string& /*said*/) { end(way, status == 0); };
  try {
    const std::unique_ptr<start::Starter> starter = start::make_starter();
    starter->start(std::move(logins), std::move(events));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over == ways.size() || ending_; });
  } catch (const Error&) {
    return;
  }
  for (const std::uint32_t way : made)
    static_cast<void>(start::SshMaster(host, pool_.control(host_, way)).forward(pool_.way(host_, way).socket, remote));
}

void WayLanes::work() {
  std::size_t given = 1;
  // What an earlier transfer had use for.
  for (std::size_t way = 1; way < ways_max; ++way)
    for (std::size_t i = 0; i < lanes_of_way && stands(way); ++i)
      if (open_lane(way)) ++given;
  bool has_asked = false;
  std::string remote;
  for (;;) {
    std::size_t wanted = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return wanted_ > given || ending_; });
      if (ending_) return;
      wanted = wanted_;
    }
    if (!std::exchange(has_asked, true)) {
      const KeeperAddress way = pool_.way(host_);
      const FactsAnswer answer = facts_of(std::span(&way, 1), answer_patience, true).front();
      if (!answer.facts || answer.round_trip.value_or(0ns) < near) return;
      remote = pool_.hosts()[host_].host.standing_keeper;
      if (remote.empty()) remote = answer.facts->socket;
    }
    std::vector<std::size_t> missing;
    for (std::size_t way = 1; way * lanes_of_way < wanted; ++way)
      if (!stands(way)) missing.push_back(way);
    if (!missing.empty()) open_ways(missing, remote);
    const std::size_t before = given;
    // The first way takes one that was there already.
    if (before == 1 && open_lane(0)) ++given;
    for (const std::size_t way : missing)
      for (std::size_t i = 0; i < lanes_of_way && given < wanted && stands(way); ++i)
        if (open_lane(way)) ++given;
    if (given == before) return;  // no more can be had
  }
}

}  // namespace aplib::launch::pool
