// SPDX-License-Identifier: MIT
// The public functions of one-sided communication: from the caller to its task.
#include <fmt/format.h>

#include "aplib/error.hpp"
#include "aplib/one_sided.hpp"
#include "cell/one_sided.hpp"
#include "cell/processor.hpp"

namespace aplib::detail {

namespace {

[[noreturn, gnu::cold, gnu::noinline]] void outside_task(const char* call) {
  throw Error(Errc::bad_argument,
              fmt::format("{}: called outside a task; it works only inside a program that a Machine runs", call));
}

[[gnu::always_inline]] inline TaskControl& self_or_throw(const char* call) {
  const Processor* processor = Processor::current();
  if (processor == nullptr || processor->running() == nullptr) [[unlikely]]
    outside_task(call);
  return *processor->running();
}

}  // namespace

void put(const char* call, CellId cell, const void* local, std::size_t bytes, void* remote, const PutFlags& flags) {
  one_sided::put(self_or_throw(call), call, index(cell), local, bytes, remote, flags);
}

void put(const char* call, CellId cell, const void* local, void* remote, const Blocks& blocks, const PutFlags& flags) {
  one_sided::put(self_or_throw(call), call, index(cell), local, remote, blocks, flags);
}

void get(const char* call, CellId cell, void* local, std::size_t bytes, const void* remote, const GetFlags& flags) {
  one_sided::get(self_or_throw(call), call, index(cell), local, bytes, remote, flags);
}

void get(const char* call, CellId cell, void* local, const void* remote, const Blocks& blocks, const GetFlags& flags) {
  one_sided::get(self_or_throw(call), call, index(cell), local, remote, blocks, flags);
}

void wait_flag(const char* call, const std::int32_t* flag, std::int32_t count) {
  Processor::wait_flag(self_or_throw(call), call, flag, count);
}

void wait_acknowledged(const char* call) { one_sided::wait_acknowledged(self_or_throw(call), call); }

std::uint64_t fetch(const char* call, Fetch what, CellId cell, void* remote, Word word, std::uint64_t operand,
                    std::uint64_t expected) {
  return one_sided::fetch(self_or_throw(call), call,
                          {what, word, index(cell), static_cast<std::byte*>(remote), operand, expected});
}

}  // namespace aplib::detail
