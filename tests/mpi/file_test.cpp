// SPDX-License-Identifier: MIT
// Files: what ranks write through views of all sorts is where a naive model of the file has it, and what they read is
// what the model has there.
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "error_class.hpp"
#include "placements.hpp"

namespace aplib {
namespace {

using namespace testing_support;

using Bytes = std::vector<unsigned char>;

/// A name that no other test has.
std::string file_name(const std::string& what) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test.test_suite_name()) + "_" + test.name() + "_" + what;
  std::ranges::replace(name, '/', '_');
  return testing::TempDir() + name + "." + std::to_string(getpid());
}

Bytes bytes_of_file(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

int rank_in_world() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int ranks_in_world() {
  int size = -1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int received_count(const MPI_Status& status, MPI_Datatype type) {
  int count = -1;
  MPI_Get_count(&status, type, &count);
  return count;
}
int ints_in(const MPI_Status& status) { return received_count(status, MPI_INT); }
int bytes_in_status(const MPI_Status& status) { return received_count(status, MPI_BYTE); }

MPI_File opened(const std::string& name, int amode, MPI_Comm comm = MPI_COMM_WORLD, MPI_Info info = MPI_INFO_NULL) {
  MPI_File file = MPI_FILE_NULL;
  EXPECT_EQ(MPI_File_open(comm, name.c_str(), amode, info, &file), MPI_SUCCESS);
  return file;
}
constexpr int create = MPI_MODE_RDWR | MPI_MODE_CREATE;

class Files : public testing::TestWithParam<Placement> {
 protected:
  /// `program`: of each rank, with a file of its own test that is gone afterwards.
  void run_ranks(const std::function<void(const std::string& name)>& program) const {
    const std::string name = file_name("file");
    run_on(GetParam(), [&] {
      MPI_Init(nullptr, nullptr);
      program(name);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Finalize();
    });
    std::filesystem::remove(name);
  }
};

std::vector<Placement> placements_of_files() {
  std::vector<Placement> some;
  for (const Placement& each : placements()) {
    for (const char* name : {"one_cell", "two_processors", "one_processor", "three_parts_in_turns"}) {
      if (each.name == name) some.push_back(each);
    }
  }
  return some;
}
INSTANTIATE_TEST_SUITE_P(, Files, testing::ValuesIn(placements_of_files()), placement_name);

// ---------------------------------------------------------------- the model

/// What one rank sees: in each tile of the file some slots of an etype each.
struct ModelView {
  int unit;  ///< Bytes of an etype.
  int displacement;
  int tile;  ///< Slots.
  std::vector<int> slots;

  [[nodiscard]] std::size_t offset(int etype) const {
    const int count = static_cast<int>(slots.size());
    const int slot = etype / count * tile + slots[static_cast<std::size_t>(etype % count)];
    return static_cast<std::size_t>(displacement + slot * unit);
  }
  void set(MPI_File file) const {
    MPI_Datatype etype = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(unit, MPI_BYTE, &etype);
    MPI_Datatype blocks = MPI_DATATYPE_NULL;
    MPI_Type_create_indexed_block(static_cast<int>(slots.size()), 1, slots.data(), etype, &blocks);
    MPI_Datatype filetype = MPI_DATATYPE_NULL;
    MPI_Type_create_resized(blocks, 0, MPI_Aint{unit} * tile, &filetype);
    MPI_Type_commit(&etype);
    MPI_Type_commit(&filetype);
    EXPECT_EQ(MPI_File_set_view(file, displacement, etype, filetype, "native", MPI_INFO_NULL), MPI_SUCCESS);
    for (MPI_Datatype* each : {&etype, &blocks, &filetype}) MPI_Type_free(each);
  }
};

/// What one rank accesses: etypes of its view, in memory side by side or with a gap behind each.
struct ModelAccess {
  int first;
  int count;
  int stride;  ///< In etypes.

  [[nodiscard]] std::size_t memory_bytes(int unit) const { return static_cast<std::size_t>(count * stride * unit); }
  [[nodiscard]] MPI_Datatype type(int unit) const {
    MPI_Datatype made = MPI_DATATYPE_NULL;
    MPI_Type_vector(count, unit, stride * unit, MPI_BYTE, &made);
    MPI_Type_commit(&made);
    return made;
  }
};

enum class ModelCall { at, at_all, pointer, pointer_all, split, split_at, request, request_all, last };

/// Makes the call. Returns the bytes that it says.
template <bool is_write>
int access_file(MPI_File file, ModelCall what, const ModelAccess& access, Bytes& memory, int unit) {
  MPI_Datatype type = access.type(unit);
  MPI_Status status{};
  MPI_Request request = MPI_REQUEST_NULL;
  void* const buffer = memory.data();
  const auto choose = [&](auto read, auto write, auto... arguments) {
    int code = MPI_SUCCESS;
    if constexpr (is_write) {
      code = write(file, arguments...);
    } else {
      code = read(file, arguments...);
    }
    EXPECT_EQ(code, MPI_SUCCESS);
  };
  if (what == ModelCall::pointer || what == ModelCall::pointer_all || what == ModelCall::split)
    MPI_File_seek(file, access.first, MPI_SEEK_SET);
  const MPI_Offset at = access.first;
  switch (what) {
    case ModelCall::at:
      choose(MPI_File_read_at, MPI_File_write_at, at, buffer, 1, type, &status);
      break;
    case ModelCall::at_all:
      choose(MPI_File_read_at_all, MPI_File_write_at_all, at, buffer, 1, type, &status);
      break;
    case ModelCall::pointer:
      choose(MPI_File_read, MPI_File_write, buffer, 1, type, &status);
      break;
    case ModelCall::pointer_all:
      choose(MPI_File_read_all, MPI_File_write_all, buffer, 1, type, &status);
      break;
    case ModelCall::split:
      choose(MPI_File_read_all_begin, MPI_File_write_all_begin, buffer, 1, type);
      choose(MPI_File_read_all_end, MPI_File_write_all_end, buffer, &status);
      break;
    case ModelCall::split_at:
      choose(MPI_File_read_at_all_begin, MPI_File_write_at_all_begin, at, buffer, 1, type);
      choose(MPI_File_read_at_all_end, MPI_File_write_at_all_end, buffer, &status);
      break;
    case ModelCall::request:
      choose(MPI_File_iread_at, MPI_File_iwrite_at, at, buffer, 1, type, &request);
      break;
    case ModelCall::request_all:
    case ModelCall::last:
      choose(MPI_File_iread_at_all, MPI_File_iwrite_at_all, at, buffer, 1, type, &request);
      break;
  }
  if (request != MPI_REQUEST_NULL) {
    EXPECT_EQ(MPI_Wait(&request, &status), MPI_SUCCESS);
  }
  MPI_Type_free(&type);
  return bytes_in_status(status);
}

/// All ranks draw the same numbers, so each knows what the others do.
class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed) {}

  int draw(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  /// Slots that have one owner at most, or are read by whoever likes.
  std::vector<ModelView> views(bool are_apart) {
    const int unit = 1 + draw(3) * draw(5);
    const int tile = 1 + draw(40);
    std::vector<ModelView> all(static_cast<std::size_t>(ranks_in_world()), {unit, draw(300), tile, {}});
    const int run = 1 + draw(4);
    int owner = 0;
    for (int slot = 0; slot < tile; ++slot) {
      if (slot % run == 0) owner = draw(ranks_in_world() + 1);
      for (int rank = 0; rank < ranks_in_world(); ++rank) {
        if (are_apart ? rank == owner : draw(3) == 0) all[static_cast<std::size_t>(rank)].slots.push_back(slot);
      }
    }
    return all;
  }

  std::vector<ModelAccess> accesses(const std::vector<ModelView>& views) {
    std::vector<ModelAccess> all;
    const int room = draw(4) == 0 ? 3000 : 100;
    for (const ModelView& view : views) all.push_back({draw(50), view.slots.empty() ? 0 : draw(room), 1 + draw(2)});
    return all;
  }

  void write(const ModelView& view, const ModelAccess& access, const Bytes& memory) {
    for (int i = 0; i < access.count; ++i) {
      const std::size_t at = view.offset(access.first + i);
      const auto unit = static_cast<std::size_t>(view.unit);
      if (bytes.size() < at + unit) bytes.resize(at + unit);
      std::memcpy(&bytes[at], &memory[static_cast<std::size_t>(i * access.stride) * unit], unit);
    }
  }

  /// Returns how many bytes there are.
  int read(const ModelView& view, const ModelAccess& access, Bytes& memory) const {
    int count = 0;
    for (int i = 0; i < access.count * view.unit; ++i) {
      const std::size_t at = view.offset(access.first + i / view.unit) + static_cast<std::size_t>(i % view.unit);
      if (at >= bytes.size()) break;
      memory[static_cast<std::size_t>(i / view.unit * access.stride * view.unit + i % view.unit)] = bytes[at];
      ++count;
    }
    return count;
  }

  Bytes noise(std::size_t count) {
    Bytes all(count);
    for (unsigned char& each : all) each = static_cast<unsigned char>(random_());
    return all;
  }

  Bytes bytes;

 private:
  std::mt19937_64 random_;
};

TEST_P(Files, HaveWhatViewsOfAllSortsSay) {
  run_ranks([](const std::string& name) {
    const auto rank = static_cast<std::size_t>(rank_in_world());
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_buffer_size", "4096");
    MPI_File file = opened(name, create, MPI_COMM_WORLD, info);
    MPI_Info_free(&info);
    Model model(7);
    const int rounds = static_cast<int>(scaled(60, 4, 1));
    for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
      auto views = model.views(true);
      auto accesses = model.accesses(views);
      const auto what = static_cast<ModelCall>(model.draw(static_cast<int>(ModelCall::last)));
      views[rank].set(file);
      Bytes own;
      for (std::size_t i = 0; i < views.size(); ++i) {
        Bytes memory = model.noise(accesses[i].memory_bytes(views[i].unit));
        model.write(views[i], accesses[i], memory);
        if (i == rank) own = std::move(memory);
      }
      EXPECT_EQ(access_file<true>(file, what, accesses[rank], own, views[rank].unit),
                accesses[rank].count * views[rank].unit);
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == 0) {
        EXPECT_TRUE(bytes_of_file(name) == model.bytes) << "round " << round << ", call " << static_cast<int>(what);
      }

      views = model.views(false);
      accesses = model.accesses(views);
      views[rank].set(file);
      Bytes expected(accesses[rank].memory_bytes(views[rank].unit), 0xee);
      Bytes seen = expected;
      const int count = model.read(views[rank], accesses[rank], expected);
      const auto how = static_cast<ModelCall>(model.draw(static_cast<int>(ModelCall::last)));
      EXPECT_EQ(access_file<false>(file, how, accesses[rank], seen, views[rank].unit), count);
      EXPECT_TRUE(seen == expected) << "round " << round << ", call " << static_cast<int>(how);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_close(&file);
    EXPECT_EQ(file, MPI_FILE_NULL);
  });
}

