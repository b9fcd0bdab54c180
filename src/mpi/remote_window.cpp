// SPDX-License-Identifier: MIT
#include "mpi/remote_window.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace aplib::mpi {

// ---------------------------------------------------------------- errands
// An errand is a head, blocks of the target's memory, and data. All processes run the same build.

enum class ErrandKind : std::uint32_t {
  put = 1,
  get,      // answered by what is there
  combine,  // answered by what was there, if somebody waits for that
  compare,  // the same. Data: the value and what it is compared with.
  flush,    // answered
  lock,     // answered by `locked`, when the target's lock is given to the origin
  locked,
  unlock,  // answered
  cancel_lock,
  post,      // the origin has opened its memory for the target
  complete,  // the origin is done with the target's memory
  refused,   // to the origin: something could not be put
  reply,
};

struct ErrandHead {
  ErrandKind kind{};
  Operation operation = Operation::none;  ///< How elements are combined,
  BasicType type = BasicType::byte;       ///< which have this type.
  std::uint8_t flag = 0;                  ///< Of a lock: it is exclusive. Of a reply: it is refused.
  std::int32_t origin = 0;                ///< Rank.
  std::int32_t target = 0;
  std::uint64_t window = 0;  ///< The receiver's number of it.
  std::uint64_t reply = 0;   ///< The number of who waits for a reply; 0: nobody.
  Count first = 0;           ///< Bytes that earlier errands of the call have, which a reply brings back.
  std::uint32_t blocks = 0;
  std::uint32_t bytes = 0;  ///< Of all blocks.
};

namespace {

struct ErrandBlock {
  Count offset;  ///< From the target's base.
  Count bytes;
};

constexpr Count part_max = 8 * 1024;
constexpr std::size_t blocks_max = 448;
// An element may lie in two blocks more.
static_assert(sizeof(ErrandHead) + (blocks_max + 2) * sizeof(ErrandBlock) + part_max <= Errands::bytes_max);

using ErrandBytes = std::vector<std::byte>;

void append(ErrandBytes& errand, const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(data);
  errand.insert(errand.end(), first, first + bytes);
}

ErrandBytes errand_of(const ErrandHead& head) {
  ErrandBytes errand;
  append(errand, &head, sizeof head);
  return errand;
}

/// The errand which tells a rank of another process that it has the lock of a rank of this one.
ErrandBytes locked_errand(const WindowBoard::Member& told, int rank, int target) {
  return errand_of({.kind = ErrandKind::locked, .origin = rank, .target = target, .window = told.number});
}

/// The blocks in which the next bytes of elements lie: whole units, as many as one errand can have.
Count next_blocks(Cursor& cursor, Count unit, Count bytes, std::vector<ErrandBlock>& blocks) {
  const Count room = std::min(bytes, part_max / unit * unit);
  blocks.clear();
  Count part = 0;
  while (part < room && (blocks.size() < blocks_max || part % unit != 0)) {
    const Run run = cursor.run();
    const Count length = std::min(run.block, room - part);
    const auto offset = static_cast<Count>(
        reinterpret_cast<std::uintptr_t>(run.list != nullptr ? run.address + *run.list : run.address));
    if (!blocks.empty() && blocks.back().offset + blocks.back().bytes == offset) {
      blocks.back().bytes += length;
    } else {
      blocks.push_back({offset, length});
    }
    if (length == run.block) {
      cursor.skip_blocks(1);
    } else {
      cursor.skip_bytes(length);
    }
    part += length;
  }
  return part;
}

}  // namespace

// ---------------------------------------------------------------- what others ask for

struct RemoteWindows::Asked {
  ErrandHead head;
  std::span<const std::byte> data;
  std::vector<ErrandBlock> blocks;
  WindowBoard* board = nullptr;
  WindowBoard::Member* target = nullptr;
};

