// SPDX-License-Identifier: MIT
// What a module without remote memory answers.
#include "comm/module.hpp"

#include <fmt/format.h>

#include "aplib/error.hpp"

namespace aplib::comm {
namespace {

[[noreturn]] void no_remote_memory(const Module& module, const char* call) {
  throw Error(Errc::bad_argument,
              fmt::format("{}: {}: this module cannot reach other processes' memory; ask reaches_memory() first",
                          module.name(), call));
}

}  // namespace

MemoryKey Module::expose(Peer, std::span<std::byte>) { no_remote_memory(*this, "expose"); }

void Module::conceal(Peer, const MemoryKey&) noexcept {}

void Module::write(Peer, const MemoryKey&, std::uint64_t, std::span<const std::byte>, std::uint64_t) {
  no_remote_memory(*this, "write");
}

void Module::read(Peer, const MemoryKey&, std::uint64_t, std::span<std::byte>, std::uint64_t) {
  no_remote_memory(*this, "read");
}

}  // namespace aplib::comm
