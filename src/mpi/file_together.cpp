// SPDX-License-Identifier: MIT
// Transfers of all ranks together. Pieces of several ranks that lie between each other in the file are put together on
// stages, so that the system is called for long stretches alone. Ranks of one process take windows of the file one by
// one, whoever has time, and copy straight from and to each other's memory. Ranks of several processes have a part of
// the file each, and send each other the pieces that belong there.
#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "mpi/file_transfer.hpp"
#include "mpi/tell_all.hpp"

namespace aplib::mpi {

namespace {

// Pieces of this size and more go by themselves.
constexpr Count small_below_bytes = 64 * 1024;

/// A rank's part, which stays until the call is over.
struct Member {
  const Transfer* transfer;
  std::atomic<Count> next_window{0};  ///< The first rank's: nobody has taken it yet.
};

/// What the ranks tell each other.
struct Part {
  Count first = 0;  ///< Of the bytes in the file.
  Count end = 0;
  Count bytes = 0;
  Count block_bytes = 0;
  Count buffer_bytes = 0;
  bool can_stage = false;
  Member* member = nullptr;  ///< For ranks of the same process.

  [[nodiscard]] bool touches(Count from, Count to) const noexcept { return bytes > 0 && first < to && end > from; }
};

/// Which way the ranks choose, all the same.
class TransferPlan {
 public:
  explicit TransferPlan(const std::vector<Part>& parts) : parts_(parts) {
    Count bytes = 0;
    bool are_small = false;
    bool can_stage = true;
    std::vector<Extent> ranges;
    for (const Part& part : parts) {
      can_stage = can_stage && part.can_stage;
      if (part.bytes == 0) continue;
      bytes += part.bytes;
      first_ = std::min(first_, part.first);
      end_ = std::max(end_, part.end);
      are_small = are_small || part.block_bytes < small_below_bytes;
      ranges.push_back({part.first, part.end - part.first});
    }
    uses_stages_ = can_stage && are_small && overlap(ranges) && (end_ - first_) / sparse_max <= bytes;
  }

  [[nodiscard]] bool uses_stages() const noexcept { return uses_stages_; }
  [[nodiscard]] Count first() const noexcept { return first_; }
  [[nodiscard]] Count end() const noexcept { return end_; }
  [[nodiscard]] const std::vector<Part>& parts() const noexcept { return parts_; }
  [[nodiscard]] Count buffer_bytes() const noexcept { return parts_.front().buffer_bytes; }

 private:
  static bool overlap(std::vector<Extent>& ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].offset < ranges[i - 1].offset + ranges[i - 1].bytes) return true;
    }
    return false;
  }

  const std::vector<Part>& parts_;
  Count first_ = std::numeric_limits<Count>::max();
  Count end_ = 0;
  bool uses_stages_ = false;
};

/// Whether extents cover a range without gaps, in any order. They do if each begins where another one ends, but for the
/// first and the last. Sums of hashes of begins and ends tell that, all but certainly.
class Cover {
 public:
  void add(const Extent& extent) noexcept {
    sum_ += hash(extent.offset + extent.bytes) - hash(extent.offset);
    first_ = std::min(first_, extent.offset);
    end_ = std::max(end_, extent.offset + extent.bytes);
  }
  [[nodiscard]] bool is_empty() const noexcept { return first_ >= end_; }
  [[nodiscard]] bool is_complete() const noexcept { return sum_ == hash(end_) - hash(first_); }
  [[nodiscard]] Count first() const noexcept { return first_; }
  [[nodiscard]] Count end() const noexcept { return end_; }

 private:
  static std::uint64_t hash(Count offset) noexcept {  // the finalizer of splitmix64
    auto bits = static_cast<std::uint64_t>(offset) + 0x9e3779b97f4a7c15U;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebU;
    return bits ^ bits >> 31;
  }

  std::uint64_t sum_ = 0;
  Count first_ = std::numeric_limits<Count>::max();
  Count end_ = 0;
};

/// Writes a stage. fill(): copies there what is to be written. Where that leaves gaps, the file's bytes are in them.
template <class Fill>
void write_stage(const DiskFile& disk, std::byte* stage, const Cover& cover, const Fill& fill) {
  const bool has_gaps = !cover.is_complete();
  const RangeLock lock(disk, has_gaps ? RangeLock::Kind::exclusive : RangeLock::Kind::shared, cover.first(),
                       cover.end() - cover.first());
  if (has_gaps) fill_stage(disk, stage, cover.first(), cover.end());
  fill();
  disk.write(stage, cover.end() - cover.first(), cover.first());
}

