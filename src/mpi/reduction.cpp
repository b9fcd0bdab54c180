// SPDX-License-Identifier: MIT
// The collective calls that combine elements. Which elements are combined in which order depends on the ranks and the
// size of the data alone, never on where the ranks run: so results have the same bits on any placement. Left operands
// are always those of lower ranks, as operations need that do not commute.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "mpi/collective.hpp"
#include "mpi/op.hpp"
#include "mpi/operand.hpp"

namespace aplib::mpi {

namespace {

/// What a reducing call was given, and what it does with it.
class Reduction {
 public:
  Reduction(const Call& call, Comm& comm, CollectiveKind kind, const Combine& combine, const Datatype& type)
      : collective_(call, comm, kind, static_cast<int>(combine.operation())), combine_(combine), type_(type) {}

  [[nodiscard]] const Collective& collective() const noexcept { return collective_; }

  /// All of `own` combined, in `result` of every rank. `own` may be `result`.
  void to_all(const Elements& own, const Elements& result) const {
    if (is_large(own)) return by_slices(own, result);
    by_doubling(own, result);
  }

  /// All of `own` combined, in `result` of the root. `own` may be `result`; others do not have that one.
  void to_root(const Elements& own, const Elements& result, int root) const {
    const int size = collective_.size();
    const int rank = collective_.rank();
    Operand one(type_, own.count);
    Operand other(type_, own.count);
    Operand* next = &one;
    Elements partial = own;
    int step = 1;
    for (; step < size && (rank & step) == 0; step *= 2) {
      if (rank + step >= size) continue;
      collective_.receive(rank + step, next->elements());
      combine_(partial.address, next->elements().address, own.count);
      partial = next->elements();
      next = next == &one ? &other : &one;
    }
    if (rank != 0) {
      collective_.send(rank - step, partial);
    } else if (root != 0) {
      collective_.send(root, partial);
    } else if (partial.address != result.address) {
      copy(result, partial, 0, result.bytes());
    }
    if (root != 0 && rank == root) collective_.receive(0, result);
  }

  /// Slice i of all of `own` combined, in `result` of rank i, which must not be part of `own`. slice(i): of a rank's
  /// elements.
  template <class Slice>
  void to_each(const Slice& slice, const Elements& result) const {
    const int size = collective_.size();
    const int rank = collective_.rank();
    // From the last rank on, some at a time; the first ones are asked for before anything is sent.
    const Elements own = slice(rank);
    bool has_sent = false;
    Operand memory(type_, own.count * std::min(size, Window::size_max));
    const auto operand = [&](int i) { return part_of(memory.elements(), own.count * i, own.count); };
    for (int last = size - 1; last >= 0; last -= Window::size_max) {
      const int count = std::min(last + 1, Window::size_max);
      Window window(collective_);
      for (int i = 0; i < count; ++i) {
        if (last - i != rank) window.post(last - i, last - i == size - 1 ? result : operand(i));
      }
      if (!has_sent) {
        for (int i = 1; i < size; ++i) collective_.send(collective_.before(i), slice(collective_.before(i)));
        has_sent = true;
      }
      window.wait();
      for (int i = 0; i < count; ++i) {
        const int from = last - i;
        if (from != size - 1) {
          combine_(from == rank ? own.address : operand(i).address, result.address, own.count);
        } else if (rank == from) {
          copy(result, own, 0, own.bytes());
        }
      }
    }
  }

  /// `partial` becomes what this and all lower ranks have, combined.
  void scan(Elements partial, const Elements& result) const {
    Operand other(type_, partial.count);
    for (int step = 1; step < collective_.size(); step *= 2) {
      const int rank = collective_.rank();
      Window window(collective_);
      if (rank >= step) window.post(rank - step, other.elements());
      if (rank + step < collective_.size()) collective_.send(rank + step, partial);
      window.wait();
      if (rank >= step) combine_(other.elements().address, partial.address, partial.count);
    }
    if (partial.address != result.address) copy(result, partial, 0, result.bytes());
  }

 private:
  static constexpr Count slice_bytes_min = 4096;

