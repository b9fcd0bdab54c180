// SPDX-License-Identifier: MIT
// Network: the other processes of the machine, as the processors of this one see them. The kernel implements it
// over a module (src/kernel/module_network.cpp).
//
// What goes out, a processor hands to the network itself: send(). What comes in arrives by one more Processor,
// which has no thread: the network's. Its rings lead to every carrier, and whoever polls the network, one thread at
// a time, fills them and reads the rings that lead to it. So cells may move, messages keep their order, and nobody
// waits for a special thread, by the protocols that hold between processors anyway.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace aplib {

struct CellEnd;
struct TaskControl;
namespace one_sided {
struct Copy;
struct Operation;
}  // namespace one_sided

class Network {
 public:
  virtual ~Network() = default;

  /// Frames may have been held back, to go out together: flush() when the task that has sent them waits. Set by
  /// send(). relaxed: a hint.
  std::atomic<bool> holds_back{false};
  virtual void flush() noexcept = 0;

  /// Sends a message of `self` to a cell of another process. Waits, and lets other tasks run, only while more than
  /// send-limit bytes wait for that process. Throws Error(exhausted) when none of them is taken for send-wait.
  virtual void send(TaskControl& self, const char* call, std::uint32_t cell, std::uint32_t task, std::uint64_t key,
                    std::span<const std::byte> bytes) = 0;

  /// One-sided communication with a cell of another process (one_sided.hpp). Wait and throw as send(); fetch()
  /// waits for the old value.
  virtual void put(TaskControl& self, const char* call, const one_sided::Copy& copy, bool acknowledge) = 0;
  virtual void get(TaskControl& self, const char* call, const one_sided::Copy& copy) = 0;
  virtual std::uint64_t fetch(TaskControl& self, const char* call, const one_sided::Operation& operation) = 0;

  /// Puts out what was held back and takes what has come. Any thread of this process. False: another thread is at it.
  virtual bool poll() = 0;
  /// Grows whenever a poll() took something, be it a part of a large message: who has nothing else to do goes on
  /// polling then. Any thread; a snapshot.
  [[nodiscard]] virtual std::uint64_t arrivals() const noexcept { return 0; }
  /// poll(), if nobody has done so for some time. For processors that are busy.
  virtual void poll_if_due() = 0;

  /// A processor has nothing to do: may it sleep by wait()? True for one at a time; then end_wait() must follow.
  /// Others sleep as usual.
  virtual bool begin_wait() noexcept = 0;
  /// Sleeps until something has come, wake() is called, or the timeout has passed.
  virtual void wait(std::optional<std::chrono::nanoseconds> timeout) noexcept = 0;
  virtual void end_wait() noexcept = 0;
  /// Ends wait(). Any thread, async-signal-safe.
  virtual void wake() noexcept = 0;
  /// A processor goes on after a sleep, or the last one has fallen asleep.
  virtual void stirred() noexcept = 0;

  /// `cell` has ended here: the other processes must know, behind all it has sent. Called while the network is polled.
  virtual void cell_ended(std::uint32_t cell, const CellEnd& end) = 0;
  /// No cell of this process is live.
  virtual void all_ended() noexcept = 0;
  /// One frame of a collective (exchange.hpp), for another process.
  virtual void send_exchange(std::uint32_t process, std::span<const std::byte> frame) = 0;
  /// The status words of this process's cells combined; and by how often they have changed it is known which of two
  /// is newer.
  [[nodiscard]] virtual std::uint64_t own_status() const noexcept = 0;
  virtual void other_status(std::uint32_t process, std::uint64_t status) noexcept = 0;
};

}  // namespace aplib
