// SPDX-License-Identifier: MIT
// The control protocol's messages: encoded and decoded, and anything else that somebody may send.
#include "launch/wire/protocol.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>

#include "launch/wire/run_messages.hpp"
#include "launch/wire/start_messages.hpp"

namespace aplib::launch {
namespace {

wire::Bytes bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

wire::Prepare some_prepare() {
  wire::Prepare prepare;
  prepare.options = {{"cells", "4x2"}, {"threads", "auto"}};
  prepare.address = "10.0.0.1";
  prepare.others = {"10.0.0.2", "fe80::1%eth0"};
  prepare.files = {{"/p/heat", {"4f3a", 4711, 0}}, {"/p/libown.so", {"", 12, 99}}};
  prepare.programs = {
      {.name = "./heat", .arguments = {"--points", "300", ""}, .folder = "run-{cid}", .variables = {{"COLOUR", "red"}}},
      {.first_cell = 5, .file = 1, .name = "own"}};
  prepare.entry = "solve(int)->int";
  prepare.entry_arguments = {"3"};
  prepare.expand = true;
  prepare.input_for_all = true;
  prepare.cpus = {0, 1, 5};
  prepare.transfers = {{0, wire::TransferText::Kind::replace, "", 0},
                       {1, wire::TransferText::Kind::fetch, "out*", 1 << 20}};
  return prepare;
}

/// A valid message of each type.
std::map<wire::MessageType, wire::Bytes> one_of_each(const wire::Bytes& piece) {
  std::map<wire::MessageType, wire::Bytes> all;
  const auto add = [&]<class Message>(const Message& message) { all[Message::type] = wire::encode(message); };
  add(wire::Beat{});
  add(wire::Note{true, piece});
  add(wire::Hello{1, "0.1.0", 3, "ws1", "boot", "10.0.0.1", 77, {0, 1}});
  add(wire::SpeedIs{2.5, 4});
  add(wire::WantFiles{wire::own_transfers, {"/p/heat", "/p/libown.so"}});
  add(wire::Prepared{"tcp=10.0.0.1:5100", {{"rdma", "no RDMA device is there"}}, ""});
  add(wire::Ready{});
  add(wire::Cannot{"no"});
  add(wire::OutputPiece{7, true, piece});
  add(wire::Flush{7, false});
  add(wire::EndedCell{7, -1});
  add(wire::Warning{"careful"});
  add(wire::WantInput{0, 1000});
  add(wire::FindProgram{"cell.so"});
  add(wire::Finished{3, "why", {0, 3, 0}});
  add(wire::Answer{7, piece});
  add(wire::Refused{"no"});
  add(wire::MeasureSpeed{1, 2.0, "cmd", "auto", true, {1, 2}});
  add(some_prepare());
  add(wire::Transfer{3, piece});
  add(wire::Plan{"id", {"a:1", "b:2"}, CellMap::consecutive(std::array<std::uint32_t, 2>{2, 2}), {"a", "b"}});
  add(wire::Go{});
  add(wire::Written{9});
  add(wire::InputPiece{0, false, piece});
  add(wire::Stop{});
  add(wire::ProgramIs{"", {{"/p/cell", {"ab", 1, 0}}}});
  add(wire::Leave{});
  add(wire::Ask{7, "state"});
  add(wire::ToldToEnd{15});
  add(wire::Welcome{1, "key", {{"module", "tcp"}}, "10.0.0.1", {0, 2}});
  add(wire::Probe{"m", {{2, "10.0.0.1:5100"}}, {{{"10.0.0.1:5101", "10.0.0.2:5101"}}, {}}});
  add(wire::Probed{{2}, {"10.0.0.1:5101", ""}});
  return all;
}

TEST(Protocol, EveryMessageComesBackAsItWas) {
  const wire::Prepare sent = some_prepare();
  const auto got = wire::decode<wire::Prepare>(wire::encode(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->options[1].value, "auto");
  EXPECT_EQ(got->files[1].path, "/p/libown.so");
  EXPECT_EQ(got->files[1].identity.sum, 99U);
  ASSERT_EQ(got->programs.size(), 2U);
  EXPECT_EQ(got->programs[0].arguments, sent.programs[0].arguments);
  EXPECT_EQ(got->programs[0].variables[0].value, "red");
  EXPECT_EQ(got->programs[1].first_cell, 5U);
  EXPECT_TRUE(got->expand);
  EXPECT_EQ(got->cpus, sent.cpus);

  const wire::Bytes piece = bytes_of("some bytes\0 more");
  const auto all = one_of_each(piece);
  EXPECT_EQ(all.size(), static_cast<std::size_t>(wire::MessageType::last) + 1) << "a type has no message here";
  for (const auto& [type, body] : all) {
    wire::Bytes whole;
    wire::append_message(whole, type, body);
    const auto head = wire::read_head(whole);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->type, type);
    EXPECT_EQ(head->bytes, body.size());
    EXPECT_TRUE(wire::is_message(type, body)) << static_cast<int>(type);
  }
  EXPECT_EQ(wire::decode<wire::OutputPiece>(all.at(wire::MessageType::output))->bytes.size(), piece.size());
  EXPECT_EQ(wire::decode<wire::EndedCell>(all.at(wire::MessageType::ended))->status, -1);
}

TEST(Protocol, WhatIsCutOrTooLongIsNoMessage) {
  for (const auto& [type, body] : one_of_each(bytes_of("piece"))) {
    for (std::size_t size = 0; size < body.size(); ++size)
      EXPECT_FALSE(wire::is_message(type, std::span(body).first(size))) << static_cast<int>(type) << " cut at " << size;
    wire::Bytes longer = body;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(wire::is_message(type, longer)) << static_cast<int>(type);
  }
}

TEST(Protocol, HeadsHaveLimits) {
  wire::Bytes head;
  wire::append_message(head, wire::MessageType::note, {});
  EXPECT_TRUE(wire::read_head(head));
  head[3] = std::byte{0x7f};  // 2 GiB
  EXPECT_FALSE(wire::read_head(head));
  head[3] = std::byte{0};
  head[4] = static_cast<std::byte>(static_cast<int>(wire::MessageType::last) + 1);
  EXPECT_FALSE(wire::read_head(head));
}

TEST(Protocol, VersionsOfTheFutureCanSayWhoTheyAre) {
  wire::Bytes hello = wire::encode(wire::Hello{7, "9.1.0", 3, "ws1", "boot", "10.0.0.1", 77, {}});
  hello.push_back(std::byte{42});  // an additional field
  EXPECT_FALSE(wire::decode<wire::Hello>(hello));
  const auto start = wire::read_hello_start(hello);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->control, 7U);
  EXPECT_EQ(start->version, "9.1.0");
  EXPECT_FALSE(wire::read_hello_start(bytes_of("x")));
}

/// For any bytes, decoding ends, with or without a message, and takes no more memory than the message has.
TEST(Protocol, MutatedMessagesDoNoHarm) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto all = one_of_each(bytes_of("piece"));
  std::size_t refused = 0;
  constexpr int rounds = 3000;
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [type, body] : all) {
      wire::Bytes mutated = body;
      const auto changes = 1 + random() % 4;
      for (std::uint64_t i = 0; i < changes; ++i) {
        if (mutated.empty() || random() % 8 == 0) {
          mutated.insert(mutated.begin() + static_cast<std::ptrdiff_t>(random() % (mutated.size() + 1)),
                         static_cast<std::byte>(random()));
        } else if (random() % 8 == 0) {
          mutated.resize(random() % mutated.size());
        } else {
          constexpr std::byte extremes[] = {std::byte{0xff}, std::byte{0x7f}, std::byte{0x80}, std::byte{0}};
          mutated[random() % mutated.size()] =
              random() % 2 == 0 ? extremes[random() % 4] : static_cast<std::byte>(random());
        }
      }
      if (!wire::is_message(type, mutated)) ++refused;
      if (mutated.size() >= wire::message_head_bytes) static_cast<void>(wire::read_head(mutated));
      static_cast<void>(wire::read_hello_start(mutated));
    }
  }
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace aplib::launch
