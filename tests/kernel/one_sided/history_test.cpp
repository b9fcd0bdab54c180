// SPDX-License-Identifier: MIT
// Random histories of puts, gets and atomics against a sequential model. Each ordered pair of cells has a region in
// the target's memory that only the source uses. What a cell does to another's memory happens in the order of its
// calls, so the source always knows what lies there. Each get and atomic must return exactly that, however much is
// under way.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "aplib/aplib.hpp"
#include "machines.hpp"
#include "placements.hpp"
#include "random_bytes.hpp"
#include "shared_block.hpp"

namespace aplib {
namespace {

using testing_support::cell;
using testing_support::me;
using testing_support::Placement;
using testing_support::run_on;
using testing_support::scaled;
using testing_support::SharedBlock;

constexpr std::size_t cells_max = 9;
constexpr std::size_t region_bytes = 64 * 1024;

struct Region {
  std::array<std::byte, region_bytes> bytes{};
  Flag arrived;  ///< Raised by the source's puts.
  Flag taken;    ///< Raised by its gets.
};

struct Shared {
  std::array<Region, cells_max> regions{};  ///< By source.
  std::int64_t counter = 0;                 ///< Shared by all cells.
  Flag everybody;
};

/// The actions of one cell on all others, and what it knows.
class History {
 public:
  History(SharedBlock<Shared>& shared, std::uint64_t seed) : shared_(shared), random_(seed * 1000 + me()) {
    models_.resize(this_machine::cell_count());
    for (Model& model : models_) model.bytes.resize(region_bytes);
  }

  void step() {
    const std::uint32_t target = below(this_machine::cell_count());
    switch (below(13)) {
      case 0:
      case 1:
      case 2:
        return put_bytes(target);
      case 3:
        return put_items(target);
      case 4:
      case 5:
        return get_bytes(target);
      case 6:
        return get_items(target);
      case 7:
        return operate(target);
      case 8:
        raise_flag(cell(target), &region()->arrived);
        ++models_[target].puts;
        return;
      case 9:
        ++added_;
        last_counter_ = fetch_add(cell(0), &shared_->counter, 1);
        return;
      case 10:
        return burst(target);
      case 11:
        raise_flag(cell(target), &shared_->everybody);
        ++models_[target].everybody;
        return;
      default:
        return rest();
    }
  }

  void settle() {
    while (!gets_.empty()) check_get();
    wait_flag(reusable_, sent_);
    wait_acknowledged();
  }

  [[nodiscard]] std::int64_t added() const { return added_; }
  [[nodiscard]] std::int32_t puts(std::uint32_t target) const { return models_[target].puts; }
  [[nodiscard]] std::int32_t got(std::uint32_t target) const { return models_[target].gets; }
  [[nodiscard]] std::int32_t everybody(std::uint32_t target) const { return models_[target].everybody; }

 private:
  struct Model {
    std::vector<std::byte> bytes;
    std::int32_t puts = 0;  ///< Those that raise the flag.
    std::int32_t gets = 0;
    std::int32_t everybody = 0;
  };
  struct Get {
    std::vector<std::byte> local;
    std::vector<std::byte> expected;
    Flag arrived;
  };

  std::uint32_t below(std::uint64_t count) { return static_cast<std::uint32_t>(random_() % count); }
  /// Our region in our own memory. Its address names the one in the target's memory.
  Region* region() { return &shared_->regions[me()]; }
  std::size_t some_size() {
    if (large_ && below(5) != 0) return 16 * 1024 + below(region_bytes - 16 * 1024);
    const std::uint32_t kind = below(10);
    if (kind < 6) return below(65);
    return kind < 9 ? below(3000) : below(region_bytes);
  }
  /// Of one random pool. (A draw for each byte takes seconds when it is instrumented.)
  std::span<const std::byte> some_bytes(std::size_t size) {
    static const std::vector<std::byte> pool = testing_support::random_bytes(4 * region_bytes);
    return std::span(pool).subspan(below(pool.size() - size + 1), size);
  }

