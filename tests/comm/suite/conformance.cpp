// SPDX-License-Identifier: MIT
#include "conformance.hpp"

#include <algorithm>
#include <numeric>

#include "checks.hpp"
#include "random_bytes.hpp"

namespace aplib::comm::test {
namespace {

constexpr std::uint32_t kind = 0xabcd'ef01;

std::uint32_t extra_of(std::size_t bytes) { return static_cast<std::uint32_t>(bytes * 2'654'435'761U); }

}  // namespace

std::span<const std::byte> contents(std::uint64_t key, std::size_t bytes) {
  constexpr std::size_t offsets = 64 * 1024;
  static const std::vector<std::byte> pool = testing_support::random_bytes(body_bytes_most + offsets);
  return {pool.data() + key * 1'009 % offsets, bytes};
}

/// Marks that an upcall runs, and reports upcalls that overlap or come on another thread.
class Recorder::Upcall {
 public:
  explicit Upcall(Recorder& recorder) : recorder_(recorder) {
    EXPECT_FALSE(recorder_.inside_.exchange(true)) << "two upcalls at the same time";
    EXPECT_EQ(recorder_.polling_.load(), std::this_thread::get_id()) << "an upcall outside poll()";
    ++recorder_.upcalls_;
  }
  ~Upcall() { recorder_.inside_.store(false); }
  Upcall(const Upcall&) = delete;
  Upcall& operator=(const Upcall&) = delete;

 private:
  Recorder& recorder_;
};

Recorder::~Recorder() {
  for (const PeerState& peer : peers_) EXPECT_EQ(peer.large, nullptr) << "a large body was begun and never ended";
}

bool Recorder::wants(Peer from) {
  const Upcall upcall(*this);
  ++questions_;
  ++peers_[from].asked;
  return peers_[from].wanted.load();
}

void Recorder::whole(Peer from, const Label& label, std::span<const std::byte> body) {
  PeerState& peer = peers_[from];
  EXPECT_EQ(peer.lost.load(), 0U) << "a frame of a lost peer";
  EXPECT_EQ(label.cell, from);
  EXPECT_EQ(label.kind, kind);
  EXPECT_EQ(label.extra, extra_of(body.size()));
  ASSERT_LT(label.task, streams_max);
  EXPECT_EQ(label.key, peer.next_key[label.task]) << "lost, doubled or out of order; from " << from;
  peer.next_key[label.task] = label.key + 1;
  const std::span<const std::byte> right = contents(label.key, body.size());
  EXPECT_TRUE(testing_support::same_bytes(body, right)) << "another body than was sent; " << body.size() << " bytes";
  peer.bytes += body.size();
  if (on_frame) on_frame(from, label, body.size());
  ++peer.frames;
}

void Recorder::frame(Peer from, const Label& label, std::span<const std::byte> body) {
  const Upcall upcall(*this);
  EXPECT_LT(body.size(), Module::large_from_bytes);
  EXPECT_EQ(peers_[from].large, nullptr) << "a frame inside a large one";
  whole(from, label, body);
}

std::byte* Recorder::large_begin(Peer from, const Label& label, std::size_t bytes) {
  const Upcall upcall(*this);
  PeerState& peer = peers_[from];
  EXPECT_GE(bytes, Module::large_from_bytes);
  EXPECT_EQ(peer.large, nullptr) << "two large frames of one peer at a time";
  if (peer.refuse_large.load()) return nullptr;
  peer.large = std::make_unique_for_overwrite<std::byte[]>(bytes);
  peer.large_label = label;
  peer.large_bytes = bytes;
  ++peer.large_begun;
  return peer.large.get();
}

void Recorder::large_end(Peer from, const Label& label, std::size_t bytes, bool complete) {
  const Upcall upcall(*this);
  PeerState& peer = peers_[from];
  ASSERT_NE(peer.large, nullptr) << "the end of a large body that was not begun";
  EXPECT_EQ(label, peer.large_label);
  EXPECT_EQ(bytes, peer.large_bytes);
  EXPECT_EQ(peer.lost.load(), 0U);
  if (complete) {
    whole(from, label, {peer.large.get(), bytes});
  } else {
    ++peer.large_broken;
    peer.broken = std::move(peer.large);
  }
  peer.large = nullptr;
}

void Recorder::peer_lost(Peer peer, const std::string& why) {
  const Upcall upcall(*this);
  EXPECT_EQ(peers_[peer].large, nullptr) << "a large body must be ended before its peer is lost";
  EXPECT_FALSE(why.empty());
  peers_[peer].why = why;
  EXPECT_EQ(++peers_[peer].lost, 1U) << "lost twice";
}

void Recorder::memory_done(std::uint64_t context, bool ok) {
  const Upcall upcall(*this);
  EXPECT_TRUE(ended_.emplace(context, ok).second) << "transfer " << context << " ended twice";
  if (on_transfer) on_transfer(context, ok);
  ++transfers_;
}

std::uint64_t Recorder::frames() const {
  return std::accumulate(peers_.begin(), peers_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const PeerState& peer) { return sum + peer.frames.load(); });
}

std::uint64_t Recorder::bytes() const {
  return std::accumulate(peers_.begin(), peers_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const PeerState& peer) { return sum + peer.bytes.load(); });
}

void Node::send(Peer to, std::size_t bytes, std::uint32_t stream) {
  const std::uint64_t key = keys_[to][stream]++;
  module_->send(to, {key, self_, stream, kind, extra_of(bytes)}, contents(key, bytes));
}

void Node::send_from(Peer to, std::span<const std::byte> body, std::uint32_t stream) {
  module_->send(to, {keys_[to][stream]++, self_, stream, kind, extra_of(body.size())}, body);
}

bool Node::poll() {
  EXPECT_EQ(recorder_.polling_.exchange(std::this_thread::get_id()), std::thread::id())
      << "the test itself polls twice";
  const std::uint64_t upcalls = recorder_.upcalls_;
  const std::uint64_t questions = recorder_.questions_;
  const bool called = module_->poll();
  // The module may or may not count a mere question as something.
  if (recorder_.upcalls_ == upcalls) {
    EXPECT_FALSE(called) << "poll() made no upcall";
  } else if (recorder_.upcalls_ - upcalls != recorder_.questions_ - questions) {
    EXPECT_TRUE(called) << "poll() made an upcall";
  }
  recorder_.polling_.store({});
  return called;
}

bool Node::close(std::chrono::nanoseconds linger) {
  recorder_.polling_.store(std::this_thread::get_id());
  const bool all = module_->close(linger);
  recorder_.polling_.store({});
  return all;
}

void Node::destroy() {
  recorder_.polling_.store(std::this_thread::get_id());
  module_.reset();
  recorder_.polling_.store({});
}

void Conformance::make(std::uint32_t processes) {
  net_ = GetParam().net(processes);
  for (Peer peer = 0; peer < processes; ++peer) nodes_.push_back(std::make_unique<Node>(*net_, peer, processes));
}

void Conformance::SetUp() {
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto skip = GetParam().skips.find(test.substr(0, test.find('/')));
  if (skip != GetParam().skips.end()) GTEST_SKIP() << skip->second;
}

void Conformance::TearDown() {
  for (const std::unique_ptr<Node>& node : nodes_) node->destroy();
}

void Conformance::pump(const std::function<bool()>& done, std::vector<Peer> some) {
  if (some.empty()) {
    some.resize(processes());
    std::iota(some.begin(), some.end(), 0U);
  }
  while (!done()) {
    bool called = false;
    for (const Peer peer : some) called |= node(peer).poll();
    if (!called) std::this_thread::yield();
  }
}

void Conformance::pump_times(int times) {
  for (int i = 0; i < times; ++i) {
    for (const std::unique_ptr<Node>& node : nodes_) node->poll();
  }
}

void Conformance::run(Peer peer, const std::function<bool()>& done) {
  while (!done()) {
    if (!node(peer).poll() && !done()) node(peer).module().wait(std::nullopt);
  }
}

std::uint64_t Conformance::send_until_queued(Peer from, Peer to, std::size_t body_bytes, std::size_t queued_bytes) {
  constexpr std::size_t bytes_max = 256 * 1024 * 1024;  // Some systems take much.
  const comm::Module& module = node(from).module();
  std::uint64_t frames = 0;
  std::size_t queued = 0;
  do {  // the system may find more room a moment later
    for (; module.queued(to) < queued_bytes && frames * body_bytes < bytes_max; ++frames)
      node(from).send(to, body_bytes);
    queued = module.queued(to);
    for (int i = 0; i < 100; ++i) node(from).poll();
  } while (module.queued(to) != queued);
  return frames;
}

}  // namespace aplib::comm::test
