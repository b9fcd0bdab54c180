// SPDX-License-Identifier: MIT
// MPI_Comm_idup: members agree on a context without waiting for each other. Each tells all others which ones it uses
// of a small part of all contexts, and receives the same from them one by one, whenever it waits for the request. Until
// the duplication is over, a member offers these contexts to nothing else, so two that are open at once never get the
// same one. Each duplication has a part of its own, and two have few contexts in common. So nearly always one round is
// enough, which goes on whatever the members do meanwhile. If no context of the part is free everywhere, a further
// round tries another part; for that all members must wait for the request, or test it.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <span>

#include "mpi/request.hpp"
#include "mpi/status.hpp"

namespace aplib::mpi {

namespace {

class Duplication : public Steps {
 public:
  Duplication(Comm& parent, Comm& made)
      : rank_(parent.owner()), parent_(parent), made_(made), number_(parent.duplications++) {
    parent_.hold();
    made_.hold();
  }
  ~Duplication() override {
    if (rank_.is_ending()) return;
    withdraw();
    made_.release();
    parent_.release();
  }

  /// As go_on().
  bool begin(const char* call, Request& request) override {
    offer(call);
    return await_next(call, request);
  }

  bool go_on(const char* call, Request& request) override {
    if (!request.posted.has_received()) return fail_with(request, MPI_ERR_PROC_ABORTED, "a member has ended");
    all_.add(arrived_);
    ++heard_;
    return await_next(call, request);
  }

 private:
  // A part has one context of each group of 16.
  static constexpr std::uint32_t group_size = 16;
  static constexpr std::uint32_t groups = ContextSet::count / group_size;
  static constexpr std::uint32_t round_bits = 4;  // of a message's tag, which also has the duplication's number
  static_assert(group_size == 1U << round_bits);

  /// A set of groups.
  using Groups = std::array<std::uint64_t, groups / 64>;
  [[nodiscard]] static bool has(const Groups& set, std::uint32_t group) noexcept {
    return (set[group / 64] >> group % 64 & 1) != 0;
  }
  static void add(Groups& set, std::uint32_t group) noexcept { set[group / 64] |= std::uint64_t{1} << group % 64; }

  /// What members say, each for itself or together: a message that a ring carries by itself.
  struct Offer {
    Groups used{};              ///< Where the part's context is not to be had.
    std::uint64_t is_busy = 0;  ///< It is offered to another duplication.

    void add(const Offer& other) noexcept {
      for (std::size_t i = 0; i < used.size(); ++i) used[i] |= other.used[i];
      is_busy |= other.is_busy;
    }
  };

  // Others are the members of the own group, then those of the remote one.
  [[nodiscard]] std::uint32_t others() const noexcept {
    return parent_.group->size() - 1 + (parent_.is_inter() ? parent_.peers->size() : 0);
  }
  [[nodiscard]] CellId other(std::uint32_t i) const noexcept {
    const std::uint32_t size = parent_.group->size();
    return CellId{i + 1 < size ? parent_.group->cell((static_cast<std::uint32_t>(parent_.rank()) + 1 + i) % size)
                               : parent_.peers->cell(i + 1 - size)};
  }
  /// The part's context of a group: in 16 rounds each of them.
  [[nodiscard]] std::uint32_t context_of(std::uint32_t group) const noexcept {
    std::uint32_t hash = (parent_.context() << 20) ^ (number_ << 8) ^ group;  // mixed as MurmurHash3 does
    hash = (hash ^ hash >> 16) * 0x85ebca6bU;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35U;
    return group * group_size + ((hash >> 16) + round_) % group_size;
  }
  [[nodiscard]] api::Mailbox mailbox() const noexcept { return {mailbox_of(rank_).task, api::Space::mpi_collective}; }
  [[nodiscard]] std::uint32_t context() const noexcept { return parent_.context() | duplicating; }
  [[nodiscard]] std::uint32_t tag() const noexcept {
    return (number_ << round_bits | round_ % group_size) & api::Label::tag_max;
  }

