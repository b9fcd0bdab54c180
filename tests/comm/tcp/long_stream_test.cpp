// SPDX-License-Identifier: MIT
// The logic of long links: whatever lanes do, the stream arrives whole, in order and once; no bytes of a peer break it;
// lanes are added while they help. Another seed: APLIB_TEST_SEED=n.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "checks.hpp"
#include "comm/tcp/chunk.hpp"
#include "comm/tcp/inflow.hpp"
#include "comm/tcp/lane_growth.hpp"
#include "comm/tcp/outflow.hpp"

namespace aplib::comm::test {
namespace {

using tcp::Chunk;
using tcp::Inflow;
using tcp::LaneGrowth;
using tcp::Outflow;
using testing_support::scaled;
using testing_support::test_seed;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  bool one_in(std::size_t count) { return below(count) == 0; }

 private:
  std::mt19937_64 random_;
};

std::byte byte_of(std::uint64_t frame, std::size_t at) { return static_cast<std::byte>(frame * 131 + at * 7); }

/// Frames must come in the order of their keys, with the right bytes.
struct Checker final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer, const Label& label, std::span<const std::byte> body) override { check(label, body); }
  std::byte* large_begin(Peer, const Label&, std::size_t bytes) override {
    large.assign(bytes, std::byte{0});
    return large.data();
  }
  void large_end(Peer, const Label& label, std::size_t, bool complete) override {
    if (complete) check(label, large);
  }
  void peer_lost(Peer, const std::string&) override {}
  void check(const Label& label, std::span<const std::byte> body) {
    EXPECT_EQ(label.key, frames);
    for (std::size_t i = 0; i < body.size(); i += 97) ASSERT_EQ(body[i], byte_of(frames, i)) << "frame " << frames;
    ++frames;
  }
  std::vector<std::byte> large;
  std::uint64_t frames = 0;
};

/// One direction of a long link. Lanes are queues of bytes, of which any may end with what is in it.
class Direction {
 public:
  explicit Direction(std::uint64_t seed) : dice_(seed) {
    in_.read_by(reader_);
    in_.begin(true);
  }

