// SPDX-License-Identifier: MIT
// Relays: the relays of a job. One is on the gateway of each site, started by ssh. One is the launcher's own, a child:
// it joins the relays of two gateways that do not reach each other, by ssh's own forwarding of a local socket, and
// serves processes on this computer. So the launcher listens on loopback alone.
//
// One that is lost while the machine runs is started anew where it was, at the port that it had. The processes' long
// links, which were cut, call there again, and the chains that it was in are joined again. So is a chain of which both
// ends come again: what was between its relays has broken, or its processes want one more connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/job_key.hpp"
#include "launch/cluster/cluster.hpp"
#include "launch/coordinator/ways.hpp"
#include "launch/start/relay_process.hpp"
#include "launch/wire/event_loop.hpp"

namespace aplib::launch::coordinator {

/// Thread safety: none; the loop's thread.
class Relays {
 public:
  struct Events {
    std::function<void()> ready;  ///< All stand.
    /// One has ended, could not be started, or does not reach another one: a message without remedy.
    std::function<void(const std::string& why)> lost;
    /// One has ended, and is started anew.
    std::function<void(const std::string& why)> started_anew;
  };

  /// Begins to start them. `aprun`: the path of aprun on this computer. `cluster` outlives this. Throws Error(failed).
  Relays(wire::EventLoop& loop, const cluster::Cluster& cluster, const std::string& aprun, const std::string& machine,
         const comm::JobKey& key, Events events);
  /// Ends them.
  ~Relays();
  Relays(const Relays&) = delete;
  Relays& operator=(const Relays&) = delete;

  [[nodiscard]] bool ready() const;
  /// [0] is the launcher's.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// Where each is called. What two relays have (private addresses of sites may be the same) is neither's.
  [[nodiscard]] std::vector<wire::ProbedRelay> places() const;
  /// By one call from gateway to gateway, if one reaches the other; else by the launcher's relay.
  void join(const Chain& chain);
  /// From here on one that has ended is lost when it does not stand again so soon.
  void keep_up(std::chrono::nanoseconds resume_time) { resume_time_ = resume_time; }

 private:
  using Clock = std::chrono::steady_clock;
  /// Whether one gateway's relay reaches another's.
  struct Look {
    bool over = false;
    std::string place{};  ///< Where; empty: nowhere.
  };
  struct One {
    std::unique_ptr<start::RelayProcess> process{};
    /// What starts it, to listen at these ports; "": at any.
    std::function<std::vector<std::string>(const std::string& ports)> command{};
    std::vector<std::string> endpoints{};
    std::string forwarded{};  ///< The local socket that leads to it.
    std::map<std::size_t, Look> looks{};
    std::optional<Clock::time_point> ended{};  ///< And it does not stand again yet.
    std::unique_ptr<wire::Timer> pause{};
  };
  /// A chain by a call from gateway to gateway.
  struct Direct {
    Chain chain;
    Clock::time_point begun{};  ///< The last call.
    unsigned calls = 0;
  };

  void start(std::size_t relay, const std::string& ports);
  void ended(std::size_t relay, const std::string& why);
  void start_anew(std::size_t relay);
  void stands_again(std::size_t relay, const std::vector<std::string>& endpoints);
  [[nodiscard]] std::vector<std::string> by_ssh(const cluster::Cluster& cluster, const cluster::ClusterSite& site,
                                                const std::string& aprun, const std::string& local,
                                                const std::string& ports) const;
  void said(std::size_t relay, const std::string& line);
  void look_around();
  void take_look(std::size_t relay, std::istringstream& words);
  void take_failure(std::size_t relay, std::istringstream& words);
  void take_again(std::size_t relay, std::istringstream& words);
  void join_again(const Chain& chain);
  /// False: it is not known yet whether the gateways reach each other.
  bool connect(const Chain& chain);
  void connect_or_wait(const Chain& chain);
  bool call_directly(Direct& direct);
  void connect_here(const Chain& chain);

  wire::EventLoop& loop_;
  const std::string machine_;
  const comm::JobKey key_;
  const Events events_;
  std::string folder_;  // Of local sockets.
  std::vector<std::string> names_;
  std::vector<One> relays_;
  std::vector<Chain> waiting_;  // For a look.
  std::vector<Direct> direct_;
  std::vector<Chain> chains_;  // All.
  std::optional<std::chrono::nanoseconds> resume_time_;
  /// Ends that have come again, of chains whose other end has not: the process, and whom it wants.
  std::set<std::pair<std::uint32_t, std::uint32_t>> again_;
  bool joins_again_ = false;  // Some chain was.
};

}  // namespace aplib::launch::coordinator
