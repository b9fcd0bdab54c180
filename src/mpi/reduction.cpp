// SPDX-License-Identifier: MIT
// The collective calls that combine elements. Which elements are combined in which order depends on the ranks and the
// size of the data alone, never on where the ranks run: so results have the same bits on any placement. Left operands
// are always those of lower ranks, as operations need that do not commute.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "arch/cpu.hpp"
#include "mpi/meeting_rest.hpp"
#include "mpi/op.hpp"
#include "mpi/operand.hpp"

namespace aplib::mpi {

namespace {

/// Which neighbours are combined first.
enum class Order : std::uint8_t {
  linear,    ///< The last two, then that with the one before, ...
  tree,      ///< Pairs, then pairs of pairs, ... from rank 0 on.
  backward,  ///< The same from the last rank on.
  doubling,  ///< The same as tree, after the first ranks have become so few that all are a power of two.
};

/// The ranks that combine in Order::doubling: a power of two. Of ranks beyond, the first ones are helped: a neighbour
/// works for both.
struct Workers {
  explicit Workers(int ranks) noexcept
      : count(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), helped(ranks - count) {}

  /// The rank is one of two neighbours.
  [[nodiscard]] bool is_helped(int rank) const noexcept { return rank < 2 * helped; }
  [[nodiscard]] int of_rank(int rank) const noexcept { return is_helped(rank) ? rank / 2 : rank - helped; }
  /// Of those that a worker works for.
  [[nodiscard]] int first_rank(int worker) const noexcept { return worker < helped ? 2 * worker : worker + helped; }
  /// The worker itself.
  [[nodiscard]] int last_rank(int worker) const noexcept { return worker < helped ? 2 * worker + 1 : worker + helped; }

  int count;
  int helped;  ///< So many work for two.
};

/// Combines what ranks show at their board, as messages between them would.
class Fold {
 public:
  Fold(const Meeting& meeting, int size, const Combine& combine, const Datatype& type, Order order)
      : meeting_(meeting), size_(size), combine_(combine), type_(type), order_(order) {
    const std::span<const Piece> pieces = type.layout().pieces();
    is_plain_ = type.lb() == 0 && type.extent() == type.size() && pieces.size() == 1 && pieces[0].is_block() &&
                pieces[0].offset == 0;
  }

  /// So many elements at a time stay in the first-level cache.
  [[nodiscard]] Count chunk() const noexcept {
    return std::max<Count>(1, chunk_bytes / std::max<Count>(type_.size(), 1));
  }

  /// Elements from `first` on of ranks 0..ranks - 1, combined, in `into`, which is at most a chunk.
  void operator()(int ranks, Count first, const Elements& into) {
    first_ = first;
    if (!fold_levels(ranks, into)) fold(0, ranks, into);
  }

 private:
  static constexpr Count chunk_bytes = 8192;
  static constexpr Count levels_bytes_max = 1024;

  // Small elements of a power of two of ranks: with a call of the operation for each level of the tree instead of one
  // for each pair. In the order of their numbers' bits in reverse, left operands are the first half, right ones the
  // second, and so are their results. False: this is no such case.
  bool fold_levels(int ranks, const Elements& into) const {
    const Count bytes = into.bytes();
    const bool is_tree = order_ == Order::tree || order_ == Order::doubling;
    if (ranks <= 2 || !std::has_single_bit(static_cast<unsigned>(ranks)) || bytes * ranks > levels_bytes_max ||
        !is_tree || !is_plain_ || !combine_.is_predefined())
      return false;
    alignas(16) std::array<std::byte, levels_bytes_max> memory;
    int reversed = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const void* const at = place(meeting_.shown_by(rank), into.count);
      if (at == nullptr) return false;
      std::memcpy(memory.data() + reversed * bytes, at, static_cast<std::size_t>(bytes));
      int bit = ranks / 2;
      for (; (reversed & bit) != 0; bit /= 2) reversed ^= bit;
      reversed |= bit;
    }
    std::byte* left = memory.data();
    for (int half = ranks / 2; half > 0; half /= 2) {
      std::byte* const right = left + half * bytes;
      combine_(left, right, half * into.count);
      left = right;
    }
    std::memcpy(into.address, left, static_cast<std::size_t>(bytes));
    return true;
  }