  void send_frame() {
    constexpr std::size_t large = Module::large_from_bytes;
    const std::size_t bytes = dice_.one_in(8)   ? dice_.below(300'000)
                              : dice_.one_in(8) ? large - 20 + dice_.below(40)
                                                : dice_.below(300);
    std::vector<std::byte> body(bytes);
    for (std::size_t i = 0; i < bytes; ++i) body[i] = byte_of(sent_, i);
    std::array<std::byte, frame_header_bytes> header;
    encode({{.key = sent_++}, bytes}, header);
    out_.append(header, body);
  }
  void send_end() {
    std::array<std::byte, frame_header_bytes> mark;
    encode(FrameHeader{.label = {}, .body_bytes = 0, .end = true}, mark);
    out_.append(mark);
    out_.end();
  }

  void step() {
    if (lanes_.size() < 5 && (lanes_.empty() || dice_.one_in(12)))
      lanes_.push_back(std::make_unique<Lane>(Lane{&out_.open()}));
    const std::size_t number = dice_.below(lanes_.size());
    Lane& lane = *lanes_[number];
    switch (dice_.below(5)) {
      case 0:
      case 1:
        return write(lane, number == 0);
      case 2:
      case 3:
        return read(lane);
      default:
        in_.begin(!dice_.one_in(4));
        ASSERT_TRUE(in_.go_on());
        if (dice_.one_in(3)) {
          ASSERT_TRUE(out_.acknowledge(in_.tell()));
        }
        if (dice_.one_in(cut_one_in_)) cut(number);
    }
  }
  void run_out(bool cuts) {
    cut_one_in_ = cuts ? 8 : 1'000'000;
    for (int i = 0; i < 200'000 && out_.unacknowledged() != 0; ++i) ASSERT_NO_FATAL_FAILURE(step());
    EXPECT_EQ(out_.unacknowledged(), 0U);
    EXPECT_EQ(checker.frames, sent_);
    EXPECT_EQ(in_.pieces(), 0U);
    EXPECT_TRUE(reader_.ended_in_order());
    EXPECT_TRUE(in_.complete());
  }

  Checker checker;
  std::uint64_t cuts = 0;

 private:
  struct Lane {
    Outflow::Share* share;
    std::size_t written = 0;      // Of the current chunk and its header.
    std::deque<std::byte> way{};  // What has been written and not read.
    std::uint64_t offset = 0;
    std::size_t left = 0;
  };

  /// Some bytes of the chunk under way, or of the next one.
  void write(Lane& lane, bool first) {
    if (lane.share->current.empty()) {
      if (!out_.give(*lane.share, first, 1 + dice_.below(Chunk::bytes_max))) return;
      const auto& range = lane.share->current;
      std::array<std::byte, Chunk::header_bytes> header;
      tcp::encode_chunk({.offset = range.begin,
                         .bytes = static_cast<std::uint32_t>(range.bytes()),
                         .ends = out_.is_last(*lane.share)},
                        header);
      lane.way.insert(lane.way.end(), header.begin(), header.end());
      lane.written = 0;
    }
    std::array<iovec, 3> pieces;
    const std::size_t count = out_.peek(*lane.share, lane.written, pieces);
    std::size_t room = 1 + dice_.below(100'000);
    for (std::size_t i = 0; i < count && room != 0; ++i) {
      const std::size_t part = std::min(room, pieces[i].iov_len);
      const auto* at = static_cast<const std::byte*>(pieces[i].iov_base);
      lane.way.insert(lane.way.end(), at, at + part);
      lane.written += part;
      room -= part;
    }
    if (lane.written == lane.share->current.bytes()) out_.sent(*lane.share);
  }

  void read(Lane& lane) {
    std::size_t bytes = std::min(lane.way.size(), dice_.below(150'000));
    while (bytes != 0) {
      if (lane.left == 0) {
        if (bytes < Chunk::header_bytes) return;
        std::array<std::byte, Chunk::header_bytes> header;
        take(lane, header);
        bytes -= header.size();
        const auto chunk = tcp::decode_chunk(header);
        ASSERT_TRUE(chunk);
        ASSERT_EQ(in_.objection(*chunk), "");
        lane.offset = chunk->offset;
        lane.left = chunk->bytes;
        continue;
      }
      const std::span<std::byte> place = in_.place(lane.offset, std::min(bytes, lane.left));
      const std::size_t part = place.empty() ? std::min(bytes, lane.left) : place.size();
      if (!place.empty() && dice_.one_in(2)) {
        take(lane, place);
        ASSERT_TRUE(in_.in_place(lane.offset, part));
      } else {
        std::vector<std::byte> read(part);
        take(lane, read);
        ASSERT_TRUE(in_.take(lane.offset, read, lane.left - part));
      }
      lane.offset += part;
      lane.left -= part;
      bytes -= part;
    }
  }
  static void take(Lane& lane, std::span<std::byte> into) {
    const auto end = lane.way.begin() + static_cast<std::ptrdiff_t>(into.size());
    std::copy(lane.way.begin(), end, into.begin());
    lane.way.erase(lane.way.begin(), end);
  }
  void cut(std::size_t number) {
    out_.lose(*lanes_[number]->share);
    lanes_.erase(lanes_.begin() + static_cast<std::ptrdiff_t>(number));
    ++cuts;
  }

  Dice dice_;
  Outflow out_;
  FrameReader reader_{checker, 0};
  Inflow in_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::uint64_t sent_ = 0;
  std::size_t cut_one_in_ = 8;
};

TEST(LongStream, IsWholeInOrderAndOnceWhateverLanesDo) {
  std::uint64_t cuts = 0;
  for (std::uint64_t round = 0; round < scaled(400); ++round) {
    SCOPED_TRACE("seed " + std::to_string(test_seed() + round));
    Direction direction(test_seed() + round);
    for (int i = 0; i < 30; ++i) {
      direction.send_frame();
      for (int steps = 0; steps < 4; ++steps) ASSERT_NO_FATAL_FAILURE(direction.step());
    }
    direction.send_end();
    ASSERT_NO_FATAL_FAILURE(direction.run_out(round % 2 == 0));
    cuts += direction.cuts;
  }
  EXPECT_GT(cuts, scaled(1'000));
}

TEST(Outflow, KeepsWhatIsNotAcknowledgedAndNoMore) {
  Outflow out;
  Outflow::Share& share = out.open();
  const std::vector<std::byte> body(1 << 20);
  while (out.waiting() < 2 * Outflow::window_bytes) out.append(body);
  while (out.give(share, true, Chunk::bytes_max)) out.sent(share);
  EXPECT_EQ(out.given(), Outflow::window_bytes);
  EXPECT_FALSE(out.acknowledge(out.given() + 1));
  EXPECT_TRUE(out.acknowledge(out.given()));
  EXPECT_EQ(out.kept(), out.waiting());
  EXPECT_TRUE(out.acknowledge(100)) << "an old one, by another lane";
  EXPECT_EQ(out.acknowledged(), Outflow::window_bytes);
}

TEST(Outflow, AChunkStaysUntilItIsSentThoughAnotherLaneHadIt) {
  Outflow out;
  std::vector<std::byte> body(Chunk::bytes_max, std::byte{7});
  out.append(body);
  Outflow::Share& first = out.open();
  ASSERT_TRUE(out.give(first, true, Chunk::bytes_max));
  out.sent(first);
  out.lose(first);
  Outflow::Share& second = out.open();
  ASSERT_TRUE(out.give(second, true, Chunk::bytes_max));
  EXPECT_TRUE(out.acknowledge(body.size()));  // it had come by the first
  std::array<iovec, 4> pieces;
  std::size_t bytes = 0;
  for (std::size_t i = out.peek(second, 0, pieces); i != 0; --i) bytes += pieces[i - 1].iov_len;
  EXPECT_EQ(bytes, body.size());
  EXPECT_EQ(out.kept(), body.size());
  out.sent(second);
  EXPECT_EQ(out.kept(), 0U);
}

/// Takes all, but for bodies that are too large.
struct Anybody final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer, const Label&, std::span<const std::byte>) override {}
  std::byte* large_begin(Peer, const Label&, std::size_t bytes) override {
    if (bytes > (1U << 20)) return nullptr;
    large.assign(bytes, std::byte{0});
    return large.data();
  }
  void large_end(Peer, const Label&, std::size_t, bool) override {}
  void peer_lost(Peer, const std::string&) override {}
  std::vector<std::byte> large;
};

/// Bytes as a peer that means harm would send them, most of them within the rules for a while.
TEST(Inflow, AnyChunksAreTakenOrRefusedWithinBounds) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Dice dice(test_seed());
  int refused = 0;
  std::uint64_t taken = 0;
  for (int round = 0; round < static_cast<int>(scaled(400)); ++round) {
    Anybody any;
    FrameReader reader(any, 0);
    Inflow in;
    in.read_by(reader);
    bool good = true;
    for (int i = 0; good && i < 200; ++i) {
      in.begin(!dice.one_in(5));
      Chunk chunk{.offset = in.taken() + dice.below(dice.one_in(3) ? 1 : 300'000),
                  .bytes = static_cast<std::uint32_t>(1 + dice.below(dice.one_in(2) ? 60 : Chunk::bytes_max)),
                  .ends = dice.one_in(60)};
      if (dice.one_in(40))
        chunk.offset = dice.below(2) != 0 ? ~std::uint64_t{0} - 5 : Outflow::window_bytes + chunk.offset;
      std::array<std::byte, Chunk::header_bytes> header;
      tcp::encode_chunk(chunk, header);
      if (dice.one_in(30)) header[dice.below(header.size())] ^= static_cast<std::byte>(1U << dice.below(8));
      const auto read = tcp::decode_chunk(header);
      good = read && in.objection(*read).empty();
      if (!good || read->bytes == 0) continue;
      // Most often a sound frame begins there, now and then a large one.
      std::vector<std::byte> body(std::max<std::size_t>(read->bytes, frame_header_bytes));
      encode({{}, dice.one_in(4) ? Module::large_from_bytes + dice.below(900'000) : dice.below(100)},
             std::span(body).first<frame_header_bytes>());
      body.resize(read->bytes);
      const std::size_t part = 1 + dice.below(body.size());
      good = in.take(read->offset, std::span(body).first(part), body.size() - part) &&
             in.take(read->offset + part, std::span(body).subspan(part), 0);
      ASSERT_LE(in.kept_bytes(), Outflow::window_bytes);
      ASSERT_LE(in.pieces(), Inflow::pieces_max);
    }
    refused += good ? 0 : 1;
    taken += in.taken();
  }
  EXPECT_GT(static_cast<std::uint64_t>(refused), scaled(100));
  EXPECT_GT(taken, scaled(1'000'000));
}

TEST(Inflow, PiecesThatDoNotFitTogetherAreBounded) {
  Checker checker;
  FrameReader reader(checker, 0);
  Inflow in;
  in.read_by(reader);
  in.begin(true);
  const std::byte one{};
  std::uint64_t offset = 1;
  while (in.take(offset, {&one, 1}, 0)) offset += 2;
  EXPECT_EQ(in.pieces(), Inflow::pieces_max);
  EXPECT_NE(in.refusal().find("do not fit together"), std::string::npos) << in.refusal();
}

TEST(Inflow, SaysWhatIsWrongWithAChunk) {
  Checker checker;
  FrameReader reader(checker, 0);
  Inflow in;
  in.read_by(reader);
  EXPECT_NE(in.objection({.offset = Outflow::window_bytes, .bytes = 1}), "");
  EXPECT_EQ(in.objection({.offset = Outflow::window_bytes - 1, .bytes = 1}), "");
  EXPECT_EQ(in.objection({.offset = 100, .bytes = 10, .ends = true}), "");
  EXPECT_NE(in.objection({.offset = 110, .bytes = 1}), "");
  EXPECT_NE(in.objection({.offset = 50, .bytes = 1, .ends = true}), "");
}

constexpr double round_trip = 0.1;

/// A path on which each lane carries `by_lane`, and all together no more than `path`. Returns how many are wanted after
/// so many seconds.
unsigned lanes_after(double seconds, double by_lane, double path, std::size_t waiting, LaneGrowth growth) {
  double acknowledged = 0;
  double now = 0;
  growth.press(now, 0);
  while (now < seconds) {
    now += round_trip;
    acknowledged += std::min(by_lane * growth.wanted(), path) * round_trip;
    growth.report({.now = now,
                   .round_trip = round_trip,
                   .acknowledged = static_cast<std::uint64_t>(acknowledged),
                   .waiting = waiting,
                   .lanes = growth.wanted()});
  }
  return growth.wanted();
}

TEST(LaneGrowth, AddsWhileItHelps) {
  constexpr std::size_t much = 100'000'000;
  EXPECT_EQ(lanes_after(10, 1e6, 1e9, much, LaneGrowth({})), LaneGrowth::lanes_max);
  EXPECT_LE(lanes_after(10, 1e6, 4e6, much, LaneGrowth({})), 10U);
  EXPECT_LE(lanes_after(10, 1e6, 1e6, much, LaneGrowth({})), 1 + LaneGrowth::first_step);
  EXPECT_EQ(lanes_after(10, 1e6, 1e9, 10'000, LaneGrowth({})), 1U) << "it is gone at once";
  EXPECT_EQ(lanes_after(10, 1e6, 1e9, much, LaneGrowth({.fixed = 3})), 3U);
  EXPECT_EQ(LaneGrowth({.first = 8}).wanted(), 8U) << "they stand before anything waits";
  EXPECT_EQ(LaneGrowth({.fixed = 3, .first = 8}).wanted(), 3U);
  EXPECT_EQ(lanes_after(10, 1e6, 1e9, much, LaneGrowth({.first = 8})), LaneGrowth::lanes_max);
  LaneGrowth limited({});
  limited.limit(2);
  EXPECT_EQ(lanes_after(10, 1e6, 1e9, much, limited), 2U);
}

}  // namespace
}  // namespace aplib::comm::test
