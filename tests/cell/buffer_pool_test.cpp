// SPDX-License-Identifier: MIT
#include "cell/buffer_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <vector>

namespace aplib {
namespace {

constexpr std::size_t cache = BufferPool::large_cache_bytes_max;

TEST(BufferPool, ABufferLargerThanTheWholeCacheIsGivenOutAndGoesBackToTheSystem) {
  BufferPool pool;
  pool.set_place(0, 1);
  for (const std::size_t bytes : {cache, cache + 1, 4 * cache}) {
    Buffer* buffer = pool.get(bytes);
    ASSERT_NE(buffer, nullptr) << bytes;
    buffer->body()[0] = 'a';
    buffer->body()[bytes - 1] = 'z';
    pool.put(buffer);
    EXPECT_LE(pool.committed_bytes(), cache + sizeof(Buffer));
  }
}

TEST(BufferPool, AFullCacheOfOneSizeLeavesEverySizeToBeHad) {
  for (std::size_t first = 64 * 1024; first <= cache; first *= 2) {
    BufferPool pool;
    pool.set_place(0, 1);
    std::vector<Buffer*> buffers;
    for (std::size_t bytes = 0; bytes < cache; bytes += first) buffers.push_back(pool.get(first));
    for (Buffer* buffer : buffers) pool.put(buffer);
    for (std::size_t then = 64 * 1024; then <= 2 * cache; then *= 2) {
      Buffer* buffer = pool.get(then);
      ASSERT_NE(buffer, nullptr) << first << " then " << then;
      buffer->body()[then - 1] = 'z';
      pool.put(buffer);
    }
  }
}

TEST(BufferPool, WhatIsFreeStaysBelowTheLimit) {
  BufferPool pool;
  pool.set_place(0, 1);
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{8} << 20, std::size_t{64} << 10, cache}) {
    std::vector<Buffer*> buffers;
    for (std::size_t all = 0; all < 2 * cache; all += bytes) buffers.push_back(pool.get(bytes));
    const std::size_t count = buffers.size();
    for (Buffer* buffer : buffers) pool.put(buffer);
    EXPECT_LE(pool.committed_bytes(), cache + count * sizeof(Buffer)) << bytes;
  }
}

// Otherwise every message of the new size would be mapped and unmapped.
TEST(BufferPool, ASizeThatComesIntoUseTakesThePlaceOfOneThatIsFree) {
  BufferPool pool;
  pool.set_place(0, 1);
  std::vector<Buffer*> old;
  for (std::size_t bytes = 0; bytes < cache; bytes += 1U << 20) old.push_back(pool.get(1U << 20));
  for (Buffer* buffer : old) pool.put(buffer);
  Buffer* first = pool.get(512 * 1024);
  pool.put(first);
  Buffer* again = pool.get(512 * 1024);
  EXPECT_EQ(again, first);
  pool.put(again);
}

// They come home in batches of all sizes.
TEST(BufferPool, WhatAnotherProcessorPutsBackServesTheNextMessages) {
  BufferPool own;
  BufferPool other;
  own.set_place(0, 2);
  other.set_place(1, 2);
  constexpr std::size_t sizes[] = {1, 128, 129, 1024, 4096, 100'000};
  constexpr std::size_t count = 600;
  std::size_t committed = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<Buffer*> taken;
    for (std::size_t n = 0; n < count; ++n) {
      taken.push_back(own.get(sizes[n % std::size(sizes)]));
      std::memset(taken.back()->body(), static_cast<int>(n % 251), sizes[n % std::size(sizes)]);
    }
    for (std::size_t n = 0; n < count; ++n) {
      const char* const body = taken[n]->body();
      ASSERT_EQ(static_cast<unsigned char>(body[0]), n % 251) << round;
      ASSERT_EQ(static_cast<unsigned char>(body[sizes[n % std::size(sizes)] - 1]), n % 251) << round;
    }
    if (round == 0) committed = own.committed_bytes();
    EXPECT_EQ(own.committed_bytes(), committed) << round;
    for (Buffer* buffer : taken) other.put(buffer);
    other.flush();
  }
}

}  // namespace
}  // namespace aplib
