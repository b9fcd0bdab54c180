// SPDX-License-Identifier: MIT
// FrameReader's two inputs, one at a time. frames_fuzz_test.cpp has what holds for any bytes in any pieces.
#include "comm/frame.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace aplib::comm {
namespace {

constexpr std::size_t large = Module::large_from_bytes;

/// Records what arrives: "frame 5", "begin 20000", "end 20000", "broken 20000", and where it lay.
class Log final : public Receiver {
 public:
  bool wants(Peer /*from*/) override { return true; }
  void frame(Peer from, const Label& label, std::span<const std::byte> body) override {
    EXPECT_EQ(from, 3U);
    EXPECT_EQ(label.key, body.size());
    lines.push_back("frame " + std::to_string(body.size()));
    last_body = body;
  }
  std::byte* large_begin(Peer /*from*/, const Label& label, std::size_t bytes) override {
    EXPECT_EQ(label.key, bytes);
    lines.push_back("begin " + std::to_string(bytes));
    if (refuse) return nullptr;
    memory.assign(bytes, std::byte{0});
    return memory.data();
  }
  void large_end(Peer /*from*/, const Label& /*label*/, std::size_t bytes, bool complete) override {
    lines.push_back((complete ? "end " : "broken ") + std::to_string(bytes));
  }
  void peer_lost(Peer /*peer*/, const std::string& /*why*/) override { FAIL(); }

