// SPDX-License-Identifier: MIT
// Packets of an rdma module: frames out, packets in, greetings. All but send() and flush() runs under the lock.

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "aplib/error.hpp"
#include "comm/rdma/impl.hpp"

namespace aplib::comm::rdma {
namespace {

constexpr std::chrono::milliseconds last_words{200};  // Until those of a peer that is gone must have come.

constexpr auto counting = std::memory_order_relaxed;  // Nothing else is read after a counter.

}  // namespace

void RdmaModule::Impl::send(Peer to, const Label& label, std::span<const std::byte> body) {
  const std::lock_guard hold(mutex_);
  Link& link = links_[to];
  if (closing_ || link.is_over()) return;
  const bool empty = link.packets.empty();
  try {
    if (body.size() >= Module::large_from_bytes) {
      send_large(link, to, label, body);
    } else if (!link.is_up() || !link.packets.empty() || !post_frame(link, to, label, body, 0)) {
      append(link, to, label, body, 0);
    }
  } catch (const std::bad_alloc&) {
    throw Error(
        Errc::exhausted,
        fmt::format("rdma: send to {}: no memory to queue a body of {} bytes; {} bytes wait there already: receive "
                    "them sooner, or raise the limit on address space (ulimit -v)",
                    name_of(to), body.size(), link.queued.load()));
  }
  frames_sent_.fetch_add(1, counting);
  bytes_sent_.fetch_add(body.size(), counting);
  // Who sleeps has more to look after than when it went to sleep.
  if (empty && !link.packets.empty()) sleep_.ring();
}

/// Keeps a copy of the body until the peer has read it, because the caller may use its memory again.
void RdmaModule::Impl::send_large(Link& link, Peer to, const Label& label, std::span<const std::byte> body) {
  std::unique_ptr<RegisteredPool::Block> block = pool_.take(body.size());
  if (!block) throw std::bad_alloc();
  std::memcpy(block->memory.get(), body.data(), body.size());
  const auto address = reinterpret_cast<std::uintptr_t>(block->memory.get());
  const Rendezvous rendezvous{.bytes = body.size(),
                              .address = fabric_.needs(FI_MR_VIRT_ADDR) ? address : 0,
                              .key = fi_mr_key(block->region.get()),
                              .number = link.next_number};
  const auto content = std::as_bytes(std::span(&rendezvous, 1));
  const auto [staged, _] = link.staged.try_emplace(link.next_number, std::move(block), body.size());
  ++link.next_number;
  try {
    if (!link.is_up() || !link.packets.empty() || !post_frame(link, to, label, content, FrameHead::large)) {
      append(link, to, label, content, FrameHead::large);
    }
  } catch (const std::bad_alloc&) {
    link.staged.erase(staged);
    throw;
  }
  // Not over() meanwhile: then it was dropped with the rest.
  if (!link.is_over()) link.queued.fetch_add(body.size());
}

/// Queues a frame, in one packet with waiting ones if it fits.
void RdmaModule::Impl::append(Link& link, Peer to, const Label& label, std::span<const std::byte> body,
                              std::uint32_t flags) {
  if (link.is_over()) return;
  const std::size_t room = frame_room(body.size());
  if (link.packets.empty() || link.packets.back().bytes.size() + room > gathered_bytes) {
    QueuedPacket packet{.bytes = {}, .kind = PacketKind::frames};
    packet.bytes.reserve(std::max(sizeof(PacketHeader) + room, room < gathered_bytes / 4 ? gathered_bytes : 0));
    packet.bytes.resize(sizeof(PacketHeader));
    link.packets.push_back(std::move(packet));
  }
  QueuedPacket& packet = link.packets.back();
  const std::size_t at = packet.bytes.size();
  packet.bytes.resize(at + room);
  put_frame(packet.bytes.data() + at, label, body, flags);
  packet.after_writes = link.writes_begun;
  link.queued.fetch_add(room);
  note_busy(link, to);
  if (!link.is_up()) need_greeting(link, to);
}

/// Sends a small frame that nothing is in front of. Returns false if it must wait.
bool RdmaModule::Impl::post_frame(Link& link, Peer to, const Label& label, std::span<const std::byte> body,
                                  std::uint32_t flags) {
  const std::size_t bytes = sizeof(PacketHeader) + frame_room(body.size());
  if (link.failed_since || link.credit < bytes || !link.control.empty() || !may_pass(link, link.writes_begun))
    return false;
  constexpr std::size_t on_the_stack = 512;
  alignas(8) std::byte memory[on_the_stack];
  PacketBuffers::Buffer* in = nullptr;
  if (bytes > on_the_stack || bytes > fabric_.info().tx_attr->inject_size) {
    in = outgoing_.take();
    if (in == nullptr) return false;
  }
  std::byte* const packet = in != nullptr ? in->memory : memory;
  std::memset(packet + bytes - 8, 0, 8);  // What pads the body.
  put_frame(packet + sizeof(PacketHeader), label, body, flags);
  const PacketHeader head = header(link, PacketKind::frames);
  std::memcpy(packet, &head, sizeof head);
  if (!hand_over(link, to, {packet, bytes}, in, bytes - sizeof(PacketHeader))) return false;
  link.credit -= bytes;
  return true;
}

PacketHeader RdmaModule::Impl::header(Link& link, PacketKind kind) const noexcept {
  return {.token = link.token,
          .from = settings_.self,
          .credit = static_cast<std::uint32_t>(link.consumed),
          .sequence = link.sequence_out,
          .kind = kind,
          .version = PacketHeader::this_version,
          .reserved = 0};
}

bool RdmaModule::Impl::may_pass(const Link& link, std::uint64_t after_writes) const noexcept {
  return (sends_after_writes_ ? link.writes_posted : link.writes_over) >= after_writes;
}

/// Gives a packet to the provider. Returns false if the provider does not take it now; then `in` is free again.
bool RdmaModule::Impl::hand_over(Link& link, Peer to, std::span<std::byte> packet, PacketBuffers::Buffer* in,
                                 std::size_t body_bytes) {
  ssize_t error = 0;
  if (in == nullptr) {
    error = fi_inject(fabric_.endpoint(), packet.data(), packet.size(), link.address);
  } else {
    Operation* const operation = take_operation();
    operation->peer = to;
    operation->is_packet = true;
    operation->buffer = in;
    operation->bytes = body_bytes;
    error =
        fi_send(fabric_.endpoint(), packet.data(), packet.size(), in->descriptor, link.address, &operation->context);
    if (error == 0) {
      ++operations_out_;
      if (!link.is_over()) link.queued.fetch_add(body_bytes);
    } else {
      give_operation(operation);
      outgoing_.give(in);
    }
  }
  calls_.fetch_add(1, counting);
  if (error != 0) return stick(link, to, static_cast<int>(error), "send");
  unstick(link);
  PacketHeader head;
  std::memcpy(&head, packet.data(), sizeof head);
  if (head.kind != PacketKind::greeting && head.kind != PacketKind::knock) {
    ++link.sequence_out;
    link.consumed -= head.credit;
    link.held -= head.credit;
  }
  if (head.kind == PacketKind::frames || head.kind == PacketKind::taken) note_sent(link, to);
  return true;
}

void RdmaModule::Impl::unstick(Link& link) noexcept { link.stuck_since.reset(); }

/// Notes that the provider did not take something. Returns false, for the caller to return.
bool RdmaModule::Impl::stick(Link& link, Peer to, int error, const char* call) {
  if (error != -FI_EAGAIN) {
    fail(link, to, fmt::format("{}: {}", call, fabric_words(error)));
    return false;
  }
  if (!link.stuck_since) link.stuck_since = Clock::now();
  return false;
}

/// A packet from a queue, with its header written now.
bool RdmaModule::Impl::post_packet(Link& link, Peer to, std::span<std::byte> packet, std::uint64_t token,
                                   PacketKind kind) {
  PacketHeader head = header(link, kind);
  if (kind == PacketKind::greeting || kind == PacketKind::knock) {
    head.token = token;
    head.credit = 0;
    head.sequence = 0;
  }
  std::memcpy(packet.data(), &head, sizeof head);
  if (packet.size() <= fabric_.info().tx_attr->inject_size) return hand_over(link, to, packet, nullptr, 0);
  PacketBuffers::Buffer* const in = outgoing_.take();
  if (in == nullptr) return false;
  std::memcpy(in->memory, packet.data(), packet.size());
  return hand_over(link, to, {in->memory, packet.size()}, in, packet.size() - sizeof(PacketHeader));
}

void RdmaModule::Impl::control(Link& link, Peer to, PacketKind kind, std::span<const std::byte> content,
                               std::uint64_t token) {
  QueuedPacket packet{
      .bytes = std::vector<std::byte>(sizeof(PacketHeader) + content.size()), .kind = kind, .token = token};
  if (!content.empty()) std::memcpy(packet.bytes.data() + sizeof(PacketHeader), content.data(), content.size());
  link.control.push_back(std::move(packet));
  note_busy(link, to);
  pump(link, to);
}

void RdmaModule::Impl::note_busy(Link& link, Peer peer) {
  if (link.busy) return;
  link.busy = true;
  busy_.push_back(peer);
}

/// Notes that the provider has taken a packet. Nobody knows yet whether it arrives.
void RdmaModule::Impl::note_sent(Link& link, Peer to) {
  link.unproven = true;
  if (link.watched) return;
  link.watched = true;
  watched_.push_back(to);
  sleep_.ring();  // Who sleeps has more to look after than when it went to sleep.
}

/// Asks peers whether what was sent to them has arrived. No provider says that, and to many, a peer that is cut off
/// looks like a silent one. One question serves all that was sent in its time, and there is none while nothing is sent.
void RdmaModule::Impl::look_for_silence() {
  if (watched_.empty()) return;
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; i < watched_.size();) {
    const Peer peer = watched_[i];
    Link& link = links_[peer];
    if (link.is_up() && link.asked_since) {
      ++i;  // Asked again when that is answered, if something was sent since.
    } else if (!link.is_up() || !link.unproven) {
      link.watched = false;
      link.unproven = false;
      link.unproven_since.reset();
      watched_[i] = watched_.back();
      watched_.pop_back();
    } else {
      if (!link.unproven_since) link.unproven_since = now;
      if (now - *link.unproven_since >= question_after()) {
        link.unproven = false;
        link.unproven_since.reset();
        ask(link, peer);
      }
      ++i;
    }
  }
}

