// SPDX-License-Identifier: MIT
// The proof with which every connection begins: those who belong together find each other, and nobody else learns or
// gains anything.
#include "comm/greeting.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "aplib/error.hpp"

namespace aplib::comm {
namespace {

using Bytes = std::vector<std::byte>;
using Role = Greeting::Role;
using State = Greeting::State;

/// The last of all functions of exit(), because none is registered before it: where `hashes_at_exit`, it does what a
/// thread does that greets others then.
bool hashes_at_exit = false;
void hash_at_exit() {
  if (!hashes_at_exit) return;
  const std::vector<std::span<const std::byte>> parts;
  static_cast<void>(keyed_hash(JobKey::make(), parts));
  std::_Exit(7);
}
void register_first() { static_cast<void>(std::atexit(hash_at_exit)); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const registers_first)() = register_first;

Introduction who(std::uint32_t self, std::uint32_t peer) {
  Introduction introduction;
  introduction.machine = "machine-1";
  introduction.self = self;
  introduction.peer = peer;
  return introduction;
}

/// Carries bytes to and fro until neither side has more. `change` sees each piece and may alter it.
template <class Change>
void talk(Greeting& a, Greeting& b, Change change) {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      Bytes bytes = from->take_output();
      if (bytes.empty()) continue;
      moved = true;
      change(from == &a, bytes);
      to->receive(bytes);
    }
  }
}

void talk(Greeting& a, Greeting& b) {
  talk(a, b, [](bool, Bytes&) {});
}

TEST(GreetingDeathTest, WorksWhileTheProcessEnds) {
  const auto ends = [] {
    hashes_at_exit = true;
    std::exit(1);
  };
  EXPECT_EXIT(ends(), testing::ExitedWithCode(7), "");
}

TEST(JobKey, GoesThroughItsText) {
  const JobKey key = JobKey::make();
  const auto again = JobKey::from_hex(key.reveal_hex());
  ASSERT_TRUE(again);
  EXPECT_TRUE(equal_in_constant_time(key.secret(), again->secret()));
  EXPECT_EQ(key.reveal_hex().size(), 64u);
  EXPECT_FALSE(equal_in_constant_time(key.secret(), JobKey::make().secret()));
}

TEST(JobKey, RefusesWhatIsNoKey) {
  const std::string text = JobKey::make().reveal_hex();
  EXPECT_FALSE(JobKey::from_hex(""));
  EXPECT_FALSE(JobKey::from_hex(text + "0"));
  EXPECT_FALSE(JobKey::from_hex(text.substr(1)));
  EXPECT_FALSE(JobKey::from_hex(text.substr(1) + "g"));
  EXPECT_FALSE(JobKey::from_hex(text.substr(1) + "\n"));
}

// RFC 4231, test case 1: a key of 32 bytes is padded with zeros, as one of 20 bytes is.
TEST(JobKey, KeyedHashIsTheStandardOne) {
  const auto key = JobKey::from_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b000000000000000000000000");
  ASSERT_TRUE(key);
  const std::string hi = "Hi ";
  const std::string there = "There";
  const std::array parts{std::as_bytes(std::span(hi)), std::as_bytes(std::span(there))};
  const auto hash = keyed_hash(*key, parts);
  EXPECT_EQ(std::to_integer<int>(hash[0]), 0xb0);
  EXPECT_EQ(std::to_integer<int>(hash[1]), 0x34);
  EXPECT_EQ(std::to_integer<int>(hash[31]), 0xf7);
}

class SecureModes : public testing::TestWithParam<Secure> {};

TEST_P(SecureModes, BothSidesKnowEachOther) {
  const JobKey key = JobKey::make();
  Introduction caller_is = who(3, 0);
  Introduction answerer_is = who(0, Introduction::anyone);
  caller_is.secure = answerer_is.secure = GetParam();
  caller_is.stream = 2;
  caller_is.token = 77;
  Greeting caller(Role::caller, key, caller_is);
  Greeting answerer(Role::answerer, key, answerer_is);
  talk(caller, answerer);
  ASSERT_EQ(caller.state(), State::done) << caller.words();
  ASSERT_EQ(answerer.state(), State::done) << answerer.words();
  EXPECT_EQ(answerer.peer().self, 3u);
  EXPECT_EQ(answerer.peer().stream, 2u);
  EXPECT_EQ(answerer.peer().token, 77u);
  EXPECT_EQ(caller.peer().self, 0u);
  EXPECT_EQ(caller.secret(), answerer.secret());

  Greeting second_caller(Role::caller, key, caller_is);
  Greeting second_answerer(Role::answerer, key, answerer_is);
  talk(second_caller, second_answerer);
  EXPECT_NE(second_caller.secret(), caller.secret()) << "every connection has a secret of its own";
}

