// SPDX-License-Identifier: MIT
// LoopNet: all processes of a machine inside one. It is the reference implementation of the module contract, for tests.
// The bytes are real frames (comm/frame.hpp), in streams between pairs of processes. They can be delayed, cut into
// pieces, held up, damaged and broken off.
//
//   LoopNet net(3, {.delay_polls_max = 4, .piece_bytes_max = 100}, seed);
//   auto a = net.module(0), b = net.module(1), c = net.module(2);      // each goes to a part of the machine
//   net.kill(2);                                                       // a and b see its streams end, somewhere
// It has two uses. With threads, it is used like any module. With one thread, for seeded simulation, call poll() of the
// modules in turn and never wait(). All random numbers come from the seed, per ordered pair and in the order of that
// pair's operations, so the same calls give the same run (leave delay_time_max at 0).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/module.hpp"

namespace aplib::comm::loop {
/// The faults of the net. The default has none.
struct LoopFaults {
  std::uint32_t delay_polls_max = 0;           ///< A piece is seen by the 0th to this poll of its receiver.
  std::chrono::nanoseconds delay_time_max{0};  ///< And after a time of at most this.
  bool shuffle_peers =
      false;  ///< A poll takes the peers in random order, instead of by number from a different one each time.
  /// Writes and reads move 1 to this many bytes at a time, small numbers as often as large ones. 0: all at once.
  std::size_t piece_bytes_max = 0;
  std::size_t capacity_bytes =
      256 * 1024;  ///< At most this much is on the way of a pair; more is queued at the sender. Not 0.
  std::size_t hold_back_bytes =
      0;  ///< Frames with bodies up to this size are held back until more has gathered, poll() or flush(). 0: none are.
  bool shares_host = false;  ///< No fault: Module::shares_host().
};

class LoopNet {
 public:
  /// Throws Error for 0 processes or no capacity.
  explicit LoopNet(std::uint32_t processes, const LoopFaults& faults = {}, std::uint64_t seed = 1);
  /// Modules may outlive it.
  ~LoopNet();
  LoopNet(const LoopNet&) = delete;
  LoopNet& operator=(const LoopNet&) = delete;

  /// The module of a process. Once per process; throws Error otherwise. A process whose module is never asked for never
  /// answers.
  [[nodiscard]] std::unique_ptr<Module> module(Peer process);

  // Faults that happen now. Any thread, but not from an upcall; also while the modules are in use.

  /// Ends the process. What it had on the way ends anywhere, even inside a frame, and all others lose it as a peer. Its
  /// own module makes no more upcalls and sends nothing.
  void kill(Peer process);
  /// Cuts the link between two processes: what was on the way in both directions ends anywhere, and each loses the
  /// other.
  void cut(Peer a, Peer b);
  /// Damages the header of the next frame from `from` to `to`: the receiver refuses it, and both lose each other.
  void corrupt(Peer from, Peer to);
  /// Stops the process (SIGSTOP): its polls do nothing, and what it sends is queued until thaw().
  void freeze(Peer process);
  void thaw(Peer process);

  /// Whether nothing is queued or on the way anywhere: no module's poll() has anything to do, except frames that its
  /// receiver does not want.
  [[nodiscard]] bool quiet() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace aplib::comm::loop