// ---------------------------------------------------------------- in one process

/// What a transfer has in a window of the file.
struct Share {
  const Transfer* transfer;
  Count first;  // positions
  Count last;
};

class Windows {
 public:
  Windows(const File& file, const TransferPlan& plan)
      : file_(file),
        plan_(plan),
        bytes_(plan.buffer_bytes()),
        first_(plan.first() - plan.first() % bytes_),
        count_((plan.end() - first_ + bytes_ - 1) / bytes_) {}

  void move() {
    std::atomic<Count>& next = plan_.parts().front().member->next_window;
    while (true) {
      const Count window = next.fetch_add(1, std::memory_order_relaxed);  // relaxed: only a ticket
      if (window >= count_) return;
      move_window(first_ + window * bytes_);
    }
  }

 private:
  void move_window(Count from) {
    shares_.clear();
    Cover cover;
    const Count to = from + bytes_;
    for (const Part& part : plan_.parts()) {
      if (!part.touches(from, to)) continue;
      const Transfer& its = *part.member->transfer;
      const Share share{&its, std::max(its.begin, its.view->position_at(from)),
                        std::min(its.end(), its.view->position_at(to))};
      if (share.first >= share.last) continue;
      shares_.push_back(share);
      its.view->for_each_block(share.first, share.last, [&](const Extent& extent) { cover.add(extent); });
    }
    if (cover.is_empty()) return;
    if (stage_ == nullptr) stage_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes_));
    std::byte* const stage = stage_.get();
    const auto copy = [&] {
      for (const Share& share : shares_) share.transfer->copy(stage, cover.first(), share.first, share.last);
    };
    if (shares_.front().transfer->is_write) return write_stage(file_.disk, stage, cover, copy);
    fill_stage(file_.disk, stage, cover.first(), cover.end());
    copy();
  }

  const File& file_;
  const TransferPlan& plan_;
  Count bytes_;
  Count first_;
  Count count_;
  std::vector<Share> shares_;
  std::unique_ptr<std::byte[]> stage_;
};

// ---------------------------------------------------------------- in several processes

/// Each rank has a part of the file, which it goes through window by window, in rounds: in each, everyone sends it what
/// belongs into its window, or asks it for that.
///
/// A rank that fails, perhaps for want of memory, still sends and receives whatever others wait for: it asks for
/// nothing, answers with nothing, and takes no message's bytes.
class Rounds {
 public:
  Rounds(const Collective& collective, const File& file, const TransferPlan& plan, const Transfer& own)
      : collective_(collective), file_(file), plan_(plan), own_(own), bytes_(plan.buffer_bytes()) {
    const Count windows = (plan.end() - plan.first() + bytes_ - 1) / bytes_;
    per_rank_ = (windows + collective.size() - 1) / collective.size();
  }

  /// The rank's own failure, if it has one. It takes part to the end.
  std::optional<Failure> move() {
    for (Count round = 0; round < per_rank_; ++round) {
      for (int i = 0; i < collective_.size(); ++i) ask(collective_.before(i), round);
      note(attempt([&] { serve(round); }));
      for (int i = 0; i < collective_.size() && !own_.is_write; ++i) take(collective_.before(i), round);
    }
    return std::move(failure_);
  }

 private:
  /// What goes in front of a message.
  struct Head {
    Count extents = 0;
    Count bytes = 0;
  };
  /// What a rank has sent.
  struct Request {
    int rank;
    Head head;
    std::vector<std::byte> body;  // the extents, then the bytes

    [[nodiscard]] std::span<const Extent> extents() const noexcept {
      return {reinterpret_cast<const Extent*>(body.data()), static_cast<std::size_t>(head.extents)};
    }
    [[nodiscard]] std::byte* bytes() noexcept {
      return body.data() + static_cast<std::size_t>(head.extents) * sizeof(Extent);
    }
  };

