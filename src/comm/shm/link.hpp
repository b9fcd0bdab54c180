// SPDX-License-Identifier: MIT
// Link: what this process and one other share to exchange frames. The base, src/comm/link.hpp, says which states
// it has.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/spin_lock.hpp"
#include "comm/link.hpp"
#include "comm/module.hpp"
#include "comm/shm/presence.hpp"
#include "comm/shm/segment.hpp"

namespace aplib::comm::shm {

/// A write or read of another process's memory is over.
struct MemoryReport {
  std::uint64_t context = 0;
  bool ok = false;
};

/// What the thread that polls must hear of, though nothing lies in shared memory. Thread safety: any thread.
class Reports {
 public:
  explicit Reports(Bell& bell) noexcept : bell_(bell) {}

  /// Keeps room for one more. Throws std::bad_alloc.
  void expect_memory() {
    const std::lock_guard hold(mutex_);
    const std::size_t needed = memory_.size() + expected_ + 1;
    if (needed > memory_.capacity()) memory_.reserve(2 * needed);
    ++expected_;
  }
  /// In that room.
  void add(MemoryReport report) noexcept {
    {
      const std::lock_guard hold(mutex_);
      --expected_;
      memory_.push_back(report);                    // reserved by expect_memory()
      any_.store(true, std::memory_order_relaxed);  // relaxed: under the mutex, else a hint
    }
    bell_.ring_if_armed();
  }
  /// What links tell; ring() behind each.
  [[nodiscard]] LinkReports& links() noexcept { return links_; }
  void ring() noexcept { bell_.ring(); }

  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_relaxed) || links_.any(); }
  [[nodiscard]] std::size_t memory_count() {
    const std::lock_guard hold(mutex_);
    return memory_.size() - memory_taken_;
  }
  /// The oldest report of memory. Its room stays for those that are expected.
  [[nodiscard]] std::optional<MemoryReport> take_memory() {
    const std::lock_guard hold(mutex_);
    if (memory_taken_ == memory_.size()) return std::nullopt;
    const MemoryReport first = memory_[memory_taken_++];
    if (memory_taken_ == memory_.size()) {
      memory_.clear();
      memory_taken_ = 0;
      any_.store(false, std::memory_order_relaxed);  // relaxed: under the mutex, else a hint
    }
    return first;
  }

 private:
  Bell& bell_;
  LinkReports links_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<MemoryReport> memory_;
  std::size_t memory_taken_ = 0;  // Of those.
  std::size_t expected_ = 0;      // Room behind them that is kept.
};

class Link final : public comm::Link {
 public:
  /// A large body is sent from the caller's memory as long as the peer takes some of it within this time; then the
  /// rest is copied.
  static constexpr std::chrono::microseconds patience{30};
  /// One read() takes about so much.
  static constexpr std::size_t read_bytes_max = 64 * 1024;
  static constexpr std::size_t read_bytes_max_large = 1024 * 1024;
  static constexpr std::uint32_t read_frames_max = entry_count;

  /// `writers`: how many links have something queued.
  Link(Peer peer, Reports& reports, std::atomic<std::uint32_t>& writers) noexcept
      : comm::Link(peer, reports.links()), reports_(reports), writers_(writers) {}

  // Any thread.

  /// Sends or queues a frame. True: the link is calling from here on; Service::call() makes the call. Throws
  /// std::bad_alloc; then the frame is not sent, and the link is lost when a part of it was.
  [[nodiscard]] bool send(const Label& label, std::span<const std::byte> body);
  [[nodiscard]] std::size_t queued() const noexcept { return queued_.load(std::memory_order_relaxed); }
  /// Puts what is queued into shared memory, as far as there is room.
  void write() noexcept;
  [[nodiscard]] State state() const;
  /// Null: not joined yet. It stays as long as the link.
  [[nodiscard]] const ControlBlock* block() const noexcept { return block_.load(std::memory_order_acquire); }
  /// Nothing passes any more.
  [[nodiscard]] bool has_ended() const noexcept { return ended_.load(std::memory_order_relaxed); }
  void count(Traffic& into) const noexcept;
  /// A poll would do something here.
  [[nodiscard]] bool has_work() noexcept;

