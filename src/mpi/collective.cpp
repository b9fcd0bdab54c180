// SPDX-License-Identifier: MIT
#include "mpi/collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

#include "kernel/condition.hpp"
#include "kernel/shared_memory.hpp"
#include "mpi/rank.hpp"
#include "mpi/tell_all.hpp"

namespace aplib::mpi {

namespace {

// Tag: 27..13 number of the call | 12..8 kind | 7..0 detail
constexpr std::uint32_t detail_mask = 0xff;
constexpr int kind_shift = 8;
constexpr std::uint32_t kind_mask = 0x1f;
constexpr int number_shift = 13;
constexpr std::uint32_t number_mask = 0x7fff;
static_assert(number_mask + 1 == PersistentNumbers::count);

/// To make one takes the time of some tens of calls by messages.
constexpr std::uint32_t calls_before_host_board = 16;
static_assert((number_mask << number_shift | kind_mask << kind_shift | detail_mask) == api::Label::tag_max);

constexpr const char* names[] = {"MPI_Barrier",
                                 "MPI_Bcast",
                                 "MPI_Gather",
                                 "MPI_Gatherv",
                                 "MPI_Scatter",
                                 "MPI_Scatterv",
                                 "MPI_Allgather",
                                 "MPI_Allgatherv",
                                 "MPI_Alltoall",
                                 "MPI_Alltoallv",
                                 "MPI_Alltoallw",
                                 "MPI_Reduce",
                                 "MPI_Allreduce",
                                 "MPI_Reduce_scatter",
                                 "MPI_Reduce_scatter_block",
                                 "MPI_Scan",
                                 "MPI_Exscan",
                                 "the first collective call",
                                 "MPI_Neighbor_allgather",
                                 "MPI_Neighbor_allgatherv",
                                 "MPI_Neighbor_alltoall",
                                 "MPI_Neighbor_alltoallv",
                                 "MPI_Neighbor_alltoallw",
                                 "MPI_Cart_create",
                                 "MPI_Cart_sub",
                                 "MPI_Graph_create",
                                 "MPI_Dist_graph_create",
                                 "MPI_Dist_graph_create_adjacent",
                                 "a call on the file"};

/// "MPI_Bcast", or "MPI_Ibcast" of the nonblocking calls of a communicator.
std::string name_of(const Comm& comm, std::uint32_t kind) {
  if (kind >= std::size(names)) return "an unknown call";
  std::string name = names[kind];
  if (comm.is_of_persistent_call()) return name + "_init";
  if (comm.is_of_nonblocking_calls() && name.starts_with("MPI_")) {
    name[4] = static_cast<char>(std::tolower(name[4]));
    name.insert(4, "I");
  }
  return name;
}

std::string describe(const Comm& comm, std::uint32_t tag) {
  return fmt::format("{} (call {} of the communicator, root or operation {})",
                     name_of(comm, tag >> kind_shift & kind_mask), tag >> number_shift, tag & detail_mask);
}

}  // namespace

Packed::Packed(const Elements& elements)
    : data_(reinterpret_cast<const std::byte*>(elements.contiguous())),
      size_(static_cast<std::size_t>(elements.bytes())) {
  if (data_ != nullptr || size_ == 0) return;
  copy_ = std::make_unique_for_overwrite<std::byte[]>(size_);
  pack(copy_.get(), elements, 0, elements.bytes());
  data_ = copy_.get();
}

// ---------------------------------------------------------------- the call

Collective::Collective(const Call& call, Comm& comm, CollectiveKind kind, int detail)
    : call_(call),
      comm_(comm),
      tag_((comm.collective_calls & number_mask) << number_shift | static_cast<std::uint32_t>(kind) << kind_shift |
           (static_cast<std::uint32_t>(detail) & detail_mask)) {
  PendingCall* const pending = call.pending();
  if (pending != nullptr && pending->is_brief()) {
    if (comm.is_of_persistent_call()) return;
    pending->count();
    ++comm.collective_calls;
  } else if (pending != nullptr) {
    pending->begin(comm);
  } else {
    ++comm.collective_calls;
    if (comm.host_board != nullptr) comm.host_board->note_call(comm.rank(), comm.collective_calls, tag_);
  }
}

api::Mailbox Collective::mailbox() const noexcept {
  return {TaskId{call_.rank().main_task}, api::Space::mpi_collective};
}

void Collective::send(int to, const Packed& from) const {
  api::send(call_.name(), mailbox(), {comm_.cell_of(to), comm_.collective_context(), tag_}, from.bytes());
}

void Collective::receive(int from, const Elements& to) const {
  WindowOf<1> window(*this);
  window.post(from, to);
  window.wait();
}

void Collective::exchange(int to, const Elements& sent, int from, const Elements& received) const {
  WindowOf<1> window(*this);
  window.post(from, received);
  send(to, sent);
  window.wait();
}

namespace {

/// What rank 0 has, to all others, by a tree of messages.
template <class T>
void hear(const Collective& collective, T& place) {
  const Elements elements = bytes_at(&place, sizeof place);
  int step = 1;
  while (step < collective.size() && (collective.rank() & step) == 0) step *= 2;
  if (collective.rank() != 0) collective.receive(collective.rank() - step, elements);
  for (step /= 2; step > 0; step /= 2) {
    if (collective.rank() + step < collective.size()) collective.send(collective.rank() + step, elements);
  }
}

}  // namespace

void Collective::join_board() const {
  comm_.has_no_board = size() == 1;
  for (int i = 0; i < size() && !comm_.has_no_board; ++i) comm_.has_no_board = !api::is_local(name(), comm_.cell_of(i));
  if (comm_.has_no_board) return;
  Board* made = nullptr;
  if (rank() == 0) made = new Board(static_cast<std::uint32_t>(size()), api::processors(name()));
  hear(joining(), made);
  comm_.board.reset(made);
}

// Rank 0 makes it, and all have it or none.
void Collective::join_host_board() const {
  if (comm_.collective_calls < calls_before_host_board) return;
  comm_.has_no_host_board = true;
  if (size() == 1 || size() > HostBoard::ranks_max || comm_.is_of_nonblocking_calls() || comm_.is_of_persistent_call())
    return;
  for (int i = 0; i < size(); ++i) {
    if (!api::shares_host(name(), api::process_of(name(), comm_.cell_of(i)))) return;
  }
  const Collective call = joining();
  std::unique_ptr<HostBoard> made;
  SharedFilePlace place;
  if (rank() == 0) {
    made = HostBoard::make(size());
    if (made != nullptr) place = made->place();
  }
  hear(call, place);
  if (rank() != 0) made = HostBoard::open(place, size());
  const std::vector<char> all = tell_all<char>(call, made != nullptr ? 1 : 0);
  if (std::ranges::find(all, 0) != all.end()) return;
  made->end_place();
  made->note_call(rank(), comm_.collective_calls, tag_);
  comm_.host_board = std::move(made);
}

Collective Collective::joining() const {
  const std::uint32_t number = comm_.is_of_persistent_call() ? tag_ & number_mask << number_shift : 0;
  return {call_, comm_, number | static_cast<std::uint32_t>(CollectiveKind::board) << kind_shift};
}

bool Collective::is_ours(int from, std::uint32_t tag) const {
  if (tag == tag_) [[likely]]
    return true;
  const std::uint32_t behind = ((tag_ >> number_shift) - (tag >> number_shift)) & number_mask;
  if (behind != 0 && behind <= number_mask / 2) return false;
  fail_disagreement(from, tag);
}

void Collective::fail_disagreement(int rank, std::uint32_t tag) const {
  fail(MPI_ERR_OTHER,
       fmt::format("rank {} is in {}, this rank in {}; let all ranks of a communicator make the same collective calls "
                   "in the same order, with the same root and operation",
                   rank, describe(comm_, tag), describe(comm_, tag_)));
}

// ---------------------------------------------------------------- receives

template <int capacity>
WindowOf<capacity>::~WindowOf() {
  for (int i = 0; i < count_; ++i) static_cast<void>(api::cancel(incoming_[static_cast<std::size_t>(i)].receive));
}

template <int capacity>
void WindowOf<capacity>::post(int from, const Elements& to) {
  Incoming& incoming = incoming_[static_cast<std::size_t>(count_)];
  incoming.to = to;
  incoming.from = from;
  incoming.packed.reset();
  if (to.contiguous() == nullptr && to.bytes() > 0)
    incoming.packed = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(to.bytes()));
  begin(incoming);
  ++count_;
}

