// SPDX-License-Identifier: MIT
#include "launch/coordinator/relays.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "launch/ctl/registry.hpp"
#include "launch/start/launch_method.hpp"

namespace aplib::launch::coordinator {
namespace {

constexpr const char* own_name = "aprun";
constexpr std::chrono::milliseconds pause_before_start{500};
/// A call between gateways, one of which has reached the other, that fails so soon was cut. It is made again, but not
/// for ever.
constexpr std::chrono::seconds cut_max{1};
constexpr unsigned calls_max = 10;

std::string beside(const std::string& aprun, const char* program) {
  return (std::filesystem::path(aprun).parent_path() / program).string();
}

/// What a launcher that is killed leaves there, the next one removes.
std::string make_folder() {
  std::string folder = ctl::job_folder(ctl::registry_folder(), static_cast<std::uint32_t>(::getpid()));
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    throw Error(Errc::failed, fmt::format("cannot make a folder for the sockets of relays, {}: {}", folder,
                                          std::generic_category().message(errno)));
  }
  return folder;
}

}  // namespace

Relays::Relays(wire::EventLoop& loop, const cluster::Cluster& cluster, const std::string& aprun,
               const std::string& machine, const comm::JobKey& key, Events events)
    : loop_(loop), machine_(machine), key_(comm::relay_key(key, machine)), events_(std::move(events)) {
  names_.emplace_back(own_name);
  for (const cluster::ClusterSite& site : cluster.sites) names_.push_back(site.gateway);
  relays_.resize(names_.size());
  relays_[0].command = [aprun](const std::string& ports) {
    std::vector<std::string> words{beside(aprun, "aprelay"), "--session", "--loopback"};
    if (!ports.empty()) words.insert(words.end(), {"--ports", ports});
    return words;
  };
  start(0, "");
  if (cluster.sites.empty()) return;
  folder_ = make_folder();
  for (std::size_t i = 1; i < relays_.size(); ++i) {
    relays_[i].forwarded = fmt::format("{}/{}", folder_, i);
    relays_[i].command = [this, &cluster, i, aprun](const std::string& ports) {
      return by_ssh(cluster, cluster.sites[i - 1], aprun, relays_[i].forwarded, ports);
    };
    start(i, cluster.options.ports);
  }
}

