// SPDX-License-Identifier: MIT
// Link: this process's connection to one other: what waits to be sent, and where the reading of what comes stands. A
// near link has one stream, and is lost with it. A long one has lanes (lanes.hpp), and outlives them. The base,
// src/comm/link.hpp, says which states it has.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/os/bell.hpp"
#include "base/os/descriptor.hpp"
#include "comm/frame.hpp"
#include "comm/link.hpp"
#include "comm/module.hpp"
#include "comm/tcp/lanes.hpp"
#include "comm/tcp/stream.hpp"

namespace aplib::comm::tcp {

// Poller: what a TcpModule sleeps on. One epoll has all connections, a bell for wake(), and an event with a list of
// what links report. The poller also lists the links that have something to write.
//
// A socket in the epoll costs the sender some 0.2 us for each arrival, also while nobody sleeps. So a link that is
// read in every poll, and finds something again and again, leaves it (Link::unwatch()) until somebody is about to
// sleep.
//
// Invariant: whoever sleeps finds all sockets in the epoll. A sleeper counts itself (begin_sleep()), then looks at
// unwatched(); a link that leaves counts itself, then looks whether anybody sleeps, and comes back in that case. All
// four are seq_cst, so that one of the two sees the other; the link's lock makes one of them wait for the other.

class Link;

/// Thread safety: all functions, any thread.
class Poller {
 public:
  /// Throws Error(exhausted) when there are no descriptors left.
  Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Which events of a socket count, instead of `before`. 0: none. `link` comes back from ready(). False: the
  /// system cannot; errno says why.
  [[nodiscard]] bool watch(int socket, Link* link, std::uint32_t before, std::uint32_t now) noexcept;

  /// The links whose sockets are ready, without waiting; one may be there several times. Returns how many of
  /// `links` were filled.
  [[nodiscard]] std::size_t ready(std::span<Link*> links) noexcept;

  /// Sleeps, between begin_sleep() and end_sleep().
  void wait(std::optional<std::chrono::nanoseconds> timeout) noexcept;
  /// Async-signal-safe.
  void wake() noexcept { wake_.ring(); }
  /// The epoll, for those who sleep elsewhere.
  [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }
  void begin_sleep() noexcept { wake_.begin(); }
  void end_sleep() noexcept { wake_.end(); }
  [[nodiscard]] bool someone_sleeps() const noexcept { return wake_.anyone(); }

  /// How many links have left the epoll.
  [[nodiscard]] std::uint32_t unwatched() const noexcept { return unwatched_.load(); }
  void count_unwatched(std::int32_t more) noexcept { unwatched_.fetch_add(static_cast<std::uint32_t>(more)); }

  /// What links tell; ring() behind each.
  [[nodiscard]] LinkReports& reports() noexcept { return reports_; }
  void ring() noexcept {
    report_.signal();
    // Behind the signal, so that whatever has signalled is silenced, now or by the next poll. release: the reports
    // are seen.
    rung_.store(true, std::memory_order_release);
  }
  /// Whether reports are to be taken. The descriptor is silent about them afterwards.
  [[nodiscard]] bool hear() noexcept {
    if (!rung_.load(std::memory_order_acquire)) return false;  // pairs with ring()
    rung_.store(false, std::memory_order_relaxed);             // relaxed: what rings from here on signals again
    report_.clear();
    return true;
  }

  /// Links with something to write; a link is there once: it remembers. Needs no memory.
  void add_writer(Link* link) noexcept;
  [[nodiscard]] std::uint32_t writers() const noexcept { return writer_count_.load(); }
  /// The link that has been listed for longest. Null: none.
  [[nodiscard]] Link* take_writer() noexcept;

 private:
  os::UniqueFd epoll_;
  os::EventFd report_;
  os::Bell wake_;
  LinkReports reports_;
  std::atomic<bool> rung_ = false;
  std::atomic<std::uint32_t> unwatched_ = 0;
  std::atomic<std::uint32_t> writer_count_ = 0;
  std::mutex lock_;
  Link* first_writer_ = nullptr;
  Link* last_writer_ = nullptr;
};

class Link final : public comm::Link {
 public:
  using Clock = std::chrono::steady_clock;