  void fold(int rank, int ranks, const Elements& into) const {
    if (ranks == 1) return get(rank, into);
    if (ranks == 2) return combine_pair(rank, into);
    if (order_ == Order::linear) {
      combine_pair(rank + ranks - 2, into);
      for (int i = ranks - 3; i >= 0; --i) combine(rank + i, into);
      return;
    }
    const int left = left_part(rank, ranks);
    fold(rank + left, ranks - left, into);
    if (left == 1) return combine(rank, into);
    Operand combined(type_, into.count);
    fold(rank, left, combined.elements());
    combine_(combined.elements().address, into.address, into.count);
  }

  /// How many of the ranks are combined by themselves before the others.
  [[nodiscard]] int left_part(int rank, int ranks) const noexcept {
    const auto half = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks) - 1));
    if (order_ == Order::tree) return half;
    if (order_ == Order::backward) return ranks - half;
    const Workers workers(size_);
    const int first = workers.of_rank(rank);
    const int count = workers.of_rank(rank + ranks) - first;
    if (count == 1) return 1;
    return workers.first_rank(first + count / 2) - rank;
  }

  /// A rank's elements where operations can take them. Null: nowhere.
  [[nodiscard]] const void* place(const Elements& given, Count count) const {
    if (given.layout == &type_.layout() && given.extent == type_.extent()) return part_of(given, first_, count).address;
    const char* const bytes = is_plain_ ? given.contiguous() : nullptr;
    return bytes == nullptr ? nullptr : bytes + first_ * type_.size();
  }

  void get(int rank, const Elements& into) const {
    const Elements given = meeting_.shown_by(rank);
    if (const void* const at = is_plain_ ? place(given, into.count) : nullptr; at != nullptr) {
      copy_long(into.address, at, static_cast<std::size_t>(into.bytes()));
      return;
    }
    Cursor to(into, 0);
    Cursor from(given, first_ * type_.size());
    copy(to, from, into.bytes());
  }

  void combine(int rank, const Elements& into) const {
    const void* const left = place(meeting_.shown_by(rank), into.count);
    if (left != nullptr) return combine_(left, into.address, into.count);
    Operand copied(type_, into.count);
    get(rank, copied.elements());
    combine_(copied.elements().address, into.address, into.count);
  }

  /// This rank and the next one.
  void combine_pair(int rank, const Elements& into) const {
    if (combine_.is_predefined()) {
      const void* const left = place(meeting_.shown_by(rank), into.count);
      const void* const right = place(meeting_.shown_by(rank + 1), into.count);
      if (left != nullptr && right != nullptr) return combine_(left, right, into.address, into.count);
    }
    get(rank + 1, into);
    combine(rank, into);
  }

  const Meeting& meeting_;
  int size_;
  const Combine& combine_;
  const Datatype& type_;
  Order order_;
  bool is_plain_;
  Count first_ = 0;
};

/// What a reducing call was given, and what it does with it.
class Reduction {
 public:
  Reduction(const Call& call, Comm& comm, CollectiveKind kind, const Combine& combine, const Datatype& type)
      : collective_(call, comm, kind, static_cast<int>(combine.operation())), combine_(combine), type_(type) {}

  /// All of `own` combined, in `result` of every rank. `own` may be `result`.
  void to_all(const Elements& own, const Elements& result) const {
    if (Board* const board = collective_.board()) return to_all_at(*board, own, result);
    if (HostBoard* const board = collective_.host_board()) {
      board->meet(collective_, own);
      if (Meeting::is_small(own.bytes())) return by_all(*board, own, result);
    }
    if (is_large(own)) return by_slices(own, result);
    by_doubling(own, result);
  }

