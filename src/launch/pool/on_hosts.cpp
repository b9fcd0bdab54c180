// SPDX-License-Identifier: MIT
#include "launch/pool/on_hosts.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/own_folder.hpp"
#include "base/os/thread.hpp"
#include "comm/job_key.hpp"
#include "launch/files/lanes.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/pool.hpp"
#include "launch/start/launch_method.hpp"
#include "launch/start/ssh_master.hpp"
#include "launch/start/starter.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::pool {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t lanes_of_way = 2;
static_assert(files::lanes_max <= lanes_of_way * ways_max);
constexpr auto near = 3ms;  // to whom answers so soon one lane carries all that a network does
constexpr auto answer_patience = 10s;

/// Lanes of a transfer with a host of a pool. They join what its keeper has started there (knock.hpp), by the way to
/// that keeper. ssh gives each lane a window of 2 MiB, and the kernel each connection of ssh some more; so a way takes
/// two lanes, and where a transfer is faster with the second, further connections of ssh are made, which stand as long
/// as the pool.
class WayLanes final : public LaneSource {
 public:
  /// Of what was started with `token` on host `host` of the pool, which outlives it. Throws Error(exhausted).
  WayLanes(const Pool& pool, std::size_t host, std::uint64_t token);
  ~WayLanes() override;

  [[nodiscard]] int fd() const noexcept override { return come_.get(); }
  [[nodiscard]] os::UniqueFd take() override;
  void want(std::size_t lanes) override;

 private:
  void work();
  [[nodiscard]] bool open_lane(std::size_t way);
  [[nodiscard]] bool stands(std::size_t way) const;
  void open_ways(const std::vector<std::size_t>& ways, const std::string& remote);

  const Pool& pool_;
  const std::size_t host_;
  const std::uint64_t token_;
  std::size_t asked_ = 1;  // the caller's thread alone
  os::EventFd come_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t wanted_ = 1;
  std::deque<os::UniqueFd> lanes_;
  bool ending_ = false;
  std::thread thread_;
};

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

class HostRuns {
 public:
  HostRuns(const Pool& pool, const HostWork& work) : pool_(pool), work_(work) {}

  bool run(std::span<const std::size_t> hosts) {
    std::vector<start::NodeStart> starts = starts_of(hosts);
    std::unique_ptr<start::Starter> starter = start::make_starter();
    starter->start(std::move(starts), events());
    const std::stop_callback stop(work_.stop, [this] { break_off(); });
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return over_ == hosts.size() || stopped_; });
    }
    starter.reset();
    for (std::thread& thread : threads_) thread.join();
    return all_well_;
  }

 private:
  [[nodiscard]] const std::string& name(std::uint32_t host) const { return pool_.hosts()[host].name; }

  void complain(const std::string& text) {
    const std::lock_guard lock(mutex_);
    work_.complain ? work_.complain(printable(text)) : tell_user("apctl", printable(text));
    all_well_ = false;
  }

  /// Something went wrong here. That what runs there ends by our leaving is no news then.
  void complain_of(std::uint32_t host, std::string_view problem) {
    complain(fmt::format("{}: {}", name(host), problem));
    const std::lock_guard lock(mutex_);
    told_.insert(host);
  }
  bool was_told(std::uint32_t host) {
    const std::lock_guard lock(mutex_);
    return told_.contains(host);
  }

  void end(std::uint32_t host) {
    if (work_.over) work_.over(host);
    const std::lock_guard lock(mutex_);
    ++over_;
    changed_.notify_all();
  }

  /// Nothing is to come from there any more.
  void leave(std::uint32_t host) {
    const std::lock_guard lock(mutex_);
    told_.insert(host);
    if (const auto open = open_.find(host); open != open_.end()) ::shutdown(open->second->reader.get(), SHUT_RDWR);
  }

  void break_off() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const auto& [host, ends] : open_) ::shutdown(ends->reader.get(), SHUT_RDWR);
    changed_.notify_all();
  }

  start::StartEvents events() {
    start::StartEvents events;
    events.said = [this](std::uint32_t host, const std::string& line) {
      if (!was_told(host)) complain(fmt::format("{}: {}", name(host), line));
    };
    events.failed = [this](std::uint32_t host, const std::string& text) {
      complain(text);
      leave(host);
      end(host);
    };
    events.ended = [this](std::uint32_t host, int status, const std::string& said) {
      if (status != 0 && said.empty() && !was_told(host))
        complain(fmt::format("{}: what ran there {}", name(host), start::how_it_ended(status)));
      end(host);
    };
    events.greets = [this](start::Contact contact) {
      const auto ends = std::make_shared<os::Ends>(std::move(contact.ends));
      {
        const std::lock_guard lock(mutex_);
        open_[contact.process] = ends;
        if (stopped_) ::shutdown(ends->reader.get(), SHUT_RDWR);
      }
      try {
        threads_.push_back(
            os::quiet_thread("apctl-host", [this, ends, host = contact.process] { speak(host, *ends); }));
      } catch (const Error& error) {  // what runs there ends with its streams
        complain_of(contact.process, error.what());
        const std::lock_guard lock(mutex_);
        *ends = {};
      }
    };
    return events;
  }

  /// A thread's.
  void speak(std::uint32_t host, os::Ends& ends) {
    try {
      const LaneMaker make_lanes = [&]() -> std::unique_ptr<LaneSource> {
        return work_.takes_lanes ? std::make_unique<WayLanes>(pool_, host, tokens_.at(host)) : nullptr;
      };
      const std::vector<std::string> problems = work_.here(host, ends, make_lanes);
      const bool is_news = !was_told(host);
      for (const std::string& problem : problems)
        if (is_news) complain_of(host, problem);
    } catch (const std::exception& error) {
      complain_of(host, failure_text(error));
    }
    const std::lock_guard lock(mutex_);
    ends = {};
  }

  std::vector<start::NodeStart> starts_of(std::span<const std::size_t> hosts) {
    const std::string folder = std::filesystem::path(os::own_program()).parent_path().string();
    const cluster::Cluster standing = pool_.standing_cluster();
    std::vector<start::NodeStart> starts;
    for (const std::size_t host : hosts) {
      start::NodeStart start{.process = static_cast<std::uint32_t>(host),
                             .host = standing.hosts[pool_.hosts()[host].members.front()],
                             .command = {pool_.keeper_program(host, folder)},
                             .input = {}};
      if (work_.takes_lanes) {
        comm::fill_random(std::as_writable_bytes(std::span(&start.token, 1)));
        tokens_[start.process] = start.token;
      }
      if (!work_.folder) start.host.folder = "/";
      if (work_.folder && !work_.folder->empty()) start.host.folder = *work_.folder;
      std::ranges::move(work_.words(host), std::back_inserter(start.command));
      starts.push_back(std::move(start));
    }
    return starts;
  }

  const Pool& pool_;
  const HostWork& work_;
  std::map<std::uint32_t, std::uint64_t> tokens_;
  std::list<std::thread> threads_;  // the starter's thread adds to them
  std::mutex mutex_;                // of what follows
  std::condition_variable changed_;
  std::map<std::uint32_t, std::shared_ptr<os::Ends>> open_;
  std::set<std::uint32_t> told_;
  std::size_t over_ = 0;
  bool all_well_ = true;
  bool stopped_ = false;
};

}  // namespace

bool run_on_hosts(const Pool& pool, std::span<const std::size_t> hosts, const HostWork& work) {
  return HostRuns(pool, work).run(hosts);
}

}  // namespace aplib::launch::pool