Relays::~Relays() {
  relays_.clear();
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> Relays::by_ssh(const cluster::Cluster& cluster, const cluster::ClusterSite& site,
                                        const std::string& aprun, const std::string& local,
                                        const std::string& ports) const {
  const std::string there =
      fmt::format("/tmp/aplib-relay-{}-{}", machine_, std::filesystem::path(local).filename().string());
  std::vector<std::string> run{!site.aprelay.empty()
                                   ? site.aprelay
                                   : beside(cluster.defaults.aprun.empty() ? aprun : cluster.defaults.aprun, "aprelay"),
                               "--session", "--socket", there};
  if (!ports.empty()) run.insert(run.end(), {"--ports", ports});
  std::vector<std::string> words{"ssh"};
  words.insert(words.end(), cluster.defaults.ssh_options.begin(), cluster.defaults.ssh_options.end());
  words.insert(
      words.end(),
      {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-o",
       "ExitOnForwardFailure=yes", "-o", "StreamLocalBindUnlink=yes", "-L", fmt::format("{}:{}", local, there), "--",
       "ssh://" + site.gateway, "exec sh -c " + start::shell_quote("exec " + start::shell_command(run))});
  return words;
}

void Relays::start(std::size_t relay, const std::string& ports) {
  start::RelayProcess::Events events;
  events.ready = [this, relay](std::vector<std::string> endpoints) {
    if (relays_[relay].ended) return stands_again(relay, endpoints);
    relays_[relay].endpoints = std::move(endpoints);
    if (!ready()) return;
    look_around();
    events_.ready();
  };
  events.said = [this, relay](const std::string& line) { said(relay, line); };
  events.ended = [this, relay](const std::string& why) { ended(relay, why); };
  relays_[relay].process =
      std::make_unique<start::RelayProcess>(loop_, relays_[relay].command(ports), std::move(events));
  relays_[relay].process->tell(fmt::format("job {} {}", machine_, key_.reveal_hex()));
}

void Relays::ended(std::size_t relay, const std::string& why) {
  One& one = relays_[relay];
  const bool stood = !one.endpoints.empty();
  const std::string words = relay == 0 ? fmt::format("the launcher's own relay (aprelay) {}", why)
                                       : fmt::format("the relay on gateway '{}' {}: ssh to it {}", names_[relay],
                                                     stood ? "is lost" : "could not be started", why);
  if (!stood || !resume_time_ || (one.ended && Clock::now() - *one.ended >= *resume_time_)) return events_.lost(words);
  if (!one.ended) {
    one.ended = Clock::now();
    events_.started_anew(words);
  }
  if (!one.pause) one.pause = std::make_unique<wire::Timer>(loop_);
  one.pause->start(pause_before_start, [this, relay] { start_anew(relay); });
}

void Relays::start_anew(std::size_t relay) {
  const std::string& endpoint = relays_[relay].endpoints.front();
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  try {
    start(relay, port + "-" + port);
  } catch (const Error& error) {
    events_.lost(error.what());
  }
}

/// The processes call where it was before, as their plan says.
void Relays::stands_again(std::size_t relay, const std::vector<std::string>& endpoints) {
  One& one = relays_[relay];
  if (endpoints != one.endpoints) {
    return events_.lost(fmt::format("the relay {} was lost, and its host has other addresses now: {} instead of {}",
                                    names_[relay], fmt::join(endpoints, ", "), fmt::join(one.endpoints, ", ")));
  }
  one.ended.reset();
  for (const Chain& chain : chains_) {
    if (chain.first_relay == relay || chain.second_relay == relay || relay == 0) join_again(chain);
  }
}

void Relays::said(std::size_t relay, const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  std::string machine;
  words >> verb >> machine;
  if (verb == "reached") return take_look(relay, words);
  if (verb == "failed") take_failure(relay, words);
  if (verb == "again") take_again(relay, words);
}

/// Each gateway's relay looks for all others.
void Relays::look_around() {
  const std::vector<wire::ProbedRelay> all = places();
  for (std::size_t from = 1; from < relays_.size(); ++from) {
    for (std::size_t to = 1; to < relays_.size(); ++to) {
      if (from == to) continue;
      Look& look = relays_[from].looks[to];
      look.over = all[to].places.empty();
      if (look.over) continue;
      relays_[from].process->tell(fmt::format("reach {} {} {}", fmt::join(all[to].places, ","), machine_, to));
    }
  }
}

void Relays::take_look(std::size_t relay, std::istringstream& words) {
  std::size_t other = 0;
  std::string place;
  words >> other;
  const auto look = relays_[relay].looks.find(other);
  if (!words || look == relays_[relay].looks.end()) return;
  words >> place;  // there may be none
  look->second = {true, place};
  std::erase_if(waiting_, [this](const Chain& chain) { return connect(chain); });
}

/// The call from one gateway to the other came to nothing, or one of the launcher's relay.
void Relays::take_failure(std::size_t relay, std::istringstream& words) {
  std::uint32_t self = 0;
  std::uint32_t peer = 0;
  std::string why;
  words >> self >> peer;
  std::getline(words >> std::ws, why);
  const auto direct = std::ranges::find_if(direct_, [&](const Direct& each) {
    return relay != 0 && std::minmax(each.chain.first, each.chain.second) == std::minmax(self, peer);
  });
  if (direct == direct_.end()) {
    // One that was joined again may have been called twice. Whether a pair is lost, its processes say.
    if (joins_again_) return;
    return events_.lost(fmt::format("relay {} does not join processes {} and {}: {}", names_[relay], self, peer, why));
  }
  // Nothing else would have it made again: an end that has not been joined waits where it is.
  if (Clock::now() - direct->begun < cut_max && direct->calls < calls_max && call_directly(*direct)) return;
  const Chain chain = direct->chain;
  direct_.erase(direct);
  connect_here(chain);
}

/// The end of a process waits at its relay, for a chain that was joined before.
void Relays::take_again(std::size_t relay, std::istringstream& words) {
  std::uint32_t self = 0;
  std::uint32_t peer = 0;
  words >> self >> peer;
  const auto is_meant = [&](const Chain& each) {
    return (each.first == self && each.second == peer && each.first_relay == relay) ||
           (each.second == self && each.first == peer && each.second_relay == relay);
  };
  const auto chain = std::ranges::find_if(chains_, is_meant);
  if (!words || chain == chains_.end()) return;
  again_.insert({self, peer});
  if (again_.contains({peer, self})) join_again(*chain);
}

void Relays::join_again(const Chain& chain) {
  joins_again_ = true;
  again_.erase({chain.first, chain.second});
  again_.erase({chain.second, chain.first});
  std::erase_if(direct_, [&](const Direct& each) {
    return each.chain.first == chain.first && each.chain.second == chain.second;
  });
  connect_or_wait(chain);
}

bool Relays::ready() const {
  return std::ranges::none_of(relays_, [](const One& one) { return one.endpoints.empty(); });
}

std::vector<wire::ProbedRelay> Relays::places() const {
  std::map<std::string, std::size_t> count;
  for (const One& one : relays_)
    for (const std::string& endpoint : one.endpoints) ++count[endpoint];
  std::vector<wire::ProbedRelay> places;
  for (const One& one : relays_) {
    std::vector<std::string> own;
    std::ranges::copy_if(one.endpoints, std::back_inserter(own), [&](const auto& each) { return count[each] == 1; });
    places.push_back({own});
  }
  return places;
}

void Relays::join(const Chain& chain) {
  chains_.push_back(chain);
  connect_or_wait(chain);
}

void Relays::connect_or_wait(const Chain& chain) {
  if (!connect(chain)) waiting_.push_back(chain);
}

bool Relays::connect(const Chain& chain) {
  const auto [one, other] = std::pair(chain.first_relay, chain.second_relay);
  if (one != 0 && other != 0) {
    if (!relays_[one].looks[other].over || !relays_[other].looks[one].over) return false;
    if (Direct direct{chain}; call_directly(direct)) {
      direct_.push_back(direct);
      return true;
    }
  }
  connect_here(chain);
  return true;
}

/// A gateway's relay calls the other one as the end of the process that it serves itself. False: none reaches another.
bool Relays::call_directly(Direct& direct) {
  const auto [one, other, first, second] = direct.chain;
  const auto call = [this](std::size_t from, std::size_t to, std::uint32_t self, std::uint32_t peer) {
    const std::string& place = relays_[from].looks[to].place;
    if (!place.empty()) relays_[from].process->tell(fmt::format("dial {} {} {} {}", place, machine_, self, peer));
    return !place.empty();
  };
  direct.begun = Clock::now();
  ++direct.calls;
  return call(one, other, first, second) || call(other, one, second, first);
}

/// The launcher's relay calls each of the two as the end of the other process.
void Relays::connect_here(const Chain& chain) {
  const auto dial = [this](std::size_t relay, std::uint32_t as, std::uint32_t whom) {
    if (relay == 0) return;  // the process itself comes
    relays_[0].process->tell(fmt::format("dial {} {} {} {}", relays_[relay].forwarded, machine_, as, whom));
  };
  dial(chain.first_relay, chain.second, chain.first);
  dial(chain.second_relay, chain.first, chain.second);
}

}  // namespace aplib::launch::coordinator
