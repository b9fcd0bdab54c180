// SPDX-License-Identifier: MIT
// What the mappings of this process say of an address.
#include "memory/mapping.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace aplib {
namespace {

int global_number = 0;

bool starts_with(const std::string& text, const std::string& start) { return text.starts_with(start); }

TEST(DescribeMemory, GlobalsAreOfTheirFile) {
  EXPECT_EQ(describe_memory(nullptr), "NULL");
  EXPECT_EQ(describe_memory(reinterpret_cast<void*>(8)), "not mapped");
  const std::string text = describe_memory(&global_number);
  EXPECT_NE(text.find("memory_test, whose globals all cells of this process share"), std::string::npos) << text;
  const std::vector<int> heap(4);
  EXPECT_PRED2(starts_with, describe_memory(heap.data()), std::string("memory of the C library's heap"));
}

// As a library's .bss lies in the list of mappings.
TEST(DescribeMemory, WhatLiesBehindAFileIsNotOfTheFile) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
    void* const pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ASSERT_NE(mmap(pages, page, PROT_READ, kind | MAP_FIXED, file, 0), MAP_FAILED);
    close(file);
    EXPECT_PRED2(starts_with, describe_memory(static_cast<char*>(pages) + page),
                 std::string("memory of the C library's heap or mapped by the program"));
    munmap(pages, page);
  }
}

}  // namespace
}  // namespace aplib
