// SPDX-License-Identifier: MIT
// WindowBoard: what the ranks of a window share in a process: each one's memory, who has locked it, and who has opened
// it for whom. The ranks read and write each other's memory themselves. Of members in other processes it has what those
// have told.
//
// A member's guard protects what is written below it. It is held for a few instructions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "arch/cpu.hpp"
#include "base/spin_lock.hpp"
#include "kernel/shared_memory.hpp"
#include "mpi/layout.hpp"

namespace aplib::mpi {

/// A set of ranks.
class RankSet {
 public:
  [[nodiscard]] bool has(int rank) const noexcept {
    return static_cast<std::size_t>(rank) < is_in_.size() && is_in_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int count() const noexcept { return count_; }
  void add(int rank);
  void remove(int rank) noexcept;

 private:
  std::vector<bool> is_in_;
  int count_ = 0;
};

class WindowBoard {
 public:
  /// Memory of the window, which ends with it.
  using Memory = std::unique_ptr<std::byte, void (*)(void*)>;
  /// Of at least one byte. Null: there is none.
  [[nodiscard]] static Memory allocate(Count bytes) noexcept;

  /// One rank's part.
  class alignas(cache_pair_bytes) Member {
   public:
    // Constant once all ranks have the window. A dynamic one has no base: displacements are addresses. Neither has a
    // rank of another process, unless the two share memory: they count from its base.
    std::byte* base = nullptr;
    Count bytes = 0;
    Count bytes_here = 0;  ///< The same; 0 in another process, unless the two share memory.
    Count unit = 1;
    Memory memory{nullptr, nullptr};  ///< If it was made with the window.
    bool is_here = true;
    bool is_shared = false;  ///< The memory is mapped by all processes of the window.
    std::uint32_t process = 0;
    std::uint64_t number = 0;  ///< By which its process names the board.
    /// Something that this rank has put in another process could not be there.
    std::atomic<bool> is_refused{false};

    /// The rank's memory may be read and written from here.
    [[nodiscard]] bool is_mapped() const noexcept { return is_here || is_shared; }

    /// Held by who combines elements of this rank's memory, so each element changes at once. With that memory, it is
    /// shared by processes. One that is killed with the lock ends the machine, and so those that spin for it.
    SpinLock* combining = &own_combining_;

    // ---- dynamic windows
    /// False: it touches memory that is attached.
    bool attach(std::uintptr_t address, Count bytes);
    /// False: nothing that was attached begins there.
    bool detach(std::uintptr_t address);
    /// Whether all of [first, first + bytes) is attached.
    [[nodiscard]] bool is_attached(std::uintptr_t first, Count bytes) noexcept;

    // ---- locks, by the rank that locks. First come, first served.
    /// Takes the lock, or asks for it: false.
    bool lock(int rank, bool exclusive);
    /// Who has got it now.
    std::vector<int> unlock(int rank);
    /// The same of a rank that gives up waiting for it.
    std::vector<int> cancel(int rank);
    // Of a member in another process: what is known here of ranks of this one.
    void note_lock(int rank);
    void forget_lock(int rank) noexcept;
    [[nodiscard]] bool is_locked_by(int rank) noexcept;

    // ---- epochs that begin with MPI_Win_start
    /// A rank has opened its memory for this one.
    void note_post(int rank);
    [[nodiscard]] bool is_posted_by(int rank) noexcept;
    /// Takes the note of the rank away.
    void take_post(int rank) noexcept;
    /// A rank is done with this one's memory.
    void note_complete(int rank);
    [[nodiscard]] bool is_completed_by(int rank) noexcept;
    [[nodiscard]] int completed() noexcept;
    void forget_completed() noexcept;

   private:
    struct Waiting {
      int rank;
      bool is_exclusive;
    };
    void give_lock(const Waiting& to);
    std::vector<int> give_on();
    [[nodiscard]] bool can_give(bool exclusive) const noexcept {
      return lockers_.count() == 0 || (!exclusive && !is_exclusive_);
    }

    alignas(cache_line_bytes) SpinLock own_combining_;
    alignas(cache_line_bytes) SpinLock guard_;
    std::map<std::uintptr_t, Count> attached_;
    RankSet lockers_;
    bool is_exclusive_ = false;
    std::deque<Waiting> waiting_;
    RankSet posts_;
    RankSet completed_;
  };

  /// Held by each rank of this process.
  WindowBoard(int ranks, int holders, bool is_dynamic);
  WindowBoard(const WindowBoard&) = delete;
  WindowBoard& operator=(const WindowBoard&) = delete;

  /// The memory that processes share, of a window of MPI_Win_allocate_shared.
  std::optional<api::SharedMemory> shared;
  /// Called at its end.
  std::function<void()> on_end;

  struct Release {
    void operator()(WindowBoard* board) const noexcept { board->release(); }
  };

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool is_dynamic() const noexcept { return is_dynamic_; }
  [[nodiscard]] Member& member(int rank) noexcept { return members_[static_cast<std::size_t>(rank)]; }

 private:
  ~WindowBoard();
  void release() noexcept;

  int size_;
  bool is_dynamic_;
  std::unique_ptr<Member[]> members_;
  std::atomic<int> holders_;
};

using WindowBoardPtr = std::unique_ptr<WindowBoard, WindowBoard::Release>;

}  // namespace aplib::mpi
