// SPDX-License-Identifier: MIT
// Rank: what MPI knows of one cell. All cells of a process share the library, so nothing of it is static: whatever
// belongs to a program hangs off its cell's Rank, which the cell's first call makes and which ends with the cell.
// Programs of a cell that run one after the other, or at the same time as other tasks, share it.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock_reads.hpp"
#include "mpi/attribute.hpp"
#include "mpi/context.hpp"
#include "mpi/error.hpp"
#include "mpi/pending_call.hpp"
#include "mpi/send_buffer.hpp"

namespace aplib {
struct MatchWish;
}

namespace aplib::mpi {

struct Comm;
struct TypeHandle;
struct OpHandle;
struct Group;
struct Info;
struct Request;
struct Session;

class Rank {
 public:
  enum class Phase : std::uint8_t { before, initialized, finalized };

  /// The calling cell's; its first call makes it. Throws Error outside of cells. Call from: a task.
  static Rank& of_caller(const char* call);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  [[nodiscard]] std::uint32_t world_rank() const noexcept { return world_rank_; }
  [[nodiscard]] std::uint32_t world_size() const noexcept { return world_size_; }

  // ---- between MPI_Init and MPI_Finalize, and while it has sessions
  Phase phase = Phase::before;
  /// The phase for threads that have not entered the cell: what was set before it is visible, too.
  [[nodiscard]] Phase seen_phase() const noexcept {
    return std::atomic_ref(const_cast<Phase&>(phase)).load(std::memory_order_acquire);  // acquire: pairs with below
  }
  void set_phase(Phase now) noexcept {
    std::atomic_ref(phase).store(now, std::memory_order_release);  // release: what belongs to it
  }
  /// Where MPI_Init and MPI_Finalize alone have brought it. For threads as seen_phase().
  std::atomic<Phase> world_phase{Phase::before};
  std::vector<Session*> sessions;
  /// Calls are allowed from here on. `level`: of support for threads, which is that of the rank if it had more before.
  void begin(const Call& call, int level);
  /// If nothing is left that has begun.
  void end(const Call& call);
  int thread_level = MPI_THREAD_SINGLE;
  std::uint32_t main_task = 0;  ///< The program's.
  /// The thread in whose call MPI began, where that is another than the program's main one.
  std::optional<pthread_t> first_thread;
  bool threads_are_tolerated = false;  ///< They call below MPI_THREAD_SERIALIZED, as Open MPI and MPICH let them.
  [[nodiscard]] bool threads_may_call() const noexcept {
    return threads_are_tolerated || thread_level >= MPI_THREAD_SERIALIZED;
  }
  [[nodiscard]] bool is_main_thread() const noexcept;  ///< As MPI_Is_thread_main() says. Call from: any thread.

  // ---- predefined objects
  [[nodiscard]] Errhandler& fatal() noexcept { return *fatal_; }
  [[nodiscard]] Errhandler& aborting() noexcept { return *aborting_; }
  [[nodiscard]] Errhandler& returning() noexcept { return *returning_; }
  [[nodiscard]] Group& empty_group() noexcept { return *empty_group_; }
  [[nodiscard]] Group& world_group() noexcept { return *world_group_; }
  [[nodiscard]] Comm& world() noexcept { return *world_; }
  [[nodiscard]] Comm& self() noexcept { return *self_; }
  [[nodiscard]] ErrorTarget& no_file() noexcept { return *no_file_; }
  [[nodiscard]] Info& environment() noexcept { return *environment_; }
  /// Of all sends that are over when they begin. Programs get its handle, and nobody ends it.
  [[nodiscard]] Request& sent() noexcept { return *sent_; }

