// SPDX-License-Identifier: MIT
// Makes streams of frames and damages them, mostly in headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace aplib::comm::test {

class StreamMutator {
 public:
  /// The same seed gives the same streams on every computer.
  explicit StreamMutator(std::uint64_t seed) : random_(seed) {}

  /// A new stream of a few frames, as a sender makes it, often with the end mark.
  std::vector<std::byte> sound();
  /// Another stream with 0 to 3 mutations, which `description` names.
  std::vector<std::byte> next(std::string& description);
  /// A number below `limit`. std::uniform_int_distribution differs between libraries.
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  std::uint32_t draw() { return static_cast<std::uint32_t>(random_()); }

 private:
  std::string mutate(std::vector<std::byte>& stream);

  std::mt19937_64 random_;
  std::vector<std::size_t> headers_;  // Their places in the last valid stream.
};

}  // namespace aplib::comm::test