/// Sends what may go: control first, because the other side may wait for it, then transfers, then frames.
void RdmaModule::Impl::pump(Link& link, Peer to) {
  if (link.failed_since || cut_) return;
  while (!link.control.empty()) {
    QueuedPacket& first = link.control.front();
    if (!post_packet(link, to, first.bytes, first.token, first.kind)) return;
    link.control.pop_front();
  }
  if (!link.is_up()) return;
  while (!link.transfers.empty()) {
    if (!has_room(link, link.transfers.front().bytes) || !post_transfer(link, to, link.transfers.front())) return;
    link.transfers.pop_front();
  }
  while (!link.packets.empty()) {
    QueuedPacket& first = link.packets.front();
    if (link.credit < first.bytes.size() || !may_pass(link, first.after_writes)) return;
    if (!post_packet(link, to, first.bytes, 0, PacketKind::frames)) return;
    link.credit -= first.bytes.size();
    link.queued.fetch_sub(first.bytes.size() - sizeof(PacketHeader));
    link.packets.pop_front();
  }
}

/// Whether no transfer has ended for long.
bool RdmaModule::Impl::transfers_stand_still(const Link& link) const {
  return link.transfers_since && *link.transfers_since < Clock::now() - settings_.peer_timeout / 2;
}

/// Loses a peer that takes nothing for so long, or does not answer.
void RdmaModule::Impl::check_patience(Link& link, Peer peer) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point limit = now - settings_.peer_timeout;
  if (link.failed_since && *link.failed_since < now - last_words) {
    lose(link, peer, link.failed_because, false);
  } else if (link.stuck_since && *link.stuck_since < limit) {
    lose(link, peer, "it takes nothing any more", false);
  } else if (link.asked_since && *link.asked_since < limit) {
    lose(link, peer, "it does not answer", false);
  } else if (link.state() == Link::State::calling && *link.greeting_since < limit) {
    lose(link, peer, "it does not answer the greeting, or does not know the job's key", false);
  } else if (link.gap_since && *link.gap_since < limit) {
    lose(link, peer, "packets of it were lost on the way", true);
  } else if (link.transfers_since && *link.transfers_since < now - question_after()) {
    ask(link, peer);
  }
  if (link.is_over()) give_up_transfers(peer);
}