  [[nodiscard]] bool is_large(const Elements& own) const noexcept {
    return collective_.size() > 1 && own.bytes() / collective_.size() >= slice_bytes_min &&
           own.count >= collective_.size();
  }

  // Small: pairs of neighbours exchange what they have, then pairs of pairs, ... Both combine the same, so all have the
  // same bits. Of ranks beyond a power of two, the first ones have a neighbour that works for them.
  void by_doubling(const Elements& own, const Elements& result) const {
    const int size = collective_.size();
    const int rank = collective_.rank();
    Operand memory(type_, own.count);
    Elements partial = result;
    if (own.address != result.address) copy(result, own, 0, own.bytes());
    if (size == 1) return;
    Elements other = memory.elements();
    int workers = 1;
    while (workers * 2 <= size) workers *= 2;
    const int helped = size - workers;
    if (rank < 2 * helped && rank % 2 == 0) {
      collective_.send(rank + 1, partial);
      return collective_.receive(rank + 1, result);
    }
    if (rank < 2 * helped) {
      collective_.receive(rank - 1, other);
      combine_(other.address, partial.address, own.count);
    }
    const int worker = rank < 2 * helped ? rank / 2 : rank - helped;
    for (int step = 1; step < workers; step *= 2) {
      const int partner = worker ^ step;
      const int partner_rank = partner < helped ? 2 * partner + 1 : partner + helped;
      collective_.exchange(partner_rank, partial, partner_rank, other);
      if (partner > worker) std::swap(partial, other);
      combine_(other.address, partial.address, own.count);
    }
    if (partial.address != result.address) copy(result, partial, 0, own.bytes());
    if (rank < 2 * helped) collective_.send(rank - 1, result);
  }

  // Large: each rank combines one slice of all, then everyone gets the slices.
  void by_slices(const Elements& own, const Elements& result) const {
    const int size = collective_.size();
    const auto slice_of = [&](const Elements& elements, int i) {
      const Count each = own.count / size;
      const Count rest = own.count % size;
      return part_of(elements, each * i + std::min<Count>(i, rest), each + (i < rest ? 1 : 0));
    };
    const auto slice = [&](int i) { return slice_of(own, i); };
    const Elements mine = slice_of(result, collective_.rank());
    if (own.address != result.address) {
      to_each(slice, mine);
    } else {
      Operand combined(type_, mine.count);
      to_each(slice, combined.elements());
      copy(mine, combined.elements(), 0, mine.bytes());
    }
    for (int first = 1; first < size; first += Window::size_max) {
      Window window(collective_);
      const int end = std::min(first + Window::size_max, size);
      for (int i = first; i < end; ++i) window.post(collective_.behind(i), slice_of(result, collective_.behind(i)));
      for (int i = first; i < end; ++i) collective_.send(collective_.before(i), mine);
      window.wait();
    }
  }