std::shared_ptr<RemoteWindows> RemoteWindows::of_process(const char* call) {
  return std::static_pointer_cast<RemoteWindows>(api::errands(
      call, [](Domain& domain) -> std::unique_ptr<Errands> { return std::make_unique<RemoteWindows>(domain); }));
}

std::uint64_t RemoteWindows::add(WindowBoard& board) {
  const std::lock_guard lock(mutex_);
  boards_.emplace(next_, &board);
  return next_++;
}

void RemoteWindows::remove(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  boards_.erase(number);
}

bool RemoteWindows::take(std::uint32_t from, std::span<const std::byte> errand) {
  Asked asked;
  ErrandHead& head = asked.head;
  if (errand.size() < sizeof head) return false;
  std::memcpy(&head, errand.data(), sizeof head);
  errand = errand.subspan(sizeof head);
  if (head.blocks > errand.size() / sizeof(ErrandBlock)) return false;
  asked.blocks.resize(head.blocks);
  const std::size_t block_bytes = head.blocks * sizeof(ErrandBlock);
  if (block_bytes != 0) std::memcpy(asked.blocks.data(), errand.data(), block_bytes);
  asked.data = errand.subspan(block_bytes);
  const std::lock_guard lock(mutex_);
  if (head.kind == ErrandKind::reply) return take_reply(from, head, asked.data);
  const auto place = boards_.find(head.window);
  if (place == boards_.end()) {  // all its ranks here have ended
    answer(from, asked, {}, true);
    return true;
  }
  asked.board = place->second;
  const int size = asked.board->size();
  if (head.origin < 0 || head.origin >= size || head.target < 0 || head.target >= size) return false;
  asked.target = &asked.board->member(head.target);
  return carry_out(from, asked);
}

bool RemoteWindows::take_reply(std::uint32_t from, const ErrandHead& head, std::span<const std::byte> data) {
  const auto place = replies_.find(head.reply);
  if (place == replies_.end()) return true;  // who waited is gone
  Reply& reply = *place->second;
  if (reply.process != from) return false;
  const auto bytes = static_cast<Count>(data.size());
  if (head.first < 0 || (bytes != 0 && (reply.to.layout == nullptr || head.first > reply.to.bytes() - bytes)))
    return false;
  if (head.flag != 0) reply.is_refused.store(true, std::memory_order_relaxed);  // relaxed: published below
  if (bytes != 0) unpack(reply.to, data.data(), head.first, bytes);
  reply.open.fetch_sub(1, std::memory_order_release);  // release: the data
  api::stir_all(domain_);
  return true;
}

void RemoteWindows::answer(std::uint32_t to, const Asked& asked, std::span<const std::byte> data, bool is_refused) {
  if (asked.head.reply == 0) return;
  ErrandBytes errand = errand_of({.kind = ErrandKind::reply,
                                  .flag = static_cast<std::uint8_t>(is_refused ? 1 : 0),
                                  .reply = asked.head.reply,
                                  .first = asked.head.first});
  append(errand, data.data(), data.size());
  api::answer_errand(domain_, to, errand);
}

void RemoteWindows::give_locks(WindowBoard& board, int target, const std::vector<int>& given) {
  for (const int rank : given) {
    const WindowBoard::Member& its = board.member(rank);
    if (!its.is_here) api::answer_errand(domain_, its.process, locked_errand(its, rank, target));
  }
}