  /// A small frame is held back when the last one went out less than so many cycles() ago: some 4 us.
  static constexpr std::uint64_t hold_within_cycles = 10'000;
  /// Larger ones are not held back.
  static constexpr std::size_t hold_below_bytes = 8 * 1024;
  /// What is held back goes out when so much has gathered.
  static constexpr std::size_t held_bytes_max = 32 * 1024;
  /// A large body is sent from the caller's memory as long as the system takes some of it within this time; then
  /// the rest is copied.
  static constexpr std::chrono::microseconds patience{150};
  static constexpr std::size_t patience_from_bytes = 64 * 1024;
  /// So many polls that found something, with no sleep between them, make it likely that nobody sleeps soon.
  static constexpr std::uint32_t finds_before_unwatched = 16;

  /// `relay`: the name of the relay by which it comes up, for the reason of its loss; empty: by none.
  Link(Peer peer, Poller& poller, std::string relay = {}) noexcept
      : comm::Link(peer, poller.reports()), poller_(poller), relay_(std::move(relay)) {}

  // Any thread.

  /// Sends or queues a frame. True: the link is calling from here on; Service::call() makes the call. Throws
  /// std::bad_alloc; then the frame is not sent, and the link is lost when a part of it was.
  [[nodiscard]] bool send(const Label& label, std::span<const std::byte> body);
  [[nodiscard]] std::size_t queued() const noexcept { return queued_.load(std::memory_order_relaxed); }
  /// Writes what is queued, as far as it goes. `also_full`: try also where the system took no more when it was last
  /// asked. After Poller::take_writer() gave this link.
  void write(bool also_full) noexcept;
  [[nodiscard]] State state() const;
  [[nodiscard]] std::size_t streams() const;
  /// A long link, without any stream at present.
  [[nodiscard]] bool is_cut() const;
  void count(Traffic& into) const noexcept;
  /// Somebody is about to sleep: the system tells of what comes.
  void watch_again() noexcept;

  // The service thread.

  /// A connection shall come to be before anything is sent.
  bool begin_call() noexcept {
    const std::lock_guard hold(lock_);
    return comm::Link::begin_call();
  }
  /// They call. `taken` also where a long link is up, or gathers already: one more stream.
  [[nodiscard]] Answer take_call(Peer self, bool is_long);
  /// The link was lost, or has ended.
  [[nodiscard]] bool has_ended() const;
  /// Its stream is there. What was queued goes out. False: it was over.
  bool connect(std::unique_ptr<Stream> stream);
  /// The first stream of a long link, which grows so, or one more. `ask`: need() has changed; any thread, and it may
  /// not call the link. False: it was over.
  bool connect_long(std::unique_ptr<Stream> stream, LaneGrowth growth, const std::function<void()>& ask);
  /// Of streams.
  [[nodiscard]] Lanes::Need need() const;
  /// No more streams than it has can be had.
  void limit_streams() noexcept;
  /// It cannot be connected.
  void give_up(const std::string& why) noexcept;
  /// Has the other host acknowledged something of what is on its way within `timeout`? Otherwise the link is lost.
  /// Returns whether anything is on its way, or was sent since the last call.
  [[nodiscard]] bool check_answers(std::chrono::milliseconds timeout);

  // The polling thread.

  /// After the report that it is up.
  void begin_reading(Receiver& receiver) noexcept;
  /// One read of each stream that may have something. Returns whether it made an upcall.
  bool read(Receiver& receiver);
  /// Takes what has come, and ends the link with this cause.
  void lose(Receiver& receiver, const std::string& why);
  [[nodiscard]] bool is_over() const noexcept { return reading_over_; }
  /// read() may have something to do although the system reports nothing.
  [[nodiscard]] bool must_be_asked() const noexcept { return paused_ || read_ahead(); }
  [[nodiscard]] bool read_ahead() const noexcept;
  /// After a read() that found something, where read() is called in every poll.
  void found_in_poll() noexcept {
    const std::uint32_t finds = finds_.load(std::memory_order_relaxed) + 1;  // relaxed: a measure
    finds_.store(finds, std::memory_order_relaxed);                          // relaxed: the same
    if (finds % finds_before_unwatched == 0) [[unlikely]]
      unwatch();
  }

