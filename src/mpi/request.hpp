// SPDX-License-Identifier: MIT
// Request: a send or receive that a program has begun and completes later.
//
// The data of a small send leave at once, because the core buffers them. Those of a large one within a process stay
// where they are until the receiver copies them, from type to type (api::lend()); it is open so long. So is another
// synchronous send, whose message asks for a receipt (kernel/mailbox.hpp), until that has come. Receipts come in the
// order in which messages are received.
//
// Invariant: a request holds its communicator and datatype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "aplib/error.hpp"
#include "kernel/mailbox.hpp"
#include "mpi/comm.hpp"
#include "mpi/rank.hpp"
#include "mpi/status.hpp"
#include "mpi/type.hpp"

namespace aplib::mpi {

enum class Mode : std::uint8_t { standard, buffered, synchronous, ready };

struct Request;

/// What a request does beyond one message: steps, each of which waits for one.
class Steps {
 public:
  virtual ~Steps() = default;
  /// Of a persistent request, at each start. Begins to wait; false: there is nothing to wait for.
  virtual bool begin(const char* call, Request& request);
  /// What awaited() gave is over. Begins to wait again; false: that was the last step.
  virtual bool go_on(const char* call, Request& request) = 0;
  /// What it waits for now.
  [[nodiscard]] virtual api::MailboxReceive& awaited(Request& request) noexcept;
  /// Of a persistent request that is not active: it waits for something that must still come.
  [[nodiscard]] virtual bool has_open() const noexcept { return false; }
};

/// How the core copies elements that do not lie side by side.
struct ElementsForm : aplib::Form {
  explicit ElementsForm(const Elements& described = {}) noexcept;

  Elements elements;
};

/// What a program does with a generalised request. They throw Failure if its functions fail.
struct General {
  void tell(MPI_Status* status) const;
  void end() const;
  void cancel(bool is_over) const;

  MPI_Grequest_query_function* query = nullptr;
  MPI_Grequest_free_function* free = nullptr;
  MPI_Grequest_cancel_function* remove = nullptr;
  void* state = nullptr;
};

struct Request : Object {
  static constexpr ObjectKind kind = ObjectKind::request;
  enum class Does : std::uint8_t {
    send,
    receive,
    nothing,  ///< It is over from the beginning, or when it has no steps left; `result` is its status.
    general,  ///< The program completes it.
    collective,
    partitioned,  ///< As nothing; it is persistent, and has steps again at each start.
  };

  /// A new one, or one that has ended.
  [[nodiscard]] static Request& make(Comm& used, Does what);
  ~Request() override {
    if (comm != nullptr) let_go(*comm);
  }

  [[nodiscard]] bool is_open() const noexcept { return posted.open || steps != nullptr || is_pending; }
  /// What it waits for can never come, because its peer has ended. Tests take it for open; a wait for it fails.
  [[nodiscard]] bool is_in_vain() const noexcept {
    return posted.how == Wake::ended && (does == Does::receive || does == Does::send) && is_active &&
           !posted.cancelled && !posted.open && peer != MPI_PROC_NULL;
  }
  [[nodiscard]] bool is_over() const noexcept { return is_active && !is_open() && !is_in_vain(); }
  /// The message that it waits for now.
  [[nodiscard]] api::MailboxReceive& awaited() noexcept { return steps == nullptr ? posted : steps->awaited(*this); }
  /// While it is active, it cannot be freed or cancelled.
  [[nodiscard]] bool stays() const noexcept { return does == Does::collective || does == Does::partitioned; }
  /// As many steps as need no wait.
  void go_on(const char* call);
  /// The program's handle is of no use any more. The one of the rank's finished sends stays for others.
  void drop() noexcept {
    if (this != &rank().sent()) release();
  }

  Comm* comm = nullptr;  ///< Null: it has ended.
  Does does = Does::nothing;
  Mode mode = Mode::standard;
  bool is_persistent = false;
  bool is_active = true;    ///< Begun, and not completed. Only persistent ones exist without.
  bool is_pending = false;  ///< A collective call that is under way.
  int peer = MPI_PROC_NULL;
  int tag = 0;
  Elements elements{};
  BasicType code{};                      ///< Of a predefined type: it has no `datatype`.
  DatatypePtr datatype;                  ///< Keeps the layout of `elements`.
  ElementsForm form;                     ///< Of `elements`, if they do not lie side by side.
  Message apart;                         ///< A receive's bytes that have not come straight to such elements.
  std::unique_ptr<Steps> steps;          ///< Null: none is left.
  std::unique_ptr<Steps> resting;        ///< Those of a persistent request, while it has none.
  std::unique_ptr<PendingCall> pending;  ///< The collective call; null: it was never one.
  std::optional<Failure> failure;        ///< Of a collective call, and of one that does nothing.
  MPI_Status result{};
  General general{};
  api::MailboxReceive posted;  ///< The message of a receive, what a send waits for.
  Request* next_spare = nullptr;

