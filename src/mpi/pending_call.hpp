// SPDX-License-Identifier: MIT
// PendingCall: a nonblocking or persistent collective call. It carries out the blocking one, on a stack of its own
// (kernel/coroutine.hpp): from its beginning to where that would wait, and from there on whenever the rank waits for
// something, or tests.
//
// Pending calls meet on communicators of their own, so they never meet blocking ones. The nonblocking ones of a
// communicator share one, and are carried out one after the other, as they began. Each persistent one has one for
// itself, because ranks may start them in any order.
//
// A brief call needs no stack: it waits once at most, and then has little to do, its rest (meeting_rest.hpp). So a call
// is that has few data, where the ranks meet at a board, and its earlier calls are over. It is begun on the caller's
// stack.
//
// Invariants: (1) a call's arguments are checked before it pauses for the first time, so what is wrong with them is
// told where it begins; (2) it keeps the objects that its arguments name; (3) what a call waits for is a condition on
// its stack, and whoever waits in the rank waits for that, too.
#pragma once

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <vector>

#include "kernel/condition.hpp"
#include "kernel/mailbox.hpp"
#include "mpi/call.hpp"

namespace aplib::mpi {

struct Comm;
struct Request;

/// A blocking call with the arguments of the program, for later.
class Plan {
 public:
  static constexpr MPI_Count too_many_bytes = std::numeric_limits<MPI_Count>::max();

  Plan() = default;
  /// `bytes`: of its data, if it is brief when these are few.
  template <class Run>
  explicit Plan(const Run& run, MPI_Count bytes = too_many_bytes) noexcept
      : run_([](const void* memory, const Call& call, Comm& comm) { (*static_cast<const Run*>(memory))(call, comm); }),
        bytes_(bytes) {
    static_assert(sizeof(Run) <= sizeof memory_ && std::is_trivially_copyable_v<Run>);
    ::new (static_cast<void*>(memory_)) Run(run);
  }
  void operator()(const Call& call, Comm& comm) const { run_(memory_, call, comm); }
  [[nodiscard]] MPI_Count bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t arguments_max = 8;  // words: of MPI_Alltoallw

  void (*run_)(const void* memory, const Call& call, Comm& comm) = nullptr;
  MPI_Count bytes_ = too_many_bytes;
  alignas(void*) std::byte memory_[arguments_max * sizeof(void*)];
};

class PendingCall {
 public:
  /// What is left of a brief call when its wait is over. It lies in the call.
  class Rest {
   public:
    Rest() = default;
    virtual ~Rest() = default;
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

    [[nodiscard]] virtual Condition& awaited() noexcept = 0;
    /// `how`: as the wait has ended. Throws what the call does.
    virtual void carry_out(Wake how) = 0;
  };

  /// Begins it. `kept`: what its arguments name.
  static void begin(const Call& call, Comm& comm, MPI_Request* place, std::initializer_list<Object*> kept,
                    const Plan& plan);
  /// Makes a persistent one.
  static void make(const Call& call, Comm& comm, MPI_Request* place, std::initializer_list<Object*> kept,
                   const Plan& plan);

  explicit PendingCall(Request& request) noexcept;
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;
  /// Releases what it keeps. Its request may be used for another call then.
  void clear() noexcept;

  /// Of a persistent one: begins it.
  void start();
  [[nodiscard]] const char* name() const noexcept { return name_; }

  // ---- what its own function calls
  /// Its arguments are right: it takes part in the calls of its communicator, or one of the same ranks. Waits until
  /// those that came before are over. Of one that is not brief;
  void begin(Comm& comm);
  /// of a brief one, whose communicator it is, and none came before.
  void count() noexcept { ++numbers_; }
  Wake wait(Condition& condition);
  [[nodiscard]] bool is_brief() const noexcept { return is_brief_; }
  /// The call as it goes on later.
  [[nodiscard]] Call again() noexcept { return {name_, rank_, is_large_, *this}; }
  /// Of a brief one: leaves a Kind(*this, arguments...) for later. The caller returns at once.
  template <class Kind, class... Arguments>
  void leave(const Arguments&... arguments) {
    static_assert(sizeof(Kind) <= sizeof rest_memory_ && alignof(Kind) <= rest_alignment);
    rest_ = ::new (static_cast<void*>(rest_memory_)) Kind(*this, arguments...);
    awaited_ = &rest_->awaited();
  }
  void keep(Object& object);
  /// A copy of the first `count`, which each run of the call gets in the same order.
  Numbers keep(Numbers given, int count);

 private:
  friend class PendingCalls;
  struct Runner;
  class Turn;
  struct Checked {};  // thrown by begin() where only that was wanted