  void note(std::optional<Failure> failure) {
    if (!failure_) failure_ = std::move(failure);
  }
  [[nodiscard]] Count window_of(int rank, Count round) const noexcept {
    return plan_.first() + (rank * per_rank_ + round) * bytes_;
  }
  [[nodiscard]] const Part& part(int rank) const noexcept { return plan_.parts()[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool sends(int from, int to, Count round) const noexcept {
    const Count window = window_of(to, round);
    return part(from).touches(window, window + bytes_);
  }
  [[nodiscard]] Share share_in(Count window) const noexcept {
    return {&own_, std::max(own_.begin, own_.view->position_at(window)),
            std::min(own_.end(), own_.view->position_at(window + bytes_))};
  }

  void ask(int rank, Count round) {
    if (!sends(collective_.rank(), rank, round)) return;
    Head head;
    std::vector<std::byte> body;
    note(attempt([&] { gather(share_in(window_of(rank, round)), head, body); }));
    collective_.send(rank, bytes_in(&head, sizeof head));
    collective_.send(rank, bytes_in(body.data(), static_cast<Count>(body.size())));
  }

  /// What goes to another rank. Without memory for it both stay empty.
  void gather(const Share& share, Head& head, std::vector<std::byte>& body) const {
    std::vector<Extent> extents;
    if (share.first < share.last) {
      own_.view->for_each_block(share.first, share.last, [&](const Extent& extent) { extents.push_back(extent); });
    }
    const auto extents_bytes = static_cast<Count>(extents.size() * sizeof(Extent));
    const Count bytes = std::max<Count>(share.last - share.first, 0);
    body.resize(static_cast<std::size_t>(extents_bytes + (own_.is_write ? bytes : 0)));
    if (extents_bytes > 0) std::memcpy(body.data(), extents.data(), static_cast<std::size_t>(extents_bytes));
    if (own_.is_write) pack(body.data() + extents_bytes, own_.memory, share.first - own_.begin, bytes);
    head = {static_cast<Count>(extents.size()), bytes};
  }

  // Who waits for an answer gets one, and learns of a failure at the end.
  void serve(Count round) {
    std::vector<Request> requests;
    Cover cover;
    for (int i = 0; i < collective_.size(); ++i) {
      const int rank = collective_.behind(i);
      if (sends(rank, collective_.rank(), round)) hear(rank, round, requests, cover);
    }
    if (!failure_ && !cover.is_empty()) note(attempt([&] { work(requests, cover); }));
    if (own_.is_write) return;
    for (Request& request : requests) collective_.send(request.rank, bytes_in(request.bytes(), request.head.bytes));
  }

  void hear(int rank, Count round, std::vector<Request>& requests, Cover& cover) {
    bool has_body = false;
    auto failed = attempt([&] {
      Request request{rank, {}, {}};
      collective_.receive(rank, bytes_in(&request.head, sizeof request.head));
      const Head& head = request.head;
      if (head.bytes < 0 || head.bytes > bytes_ || head.extents < 0 || head.extents > head.bytes) fail_request(rank);
      const Count body = head.extents * static_cast<Count>(sizeof(Extent)) + (own_.is_write ? head.bytes : 0);
      request.body.resize(static_cast<std::size_t>(body + (own_.is_write ? 0 : head.bytes)));
      has_body = true;
      collective_.receive(rank, bytes_in(request.body.data(), body));
      check_extents(request, window_of(collective_.rank(), round));
      requests.push_back(std::move(request));
      for (const Extent& extent : requests.back().extents()) cover.add(extent);
    });
    if (!failed) return;
    note(std::move(failed));
    if (!has_body) drop(rank);
    if (!own_.is_write) collective_.send(rank, bytes_in(nullptr, 0));
  }

  /// Its next message.
  void drop(int rank) const {
    static_cast<void>(attempt([&] { collective_.receive(rank, bytes_in(nullptr, 0)); }));
  }

  [[noreturn]] static void fail_request(int rank) {
    fail(MPI_ERR_INTERN, fmt::format("rank {} asks for pieces of the file that are not in its part; are all "
                                     "installations of APlib the same?",
                                     rank));
  }

  void check_extents(const Request& request, Count window) const {
    Count left = request.head.bytes;
    for (const Extent& extent : request.extents()) {
      if (extent.bytes <= 0 || extent.bytes > left || extent.offset < window ||
          extent.offset - window > bytes_ - extent.bytes) {
        fail_request(request.rank);
      }
      left -= extent.bytes;
    }
    if (left != 0) fail_request(request.rank);
  }

  void work(std::vector<Request>& requests, const Cover& cover) {
    if (stage_ == nullptr) stage_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes_));
    std::byte* const stage = stage_.get();
    const auto copy_all = [&] {
      for (Request& request : requests) copy(request, stage, cover.first());
    };
    if (own_.is_write) return write_stage(file_.disk, stage, cover, copy_all);
    fill_stage(file_.disk, stage, cover.first(), cover.end());
    copy_all();
  }

