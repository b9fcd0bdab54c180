// SPDX-License-Identifier: MIT
// Request: a send or receive that a program has begun and completes later.
//
// The data of a send leave at once, because the core buffers them; so only a synchronous send can be open. Its message
// carries a flag, and it is over when its receiver has acknowledged it. The receiver does that when it finds the flag
// at a message that it has received. A receive that is open meanwhile may be filled while its rank waits for something
// else, which may depend on the sender. Hence the notice: it follows such a message, so when it has come the receive is
// filled, and every wait of the library also waits for notices.
//
// Invariants: (1) every request that can be open and is not completed is in its rank's Receives; (2) a message is
// acknowledged once: Request::is_acknowledged; (3) a request holds its communicator and datatype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kernel/mailbox.hpp"
#include "mpi/comm.hpp"
#include "mpi/rank.hpp"
#include "mpi/type.hpp"

namespace aplib::mpi {

enum class Mode : std::uint8_t { standard, buffered, synchronous, ready };

struct Request : Object {
  static constexpr ObjectKind kind = ObjectKind::request;
  enum class Does : std::uint8_t {
    send,
    receive,
    nothing,  ///< It is over from the beginning; `result` is its status.
  };

  Request(Comm& used, Does what) : Object(used.owner(), kind), comm(&used), does(what) { used.hold(); }
  ~Request() override { let_go(*comm); }

  [[nodiscard]] bool is_open() const noexcept { return posted.open; }
  [[nodiscard]] bool is_over() const noexcept { return is_active && !posted.open; }

  Comm* comm;
  Does does;
  Mode mode = Mode::standard;
  bool is_persistent = false;
  bool is_active = true;  ///< Begun, and not completed. Only persistent ones exist without.
  bool is_freed = false;  ///< The program has no handle of it any more.
  bool is_acknowledged = false;
  int peer = MPI_PROC_NULL;
  int tag = 0;
  Elements elements{};
  DatatypePtr datatype;                 ///< Keeps the layout of `elements`.
  std::unique_ptr<std::byte[]> packed;  ///< A receive's bytes, if the elements do not lie side by side.
  std::optional<Failure> failure;       ///< Of one that does nothing.
  MPI_Status result{};
  api::MailboxReceive posted;  ///< The message of a receive, the acknowledgement of a send.
  Request* next = nullptr;     ///< In Receives.
  Request* previous = nullptr;
};

/// The requests of a rank that are begun and not completed, and the rank's waits.
class Receives {
 public:
  explicit Receives(Rank& rank) : rank_(rank) {}
  Receives(const Receives&) = delete;
  Receives& operator=(const Receives&) = delete;

  void add(Request& request) noexcept;
  void remove(Request& request) noexcept;

  /// Acknowledges what has come to those that are open, for calls that neither wait nor test them.
  void tend(const char* call);
  /// Receives a message as api::receive(), and acknowledges it. Nothing: the machine stops.
  std::optional<api::Arrived> receive(const char* call, std::span<std::byte> buffer, const api::LabelWish& wish);
  /// The same from another mailbox, as that of collectives, where nothing is acknowledged.
  std::optional<api::Arrived> receive_in(const char* call, const api::Mailbox& mailbox, std::span<std::byte> buffer,
                                         const api::LabelWish& wish);
  /// Waits until it is over. False: the machine stops.
  bool wait(const char* call, api::MailboxReceive& posted);
  /// Waits until one of those that are active is over. False: the machine stops.
  bool wait_any(const char* call, const MPI_Request* requests, std::size_t count);
  /// Without waiting: brings to those that are open what has come. Lets others run after a few misses.
  void poll(const char* call, const MPI_Request* requests, std::size_t count);
  /// Acknowledges those whose notice has come.
  void serve(const char* call);
  /// The same by what has come with a message.
  void serve_notices(const char* call);
  /// Ends those that the program has freed and that are over.
  void sweep(const Call& call);
  /// MPI ends: no request is open afterwards.
  void close() noexcept;

 private:
  [[nodiscard]] bool is_only(const Posted& posted) const noexcept;
  bool wait_for(const char* call, const RequestSet& set);
  void watch(const char* call);
  void unwatch(const char* call);

  Rank& rank_;
  Request* first_ = nullptr;
  std::size_t count_ = 0;
  api::MailboxReceive notice_;
};

/// Tells the sender of a message with the flag that it is received.
void acknowledge(const char* call, Rank& rank, const api::Arrived& arrived);

/// The status of one that is over. It is not active any more; the failure that it ended with, raised on its
/// communicator.
std::optional<Failure> complete(const Call& call, Request& request, MPI_Status* status);

/// Begins it, again if it is persistent.
void start(const Call& call, Request& request);

/// What a program's handle means: null for MPI_REQUEST_NULL.
Request* request_at(const char* parameter, std::size_t i, MPI_Request handle);

/// The wish of a receive from `source`, which is no MPI_PROC_NULL.
api::LabelWish wish_of(const Comm& comm, int source, int tag) noexcept;
/// The status of a message on the communicator.
void set_arrived(MPI_Status* status, const Comm& comm, const api::Arrived& arrived) noexcept;
/// Fails if a message was longer than the memory for it.
void check_room(const Comm& comm, const api::Arrived& arrived, MPI_Count room);

void check_dest(const Comm& comm, int dest);
void check_source(const Comm& comm, int source);
void check_tag(const char* parameter, int tag);
void check_any_tag(const char* parameter, int tag);

/// Sends the elements to a rank. `dest` is no MPI_PROC_NULL.
void send_elements(const char* call, Comm& comm, int dest, int tag, const Elements& elements, Mode mode);

/// The place where the cell's messages wait.
inline api::Mailbox mailbox_of(const Rank& rank) noexcept { return {TaskId{rank.main_task}, api::Space::mpi}; }

inline bool has_flag(const api::Arrived& arrived) noexcept { return (arrived.label.context & synchronous_flag) != 0; }

}  // namespace aplib::mpi
