// SPDX-License-Identifier: MIT
// The promises of modules (src/comm/module.hpp), as tests. A module's own test program links aplib_comm_conformance and
// says how to make its nets:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, ::testing::Values(Subject{"plain", [](std::uint32_t n) { return
//   std::make_unique<TcpNet>(n); }}), subject_name);
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "comm/module.hpp"

namespace aplib::comm::test {

/// Processes that can reach each other, all inside this one. Destroyed after its modules.
class Net {
 public:
  virtual ~Net() = default;
  /// The module of a process, not started yet. Called once per process.
  virtual std::unique_ptr<Module> module(Peer process) = 0;
  /// Ends the process as SIGKILL would: its streams end, and its module makes no upcall and sends nothing more.
  /// REQUIRES: no thread is in its module. False: this net cannot.
  virtual bool kill(Peer /*process*/) { return false; }
  /// Damages the header of the next frame from one to the other. False: this net cannot.
  virtual bool corrupt(Peer /*from*/, Peer /*to*/) { return false; }
};

struct Subject {
  std::string name;
  std::function<std::unique_ptr<Net>(std::uint32_t processes)> net;
  std::map<std::string, std::string> skips{};  ///< Tests that the layer below the module cannot pass, with the reasons.
};
inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }
inline std::string subject_name(const ::testing::TestParamInfo<Subject>& subject) { return subject.param.name; }

inline constexpr std::uint32_t streams_max = 8;
inline constexpr std::size_t body_bytes_most = (testing_support::sanitized ? 12 : 16) * 1024 * 1024;

/// How often a test repeats what a sanitizer has seen after fewer times.
constexpr std::uint64_t repeated(std::uint64_t times) { return testing_support::scaled(times, 4, 1); }

/// The body of frame number `key`: a slice of one random pool. At most body_bytes_most.
std::span<const std::byte> contents(std::uint64_t key, std::size_t bytes);

/// A receiver that checks everything that arrives: content, order within each stream of each peer, that upcalls do not
/// overlap, and that they come on the polling thread.
class Recorder final : public Receiver {
 public:
  explicit Recorder(std::uint32_t processes) : peers_(processes) {}
  ~Recorder() override;

  bool wants(Peer from) override;
  void frame(Peer from, const Label& label, std::span<const std::byte> body) override;
  std::byte* large_begin(Peer from, const Label& label, std::size_t bytes) override;
  void large_end(Peer from, const Label& label, std::size_t bytes, bool complete) override;
  void peer_lost(Peer peer, const std::string& why) override;
  void memory_done(std::uint64_t context, bool ok) override;

  // What has arrived so far. Any thread.
  [[nodiscard]] std::uint64_t frames(Peer from) const { return peers_[from].frames.load(); }
  [[nodiscard]] std::uint64_t frames() const;
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint64_t large_begun(Peer from) const { return peers_[from].large_begun.load(); }
  [[nodiscard]] std::uint64_t large_broken(Peer from) const { return peers_[from].large_broken.load(); }
  [[nodiscard]] std::uint64_t lost(Peer peer) const { return peers_[peer].lost.load(); }
  [[nodiscard]] std::uint64_t asked(Peer peer) const { return peers_[peer].asked.load(); }
  /// The reason of the loss. Polling thread.
  [[nodiscard]] const std::string& why(Peer peer) const { return peers_[peer].why; }
  /// The large body that was begun last and is not complete. Polling thread.
  [[nodiscard]] std::span<const std::byte> incomplete(Peer from) const {
    const PeerState& peer = peers_[from];
    return {peer.large ? peer.large.get() : peer.broken.get(), peer.large_bytes};
  }
  /// Writes and reads that are done.
  [[nodiscard]] std::uint64_t transfers() const { return transfers_.load(); }
  /// How the write or read ended; nothing: not yet. Polling thread.
  [[nodiscard]] std::optional<bool> transfer(std::uint64_t context) const {
    const auto found = ended_.find(context);
    return found == ended_.end() ? std::nullopt : std::optional(found->second);
  }

  // How the receiver behaves. Any thread.
  void want(Peer from, bool yes) { peers_[from].wanted.store(yes); }
  void refuse_large(Peer from) { peers_[from].refuse_large.store(true); }
  /// Called in the upcall after each whole frame.
  std::function<void(Peer from, const Label& label, std::size_t bytes)> on_frame;
  /// Called in the upcall after each write or read.
  std::function<void(std::uint64_t context, bool ok)> on_transfer;

 private:
  friend class Node;
  struct PeerState {
    std::atomic<std::uint64_t> frames{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> large_begun{0};
    std::atomic<std::uint64_t> large_broken{0};
    std::atomic<std::uint64_t> lost{0};
    std::atomic<std::uint64_t> asked{0};
    std::atomic<bool> wanted{true};
    std::atomic<bool> refuse_large{false};
    std::string why;
    std::array<std::uint64_t, streams_max> next_key{};
    std::unique_ptr<std::byte[]> large;   // The body under way.
    std::unique_ptr<std::byte[]> broken;  // One that will never be complete: the module may yet write there.
    Label large_label;
    std::size_t large_bytes = 0;
  };
  class Upcall;
  void whole(Peer from, const Label& label, std::span<const std::byte> body);

  std::vector<PeerState> peers_;
  std::atomic<std::thread::id> polling_{};  // The thread in poll() or close().
  std::atomic<bool> inside_{false};
  std::atomic<std::uint64_t> transfers_{0};
  std::map<std::uint64_t, bool> ended_;  // Polling thread.
  std::uint64_t upcalls_ = 0;            // Polling thread.
  std::uint64_t questions_ = 0;          // Upcalls of wants(), among them.
};

/// A process of the net: its module and receiver.
class Node {
 public:
  Node(Net& net, Peer self, std::uint32_t processes)
      : self_(self), recorder_(processes), keys_(processes), module_(net.module(self)) {
    module_->start(recorder_);
  }

  [[nodiscard]] Module& module() { return *module_; }
  [[nodiscard]] Recorder& recorder() { return recorder_; }

  /// Sends the next frame of a stream. There are streams_max streams; one thread uses each.
  void send(Peer to, std::size_t bytes, std::uint32_t stream = 0);
  /// The same from memory of the test, which has the contents() of that frame.
  void send_from(Peer to, std::span<const std::byte> body, std::uint32_t stream = 0);
  /// Polls. One thread at a time.
  bool poll();
  bool close(std::chrono::nanoseconds linger);
  void destroy();

 private:
  Peer self_;
  Recorder recorder_;
  std::vector<std::array<std::uint64_t, streams_max>> keys_;
  std::unique_ptr<Module> module_;
};

class Conformance : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;
  void TearDown() override;
  /// Makes the net and its nodes.
  void make(std::uint32_t processes);
  [[nodiscard]] Node& node(Peer peer) { return *nodes_[peer]; }
  [[nodiscard]] std::uint32_t processes() const { return static_cast<std::uint32_t>(nodes_.size()); }
  /// Polls all nodes (or `some`) on this thread until `done`. A broken promise shows as the test's timeout.
  void pump(const std::function<bool()>& done, std::vector<Peer> some = {});
  /// Polls all nodes that many times, to see that nothing comes.
  void pump_times(int times);
  /// Polls and waits, as a program's thread does, until `done`. Whoever makes that true also calls wake().
  void run(Peer peer, const std::function<bool()>& done);
  /// Sends to a peer that does not poll until its frames queue, and stay there.
  std::uint64_t send_until_queued(Peer from, Peer to, std::size_t body_bytes, std::size_t queued_bytes);

  std::unique_ptr<Net> net_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace aplib::comm::test
