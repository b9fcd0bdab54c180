// SPDX-License-Identifier: MIT
// Partitioned communication: a message whose partitions the program makes ready one by one, in any order, and which may
// be partitioned otherwise where it is received.
//
// A partition of the sender is one message, which leaves when it is ready. Its tag says which one it is: each
// partitioned send has a range of tags among those of its rank. The receiver learns of them by a *pairing*, a message
// that goes before all partitions, when the send is made. Pairings have the program's tag, and a channel of their own;
// so sends and receives are matched in the order in which they are made. A receive posts all partitions at each start.
// Those of an earlier start come first, because messages between two cells stay in order.
//
// A receive may have room for more, as any receive. If there is not enough, it takes all partitions, keeps none, and
// fails: so the sender does not wait for ever.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "mpi/collective.hpp"
#include "mpi/info.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi {

namespace {

/// What a send tells the receive that it is paired with.
struct Pairing {
  std::uint32_t first_tag = 0;
  std::uint32_t count = 0;  ///< Of partitions.
  Count bytes = 0;          ///< Of a partition.
};

/// A partition of the sender, on either side.
struct Partition {
  ElementsForm form;
  api::MailboxReceive message;  ///< What the receiver waits for, and the sender where the partition is lent.
  bool is_done = false;         ///< It is ready; it is where it belongs.
};

/// What it fails by, if it does.
template <class Check>
std::optional<Failure> failure_of(const Check& check) {
  try {
    check();
  } catch (Failure& failure) {
    return std::move(failure);
  }
  return std::nullopt;
}

/// Partitions of one side, as its program has given them.
class Partitioned : public Steps {
 public:
  Partitioned(Comm& comm, int peer, int count, const Elements& whole)
      : rank_(comm.owner()), comm_(comm), peer_(peer), count_(static_cast<std::uint32_t>(count)), whole_(whole) {}
  ~Partitioned() override {
    for (std::uint32_t i = 0; i < sent_; ++i) api::cancel(partitions_[i].message);
  }
  Partitioned(const Partitioned&) = delete;
  Partitioned& operator=(const Partitioned&) = delete;

  [[nodiscard]] virtual bool is_send() const noexcept = 0;
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  void check(const char* parameter, int partition) const {
    if (partition >= 0 && static_cast<std::uint32_t>(partition) < count_) return;
    fail(MPI_ERR_ARG, fmt::format("{} is {}; the request has partitions 0..{}", parameter, partition, count_ - 1));
  }

 protected:
  [[nodiscard]] api::Label label_of(std::uint32_t tag) const noexcept {
    return {comm_.cell_of(peer_), comm_.context() | partitioning, tag};
  }
  void make_partitions(std::uint32_t count) {
    partitions_ = std::make_unique<Partition[]>(count);
    sent_ = count;
  }

  Rank& rank_;
  Comm& comm_;  // which the request holds; perhaps gone before, when the rank ends
  int peer_;
  std::uint32_t count_;
  Elements whole_;
  std::unique_ptr<Partition[]> partitions_;  // the sender's
  std::uint32_t sent_ = 0;                   // of these
  std::uint32_t next_ = 0;                   // that is waited for; all before are over
};

// ---------------------------------------------------------------- the sender

class PartitionedSend final : public Partitioned {
 public:
  PartitionedSend(Comm& comm, int dest, int count, const Elements& whole) : Partitioned(comm, dest, count, whole) {
    make_partitions(count_);
  }
  ~PartitionedSend() override {
    if (has_tags_) rank_.partition_tags.give_back(first_tag_);
  }

  /// Tells the receiver.
  void pair(const char* call, int tag) {
    const auto first = rank_.partition_tags.take(count_, api::Label::tag_max);
    if (!first)
      fail(MPI_ERR_OTHER, fmt::format("the rank's partitioned sends have too many partitions for {} more; free some "
                                      "by MPI_Request_free",
                                      count_));
    first_tag_ = *first;
    has_tags_ = true;
    const Pairing told{first_tag_, count_, whole_.bytes() / count_};
    api::send(call, mailbox_of(rank_),
              {comm_.cell_of(peer_), comm_.context() | pairing, static_cast<std::uint32_t>(tag)},
              std::as_bytes(std::span(&told, 1)));
  }

  [[nodiscard]] bool is_send() const noexcept override { return true; }
  [[nodiscard]] bool is_ready(int partition) const noexcept {
    return partitions_[static_cast<std::size_t>(partition)].is_done;
  }

