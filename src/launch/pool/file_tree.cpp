// SPDX-License-Identifier: MIT
#include "launch/pool/file_tree.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "comm/job_key.hpp"
#include "launch/files/sender.hpp"
#include "launch/pool/file_passer.hpp"
#include "launch/pool/file_pipe.hpp"
#include "launch/pool/on_hosts.hpp"

namespace aplib::launch::pool {
namespace {

/// Seconds for which a host that has not reached another one gets files from here: to try takes seconds each time.
constexpr std::int64_t apart_seconds = 3600;

/// A line of a FilePasser, which may be none. Waits. Nothing: its stream has ended.
std::optional<std::string> read_line(int from) {
  std::string line;
  for (char c = 0; line.size() < passer_line_max;) {
    const ssize_t got = ::read(from, &c, 1);
    if (got == 1 && c == '\n') return line;
    if (got == 1) {
      line += c;
      continue;
    }
    pollfd wait{from, POLLIN, 0};
    if (got == 0 || (errno != EAGAIN && errno != EINTR) || (::poll(&wait, 1, -1) < 0 && errno != EINTR)) break;
  }
  return std::nullopt;
}

/// Hosts that pass on to each other. Thread safety: all of it.
class Group {
 public:
  explicit Group(std::vector<std::size_t> hosts) : hosts_(std::move(hosts)), plan_(hosts_.size()) {
    places_.resize(hosts_.size());
  }

  [[nodiscard]] const comm::JobKey& key() const noexcept { return key_; }

  /// "from PLACE" or "here". `place`: where it answers others, or empty.
  [[nodiscard]] std::string join(std::size_t host, std::string place) {
    const std::lock_guard lock(mutex_);
    const std::size_t i = index_of(host);
    places_[i] = std::move(place);
    return order(plan_.join(i, !places_[i].empty()));
  }
  [[nodiscard]] std::string again(std::size_t host, std::string_view word) {
    using Trouble = SendPlan::Trouble;
    const std::lock_guard lock(mutex_);
    const Trouble trouble = word == passer_own ? Trouble::own : word == passer_cut ? Trouble::cut : Trouble::unreached;
    const SendPlan::Source source = plan_.again(index_of(host), trouble);
    if (trouble == Trouble::unreached && !source) apart_.insert(host);
    return order(source);
  }
  /// Those that did not reach others.
  [[nodiscard]] std::set<std::size_t> apart() const {
    const std::lock_guard lock(mutex_);
    return apart_;
  }
  void leave(std::size_t host) {
    const std::lock_guard lock(mutex_);
    plan_.leave(index_of(host));
  }
  /// It needs no source any more.
  void end(std::size_t host) {
    const std::lock_guard lock(mutex_);
    ended_.insert(host);
    changed_.notify_all();
  }
  /// Until no host needs a source.
  void wait(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    static_cast<void>(changed_.wait(lock, stop, [this] { return ended_.size() == hosts_.size(); }));
  }

 private:
  [[nodiscard]] std::size_t index_of(std::size_t host) const {
    return static_cast<std::size_t>(std::ranges::find(hosts_, host) - hosts_.begin());
  }
  [[nodiscard]] std::string order(SendPlan::Source source) const {
    return source ? fmt::format("{} {}\n", passer_from, places_[*source]) : fmt::format("{}\n", passer_here);
  }

  const std::vector<std::size_t> hosts_;
  const comm::JobKey key_ = comm::JobKey::make();
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  SendPlan plan_;
  std::vector<std::string> places_;
  std::set<std::size_t> ended_;
  std::set<std::size_t> apart_;
};

/// All that is sent at once.
class Sending {
 public:
  Sending(const Pool& pool, std::span<const std::size_t> hosts, const FilesToSend& what)
      : pool_(pool), known_(pool.known()), what_(what) {
    for (std::vector<std::size_t>& members : neighbours(pool, hosts)) {
      const auto group = std::make_shared<Group>(members);
      for (const std::size_t host : members) groups_[host] = group;
    }
  }
  /// Keeps in mind who has not reached others.
  void remember() const {
    std::set<std::size_t> apart;
    for (const auto& [host, group] : groups_) apart.merge(group->apart());
    if (apart.empty()) return;
    std::vector<Pool::Known> known = pool_.known();
    for (const std::size_t host : apart) known[host].apart_at = now_in_seconds();
    pool_.keep(known);
  }

