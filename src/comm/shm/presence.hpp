// SPDX-License-Identifier: MIT
// What a process has for the others of its host, before it knows them and when it meets them: where it is reached, and
// what it gives them: memory, and a bell.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/descriptor.hpp"
#include "comm/shm/segment.hpp"

namespace aplib::comm::shm {

// SharedMemory: memory without a name that one process hands to another as a descriptor. The process that makes it
// writes it. The one that gets it reads it, and can neither write nor shorten it.

class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Zeros. Takes room as it is touched. Throws Error(exhausted).
  [[nodiscard]] static SharedMemory make(std::size_t bytes);
  /// Maps what another process has made. Nothing: it is not what that process should have given, `why` says so for
  /// people.
  [[nodiscard]] static std::optional<SharedMemory> open(const os::UniqueFd& descriptor, std::size_t bytes,
                                                        std::string& why);

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// For the other process. Only of what was made here.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  /// Nobody else gets it from now on.
  void forget_descriptor() noexcept { descriptor_.reset(); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  os::UniqueFd descriptor_;
};

// Bell: what the threads of this process sleep on, and how other processes wake them.
//
//   sleeper:  asleep = a new odd number     fence   look whether there is something to do, sleep
//   waker:    publish an entry, or room     fence   look whether it is asleep, ring
//
// Either the sleeper sees what was published, or the waker sees that it is asleep. See cell/parker.hpp for why both
// pass a fence of their own.

/// Thread safety: any thread.
class Bell {
 public:
  /// Throws Error(exhausted).
  Bell();

  /// From here on peers ring. After it the sleeper must look for something to do once more. Then disarm(), always.
  void arm() noexcept;
  void disarm() noexcept;
  /// Between the two: sleeps until someone rings or the time is over.
  void sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept;
  /// Ends all sleeps, or else the next one. Async-signal-safe.
  void ring() noexcept { event_.signal(); }
  /// Wakes the sleepers after something was made that poll() shall find.
  void ring_if_armed() noexcept;

  /// For peers.
  [[nodiscard]] int descriptor() const noexcept { return event_.get(); }
  [[nodiscard]] const SharedMemory& block_memory() const noexcept { return block_; }
  [[nodiscard]] ControlBlock& block() const noexcept { return *static_cast<ControlBlock*>(block_.data()); }

 private:
  os::EventFd event_;
  SharedMemory block_;
  std::mutex mutex_;
  std::uint32_t armed_ = 0;
};

/// The bell of another process.
class PeerBell {
 public:
  PeerBell() = default;
  void attach(SharedMemory its_block, os::UniqueFd descriptor) noexcept {
    block_ = std::move(its_block);
    event_ = os::EventFd(std::move(descriptor));
    asleep_ = &block()->asleep;
  }

  /// After something was published. Any thread.
  void ring_if_asleep() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);                    // own publication before own look
    const std::uint32_t asleep = asleep_->load(std::memory_order_relaxed);  // the fence orders it
    if ((asleep & 1U) != 0) [[unlikely]]
      ring(asleep);
  }
  [[nodiscard]] const ControlBlock* block() const noexcept { return static_cast<const ControlBlock*>(block_.data()); }
  [[nodiscard]] std::uint64_t rings() const noexcept { return rings_.load(std::memory_order_relaxed); }

 private:
  void ring(std::uint32_t asleep) noexcept;

  const std::atomic<std::uint32_t>* asleep_ = nullptr;
  std::atomic<std::uint32_t> rung_{0};  // For which sleep.
  std::atomic<std::uint64_t> rings_{0};
  SharedMemory block_;
  os::EventFd event_{os::UniqueFd()};
};

// Endpoint: where others on this host reach a process: the name of its socket, which nobody can guess and no file has,
// and what decides whether two processes can share memory at all.

/// Of a local socket.
struct LocalAddress {
  sockaddr_un name{};
  socklen_t bytes = 0;
};

struct Endpoint {
  std::string name;                     ///< 32 hexadecimal digits, random.
  std::uint64_t network_namespace = 0;  ///< Inside which names of sockets count,
  std::uint64_t process_namespace = 0;  ///< numbers of processes,
  std::uint64_t user_namespace = 0;     ///< and numbers of users.
  std::uint32_t user = 0;
  pid_t process = 0;
  /// Address of its ControlBlock, which begins with the name. A process that can read the name there can reach its
  /// memory.
  std::uint64_t block = 0;
  std::string host;  ///< As in PortSettings.

  /// This process's own, with a new name. Throws Error(failed).
  [[nodiscard]] static Endpoint make(const std::string& host);
  [[nodiscard]] static std::optional<Endpoint> parse(std::string_view text);
  [[nodiscard]] std::string print() const;

  /// Of its socket: an abstract name, so that nothing is in the file system, and all is gone with the process.
  [[nodiscard]] LocalAddress address() const noexcept;

  /// Frames can pass.
  [[nodiscard]] bool joins(const Endpoint& other) const;
};

/// A socket that listens under the endpoint's name. Throws Error.
[[nodiscard]] os::UniqueFd listen_at(const Endpoint& endpoint);

/// What a process has before it knows the others: where it is reached, and what it will give to them.
struct Presence {
  /// Listens. Throws Error.
  explicit Presence(const std::string& host);
  std::unique_ptr<Bell> bell = std::make_unique<Bell>();
  Endpoint own;
  os::UniqueFd listener;
};

// Handover: what two processes give each other behind the greeting: their segment for the pair, their control block and
// their bell. Then the socket is silent; its end is the other's end.

/// All that joins us with one other process.
struct Connection {
  os::UniqueFd socket;
  SharedMemory mine;    ///< Segment
  SharedMemory theirs;  ///< Segment
  SharedMemory block;
  os::UniqueFd bell;
};

enum class Verdict : std::uint8_t {
  taken = 1,
  not_now,  ///< Our own call is on the way to you.
  unable,   ///< We cannot take what you gave, or give anything: no descriptor or memory is left here.
};

/// Gives `mine` and the bell, or a refusal. False: the other side is gone.
[[nodiscard]] bool give(int socket, Verdict verdict, const SharedMemory* mine, const Bell& bell) noexcept;

enum class Given : std::uint8_t { nothing_yet, taken, not_now, wrong };
/// Takes what the other side gives, into `connection`. `why`: of Given::wrong.
[[nodiscard]] Given take(int socket, Connection& connection, std::string& why);

}  // namespace aplib::comm::shm