  void put_bytes(std::uint32_t target) {
    Model& model = models_[target];
    const std::size_t size = some_size();
    const std::size_t offset = below(region_bytes - size + 1);
    const std::span<const std::byte> bytes = some_bytes(size);
    std::vector<std::byte>& source = sources_.emplace_back(bytes.begin(), bytes.end());
    std::copy(source.begin(), source.end(), model.bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    PutFlags flags;
    if (below(2) == 0) {
      flags.arrived = &region()->arrived;
      ++model.puts;
    }
    flags.acknowledge = below(4) == 0;
    if (large_ || below(2) == 0) {
      flags.reusable = &reusable_;
      ++sent_;
    }
    put(cell(target), std::span<const std::byte>(source), &region()->bytes[offset], flags);
    if (flags.reusable == nullptr) {
      std::fill(source.begin(), source.end(), std::byte{0xdd});  // may be changed at once
      sources_.pop_back();
    } else if (sources_.size() > 20) {
      wait_flag(reusable_, sent_);
      sources_.clear();
    }
  }

  /// Large transfers when nothing else is under way, which need not go by frames, and what then comes between them.
  void burst(std::uint32_t target) {
    settle();
    large_ = true;
    for (std::uint32_t i = below(10); i != 0; --i) {
      if (below(2) == 0) {
        put_bytes(target);
      } else {
        get_bytes(target);
      }
      if (below(10) == 0) operate(target);
    }
    large_ = false;
  }

  struct Items {
    Strides strides;
    std::ptrdiff_t remote_first = 0;
    std::size_t local_size = 0;
  };
  Items some_items() {
    Items items;
    Strides& s = items.strides;
    s.item = below(10) == 0 ? below(20'000) : below(50) + 1;
    s.count = below(std::min<std::uint64_t>(2000, region_bytes / (s.item + 1))) + 1;
    const auto item = static_cast<std::ptrdiff_t>(s.item);
    const auto room = static_cast<std::ptrdiff_t>(region_bytes / s.count);
    s.remote =
        item + static_cast<std::ptrdiff_t>(below(static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(1, room - item))));
    s.local = item + below(10);
    const auto span = s.remote * static_cast<std::ptrdiff_t>(s.count - 1) + item;
    items.remote_first = static_cast<std::ptrdiff_t>(below(region_bytes - static_cast<std::uint64_t>(span) + 1));
    items.local_size = static_cast<std::size_t>(s.local) * s.count;
    if (below(2) == 0) {  // from the end to the front
      items.remote_first += s.remote * static_cast<std::ptrdiff_t>(s.count - 1);
      s.remote = -s.remote;
    }
    return items;
  }

  void put_items(std::uint32_t target) {
    Model& model = models_[target];
    const Items items = some_items();
    const std::span<const std::byte> source = some_bytes(items.local_size);
    for (std::size_t i = 0; i < items.strides.count; ++i) {
      const auto n = static_cast<std::ptrdiff_t>(i);
      std::copy_n(source.begin() + n * items.strides.local, items.strides.item,
                  model.bytes.begin() + items.remote_first + n * items.strides.remote);
    }
    put_stride(cell(target), source.data(), region()->bytes.data() + items.remote_first, items.strides,
               {.arrived = &region()->arrived});
    ++model.puts;
  }

  void get_bytes(std::uint32_t target) {
    const std::size_t size = some_size();
    const std::size_t offset = below(region_bytes - size + 1);
    Get& entry = gets_.emplace_back();
    entry.local.resize(size);
    const auto from = models_[target].bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    entry.expected.assign(from, from + static_cast<std::ptrdiff_t>(size));
    get(cell(target), std::span(entry.local), &region()->bytes[offset],
        {.arrived = &entry.arrived, .taken = &region()->taken});
    ++models_[target].gets;
    if (gets_.size() > 30) check_get();
  }

  void get_items(std::uint32_t target) {
    const Items items = some_items();
    Get& entry = gets_.emplace_back();
    entry.local.resize(items.local_size);
    entry.expected.resize(items.local_size);
    for (std::size_t i = 0; i < items.strides.count; ++i) {
      const auto n = static_cast<std::ptrdiff_t>(i);
      std::copy_n(models_[target].bytes.begin() + items.remote_first + n * items.strides.remote, items.strides.item,
                  entry.expected.begin() + n * items.strides.local);
    }
    get_stride(cell(target), entry.local.data(), region()->bytes.data() + items.remote_first, items.strides,
               {.arrived = &entry.arrived, .taken = &region()->taken});
    ++models_[target].gets;
    if (gets_.size() > 30) check_get();
  }

  void check_get() {
    Get& entry = gets_.front();
    wait_flag(entry.arrived, 1);
    EXPECT_TRUE(testing_support::same_bytes(entry.local, entry.expected)) << entry.local.size() << " bytes";
    EXPECT_EQ(entry.arrived.count(), 1);
    gets_.pop_front();
  }

  void operate(std::uint32_t target) {
    const std::size_t offset = below(region_bytes / 8) * 8;
    std::byte* model = models_[target].bytes.data() + offset;
    std::uint64_t old = 0;
    std::memcpy(&old, model, sizeof old);
    auto* remote = reinterpret_cast<std::uint64_t*>(&region()->bytes[offset]);
    const std::uint64_t operand = random_();
    std::uint64_t now = 0;
    switch (below(4)) {
      case 0:
        now = old + operand;
        EXPECT_EQ(fetch_add(cell(target), remote, operand), old);
        break;
      case 1:
        now = std::max(old, operand);
        EXPECT_EQ(fetch_max(cell(target), remote, operand), old);
        break;
      case 2: {
        const std::uint64_t expected = below(2) == 0 ? old : old + 1;
        now = expected == old ? operand : old;
        EXPECT_EQ(compare_exchange(cell(target), remote, expected, operand), old);
        break;
      }
      default:
        now = old ^ operand;
        EXPECT_EQ(fetch_xor(cell(target), remote, operand), old);
    }
    std::memcpy(model, &now, sizeof now);
  }

  /// So that the cells interfere in different ways, and some are worth moving.
  void rest() {
    switch (below(4)) {
      case 0:
        this_task::yield();
        break;
      case 1:
        while (!gets_.empty()) check_get();
        break;
      case 2:
        wait_acknowledged();
        break;
      default:
        for (std::uint32_t i = below(20'000); i != 0; --i) __asm__ volatile("");
    }
  }

  SharedBlock<Shared>& shared_;
  std::mt19937_64 random_;
  std::vector<Model> models_;
  std::deque<Get> gets_;
  std::deque<std::vector<std::byte>> sources_;
  Flag reusable_;
  std::int32_t sent_ = 0;
  std::int64_t added_ = 0;
  std::int64_t last_counter_ = 0;
  bool large_ = false;
};

void run_history(std::uint64_t seed, std::uint64_t steps) {
  SharedBlock<Shared> shared;
  const std::uint32_t cells = this_machine::cell_count();
  History history(shared, seed);
  for (std::uint64_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) history.step();
  history.settle();
  // Each cell tells its targets how often it has raised their flags.
  for (std::uint32_t target = 0; target < cells; ++target)
    send(cell(target), std::array{history.puts(target), history.got(target), history.everybody(target)});
  std::int32_t everybody = 0;
  for (std::uint32_t source = 0; source < cells; ++source) {
    const auto [puts, gets, all] = receive({.cell = cell(source)}).as<std::array<std::int32_t, 3>>();
    wait_flag(shared->regions[source].arrived, puts);
    wait_flag(shared->regions[source].taken, gets);
    EXPECT_EQ(shared->regions[source].arrived.count(), puts);
    EXPECT_EQ(shared->regions[source].taken.count(), gets);
    everybody += all;
  }
  wait_flag(shared->everybody, everybody);
  EXPECT_EQ(shared->everybody.count(), everybody);
  const double added = reduce_sum(static_cast<double>(history.added()));
  if (me() == 0) {
    EXPECT_EQ(static_cast<double>(shared->counter), added);
  }
  barrier();
}

class OneSidedHistory : public testing::TestWithParam<Placement> {};

TEST_P(OneSidedHistory, IsThatOfTheModel) {
  const std::uint64_t first = testing_support::number_from_environment("ONE_SIDED_SEED", 1);
  const std::uint64_t seeds = testing_support::number_from_environment("ONE_SIDED_SEEDS", 3);
  const std::uint64_t steps = scaled(300, 4);
  for (std::uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("ONE_SIDED_SEED=" + std::to_string(seed));
    run_on(
        GetParam(), [&] { run_history(seed, steps); }, seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, OneSidedHistory, testing::ValuesIn(testing_support::placements()),
                         testing_support::placement_name);

}  // namespace
}  // namespace aplib
