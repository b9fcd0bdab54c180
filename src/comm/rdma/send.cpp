// SPDX-License-Identifier: MIT
// Frames out. All but send() and flush() under the lock.
#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "aplib/error.hpp"
#include "comm/rdma/rdma_state.hpp"

namespace aplib::comm {
namespace {

constexpr std::chrono::milliseconds last_words{200};  // Until those of a peer that is gone must have come.

constexpr auto counting = std::memory_order_relaxed;  // Nothing else is read after a counter.

}  // namespace

void RdmaModule::State::send(Peer to, const Label& label, std::span<const std::byte> body) {
  const std::lock_guard lock(mutex_);
  RdmaLink& link = links_[to];
  if (closing_ || link.stage == RdmaLink::Stage::over) return;
  const bool empty = link.packets.empty();
  try {
    if (body.size() >= Module::large_from_bytes) {
      send_large(link, to, label, body);
    } else if (link.stage != RdmaLink::Stage::ready || !link.packets.empty() || !post_frame(link, to, label, body, 0)) {
      append(link, to, label, body, 0);
    }
  } catch (const std::bad_alloc&) {
    throw Error(Errc::exhausted,
                fmt::format("rdma: send to {}: no memory to queue a body of {} bytes; {} bytes wait there already",
                            name_of(to), body.size(), link.queued.load()));
  }
  frames_sent_.fetch_add(1, counting);
  bytes_sent_.fetch_add(body.size(), counting);
  // Who sleeps has more to look after than when it went to sleep.
  if (empty && !link.packets.empty()) sleep_.ring();
}

/// The body stays here until the peer has read it: in a copy, because the caller's memory is its own again.
void RdmaModule::State::send_large(RdmaLink& link, Peer to, const Label& label, std::span<const std::byte> body) {
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
    if (link.stage != RdmaLink::Stage::ready || !link.packets.empty() ||
        !post_frame(link, to, label, content, FrameHead::large)) {
      append(link, to, label, content, FrameHead::large);
    }
  } catch (const std::bad_alloc&) {
    link.staged.erase(staged);
    throw;
  }
  // Not over() meanwhile: then it was dropped with the rest.
  if (link.stage != RdmaLink::Stage::over) link.queued.fetch_add(body.size());
}

/// Queues a frame, together with those that wait already where it fits.
void RdmaModule::State::append(RdmaLink& link, Peer to, const Label& label, std::span<const std::byte> body,
                               std::uint32_t flags) {
  if (link.stage == RdmaLink::Stage::over) return;
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
  if (link.stage != RdmaLink::Stage::ready) need_greeting(link, to);
}

/// The way of a small frame when nothing is in front of it. False: it must wait.
bool RdmaModule::State::post_frame(RdmaLink& link, Peer to, const Label& label, std::span<const std::byte> body,
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

PacketHeader RdmaModule::State::header(RdmaLink& link, PacketKind kind) const noexcept {
  return {.token = link.token,
          .from = settings_.self,
          .credit = static_cast<std::uint32_t>(link.consumed),
          .sequence = link.sequence_out,
          .kind = kind,
          .version = PacketHeader::this_version,
          .reserved = 0};
}

bool RdmaModule::State::may_pass(const RdmaLink& link, std::uint64_t after_writes) const noexcept {
  return (sends_after_writes_ ? link.writes_posted : link.writes_over) >= after_writes;
}

/// Gives a packet to the provider. False: it does not take it now, and `in` is free again.
bool RdmaModule::State::hand_over(RdmaLink& link, Peer to, std::span<std::byte> packet, PacketBuffers::Buffer* in,
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
      link.queued.fetch_add(body_bytes);
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
  }
  return true;
}

void RdmaModule::State::unstick(RdmaLink& link) noexcept { link.stuck_since.reset(); }

/// The provider did not take something. False, for the caller's return.
bool RdmaModule::State::stick(RdmaLink& link, Peer to, int error, const char* call) {
  if (error != -FI_EAGAIN) {
    fail(link, to, fmt::format("{}: {}", call, fabric_words(error)));
    return false;
  }
  if (!link.stuck_since) link.stuck_since = Clock::now();
  return false;
}

/// A packet from a queue, with its header written now.
bool RdmaModule::State::post_packet(RdmaLink& link, Peer to, std::span<std::byte> packet, std::uint64_t token,
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

void RdmaModule::State::control(RdmaLink& link, Peer to, PacketKind kind, std::span<const std::byte> content,
                                std::uint64_t token) {
  QueuedPacket packet{
      .bytes = std::vector<std::byte>(sizeof(PacketHeader) + content.size()), .kind = kind, .token = token};
  if (!content.empty()) std::memcpy(packet.bytes.data() + sizeof(PacketHeader), content.data(), content.size());
  link.control.push_back(std::move(packet));
  note_busy(link, to);
  pump(link, to);
}

void RdmaModule::State::note_busy(RdmaLink& link, Peer peer) {
  if (link.busy) return;
  link.busy = true;
  busy_.push_back(peer);
}

/// Hands over what may go: control first, for the other side may wait for it; then transfers; then frames.
void RdmaModule::State::pump(RdmaLink& link, Peer to) {
  if (link.failed_since) return;
  while (!link.control.empty()) {
    QueuedPacket& first = link.control.front();
    if (!post_packet(link, to, first.bytes, first.token, first.kind)) return;
    link.control.pop_front();
  }
  if (link.stage != RdmaLink::Stage::ready) return;
  while (!link.transfers.empty()) {
    if (!post_transfer(link, to, link.transfers.front())) return;
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

/// Nothing of remote memory has ended for long: the peer may be slow, or gone.
bool RdmaModule::State::transfers_stand_still(const RdmaLink& link) const {
  return link.transfers_since && *link.transfers_since < Clock::now() - settings_.peer_timeout / 2;
}

/// Who takes nothing for so long, or does not answer, is gone.
void RdmaModule::State::check_patience(RdmaLink& link, Peer peer) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point limit = now - settings_.peer_timeout;
  if (link.failed_since && *link.failed_since < now - last_words) {
    lose(link, peer, link.failed_because, false);
  } else if (link.stuck_since && *link.stuck_since < limit) {
    lose(link, peer, "it takes nothing any more", false);
  } else if (link.asked_since && *link.asked_since < limit) {
    lose(link, peer, "it does not answer", false);
  } else if (link.stage == RdmaLink::Stage::greeting && *link.greeting_since < limit) {
    lose(link, peer, "it does not answer the greeting, or does not know the job's key", false);
  } else if (link.gap_since && *link.gap_since < limit) {
    lose(link, peer, "packets of it were lost on the way", true);
  } else if (transfers_stand_still(link)) {
    ask(link, peer);
  }
  if (link.stage == RdmaLink::Stage::over) give_up_transfers(peer);
}

void RdmaModule::State::pump_all() {
  for (std::size_t i = 0; i < busy_.size();) {
    const Peer peer = busy_[i];
    RdmaLink& link = links_[peer];
    pump(link, peer);
    if (link.stage != RdmaLink::Stage::over) {
      check_patience(link, peer);
    } else if (transfers_stand_still(link)) {
      give_up_transfers(peer);
    }
    if (link.control.empty() && link.transfers.empty() && link.packets.empty() &&
        link.stage != RdmaLink::Stage::greeting && !link.gap_since && !link.asked_since && !link.transfers_since &&
        !link.failed_since) {
      link.busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
}

void RdmaModule::State::flush() noexcept {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  release_delivered();
  if (operations_out_ != 0) take_completions();
  if (!busy_.empty()) pump_all();
}

}  // namespace aplib::comm
