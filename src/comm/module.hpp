// SPDX-License-Identifier: MIT
// The module contract: how frames get from one process of a machine to another. tcp, shm, rdma and mixed implement it,
// and, for tests, loop (tests/support/loop: inside one process, with faults). tests/comm/suite/conformance.hpp checks any
// module against this page.
//
// A frame is a label and a body of 0 or more bytes.
//
// Promises of a module:
//  (1) Frames of one sender process to one receiver process arrive once each, in the order of the send() calls, with the bodies that were given. A frame
//      that cannot arrive any more is followed by peer_lost(), and after that nothing comes from that peer.
//  (2) send() does not wait for the receiver. What the system does not take at once is copied, and goes out later, by whichever thread next calls poll(), flush()
//      or send(), or by a thread of the module's own.
//  (3) Upcalls (Receiver) are made by poll() alone, on the thread that called it, and never overlap.
//  (4) What comes from the network is hostile until proved otherwise: it ends a connection, never the process. What is no peer at all is dropped and counted.
//  (5) Nothing spins or ticks while nothing is sent and nothing comes.
//  (6) Remote memory, where reaches_memory() says so: write() and read() reach the peer's memory without its program. A frame sent behind a write() to the same peer is received after
//      what was written can be seen there. The other way round nothing is promised: a write may overtake frames.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/label.hpp"

namespace aplib::comm {

/// Upcalls of a module. An upcall may call send() and wake(), but no other function of the module.
class Receiver {
 public:
  virtual ~Receiver() = default;

  /// Shall frames of `from` be taken now? False (memory is short): they stay with the peer, whose send() then queues. Asked once per poll() and peer, before reading.
  virtual bool wants(Peer from) = 0;

  /// A whole frame. `body` is the module's and valid during the call only. Bodies of up to large_from_bytes - 1 bytes come this way.
  virtual void frame(Peer from, const Label& label, std::span<const std::byte> body) = 0;

  /// A frame with a large body begins. Returns where the body goes: `bytes` bytes, the receiver's, which stay valid and untouched until large_end(). Null: refused; the module
  /// ends the connection, and peer_lost() follows. At most one large frame per peer is under way, and no other frame of that peer comes in between.
  virtual std::byte* large_begin(Peer from, const Label& label, std::size_t bytes) = 0;
  /// The body is complete; or (complete = false) it never will be: the peer is lost or the module is closed.
  virtual void large_end(Peer from, const Label& label, std::size_t bytes, bool complete) = 0;

  /// Nothing comes from `peer` any more, and what is sent there is dropped. `why` for people: "connection reset by peer". Once per peer; not after the peer's or our own close().
  virtual void peer_lost(Peer peer, const std::string& why) = 0;

  /// The write() or read() that was given `context` is over. ok: what was written can be seen by the peer's threads, or what was read is here. Else the peer is lost or the memory is
  /// not open to us. Once each; also before close() ends.
  virtual void memory_done(std::uint64_t /*context*/, bool /*ok*/) {}
};

/// What another process needs to reach a piece of our memory: words of the module's own, carried between processes by the kernel.
struct MemoryKey {
  static constexpr std::size_t bytes_max = 60;
  std::uint32_t bytes = 0;
  std::array<std::byte, bytes_max> words{};
};

/// What a module has done so far. Counters only grow.
struct Traffic {
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;      ///< Bodies.
  std::uint64_t bytes_received = 0;  ///< Bodies.
  std::uint64_t system_calls = 0;    ///< Of sending and receiving.
  std::uint64_t refused = 0;         ///< Connections of strangers that were dropped.
};

// A function that is added here also goes into the plug-in interface (include/aplib/comm_module.h, appended, minor version) and both sides of it (src/comm/plugin/).
class Module {
 public:
  /// Bodies of this size and more are received by large_begin() and large_end().
  static constexpr std::size_t large_from_bytes = 16 * 1024;
  /// A larger body is refused by both sides.
  static constexpr std::uint64_t body_bytes_max = std::uint64_t{1} << 40;

  /// Closes, if close() was not called: without waiting for anything.
  virtual ~Module() = default;
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// "tcp".
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  /// Once, before all that follows. `receiver` outlives the module. Throws Error.
  virtual void start(Receiver& receiver) = 0;

  /// Sends a frame to another process (not to oneself). Any thread, also several at once; not async-signal-safe. `body` is the caller's again at return. Never waits for the receiver's program; it
  /// may spin for as long as the system goes on taking bytes of a large body, which saves a copy. Small frames may be held back, to go out together: until more come, or poll()
  /// or flush() is called. Frames to a lost peer are dropped. Throws Error(exhausted) when there is no memory for the copy, Error(bad_argument) above body_bytes_max.
  virtual void send(Peer to, const Label& label, std::span<const std::byte> body) = 0;

