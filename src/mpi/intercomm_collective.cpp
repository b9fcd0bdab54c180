// SPDX-License-Identifier: MIT
// The collective calls on intercommunicators: each group gets what the other one has. Data go straight from rank to
// rank where every pair has its own. What a whole group gets, or combines, passes between the first ranks of the two,
// and within a group by its own collective calls.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "mpi/blocks.hpp"
#include "mpi/op.hpp"
#include "mpi/operand.hpp"

namespace aplib::mpi {

// Those of one group.
void barrier(const Call& call, Comm& comm);
void bcast(const Call& call, void* buffer, MPI_Count count, TypeHandle& type, int root, Comm& comm);
void reduce(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
            int root, Comm& comm);

namespace inter {

namespace {

void check_far_root(const Comm& comm, int root) {
  if ((root >= 0 && root < comm.peer_count()) || root == MPI_ROOT || root == MPI_PROC_NULL) [[likely]]
    return;
  fail(MPI_ERR_ROOT,
       fmt::format("root is {}; on an intercommunicator the root gives MPI_ROOT, other ranks of its group "
                   "MPI_PROC_NULL, and those of the other group the root's rank, which is 0..{} here",
                   root, comm.peer_count() - 1));
}

/// A call in which one rank of one group is the root. Of that group, only the root has data.
class Rooted : public Collective {
 public:
  Rooted(const Call& call, Comm& comm, CollectiveKind kind, int root)
      : Collective(call, comm, kind, root == MPI_ROOT ? comm.rank() : root) {}
};

/// Everyone's block from the other group.
void receive_across(const Collective& collective, const Comm& comm, const Blocks& blocks) {
  Window window(collective);
  for (int i = 0; i < comm.peer_count(); ++i) {
    if (window.is_full()) window.wait();
    window.post(i, blocks[i]);
  }
  window.wait();
}

/// sent(i) to rank i of the other group, and its block from it. Ranks begin with different ones.
template <class Sent>
void exchange_across(const Collective& collective, const Comm& comm, const Sent& sent, const Blocks& received) {
  const int count = comm.peer_count();
  const auto partner = [&](int i) { return (comm.rank() + i) % count; };
  Window window(collective);
  int posted = 0;
  const auto post_some = [&] {
    for (; posted < count && !window.is_full(); ++posted) window.post(partner(posted), received[partner(posted)]);
  };
  post_some();
  for (int i = 0; i < count; ++i) collective.send(partner(i), sent(partner(i)));
  window.wait();
  while (posted < count) {
    post_some();
    window.wait();
  }
}

/// The first ranks of both groups exchange `elements`, in place. The send has taken them when it returns.
void swap_across(const Collective& collective, const Elements& elements) {
  collective.send(0, elements);
  collective.receive(0, elements);
}

}  // namespace

// No one leaves before all of the other group have come; nor before all of its own have, as it happens.
void barrier(const Call& call, Comm& comm) {
  const Collective collective(call, comm, CollectiveKind::barrier);
  const Elements nothing = bytes_at(nullptr, 0);
  mpi::barrier(call, *comm.local);
  if (comm.rank() == 0) collective.exchange(0, nothing, 0, nothing);
  mpi::barrier(call, *comm.local);
}

void bcast(const Call& call, void* buffer, MPI_Count count, TypeHandle& type, int root, Comm& comm) {
  check_far_root(comm, root);
  Elements elements{};
  if (root != MPI_PROC_NULL) elements = buffer_elements("buffer", buffer, count, travelling("datatype", type));
  const Rooted collective(call, comm, CollectiveKind::bcast, root);
  if (root == MPI_PROC_NULL) return;
  if (root == MPI_ROOT) return collective.send(0, elements);
  if (comm.rank() == 0) collective.receive(root, elements);
  mpi::bcast(call, buffer, count, type, 0, *comm.local);
}

// ---------------------------------------------------------------- from or to each rank of a group

void gather(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
            MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  check_far_root(comm, root);
  if (root == MPI_PROC_NULL) {
    const Rooted none(call, comm, CollectiveKind::gather, root);
  } else if (root == MPI_ROOT) {
    check_count(call, "recvcount", recvcount);
    const Blocks blocks("recvbuf", recvbuf, recvcount, travelling(call, "recvtype", recvtype));
    receive_across(Rooted(call, comm, CollectiveKind::gather, root), comm, blocks);
  } else {
    const Elements own = sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype);
    Rooted(call, comm, CollectiveKind::gather, root).send(root, own);
  }
}

void gatherv(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, int root, Comm& comm) {
  check_far_root(comm, root);
  if (root == MPI_PROC_NULL) {
    const Rooted none(call, comm, CollectiveKind::gatherv, root);
  } else if (root == MPI_ROOT) {
    const Blocks blocks(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "displs", displs,
                        travelling(call, "recvtype", recvtype), comm.peer_count());
    receive_across(Rooted(call, comm, CollectiveKind::gatherv, root), comm, blocks);
  } else {
    const Elements own = sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype);
    Rooted(call, comm, CollectiveKind::gatherv, root).send(root, own);
  }
}