INSTANTIATE_TEST_SUITE_P(All, SecureModes, testing::Values(Secure::off, Secure::auth, Secure::tls),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Greeting, NeverAsksForMoreThanItNeeds) {
  const JobKey key = JobKey::make();
  Greeting caller(Role::caller, key, who(1, 0));
  Greeting answerer(Role::answerer, key, who(0, 1));
  Bytes to_caller, to_answerer = caller.take_output();
  while (answerer.state() == State::going || caller.state() == State::going) {
    for (auto [to, bytes] : {std::pair{&answerer, &to_answerer}, std::pair{&caller, &to_caller}}) {
      while (to->state() == State::going && !bytes->empty()) {
        ASSERT_GE(to->wants(), 1u);
        to->receive(std::span(*bytes).first(1));
        bytes->erase(bytes->begin());
      }
      const Bytes more = to->take_output();
      Bytes& into = to == &answerer ? to_caller : to_answerer;
      into.insert(into.end(), more.begin(), more.end());
    }
  }
  EXPECT_EQ(caller.state(), State::done);
  EXPECT_EQ(answerer.state(), State::done);
  EXPECT_TRUE(to_caller.empty());
  EXPECT_TRUE(to_answerer.empty());
}

TEST(Greeting, WhoHasAnotherKeyIsAStrangerAndLearnsNothing) {
  Greeting caller(Role::caller, JobKey::make(), who(1, 0));
  Greeting answerer(Role::answerer, JobKey::make(), who(0, 1));
  answerer.receive(caller.take_output());
  EXPECT_EQ(answerer.state(), State::stranger);
  EXPECT_TRUE(answerer.take_output().empty());
}

TEST(Greeting, GarbageIsDroppedAtItsFirstWrongByte) {
  for (const std::string text : {"GET / HTTP/1.1\r\n\r\n", "A", "APlib\r\nx", "\x16\x03\x01"}) {
    Greeting answerer(Role::answerer, JobKey::make(), who(0, 1));
    answerer.receive(std::as_bytes(std::span(text)));
    EXPECT_EQ(answerer.state(), text == "A" ? State::going : State::stranger) << text;
    EXPECT_TRUE(answerer.take_output().empty());
  }
}

TEST(Greeting, AReplayedHelloGetsNoFurther) {
  const JobKey key = JobKey::make();
  Greeting caller(Role::caller, key, who(1, 0));
  Greeting answerer(Role::answerer, key, who(0, 1));
  Bytes recorded;
  talk(caller, answerer, [&](bool by_caller, Bytes& bytes) {
    if (by_caller) recorded.insert(recorded.end(), bytes.begin(), bytes.end());
  });
  ASSERT_EQ(answerer.state(), State::done);
  Greeting again(Role::answerer, key, who(0, 1));
  again.receive(recorded);
  EXPECT_EQ(again.state(), State::stranger);
}

TEST(Greeting, AReflectedHelloIsNoAnswer) {
  const JobKey key = JobKey::make();
  Greeting caller(Role::caller, key, who(1, Introduction::anyone));
  const Bytes hello = caller.take_output();
  caller.receive(hello);
  EXPECT_EQ(caller.state(), State::stranger);
}

TEST(Greeting, AChangedByteAnywhereIsSeen) {
  const JobKey key = JobKey::make();
  std::mt19937 random(4711);
  std::size_t bytes_in_all = 0;
  {
    Greeting caller(Role::caller, key, who(1, 0));
    Greeting answerer(Role::answerer, key, who(0, 1));
    talk(caller, answerer, [&](bool, Bytes& bytes) { bytes_in_all += bytes.size(); });
  }
  for (std::size_t changed = 0; changed < bytes_in_all; ++changed) {
    Greeting caller(Role::caller, key, who(1, 0));
    Greeting answerer(Role::answerer, key, who(0, 1));
    std::size_t at = 0;
    talk(caller, answerer, [&](bool, Bytes& bytes) {
      if (changed >= at && changed < at + bytes.size()) bytes[changed - at] ^= std::byte(1u << random() % 8);
      at += bytes.size();
    });
    EXPECT_FALSE(caller.state() == State::done && answerer.state() == State::done) << "byte " << changed;
  }
}

