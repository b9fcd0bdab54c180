// SPDX-License-Identifier: MIT
// RegistrationCache: whatever programs do to their memory between two uses, an old registration is never used again.
#include "comm/rdma/registered_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace aplib::comm {
namespace {

const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

/// Simulates a device that keeps the pages it was given: it remembers their contents.
class Fake final : public rdma::Registration {
 public:
  explicit Fake(std::span<const std::byte> pages) : pages(pages), first(pages.front()) { ++alive; }
  ~Fake() override { --alive; }
  [[nodiscard]] void* descriptor() const noexcept override { return nullptr; }
  const std::span<const std::byte> pages;
  const std::byte first;  ///< The first byte of the contents when it was made.
  static inline std::atomic<int> alive{0};
};

std::shared_ptr<rdma::Registration> make(std::span<const std::byte> pages) { return std::make_shared<Fake>(pages); }

const Fake& fake(const std::shared_ptr<rdma::Registration>& registration) {
  return static_cast<const Fake&>(*registration);
}

std::byte* map_at(void* address, std::size_t bytes) {
  const int fixed = address != nullptr ? MAP_FIXED : 0;
  void* const mapped = ::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  EXPECT_NE(mapped, MAP_FAILED);
  return static_cast<std::byte*>(mapped);
}

class RegistrationCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cache.watches()) GTEST_SKIP() << "needs userfaultfd: the kernel tells of unmapped memory";
  }
  std::shared_ptr<rdma::Registration> get(const std::byte* at, std::size_t bytes) {
    return cache.find_or_make({at, bytes});
  }
  rdma::RegistrationCache cache{make, {.entries = 8, .bytes = 1U << 20U}, true};
};

TEST_F(RegistrationCacheTest, TheSameMemoryIsRegisteredOnce) {
  std::byte* const memory = map_at(nullptr, 4 * page);
  const auto first = get(memory + 100, 2 * page);
  EXPECT_EQ(get(memory + 100, 2 * page), first);
  EXPECT_EQ(get(memory + page, 10), first) << "a part of it";
  EXPECT_EQ(cache.made(), 1U);
  ::munmap(memory, 4 * page);
}

TEST_F(RegistrationCacheTest, OtherMemoryAtTheSameAddress) {
  std::byte* const memory = map_at(nullptr, page);
  for (unsigned i = 0; i < 100; ++i) {
    *memory = static_cast<std::byte>(i);
    EXPECT_EQ(fake(get(memory, page)).first, static_cast<std::byte>(i)) << "of memory that is gone";
    EXPECT_EQ(get(memory, page), get(memory, page));
    ::munmap(memory, page);
    ASSERT_EQ(map_at(memory, page), memory);
  }
  EXPECT_EQ(cache.made(), 100U);
  ::munmap(memory, page);
}

TEST_F(RegistrationCacheTest, MappedOver) {
  std::byte* const memory = map_at(nullptr, page);
  const auto before = get(memory, page);
  map_at(memory, page);  // Without munmap().
  EXPECT_NE(get(memory, page), before);
  ::munmap(memory, page);
}

TEST_F(RegistrationCacheTest, APartIsUnmapped) {
  std::byte* const memory = map_at(nullptr, 4 * page);
  const auto before = get(memory, 4 * page);
  ::munmap(memory + page, page);
  map_at(memory + page, page);
  EXPECT_NE(get(memory, 4 * page), before);
  ::munmap(memory, 4 * page);
}

TEST_F(RegistrationCacheTest, GivenBack) {
  std::byte* const memory = map_at(nullptr, 2 * page);
  std::memset(memory, 1, 2 * page);
  const auto before = get(memory, 2 * page);
  ::madvise(memory, page, MADV_DONTNEED);
  EXPECT_NE(get(memory, 2 * page), before) << "other pages lie there since";
  ::munmap(memory, 2 * page);
}

TEST_F(RegistrationCacheTest, Moved) {
  std::byte* const memory = map_at(nullptr, 2 * page);
  std::byte* const target = map_at(nullptr, 2 * page);
  const auto before = get(memory, 2 * page);
  ASSERT_EQ(::mremap(memory, 2 * page, 2 * page, MREMAP_MAYMOVE | MREMAP_FIXED, target), target);
  map_at(memory, 2 * page);
  EXPECT_NE(get(memory, 2 * page), before);
  EXPECT_NE(get(target, 2 * page), before);
  // The memory is watched at its new place.
  const auto there = get(target, 2 * page);
  map_at(target, 2 * page);
  EXPECT_NE(get(target, 2 * page), there);
  ::munmap(memory, 2 * page);
  ::munmap(target, 2 * page);
}

TEST_F(RegistrationCacheTest, UnmappedByAnotherThread) {
  std::byte* const memory = map_at(nullptr, page);
  for (unsigned i = 0; i < 200; ++i) {
    *memory = static_cast<std::byte>(i);
    const auto before = get(memory, page);
    EXPECT_EQ(fake(before).first, static_cast<std::byte>(i));
    std::thread([&] { map_at(memory, page); }).join();
  }
  ::munmap(memory, page);
}

