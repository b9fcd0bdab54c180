// SPDX-License-Identifier: MIT
// What a keeper of a pool hears first, and what a launcher hears of it. What is decoded encodes to the same bytes
// again.
#include <algorithm>

#include "fuzzer.hpp"
#include "launch/pool/knock.hpp"

namespace aplib::fuzz {
namespace {

using launch::pool::HostFacts;
using launch::pool::Knock;
using launch::pool::KnockHead;

template <class Structure>
void try_as(std::span<const std::byte> bytes) {
  const auto value = launch::wire::decode<Structure>(bytes);
  if (value) promise(std::ranges::equal(launch::wire::encode(*value), bytes), "it encodes to the same bytes");
}

comm::JobKey a_key() { return *comm::JobKey::from_hex(std::string(2 * comm::JobKey::size, 'a')); }

}  // namespace

std::vector<Input> seeds() {
  const std::vector<std::string> command{"/usr/bin/aprun", "--node", "kept", "--process", "3"};
  const Knock words{Knock::Purpose::words, 7, command, "/home", true};
  return {launch::pool::encode_knock(words, a_key()),
          launch::pool::encode_knock({.purpose = Knock::Purpose::streams, .token = 7}, a_key()),
          launch::pool::encode_knock({}, a_key()),
          launch::wire::encode(HostFacts{.host = "ws1", .cpus = {0, 1}, .cores = 2, .gpus = {"x"}})};
}

}  // namespace aplib::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aplib;
  const auto bytes = std::as_bytes(std::span(data, size));
  fuzz::try_as<launch::pool::HostFacts>(bytes);
  if (bytes.size() < fuzz::KnockHead::bytes) return 0;
  const fuzz::KnockHead head = launch::pool::read_knock_head(bytes);
  fuzz::promise(head.key.size() == comm::JobKey::size, "a head has a whole key");
  fuzz::try_as<fuzz::Knock>(bytes.subspan(fuzz::KnockHead::bytes));
  return 0;
}