void RdmaModule::Impl::pump_all() {
  for (std::size_t i = 0; i < busy_.size();) {
    const Peer peer = busy_[i];
    Link& link = links_[peer];
    pump(link, peer);
    if (!link.is_over()) {
      check_patience(link, peer);
    } else if (transfers_stand_still(link)) {
      give_up_transfers(peer);
    }
    if (link.control.empty() && link.transfers.empty() && link.packets.empty() &&
        link.state() != Link::State::calling && !link.gap_since && !link.asked_since && !link.transfers_since &&
        !link.failed_since) {
      link.busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
}

void RdmaModule::Impl::flush() noexcept {
  const std::lock_guard hold(mutex_);
  if (ended_ || cut_) return;
  release_delivered();
  if (operations_out_ != 0) take_completions();
  if (!busy_.empty()) pump_all();
}

// Packets in, and what completes.

namespace {

constexpr std::uint32_t early_max = 8192;  // Packets ahead of a missing one: more than the window holds.

}  // namespace

void RdmaModule::Impl::take_completions() {
  std::array<fi_cq_entry, 16> entries;
  while (true) {
    const ssize_t count = fi_cq_read(fabric_.sent(), entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      take_error(fabric_.sent());
      continue;
    }
    if (count <= 0) return;
    for (ssize_t i = 0; i < count; ++i) {
      over(*static_cast<Operation*>(entries[static_cast<std::size_t>(i)].op_context), 0);
    }
  }
}

void RdmaModule::Impl::take_error(fid_cq* queue) {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue, &entry, 0) < 1 || entry.op_context == nullptr) return;
  if (queue == fabric_.sent()) {
    over(*static_cast<Operation*>(entry.op_context), entry.err != 0 ? entry.err : FI_EIO);
  } else if (entry.err != FI_ECANCELED) {
    give_back(static_cast<PacketBuffers::Buffer*>(entry.op_context));
  }
}

