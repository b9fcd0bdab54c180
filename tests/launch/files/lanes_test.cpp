// SPDX-License-Identifier: MIT
// Lanes carry one stream: whatever order they bring it in, whoever is at the other end, whichever of them breaks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <deque>
#include <random>
#include <thread>

#include "base/os/local_socket.hpp"
#include "checks.hpp"
#include "launch/files/lanes.hpp"
#include "launch/pool/file_pipe.hpp"
#include "process.hpp"
#include "transfer.hpp"

namespace aplib::test {
namespace {

using namespace std::chrono_literals;
using launch::wire::Bytes;
using testing_support::scaled;

Bytes chunk(std::uint64_t place, std::span<const std::byte> bytes) {
  const files::ChunkHead head = files::chunk_head(place, bytes.size());
  Bytes whole(head.begin(), head.end());
  whole.insert(whole.end(), bytes.begin(), bytes.end());
  return whole;
}

TEST(LaneJoiner, MakesTheStreamOfWhatComesInAnyOrder) {
  for (std::uint64_t seed = 0; seed < scaled(300, 60, 60); ++seed) {
    std::mt19937_64 random(seed);
    Bytes stream(1 + random() % 200'000);
    for (std::byte& byte : stream) byte = static_cast<std::byte>(random());
    std::vector<Bytes> lanes(1 + random() % files::lanes_max);
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t bytes = std::min(stream.size() - at, 1 + random() % 20'000);
      const Bytes one = chunk(at, std::span(stream).subspan(at, bytes));
      Bytes& lane = lanes[random() % lanes.size()];
      lane.insert(lane.end(), one.begin(), one.end());
      at += bytes;
    }
    files::LaneJoiner joiner(stream.size());
    Bytes joined;
    std::vector<std::size_t> given(lanes.size());
    for (;;) {
      const std::size_t lane = random() % lanes.size();
      const std::size_t bytes = std::min(lanes[lane].size() - given[lane], 1 + random() % 9000);
      ASSERT_TRUE(joiner.take(lane, std::span(lanes[lane]).subspan(given[lane], bytes),
                              [&](auto next) { joined.insert(joined.end(), next.begin(), next.end()); }))
          << "seed " << seed;
      given[lane] += bytes;
      bool all = true;
      for (std::size_t i = 0; i < lanes.size(); ++i) all = all && given[i] == lanes[i].size();
      if (all) break;
    }
    ASSERT_EQ(joined, stream) << "seed " << seed;
    ASSERT_EQ(joiner.early(), 0U);
  }
}

TEST(LaneJoiner, RefusesWhatMakesNoStream) {
  const Bytes ten(10);
  const auto ignore = [](auto) {};
  const auto takes = [&](std::initializer_list<std::pair<std::size_t, Bytes>> said) {
    files::LaneJoiner joiner(1000);
    bool well = true;
    for (const auto& [lane, bytes] : said) well = well && joiner.take(lane, bytes, ignore);
    return well;
  };
  EXPECT_TRUE(takes({{0, chunk(0, ten)}, {1, chunk(20, ten)}, {0, chunk(10, ten)}}));
  EXPECT_FALSE(takes({{0, chunk(0, {})}}));
  EXPECT_FALSE(takes({{0, chunk(1001, ten)}}));
  EXPECT_FALSE(takes({{0, chunk(~std::uint64_t{0}, ten)}}));
  EXPECT_FALSE(takes({{0, chunk(0, ten)}, {1, chunk(5, ten)}}));
  EXPECT_FALSE(takes({{1, chunk(20, ten)}, {2, chunk(20, ten)}}));
  EXPECT_FALSE(takes({{1, chunk(5, ten)}, {0, chunk(0, ten)}}));
  EXPECT_FALSE(takes({{0, chunk(0, Bytes(files::chunk_bytes_max + 1))}}));
}

TEST(LaneJoiner, KeepsNoMoreThanItMayOfStrangers) {
  constexpr std::size_t early_max = 100'000;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    files::LaneJoiner joiner(early_max);
    for (bool well = true; well;) {
      // Mostly well-formed, so that it gets far.
      const Bytes body(1 + random() % 30'000);
      Bytes said = chunk(joiner.joined() + random() % early_max, body);
      if (random() % 20 == 0) said[random() % said.size()] ^= std::byte{0x40};
      well = joiner.take(random() % files::lanes_max, said, [](auto) {});
      ASSERT_LE(joiner.early(), early_max + files::lanes_max * files::chunk_bytes_max + body.size());
    }
  }
}

/// Lets a stream of that rate, in bytes a second, run for so long, from when it has begun to move.
std::size_t lanes_after(std::chrono::milliseconds time, double rate) {
  files::LaneGrowth growth;
  const auto begin = files::LaneGrowth::Clock::time_point{} + 1h;
  EXPECT_EQ(growth.wanted(begin, 0), 1U);
  std::size_t lanes = 1;
  for (auto now = 0ms; now <= time; now += 1ms)
    lanes =
        growth.wanted(begin + 1s + now, 1 + static_cast<std::uint64_t>(rate * static_cast<double>(now.count()) / 1e3));
  return lanes;
}

TEST(LaneGrowth, GivesAllLanesToWhatLasts) {
  EXPECT_EQ(lanes_after(199ms, 1e9), 1U) << "it may be over at once";
  EXPECT_EQ(lanes_after(200ms, 1e7), files::lanes_max);
  EXPECT_EQ(lanes_after(10s, 1e5), 1U) << "little moves";
}

std::pair<os::UniqueFd, os::UniqueFd> connection() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {os::UniqueFd(ends[0]), os::UniqueFd(ends[1])};
}
os::Ends both_ends(os::UniqueFd socket) {
  os::Ends ends;
  ends.writer.reset(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 3));
  ends.reader = std::move(socket);
  return ends;
}

class Given final : public launch::pool::LaneSource {
 public:
  std::deque<os::UniqueFd> lanes;
  os::EventFd event;
  [[nodiscard]] int fd() const noexcept override { return event.get(); }
  os::UniqueFd take() override {
    event.clear();
    if (lanes.empty()) return {};
    os::UniqueFd lane = std::move(lanes.front());
    lanes.pop_front();
    return lane;
  }
};

struct Carried {
  std::vector<std::string> sender;
  std::vector<std::string> receiver;
};

/// A tree travels by five lanes. Where `breaks` is not negative, somebody closes that one on the way.
Carried carry_tree(const fs::path& from, const fs::path& to, int breaks) {
  auto [a, b] = connection();
  Given of_sender;
  Given of_receiver;
  std::vector<int> numbers;
  for (int i = 0; i < 4; ++i) {
    auto [one, other] = connection();
    numbers.push_back(one.get());
    of_sender.lanes.push_back(std::move(one));
    // As keepers do.
    auto [keeper, process] = connection();
    const std::byte nothing{};
    const int descriptor = other.get();
    EXPECT_TRUE(os::send_message(keeper.get(), std::span(&nothing, 1), std::span(&descriptor, 1)));
    launch::pool::PassedLanes passed(std::move(process));
    of_receiver.lanes.push_back(passed.take());
  }
  of_sender.event.signal();
  of_receiver.event.signal();
  Carried carried;
  std::thread receiving([&, ends = both_ends(std::move(b))] {
    files::Receiver receiver({.folder = to, .host = "b"});
    carried.receiver = launch::pool::carry(receiver, ends, &of_receiver);
  });
  {
    const os::Ends ends = both_ends(std::move(a));
    files::Sender sender(std::make_shared<files::Manifest>(files::gather({{from, "tree"}}, "a")), {});
    std::thread breaking;
    if (breaks >= 0) {
      breaking = std::thread([&] {
        while (!fs::exists(to)) std::this_thread::yield();  // it has begun
        ::shutdown(numbers[static_cast<std::size_t>(breaks)], SHUT_RDWR);
      });
    }
    carried.sender = launch::pool::carry(sender, ends, &of_sender);
    if (breaking.joinable()) breaking.join();
  }
  receiving.join();
  return carried;
}

TEST(Lanes, CarryATree) {
  const Folder folder;
  const fs::path from = folder / "from";
  const fs::path to = folder / "to";
  std::mt19937_64 random(7);
  for (int i = 0; i < 40; ++i) write_file(from / std::to_string(i), random_text(random, random() % 1'000'000));
  const Carried carried = carry_tree(from, to, -1);
  EXPECT_TRUE(carried.sender.empty());
  EXPECT_TRUE(carried.receiver.empty());
  EXPECT_EQ(differences(from, to / "tree"), "");
}

TEST(Lanes, ThatBreakCutTheTransferOff) {
  constexpr std::size_t bytes = 8'000'000;
  ::signal(SIGPIPE, SIG_IGN);  // as in apctl
  const Folder folder;
  const fs::path from = folder / "from";
  const fs::path to = folder / "to";
  std::mt19937_64 random(8);
  for (int i = 0; i < 10; ++i) write_file(from / std::to_string(i), random_text(random, bytes));
  const Carried carried = carry_tree(from, to, 2);
  ASSERT_FALSE(carried.sender.empty());
  ASSERT_FALSE(carried.receiver.empty());
  EXPECT_TRUE(testing_support::contains(carried.receiver[0], "the same command goes on")) << carried.receiver[0];
  for (const auto& each : fs::recursive_directory_iterator(to)) {
    if (!each.is_regular_file()) continue;
    EXPECT_EQ(fs::file_size(each.path()), bytes) << each.path();
  }
}

}  // namespace
}  // namespace aplib::test