  void copy(Request& request, std::byte* stage, Count first) const noexcept {
    std::byte* bytes = request.bytes();
    for (const Extent& extent : request.extents()) {
      std::byte* const place = stage + (extent.offset - first);
      std::memcpy(own_.is_write ? place : bytes, own_.is_write ? bytes : place, static_cast<std::size_t>(extent.bytes));
      bytes += extent.bytes;
    }
  }

  /// What the rank answers.
  void take(int rank, Count round) {
    if (!sends(collective_.rank(), rank, round)) return;
    const Share share = share_in(window_of(rank, round));
    const Count bytes = std::max<Count>(share.last - share.first, 0);
    std::unique_ptr<std::byte[]> packed;
    if (auto failed =
            attempt([&] { packed = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes)); })) {
      note(std::move(failed));
      return drop(rank);
    }
    if (auto failed = attempt([&] { collective_.receive(rank, bytes_in(packed.get(), bytes)); })) {
      if (failed->code == MPI_ERR_COUNT)
        failed =
            Failure{MPI_ERR_NO_MEM, fmt::format("rank {} has failed to read this rank's pieces of the file", rank)};
      return note(std::move(failed));
    }
    unpack(own_.memory, packed.get(), share.first - own_.begin, bytes);
  }

  const Collective& collective_;
  const File& file_;
  const TransferPlan& plan_;
  const Transfer& own_;
  Count bytes_;
  Count per_rank_;
  std::unique_ptr<std::byte[]> stage_;
  std::optional<Failure> failure_;
};

// ---------------------------------------------------------------- the call

/// No bytes behind the file's end are to be read.
Transfer clipped(const File& file, Transfer transfer) {
  if (transfer.is_write || transfer.bytes == 0 || !transfer.view->is_ordered() || !file.disk.has_size())
    return transfer;
  const Count there = transfer.view->position_at(file.disk.size()) - transfer.begin;
  transfer.bytes = std::clamp<Count>(there, 0, transfer.bytes);
  return transfer;
}

Part part_of(const File& file, const Transfer& transfer, Member& member) {
  Part part;
  part.bytes = transfer.bytes;
  part.buffer_bytes = file.hints.buffer_bytes;
  part.can_stage = file.hints.buffers_collectively && !file.is_atomic && transfer.view->is_ordered() &&
                   (!transfer.is_write || (file.can_lock && file.disk.is_readable()));
  part.member = &member;
  if (part.bytes == 0 || !transfer.view->is_ordered()) return part;
  part.first = transfer.first_offset();
  part.end = transfer.end_offset();
  part.block_bytes = std::min(transfer.view->block_bytes(), transfer.bytes);
  return part;
}

}  // namespace

Count move_together(const Call& call, const File& file, const Transfer& given, std::optional<Failure> failure) {
  Comm& comm = *file.comm;
  if (comm.size() == 1) {
    if (failure) throw Failure(std::move(*failure));
    return move_alone(file, given);
  }
  constexpr CollectiveKind kind = CollectiveKind::file;
  Transfer transfer = given;
  if (!failure) failure = attempt([&] { transfer = clipped(file, given); });
  if (failure) transfer.bytes = 0;
  Member member{&transfer};
  const auto parts = tell_all(Collective(call, comm, kind), part_of(file, transfer, member));
  const TransferPlan plan(parts);
  const Collective working(call, comm, kind);
  Count moved = transfer.bytes;
  // A read finds the end of the file by itself, also where the system does not tell a size (/proc).
  const auto move_own = [&] { moved = move_alone(file, failure ? transfer : given); };
  if (Board* const board = working.board()) {
    Meeting meeting(working, *board);
    const auto failed = attempt([&] {
      if (!plan.uses_stages()) return move_own();
      meeting.begin_reading();  // and writing
      Windows(file, plan).move();
    });
    meeting.stop_reading();
    if (!failure) failure = failed;
    const auto codes = tell_all(meeting, comm.size(), failure ? failure->code : MPI_SUCCESS);
    fail_together(call, comm, kind, codes, failure);
    return moved;
  }
  const auto failed = plan.uses_stages() ? Rounds(working, file, plan, transfer).move() : attempt(move_own);
  if (!failure) failure = failed;
  agree(call, comm, kind, failure);
  return moved;
}

}  // namespace aplib::mpi