void scatter(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  check_far_root(comm, root);
  if (root == MPI_PROC_NULL) {
    const Rooted none(call, comm, CollectiveKind::scatter, root);
  } else if (root == MPI_ROOT) {
    check_count(call, "sendcount", sendcount);
    const Blocks blocks("sendbuf", sendbuf, sendcount, travelling(call, "sendtype", sendtype));
    const Rooted collective(call, comm, CollectiveKind::scatter, root);
    for (int i = 0; i < comm.peer_count(); ++i) collective.send(i, blocks[i]);
  } else {
    const Elements own = sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype);
    Rooted(call, comm, CollectiveKind::scatter, root).receive(root, own);
  }
}

void scatterv(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers displs, MPI_Datatype sendtype,
              void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, Comm& comm) {
  check_far_root(comm, root);
  if (root == MPI_PROC_NULL) {
    const Rooted none(call, comm, CollectiveKind::scatterv, root);
  } else if (root == MPI_ROOT) {
    const Blocks blocks(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "displs", displs,
                        travelling(call, "sendtype", sendtype), comm.peer_count());
    const Rooted collective(call, comm, CollectiveKind::scatterv, root);
    for (int i = 0; i < comm.peer_count(); ++i) collective.send(i, blocks[i]);
  } else {
    const Elements own = sent_elements(call, "recvbuf", recvbuf, "recvcount", recvcount, "recvtype", recvtype);
    Rooted(call, comm, CollectiveKind::scatterv, root).receive(root, own);
  }
}

// ---------------------------------------------------------------- from all to all

void allgather(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
               MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Blocks blocks("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype));
  const Elements own = sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype);
  exchange_across(
      Collective(call, comm, CollectiveKind::allgather), comm, [&](int) { return own; }, blocks);
}

void allgatherv(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
                Numbers recvcounts, Numbers displs, TypeHandle& recvtype, Comm& comm) {
  const Blocks blocks(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "displs", displs,
                      travelling("recvtype", recvtype), comm.peer_count());
  const Elements own = sent_elements(call, "sendbuf", sendbuf, "sendcount", sendcount, "sendtype", sendtype);
  exchange_across(
      Collective(call, comm, CollectiveKind::allgatherv), comm, [&](int) { return own; }, blocks);
}

void alltoall(const Call& call, const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, TypeHandle& recvtype, Comm& comm) {
  const Blocks received("recvbuf", recvbuf, recvcount, travelling("recvtype", recvtype));
  check_count(call, "sendcount", sendcount);
  const Blocks sent("sendbuf", sendbuf, sendcount, travelling(call, "sendtype", sendtype));
  exchange_across(
      Collective(call, comm, CollectiveKind::alltoall), comm, [&](int to) { return sent[to]; }, received);
}

void alltoallv(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers sdispls, MPI_Datatype sendtype,
               void* recvbuf, Numbers recvcounts, Numbers rdispls, TypeHandle& recvtype, Comm& comm) {
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", rdispls,
                        travelling("recvtype", recvtype), comm.peer_count());
  const Blocks sent(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", sdispls,
                    travelling(call, "sendtype", sendtype), comm.peer_count());
  exchange_across(
      Collective(call, comm, CollectiveKind::alltoallv), comm, [&](int to) { return sent[to]; }, received);
}

void alltoallw(const Call& call, const void* sendbuf, Numbers sendcounts, Numbers sdispls,
               const MPI_Datatype sendtypes[], void* recvbuf, Numbers recvcounts, Numbers rdispls,
               const MPI_Datatype recvtypes[], Comm& comm) {
  const Blocks received(call, "recvbuf", recvbuf, "recvcounts", recvcounts, "rdispls", rdispls, "recvtypes", recvtypes,
                        comm.peer_count());
  const Blocks sent(call, "sendbuf", sendbuf, "sendcounts", sendcounts, "sdispls", sdispls, "sendtypes", sendtypes,
                    comm.peer_count());
  exchange_across(
      Collective(call, comm, CollectiveKind::alltoallw), comm, [&](int to) { return sent[to]; }, received);
}

