// SPDX-License-Identifier: MIT
#include "comm/frame.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

namespace aplib::comm {
namespace {

using Bytes = std::array<std::byte, frame_header_bytes>;

const FrameHeader example{{0x0102'0304'0506'0708, 0x1112'1314, 0x2122'2324, 0x3132'3334, 0x4142'4344},
                          0x0000'0051'5253'5455};

Bytes encoded(const FrameHeader& header) {
  Bytes bytes;
  encode(header, bytes);
  return bytes;
}

TEST(WireTest, LiesAsDocumented) {
  const std::array<unsigned, frame_header_bytes> right{
      0x1b, 0xa9, 1,    0,    0,    0,    0,    0,     // magic, version, flags, reserved
      0x55, 0x54, 0x53, 0x52, 0x51, 0,    0,    0,     // body bytes
      0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,  // key
      0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21,  // cell, task
      0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41,  // kind, extra
  };
  const Bytes bytes = encoded(example);
  for (std::size_t i = 0; i < frame_header_bytes; ++i)
    EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), right[i]) << "byte " << i;
}

TEST(WireTest, ReadsWhatItWrote) {
  for (const FrameHeader& header :
       {example, FrameHeader{}, FrameHeader{{}, Module::body_bytes_max}, FrameHeader{{}, 0, true}}) {
    const auto read = decode(encoded(header));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(*read, header);
  }
}

TEST(WireTest, RefusesInWords) {
  struct Case {
    const char* text;
    std::function<void(Bytes&)> spoil;
  };
  const std::vector<Case> cases{
      {"no frame begins with 0xa91a", [](Bytes& bytes) { bytes[0] ^= std::byte{1}; }},
      {"no frame begins with 0x291b", [](Bytes& bytes) { bytes[1] ^= std::byte{0x80}; }},
      {"a frame of version 3, this process knows version 1", [](Bytes& bytes) { bytes[2] = std::byte{3}; }},
      {"flags 0x02", [](Bytes& bytes) { bytes[3] = std::byte{2}; }},
      {"reserved 0x1000000", [](Bytes& bytes) { bytes[7] = std::byte{1}; }},
      {"a body of 1099511627777 bytes",
       [](Bytes& bytes) {
         bytes = encoded({{}, Module::body_bytes_max + 1});
       }},
      {"a body of 18446744073709551615 bytes",
       [](Bytes& bytes) {
         bytes = encoded({{}, ~std::uint64_t{0}});
       }},
      {"an end mark with a label or a body", [](Bytes& bytes) { bytes[3] = std::byte{1}; }},
      {"an end mark with a label or a body",
       [](Bytes& bytes) {
         bytes = encoded({{1, 0, 0, 0, 0}, 0, true});
       }},
      {"an end mark with a label or a body",
       [](Bytes& bytes) {
         bytes = encoded({{}, 1, true});
       }},
  };
  for (const Case& one : cases) {
    Bytes bytes = encoded(example);
    one.spoil(bytes);
    EXPECT_FALSE(decode(bytes).has_value()) << one.text;
    EXPECT_NE(explain_refusal(bytes).find(one.text), std::string::npos) << explain_refusal(bytes);
  }
}

TEST(WireTest, AnyDamageToTheFirstEightBytesIsSeen) {
  for (std::size_t bit = 0; bit < 64; ++bit) {
    Bytes bytes = encoded(example);
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_FALSE(decode(bytes).has_value()) << "bit " << bit;
  }
}

}  // namespace
}  // namespace aplib::comm
