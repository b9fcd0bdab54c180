// SPDX-License-Identifier: MIT
// What another process says of its heaps is looked at before it is mapped.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>

#include "base/os/descriptor.hpp"
#include "kernel/mapped_heaps.hpp"
#include "memory/slot_heap.hpp"

namespace aplib {
namespace {

constexpr std::uint32_t some_cell = 200;  // of no machine of this program

HeapPlace place_of(int descriptor, std::uint64_t offset) {
  struct stat status {};
  EXPECT_EQ(::fstat(descriptor, &status), 0);
  return {{status.st_ino, ::getpid(), descriptor}, offset};
}

TEST(MappedHeaps, BothSidesSeeOneMemory) {
  const std::unique_ptr<HeapFile> file = HeapFile::make(2);
  ASSERT_NE(file, nullptr);
  const HeapSource source = file->source(1);
  constexpr std::size_t bytes = 4096;
  void* const theirs =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, source.descriptor, static_cast<off_t>(source.offset));
  ASSERT_NE(theirs, MAP_FAILED);
  const HeapPlace place = place_of(source.descriptor, source.offset);
  ASSERT_TRUE(MappedHeaps::map(place, some_cell));
  std::memcpy(theirs, "theirs", sizeof "theirs");
  EXPECT_STREQ(SlotPlan::heap_of(some_cell), "theirs");
  EXPECT_FALSE(MappedHeaps::map(place, some_cell)) << "something lies there already";
  MappedHeaps::unmap(some_cell);
  ::munmap(theirs, bytes);
}

TEST(MappedHeaps, WhatIsNoHeapIsNotMapped) {
  const std::unique_ptr<HeapFile> file = HeapFile::make(2);
  ASSERT_NE(file, nullptr);
  const HeapSource source = file->source(0);
  const auto refused = [&](const char* why, const std::function<void(HeapPlace&)>& change) {
    HeapPlace place = place_of(source.descriptor, source.offset);
    change(place);
    EXPECT_FALSE(MappedHeaps::map(place, some_cell)) << why;
  };
  refused("another file", [](HeapPlace& place) { ++place.file.inode; });
  refused("beyond its end", [](HeapPlace& place) { place.offset = 2 * SlotPlan::heap_bytes(); });
  refused("far beyond", [](HeapPlace& place) { place.offset = ~std::uint64_t{4095}; });
  refused("not whole", [](HeapPlace& place) { place.offset = SlotPlan::heap_bytes() + 4096; });
  refused("between pages", [](HeapPlace& place) { place.offset = 8; });
  refused("no process", [](HeapPlace& place) { place.file.process = -1; });
  refused("no descriptor", [](HeapPlace& place) { place.file.descriptor = 100'000; });

  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const os::UniqueFd out(ends[0]);
  const os::UniqueFd in(ends[1]);
  EXPECT_FALSE(MappedHeaps::map(place_of(out.get(), 0), some_cell)) << "a pipe";
  const os::UniqueFd other(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(other.get(), SlotPlan::heap_bytes()), 0);
  ASSERT_EQ(::fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(MappedHeaps::map(place_of(other.get(), 0), some_cell)) << "memory for something else";
  const os::UniqueFd open(::memfd_create(HeapFile::name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), SlotPlan::heap_bytes()), 0);
  EXPECT_FALSE(MappedHeaps::map(place_of(open.get(), 0), some_cell)) << "it can be shortened";
}

}  // namespace
}  // namespace aplib