bool RemoteWindows::carry_out(std::uint32_t from, const Asked& asked) {
  const ErrandHead& head = asked.head;
  WindowBoard& board = *asked.board;
  WindowBoard::Member& origin = board.member(head.origin);
  // What is asked for is about memory here; what is told comes from where the target is.
  const bool is_told = head.kind == ErrandKind::locked || head.kind == ErrandKind::refused;
  const WindowBoard::Member& here = is_told ? origin : *asked.target;
  const WindowBoard::Member& there = is_told ? *asked.target : origin;
  if (!here.is_here || there.is_here || there.process != from) return false;
  switch (head.kind) {
    case ErrandKind::put:
    case ErrandKind::get:
    case ErrandKind::combine:
    case ErrandKind::compare:
      return access(from, asked);
    case ErrandKind::flush:
      answer(from, asked, {});
      return true;
    case ErrandKind::lock:
      if (asked.target->lock(head.origin, head.flag != 0)) give_locks(board, head.target, {head.origin});
      return true;
    case ErrandKind::unlock:
    case ErrandKind::cancel_lock:
      give_locks(
          board, head.target,
          head.kind == ErrandKind::unlock ? asked.target->unlock(head.origin) : asked.target->cancel(head.origin));
      answer(from, asked, {});
      break;
    case ErrandKind::locked:
      asked.target->note_lock(head.origin);
      break;
    case ErrandKind::post:
      asked.target->note_post(head.origin);
      break;
    case ErrandKind::complete:
      asked.target->note_complete(head.origin);
      break;
    case ErrandKind::refused:
      origin.is_refused.store(true, std::memory_order_relaxed);  // relaxed: a reply follows
      return true;
    default:
      return false;
  }
  api::stir_all(domain_);
  return true;
}

// Puts, gets and their kin.
bool RemoteWindows::access(std::uint32_t from, const Asked& asked) {
  const ErrandHead& head = asked.head;
  WindowBoard::Member& target = *asked.target;
  Count bytes = 0;
  for (const ErrandBlock& block : asked.blocks) {
    if (block.bytes <= 0 || block.offset < 0 || block.bytes > part_max) return false;
    bytes += block.bytes;
    if (asked.board->is_dynamic()) {
      if (target.is_attached(static_cast<std::uintptr_t>(block.offset), block.bytes)) continue;
      answer(from, asked, {}, true);
      if (head.reply != 0) return true;
      api::answer_errand(domain_, from,
                         errand_of({.kind = ErrandKind::refused,
                                    .origin = head.origin,
                                    .target = head.target,
                                    .window = asked.board->member(head.origin).number}));
      return true;
    }
    if (block.offset > target.bytes || block.bytes > target.bytes - block.offset) return false;
  }
  if (bytes == 0 || bytes > part_max || head.bytes != bytes) return false;
  LayoutPtr layout;  // of several blocks
  Elements memory;
  if (asked.blocks.size() == 1) {
    memory = bytes_in(target.base + asked.blocks[0].offset, bytes);
  } else {
    LayoutBuilder builder;
    for (const ErrandBlock& block : asked.blocks) builder.add_block(block.offset, block.bytes);
    layout = builder.finish();
    memory = {target.base, layout.get(), 1, layout->upper()};
  }
  const auto size = static_cast<Count>(asked.data.size());
  std::array<std::byte, part_max> before;
  const Elements kept = bytes_in(before.data(), bytes);
  const std::span<const std::byte> answered(before.data(), static_cast<std::size_t>(bytes));
  switch (head.kind) {
    case ErrandKind::put:
      if (size != bytes) return false;
      unpack(memory, asked.data.data(), 0, bytes);
      return true;
    case ErrandKind::get:
      pack(before.data(), memory, 0, bytes);
      answer(from, asked, answered);
      return true;
    case ErrandKind::combine: {
      const Accumulation how(head.operation, head.type);
      if (!how.is_defined() || (!how.is_copy() && bytes % how.size() != 0) || size != (how.only_reads() ? 0 : bytes))
        return false;
      how.combine(target, memory, bytes_at(asked.data.data(), size), head.reply != 0 ? &kept : nullptr, bytes);
      answer(from, asked, answered);
      return true;
    }
    default: {  // compare
      if (size != 2 * bytes || asked.blocks.size() != 1) return false;
      compare_and_swap(target, target.base + asked.blocks[0].offset, asked.data.data(), asked.data.data() + bytes,
                       before.data(), static_cast<std::size_t>(bytes));
      answer(from, asked, answered);
      return true;
    }
  }
}

