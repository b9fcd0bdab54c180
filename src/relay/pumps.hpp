// SPDX-License-Identifier: MIT
// Pumps: copies between the two ends of each pair, in both directions, on one thread.
//
// What one read takes is written at once, from a buffer that all pairs share. Only what the other end does not take
// stays with the pair, at most buffer_bytes for each direction, and until it is gone nothing more is read from that
// side. So a pair whose reader is slow stops its writer, as one connection would, uses bounded memory, and holds up no
// other pair; a pair that does not wait has no buffer.
//
// read and write are used, not splice: for small messages a pipe between costs one call more each, and large ones are
// copied in the cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib::relay {

/// Thread safety: all functions, any thread.
class Pumps {
 public:
  static constexpr std::size_t buffer_bytes = std::size_t{256} << 10;

  /// `ended`: of a pair that was not dropped; on the pumps' thread. Throws Error(exhausted).
  explicit Pumps(std::function<void(std::uint64_t pair)> ended);
  /// Closes all ends.
  ~Pumps();
  Pumps(const Pumps&) = delete;
  Pumps& operator=(const Pumps&) = delete;

  /// Two connected sockets that do not block.
  void add(std::uint64_t pair, os::UniqueFd first, os::UniqueFd second);
  /// Closes both ends of it, soon.
  void drop(std::uint64_t pair);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Pair;
  struct End {
    Pair* pair = nullptr;
    End* other = nullptr;
    os::UniqueFd socket{};
    std::vector<std::byte> waiting{};  // For this end, from `written` on.
    std::size_t written = 0;
    bool read_out = false;  // Nothing more comes from it.
    bool deaf = false;      // It takes nothing more: what is for it is read, and dropped, so that nothing is lost that
                            // it has said before, and the other end can say all that it has begun.
    std::uint32_t watched = 0;
  };
  struct Pair {
    std::uint64_t number = 0;
    End ends[2];
    bool over = false;
  };

  void run();
  void serve(End& end, std::uint32_t events);
  void read(End& from);
  void write(End& to);
  void watch(End& end);
  void finish(Pair& pair);
  void take_orders();
  void remove_finished();

  const std::function<void(std::uint64_t)> ended_;
  os::UniqueFd epoll_;
  os::EventFd wake_;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<bool> stops_ = false;
  std::vector<std::byte> buffer_;
  std::vector<Pair*> finished_;  // The thread's own.
  std::mutex mutex_;             // Of what follows.
  std::map<std::uint64_t, std::unique_ptr<Pair>> pairs_;
  std::vector<Pair*> to_watch_;
  std::set<std::uint64_t> to_drop_;
  std::thread thread_;
};

}  // namespace aplib::relay
