// SPDX-License-Identifier: MIT
// The end: close() and abandon(). No other thread is in the module.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "comm/rdma/rdma_state.hpp"

namespace aplib::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto last_words = 50ms;     // For the marks of the end to go out, also without linger.
constexpr auto last_answers = 200ms;  // For those who should have seen them.
constexpr auto between_looks = 1ms;

}  // namespace

/// What comes while this process closes: nobody wants it, but the senders may wait for it to be taken.
void RdmaModule::State::discard(Peer from, std::span<const std::byte> frames) {
  RdmaLink& link = links_[from];
  while (frames.size() >= sizeof(FrameHead)) {
    FrameHead head;
    std::memcpy(&head, frames.data(), sizeof head);
    if (frame_room(head.bytes) > frames.size()) return;
    if (head.flags == FrameHead::large && head.bytes == sizeof(Rendezvous) && link.stage == RdmaLink::Stage::ready) {
      Rendezvous rendezvous;
      std::memcpy(&rendezvous, frames.data() + sizeof head, sizeof rendezvous);
      control(link, from, PacketKind::taken, std::as_bytes(std::span(&rendezvous.number, 1)));
    }
    frames = frames.subspan(frame_room(head.bytes));
  }
}

/// One look at the provider, taking nothing for the receiver. Whether something came.
bool RdmaModule::State::progress_closing() {
  // All of it first: who has ended is not to be answered.
  std::size_t bytes = 0;
  while (take_packets(bytes)) {
  }
  for (const Arrival& arrival : arrivals_) {
    discard(arrival.peer, arrival.frames());
  }
  release_arrivals();
  take_completions();
  // A large body that was begun is read to its end, for the sender's sake.
  for (const Peer peer : std::exchange(changed_, {})) {
    RdmaLink& link = links_[peer];
    if (link.large && link.large->left == 0 && !link.large->failed && link.stage == RdmaLink::Stage::ready)
      control(link, peer, PacketKind::taken, std::as_bytes(std::span(&link.large->number, 1)));
  }
  pump_all();
  return bytes != 0;
}

/// All that was accepted has arrived, or never will.
bool RdmaModule::State::all_out() const {
  if (operations_out_ != 0) return false;
  return std::all_of(links_.get(), links_.get() + count_, [](const RdmaLink& link) {
    return link.stage == RdmaLink::Stage::over ||
           (link.queued.load() == 0 && link.control.empty() && link.transfers.empty());
  });
}

void RdmaModule::State::progress_until(Clock::time_point limit, const std::function<bool()>& done) {
  while (true) {
    bool came = false;
    {
      const std::lock_guard lock(mutex_);
      came = progress_closing();
      if (done() || (!came && Clock::now() >= limit)) return;
    }
    if (!came) wait(std::min<std::chrono::nanoseconds>(between_looks, limit - Clock::now()));
  }
}

bool RdmaModule::State::close(std::chrono::nanoseconds linger) {
  if (ended_) return true;
  const Clock::time_point now = Clock::now();
  const Clock::time_point limit = linger > 24h * 365 ? now + 24h * 365 : now + linger;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    release_delivered();
    for (const Peer peer : with_inbox_) {
      RdmaLink& link = links_[peer];
      for (const RdmaLink::Kept& kept : std::exchange(link.inbox, {})) {
        discard(peer, std::span(kept.frames).subspan(std::exchange(link.inbox_at, 0)));
        freed_.emplace_back(peer, kept.credit);
      }
    }
    with_inbox_.clear();
  }
  progress_until(limit, [&] { return all_out(); });
  bool all = true;
  {
    const std::lock_guard lock(mutex_);
    for (Peer peer = 0; peer < count_; ++peer) {
      RdmaLink& link = links_[peer];
      if (link.stage == RdmaLink::Stage::over || link.address == FI_ADDR_UNSPEC) continue;
      const bool out = link.queued.load() == 0;
      if (!out) all = false;
      if (link.stage != RdmaLink::Stage::ready) continue;
      const std::string_view why = "the process ended before it had sent everything";
      if (!out) drop_queues(link);
      const bool stays = linger > 0ns;
      control(link, peer, out ? PacketKind::end : PacketKind::reset,
              out ? std::as_bytes(std::span(&stays, 1)) : std::as_bytes(std::span(why)));
      link.ending = true;
    }
  }
  const auto said = [this] {
    return std::all_of(links_.get(), links_.get() + count_,
                       [](const RdmaLink& link) { return !link.ending || link.control.empty(); });
  };
  const auto answered = [this] {
    return std::all_of(links_.get(), links_.get() + count_, [](const RdmaLink& link) {
      return !link.ending || link.end_answered || link.stage == RdmaLink::Stage::over;
    });
  };
  progress_until(Clock::now() + last_words, said);
  if (linger > 0ns) progress_until(std::min(Clock::now() + last_answers, std::max(limit, Clock::now())), answered);
  end_fabric();
  tell_ends();
  return all;
}

void RdmaModule::State::end_fabric() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  ended_ = true;
  fabric_.end();
  exposed_.clear();
}

/// The provider touches nothing any more: what was under way has ended.
void RdmaModule::State::tell_ends() {
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (!operation->out || operation->is_packet || operation->given_up) continue;
    transfer_over(links_[operation->peer], operation->peer, operation->transfer, false);
  }
  for (Peer peer = 0; peer < count_; ++peer) {
    RdmaLink& link = links_[peer];
    link.stage = RdmaLink::Stage::over;
    drop_queues(link);
    if (const std::unique_ptr<LargeBody> ended = std::move(link.large))
      receiver_->large_end(peer, ended->label, ended->bytes, false);
  }
  for (const Done& done : std::exchange(done_, {})) receiver_->memory_done(done.context, done.ok);
}

void RdmaModule::State::abandon() { end_fabric(); }

}  // namespace aplib::comm