  // That all are ready it learns by an empty message of the rank to itself, as other threads may make them so.
  bool begin(const char* call, Request& request) override {
    for (std::uint32_t i = 0; i < count_; ++i) partitions_[i].is_done = false;
    ready_ = 0;
    next_ = 0;
    are_all_ready_ = false;
    request.failure.reset();
    if (peer_ == MPI_PROC_NULL) return false;
    request.posted.cancelled = false;
    request.posted.how = Wake::done;
    own_tag_ = rank_.general_requests++ % api::Label::tag_max;
    const api::Label own = own_label();
    api::post(call, mailbox_of(rank_), request.posted, {}, {own.cell, own.context, own.tag});
    return true;
  }

  void make_ready(const char* call, int number) {
    Partition& partition = partitions_[static_cast<std::size_t>(number)];
    if (partition.is_done)
      fail(MPI_ERR_ARG, fmt::format("partition {} is ready already; make each ready once after a start", number));
    partition.is_done = true;
    if (peer_ == MPI_PROC_NULL) return;
    try {
      send(call, static_cast<std::uint32_t>(number), partition);
    } catch (...) {
      partition.is_done = false;
      throw;
    }
    if (++ready_ == count_) api::send(call, mailbox_of(rank_), own_label(), {});
  }

  bool go_on(const char*, Request& request) override {
    are_all_ready_ = true;
    for (; next_ < count_; ++next_) {
      const api::MailboxReceive& sent = partitions_[next_].message;
      if (sent.open) return true;
      if (sent.how != Wake::done && !request.failure) request.failure = failure_of([&] { fail_unread(peer_); });
    }
    return false;
  }
  api::MailboxReceive& awaited(Request& request) noexcept override {
    return are_all_ready_ && next_ < count_ ? partitions_[next_].message : request.posted;
  }

 private:
  [[nodiscard]] api::Label own_label() const noexcept {
    return {CellId{rank_.world_rank()}, Comm::self_context | readying, own_tag_};
  }
  void send(const char* call, std::uint32_t number, Partition& partition) {
    const Count each = whole_.count / count_;
    const Elements part = part_of(whole_, number * each, each);
    const api::Mailbox to = mailbox_of(rank_);
    const api::Label label = label_of(first_tag_ + number);
    partition.message.how = Wake::done;
    if (can_be_lent(part, Mode::standard) && lend_elements(call, to, label, part, partition.form, partition.message))
      return;
    send_elements(call, to, label, part);
  }

  std::uint32_t first_tag_ = 0;
  bool has_tags_ = false;
  std::uint32_t own_tag_ = 0;
  std::uint32_t ready_ = 0;
  bool are_all_ready_ = false;
};

// ---------------------------------------------------------------- the receiver

class PartitionedReceive final : public Partitioned {
 public:
  PartitionedReceive(Comm& comm, int source, int tag, int count, const Elements& whole)
      : Partitioned(comm, source, count, whole), tag_(tag), place_(whole.contiguous()) {
    if (place_ != nullptr || whole.bytes() == 0) return;
    apart_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(whole.bytes()));
    place_ = reinterpret_cast<char*>(apart_.get());
  }
  ~PartitionedReceive() override { api::cancel(paired_); }

  /// It will hear of the next send that is made for such a receive.
  void await_pairing(const char* call) {
    api::post(call, mailbox_of(rank_), paired_, std::as_writable_bytes(std::span(&pairing_, 1)),
              {comm_.cell_of(peer_), comm_.context() | pairing, static_cast<std::uint32_t>(tag_)});
  }
  [[nodiscard]] bool is_send() const noexcept override { return false; }
  // The pairing is for this receive, and for no later one.
  [[nodiscard]] bool has_open() const noexcept override { return paired_.open; }

  bool begin(const char*, Request& request) override {
    request.failure.reset();
    next_ = 0;
    posted_ = 0;
    if (peer_ != MPI_PROC_NULL) return true;
    set_null_status(&request.result);
    return false;
  }

  bool go_on(const char* call, Request& request) override {
    if (partitions_ == nullptr && paired_.has_received()) meet();
    for (; posted_ < sent_; ++posted_) post(call, posted_);
    for (; next_ < sent_; ++next_) {
      if (partitions_[next_].message.open) return true;
      finish(next_);
    }
    tell(request);
    return false;
  }
  api::MailboxReceive& awaited(Request&) noexcept override {
    return next_ < posted_ ? partitions_[next_].message : paired_;
  }