template <int capacity>
void WindowOf<capacity>::begin(Incoming& incoming) {
  std::byte* const place =
      incoming.packed != nullptr ? incoming.packed.get() : reinterpret_cast<std::byte*>(incoming.to.contiguous());
  const Collective& its = collective_;
  api::post(its.call_.name(), its.mailbox(), incoming.receive, {place, static_cast<std::size_t>(incoming.to.bytes())},
            {its.comm_.cell_of(incoming.from), its.comm_.collective_context(),
             its.comm_.is_of_persistent_call() ? std::optional(its.tag_) : std::nullopt});
}

template <int capacity>
void WindowOf<capacity>::wait_for_all() {
  const RequestSet all{this, static_cast<std::size_t>(count_), [](const void* window, std::size_t i) -> Posted* {
                         auto& incoming = static_cast<WindowOf*>(const_cast<void*>(window))->incoming_[i];
                         return &incoming.receive;
                       }};
  // The machine stops, and somebody's destructor has called; the call ends without doing more.
  if (!wait_for_messages(collective_.call_, all)) fail(MPI_ERR_OTHER, "the machine stops");
}

template <int capacity>
void WindowOf<capacity>::wait() {
  if (count_ == 0) return;
  wait_for_all();
  for (int i = 0; i < count_; ++i) finish(incoming_[static_cast<std::size_t>(i)]);
  count_ = 0;
}

