// SPDX-License-Identifier: MIT
// Packets in, and what completes. All under the lock; upcalls are in deliver.cpp.
#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/rdma/rdma_state.hpp"

namespace aplib::comm {
namespace {

constexpr std::uint32_t early_max = 8192;  // Packets ahead of a missing one: more than the window holds.

}  // namespace

void RdmaModule::State::take_completions() {
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

void RdmaModule::State::take_error(fid_cq* queue) {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue, &entry, 0) < 1 || entry.op_context == nullptr) return;
  if (queue == fabric_.sent()) {
    over(*static_cast<Operation*>(entry.op_context), entry.err != 0 ? entry.err : FI_EIO);
  } else if (entry.err != FI_ECANCELED) {
    give_back(static_cast<PacketBuffers::Buffer*>(entry.op_context));
  }
}

/// The provider is done with something that it was told to do.
void RdmaModule::State::over(Operation& operation, int error) {
  if (!operation.given_up) --operations_out_;
  RdmaLink& link = links_[operation.peer];
  const Peer peer = operation.peer;
  if (operation.is_packet) {
    outgoing_.give(operation.buffer);
    if (link.stage != RdmaLink::Stage::over) link.queued.fetch_sub(operation.bytes);
    give_operation(&operation);
    if (error != 0) fail(link, peer, fabric_words(error));
    return;
  }
  const RdmaTransfer transfer = operation.transfer;
  const bool given_up = operation.given_up;
  give_operation(&operation);
  if (given_up) return;
  if (--link.transfers_out == 0) {
    link.transfers_since.reset();
  } else {
    link.transfers_since = Clock::now();
  }
  transfer_over(link, peer, transfer, error == 0);
  if (error == 0 || link.stage != RdmaLink::Stage::ready) return;
  // It may have been the key alone, or the end of the peer.
  ask(link, peer);
}

/// Nothing goes there any more. Who has ended in order, and is gone, looks like that, too: what it said before comes first.
void RdmaModule::State::fail(RdmaLink& link, Peer peer, const std::string& why) {
  if (link.stage == RdmaLink::Stage::over || link.failed_since) return;
  link.failed_since = Clock::now();
  link.failed_because = why;
  note_busy(link, peer);
  sleep_.ring();
}

/// "Are you there?" Whatever comes from it is the answer.
void RdmaModule::State::ask(RdmaLink& link, Peer peer) {
  if (link.asked_since) return;
  link.asked_since = Clock::now();
  control(link, peer, PacketKind::ask, {});
}

/// The peer is gone, and some providers never say how its transfers ended.
void RdmaModule::State::give_up_transfers(Peer peer) {
  RdmaLink& link = links_[peer];
  link.transfers_out = 0;
  link.transfers_since.reset();
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (!operation->out || operation->is_packet || operation->peer != peer || operation->given_up) continue;
    operation->given_up = true;
    --operations_out_;
    transfer_over(link, peer, operation->transfer, false);
  }
}

void RdmaModule::State::give_back(PacketBuffers::Buffer* buffer) {
  if (ended_) return;
  const ssize_t error = fi_recv(fabric_.endpoint(), buffer->memory, incoming_.bytes(), buffer->descriptor,
                                FI_ADDR_UNSPEC, &buffer->context);
  if (error != 0) incoming_.give(buffer);  // Another one comes in its place; there are many.
}