TEST_F(RegistrationCacheTest, TheOldestGoesFirst) {
  std::byte* const memory = map_at(nullptr, 40 * page);
  for (std::size_t i = 0; i < 8; ++i) get(memory + 2 * i * page, page);
  const auto first = get(memory, page);  // Used again.
  get(memory + 16 * page, page);
  EXPECT_EQ(cache.entries(), 8U);
  EXPECT_EQ(get(memory, page), first);
  const std::uint64_t made = cache.made();
  get(memory + 2 * page, page);
  EXPECT_EQ(cache.made(), made + 1) << "the one that was not used for longest had gone";
  ::munmap(memory, 40 * page);
}

TEST_F(RegistrationCacheTest, BytesAreLimited) {
  std::byte* const memory = map_at(nullptr, 8 << 20U);
  for (std::size_t i = 0; i < 8; ++i) get(memory + (i << 20U), (1U << 20U) - page);
  EXPECT_LE(cache.bytes(), 1U << 20U);
  EXPECT_TRUE(get(memory, 8 << 20U) != nullptr) << "one that is larger than all";
  ::munmap(memory, 8 << 20U);
}

TEST_F(RegistrationCacheTest, WhoUsesOneKeepsIt) {
  std::byte* const memory = map_at(nullptr, 2 * page);
  {
    const auto used = get(memory, page);
    get(memory, 2 * page);  // Replaces it.
    EXPECT_EQ(Fake::alive.load(), 2);
  }
  EXPECT_EQ(Fake::alive.load(), 1);
  ::munmap(memory, 2 * page);
}

/// Random uses and changes of a few pages, each of which holds the number of its last change. A registration must hold
/// the numbers of the time when it is used.
TEST_F(RegistrationCacheTest, RandomHistories) {
  constexpr std::size_t pages = 24;
  std::mt19937_64 random(20240229);
  std::byte* const memory = map_at(nullptr, pages * page);
  std::vector<std::uint64_t> born(pages, 0);  // The step in which each page's mapping was made.
  std::map<const rdma::Registration*, std::uint64_t> registered;
  std::vector<std::shared_ptr<rdma::Registration>> kept;  // Kept so that no address is used twice.
  std::uint64_t uses = 0;
  for (std::uint64_t step = 1; step < 4'000; ++step) {
    const std::size_t at = random() % pages;
    const std::size_t count = 1 + random() % (pages - at);
    std::byte* const from = memory + at * page;
    switch (random() % 8) {
      case 0:
        ::munmap(from, count * page);
        map_at(from, count * page);
        break;
      case 1:
        map_at(from, count * page);
        break;
      case 2:
        ::madvise(from, count * page, MADV_DONTNEED);
        break;
      case 3: {
        std::byte* const moved = map_at(nullptr, count * page);
        ASSERT_EQ(::mremap(moved, count * page, count * page, MREMAP_MAYMOVE | MREMAP_FIXED, from), from);
        break;
      }
      default: {
        const std::size_t offset = random() % page;
        const std::size_t bytes = 1 + random() % (count * page - offset);
        const auto registration = get(from + offset, bytes);
        const auto [known, fresh] = registered.try_emplace(registration.get(), step);
        if (fresh) kept.push_back(registration);
        for (std::size_t i = at; i < at + (offset + bytes + page - 1) / page; ++i) {
          ASSERT_GE(known->second, born[i]) << "page " << i << ": registered before it was mapped; step " << step;
        }
        ASSERT_LE(fake(registration).pages.data(), from + offset);
        ASSERT_GE(fake(registration).pages.data() + fake(registration).pages.size(), from + offset + bytes);
        ++uses;
        continue;
      }
    }
    for (std::size_t i = at; i < at + count; ++i) born[i] = step;
  }
  EXPECT_LT(cache.made(), uses) << "none was ever used again";
  ::munmap(memory, pages * page);
}

TEST(RegistrationCacheWithoutWatch, NothingIsKept) {
  rdma::RegistrationCache cache(make, {}, false);
  EXPECT_FALSE(cache.watches());
  std::byte* const memory = map_at(nullptr, page);
  const auto first = cache.find_or_make({memory, page});
  EXPECT_NE(cache.find_or_make({memory, page}), first);
  EXPECT_EQ(cache.entries(), 0U);
  ::munmap(memory, page);
}

TEST_F(RegistrationCacheTest, MemoryOfAFileIsNotKept) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::ftruncate(fileno(file), static_cast<off_t>(page)), 0);
  void* const mapped = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto* const memory = static_cast<const std::byte*>(mapped);
  const auto first = get(memory, page);
  EXPECT_TRUE(cache.entries() != 0 || get(memory, page) != first);
  ::munmap(mapped, page);
  std::fclose(file);
}

}  // namespace
}  // namespace aplib::comm
