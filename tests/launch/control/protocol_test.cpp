// SPDX-License-Identifier: MIT
// The control protocol's messages: there and back, and whatever else somebody may send.
#include "launch/wire/protocol.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>

namespace aplib::launch {
namespace {

Bytes bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

Prepare some_prepare() {
  Prepare prepare;
  prepare.options = {{"cells", "4x2"}, {"threads", "auto"}};
  prepare.address = "10.0.0.1";
  prepare.files = {{"/p/heat", {"4f3a", 4711, 0}}, {"/p/libown.so", {"", 12, 99}}};
  prepare.program_name = "./heat";
  prepare.arguments = {"--points", "300", ""};
  prepare.entry = "solve(int)->int";
  prepare.entry_arguments = {"3"};
  prepare.expand = true;
  prepare.cell_folder = "run-{cid}";
  prepare.input_for_all = true;
  prepare.cpus = {0, 1, 5};
  return prepare;
}

/// A valid message of each type.
std::map<MessageType, Bytes> one_of_each(const Bytes& piece) {
  std::map<MessageType, Bytes> all;
  const auto add = [&]<class Message>(const Message& message) { all[Message::type] = encode(message); };
  add(Beat{});
  add(Note{true, piece});
  add(Hello{1, "0.1.0", 3, "ws1", "boot", "10.0.0.1", 77, {0, 1}});
  add(SpeedIs{2.5, 4});
  add(WantFile{"/p/heat", 65536});
  add(Prepared{"tcp=10.0.0.1:5100", {{"rdma", "no RDMA device is there"}}, ""});
  add(Ready{});
  add(Cannot{"no"});
  add(OutputPiece{7, true, piece});
  add(Flush{7, false});
  add(EndedCell{7, -1});
  add(Warning{"careful"});
  add(WantInput{0, 1000});
  add(FindProgram{"cell.so"});
  add(Finished{3, "why", {0, 3, 0}});
  add(NodeState{"tcp", 1, 2, 3, 4, 5, {{"tcp", "1", "tcp 10.0.0.2:5100"}, {"shm", "2-3", ""}}});
  add(Refused{"no"});
  add(MeasureSpeed{1, 2.0, "cmd", "auto", true, {1, 2}});
  add(some_prepare());
  add(FilePiece{"", true, piece});
  add(Plan{"id", {"a:1", "b:2"}, CellMap::consecutive(std::array<std::uint32_t, 2>{2, 2}), {"a", "b"}});
  add(Go{});
  add(Written{9});
  add(InputPiece{0, false, piece});
  add(Stop{});
  add(ProgramIs{"", {{"/p/cell", {"ab", 1, 0}}}});
  add(Leave{});
  add(AskState{});
  add(ToldToEnd{15});
  return all;
}

TEST(Protocol, EveryMessageComesBackAsItWas) {
  const Prepare sent = some_prepare();
  const auto got = decode<Prepare>(encode(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->options[1].value, "auto");
  EXPECT_EQ(got->files[1].path, "/p/libown.so");
  EXPECT_EQ(got->files[1].identity.sum, 99U);
  EXPECT_EQ(got->arguments, sent.arguments);
  EXPECT_TRUE(got->expand);
  EXPECT_EQ(got->cpus, sent.cpus);

  const Bytes piece = bytes_of("some bytes\0 more");
  const auto all = one_of_each(piece);
  EXPECT_EQ(all.size(), static_cast<std::size_t>(MessageType::last) + 1) << "a type has no message here";
  for (const auto& [type, body] : all) {
    Bytes whole;
    append_message(whole, type, body);
    const auto head = read_head(whole);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->type, type);
    EXPECT_EQ(head->bytes, body.size());
    EXPECT_TRUE(is_message(type, body)) << static_cast<int>(type);
  }
  EXPECT_EQ(decode<OutputPiece>(all.at(MessageType::output))->bytes.size(), piece.size());
  EXPECT_EQ(decode<EndedCell>(all.at(MessageType::ended))->status, -1);
}

TEST(Protocol, WhatIsCutOrTooLongIsNoMessage) {
  for (const auto& [type, body] : one_of_each(bytes_of("piece"))) {
    for (std::size_t size = 0; size < body.size(); ++size)
      EXPECT_FALSE(is_message(type, std::span(body).first(size))) << static_cast<int>(type) << " cut at " << size;
    Bytes longer = body;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(is_message(type, longer)) << static_cast<int>(type);
  }
}

TEST(Protocol, HeadsHaveLimits) {
  Bytes head;
  append_message(head, MessageType::note, {});
  EXPECT_TRUE(read_head(head));
  head[3] = std::byte{0x7f};  // 2 GiB
  EXPECT_FALSE(read_head(head));
  head[3] = std::byte{0};
  head[4] = static_cast<std::byte>(static_cast<int>(MessageType::last) + 1);
  EXPECT_FALSE(read_head(head));
}

TEST(Protocol, VersionsOfTheFutureCanSayWhoTheyAre) {
  Bytes hello = encode(Hello{7, "9.1.0", 3, "ws1", "boot", "10.0.0.1", 77, {}});
  hello.push_back(std::byte{42});  // a field of theirs
  EXPECT_FALSE(decode<Hello>(hello));
  const auto start = read_hello_start(hello);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->control, 7U);
  EXPECT_EQ(start->version, "9.1.0");
  EXPECT_FALSE(read_hello_start(bytes_of("x")));
}

/// Whatever the bytes are, decoding ends, with a message or without, and takes no more memory than the message has.
TEST(Protocol, MutatedMessagesDoNoHarm) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto all = one_of_each(bytes_of("piece"));
  std::size_t refused = 0;
  constexpr int rounds = 3000;
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [type, body] : all) {
      Bytes mutated = body;
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
      if (!is_message(type, mutated)) ++refused;
      if (mutated.size() >= message_head_bytes) static_cast<void>(read_head(mutated));
      static_cast<void>(read_hello_start(mutated));
    }
  }
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace aplib::launch