/// Takes what has come, at most a few packets. Whether there may be more.
bool RdmaModule::State::take_packets(std::size_t& bytes) {
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

void RdmaModule::State::take_packet(PacketBuffers::Buffer* buffer, std::size_t bytes) {
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
  RdmaLink& link = links_[head.from];
  if (head.kind == PacketKind::greeting || head.kind == PacketKind::knock) {
    if (head.kind == PacketKind::knock) {
      if (settings_.self < head.from && !closing_) need_greeting(link, head.from);
    } else {
      receive_greeting(link, head.from, head.token, content);
    }
    return give_back(buffer);
  }
  if (link.token != head.token || (link.stage != RdmaLink::Stage::ready && link.stage != RdmaLink::Stage::over)) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return give_back(buffer);
  }
  if (link.stage == RdmaLink::Stage::over) {
    if (head.kind == PacketKind::ended || head.kind == PacketKind::end) link.end_answered = true;
    return give_back(buffer);
  }
  if (link.asked_since) {
    link.asked_since.reset();
    // It is there: slow transfers get as much time again before the next question.
    if (link.transfers_since) link.transfers_since = Clock::now();
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
  while (!link.early.empty() && link.early.begin()->first == link.sequence_in) {
    std::vector<std::byte> next = std::move(link.early.extract(link.early.begin()).mapped());
    PacketHeader its;
    std::memcpy(&its, next.data(), sizeof its);
    const std::size_t size = next.size();
    Arrival arrival{its.from, nullptr, size, std::move(next)};
    const std::span<const std::byte> its_bytes = arrival.owned;
    take_in_order(link, its, its_bytes, std::move(arrival));
  }
  if (link.early.empty()) link.gap_since.reset();
}

void RdmaModule::State::take_in_order(RdmaLink& link, const PacketHeader& head, std::span<const std::byte> packet,
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

void RdmaModule::State::take_control(RdmaLink& link, Peer from, PacketKind kind, std::span<const std::byte> content) {
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
      link.stage = RdmaLink::Stage::over;
      drop_queues(link);
      link.end_answered = true;
      // Who does not stay for the answer is not spoken to any more: it may be gone.
      if (!content.empty() && content.front() != std::byte{0}) control(link, from, PacketKind::ended, {});
      return;
    case PacketKind::ended:
      link.end_answered = true;
      return;
    case PacketKind::credit:
      return;
    case PacketKind::ask:
      return control(link, from, PacketKind::credit, {});
    case PacketKind::frames:
    case PacketKind::greeting:
    case PacketKind::knock:
      break;  // Dealt with by the callers.
  }
  lose(link, from, "it breaks the protocol: a packet of no kind", true);
}

void RdmaModule::State::give_credit(RdmaLink& link, Peer to) {
  if (link.consumed < window_bytes / 2 || link.stage != RdmaLink::Stage::ready || !link.control.empty()) return;
  control(link, to, PacketKind::credit, {});
}

/// Nothing comes from the peer any more. `tell_it`: it does not know yet.
void RdmaModule::State::lose(RdmaLink& link, Peer peer, const std::string& why, bool tell_it) {
  if (link.stage == RdmaLink::Stage::over) return;
  const bool known = link.stage == RdmaLink::Stage::ready;
  link.stage = RdmaLink::Stage::over;
  drop_queues(link);
  link.lost_because = why.empty() ? "the other side gave no reason" : why;
  changed_.push_back(peer);
  news_.store(true);
  sleep_.ring();
  if (tell_it && known) control(link, peer, PacketKind::reset, std::as_bytes(std::span(std::string_view(why))));
}

void RdmaModule::State::drop_queues(RdmaLink& link) {
  link.control.clear();
  link.packets.clear();
  link.staged.clear();
  link.early.clear();
  link.gap_since.reset();
  link.asked_since.reset();
  link.failed_since.reset();
  link.queued.store(0);
  const std::deque<RdmaTransfer> transfers = std::exchange(link.transfers, {});
  const Peer peer = static_cast<Peer>(&link - links_.get());
  for (const RdmaTransfer& transfer : transfers) transfer_over(link, peer, transfer, false);
}

RdmaModule::State::Operation* RdmaModule::State::take_operation() {
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

void RdmaModule::State::give_operation(Operation* operation) noexcept {
  operation->local.reset();
  operation->out = false;
  free_operations_.push_back(operation);
}

}  // namespace aplib::comm