  /// All bytes of the partition are in their place, or none come there.
  [[nodiscard]] bool has(int partition) noexcept {
    if (posted_ < sent_ || partitions_ == nullptr) return false;
    const Count bytes = whole_.bytes() / count_;
    const Count end = (partition + 1) * bytes;
    std::uint32_t first = 0;
    std::uint32_t last = sent_ - 1;
    if (fits() && bytes > 0 && end <= pairing_.bytes * sent_) {
      first = static_cast<std::uint32_t>((end - bytes) / pairing_.bytes);
      last = static_cast<std::uint32_t>((end - 1) / pairing_.bytes);
    }
    for (std::uint32_t i = std::max(first, next_); i <= last; ++i) {
      if (partitions_[i].message.open) return false;
      finish(i);
    }
    return true;
  }

 private:
  [[nodiscard]] bool fits() const noexcept {
    return pairing_.bytes >= 0 && pairing_.bytes <= whole_.bytes() / std::max(sent_, 1U);
  }
  void meet() {
    if (paired_.arrived().bytes != sizeof pairing_ || pairing_.count == 0 ||
        pairing_.count > api::Label::tag_max - std::min(pairing_.first_tag, api::Label::tag_max)) {
      fail(MPI_ERR_INTERN, fmt::format("rank {} tells nothing valid of its partitioned send; are all installations of "
                                       "APlib the same?",
                                       peer_));
    }
    make_partitions(pairing_.count);
  }
  void post(const char* call, std::uint32_t i) {
    const auto bytes = static_cast<std::size_t>(pairing_.bytes);
    const std::span<std::byte> place =
        fits() ? std::span(reinterpret_cast<std::byte*>(place_) + i * bytes, bytes) : std::span<std::byte>();
    partitions_[i].is_done = false;
    partitions_[i].message.how = Wake::done;
    const api::Label label = label_of(pairing_.first_tag + i);
    api::post(call, mailbox_of(rank_), partitions_[i].message, place, {label.cell, label.context, label.tag});
  }
  void finish(std::uint32_t i) noexcept {
    if (std::exchange(partitions_[i].is_done, true) || apart_ == nullptr || !fits() ||
        !partitions_[i].message.has_received())
      return;
    const Count first = i * pairing_.bytes;
    unpack(whole_, apart_.get() + first, first, pairing_.bytes);
  }
  /// What has become of it.
  void tell(Request& request) const {
    bool has_all = paired_.has_received();
    for (std::uint32_t i = 0; i < sent_; ++i) has_all = has_all && partitions_[i].message.has_received();
    const Count bytes = fits() ? pairing_.bytes * sent_ : whole_.bytes();
    set_status(&request.result, peer_, tag_, bytes);
    request.failure = failure_of([&] {
      if (!has_all) fail_unsent(peer_);
      if (!fits()) {
        fail(
            MPI_ERR_TRUNCATE,
            fmt::format("rank {} sends {} partitions of {} bytes with tag {}, but {} partitions of count elements make "
                        "room for {} bytes; nothing is received. Let both sides have the same bytes in all",
                        peer_, sent_, pairing_.bytes, tag_, count_, whole_.bytes()));
      }
      check_fit(comm_, {label_of(static_cast<std::uint32_t>(tag_)), static_cast<std::size_t>(bytes)}, whole_.bytes(),
                *request.datatype);
    });
  }

  int tag_;
  char* place_;                         // of all bytes, side by side
  std::unique_ptr<std::byte[]> apart_;  // there, if the elements do not lie so
  Pairing pairing_;
  api::MailboxReceive paired_;
  std::uint32_t posted_ = 0;  // partitions, since the start
};

// ---------------------------------------------------------------- calls

Elements whole_of(const Call& call, const void* buf, int partitions, MPI_Count count, const TypeHandle& type) {
  check_count(call, "count", count);
  if (partitions < 1 || static_cast<std::uint32_t>(partitions) >= api::Label::tag_max)
    fail(MPI_ERR_ARG, fmt::format("partitions is {}; use 1..{}", partitions, api::Label::tag_max - 1));
  MPI_Count all = 0;
  if (__builtin_mul_overflow(count, MPI_Count{partitions}, &all))
    fail(MPI_ERR_COUNT, fmt::format("{} partitions of {} elements do not fit into 64 bits", partitions, count));
  return elements_at("buf", buf, all, *committed("datatype", type));
}

