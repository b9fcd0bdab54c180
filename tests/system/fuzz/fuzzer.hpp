// SPDX-License-Identifier: MIT
// What a fuzzer consists of: a function that tries an input, and sound inputs to begin with. clang links libFuzzer to
// it, which finds its way by coverage; other compilers seeded_main.cpp, which changes sound inputs at random. Both
// take the same words:
//
//   NAME_fuzz -runs=100000 -seed=1 -max_len=4096 corpus/      inputs in the folder come beside the sound ones
//   NAME_fuzz --seeds corpus/                                 writes the sound ones there
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::fuzz {

using Input = std::vector<std::byte>;

/// Sound inputs, written in each fuzzer.
std::vector<Input> seeds();

inline Input input_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// A promise that the code under test has not kept.
[[noreturn]] inline void broken(const std::string& what) {
  std::fprintf(stderr, "broken promise: %s\n", what.c_str());
  std::abort();
}

inline void promise(bool kept, const char* what) {
  if (!kept) broken(what);
}

}  // namespace aplib::fuzz