  /// Bytes accepted by send() that the system has not taken yet. Any thread; a snapshot.
  [[nodiscard]] virtual std::size_t queued(Peer to) const noexcept = 0;

  /// Puts out what was held back. Any thread. Cheap when there is nothing. Never blocks.
  virtual void flush() noexcept = 0;

  /// flush(), and then takes what has come, from every peer in turn, for a bounded time: at most some 64 KiB or one large read per peer. Never blocks. Returns whether it took anything: made an upcall, or read a part of a large body. Calls must not
  /// overlap, whichever threads make them.
  virtual bool poll() = 0;

  /// Sleeps until poll() would have something to do, wake() was called, or the timeout has passed (none: for ever). Any thread; several may wait, and may be woken together. May return
  /// early. A wake() that came before a wait() makes the next one return at once.
  virtual void wait(std::optional<std::chrono::nanoseconds> timeout) = 0;

  /// Ends wait(). Any thread; async-signal-safe.
  virtual void wake() noexcept = 0;

  // Remote memory: promise (6). A module without it leaves these alone.

  /// Can the peer's memory be reached, and ours by it? Constant once start() has returned. Any thread.
  [[nodiscard]] virtual bool reaches_memory(Peer /*peer*/) const noexcept { return false; }
  /// Opens memory of this process to write() and read() of `peer`, until conceal(). It stays the caller's, mapped readable and writable all that time. May cost a system call or more; the same memory may be
  /// opened to many peers, at the cost of one. Any thread, also in an upcall. Throws Error(exhausted), Error(bad_argument) where the memory is not of a kind that can be opened, or reaches_memory(peer) is not.
  virtual MemoryKey expose(Peer /*peer*/, std::span<std::byte> /*memory*/) { no_remote_memory("expose"); }
  /// Closes it to that peer: who still writes there fails. Any thread, also in an upcall.
  virtual void conceal(Peer /*peer*/, const MemoryKey& /*key*/) noexcept {}
  /// Begins to write `local` at `address` (the peer's own) of the memory that the peer has opened with `key`. `local` stays valid and unchanged until Receiver::memory_done(context).
  /// Any thread, also in an upcall. Never waits for the peer. Throws Error(exhausted).
  virtual void write(Peer /*to*/, const MemoryKey& /*key*/, std::uint64_t /*address*/,
                     std::span<const std::byte> /*local*/, std::uint64_t /*context*/) {
    no_remote_memory("write");
  }
  /// Begins to read from there into `local`, which is the module's until Receiver::memory_done(context). As write().
  virtual void read(Peer /*from*/, const MemoryKey& /*key*/, std::uint64_t /*address*/, std::span<std::byte> /*local*/,
                    std::uint64_t /*context*/) {
    no_remote_memory("read");
  }

  // Sleeping on several modules at once (src/comm/mixed). wait() is for one alone.

  /// A descriptor that is readable while poll() has something to do or a wake() has not been heard, from arm() to disarm(): for poll(2) and epoll. Always the same. -1: this module cannot be slept on together with others.
  [[nodiscard]] virtual int descriptor() noexcept { return -1; }
  /// flush(), and makes the descriptor tell. False: something is there already, do not sleep. Each arm(), also one that returned false, is followed by a disarm() of the same thread. Several threads may be between the two. Any thread.
  virtual bool arm() { return true; }
  /// The sleep is over: the descriptor need not tell any more, and a wake() has been heard. Any thread.
  virtual void disarm() noexcept {}

  /// Sends all that is queued, for at most `linger`, and tells all peers that this is the ordered end, so that they see no loss. No thread may be in another call. False: something could not be sent.
  virtual bool close(std::chrono::nanoseconds linger) = 0;

  /// For tests: ends all here and now, as the death of the process would, so that the others see a loss; poll() takes nothing any more. No thread may be in another call. False: it cannot.
  virtual bool abandon() { return false; }

  [[nodiscard]] virtual Traffic traffic() const noexcept = 0;
  /// How the pair is connected, for people: "tcp 10.0.0.1:5100, 1 stream, auth". Any thread.
  [[nodiscard]] virtual std::string describe(Peer peer) const = 0;

 private:
  // Its virtual functions are all here: the class is used on both sides of a library's border, where each side has its own idea of it.
  [[noreturn]] void no_remote_memory(const char* call) const;
};

}  // namespace aplib::comm