/// Takes an operation that the provider has completed.
void RdmaModule::Impl::over(Operation& operation, int error) {
  if (!operation.given_up) --operations_out_;
  Link& link = links_[operation.peer];
  const Peer peer = operation.peer;
  if (operation.is_packet) {
    outgoing_.give(operation.buffer);
    if (!link.is_over()) link.queued.fetch_sub(operation.bytes);
    give_operation(&operation);
    if (error != 0) fail(link, peer, fabric_words(error));
    return;
  }
  const Transfer transfer = operation.transfer;
  const bool given_up = operation.given_up;
  give_operation(&operation);
  if (given_up) return;
  link.transfer_bytes_out -= transfer.bytes;
  // The peer is there: its answer may be under way behind much that is read.
  if (error == 0 && link.asked_since) link.asked_since = Clock::now();
  if (--link.transfers_out == 0) {
    link.transfers_since.reset();
  } else {
    link.transfers_since = Clock::now();
  }
  transfer_over(link, peer, transfer, error == 0);
  if (error == 0 || !link.is_up()) return;
  // It may have been the key alone, or the end of the peer.
  ask(link, peer);
}

/// Nothing goes to the peer any more. A peer that has ended in order and is gone looks the same, so its earlier words
/// are taken first.
void RdmaModule::Impl::fail(Link& link, Peer peer, const std::string& why) {
  if (link.is_over() || link.failed_since) return;
  link.failed_since = Clock::now();
  link.failed_because = why;
  note_busy(link, peer);
  sleep_.ring();
}

/// "Are you there?"
void RdmaModule::Impl::ask(Link& link, Peer peer) {
  if (link.asked_since) return;
  link.asked_since = Clock::now();
  control(link, peer, PacketKind::ask, {});
}