struct Difference {
  const char* name;
  void (*make)(Introduction& caller, Introduction& answerer);
  const char* words;
};

class Differences : public testing::TestWithParam<Difference> {};

TEST_P(Differences, AreRefusedInWords) {
  const JobKey key = JobKey::make();
  Introduction caller_is = who(3, 0);
  Introduction answerer_is = who(0, Introduction::anyone);
  GetParam().make(caller_is, answerer_is);
  Greeting caller(Role::caller, key, caller_is);
  Greeting answerer(Role::answerer, key, answerer_is);
  talk(caller, answerer);
  const Greeting& first = caller.state() == State::refused ? caller : answerer;
  EXPECT_EQ(first.state(), State::refused);
  EXPECT_NE(first.words().find(GetParam().words), std::string::npos) << first.words();
}

INSTANTIATE_TEST_SUITE_P(
    All, Differences,
    testing::Values(
        Difference{"machine", [](Introduction& c, Introduction&) { c.machine = "machine-2"; },
                   "of another machine (machine-"},
        Difference{"secure", [](Introduction& c, Introduction&) { c.secure = Secure::tls; }, "use one for all hosts"},
        Difference{"off", [](Introduction&, Introduction& a) { a.secure = Secure::off; },
                   "secure=auth, here secure=off"},
        Difference{"purpose", [](Introduction& c, Introduction&) { c.purpose = Purpose::control; },
                   "a connection for "},
        Difference{"meant", [](Introduction& c, Introduction&) { c.peer = 7; },
                   "process 7: do two processes have one address?"},
        Difference{"answered", [](Introduction& c, Introduction& a) { c.peer = a.self = 4, c.peer = 5; }, "process 5"}),
    [](const auto& info) { return std::string(info.param.name); });

/// A hello of another version, as a later installation sends it, made by changing the bytes and the tag.
TEST(Greeting, AnotherVersionIsRefusedInWords) {
  const JobKey key = JobKey::make();
  Introduction introduction = who(3, 0);
  Greeting caller(Role::caller, key, introduction);
  Greeting answerer(Role::answerer, key, who(0, 3));
  Bytes hello = caller.take_output();
  const std::uint16_t later = Greeting::version + 1;
  std::memcpy(hello.data() + 8, &later, sizeof later);
  const std::string label = "aplib hello of caller  ";
  const std::array parts{std::as_bytes(std::span(label)), std::span<const std::byte>(hello).first(hello.size() - 32)};
  const auto tag = keyed_hash(key, parts);
  std::copy(tag.begin(), tag.end(), hello.end() - 32);
  answerer.receive(hello);
  const Bytes answer = answerer.take_output();
  ASSERT_EQ(answer.size(), hello.size() + 32);
  // The later version's proof, over its own hello and the answer.
  const std::string proof_label = "aplib proof of caller  ";
  const std::array proven{std::as_bytes(std::span(proof_label)), std::span<const std::byte>(hello),
                          std::span<const std::byte>(answer).first(answer.size() - 32)};
  answerer.receive(keyed_hash(key, proven));
  EXPECT_EQ(answerer.state(), State::refused);
  EXPECT_EQ(answerer.words(),
            "protocol version 2, this is 1: the installations differ; install the same APlib on all hosts");
}

TEST(Greeting, RandomBytesAreHarmless) {
  std::mt19937 random(20260101);
  const JobKey key = JobKey::make();
  for (int round = 0; round < 2000; ++round) {
    Introduction introduction = who(0, 1);
    introduction.secure = round % 2 == 0 ? Secure::off : Secure::auth;
    Greeting answerer(round % 3 == 0 ? Role::caller : Role::answerer, key, introduction);
    Introduction caller_is = who(1, 0);
    caller_is.secure = introduction.secure;
    Bytes bytes = Greeting(Role::caller, key, caller_is).take_output();
    for (std::size_t change = 0; change < 1 + random() % 4; ++change)
      bytes[8 + random() % (bytes.size() - 8)] = std::byte(random());
    answerer.receive(bytes);
    EXPECT_LE(answerer.take_output().size(), Greeting::bytes_max);
  }
}

TEST(Greeting, AnIdThatIsTooLongIsRefused) {
  Introduction introduction;
  introduction.machine = std::string(65, 'm');
  EXPECT_THROW(Greeting(Role::caller, JobKey::make(), introduction), Error);
}

}  // namespace
}  // namespace aplib::comm