// ---------------------------------------------------------------- combined

void reduce(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
            int root, Comm& comm) {
  check_far_root(comm, root);
  if (root != MPI_PROC_NULL) static_cast<void>(Combine(op, type));  // fails unless op is defined
  Elements own{};
  if (root == MPI_ROOT) own = buffer_elements("recvbuf", recvbuf, count, type);
  if (root >= 0) own = buffer_elements("sendbuf", sendbuf, count, type);
  const Rooted collective(call, comm, CollectiveKind::reduce, root);
  if (root == MPI_PROC_NULL) return;
  if (root == MPI_ROOT) return collective.receive(0, own);
  if (comm.rank() != 0) return mpi::reduce(call, sendbuf, nullptr, count, type, op, 0, *comm.local);
  Operand combined(*type.datatype, count);
  mpi::reduce(call, sendbuf, combined.elements().address, count, type, op, 0, *comm.local);
  collective.send(root, combined.elements());
}

void allreduce(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
               Comm& comm) {
  const Combine combine(op, type);
  const Elements result = buffer_elements("recvbuf", recvbuf, count, type);
  check_alias(buffer_elements("sendbuf", sendbuf, count, type), result);
  const Collective collective(call, comm, CollectiveKind::allreduce, static_cast<int>(combine.operation()));
  mpi::reduce(call, sendbuf, recvbuf, count, type, op, 0, *comm.local);
  if (comm.rank() == 0) swap_across(collective, result);
  mpi::bcast(call, recvbuf, count, type, 0, *comm.local);
}

namespace {

/// Where each rank's elements begin among those of all, and where the last one's end. count(i): of rank i.
template <class CountOf>
std::vector<MPI_Count> begins_of(const Comm& comm, const CountOf& count) {
  std::vector<MPI_Count> begins(static_cast<std::size_t>(comm.size()) + 1);
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    if (__builtin_add_overflow(begins[i], count(i), &begins[i + 1]))
      fail(MPI_ERR_COUNT, "the counts together do not fit into 64 bits");
  }
  return begins;
}

/// The other group's elements combined, a part of them to each rank.
void combine_across(const Call& call, const void* sendbuf, void* recvbuf, const std::vector<MPI_Count>& begins,
                    TypeHandle& type, OpHandle& op, Comm& comm, CollectiveKind kind) {
  const Combine combine(op, type);
  const MPI_Count all = begins.back();
  const auto count = [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    return begins[i + 1] - begins[i];
  };
  const Elements result = buffer_elements("recvbuf", recvbuf, count(comm.rank()), type);
  check_alias(buffer_elements("sendbuf", sendbuf, all, type), result);
  const Collective collective(call, comm, kind, static_cast<int>(combine.operation()));
  const auto hand_on = [&] { return Collective(call, *comm.local, kind, static_cast<int>(combine.operation())); };
  if (comm.rank() != 0) {
    mpi::reduce(call, sendbuf, nullptr, all, type, op, 0, *comm.local);
    return hand_on().receive(0, result);
  }
  Operand combined(*type.datatype, all);
  const auto part = [&](int rank) {
    return part_of(combined.elements(), begins[static_cast<std::size_t>(rank)], count(rank));
  };
  mpi::reduce(call, sendbuf, combined.elements().address, all, type, op, 0, *comm.local);
  swap_across(collective, combined.elements());
  const Collective within = hand_on();
  for (int i = 1; i < comm.size(); ++i) within.send(i, part(i));
  copy(result, part(0), 0, result.bytes());
}

}  // namespace

void reduce_scatter(const Call& call, const void* sendbuf, void* recvbuf, Numbers recvcounts, TypeHandle& type,
                    OpHandle& op, Comm& comm) {
  if (recvcounts.is_null()) fail_null("recvcounts");
  recvcounts = call.kept(recvcounts, comm.size());
  const auto count = [&](std::size_t i) {
    if (recvcounts[i] < 0) fail_count(fmt::format("recvcounts[{}]", i).c_str(), recvcounts[i]);
    return recvcounts[i];
  };
  combine_across(call, sendbuf, recvbuf, begins_of(comm, count), type, op, comm, CollectiveKind::reduce_scatter);
}

void reduce_scatter_block(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count recvcount, TypeHandle& type,
                          OpHandle& op, Comm& comm) {
  const std::vector<MPI_Count> begins = begins_of(comm, [&](std::size_t) { return recvcount; });
  combine_across(call, sendbuf, recvbuf, begins, type, op, comm, CollectiveKind::reduce_scatter_block);
}

}  // namespace inter

}  // namespace aplib::mpi