  // The service thread.

  /// They call.
  [[nodiscard]] Answer take_call(Peer self);
  /// We are joined. What was queued goes out. False: it was over.
  bool connect(Connection connection);
  /// It cannot be joined, or the other process has ended.
  void give_up(const std::string& why) noexcept;

  // The polling thread.

  /// After the report that it is up.
  void begin_reading() noexcept { reading_.store(true, std::memory_order_release); }
  /// Takes what has come. Returns whether it made an upcall.
  bool read(Receiver& receiver) {
    if (!reader_.has_next()) [[likely]]
      return false;
    return read_some(receiver);
  }
  /// After the report that nothing more comes: takes what is there, then ends the link. False: some of it is not
  /// wanted now; to be called again.
  bool lose(Receiver& receiver, const std::string& why);
  [[nodiscard]] bool is_over() const noexcept { return reading_over_; }

  // close(), alone.

  /// Takes and forgets what comes. The receiver hears that a large body under way is incomplete.
  void drain(Receiver& receiver);
  /// Puts the mark of an ordered end behind all that was sent; drops what is queued. False: something was.
  bool end_in_order() noexcept;
  /// Everything ends here and now.
  void close(Receiver* receiver) noexcept;

 private:
  /// A frame, or the rest of a large one, that has not gone out yet.
  struct Waiting {
    Label label;
    std::uint64_t bytes = 0;  // Of the whole body.
    std::unique_ptr<std::byte[]> body{};
    std::size_t kept = 0;  // Of `body`: the last of those.
    std::size_t gone = 0;  // Of `body`.
    bool begun = false;    // A large one, whose first entry is out.
    /// For queued(): an empty body counts, too.
    [[nodiscard]] std::size_t weight() const noexcept { return sizeof(Entry) + kept - gone; }
  };
  /// The large body that comes.
  struct Large {
    Label label;
    std::byte* into = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t filled = 0;
    bool active = false;
  };

  // With lock_ held.
  bool send_later(std::unique_lock<SpinLock>& hold, const Label& label, std::span<const std::byte> body);
  void send_large(const Label& label, std::span<const std::byte> body);
  void keep(const Label& label, std::span<const std::byte> rest, std::uint64_t bytes, bool begun);
  bool write_first();
  void write_locked() noexcept;
  void count_sent(std::uint64_t bytes) noexcept;
  void stop_writing() noexcept override;
  void told() noexcept override { reports_.ring(); }
  void drop_queue() noexcept;
  void set_queued(std::size_t bytes) noexcept;

  // The polling thread.
  bool read_some(Receiver& receiver);
  bool take(Receiver& receiver, const EntryCopy& entry, std::string& why);
  void settle() noexcept;
  void finish(Receiver& receiver, const std::optional<std::string>& why);

  Reports& reports_;
  std::atomic<std::uint32_t>& writers_;

  // The polling thread's, in the order of the path of a small frame.
  EntryReader reader_;
  std::atomic<bool> reading_{false};
  std::atomic<bool> unwanted_{false};
  bool reading_over_ = false;
  Large large_;
  std::unique_ptr<std::byte[]> scratch_;
  std::atomic<std::uint64_t> frames_received_{0};
  std::atomic<std::uint64_t> bytes_received_{0};

  alignas(cache_pair_bytes) mutable SpinLock lock_;
  EntryWriter writer_;
  PeerBell bell_;
  std::deque<Waiting> waiting_;
  std::atomic<std::size_t> queued_{0};
  // Written under lock_.
  std::atomic<std::uint64_t> frames_sent_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};
  Connection connection_;
  std::atomic<const ControlBlock*> block_{nullptr};
  std::atomic<bool> ended_{false};
};

}  // namespace aplib::comm::shm
