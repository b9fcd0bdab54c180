// SPDX-License-Identifier: MIT
// Long one-way streams: memory returns to the sender, so the process does not grow once the receiver keeps up.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;

struct Stream {
  Shape shape;
  std::size_t bytes;
  std::uint64_t messages;
  std::uint32_t window;  // 0: the sender does not wait
  const char* name;

  friend void PrintTo(const Stream& stream, std::ostream* out) { *out << stream.name; }
};

class StreamTest : public testing::TestWithParam<Stream> {};

TEST_P(StreamTest, HoldsABoundedWorkingSet) {
  const Stream& stream = GetParam();
  const std::uint64_t count = scaled(stream.messages, 50, 10);
  std::uint64_t after_warm_up = 0;
  std::uint64_t at_end = 0;
  std::atomic<std::uint64_t> wrong{0};
  run_well(stream.shape, [&] {
    std::vector<std::uint64_t> body(stream.bytes / sizeof(std::uint64_t));
    if (me() == 0) {
      for (std::uint64_t i = 0; i < count; ++i) {
        body.front() = body.back() = i;
        send(cell(1), std::as_bytes(std::span(body)));
        if (stream.window != 0 && i % stream.window == stream.window - 1 && i >= 2 * stream.window) {
          static_cast<void>(receive({.cell = cell(1)}));
        }
        if (i == count / 5) after_warm_up = resident_bytes();
      }
      at_end = resident_bytes();
    } else if (me() == 1) {
      Message message;
      for (std::uint64_t i = 0; i < count; ++i) {
        receive(message, {.cell = cell(0)});
        const auto* words = static_cast<const std::uint64_t*>(message.data());
        if (message.size() != stream.bytes || words[0] != i || words[body.size() - 1] != i) wrong.fetch_add(1);
        if (stream.window != 0 && i % stream.window == stream.window - 1) send(cell(0), std::span<const std::byte>{});
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0U);
  // What may be on its way (a sender that waits for nothing gets some thousand messages ahead on its own
  // processor), and some room for the allocator. Without reuse the whole stream would be in memory.
  const std::uint64_t under_way = stream.window != 0 ? 8 * stream.window : 5'000;
  const std::uint64_t room = 64 * mebibyte + under_way * stream.bytes;
  if (sanitized) return;  // shadow memory and quarantines count as ours
  EXPECT_LT(at_end, after_warm_up + room) << "grew by " << (at_end - after_warm_up) / mebibyte << " MiB";
}

INSTANTIATE_TEST_SUITE_P(, StreamTest,
                         testing::Values(Stream{{{2, 1}, 2}, 1024, 1'000'000, 256, "small_two_threads"},
                                         Stream{{{2, 1}, 2}, 65'536, 1'000'000, 64, "large_two_threads"},
                                         Stream{{{2, 1}, 1}, 1024, 1'000'000, 0, "small_one_thread_unasked"},
                                         Stream{{{2, 1}, 1}, 65'536, 100'000, 0, "large_one_thread_unasked"}),
                         [](const auto& info) { return std::string(info.param.name); });

// The memory of a burst that nobody received in time returns to the sender, who uses it again. So the second burst
// needs no new memory.
TEST(Stream, ABurstsMemoryServesTheNext) {
  constexpr std::size_t bytes = 64 * 1024;
  const std::uint64_t burst = scaled(2'000, 10);
  std::uint64_t after_first = 0;
  std::uint64_t after_last = 0;
  run_well({{2, 1}, 2}, [&] {
    const std::vector<std::byte> body(bytes);
    for (int round = 0; round < 6; ++round) {
      if (me() == 0) {
        for (std::uint64_t i = 0; i < burst; ++i) send(cell(1), body);
      }
      barrier();
      if (me() == 1) {
        for (std::uint64_t i = 0; i < burst; ++i) static_cast<void>(receive({.cell = cell(0)}));
      }
      barrier();
      if (me() == 0 && round == 1) after_first = resident_bytes();
      if (me() == 0) after_last = resident_bytes();
    }
  });
  if (sanitized) return;  // as above
  EXPECT_LT(after_last, after_first + burst * bytes / 2);
}

}  // namespace
}  // namespace aplib