  /// All of `own` combined, in `result` of the root. `own` may be `result`; others do not have that one.
  void to_root(const Elements& own, const Elements& result, int root) const {
    if (Board* const board = collective_.board()) return to_root_at(*board, own, result, root);
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

  /// Elements [begin(i), begin(i + 1)) of all of `own` combined, in `result` of rank i, which is no part of `own`.
  template <class Begin>
  void to_each(const Elements& own, const Begin& begin, const Elements& result) const {
    if (Board* const board = collective_.board()) return to_each_at(*board, own, begin(collective_.rank()), result);
    if (HostBoard* const board = collective_.host_board()) {
      board->meet(collective_, own);
      if (HostBoard::holds(own.bytes())) return to_each_by_all(*board, own, begin(collective_.rank()), result);
    }
    to_each_by_messages([&](int i) { return part_of(own, begin(i), begin(i + 1) - begin(i)); }, result);
  }

  // As by messages: from the last rank on.
  void to_each_by_all(HostBoard& board, const Elements& own, Count begin, const Elements& result) const {
    const Count first = begin * part_of(own, 0, 1).bytes();
    Operand other(type_, result.count);
    for (int rank = collective_.size() - 1; rank >= 0; --rank) {
      const bool is_last = rank == collective_.size() - 1;
      const Elements to = is_last ? result : other.elements();
      board.take(rank, to, first);
      if (!is_last) combine_(to.address, result.address, result.count);
    }
  }

  // slice(i): of a rank's elements.
  template <class Slice>
  void to_each_by_messages(const Slice& slice, const Elements& result) const {
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

  /// All of `own` of this and all lower ranks combined, in `result`, which may be `own`. `is_exclusive`: of lower ranks
  /// alone; then rank 0 has no result.
  void scan(const Elements& own, const Elements& result, bool is_exclusive) const {
    if (collective_.size() <= scan_ranks_max && Meeting::is_small(own.bytes())) {
      if (Board* const board = collective_.board()) return scan_at(*board, own, result, is_exclusive);
    }
    if (!is_exclusive) {
      if (own.address != result.address) copy(result, own, 0, own.bytes());
      return scan_by_messages(result);
    }
    Operand partial(type_, own.count);
    copy(partial.elements(), own, 0, own.bytes());
    scan_by_messages(partial.elements());
    const int rank = collective_.rank();
    if (rank + 1 < collective_.size()) collective_.send(rank + 1, partial.elements());
    if (rank > 0) collective_.receive(rank - 1, result);
  }

 private:
  static constexpr Count slice_bytes_min = 4096;
  static constexpr int scan_ranks_max = 64;  // each rank combines all before it

  /// `partial` becomes what this and all lower ranks have, combined.
  void scan_by_messages(const Elements& partial) const {
    Operand other(type_, partial.count);
    for (int step = 1; step < collective_.size(); step *= 2) {
      const int rank = collective_.rank();
      Window window(collective_);
      if (rank >= step) window.post(rank - step, other.elements());
      if (rank + step < collective_.size()) collective_.send(rank + step, partial);
      window.wait();
      if (rank >= step) combine_(other.elements().address, partial.address, partial.count);
    }
  }

  [[nodiscard]] bool is_large(const Elements& own) const noexcept {
    return collective_.size() > 1 && own.bytes() >= slice_bytes_min * collective_.size() &&
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
    const Workers workers(size);
    if (workers.is_helped(rank) && rank % 2 == 0) {
      collective_.send(rank + 1, partial);
      return collective_.receive(rank + 1, result);
    }
    if (workers.is_helped(rank)) {
      collective_.receive(rank - 1, other);
      combine_(other.address, partial.address, own.count);
    }
    const int worker = workers.of_rank(rank);
    for (int step = 1; step < workers.count; step *= 2) {
      const int partner = worker ^ step;
      const int partner_rank = workers.last_rank(partner);
      collective_.exchange(partner_rank, partial, partner_rank, other);
      if (partner > worker) std::swap(partial, other);
      combine_(other.address, partial.address, own.count);
    }
    if (partial.address != result.address) copy(result, partial, 0, own.bytes());
    if (workers.is_helped(rank)) collective_.send(rank - 1, result);
  }

  // Each rank combines what all have as by_doubling() does, so the bits are the same.
  void by_all(HostBoard& board, const Elements& own, const Elements& result) const {
    const int size = collective_.size();
    const Workers workers(size);
    Operand memory(type_, own.count * size);
    const auto operand = [&](int rank) { return part_of(memory.elements(), own.count * rank, own.count); };
    const auto combine = [&](int left, int right) {
      combine_(operand(left).address, operand(right).address, own.count);
    };
    for (int rank = 0; rank < size; ++rank) board.take(rank, operand(rank));
    for (int rank = 1; workers.is_helped(rank); rank += 2) combine(rank - 1, rank);
    for (int step = 1; step < workers.count; step *= 2) {
      for (int first = 0; first < workers.count; first += 2 * step)
        combine(workers.last_rank(first + step - 1), workers.last_rank(first + 2 * step - 1));
    }
    copy(result, operand(size - 1), 0, own.bytes());
  }

  // Large: each rank combines one slice of all, then everyone gets the slices.
  void by_slices(const Elements& own, const Elements& result) const {
    const int size = collective_.size();
    const auto slice_of = [&](const Elements& elements, int i) {
      return part_of(elements, slice_begin(own, i, size), slice_begin(own, i + 1, size) - slice_begin(own, i, size));
    };
    const auto slice = [&](int i) { return slice_of(own, i); };
    const Elements mine = slice_of(result, collective_.rank());
    if (own.address != result.address) {
      to_each_by_messages(slice, mine);
    } else {
      Operand combined(type_, mine.count);
      to_each_by_messages(slice, combined.elements());
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

  /// Where a slice begins when all `slices` have about the same.
  [[nodiscard]] static Count slice_begin(const Elements& elements, Count slice, Count slices) noexcept {
    return elements.count / slices * slice + std::min<Count>(slice, elements.count % slices);
  }

  // ---- at the board

  [[nodiscard]] Fold fold_of(const Meeting& meeting, Order order) const {
    return {meeting, collective_.size(), combine_, type_, order};
  }

  /// The first and the end of the elements that this rank combines. A slice is as many pieces as there are ranks, and a
  /// piece costs more than its elements where it is small. So of many ranks only some have a slice, spread over all,
  /// because neighbours share a processor.
  [[nodiscard]] std::pair<Count, Count> own_slice(const Elements& own) const noexcept {
    const Count size = collective_.size();
    const Count rank = collective_.rank();
    const Count piece_bytes_min = std::min<Count>(16 * size, 4096);
    const Count slices = std::clamp<Count>(own.bytes() / piece_bytes_min, 1, size);
    const Count slice = (rank * slices + size - 1) / size;
    if (slice * size / slices != rank) return {};
    return {slice_begin(own, slice, slices), slice_begin(own, slice + 1, slices)};
  }

  /// This rank's slice of all, combined, as put(first, elements) for one part after the other. `place`: all elements of
  /// memory where that may be; null: nowhere yet.
  template <class Put>
  void fold_slice(Meeting& meeting, const Elements& own, const Elements* place, Order order, const Put& put) const {
    meeting.begin_reading();
    Fold fold = fold_of(meeting, order);
    const auto [begin, end] = own_slice(own);
    const Count most = std::min(end - begin, fold.chunk());
    Operand memory(type_, most);
    for (Count first = begin; first < end; first += most) {
      const Count count = std::min(end - first, most);
      const Elements part = place != nullptr ? part_of(*place, first, count) : part_of(memory.elements(), 0, count);
      fold(collective_.size(), first, part);
      put(first, part);
    }
  }

  /// The part of another rank's result that begins with this element.
  void put_result(const Elements& result, Count first, const Elements& part) const {
    Cursor to(result, first * type_.size());
    Cursor from(part, 0);
    copy(to, from, part.bytes());
  }

  // Small: every rank combines all. Large: each combines one slice, and puts it where everyone wants it.
  void to_all_at(Board& board, const Elements& own, const Elements& result) const {
    const Order order = is_large(own) ? Order::linear : Order::doubling;
    Meeting meeting(collective_, board, static_cast<std::uint64_t>(own.bytes()));
    if (Meeting::is_small(own.bytes())) {
      meeting.show(own);
      meeting.arrive();
      return meeting.end_when_complete([combine = combine_, &type = type_, result, order](const Meeting& complete) {
        if (result.count == 0 || (combine.is_predefined() && complete.take_result(result))) return;
        complete.prefetch_shown();
        Fold(complete, complete.size(), combine, type, order)(complete.size(), 0, result);
        if (combine.is_predefined()) complete.keep_result(result);
      });
    }
    meeting.show(Given{.first = own, .result = result});
    meeting.arrive_and_wait();
    meeting.part_after(true, [&] {
      const bool is_in_place = own.address == result.address;
      fold_slice(meeting, own, is_in_place ? nullptr : &result, order, [&](Count first, const Elements& part) {
        for (int i = is_in_place ? 0 : 1; i < collective_.size(); ++i)
          put_result(meeting.result_of(collective_.before(i)), first, part);
      });
    });
  }

  void to_root_at(Board& board, const Elements& own, const Elements& result, int root) const {
    const bool is_root = collective_.rank() == root;
    Meeting meeting(collective_, board,
                    static_cast<std::uint64_t>(own.bytes()) ^ static_cast<std::uint64_t>(root) << 44);
    if (Meeting::is_small(own.bytes())) {
      meeting.show(own);
      if (!is_root) return meeting.leave();
      meeting.arrive();
      return meeting.end_when_complete([combine = combine_, &type = type_, result](const Meeting& complete) {
        complete.prefetch_shown();
        if (result.count != 0) Fold(complete, complete.size(), combine, type, Order::tree)(complete.size(), 0, result);
      });
    }
    meeting.show(Given{.first = own, .result = result});
    meeting.arrive_and_wait();
    meeting.part_after(true, [&] {
      const bool is_at_place = is_root && own.address != result.address;
      fold_slice(meeting, own, is_at_place ? &result : nullptr, Order::tree, [&](Count first, const Elements& part) {
        if (!is_at_place) put_result(meeting.result_of(root), first, part);
      });
    });
  }

  void to_each_at(Board& board, const Elements& own, Count begin, const Elements& result) const {
    const bool is_small = Meeting::is_small(own.bytes());
    Meeting meeting(collective_, board, static_cast<std::uint64_t>(own.bytes()));
    meeting.show(own);
    meeting.arrive_and_wait();
    meeting.part_after(!is_small, [&] {
      if (!is_small) meeting.begin_reading();
      Fold fold = fold_of(meeting, Order::linear);
      const Count most = fold.chunk();
      for (Count first = 0; first < result.count; first += most)
        fold(collective_.size(), begin + first, part_of(result, first, std::min(result.count - first, most)));
    });
  }

  void scan_at(Board& board, const Elements& own, const Elements& result, bool is_exclusive) const {
    Meeting meeting(collective_, board, static_cast<std::uint64_t>(own.bytes()));
    meeting.show(own);
    meeting.arrive_and_wait();
    const int ranks = collective_.rank() + (is_exclusive ? 0 : 1);
    if (ranks != 0 && own.count != 0) fold_of(meeting, Order::backward)(ranks, 0, result);
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
  if (own.address != result.address) return reduction.to_each(own, begin, result);
  Operand combined(type, result.count);
  reduction.to_each(own, begin, combined.elements());
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
  recvcounts = call.kept(recvcounts, comm.size());
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
  Reduction(call, comm, CollectiveKind::scan, combine, *type.datatype).scan(own, result, false);
}

// Rank 0 has no result: its recvbuf may be anything but sendbuf, which the other ranks may not give either.
void exscan(const Call& call, const void* sendbuf, void* recvbuf, MPI_Count count, TypeHandle& type, OpHandle& op,
            Comm& comm) {
  const Combine combine(op, type);
  Elements result{};
  if (comm.rank() > 0 || sendbuf == MPI_IN_PLACE) result = buffer_elements("recvbuf", recvbuf, count, type);
  const Elements own = own_elements(sendbuf, result, count, type);
  if (result.layout == nullptr) {
    Elements ignored = own;
    ignored.address = recvbuf;
    check_alias(own, ignored);
  }
  Reduction(call, comm, CollectiveKind::exscan, combine, *type.datatype).scan(own, result, true);
}

}  // namespace aplib::mpi