  static Request& make_request(const Call& call, Comm& comm);
  [[gnu::cold, gnu::noinline]] static void make_first(Request& request);
  void keep_all(std::initializer_list<Object*> objects);
  void check(Comm& comm);
  [[nodiscard]] bool can_be_brief(const Plan& plan) const noexcept;
  void start_briefly(const Plan& plan, std::initializer_list<Object*> kept);
  void start_on_stack();
  void reset(bool is_brief) noexcept;
  template <class Part>
  void carry_out(const Part& part) noexcept;
  void run(const Plan& plan) noexcept;
  void go_on() noexcept;

  static constexpr std::size_t rest_bytes = 320;
  static constexpr std::size_t rest_alignment = 16;

  Rank& rank_;
  Request& request_;
  Comm* aside_ = nullptr;  // where it meets the others'; that of a persistent call is its own
  const char* name_ = "";
  Plan plan_;
  std::vector<Object*> kept_;  // held
  std::vector<std::unique_ptr<MPI_Count[]>> kept_numbers_;
  std::size_t numbers_used_ = 0;  // of those, by this run
  bool is_large_ = false;
  bool only_checks_ = false;
  bool is_over_ = false;
  bool is_brief_ = false;
  std::uint32_t numbers_ = 0;     // of the calls of `aside_`, that it has taken
  Runner* runner_ = nullptr;      // null: it is brief, or has one rank and never waits
  Rest* rest_ = nullptr;          // of a brief one; null: none is left
  Condition* awaited_ = nullptr;  // null: it runs
  Wake how_ = Wake::done;         // how that wait has ended
  std::exception_ptr stopped_;    // what ends the task that goes on with it
  alignas(rest_alignment) std::byte rest_memory_[rest_bytes];
};

/// Those of a rank that are under way.
class PendingCalls {
 public:
  PendingCalls();
  ~PendingCalls();
  PendingCalls(const PendingCalls&) = delete;
  PendingCalls& operator=(const PendingCalls&) = delete;

  [[nodiscard]] bool is_empty() const noexcept { return calls_.empty(); }
  /// The same, and other threads of the program begin none while the caller waits.
  [[nodiscard]] bool stays_empty() const noexcept { return calls_.empty() && (!threads_call || !others_call()); }
  /// Goes on with those that need not wait.
  void go_on(const char* call);
  /// As api::wait(). Meanwhile they go on. Of a pending call, it pauses.
  Wake wait(const Call& call, Condition& condition);
  /// The same until this call is over, if that is all that can happen meanwhile. Otherwise it does nothing.
  Wake wait_for(const Call& call, PendingCall& only);
  /// As `receive()`, which calls api::receive() or its like: meanwhile they go on. `post(receive)`: posts the same.
  template <class Post, class Receive>
  std::optional<api::Arrived> receive(const Call& call, const Post& post, const Receive& receive) {
    if (stays_empty()) [[likely]]
      return receive();
    api::MailboxReceive posted;
    const Closing closing{posted};
    post(posted);
    await(call, posted);
    return posted.has_received() ? posted.arrived() : receive();  // which says why
  }
  /// What the program's task has shown to others is not read any more, and they never go on.
  void abandon() noexcept;
  /// Fails if any is not over.
  void check_over() const;

  bool threads_call = false;  ///< All threads may call: MPI_THREAD_MULTIPLE.

 private:
  friend class PendingCall;
  class Any;
  struct Closing {
    api::MailboxReceive& receive;
    ~Closing() { api::cancel(receive); }
  };

  [[nodiscard]] static bool others_call() noexcept;
  /// So that add_brief() does not throw.
  void make_room() {
    if (calls_.size() == calls_.capacity()) calls_.reserve(2 * calls_.size() + 1);
  }
  void add_brief(PendingCall& call) noexcept;
  void add(PendingCall& call);
  void give_runner(PendingCall& call);
  void resume(PendingCall& call, Wake how);
  void await(const Call& call, const Posted& posted);

  std::vector<PendingCall*> calls_;  // as they began
  std::vector<std::unique_ptr<PendingCall::Runner>> runners_;
  std::vector<PendingCall::Runner*> free_runners_;
};

/// Messages have come, all of a set.
class Received final : public Condition {
 public:
  Received(const Rank& rank, const RequestSet& set) noexcept : rank_(rank), set_(set) {}

  [[nodiscard]] bool holds() const noexcept override;
  [[nodiscard]] bool is_about_memory() const noexcept override { return false; }
  [[nodiscard]] bool needs(std::uint32_t) const noexcept override { return false; }  // then they are closed
  [[nodiscard]] std::string missing() const override;
  void let_go() noexcept override {}

 private:
  const Rank& rank_;
  const RequestSet set_;
};

/// Waits for all of a set, whether calls are pending or not. False: the machine stops.
bool wait_for_messages(const Call& call, const RequestSet& set);

}  // namespace aplib::mpi
