// SPDX-License-Identifier: MIT
// The same promise as tests/comm/frames_fuzz_test.cpp.
//
// An input is a number, which chooses the pieces, and a stream.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "fuzzer.hpp"
#include "stream_mutator.hpp"
#include "stream_promises.hpp"

namespace {

constexpr std::size_t number_bytes = sizeof(std::uint64_t);

}  // namespace

std::vector<aplib::fuzz::Input> aplib::fuzz::seeds() {
  std::vector<Input> all;
  aplib::comm::test::StreamMutator mutator(1);
  for (std::uint64_t number = 0; number < 20; ++number) {
    const std::vector<std::byte> stream = mutator.sound();
    Input& input = all.emplace_back(number_bytes);
    std::memcpy(input.data(), &number, number_bytes);
    input.insert(input.end(), stream.begin(), stream.end());
  }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < number_bytes) return 0;
  std::uint64_t pieces = 0;
  std::memcpy(&pieces, data, number_bytes);
  std::minstd_rand random(static_cast<std::uint_fast32_t>(pieces ^ pieces >> 32U));
  const auto draw = [&] { return static_cast<std::uint32_t>(random() ^ random() << 16U); };
  const std::string broken =
      aplib::comm::test::broken_promise(std::as_bytes(std::span(data, size)).subspan(number_bytes), draw);
  if (!broken.empty()) {
    std::fprintf(stderr, "broken promise: %s\n", broken.c_str());
    std::abort();
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

/// Sometimes gives a stream of the seeded mutator, because random bytes are hardly ever a header. Otherwise libFuzzer's
/// own mutation.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                               unsigned seed) {
  if (seed % 16 != 0 || size_max < number_bytes) return LLVMFuzzerMutate(data, size, size_max);
  aplib::comm::test::StreamMutator mutator(seed);
  std::string description;
  const std::vector<std::byte> stream = mutator.next(description);
  const std::uint64_t pieces = mutator.below(~std::uint64_t{0});
  const std::size_t bytes = std::min(stream.size(), size_max - number_bytes);
  std::memcpy(data, &pieces, number_bytes);
  if (bytes != 0) std::memcpy(data + number_bytes, stream.data(), bytes);
  return number_bytes + bytes;
}
