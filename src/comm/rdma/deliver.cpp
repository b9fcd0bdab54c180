// SPDX-License-Identifier: MIT
// poll(): the upcalls. Made without the lock, so that they may send; the inbox of each link is the polling thread's alone.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/rdma/rdma_state.hpp"

namespace aplib::comm {
namespace {

constexpr auto counting = std::memory_order_relaxed;  // Nothing else is read after a counter.

}  // namespace

bool RdmaModule::State::poll() {
  ++polls_;
  bool called = false;
  if (!with_inbox_.empty()) {
    {
      const std::lock_guard lock(mutex_);
      release_delivered();
    }
    called = deliver_inbox();
  }
  std::size_t bytes = 0;
  bool more = true;
  while (more && bytes < bytes_per_poll) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return called;
      release_arrivals();
      delivered_.store(false, counting);
      if (operations_out_ != 0) take_completions();
      if (!busy_.empty()) pump_all();
      more = take_packets(bytes);
    }
    for (Arrival& arrival : arrivals_) {
      arrival.kept = deliver(arrival.peer, arrival.frames(), arrival.bytes, called);
    }
  }
  if (news_.load()) {
    called |= tell();
    if (!with_inbox_.empty()) called |= deliver_inbox();  // A large body that was in front of it has ended.
  }
  // Their buffers go back with the next look at the provider, so that an answer need not wait for it.
  if (!arrivals_.empty() || !freed_.empty()) delivered_.store(true, std::memory_order_release);
  if (called) idle_polls_.store(0, counting);
  return called;
}

/// Under the lock, by whoever looks at the provider next.
void RdmaModule::State::release_delivered() {
  if (!delivered_.load(std::memory_order_acquire)) return;
  release_arrivals();
  delivered_.store(false, counting);
}

/// Under the lock: what was delivered makes room for more.
void RdmaModule::State::release_arrivals() {
  for (const Arrival& arrival : arrivals_) {
    RdmaLink& link = links_[arrival.peer];
    if (!arrival.kept) link.consumed += arrival.bytes;
    if (arrival.buffer != nullptr) give_back(arrival.buffer);
    give_credit(link, arrival.peer);
  }
  arrivals_.clear();
  for (const auto& [peer, bytes] : freed_) {
    links_[peer].consumed += bytes;
    give_credit(links_[peer], peer);
  }
  freed_.clear();
}

/// Once per poll and peer.
bool RdmaModule::State::wanted(Peer from) {
  RdmaLink& link = links_[from];
  if (link.asked != polls_) {
    link.asked = polls_;
    link.wanted = receiver_->wants(from);
  }
  return link.wanted;
}

/// The frames of a packet of `credit` bytes. Whether any are kept for later.
bool RdmaModule::State::deliver(Peer from, std::span<const std::byte> frames, std::size_t credit, bool& called) {
  RdmaLink& link = links_[from];
  if (link.told) return false;
  std::size_t at = 0;
  if (!link.large && link.inbox.empty() && wanted(from)) at = deliver_some(from, frames, called);
  if (at == frames.size()) return false;
  const std::span<const std::byte> rest = frames.subspan(at);
  link.inbox.push_back({{rest.begin(), rest.end()}, credit});
  if (!link.listed) {
    link.listed = true;
    with_inbox_.push_back(from);
  }
  return true;
}

/// Delivers frames up to the end, or to a large one, which is begun. How many bytes are dealt with.
std::size_t RdmaModule::State::deliver_some(Peer from, std::span<const std::byte> frames, bool& called) {
  RdmaLink& link = links_[from];
  std::size_t at = 0;
  while (at != frames.size()) {
    FrameHead head{};
    const std::size_t left = frames.size() - at;
    if (left >= sizeof head) std::memcpy(&head, frames.data() + at, sizeof head);
    const bool is_large = head.flags == FrameHead::large;
    if (left < sizeof head || left < frame_room(head.bytes) || head.bytes >= Module::large_from_bytes ||
        head.flags > FrameHead::large || (is_large && head.bytes != sizeof(Rendezvous))) {
      const std::lock_guard lock(mutex_);
      lose(link, from, "it breaks the protocol: a frame that does not fit into its packet", true);
      return frames.size();
    }
    const std::span<const std::byte> body = frames.subspan(at + sizeof head, head.bytes);
    at += frame_room(head.bytes);
    if (is_large) {
      Rendezvous rendezvous;
      std::memcpy(&rendezvous, body.data(), sizeof rendezvous);
      begin_large(from, head.label, rendezvous, called);
      if (link.large) return at;
      continue;
    }
    receiver_->frame(from, head.label, body);
    called = true;
    frames_received_.fetch_add(1, counting);
    bytes_received_.fetch_add(body.size(), counting);
  }
  return at;
}