/// Gives up the transfers of a peer that is gone, because some providers never say how they ended. They may yet touch
/// the memory, if the peer comes back: it stays the module's until let_go() (include/aplib/comm_types.h), and the other
/// peers go on.
void RdmaModule::Impl::give_up_transfers(Peer peer) {
  Link& link = links_[peer];
  if (link.transfers_out == 0) return;
  link.transfers_out = 0;
  link.transfer_bytes_out = 0;
  link.transfers_since.reset();
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (!operation->out || operation->is_packet || operation->peer != peer || operation->given_up) continue;
    operation->given_up = true;
    --operations_out_;
    transfer_over(link, peer, operation->transfer, false);
  }
}

void RdmaModule::Impl::give_back(PacketBuffers::Buffer* buffer) {
  if (ended_ || cut_) return;
  const ssize_t error = fi_recv(fabric_.endpoint(), buffer->memory, incoming_.bytes(), buffer->descriptor,
                                FI_ADDR_UNSPEC, &buffer->context);
  if (error != 0) incoming_.give(buffer);  // Another one comes in its place; there are many.
}

/// Takes what has come, but at most a few packets. Returns whether there may be more.
bool RdmaModule::Impl::take_packets(std::size_t& bytes) {
  std::array<fi_cq_msg_entry, 8> entries;
  const ssize_t count = fi_cq_read(fabric_.received(), entries.data(), entries.size());
  if (count == -FI_EAVAIL) {
    take_error(fabric_.received());
    return true;
  }
  if (count <= 0) return false;
  calls_.fetch_add(1, std::memory_order_relaxed);
  for (ssize_t i = 0; i < count; ++i) {
    const fi_cq_msg_entry& entry = entries[static_cast<std::size_t>(i)];
    take_packet(static_cast<PacketBuffers::Buffer*>(entry.op_context), entry.len);
    bytes += entry.len;
  }
  return static_cast<std::size_t>(count) == entries.size();
}

void RdmaModule::Impl::take_packet(PacketBuffers::Buffer* buffer, std::size_t bytes) {
  const std::span<const std::byte> packet(buffer->memory, std::min(bytes, incoming_.bytes()));
  PacketHeader head{};
  if (packet.size() >= sizeof head) std::memcpy(&head, packet.data(), sizeof head);
  const std::span<const std::byte> content = packet.subspan(std::min(packet.size(), sizeof head));
  const bool of_ours = head.version == PacketHeader::this_version && head.reserved == 0 && head.from < count_ &&
                       head.from != settings_.self && links_[head.from].address != FI_ADDR_UNSPEC;
  if (!of_ours) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return give_back(buffer);
  }
  Link& link = links_[head.from];
  if (head.kind == PacketKind::greeting || head.kind == PacketKind::knock) {
    if (head.kind == PacketKind::knock) {
      if (settings_.self < head.from && !closing_) need_greeting(link, head.from);
    } else {
      receive_greeting(link, head.from, head.token, content);
    }
    return give_back(buffer);
  }
  if (link.token != head.token || (!link.is_up() && !link.is_over())) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return give_back(buffer);
  }
  if (link.is_over()) {
    if (head.kind == PacketKind::ended || head.kind == PacketKind::end) link.end_answered = true;
    return give_back(buffer);
  }
  if (head.kind == PacketKind::frames) link.held += packet.size();
  if (link.held > window_bytes) {
    lose(link, head.from, "it breaks the protocol: it sends more than it may", true);
    return give_back(buffer);
  }
  // Some providers complete a long packet after short ones that were sent behind it.
  const std::uint32_t early = head.sequence - link.sequence_in;
  if (early != 0) {
    if (early >= early_max || !link.early.try_emplace(head.sequence, packet.begin(), packet.end()).second) {
      lose(link, head.from, "packets of it were lost on the way", true);
    } else if (!link.gap_since) {
      link.gap_since = Clock::now();
      note_busy(link, head.from);
    }
    return give_back(buffer);
  }
  take_in_order(link, head, packet, {head.from, buffer, packet.size(), {}});
  while (true) {
    auto early_one = link.early.extract(link.sequence_in);
    if (early_one.empty()) break;
    std::vector<std::byte> next = std::move(early_one.mapped());
    PacketHeader its;
    std::memcpy(&its, next.data(), sizeof its);
    const std::size_t size = next.size();
    Arrival arrival{its.from, nullptr, size, std::move(next)};
    const std::span<const std::byte> its_bytes = arrival.owned;
    take_in_order(link, its, its_bytes, std::move(arrival));
  }
  if (link.early.empty()) link.gap_since.reset();
}

