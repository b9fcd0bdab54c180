// SPDX-License-Identifier: MIT
// Relay: joins the ends of pairs of processes that cannot call each other. Both ends call the relay, each proves the
// key of its job's calls to relays (comm/connect/relay_call.hpp), and the relay passes on what either sends. It may
// also call another relay for an end that has come to it, or for a pair of which no end comes here, so that a pair is a
// chain of joined connections.
//
// Many jobs share one port. A job is known by its machine's id, and has a key of its own; who has no job's key is a
// stranger, gets no byte back, and is counted.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/job_key.hpp"

namespace aplib::relay {

/// A pair of a job, as the relay sees it: the end of process `self`, which wants `peer`.
struct PairName {
  std::string machine{};
  std::uint32_t self = 0;
  std::uint32_t peer = 0;
  [[nodiscard]] PairName other() const { return {machine, peer, self}; }
  friend auto operator<=>(const PairName&, const PairName&) = default;
};

struct Counts {
  std::uint64_t pairs = 0;      ///< Joined now.
  std::uint64_t joined = 0;     ///< Since the beginning.
  std::uint64_t alone = 0;      ///< Ends that wait for the other one now.
  std::uint64_t given_up = 0;   ///< Ends whose other one did not come.
  std::uint64_t bytes = 0;      ///< Passed on.
  std::uint64_t strangers = 0;  ///< Connections that did not prove a key: port scans, wrong and repeated tokens.
  std::uint64_t refused = 0;    ///< Proved a key, and did not fit: another version, another purpose.
};

/// Thread safety: none; the thread that runs the io_context.
class Relay {
 public:
  /// Throws Error(exhausted).
  explicit Relay(boost::asio::io_context& io);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Takes a socket that listens. Throws Error(failed).
  void listen(os::UniqueFd socket);
  /// `again` hears of ends that wait, of pairs that were joined before: who has dialled for them may do so again.
  void add_job(const std::string& machine, const comm::JobKey& key,
               std::function<void(const PairName& name)> again = {});
  /// All its pairs end.
  void remove_job(const std::string& machine);
  /// Calls another relay at `place` as the end of `name.self`: behind that is `name.peer`, for whose end the connection
  /// stands here. `failed` is called if that comes to nothing before the two ends are joined.
  void dial(const std::string& place, const PairName& name, std::function<void(const std::string& why)> failed);

  /// Finds out at which of these places another relay answers that knows the job; calls all at once. `told` gets the
  /// first that did, or "". Not called when the job is removed before.
  void reach(const std::vector<std::string>& places, const std::string& machine,
             std::function<void(const std::string& place)> told);

  [[nodiscard]] Counts counts() const;
  /// For each pair that is joined or waits.
  void list(const std::function<void(const PairName& name, bool joined)>& each) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace aplib::relay