 private:
  explicit Request(Rank& rank) : Object(rank, kind) {}
  void end() noexcept override;
};

[[noreturn]] void fail_unsent(int source);
[[noreturn]] void fail_unread(int dest);
/// Waits for a message of a rank, as api::receive() does. `fail_of_rank`: it has ended.
template <class Wait>
std::optional<api::Arrived> wait_for_rank(int rank, void (*fail_of_rank)(int rank), const Wait& wait) {
  try {
    return wait();
  } catch (const Error& error) {
    if (error.code() == Errc::ended) fail_of_rank(rank);
    throw;
  }
}

/// As api::receive(). Pending calls go on meanwhile.
std::optional<api::Arrived> receive_bytes(const Call& call, const api::Mailbox& mailbox, std::span<std::byte> place,
                                          const api::LabelWish& wish);
/// Receives a message into `place`. Nothing: the machine stops.
std::optional<api::Arrived> receive(const Call& call, const Comm& comm, int source, int tag,
                                    std::span<std::byte> place);
/// The same, for elements that do not lie side by side.
std::optional<api::Arrived> receive(const Call& call, const Comm& comm, int source, int tag, const Elements& elements);
/// Waits for a message and leaves it to the next receive. Nothing: the machine stops.
std::optional<api::Arrived> await_message(const Call& call, const Comm& comm, int source, int tag);

/// The status of one that is over, which stays so. Of another one, or of none, an empty status.
void tell_status(const Request* request, MPI_Status* status);
/// The status of one that is over. It is not active any more; the failure that it ended with, raised on its
/// communicator.
std::optional<Failure> complete(const Call& call, Request& request, MPI_Status* status);

/// Begins it, again if it is persistent.
void start(const Call& call, Request& request);

/// Waits until all that are active are over, or one of them; false: the machine stops.
bool wait_for(const Call& call, const MPI_Request* requests, std::size_t count, bool all);
/// Without waiting: brings to those that are open what has come. Lets others run after a few misses.
void poll_for(const Call& call, const MPI_Request* requests, std::size_t count);

/// It is under way, and of a kind that stays so. `what`: "freed".
[[noreturn]] void fail_under_way(const Request& request, const char* what);
/// The program has no handle of it any more. It ends when it is over, and that is noticed.
void free_request(const Call& call, Request& request);
/// Ends those among them that are over.
void end_freed_requests(const Call& call);
/// MPI ends: no request is open afterwards.
void close_requests(Rank& rank) noexcept;

/// Fails for MPI_REQUEST_NULL, too.
Request& request_of(const Call& call, const char* parameter, MPI_Request handle);
[[noreturn]] void fail_request(const char* parameter, std::size_t i, MPI_Request handle);
/// What a program's handle means: null for MPI_REQUEST_NULL.
inline Request* request_at(const char* parameter, std::size_t i, MPI_Request handle) {
  if (handle == MPI_REQUEST_NULL) return nullptr;
  Request* const found = find_made<Request>(handle);
  if (found == nullptr) [[unlikely]]
    fail_request(parameter, i, handle);
  return found;
}
/// The same of a handle that is known to be one, or was and has ended since.
inline Request* known_request(MPI_Request handle) noexcept {
  return handle == MPI_REQUEST_NULL ? nullptr : static_cast<Request*>(reinterpret_cast<Object*>(handle));
}

/// The wish of a receive from `source`, which is no MPI_PROC_NULL.
inline api::LabelWish wish_of(const Comm& comm, int source, int tag) noexcept {
  api::LabelWish wish{any_cell, comm.context(), {}};
  if (source != MPI_ANY_SOURCE) wish.cell = comm.cell_of(source);
  if (tag != MPI_ANY_TAG) wish.tag = static_cast<std::uint32_t>(tag);
  return wish;
}
/// The status of a message on the communicator.
inline void set_arrived(MPI_Status* status, const Comm& comm, const api::Arrived& arrived) noexcept {
  set_status(status, comm.rank_of(arrived.label.cell), static_cast<int>(arrived.label.tag),
             static_cast<MPI_Count>(arrived.bytes));
}
/// A message does not fill the memory for it: fails if it is longer, or ends within a basic element of `type`.
void check_other_size(const Comm& comm, const api::Arrived& arrived, MPI_Count room, const Datatype& type);
/// The same for any message to elements of this type.
inline void check_fit(const Comm& comm, const api::Arrived& arrived, MPI_Count room, const Datatype& type) {
  if (arrived.bytes != static_cast<std::size_t>(room)) check_other_size(comm, arrived, room, type);
}

void check_dest(const Comm& comm, int dest);
void check_source(const Comm& comm, int source);
void check_tag(const char* parameter, int tag);
void check_any_tag(const char* parameter, int tag);

/// Sends the elements in any case with a copy.
void send_elements(const char* call, const api::Mailbox& to, const api::Label& label, const Elements& elements);
/// Sends the elements to a rank. `dest` is no MPI_PROC_NULL.
void send_elements(const char* call, Comm& comm, int dest, int tag, const Elements& elements, Mode mode);
/// Whether it is worth trying to send them without a copy.
inline bool can_be_lent(const Elements& elements, Mode mode) noexcept {
  const auto bytes = static_cast<std::size_t>(elements.bytes());
  if (bytes < lend_when_full_from_bytes) [[likely]]
    return false;
  return mode != Mode::buffered && (bytes >= lend_from_bytes || api::is_full());
}
/// Does so. `sent` is open until they have been received; `form` and the elements stay so long. False: nothing is sent;
/// use send_elements().
bool lend_elements(const char* call, const api::Mailbox& to, const api::Label& label, const Elements& elements,
                   ElementsForm& form, api::MailboxReceive& sent);
bool lend_elements(const char* call, Comm& comm, int dest, int tag, const Elements& elements, ElementsForm& form,
                   api::MailboxReceive& sent);
/// Waits until the message of a synchronous send has been received.
void await_receipt(const Call& call, const Comm& comm, int dest, int tag);

/// The place where the cell's messages wait.
inline api::Mailbox mailbox_of(const Rank& rank) noexcept { return {TaskId{rank.main_task}, api::Space::mpi}; }

}  // namespace aplib::mpi
