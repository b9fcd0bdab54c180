// SPDX-License-Identifier: MIT
// There is no memory while a program's image is made known to the unwinder.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <new>

#include "ends_in_time.hpp"
#include "loader/elf_file.hpp"
#include "loader/instance.hpp"
#include "loader/known_images.hpp"
#include "memory/slot.hpp"
#include "new_hook.hpp"

namespace aplib::loader {
namespace {

using testing_support::EndsInTime;
using testing_support::NoMemory;

class NoMemoryForImages : public testing::Test {
 protected:
  /// False: there was no memory.
  bool add(const char* base, std::uint64_t allocations) {
    LoadedImage image;
    image.file = file.get();
    image.base = const_cast<char*>(base);
    const NoMemory none(allocations);
    try {
      add_image(reinterpret_cast<Instance&>(*memory), image);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  static bool is_known(const char* base) {
    FoundImage found;
    return find_image(base + 16, found);
  }

  const std::shared_ptr<const ElfFile> file = ElfFile::open("/proc/self/exe");
  /// In place of an instance, at which nobody looks.
  alignas(std::max_align_t) std::byte memory[64]{};
  const EndsInTime guard{"who looks for an image"};
};

TEST_F(NoMemoryForImages, OthersAreStillFound) {
  constexpr std::uint32_t cell = 7;
  const auto at = [&](int image) {
    const std::size_t step = (file->span() / 4096 + 1) * 4096;
    return reinterpret_cast<const char*>(SlotPlan::at(cell)) + static_cast<std::size_t>(image) * step;
  };
  constexpr int images = 300;
  int refused = 0;
  for (int image = 0; image < images; ++image) {
    if (!add(at(image), 0)) {
      ++refused;
      EXPECT_FALSE(is_known(at(image)));
      EXPECT_EQ(is_known(at(0)), image != 0);
      ASSERT_TRUE(add(at(image), ~std::uint64_t{0}));
    }
    EXPECT_TRUE(is_known(at(image)));
  }
  EXPECT_GT(refused, 0);
  for (int image = 0; image < images; ++image) remove_image(at(image));
  EXPECT_FALSE(is_known(at(0)));
}

// One that lies in the slots of two cells is known of both, or not at all.
TEST_F(NoMemoryForImages, NoImageIsHalfKnown) {
  int refused = 0;
  for (std::uint32_t cell = 1000; cell < 1200; ++cell) {
    const char* const base = reinterpret_cast<const char*>(SlotPlan::at(cell)) - 4096;
    for (std::uint64_t allocations = 0; !add(base, allocations); ++allocations) {
      ++refused;
      EXPECT_FALSE(is_known(base));
      EXPECT_FALSE(is_known(base + 4096));
    }
    EXPECT_TRUE(is_known(base));
    EXPECT_TRUE(is_known(base + 4096));
    remove_image(base);
    EXPECT_FALSE(is_known(base + 4096));
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace aplib::loader