// Large pieces go by themselves, and a read goes on where the file ends in the middle of one.
TEST_P(Files, TakeLargePieces) {
  run_ranks([](const std::string& name) {
    constexpr int block = 100'000;
    const int rank = rank_in_world();
    const int size = ranks_in_world();
    MPI_File file = opened(name, create);
    MPI_Datatype filetype = MPI_DATATYPE_NULL;
    MPI_Type_vector(3, block, block * size, MPI_INT, &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_set_view(file, MPI_Offset{4} * block * rank, MPI_INT, filetype, "native", MPI_INFO_NULL);
    std::vector<int> out(std::size_t{3} * block);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = rank * 1'000'000 + static_cast<int>(i);
    MPI_Status status{};
    EXPECT_EQ(MPI_File_write_all(file, out.data(), 3 * block, MPI_INT, &status), MPI_SUCCESS);
    EXPECT_EQ(ints_in(status), 3 * block);
    MPI_Offset bytes = 0;
    MPI_File_get_size(file, &bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_set_size(file, bytes - 40);
    std::vector<int> in(out.size(), -1);
    EXPECT_EQ(MPI_File_read_at_all(file, 0, in.data(), 3 * block, MPI_INT, &status), MPI_SUCCESS);
    const int there = 3 * block - (rank == size - 1 ? 10 : 0);
    EXPECT_EQ(ints_in(status), there);
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + there, in.begin()));
    MPI_Type_free(&filetype);
    MPI_File_close(&file);
  });
}