Request& new_request(Comm& comm, const TypeHandle& type, std::unique_ptr<Steps> steps) {
  Request& request = Request::make(comm, Request::Does::partitioned);
  request.is_persistent = true;
  request.is_active = false;
  request.datatype = type.datatype;
  request.resting = std::move(steps);
  set_empty_status(&request.result);
  return request;
}

Partitioned& steps_of(const Request& request, bool is_send) {
  if (request.does == Request::Does::partitioned) {
    auto& steps = static_cast<Partitioned&>(request.steps != nullptr ? *request.steps : *request.resting);
    if (steps.is_send() == is_send) return steps;
  }
  fail(MPI_ERR_REQUEST, fmt::format("request is no partitioned {}; give one of MPI_P{}_init",
                                    is_send ? "send" : "receive", is_send ? "send" : "recv"));
}

/// Of a send that has been started.
PartitionedSend& started_send(const Request& request) {
  auto& send = static_cast<PartitionedSend&>(steps_of(request, true));
  if (!request.is_active) fail(MPI_ERR_REQUEST, "request is not active; start it before its partitions are ready");
  return send;
}

void check_not_ready(const PartitionedSend& send, const char* parameter, int partition) {
  send.check(parameter, partition);
  if (send.is_ready(partition))
    fail(MPI_ERR_ARG, fmt::format("{} has partition {}, which is ready already; make each ready once after a start",
                                  parameter, partition));
}

}  // namespace

void psend_init(const Call& call, const void* buf, int partitions, MPI_Count count, TypeHandle& type, int dest, int tag,
                Comm& comm, Info*, MPI_Request* place) {
  check_dest(comm, dest);
  check_tag("tag", tag);
  auto steps = std::make_unique<PartitionedSend>(comm, dest, partitions, whole_of(call, buf, partitions, count, type));
  PartitionedSend& send = *steps;
  Request& request = new_request(comm, type, std::move(steps));
  try {
    if (dest != MPI_PROC_NULL) send.pair(call.name(), tag);
  } catch (...) {
    request.release();
    throw;
  }
  *place = handle_of<MPI_Request>(request);
}

void precv_init(const Call& call, void* buf, int partitions, MPI_Count count, TypeHandle& type, int source, int tag,
                Comm& comm, Info*, MPI_Request* place) {
  check_dest(comm, source);  // whose name it has in the standard; there are no wildcards
  check_tag("tag", tag);
  auto steps =
      std::make_unique<PartitionedReceive>(comm, source, tag, partitions, whole_of(call, buf, partitions, count, type));
  PartitionedReceive& receive = *steps;
  Request& request = new_request(comm, type, std::move(steps));
  if (source != MPI_PROC_NULL) receive.await_pairing(call.name());
  *place = handle_of<MPI_Request>(request);
}

void pready(const Call& call, int partition, Request& request) {
  PartitionedSend& send = started_send(request);
  send.check("partition", partition);
  send.make_ready(call.name(), partition);
}

void pready_range(const Call& call, int low, int high, Request& request) {
  PartitionedSend& send = started_send(request);
  send.check("partition_low", low);
  send.check("partition_high", high);
  if (low > high)
    fail(MPI_ERR_ARG,
         fmt::format("partition_low is {}, and partition_high {}; both ends belong to the range", low, high));
  for (int i = low; i <= high; ++i) check_not_ready(send, "the range", i);
  for (int i = low; i <= high; ++i) send.make_ready(call.name(), i);
}

void pready_list(const Call& call, int length, const int list[], Request& request) {
  PartitionedSend& send = started_send(request);
  for (int i = 0; i < length; ++i) check_not_ready(send, "array_of_partitions", list[i]);
  for (int i = 0; i < length; ++i) send.make_ready(call.name(), list[i]);
}

void parrived(const Call& call, MPI_Request handle, int partition, int* flag) {
  *flag = 1;
  if (handle == MPI_REQUEST_NULL) return;
  Request& request = request_of(call, "request", handle);
  auto& receive = static_cast<PartitionedReceive&>(steps_of(request, false));
  receive.check("partition", partition);
  const auto is_there = [&] { return request.is_over() || !request.is_active || receive.has(partition); };
  *flag = is_there() ? 1 : 0;
  if (*flag != 0) return;
  poll_for(call, &handle, 1);
  *flag = is_there() ? 1 : 0;
}

}  // namespace aplib::mpi