template <int capacity>
void WindowOf<capacity>::finish(Incoming& incoming) {
  const auto check_received = [&] {
    if (!incoming.receive.has_received()) fail_ended(incoming.from);
  };
  check_received();
  while (!collective_.is_ours(incoming.from, incoming.receive.arrived().label.tag)) {
    begin(incoming);
    wait_for_all();
    check_received();
  }
  const auto bytes = static_cast<Count>(incoming.receive.arrived().bytes);
  if (bytes != incoming.to.bytes()) [[unlikely]]
    fail_bytes(incoming.from, bytes, incoming.to.bytes());
  if (incoming.packed != nullptr) unpack(incoming.to, incoming.packed.get(), 0, incoming.to.bytes());
}

template class WindowOf<1>;
template class WindowOf<8>;

// ---------------------------------------------------------------- arguments

void fail_ended(int rank, std::string_view without) {
  fail(MPI_ERR_PROC_ABORTED, fmt::format("rank {} has ended without {}", rank, without));
}

void fail_bytes(int from, Count bytes, Count wanted) {
  fail(bytes > wanted ? MPI_ERR_TRUNCATE : MPI_ERR_COUNT,
       fmt::format("rank {} has sent {} bytes where this rank receives {}; let their counts and datatypes agree", from,
                   bytes, wanted));
}

void check_root(const Comm& comm, int root) {
  if (root < 0 || root >= comm.size()) [[unlikely]]
    fail(MPI_ERR_ROOT, fmt::format("root is {}; it must be a rank of {}, 0..{}", root, comm.name, comm.size() - 1));
}

Elements buffer_elements(const char* parameter, const void* buffer, MPI_Count count, const TypeHandle& type) {
  if (buffer == MPI_IN_PLACE) [[unlikely]]
    fail_buffer(parameter, buffer);
  return elements_at(parameter, buffer, count, *type.datatype);
}

void check_alias(const Elements& send, const Elements& receive) {
  if (send.address == receive.address && send.address != nullptr && send.bytes() > 0 && receive.bytes() > 0)
      [[unlikely]]
    fail(MPI_ERR_BUFFER,
         "sendbuf and recvbuf are the same memory; give MPI_IN_PLACE as sendbuf (of MPI_Scatter and "
         "MPI_Scatterv as recvbuf), or two buffers");
}

void check_own(const Elements& to, const Elements& from) {
  check_alias(from, to);
  if (to.bytes() != from.bytes()) [[unlikely]] {
    fail(from.bytes() > to.bytes() ? MPI_ERR_TRUNCATE : MPI_ERR_COUNT,
         fmt::format("this rank sends itself {} bytes and receives {}; let its counts and datatypes agree",
                     from.bytes(), to.bytes()));
  }
}

void copy_own(const Elements& to, const Elements& from) {
  check_own(to, from);
  copy(to, from, 0, to.bytes());
}

// Addresses as numbers: they may lie outside of all memory.
Elements part_of(const Elements& elements, Count first, Count count) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(elements.address) +
                       static_cast<std::uintptr_t>(first) * static_cast<std::uintptr_t>(elements.extent);
  return {reinterpret_cast<void*>(address), elements.layout, count, elements.extent};
}

}  // namespace aplib::mpi
