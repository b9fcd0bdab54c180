// SPDX-License-Identifier: MIT
// Ranks without memory in collective calls on files: all fail, nobody waits for ever, and later calls work. This
// program has an allocator that can refuse.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "error_class.hpp"
#include "placements.hpp"

namespace {

/// Allocations of so many bytes fail, but for the first ones.
std::atomic<std::size_t> refused_bytes{0};
std::atomic<int> granted{0};
std::atomic<int> refusals{0};

void* allocate(std::size_t bytes) {
  if (bytes == refused_bytes && granted-- <= 0) {
    ++refusals;
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace aplib {
namespace {

using testing_support::class_of;
using testing_support::Placement;

constexpr int ranks = 4;
constexpr int block = 8;                // bytes: rank r has each fourth, from number r on
constexpr int blocks_per_window = 150;  // of a rank
constexpr int window = ranks * blocks_per_window * block;
constexpr int bytes = 12 * blocks_per_window * block;  // of a rank
/// What a rank sends about a window, to whoever reads it: where its bytes lie, and those themselves.
constexpr std::size_t offsets_bytes = std::size_t{blocks_per_window} * 16;
constexpr std::size_t content_bytes = std::size_t{blocks_per_window} * block;

MPI_File opened(const std::string& name) {
  MPI_Info hints = MPI_INFO_NULL;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "cb_buffer_size", std::to_string(window).c_str());
  MPI_File file = MPI_FILE_NULL;
  EXPECT_EQ(MPI_File_open(MPI_COMM_WORLD, name.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, hints, &file), MPI_SUCCESS);
  MPI_Info_free(&hints);
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Datatype blocks = MPI_DATATYPE_NULL;
  MPI_Type_vector(bytes / block, block, ranks * block, MPI_BYTE, &blocks);
  MPI_Type_commit(&blocks);
  EXPECT_EQ(MPI_File_set_view(file, MPI_Offset{rank} * block, MPI_BYTE, blocks, "native", MPI_INFO_NULL), MPI_SUCCESS);
  MPI_Type_free(&blocks);
  return file;
}

/// The class of what `call` returns on the calling rank, while such allocations fail.
template <class Call>
int class_without(std::size_t size, int grants, const Call& call) {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    refusals = 0;
    granted = grants;
    refused_bytes = size;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const int code = call();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) refused_bytes = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  return class_of(code);
}

void expect_all_fail(const std::string& name) {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_File file = opened(name);
  const std::vector<char> out(bytes, static_cast<char>('a' + rank));
  std::vector<char> in(bytes);
  const auto write = [&] { return MPI_File_write_at_all(file, 0, out.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE); };
  const auto read = [&] { return MPI_File_read_at_all(file, 0, in.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE); };
  for (const int grants : {0, 1, 7, std::numeric_limits<int>::max()}) {
    const int expected = grants == std::numeric_limits<int>::max() ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    EXPECT_EQ(class_without(offsets_bytes + content_bytes, grants, write), expected);
    EXPECT_EQ(refusals != 0, expected != MPI_SUCCESS);
    EXPECT_EQ(write(), MPI_SUCCESS);
    for (const std::size_t size : {offsets_bytes, offsets_bytes + content_bytes, content_bytes}) {
      EXPECT_EQ(class_without(size, grants, read), expected) << size << " bytes";
      EXPECT_EQ(refusals != 0, expected != MPI_SUCCESS) << size << " bytes";
      in.assign(bytes, '-');
      EXPECT_EQ(read(), MPI_SUCCESS);
      EXPECT_EQ(in, out);
    }
  }
  MPI_File_close(&file);
}

TEST(WithoutMemory, CollectiveCallsOnFilesFailAtAllRanks) {
  const std::string name = testing::TempDir() + "memory_test." + std::to_string(getpid());
  const Placement two_processes{"two_processes", {2, 2}, 1, {2, 2}, {}, nullptr};
  testing_support::run_on(two_processes, [&] {
    MPI_Init(nullptr, nullptr);
    expect_all_fail(name);
    MPI_Finalize();
  });
  std::filesystem::remove(name);
}

}  // namespace
}  // namespace aplib
