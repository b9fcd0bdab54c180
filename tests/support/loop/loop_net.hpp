// SPDX-License-Identifier: MIT
// LoopNet: all processes of a machine inside one. The reference of the module contract, for tests: the bytes on the
// way are the real ones (comm/frame.hpp), in streams between pairs of processes, and can be delayed, cut to pieces,
// held up, damaged and broken off.
//
//   LoopNet net(3, {.delay_polls_max = 4, .piece_bytes_max = 100}, seed);
//   auto a = net.module(0), b = net.module(1), c = net.module(2);      // each goes to a part of the machine
//   net.kill(2);                                                       // a and b see its streams end, somewhere
//
// Two uses. Threads: as with any module. One thread, for seeded simulation: call poll() of the modules in turn, and
// never wait(); all chances are drawn per ordered pair from the seed, in the order of that pair's operations, so
// that the same calls give the same run (leave delay_time_max at 0).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/module.hpp"

namespace aplib::comm::loop {
/// What goes wrong on the way. The default: nothing.
struct LoopFaults {
  std::uint32_t delay_polls_max = 0;           ///< A piece is seen by the 0th to so-many-th poll of its receiver.
  std::chrono::nanoseconds delay_time_max{0};  ///< And not before so long, at most, has passed.
  bool shuffle_peers =
      false;  ///< A poll takes the peers in any order, instead of by number from a different one each time.
  /// Writes and reads move 1 to so many bytes at a time, small numbers as often as large ones. 0: as many as there are.
  std::size_t piece_bytes_max = 0;
  std::size_t capacity_bytes =
      256 * 1024;  ///< At most so much is on the way of a pair; more is queued at the sender. Not 0.
  std::size_t hold_back_bytes =
      0;  ///< Frames with bodies up to this size are held back until more has gathered, poll() or flush(). 0: none is.
};

class LoopNet {
 public:
  /// Throws Error for 0 processes or no capacity.
  explicit LoopNet(std::uint32_t processes, const LoopFaults& faults = {}, std::uint64_t seed = 1);
  /// Modules may outlive it.
  ~LoopNet();
  LoopNet(const LoopNet&) = delete;
  LoopNet& operator=(const LoopNet&) = delete;

  /// The module of a process. Once per process; throws Error otherwise. A module that is never asked for is a
  /// process that never answers.
  [[nodiscard]] std::unique_ptr<Module> module(Peer process);

  // Faults that strike now. Any thread, not from an upcall; also while the modules are in use.

  /// The process is gone. What it had on the way ends anywhere, also inside a frame; all others lose it as a peer.
  /// Its own module makes no upcall any more and sends nothing.
  void kill(Peer process);
  /// The link between two processes is gone: what was on the way, both ways, ends anywhere, and each loses the other.
  void cut(Peer a, Peer b);
  /// Damages the header of the next frame that `from` sends to `to`: the receiver refuses it, and both lose each other.
  void corrupt(Peer from, Peer to);
  /// The process stops (SIGSTOP): its polls do nothing and what it sends is queued, until thaw().
  void freeze(Peer process);
  void thaw(Peer process);

  /// Nothing is queued or on the way anywhere: no module's poll() has anything to do, but for what its receiver
  /// does not want.
  [[nodiscard]] bool quiet() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace aplib::comm::loop