  [[nodiscard]] std::vector<std::string> words(std::size_t host) const {
    const char* const how = what_.existing == files::Existing::replace ? "replace" : "refuse";
    if (!groups_.contains(host)) return {"--receive", what_.folder, how};
    const std::string& address = pool_.hosts()[host].host.address;
    return {"--pass",
            what_.folder,
            how,
            what_.below ? "here" : "home",
            address.empty() ? known_[host].reached : address,
            pool_.cluster().options.ports};
  }

  /// Speaks with a host. Returns what went wrong that this one does not say itself.
  [[nodiscard]] std::vector<std::string> serve(std::size_t host, const os::Ends& ends, const LaneMaker& make_lanes) {
    const auto group = groups_.find(host);
    const Way way = group == groups_.end() ? Way::here : lead(host, *group->second, ends);
    bool all_well = way == Way::another;
    bool is_told = all_well;
    if (way == Way::here) {
      const auto lanes = make_lanes();
      files::Sender sender(what_.manifest, {});
      all_well = carry(sender, ends, lanes.get()).empty();
      is_told = all_well || sender.ended();  // what its end finds wrong, that one says
    }
    end(host, all_well);
    if (group != groups_.end()) group->second->wait(what_.stop);
    return std::vector<std::string>(is_told ? 0 : 1, "the way to it broke");
  }

  /// What runs there has ended, or was never started.
  void leave(std::size_t host) {
    if (const auto group = groups_.find(host); group != groups_.end()) group->second->leave(host);
    end(host, false);
  }

 private:
  /// By which a host gets the files.
  enum class Way : std::uint8_t { another, here, broken };

  /// Sends a host to others until it has all, or is to be served from here.
  [[nodiscard]] static Way lead(std::size_t host, Group& group, const os::Ends& ends) {
    if (!os::write_all(ends.writer.get(), fmt::format("{}\n", group.key().reveal_hex()))) return Way::broken;
    std::optional<std::string> word = read_line(ends.reader.get());
    if (!word) return Way::broken;
    std::string order = group.join(host, word->substr(std::min(word->size(), passer_at.size() + 1)));
    for (;;) {
      if (!os::write_all(ends.writer.get(), order)) return Way::broken;
      if (!order.starts_with(passer_from)) return Way::here;
      word = read_line(ends.reader.get());
      if (word == passer_got) return Way::another;
      if (!word) return Way::broken;
      order = group.again(host, *word);
    }
  }

  void end(std::size_t host, bool good) {
    {
      const std::lock_guard lock(mutex_);
      if (!ended_.insert(host).second) return;
    }
    if (what_.over) what_.over(host, good);
    if (const auto group = groups_.find(host); group != groups_.end()) group->second->end(host);
  }

  const Pool& pool_;
  const std::vector<Pool::Known> known_;
  const FilesToSend& what_;
  std::map<std::size_t, std::shared_ptr<Group>> groups_;  // of hosts that are not alone
  std::mutex mutex_;
  std::set<std::size_t> ended_;
};

}  // namespace

std::vector<std::vector<std::size_t>> neighbours(const Pool& pool, std::span<const std::size_t> hosts) {
  std::map<std::pair<std::string, std::uint32_t>, std::vector<std::size_t>> sites;
  const std::vector<Pool::Known> known = pool.known();
  for (const std::size_t i : hosts) {
    const cluster::ClusterHost& host = pool.hosts()[i].host;
    const bool is_apart = now_in_seconds() - known[i].apart_at < apart_seconds;
    if (host.launch == cluster::LaunchKind::ssh && !is_apart) sites[{host.gateway, host.site}].push_back(i);
  }
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [site, members] : sites)
    if (members.size() > 1) groups.push_back(std::move(members));
  return groups;
}

std::vector<std::size_t> hosts_with_neighbours(const Pool& pool, std::span<const std::size_t> hosts) {
  std::vector<std::size_t> all;
  for (const std::vector<std::size_t>& members : neighbours(pool, hosts))
    all.insert(all.end(), members.begin(), members.end());
  return all;
}

bool send_files(const Pool& pool, std::span<const std::size_t> hosts, const FilesToSend& what) {
  Sending sending(pool, hosts, what);
  const bool all_well = run_on_hosts(pool, hosts,
                                     {.words = [&](std::size_t host) { return sending.words(host); },
                                      .here = [&](std::size_t host, const os::Ends& ends,
                                                  const LaneMaker& lanes) { return sending.serve(host, ends, lanes); },
                                      .takes_lanes = true,
                                      .folder = what.below,
                                      .complain = what.complain,
                                      .over = [&](std::size_t host) { sending.leave(host); },
                                      .stop = what.stop});
  sending.remember();
  return all_well;
}

}  // namespace aplib::launch::pool