void RdmaModule::Impl::take_in_order(Link& link, const PacketHeader& head, std::span<const std::byte> packet,
                                     Arrival arrival) {
  ++link.sequence_in;
  link.credit += head.credit;
  PacketBuffers::Buffer* const buffer = arrival.buffer;
  if (link.credit > window_bytes) {
    lose(link, head.from, "it breaks the protocol: it has consumed more than was sent", true);
  } else if (head.kind == PacketKind::frames) {
    arrivals_.push_back(std::move(arrival));
    return;
  } else {
    take_control(link, head.from, head.kind, packet.subspan(sizeof head));
  }
  if (buffer != nullptr) give_back(buffer);
}

void RdmaModule::Impl::take_control(Link& link, Peer from, PacketKind kind, std::span<const std::byte> content) {
  switch (kind) {
    case PacketKind::taken: {
      std::uint64_t number = 0;
      if (content.size() >= sizeof number) std::memcpy(&number, content.data(), sizeof number);
      const auto found = link.staged.find(number);
      if (found == link.staged.end())
        return lose(link, from, "it breaks the protocol: it has taken what is not there", true);
      link.queued.fetch_sub(found->second.second);
      pool_.give(std::move(found->second.first));
      link.staged.erase(found);
      return;
    }
    case PacketKind::reset:
      return lose(link, from, std::string(reinterpret_cast<const char*>(content.data()), content.size()), false);
    case PacketKind::end:
      end(link);
      link.end_answered = true;
      // A peer that does not stay for the answer gets none, because it may be gone.
      if (!content.empty() && content.front() != std::byte{0}) control(link, from, PacketKind::ended, {});
      return;
    case PacketKind::ended:
      link.end_answered = true;
      return;
    case PacketKind::credit:
      return;
    case PacketKind::ask:
      return control(link, from, PacketKind::here, {});
    case PacketKind::here:
      link.asked_since.reset();
      // Slow transfers get as much time again before the next question.
      if (link.transfers_since) link.transfers_since = Clock::now();
      return;
    case PacketKind::frames:
    case PacketKind::greeting:
    case PacketKind::knock:
      break;  // Dealt with by the callers.
  }
  lose(link, from, "it breaks the protocol: a packet of no kind", true);
}

void RdmaModule::Impl::give_credit(Link& link, Peer to) {
  if (link.consumed < window_bytes / 2 || !link.is_up() || !link.control.empty()) return;
  control(link, to, PacketKind::credit, {});
}

/// Ends a link, after which nothing comes from the peer. `tell_it`: the peer does not know yet.
void RdmaModule::Impl::lose(Link& link, Peer peer, const std::string& why, bool tell_it) {
  if (link.state() == Link::State::over) return;
  const bool known = link.is_up();
  link.lost_because = why.empty() ? "the other side gave no reason" : why;
  link.break_off(*link.lost_because);
  end(link);
  if (tell_it && known) control(link, peer, PacketKind::reset, std::as_bytes(std::span(std::string_view(why))));
}

/// It is over, and nothing that waits there is sent any more.
void RdmaModule::Impl::end(Link& link) {
  link.set_state(Link::State::over);
  drop_queued(link);
}

void RdmaModule::Impl::drop_queued(Link& link) {
  link.drop_queues();
  for (const Transfer& transfer : std::exchange(link.transfers, {})) transfer_over(link, link.peer(), transfer, false);
}

RdmaModule::Impl::Operation* RdmaModule::Impl::take_operation() {
  if (free_operations_.empty()) {
    operations_.push_back(std::make_unique<Operation>());
    free_operations_.reserve(operations_.size());
    operations_.back()->out = true;
    return operations_.back().get();
  }
  Operation* const operation = free_operations_.back();
  free_operations_.pop_back();
  operation->out = true;
  operation->given_up = false;
  return operation;
}

void RdmaModule::Impl::give_operation(Operation* operation) noexcept {
  operation->local.reset();
  operation->out = false;
  free_operations_.push_back(operation);  // reserved by take_operation()
}