void RdmaModule::State::begin_large(Peer from, const Label& label, const Rendezvous& rendezvous, bool& called) {
  RdmaLink& link = links_[from];
  {
    const std::lock_guard lock(mutex_);
    if (link.stage == RdmaLink::Stage::over) return;  // It cannot be read any more; the loss follows.
    if (rendezvous.bytes < Module::large_from_bytes || rendezvous.bytes > Module::body_bytes_max) {
      return lose(link, from, "it breaks the protocol: a large body of no large size", true);
    }
  }
  called = true;
  std::byte* const into = receiver_->large_begin(from, label, rendezvous.bytes);
  const std::lock_guard lock(mutex_);
  if (into == nullptr) return lose(link, from, "a large body was refused", true);
  link.large = std::make_unique<LargeBody>(LargeBody{
      .label = label, .into = into, .bytes = rendezvous.bytes, .number = rendezvous.number, .left = rendezvous.bytes});
  if (link.stage == RdmaLink::Stage::over) {  // Lost during the upcall.
    link.large->left = 0;
    link.large->failed = true;
    changed_.push_back(from);
    news_.store(true);
    return;
  }
  for (std::size_t at = 0; at < rendezvous.bytes;) {
    const std::size_t part = std::min<std::size_t>(rendezvous.bytes - at, part_bytes());
    link.transfers.push_back({.kind = RdmaTransfer::Kind::body,
                              .local = into + at,
                              .bytes = part,
                              .remote = rendezvous.address + at,
                              .key = rendezvous.key});
    at += part;
  }
  note_busy(link, from);
  pump(link, from);
}

/// What could not be delivered when it came.
bool RdmaModule::State::deliver_inbox() {
  bool called = false;
  for (std::size_t i = 0; i < with_inbox_.size();) {
    const Peer peer = with_inbox_[i];
    RdmaLink& link = links_[peer];
    while (!link.inbox.empty() && !link.large && wanted(peer)) {
      RdmaLink::Kept& first = link.inbox.front();
      link.inbox_at += deliver_some(peer, std::span(first.frames).subspan(link.inbox_at), called);
      if (link.inbox_at != first.frames.size()) break;
      freed_.emplace_back(peer, first.credit);
      link.inbox_at = 0;
      link.inbox.pop_front();
    }
    if (link.inbox.empty()) {
      link.listed = false;
      with_inbox_[i] = with_inbox_.back();
      with_inbox_.pop_back();
    } else {
      ++i;
    }
  }
  return called;
}

/// Ends of transfers and of large bodies, and losses.
bool RdmaModule::State::tell() {
  bool called = false;
  std::vector<Peer> changed;
  {
    const std::lock_guard lock(mutex_);
    news_.store(false);
    telling_.swap(done_);
    changed.swap(changed_);
  }
  for (const Done& done : telling_) {
    receiver_->memory_done(done.context, done.ok);
    called = true;
  }
  telling_.clear();
  for (const Peer peer : changed) {
    RdmaLink& link = links_[peer];
    std::unique_ptr<LargeBody> ended;
    bool lost = false;
    {
      const std::lock_guard lock(mutex_);
      if (link.large && link.large->left != 0) continue;  // It comes here again when no read is under way any more.
      ended = std::move(link.large);
      if (ended && ended->failed) lose(link, peer, "a large body could not be read", true);
      if (ended && link.stage == RdmaLink::Stage::ready) {
        control(link, peer, PacketKind::taken, std::as_bytes(std::span(&ended->number, 1)));
      }
      lost = link.lost_because.has_value();
    }
    if (ended) {
      called = true;
      receiver_->large_end(peer, ended->label, ended->bytes, !ended->failed);
      if (!ended->failed) {
        frames_received_.fetch_add(1, counting);
        bytes_received_.fetch_add(ended->bytes, counting);
      }
    }
    if (lost && !link.told) {
      link.told = true;
      link.inbox.clear();
      link.inbox_at = 0;
      called = true;
      receiver_->peer_lost(peer, *link.lost_because);
    }
  }
  return called;
}

}  // namespace aplib::comm