  void offer(const char* call) {
    Offer own;
    for (std::uint32_t group = 0; group < groups; ++group) {
      const std::uint32_t context = context_of(group);
      const bool is_offered = rank_.agrees || rank_.offered.has(context);
      if (is_offered) own.is_busy = 1;
      if (is_offered || rank_.contexts.has(context)) {
        add(own.used, group);
      } else {
        rank_.offered.add(context);
      }
    }
    own_used_ = own.used;
    all_ = own;
    heard_ = 0;
    is_offering_ = true;
    for (std::uint32_t i = 0; i < others(); ++i)
      api::send(call, mailbox(), {other(i), context(), tag()}, std::as_bytes(std::span(&own, 1)));
  }

  void withdraw() noexcept {
    for (std::uint32_t group = 0; is_offering_ && group < groups; ++group) {
      if (!has(own_used_, group)) rank_.offered.remove(context_of(group));
    }
    is_offering_ = false;
  }

  /// One that is free at all members. The search begins elsewhere each time, so a freed one is used again late.
  [[nodiscard]] std::optional<std::uint32_t> chosen() const noexcept {
    for (std::uint32_t i = 0; i < groups; ++i) {
      const std::uint32_t group = (number_ + i) % groups;
      if (!has(all_.used, group)) return context_of(group);
    }
    return std::nullopt;
  }

  /// False: it is over.
  bool await_next(const char* call, Request& request) {
    while (heard_ == others()) {
      withdraw();
      if (const auto context = chosen()) {
        made_.set_context(*context);
        return false;
      }
      was_busy_ = was_busy_ || all_.is_busy != 0;
      if (++round_ % group_size == 0) {
        if (!was_busy_) {
          return fail_with(request, MPI_ERR_OTHER,
                           fmt::format("ranks have {} communicators, as many as there can be; free some by "
                                       "MPI_Comm_free",
                                       ContextSet::count));
        }
        was_busy_ = false;
      }
      offer(call);
    }
    api::post(call, mailbox(), request.posted, std::as_writable_bytes(std::span(&arrived_, 1)),
              {other(heard_), context(), tag()});
    return true;
  }

  /// The program's handle of the new communicator is not valid any more.
  bool fail_with(Request& request, int code, std::string text) {
    request.failure = Failure{code, std::move(text)};
    made_.release();
    return false;
  }

  Rank& rank_;
  Comm& parent_;
  Comm& made_;
  std::uint32_t number_;
  std::uint32_t round_ = 0;
  std::uint32_t heard_ = 0;  // of others, in this round
  Offer all_;                // of those and this rank
  Offer arrived_;
  Groups own_used_{};
  bool is_offering_ = false;
  bool was_busy_ = false;  // in one of the rounds since all contexts were tried
};

}  // namespace

void comm_idup_with_info(const Call& call, Comm& comm, Info* hints, MPI_Comm* place, MPI_Request* request_place) {
  Rank& rank = call.rank();
  Comm& made = comm.is_inter() ? *new Comm(rank, *comm.group, *comm.peers, comm.handler(), Comm::no_context)
                               : *new Comm(rank, *comm.group, comm.handler(), "", Comm::no_context);
  try {
    made.set_hints(hints);
    made.topology = comm.topology;
    made.attributes.copy(rank, comm.handle(), comm.attributes);
    auto steps = std::make_unique<Duplication>(comm, made);
    auto& request = Request::make(comm, Request::Does::nothing);
    set_empty_status(&request.result);
    if (steps->begin(call.name(), request)) request.steps = std::move(steps);
    request.go_on(call.name());
    *request_place = handle_of<MPI_Request>(request);
  } catch (...) {
    made.release();
    throw;
  }
  *place = handle_of<MPI_Comm>(made);
}

void comm_idup(const Call& call, Comm& comm, MPI_Comm* place, MPI_Request* request) {
  comm_idup_with_info(call, comm, nullptr, place, request);
}

}  // namespace aplib::mpi