// How two processes prove to each other that they belong to the job, in packets: the bytes are those of a
// connection's greeting (comm/greeting.hpp). The lower number begins; the higher one knocks.

void RdmaModule::Impl::need_greeting(Link& link, Peer to) {
  if (link.is_up() || link.is_over()) return;
  if (settings_.self > to) {
    if (link.state() != Link::State::idle || !link.set_state(Link::State::calling)) return;
    link.greeting_since = Clock::now();
    control(link, to, PacketKind::knock, {});
    return;
  }
  if (link.calling) return;
  // A greeting that a stranger has spoilt begins again.
  if (link.state() == Link::State::idle) link.set_state(Link::State::calling);
  link.greeting_since = Clock::now();
  link.calling = std::make_unique<Greeting>(
      Greeting::Role::caller, settings_.key,
      Introduction{.secure = settings_.secure, .self = settings_.self, .peer = to, .machine = settings_.machine});
  // The number is drawn at random, so that nobody else has a say in it.
  fill_random(std::as_writable_bytes(std::span(&link.greeting_number, 1)));
  follow(link, to, *link.calling, link.greeting_number);
}

/// Sends what the greeting has to say, and looks at its state. Returns false if it is over.
bool RdmaModule::Impl::follow(Link& link, Peer from, Greeting& greeting, std::uint64_t number) {
  const std::vector<std::byte> output = greeting.take_output();
  const Greeting::State state = greeting.state();
  if (!output.empty() && state != Greeting::State::stranger) control(link, from, PacketKind::greeting, output, number);
  switch (state) {
    case Greeting::State::going:
      return true;
    case Greeting::State::stranger:
      refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    case Greeting::State::refused:
      lose(link, from, greeting.words(), false);
      return false;
    case Greeting::State::done:
      break;
  }
  if (link.is_up() || link.is_over()) return false;
  link.token = number;
  if (settings_.secure != Secure::off) {
    const std::array<std::byte, 32> secret = greeting.secret();
    std::memcpy(&link.token, secret.data(), sizeof link.token);
  }
  // Whether they knocked, or only we did: whoever begins has called, and the other side has taken it.
  if (settings_.self > from && link.take_call(settings_.self) != Link::Answer::taken) return false;
  if (!link.come_up()) return false;
  link.credit = window_bytes;
  note_busy(link, from);
  return false;
}

void RdmaModule::Impl::receive_greeting(Link& link, Peer from, std::uint64_t number, std::span<const std::byte> bytes) {
  if (link.is_over() || from == settings_.self) return;
  const bool calling = settings_.self < from;
  std::unique_ptr<Greeting>* greeting = nullptr;
  if (calling) {
    if (link.calling && number == link.greeting_number) greeting = &link.calling;
  } else {
    const auto found = std::find_if(link.answering.begin(), link.answering.end(),
                                    [&](const auto& one) { return one.first == number; });
    if (found != link.answering.end()) {
      greeting = &found->second;
    } else {
      // Whoever sends nonsense in the name of a peer gets a greeting of its own, and cannot spoil the true one. The
      // oldest goes.
      constexpr std::size_t most = 4;
      if (link.answering.size() == most) {
        refused_.fetch_add(1, std::memory_order_relaxed);
        link.answering.erase(link.answering.begin());
      }
      link.answering.emplace_back(number, std::make_unique<Greeting>(Greeting::Role::answerer, settings_.key,
                                                                     Introduction{.secure = settings_.secure,
                                                                                  .self = settings_.self,
                                                                                  .peer = from,
                                                                                  .machine = settings_.machine}));
      greeting = &link.answering.back().second;
    }
  }
  if (greeting == nullptr) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  while (!bytes.empty() && (*greeting)->state() == Greeting::State::going) {
    const std::size_t part = std::min(bytes.size(), (*greeting)->wants());
    (*greeting)->receive(bytes.first(part));
    bytes = bytes.subspan(part);
  }
  if (follow(link, from, **greeting, number)) return;
  if (calling) {
    link.calling.reset();
  } else {
    std::erase_if(link.answering, [&](const auto& one) { return one.first == number; });
  }
}

}  // namespace aplib::comm::rdma
