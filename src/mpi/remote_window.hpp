// SPDX-License-Identifier: MIT
// RemoteTarget: a rank of a window that another process carries, as a call reaches it: by errands (kernel/errand.hpp),
// which are carried out there whatever that rank does. What is put leaves at once; what is read is there when the call
// returns.
//
// RemoteWindows: one process's part in that. It carries out what others ask for, and takes their replies to where the
// tasks that wait for them have said.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernel/errand.hpp"
#include "mpi/accumulation.hpp"
#include "mpi/window.hpp"

namespace aplib::mpi {

enum class ErrandKind : std::uint32_t;
struct ErrandHead;

class RemoteWindows final : public Errands {
 public:
  /// What a task waits for.
  struct Reply {
    std::uint32_t process = 0;            ///< Who answers.
    Elements to{};                        ///< Gets what replies bring,
    std::atomic<int> open{0};             ///< so many of which have not come.
    std::atomic<bool> is_refused{false};  ///< The memory is not attached there, or the window is gone.
  };

  [[nodiscard]] static std::shared_ptr<RemoteWindows> of_process(const char* call);

  explicit RemoteWindows(Domain& domain) noexcept : domain_(domain) {}

  /// The number by which other processes name the board, until it is removed.
  [[nodiscard]] std::uint64_t add(WindowBoard& board);
  void remove(std::uint64_t number) noexcept;

  bool take(std::uint32_t from, std::span<const std::byte> errand) override;

 private:
  friend class RemoteTarget;

  /// A checked errand.
  struct Asked;

  bool take_reply(std::uint32_t from, const ErrandHead& head, std::span<const std::byte> data);
  bool carry_out(std::uint32_t from, const Asked& asked);
  bool access(std::uint32_t from, const Asked& asked);
  void answer(std::uint32_t to, const Asked& asked, std::span<const std::byte> data, bool is_refused = false);
  void give_locks(WindowBoard& board, int target, const std::vector<int>& given);

  Domain& domain_;
  std::mutex mutex_;  // of what follows. Held while an errand is carried out.
  std::unordered_map<std::uint64_t, WindowBoard*> boards_;
  std::unordered_map<std::uint64_t, Reply*> replies_;
  std::uint64_t next_ = 1;
};

class RemoteTarget {
 public:
  RemoteTarget(const Call& call, Win& win, int rank) noexcept : call_(call), win_(win), rank_(rank) {}

  // Addresses of `to` and `from` that are the target's count from its base.
  void put(const Elements& to, const Elements& from, Count bytes) const;
  void get(const Elements& to, const Elements& from, Count bytes) const;
  /// As Accumulation::combine().
  void combine(const Accumulation& how, const Elements& to, const Elements& from, const Elements* result,
               Count bytes) const;
  /// `bytes` bytes of memory: what was there goes to `result`.
  void compare_and_swap(const Elements& at, const void* value, const void* compared, void* result, Count bytes) const;

  /// All that was put in its process has arrived.
  void flush() const;
  void ask_for_lock(bool exclusive) const;
  /// As flush().
  void unlock() const;
  /// Gives up waiting for the lock; waits until it is sure not to come.
  void cancel_lock() const;
  /// To ranks of this process that wait for what a rank here has done.
  void give_lock(int target) const;
  void note_post() const;
  void note_complete() const;

 private:
  class Answered;
  class Waiting;

  [[nodiscard]] std::uint32_t process() const noexcept { return win_.member(rank_).process; }
  /// To the target, about its memory.
  [[nodiscard]] ErrandHead addressed(ErrandHead head) const noexcept;
  void send(std::span<const std::byte> errand) const;
  void send(const ErrandHead& head) const;
  /// Sends an errand that is answered when it has been carried out, as all before it, and waits for that.
  void ask(ErrandKind kind) const;
  /// More is put, and not answered.
  void note_put() const { ++win_.unflushed[process()]; }
  /// The errand for parts of elements there, with data of elements here; null: it brings none.
  void send_parts(ErrandHead head, const Elements& there, const Elements* here, Count unit, Count bytes,
                  RemoteWindows::Reply* reply) const;
  void await(RemoteWindows::Reply& reply) const;

  const Call& call_;
  Win& win_;
  int rank_;
};

/// flush() of all processes where something was put.
void flush_processes(const Call& call, Win& win);
/// Fails if something that was put and flushed could not be there.
void check_refused(Win& win);

}  // namespace aplib::mpi