  // close(), alone.

  /// Puts the mark of an ordered end behind all that is queued. False: not connected.
  bool end_in_order() noexcept;
  /// Writes, and takes and forgets what comes, so that the other side can write as well. False: broken.
  bool drain(std::span<std::byte> scratch) noexcept;
  /// After the last write: no more comes from us.
  void end_writing() noexcept;
  /// Something the other host has not acknowledged is still on its way.
  [[nodiscard]] bool on_its_way() const noexcept;
  /// Ends everything at once. The receiver hears that a large body under way is incomplete.
  void close() noexcept;

 private:
  /// The one stream of a near link.
  struct Lane {
    std::unique_ptr<Stream> stream;
    OutQueue out{};
    bool full = false;        // The system took no more when it was last asked.
    bool reading = false;     // The polling thread wants to know when something comes,
    bool polled = false;      // and asks in every poll.
    std::uint32_t watched{};  // Of the poller.
    AnswerWatch answers{};
  };
  /// A frame on its way.
  struct Outgoing {
    std::span<const std::byte> header;
    std::span<const std::byte> body;
    [[nodiscard]] std::size_t bytes() const noexcept { return header.size() + body.size(); }
  };
  // With lock_ held.
  void send_connected(std::span<const std::byte, frame_header_bytes> header, std::span<const std::byte> body);
  void push(Outgoing frame);
  bool push_some(Outgoing& frame) noexcept;
  void write_lane() noexcept;
  void write_lanes() noexcept;
  bool drain_lanes() noexcept;
  void send_early() noexcept;
  void set_full(bool full) noexcept;
  void set_reading(bool reading) noexcept;
  void watch() noexcept;
  void set_polled(bool polled) noexcept;
  void note_queued() noexcept;
  void stop_writing() noexcept override;
  void told() noexcept override { poller_.ring(); }
  void drop_queues() noexcept;

  // The polling thread, without lock_.
  bool read_lane(bool& over, std::string& why);
  bool read_lanes(bool wanted, Receiver& receiver);
  bool hear_end(Receiver& receiver, bool moved, bool over, std::string why);
  void finish(Receiver& receiver, const std::optional<std::string>& why);
  [[nodiscard]] std::string loss(const std::string& why) const;
  void pause(bool pause) noexcept;
  void unwatch() noexcept;

  Poller& poller_;
  const std::string relay_;

  // The polling thread's, in the order of the path of a small frame.
  std::unique_ptr<Lane> lane_;    // Of a near link; set under lock_ when it comes up, and its output is lock_'s.
  std::unique_ptr<Lanes> lanes_;  // Of a long link; the same.
  std::unique_ptr<FrameReader> reader_;
  bool paused_ = false;
  bool reading_over_ = false;
  std::atomic<std::uint32_t> finds_ = 0;  // Polls that found something, since the last sleep.
  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<std::uint64_t> frames_received_ = 0;
  std::atomic<std::uint64_t> bytes_received_ = 0;

  mutable std::mutex lock_;
  bool writes_later_ = false;     // Among the poller's writers.
  std::uint64_t last_write_ = 0;  // In cycles().
  std::uint64_t frames_at_check_ = 0;
  std::atomic<std::size_t> queued_ = 0;
  // Written under lock_.
  std::atomic<std::uint64_t> frames_sent_ = 0;
  std::atomic<std::uint64_t> bytes_sent_ = 0;
  std::atomic<std::uint64_t> writes_ = 0;

  friend class Poller;
  Link* next_writer_ = nullptr;  // Under the poller's lock.
};

}  // namespace aplib::comm::tcp