  /// Contexts of its communicators, and where the search for a new one begins.
  ContextSet contexts;
  ContextSet offered;  ///< Of which others may choose for a communicator that is duplicated (comm_idup.cpp).
  std::uint32_t next_context = 0;
  std::vector<std::uint64_t> agreements;  ///< On contexts, that are under way (team.cpp),
  bool agrees = false;                    ///< and one has them all for itself.
  SendBuffer send_buffer;                 ///< Of communicators that have none.
  std::uint32_t general_requests = 0;     ///< That have begun.
  TagRanges partition_tags;               ///< Of its partitioned sends.
  std::vector<Request*> freed_requests;   ///< That were open then, and may be still.
  Request* spare_requests = nullptr;      ///< That have ended, to be used again. Owned by objects_.
  PendingCalls pending_calls;             ///< Nonblocking and persistent collective calls that are under way.
  std::uint8_t test_misses = 0;           ///< Of such a call, since others have run.
  [[nodiscard]] bool is_ending() const noexcept { return ending_; }

  /// Of handles 0x200..0x2ff, made at their first use. Owned by objects_.
  std::array<TypeHandle*, 256> predefined_datatypes{};
  /// Of handles 0x20..0x3f, likewise.
  std::array<OpHandle*, 32> predefined_ops{};

  /// Of MPI_Type_create_f90_*, by combiner and what was chosen. Owned by objects_.
  std::map<std::pair<int, std::vector<int>>, TypeHandle*> f90_types;

  ErrorCodes codes;
  Keyvals keyvals;
  /// Of MPI_COMM_WORLD; null: `keyval` is none of the standard's keys.
  [[nodiscard]] const int* predefined_attribute(int keyval) const noexcept;
  ClockReads clock_reads;         ///< Of MPI_Wtime.
  std::uint32_t tool_begins = 0;  ///< Of MPI_T_init_thread, without an MPI_T_finalize yet.

  /// What Fortran's side of the ABI has told (abi.cpp); null: nothing yet.
  Info* fortran = nullptr;
  struct Booleans {
    std::string is_true;  ///< The bytes of .TRUE. in memory,
    std::string is_false;
  };
  std::map<int, Booleans> fortran_booleans;  ///< by the size of LOGICAL

  /// What it asks for: "rank 1 of MPI_COMM_WORLD, tag 7"; empty: not known. REQUIRES: of a space of MPI.
  [[nodiscard]] std::string describe(const MatchWish& wish) const;
  template <class Act>
  void for_each_object(const Act& act) const {
    for (Object* each = objects_; each != nullptr; each = each->next_) act(*each);
  }

  /// Numbers for handles, as Fortran has them. A handle keeps its number; numbers of ended objects are used again.
  int number_of(const void* handle);
  /// Of a handle that has one; 0: it has none yet. Needs no rank.
  [[nodiscard]] static int known_number_of(const void* handle) noexcept;
  /// Null: no handle has this number.
  [[nodiscard]] void* handle_of_number(int number) const noexcept;

 private:
  friend class Object;

  explicit Rank(const char* call);
  void forget_number(Object& object) noexcept;

  std::uint32_t world_rank_;
  std::uint32_t world_size_;
  bool ending_ = false;
  int universe_;  // value of MPI_UNIVERSE_SIZE
  int program_;   // value of MPI_APPNUM
  Object* objects_ = nullptr;
  std::vector<const void*> numbered_;  // from number predefined_end on
  std::vector<int> free_numbers_;

  // Owned by objects_.
  Errhandler* unset_ = nullptr;
  Errhandler* fatal_ = nullptr;
  Errhandler* aborting_ = nullptr;
  Errhandler* returning_ = nullptr;
  Group* empty_group_ = nullptr;
  Group* world_group_ = nullptr;
  Comm* world_ = nullptr;
  Comm* self_ = nullptr;
  ErrorTarget* no_file_ = nullptr;
  Info* environment_ = nullptr;
  Request* sent_ = nullptr;
};

/// The text in a program's buffer of `room` bytes, cut if need be, and its length.
void give_string(const std::string& text, char* buffer, int room, int* length);

}  // namespace aplib::mpi
