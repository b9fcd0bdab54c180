// SPDX-License-Identifier: MIT
// The same promise as tests/loader/elf_fuzz_test.cpp.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "aplib/error.hpp"
#include "elf_invariants.hpp"
#include "fuzzer.hpp"

/// Files that a compiler has made come from the command line.
std::vector<aplib::fuzz::Input> aplib::fuzz::seeds() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int descriptor = ::memfd_create("input", MFD_CLOEXEC);
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  try {
    const auto file = aplib::loader::ElfFile::open("/proc/self/fd/" + std::to_string(descriptor));
    const std::string broken = aplib::loader::test::broken_promise(*file);
    if (!broken.empty()) {
      std::fprintf(stderr, "broken promise: %s\n", broken.c_str());
      std::abort();
    }
  } catch (const aplib::Error&) {
    return 0;
  }
  return 0;
}