// ---------------------------------------------------------------- asking

/// Replies have come.
class RemoteTarget::Answered final : public AwaitedInWindow {
 public:
  Answered(const Win& win, int target, const RemoteWindows::Reply& reply) noexcept
      : AwaitedInWindow(win), target_(target), reply_(reply) {}

  [[nodiscard]] bool holds() const noexcept override {
    return reply_.open.load(std::memory_order_acquire) <= 0;  // acquire: the data
  }
  [[nodiscard]] std::string missing() const override {
    return fmt::format("the process of rank {} of {}", target_, win_.title());
  }

 private:
  // Its process answers even if the rank has ended.
  [[nodiscard]] bool is_missing(int) const noexcept override { return false; }

  int target_;
  const RemoteWindows::Reply& reply_;
};

/// Replies find their place while this lives.
class RemoteTarget::Waiting {
 public:
  Waiting(const Call& call, RemoteWindows::Reply& reply) : windows_(RemoteWindows::of_process(call.name())) {
    const std::lock_guard lock(windows_->mutex_);
    number_ = windows_->next_++;
    windows_->replies_.emplace(number_, &reply);
  }
  ~Waiting() {
    const std::lock_guard lock(windows_->mutex_);
    windows_->replies_.erase(number_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

 private:
  std::shared_ptr<RemoteWindows> windows_;
  std::uint64_t number_ = 0;
};

ErrandHead RemoteTarget::addressed(ErrandHead head) const noexcept {
  head.origin = win_.rank();
  head.target = rank_;
  head.window = win_.member(rank_).number;
  return head;
}

void RemoteTarget::send(std::span<const std::byte> errand) const {
  api::send_errand(call_.name(), win_.comm->cell_of(rank_), errand);
}

void RemoteTarget::send(const ErrandHead& head) const { send(errand_of(addressed(head))); }

void RemoteTarget::await(RemoteWindows::Reply& reply) const {
  Answered(win_, rank_, reply).wait(call_, "a reply");
  if (reply.is_refused.load(std::memory_order_relaxed)) {  // relaxed: ordered by holds()
    fail(MPI_ERR_RMA_RANGE, fmt::format("the memory is not attached at rank {}, or that rank has ended", rank_));
  }
}

void RemoteTarget::send_parts(ErrandHead head, const Elements& there, const Elements* here, Count unit, Count bytes,
                              RemoteWindows::Reply* reply) const {
  constexpr int open_max = 64;  // what the other process keeps for us meanwhile
  head = addressed(head);
  Cursor cursor(there, 0);
  std::vector<ErrandBlock> blocks;
  while (head.first < bytes) {
    const Count part = next_blocks(cursor, unit, bytes - head.first, blocks);
    head.blocks = static_cast<std::uint32_t>(blocks.size());
    head.bytes = static_cast<std::uint32_t>(part);
    ErrandBytes errand = errand_of(head);
    append(errand, blocks.data(), blocks.size() * sizeof(ErrandBlock));
    if (here != nullptr) {
      const std::size_t end = errand.size();
      errand.resize(end + static_cast<std::size_t>(part));
      pack(errand.data() + end, *here, head.first, part);
    }
    if (reply != nullptr && reply->open.fetch_add(1, std::memory_order_relaxed) + 1 > open_max) {  // relaxed: a count
      reply->open.fetch_sub(1, std::memory_order_relaxed);                                         // the same
      await(*reply);
      reply->open.fetch_add(1, std::memory_order_relaxed);  // the same
    }
    send(errand);
    head.first += part;
  }
}

void RemoteTarget::put(const Elements& to, const Elements& from, Count bytes) const {
  note_put();
  send_parts({.kind = ErrandKind::put}, to, &from, 1, bytes, nullptr);
}

void RemoteTarget::get(const Elements& to, const Elements& from, Count bytes) const {
  RemoteWindows::Reply reply{.process = process(), .to = to};
  const Waiting waiting(call_, reply);
  send_parts({.kind = ErrandKind::get, .reply = waiting.number()}, from, nullptr, 1, bytes, &reply);
  await(reply);
}

void RemoteTarget::combine(const Accumulation& how, const Elements& to, const Elements& from, const Elements* result,
                           Count bytes) const {
  ErrandHead head{.kind = ErrandKind::combine, .operation = how.operation(), .type = how.type()};
  const Elements* const origin = how.only_reads() ? nullptr : &from;
  if (result == nullptr) {
    note_put();
    return send_parts(head, to, origin, how.size(), bytes, nullptr);
  }
  RemoteWindows::Reply reply{.process = process(), .to = *result};
  const Waiting waiting(call_, reply);
  head.reply = waiting.number();
  send_parts(head, to, origin, how.size(), bytes, &reply);
  await(reply);
}

void RemoteTarget::compare_and_swap(const Elements& at, const void* value, const void* compared, void* result,
                                    Count bytes) const {
  RemoteWindows::Reply reply{.process = process(), .to = bytes_in(result, bytes), .open = 1};
  const Waiting waiting(call_, reply);
  const ErrandBlock block{static_cast<Count>(reinterpret_cast<std::uintptr_t>(at.address)), bytes};
  ErrandBytes errand = errand_of(addressed({.kind = ErrandKind::compare,
                                            .reply = waiting.number(),
                                            .blocks = 1,
                                            .bytes = static_cast<std::uint32_t>(bytes)}));
  append(errand, &block, sizeof block);
  append(errand, value, static_cast<std::size_t>(bytes));
  append(errand, compared, static_cast<std::size_t>(bytes));
  send(errand);
  await(reply);
}

// ---------------------------------------------------------------- synchronising

void check_refused(Win& win) {
  if (win.own().is_refused.exchange(false, std::memory_order_relaxed))  // relaxed: a reply came behind it
    fail(MPI_ERR_RMA_RANGE, "an earlier call of this epoch has put something where no memory is attached");
}

void RemoteTarget::ask(ErrandKind kind) const {
  const auto puts = [this] {
    const auto place = win_.unflushed.find(process());
    return place != win_.unflushed.end() ? place->second : 0;
  };
  const std::uint64_t answered = puts();
  RemoteWindows::Reply reply{.process = process(), .open = 1};
  const Waiting waiting(call_, reply);
  send({.kind = kind, .reply = waiting.number()});
  await(reply);
  if (puts() == answered) win_.unflushed.erase(process());  // else other threads have put something meanwhile
}

void RemoteTarget::flush() const {
  if (win_.unflushed.contains(process())) ask(ErrandKind::flush);
}

void RemoteTarget::ask_for_lock(bool exclusive) const {
  send({.kind = ErrandKind::lock, .flag = static_cast<std::uint8_t>(exclusive ? 1 : 0)});
}

void RemoteTarget::unlock() const {
  win_.member(rank_).forget_lock(win_.rank());
  ask(ErrandKind::unlock);
}

// It may be on its way here.
void RemoteTarget::cancel_lock() const {
  ask(ErrandKind::cancel_lock);
  win_.member(rank_).forget_lock(win_.rank());
}

void RemoteTarget::give_lock(int target) const { send(locked_errand(win_.member(rank_), rank_, target)); }

void RemoteTarget::note_post() const { send({.kind = ErrandKind::post}); }
void RemoteTarget::note_complete() const { send({.kind = ErrandKind::complete}); }

void flush_processes(const Call& call, Win& win) {
  for (int rank = 0; !win.unflushed.empty() && rank < win.size(); ++rank) RemoteTarget(call, win, rank).flush();
}

}  // namespace aplib::mpi