// ---------------------------------------------------------------- pointers

TEST_P(Files, ShareAPointer) {
  run_ranks([](const std::string& name) {
    constexpr int records = 20;
    const int rank = rank_in_world();
    const int size = ranks_in_world();
    MPI_File file = opened(name, create);
    MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    for (int i = 0; i < records; ++i) {
      const std::array<int, 3> record{rank, i, -1};
      EXPECT_EQ(MPI_File_write_shared(file, record.data(), 3, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Offset position = -1;
    MPI_File_get_position_shared(file, &position);
    EXPECT_EQ(position, 3 * records * size);
    std::vector<int> all(static_cast<std::size_t>(3 * records * size));
    EXPECT_EQ(MPI_File_read_at_all(file, 0, all.data(), static_cast<int>(all.size()), MPI_INT, MPI_STATUS_IGNORE),
              MPI_SUCCESS);
    std::vector<int> next(static_cast<std::size_t>(size), 0);
    for (std::size_t i = 0; i < all.size(); i += 3) {  // each rank's in their order
      ASSERT_LT(all[i], size);
      EXPECT_EQ(all[i + 1], next[static_cast<std::size_t>(all[i])]++);
      EXPECT_EQ(all[i + 2], -1);
    }

    // In the order of the ranks, each as much as it likes.
    EXPECT_EQ(MPI_File_seek_shared(file, 5, MPI_SEEK_SET), MPI_SUCCESS);
    const std::vector<int> own(static_cast<std::size_t>(rank + 1), rank);
    MPI_Status status{};
    EXPECT_EQ(MPI_File_write_ordered(file, own.data(), rank + 1, MPI_INT, &status), MPI_SUCCESS);
    EXPECT_EQ(ints_in(status), rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(MPI_File_seek_shared(file, 5, MPI_SEEK_SET), MPI_SUCCESS);
    std::vector<int> in(own.size(), -1);
    EXPECT_EQ(MPI_File_read_ordered_begin(file, in.data(), rank + 1, MPI_INT), MPI_SUCCESS);
    EXPECT_EQ(MPI_File_read_ordered_end(file, in.data(), &status), MPI_SUCCESS);
    EXPECT_EQ(in, own);
    MPI_File_get_position_shared(file, &position);
    EXPECT_EQ(position, 5 + size * (size + 1) / 2);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(MPI_File_seek_shared(file, -2, MPI_SEEK_END), MPI_SUCCESS);
    MPI_Request request = MPI_REQUEST_NULL;
    EXPECT_EQ(MPI_File_iread_shared(file, in.data(), 1, MPI_INT, &request), MPI_SUCCESS);
    MPI_Wait(&request, &status);
    EXPECT_LE(ints_in(status), 1);
    MPI_File_get_position_shared(file, &position);
    EXPECT_GE(position, 3 * records * size - 1);
    MPI_File_close(&file);
  });
}

TEST_P(Files, HaveAPointerForEachRank) {
  run_ranks([](const std::string& name) {
    const int rank = rank_in_world();
    MPI_File file = opened(name, create);
    const std::array<int, 4> out{1, 2, 3, 4};
    MPI_File_set_view(file, MPI_Offset{16} * rank, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_write(file, out.data(), 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Offset position = -1;
    MPI_File_get_position(file, &position);
    EXPECT_EQ(position, 4);
    MPI_File_get_byte_offset(file, 3, &position);
    EXPECT_EQ(position, 16 * rank + 12);
    EXPECT_EQ(MPI_File_seek(file, -3, MPI_SEEK_CUR), MPI_SUCCESS);
    int in = 0;
    MPI_File_read(file, &in, 1, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT_EQ(in, 2);
    EXPECT_EQ(class_of(MPI_File_seek(file, -7, MPI_SEEK_CUR)), MPI_ERR_ARG);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(MPI_File_seek(file, 0, MPI_SEEK_END), MPI_SUCCESS);
    MPI_File_get_position(file, &position);
    EXPECT_EQ(position, 4 * (ranks_in_world() - rank));
    MPI_Status status{};
    EXPECT_EQ(MPI_File_read(file, &in, 1, MPI_INT, &status), MPI_SUCCESS);
    EXPECT_EQ(ints_in(status), 0);
    MPI_File_close(&file);

    file = opened(name, MPI_MODE_RDWR | MPI_MODE_APPEND);
    MPI_File_get_position(file, &position);
    EXPECT_EQ(position, 16 * ranks_in_world());
    MPI_File_close(&file);
  });
}

// ---------------------------------------------------------------- what a file is

TEST_P(Files, KnowThemselves) {
  run_ranks([](const std::string& name) {
    MPI_File file = opened(name, create | MPI_MODE_DELETE_ON_CLOSE);
    int amode = 0;
    MPI_File_get_amode(file, &amode);
    EXPECT_EQ(amode, create | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Group group = MPI_GROUP_NULL;
    MPI_File_get_group(file, &group);
    int count = 0;
    MPI_Group_size(group, &count);
    EXPECT_EQ(count, ranks_in_world());
    MPI_Group_free(&group);
    MPI_Offset bytes = -1;
    EXPECT_EQ(MPI_File_preallocate(file, 1000), MPI_SUCCESS);
    EXPECT_EQ(MPI_File_set_size(file, 500), MPI_SUCCESS);
    MPI_File_get_size(file, &bytes);
    EXPECT_EQ(bytes, 500);
    MPI_Info info = MPI_INFO_NULL;
    EXPECT_EQ(MPI_File_get_info(file, &info), MPI_SUCCESS);
    std::array<char, 64> value{};
    int flag = 0;
    MPI_Info_get(info, "cb_buffer_size", 63, value.data(), &flag);
    EXPECT_STREQ(value.data(), "1048576");
    MPI_Info_free(&info);

    MPI_Datatype filetype = MPI_DATATYPE_NULL;
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &filetype);
    MPI_Type_commit(&filetype);
    EXPECT_EQ(MPI_File_set_view(file, 24, MPI_DOUBLE, filetype, "internal", MPI_INFO_NULL), MPI_SUCCESS);
    MPI_Type_free(&filetype);
    MPI_Offset displacement = 0;
    MPI_Datatype etype = MPI_DATATYPE_NULL;
    std::array<char, MPI_MAX_DATAREP_STRING> representation{};
    MPI_File_get_view(file, &displacement, &etype, &filetype, representation.data());
    EXPECT_EQ(displacement, 24);
    EXPECT_EQ(etype, MPI_DOUBLE);
    MPI_Type_size(filetype, &count);
    EXPECT_EQ(count, 16);
    EXPECT_STREQ(representation.data(), "internal");
    MPI_Type_free(&filetype);
    MPI_Aint extent = 0;
    MPI_File_get_type_extent(file, MPI_DOUBLE, &extent);
    EXPECT_EQ(extent, 8);
    EXPECT_EQ(MPI_File_sync(file), MPI_SUCCESS);
    MPI_File_close(&file);
    EXPECT_FALSE(std::filesystem::exists(name));
  });
}

TEST_P(Files, AreWrittenAtomically) {
  run_ranks([](const std::string& name) {
    constexpr int count = 3000;
    MPI_File file = opened(name, create);
    EXPECT_EQ(MPI_File_set_atomicity(file, 1), MPI_SUCCESS);
    int flag = 0;
    MPI_File_get_atomicity(file, &flag);
    EXPECT_EQ(flag, 1);
    MPI_Datatype filetype = MPI_DATATYPE_NULL;
    MPI_Type_vector(count, 1, 3, MPI_INT, &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_set_view(file, 0, MPI_INT, filetype, "native", MPI_INFO_NULL);
    MPI_Type_free(&filetype);
    const std::vector<int> own(count, rank_in_world());
    for (int i = 0; i < 5; ++i) MPI_File_write_at(file, 0, own.data(), count, MPI_INT, MPI_STATUS_IGNORE);
    std::vector<int> in(count, -1);
    EXPECT_EQ(MPI_File_read_at(file, 0, in.data(), count, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(in, std::vector<int>(count, in[0]));  // all of one rank
    EXPECT_EQ(MPI_File_write_at(file, 0, nullptr, 0, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_EQ(MPI_File_set_size(file, 0), MPI_SUCCESS);
    MPI_Status status;
    EXPECT_EQ(MPI_File_read_at_all(file, 0, in.data(), count, MPI_INT, &status), MPI_SUCCESS);
    EXPECT_EQ(ints_in(status), 0);
    MPI_File_close(&file);
  });
}

// What is wrong at one rank alone is told to all, and the calls behind it are not disturbed.
TEST_P(Files, FailAtAllRanksWhereOneGivesNonsense) {
  run_ranks([](const std::string& name) {
    const int rank = rank_in_world();
    const int size = ranks_in_world();
    const bool is_last = rank == size - 1;
    MPI_File file = opened(name, create);
    MPI_Datatype filetype = MPI_DATATYPE_NULL;
    MPI_Type_vector(100, 1, size, MPI_INT, &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_set_view(file, MPI_Offset{4} * rank, MPI_INT, filetype, "native", MPI_INFO_NULL);
    MPI_Type_free(&filetype);
    const std::vector<int> out(100, rank);
    std::vector<int> in(100, -1);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(class_of(MPI_File_write_at_all(file, is_last ? -1 : 0, out.data(), 100, MPI_INT, MPI_STATUS_IGNORE)),
                MPI_ERR_ARG);
      EXPECT_EQ(class_of(MPI_File_write_ordered(file, out.data(), 1, is_last ? MPI_BYTE : MPI_INT, MPI_STATUS_IGNORE)),
                MPI_ERR_TYPE);
      EXPECT_EQ(class_of(MPI_File_set_view(file, is_last ? -5 : 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL)),
                MPI_ERR_ARG);
      EXPECT_EQ(MPI_File_write_at_all(file, 0, out.data(), 100, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(MPI_File_read_at_all(file, 0, in.data(), 100, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
      EXPECT_EQ(in, out);
    }
    MPI_File_close(&file);
  });
}

TEST_P(Files, RefuseOffsetsThatNoFileHas) {
  run_ranks([](const std::string& name) {
    MPI_File file = opened(name, create);
    MPI_Offset offset = 0;
    char byte = 1;
    EXPECT_EQ(class_of(MPI_File_set_view(file, INT64_MAX - 5, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL)),
              MPI_ERR_ARG);
    EXPECT_EQ(MPI_File_seek(file, INT64_MAX, MPI_SEEK_SET), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_File_write(file, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE)), MPI_ERR_ARG);
    EXPECT_EQ(MPI_File_get_position(file, &offset), MPI_SUCCESS);
    EXPECT_EQ(offset, INT64_MAX);
    EXPECT_EQ(class_of(MPI_File_get_byte_offset(file, INT64_MAX, &offset)), MPI_ERR_ARG);
    MPI_File_close(&file);
    const std::string pipe = name + ".pipe" + std::to_string(rank_in_world());
    ASSERT_EQ(mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR), 0);
    EXPECT_EQ(class_of(MPI_File_open(MPI_COMM_SELF, pipe.c_str(), MPI_MODE_RDWR, MPI_INFO_NULL, &file)),
              MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_File_delete(pipe.c_str(), MPI_INFO_NULL);
  });
}

TEST_P(Files, WithoutASizeAreReadToTheirEnd) {
  run_ranks([](const std::string&) {
    MPI_File file = opened("/proc/cpuinfo", MPI_MODE_RDONLY);
    std::array<char, 64> alone{};
    std::array<char, 64> together{};
    EXPECT_EQ(MPI_File_read_at(file, 0, alone.data(), 64, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(MPI_File_read_at_all(file, 0, together.data(), 64, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_NE(alone[0], 0);
    EXPECT_EQ(alone, together);
    MPI_File_close(&file);
  });
}

TEST_P(Files, ConvertToExternal32) {
  run_ranks([](const std::string& name) {
    MPI_File file = opened(name, create);
    const int rank = rank_in_world();
    EXPECT_EQ(class_of(MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL)),
              MPI_ERR_CONVERSION);
    EXPECT_EQ(MPI_File_set_view(file, MPI_Offset{8} * rank, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL),
              MPI_SUCCESS);
    const std::array<int, 2> out{0x01020304 + rank, -2};
    EXPECT_EQ(MPI_File_write_at_all(file, 0, out.data(), 2, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    const Bytes bytes = bytes_of_file(name);
    const auto first = static_cast<std::ptrdiff_t>(8 * rank);
    ASSERT_GE(std::ssize(bytes), first + 8);
    EXPECT_EQ(Bytes(bytes.begin() + first, bytes.begin() + first + 8),
              (Bytes{1, 2, 3, static_cast<unsigned char>(4 + rank), 255, 255, 255, 254}));
    std::array<int, 2> in{};
    EXPECT_EQ(MPI_File_read_at(file, 0, in.data(), 2, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(in, out);
    MPI_File_close(&file);
  });
}

// ---------------------------------------------------------------- errors

/// What the error handler of each rank was given.
std::array<std::string, 16> last_texts;

void remember_text(MPI_File*, int* code, ...) {
  std::va_list rest;
  va_start(rest, code);
  last_texts.at(static_cast<std::size_t>(rank_in_world())) = va_arg(rest, const char*);
  va_end(rest);
}

int set_view_class(MPI_File file, const std::array<int, 2>& displacements, const std::array<int, 2>& lengths) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_indexed(2, lengths.data(), displacements.data(), MPI_INT, &type);
  MPI_Type_commit(&type);
  const int code = MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL);
  MPI_Type_free(&type);
  return class_of(code);
}

// By default, errors of files return.
TEST_P(Files, TellWhatCannotBe) {
  run_ranks([](const std::string& name) {
    const int rank = rank_in_world();
    MPI_File file = MPI_FILE_NULL;
    const auto open_class = [&](const std::string& what, int amode) {
      return class_of(MPI_File_open(MPI_COMM_WORLD, what.c_str(), amode, MPI_INFO_NULL, &file));
    };
    EXPECT_EQ(open_class(name + ".none", MPI_MODE_RDWR), MPI_ERR_NO_SUCH_FILE);
    EXPECT_EQ(open_class(name, MPI_MODE_RDONLY | MPI_MODE_RDWR), MPI_ERR_AMODE);
    EXPECT_EQ(open_class(name, MPI_MODE_RDONLY | MPI_MODE_CREATE), MPI_ERR_AMODE);
    EXPECT_EQ(open_class(testing::TempDir(), MPI_MODE_RDONLY), MPI_ERR_BAD_FILE);
    EXPECT_EQ(open_class(name, rank == 0 ? create : create | MPI_MODE_APPEND),
              ranks_in_world() == 1 ? MPI_SUCCESS : MPI_ERR_NOT_SAME);
    if (ranks_in_world() == 1) MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    file = opened(name, create);
    EXPECT_EQ(class_of(MPI_File_read_all_end(file, nullptr, MPI_STATUS_IGNORE)), MPI_ERR_OTHER);
    int number = rank;
    EXPECT_EQ(MPI_File_write_at_all_begin(file, 0, &number, 1, MPI_INT), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_File_write_all_begin(file, &number, 1, MPI_INT)), MPI_ERR_OTHER);
    EXPECT_EQ(MPI_File_write_at_all_end(file, &number, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "other", MPI_INFO_NULL)),
              MPI_ERR_UNSUPPORTED_DATAREP);
    EXPECT_EQ(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_BYTE, "native", MPI_INFO_NULL)), MPI_ERR_TYPE);
    EXPECT_EQ(set_view_class(file, {4, 1}, {1, 1}), MPI_ERR_TYPE);   // goes backwards
    EXPECT_EQ(set_view_class(file, {-4, 1}, {1, 1}), MPI_ERR_TYPE);  // begins in front of the file
    EXPECT_EQ(set_view_class(file, {0, 1}, {3, 1}), MPI_ERR_TYPE);   // has bytes twice
    EXPECT_EQ(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_File_write_at(file, 0, &number, 1, MPI_BYTE, MPI_STATUS_IGNORE)), MPI_ERR_TYPE);
    EXPECT_EQ(class_of(MPI_File_write_at(file, INT64_MAX / 2, &number, 1, MPI_INT, MPI_STATUS_IGNORE)), MPI_ERR_ARG);
    MPI_File_close(&file);
    EXPECT_EQ(open_class(name, create | MPI_MODE_EXCL), MPI_ERR_FILE_EXISTS);
    file = opened(name, MPI_MODE_RDONLY);
    EXPECT_EQ(set_view_class(file, {4, 1}, {1, 1}), MPI_ERR_TYPE);
    EXPECT_EQ(set_view_class(file, {0, 1}, {3, 1}), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_File_write_at(file, 0, &number, 1, MPI_INT, MPI_STATUS_IGNORE)), MPI_ERR_READ_ONLY);
    EXPECT_EQ(class_of(MPI_File_set_size(file, 0)), MPI_ERR_READ_ONLY);
    MPI_File_close(&file);
    file = opened(name, MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
    EXPECT_EQ(class_of(MPI_File_read_shared(file, &number, 1, MPI_INT, MPI_STATUS_IGNORE)), MPI_ERR_ACCESS);
    EXPECT_EQ(class_of(MPI_File_seek(file, 0, MPI_SEEK_SET)), MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_File_close(&file);
    EXPECT_EQ(class_of(MPI_File_delete((name + ".none").c_str(), MPI_INFO_NULL)), MPI_ERR_NO_SUCH_FILE);
    EXPECT_EQ(class_of(MPI_File_sync(MPI_FILE_NULL)), MPI_ERR_FILE);
  });
}

TEST_P(Files, ThatOneRankCannotOpenNobodyOpens) {
  run_ranks([](const std::string& name) {
    const int last = ranks_in_world() - 1;
    if (last == 0) return;
    const int rank = rank_in_world();
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_File_create_errhandler(remember_text, &handler);
    MPI_File_set_errhandler(MPI_FILE_NULL, handler);
    MPI_Errhandler_free(&handler);
    MPI_File file = MPI_FILE_NULL;
    const std::string own = rank == last ? name + ".none/file" : name;
    const int code = MPI_File_open(MPI_COMM_WORLD, own.c_str(), create, MPI_INFO_NULL, &file);
    EXPECT_EQ(class_of(code), MPI_ERR_NO_SUCH_FILE);
    std::string& text = last_texts.at(static_cast<std::size_t>(rank));
    EXPECT_NE(text.find("rank " + std::to_string(last) + " cannot open"), std::string::npos) << text;
    EXPECT_NE(text.find(".none/file: No such file or directory (ENOENT)"), std::string::npos) << text;
    MPI_Barrier(MPI_COMM_WORLD);

    // A file begins with the handler that MPI_FILE_NULL has.
    file = opened(name, create);
    EXPECT_EQ(class_of(MPI_File_seek(file, 0, 77)), MPI_ERR_ARG);
    EXPECT_NE(text.find("whence is 77"), std::string::npos) << text;
    MPI_File_set_errhandler(file, MPI_ERRORS_RETURN);
    EXPECT_EQ(MPI_File_call_errhandler(file, MPI_ERR_OTHER), MPI_SUCCESS);
    MPI_File_close(&file);
  });
}

}  // namespace
}  // namespace aplib