  Collective collective_;
  const Combine& combine_;
  const Datatype& type_;
};

/// What a rank contributes: sendbuf, or recvbuf with MPI_IN_PLACE.
Elements own_elements(const void* sendbuf, const Elements& received, MPI_Count count, const TypeHandle& type) {
  if (sendbuf == MPI_IN_PLACE) return received;
  const Elements own = buffer_elements("sendbuf", sendbuf, count, type);
  check_alias(own, received);
  return own;
}

}  // namespace

void reduce(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
            int root, Comm& comm) {
  check_root(comm, root);
  const Combine combine(op, type);
  Elements own{};
  Elements result{};
  if (comm.rank() == root) {
    result = buffer_elements("recvbuf", recvbuf, count, type);
    own = own_elements(sendbuf, result, count, type);
  } else {
    own = buffer_elements("sendbuf", sendbuf, count, type);
  }
  Reduction(call, comm, CollectiveKind::reduce, combine, *type.datatype).to_root(own, result, root);
}

void allreduce(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
               Comm& comm) {
  const Combine combine(op, type);
  const Elements result = buffer_elements("recvbuf", recvbuf, count, type);
  const Elements own = own_elements(sendbuf, result, count, type);
  Reduction(call, comm, CollectiveKind::allreduce, combine, *type.datatype).to_all(own, result);
}

namespace {

/// Elements [begins[i], begins[i + 1]) of all ranks combined, in recvbuf of rank i.
template <class Begin>
void reduce_parts(const Reduction& reduction, const Datatype& type, const Elements& own, const Elements& result,
                  const Begin& begin) {
  const auto slice = [&](int i) { return part_of(own, begin(i), begin(i + 1) - begin(i)); };
  if (own.address != result.address) return reduction.to_each(slice, result);
  Operand combined(type, result.count);
  reduction.to_each(slice, combined.elements());
  copy(result, combined.elements(), 0, result.bytes());
}

MPI_Count added(MPI_Count count, MPI_Count more) {
  MPI_Count sum = 0;
  if (__builtin_add_overflow(count, more, &sum)) fail(MPI_ERR_COUNT, "the counts together do not fit into 64 bits");
  return sum;
}

}  // namespace

void reduce_scatter(const Call& call, const void* sendbuf, void* recvbuf, Numbers recvcounts, TypeHandle& type,
                    OpHandle& op, Comm& comm) {
  const Combine combine(op, type);
  if (recvcounts.is_null()) fail_null("recvcounts");
  std::vector<MPI_Count> begins(static_cast<std::size_t>(comm.size()) + 1);
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    if (recvcounts[i] < 0) fail_count(fmt::format("recvcounts[{}]", i).c_str(), recvcounts[i]);
    begins[i + 1] = added(begins[i], recvcounts[i]);
  }
  // In place, recvbuf has the elements for all.
  const Elements result = buffer_elements("recvbuf", recvbuf, recvcounts[static_cast<std::size_t>(comm.rank())], type);
  const Elements own = sendbuf == MPI_IN_PLACE ? buffer_elements("recvbuf", recvbuf, begins.back(), type)
                                               : own_elements(sendbuf, result, begins.back(), type);
  const Reduction reduction(call, comm, CollectiveKind::reduce_scatter, combine, *type.datatype);
  reduce_parts(reduction, *type.datatype, own, result, [&](int i) { return begins[static_cast<std::size_t>(i)]; });
}

void reduce_scatter_block(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count recvcount, TypeHandle& type,
                          OpHandle& op, Comm& comm) {
  const Combine combine(op, type);
  MPI_Count all = 0;
  if (__builtin_mul_overflow(recvcount, comm.size(), &all))
    fail(MPI_ERR_COUNT, "the counts together do not fit into 64 bits");
  const Elements result = buffer_elements("recvbuf", recvbuf, recvcount, type);
  const Elements own = sendbuf == MPI_IN_PLACE ? buffer_elements("recvbuf", recvbuf, all, type)
                                               : own_elements(sendbuf, result, all, type);
  const Reduction reduction(call, comm, CollectiveKind::reduce_scatter_block, combine, *type.datatype);
  reduce_parts(reduction, *type.datatype, own, result, [&](int i) { return recvcount * i; });
}

void scan(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
          Comm& comm) {
  const Combine combine(op, type);
  const Elements result = buffer_elements("recvbuf", recvbuf, count, type);
  const Elements own = own_elements(sendbuf, result, count, type);
  if (own.address != result.address) copy(result, own, 0, own.bytes());
  Reduction(call, comm, CollectiveKind::scan, combine, *type.datatype).scan(result, result);
}

// A scan whose results move one rank on. Rank 0 has no result: its recvbuf is not looked at.
void exscan(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
            Comm& comm) {
  const Combine combine(op, type);
  Elements result{};
  if (comm.rank() > 0 || sendbuf == MPI_IN_PLACE) result = buffer_elements("recvbuf", recvbuf, count, type);
  const Elements own = own_elements(sendbuf, result, count, type);
  const Reduction reduction(call, comm, CollectiveKind::exscan, combine, *type.datatype);
  const Collective& collective = reduction.collective();
  Operand partial(*type.datatype, count);
  copy(partial.elements(), own, 0, own.bytes());
  reduction.scan(partial.elements(), partial.elements());
  if (comm.rank() + 1 < comm.size()) collective.send(comm.rank() + 1, partial.elements());
  if (comm.rank() > 0) collective.receive(comm.rank() - 1, result);
}

}  // namespace aplib::mpi
