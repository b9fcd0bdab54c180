// SPDX-License-Identifier: MIT
// Greetings. An input's first byte chooses the role and "secure". With "off" the rest is what a stranger says, in
// pieces. With "auth" it is a list of changes (two bytes of place, a byte) to what a peer with the key says: each of
// them is noticed.
#include <algorithm>
#include <cstring>

#include "comm/greeting.hpp"
#include "fuzzer.hpp"

namespace aplib::fuzz {
namespace {

using comm::Greeting;
using comm::Introduction;
using comm::Secure;

const comm::JobKey& key() {
  static const comm::JobKey one = *comm::JobKey::from_hex(std::string(64, '7'));
  return one;
}

Introduction introduction(Secure secure, std::uint32_t self) {
  return {.secure = secure, .purpose = comm::Purpose::data, .self = self, .peer = 1 - self, .machine = "m"};
}

void check(const Greeting& greeting) {
  const bool wants = greeting.wants() != 0;
  promise(wants == (greeting.state() == Greeting::State::going), "it wants bytes while it is going on");
  promise(greeting.wants() <= Greeting::bytes_max, "it never wants many bytes");
  const bool refused = greeting.state() == Greeting::State::refused || greeting.state() == Greeting::State::stranger;
  promise(refused == !greeting.words().empty(), "a refusal has words");
  for (const char c : greeting.words()) promise(c >= ' ' && c <= '~', "words can be printed");
}

void hear_stranger(Greeting::Role role, std::span<const std::byte> bytes) {
  Greeting greeting(role, key(), introduction(Secure::off, role == Greeting::Role::caller ? 0 : 1));
  std::size_t sent = greeting.take_output().size();
  while (!bytes.empty() && greeting.state() == Greeting::State::going) {
    const std::size_t most = std::to_integer<std::size_t>(bytes[0]) % 97 + 1;
    const std::size_t count = std::min({most, bytes.size(), greeting.wants()});
    greeting.receive(bytes.first(count));
    bytes = bytes.subspan(count);
    sent += greeting.take_output().size();
    check(greeting);
  }
  promise(sent <= Greeting::bytes_max, "a stranger gets few bytes");
}

void change_words(Greeting::Role role, std::span<const std::byte> changes) {
  const bool calls = role == Greeting::Role::caller;
  Greeting ours(role, key(), introduction(Secure::auth, calls ? 0 : 1));
  Greeting peer(calls ? Greeting::Role::answerer : Greeting::Role::caller, key(),
                introduction(Secure::auth, calls ? 1 : 0));
  std::size_t heard = 0;
  bool changed = false;
  for (int round = 0; round < 4; ++round) {
    peer.receive(ours.take_output());
    std::vector<std::byte> said = peer.take_output();
    for (std::size_t i = 0; i + 3 <= changes.size(); i += 3) {
      std::uint16_t place = 0;
      std::memcpy(&place, &changes[i], sizeof place);
      if (place < heard || place >= heard + said.size() || changes[i + 2] == std::byte{0}) continue;
      said[place - heard] ^= changes[i + 2];
      changed = true;
    }
    // Two changes of one place may be none: the last word has the tag.
    heard += said.size();
    ours.receive(said);
    check(ours);
  }
  if (!changed) promise(ours.state() == Greeting::State::done, "who knows the key is welcome");
  if (ours.state() == Greeting::State::done) promise(ours.peer().self == (calls ? 1U : 0U), "it is who it says");
  if (changed && ours.state() == Greeting::State::done) {
    std::vector<std::byte> sum(heard);
    for (std::size_t i = 0; i + 3 <= changes.size(); i += 3) {
      std::uint16_t place = 0;
      std::memcpy(&place, &changes[i], sizeof place);
      if (place < heard) sum[place] ^= changes[i + 2];
    }
    for (const std::byte each : sum) promise(each == std::byte{0}, "every change is noticed");
  }
}

}  // namespace

std::vector<Input> seeds() {
  std::vector<Input> all;
  for (const bool calls : {false, true}) {
    const auto role = calls ? Greeting::Role::answerer : Greeting::Role::caller;
    Greeting other(role, key(), introduction(Secure::off, calls ? 1 : 0));
    if (calls) {
      Greeting first(Greeting::Role::caller, key(), introduction(Secure::off, 0));
      other.receive(first.take_output());
    }
    Input input{std::byte{calls}};
    const auto hello = other.take_output();
    input.insert(input.end(), hello.begin(), hello.end());
    all.push_back(input);
    all.push_back({std::byte(2 + calls)});
    for (const std::uint16_t place : {0, 8, 20, 60, 130, 160})
      all.push_back({std::byte(2 + calls), std::byte(place), std::byte{0}, std::byte{1}});
  }
  return all;
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using aplib::comm::Greeting;
  if (size == 0) return 0;
  const auto role = (data[0] & 1) != 0 ? Greeting::Role::caller : Greeting::Role::answerer;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  if ((data[0] & 2) == 0) {
    aplib::fuzz::hear_stranger(role, rest);
  } else {
    aplib::fuzz::change_words(role, rest.first(std::min<std::size_t>(rest.size(), 300)));
  }
  return 0;
}