  std::vector<std::string> lines;
  std::span<const std::byte> last_body;
  std::vector<std::byte> memory;
  bool refuse = false;
};

using Lines = std::vector<std::string>;

/// Frames with bodies of these sizes, one after another.
std::vector<std::byte> stream(std::initializer_list<std::size_t> bodies, bool end = false) {
  std::vector<std::byte> bytes;
  const auto append = [&](const FrameHeader& header) {
    bytes.resize(bytes.size() + frame_header_bytes);
    encode(header, std::span<std::byte, frame_header_bytes>(bytes.end() - frame_header_bytes, bytes.end()));
    for (std::size_t i = 0; i < header.body_bytes; ++i) bytes.push_back(static_cast<std::byte>(i * 3));
  };
  for (const std::size_t body : bodies) append({{body, 0, 0, 0, 0}, body});
  if (end) append({{}, 0, true});
  return bytes;
}

std::span<std::byte> copy(std::span<std::byte> into, std::span<const std::byte> from) {
  const std::size_t bytes = std::min(into.size(), from.size());
  std::memcpy(into.data(), from.data(), bytes);
  return into.first(bytes);
}

class FrameReaderTest : public ::testing::Test {
 protected:
  Log log_;
  FrameReader reader_{log_, 3};
};

TEST_F(FrameReaderTest, SmallFramesAreHandedOverWhereTheyLie) {
  const std::vector<std::byte> bytes = stream({8, 100});
  ASSERT_TRUE(reader_.take(bytes));
  EXPECT_EQ(log_.lines, (Lines{"frame 8", "frame 100"}));
  EXPECT_EQ(log_.last_body.data(), bytes.data() + 2 * frame_header_bytes + 8);
  EXPECT_EQ(reader_.frames(), 2U);
  EXPECT_EQ(reader_.bytes(), 108U);
  EXPECT_FALSE(reader_.inside_frame());
}

TEST_F(FrameReaderTest, OneByteAtATime) {
  const std::vector<std::byte> bytes = stream({0, 8, large - 1, large, 5}, true);
  for (const std::byte& byte : bytes) ASSERT_TRUE(reader_.take({&byte, 1}));
  EXPECT_EQ(log_.lines, (Lines{"frame 0", "frame 8", "frame 16383", "begin 16384", "end 16384", "frame 5"}));
  EXPECT_TRUE(reader_.ended_in_order());
}

TEST_F(FrameReaderTest, LargeBodiesGoStraightToTheReceiver) {
  const std::vector<std::byte> bytes = stream({300'000, 40});
  ASSERT_TRUE(reader_.filled(copy(reader_.room().next(), std::span(bytes).first(1'000)).size()));
  ASSERT_EQ(log_.lines, (Lines{"begin 300000"}));
  // What came with the header was copied. The rest of the body goes to its place, and the buffer takes what follows.
  const FrameReader::Room room = reader_.room();
  EXPECT_EQ(room.body.data(), log_.memory.data() + 1'000 - frame_header_bytes);
  EXPECT_EQ(room.body.size(), 300'000 - 1'000 + frame_header_bytes);
  EXPECT_EQ(room.buffer.size(), FrameReader::buffer_after_large_bytes);
  EXPECT_TRUE(reader_.inside_frame());
  const std::span<const std::byte> rest = std::span(bytes).subspan(1'000);
  const std::size_t in_body = copy(room.body, rest).size();
  const std::size_t in_buffer = copy(room.buffer, rest.subspan(in_body)).size();
  ASSERT_TRUE(reader_.filled(in_body + in_buffer));
  EXPECT_EQ(log_.lines, (Lines{"begin 300000", "end 300000", "frame 40"}));
  EXPECT_TRUE(std::equal(log_.memory.begin(), log_.memory.end(), bytes.begin() + frame_header_bytes));
  EXPECT_EQ(reader_.room().buffer.size(), FrameReader::buffer_bytes);
}

TEST_F(FrameReaderTest, BothWaysMix) {
  const std::vector<std::byte> bytes = stream({50'000, 7, 7});
  ASSERT_TRUE(reader_.take(std::span(bytes).first(100)));
  const std::span<std::byte> body = reader_.room_in_body();
  ASSERT_EQ(body.size(), 50'000 - 60U);
  ASSERT_TRUE(reader_.filled(copy(body, std::span(bytes).subspan(100)).size()));
  ASSERT_TRUE(reader_.take(std::span(bytes).subspan(50'040)));
  EXPECT_EQ(log_.lines, (Lines{"begin 50000", "end 50000", "frame 7", "frame 7"}));
  EXPECT_TRUE(reader_.room_in_body().empty());
}

TEST_F(FrameReaderTest, ManyFramesInOneRead) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 3'000; ++i) {
    const std::vector<std::byte> one = stream({static_cast<std::size_t>(i % 50)});
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  for (std::span<const std::byte> left(bytes); !left.empty();) {
    const std::size_t part = copy(reader_.room().next(), left).size();
    ASSERT_TRUE(reader_.filled(part));
    left = left.subspan(part);
  }
  EXPECT_EQ(log_.lines.size(), 3'000U);
}

TEST_F(FrameReaderTest, GarbageIsRefusedForGood) {
  const std::string request = "GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n";
  const std::vector<std::byte> good = stream({9});
  ASSERT_TRUE(reader_.take(good));
  EXPECT_FALSE(reader_.take(std::as_bytes(std::span(request))));
  EXPECT_NE(reader_.refusal().find("no frame begins with 0x4547"), std::string::npos) << reader_.refusal();
  EXPECT_FALSE(reader_.take(good));
  EXPECT_FALSE(reader_.filled(0));
  EXPECT_TRUE(reader_.room().next().empty());
  EXPECT_EQ(log_.lines, (Lines{"frame 9"}));
}

TEST_F(FrameReaderTest, ARefusedLargeBodyEndsTheStream) {
  log_.refuse = true;
  EXPECT_FALSE(reader_.take(stream({20'000, 5})));
  EXPECT_EQ(reader_.refusal(), "a large frame was not accepted here");
  reader_.end();
  EXPECT_EQ(log_.lines, (Lines{"begin 20000"}));
}

TEST_F(FrameReaderTest, EndBreaksTheBodyUnderWay) {
  const std::vector<std::byte> bytes = stream({20'000});
  ASSERT_TRUE(reader_.take(std::span(bytes).first(10'000)));
  reader_.end();
  reader_.end();
  EXPECT_EQ(log_.lines, (Lines{"begin 20000", "broken 20000"}));
  EXPECT_EQ(reader_.frames(), 0U);
}

TEST_F(FrameReaderTest, NothingFollowsTheEndMark) {
  ASSERT_TRUE(reader_.take(stream({1}, true)));
  EXPECT_TRUE(reader_.ended_in_order());
  EXPECT_FALSE(reader_.take(stream({1})));
  EXPECT_EQ(reader_.refusal(), "more bytes after the end mark: the stream is damaged");
  EXPECT_EQ(log_.lines, (Lines{"frame 1"}));
}

}  // namespace
}  // namespace aplib::comm
