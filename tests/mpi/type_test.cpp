// SPDX-License-Identifier: MIT
// The functions of datatypes, as programs call them. What datatypes are is tested in tests/mpi/datatype.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstring>
#include <functional>
#include <utility>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// A rank that gets error codes and looks at them.
void as_rank(const std::function<void()>& work) {
  run_well({{1, 1}, 1}, [&] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    work();
    MPI_Finalize();
  });
}

MPI_Datatype vector_of_ints() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  EXPECT_EQ(MPI_Type_vector(3, 1, -2, MPI_INT, &type), MPI_SUCCESS);
  return type;
}

TEST(Type, TellsItsSizeAndBounds) {
  as_rank([] {
    MPI_Datatype type = vector_of_ints();
    int size = 0;
    MPI_Aint lb = 0;
    MPI_Aint extent = 0;
    EXPECT_EQ(MPI_Type_size(type, &size), MPI_SUCCESS);
    EXPECT_EQ(size, 12);
    EXPECT_EQ(MPI_Type_get_extent(type, &lb, &extent), MPI_SUCCESS);
    EXPECT_EQ(lb, -16);
    EXPECT_EQ(extent, 20);
    MPI_Count true_lb = 0;
    MPI_Count true_extent = 0;
    EXPECT_EQ(MPI_Type_get_true_extent_c(type, &true_lb, &true_extent), MPI_SUCCESS);
    EXPECT_EQ(true_lb, -16);
    MPI_Datatype large = MPI_DATATYPE_NULL;
    EXPECT_EQ(MPI_Type_contiguous_c(MPI_Count{1} << 32, type, &large), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_size(large, &size), MPI_SUCCESS);
    EXPECT_EQ(size, MPI_UNDEFINED);
    MPI_Count bytes = 0;
    EXPECT_EQ(MPI_Type_size_c(large, &bytes), MPI_SUCCESS);
    EXPECT_EQ(bytes, MPI_Count{12} << 32);
    EXPECT_EQ(MPI_Type_size(MPI_REAL2, &size), MPI_SUCCESS);
    EXPECT_EQ(size, MPI_UNDEFINED);
    EXPECT_EQ(MPI_Type_free(&large), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_free(&type), MPI_SUCCESS);
    EXPECT_EQ(type, MPI_DATATYPE_NULL);
  });
}

TEST(Type, TellsItsConstructor) {
  as_rank([] {
    MPI_Datatype inner = vector_of_ints();
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const std::array<int, 2> lengths{2, 1};
    const std::array<MPI_Aint, 2> places{0, 100};
    const std::array<MPI_Datatype, 2> types{inner, MPI_DOUBLE};
    EXPECT_EQ(MPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &type), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_free(&inner), MPI_SUCCESS);  // the struct keeps what it needs
    int integers = 0;
    int addresses = 0;
    int datatypes = 0;
    int combiner = 0;
    EXPECT_EQ(MPI_Type_get_envelope(type, &integers, &addresses, &datatypes, &combiner), MPI_SUCCESS);
    EXPECT_EQ(combiner, MPI_COMBINER_STRUCT);
    ASSERT_EQ(integers, 3);
    ASSERT_EQ(addresses, 2);
    ASSERT_EQ(datatypes, 2);
    std::array<int, 3> numbers{};
    std::array<MPI_Aint, 2> displacements{};
    std::array<MPI_Datatype, 2> parts{};
    EXPECT_EQ(MPI_Type_get_contents(type, 3, 2, 2, numbers.data(), displacements.data(), parts.data()), MPI_SUCCESS);
    EXPECT_EQ(numbers, (std::array<int, 3>{2, 2, 1}));
    EXPECT_EQ(displacements, places);
    EXPECT_EQ(parts[1], MPI_DOUBLE);
    EXPECT_EQ(MPI_Type_get_envelope(parts[0], &integers, &addresses, &datatypes, &combiner), MPI_SUCCESS);
    EXPECT_EQ(combiner, MPI_COMBINER_VECTOR);
    EXPECT_EQ(MPI_Type_free(&parts[0]), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_get_contents(type, 2, 2, 2, numbers.data(), displacements.data(), parts.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Type_get_contents(MPI_INT, 3, 2, 2, numbers.data(), displacements.data(), parts.data()),
              MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Type_free(&type), MPI_SUCCESS);

    EXPECT_EQ(MPI_Type_create_resized_c(MPI_INT, -4, 16, &type), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_get_envelope(type, &integers, &addresses, &datatypes, &combiner), MPI_ERR_TYPE);
    MPI_Count counts[4];
    EXPECT_EQ(MPI_Type_get_envelope_c(type, &counts[0], &counts[1], &counts[2], &counts[3], &combiner), MPI_SUCCESS);
    EXPECT_EQ(counts[2], 2);
    EXPECT_EQ(MPI_Type_free(&type), MPI_SUCCESS);
  });
}

TEST(Type, RefusesWhatCannotBe) {
  as_rank([] {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    EXPECT_EQ(MPI_Type_contiguous(-1, MPI_INT, &type), MPI_ERR_COUNT);
    EXPECT_EQ(MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &type), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Type_contiguous(1, MPI_REAL2, &type), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Type_contiguous(1, MPI_INT, nullptr), MPI_ERR_ARG);
    const int nine = 9;
    const int four = 4;
    EXPECT_EQ(MPI_Type_create_subarray(1, &four, &nine, &four, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    const MPI_Datatype null = MPI_DATATYPE_NULL;
    const MPI_Aint place = 0;
    EXPECT_EQ(MPI_Type_create_struct(1, &four, &place, &null, &type), MPI_ERR_TYPE);
    MPI_Datatype predefined = MPI_INT;
    EXPECT_EQ(MPI_Type_free(&predefined), MPI_ERR_TYPE);
    EXPECT_EQ(type, MPI_DATATYPE_NULL);
  });
}

TEST(Type, HasANameAndAttributes) {
  as_rank([] {
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1;
    EXPECT_EQ(MPI_Type_get_name(MPI_UNSIGNED_LONG, name, &length), MPI_SUCCESS);
    EXPECT_STREQ(name, "MPI_UNSIGNED_LONG");
    EXPECT_EQ(MPI_Type_get_name(MPI_LONG_LONG, name, &length), MPI_SUCCESS);
    EXPECT_STREQ(name, "MPI_LONG_LONG_INT");  // the others are its synonyms
    EXPECT_EQ(MPI_Type_get_name(MPI_C_FLOAT_COMPLEX, name, &length), MPI_SUCCESS);
    EXPECT_STREQ(name, "MPI_C_COMPLEX");
    MPI_Datatype type = vector_of_ints();
    EXPECT_EQ(MPI_Type_get_name(type, name, &length), MPI_SUCCESS);
    EXPECT_EQ(length, 0);
    EXPECT_EQ(MPI_Type_set_name(type, "row"), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_get_name(type, name, &length), MPI_SUCCESS);
    EXPECT_STREQ(name, "row");
    int keyval = MPI_KEYVAL_INVALID;
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, nullptr);
    EXPECT_EQ(MPI_Type_set_attr(type, keyval, name), MPI_SUCCESS);
    MPI_Datatype copy = MPI_DATATYPE_NULL;
    EXPECT_EQ(MPI_Type_dup(type, &copy), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_delete_attr(type, keyval), MPI_SUCCESS);
    for (const auto& [asked, expected] : {std::pair(type, 0), std::pair(copy, 1)}) {
      void* value = nullptr;
      int is_there = -1;
      EXPECT_EQ(MPI_Type_get_attr(asked, keyval, static_cast<void*>(&value), &is_there), MPI_SUCCESS);
      EXPECT_EQ(is_there, expected);
      if (is_there == 1) {
        EXPECT_EQ(value, name);
      }
    }
    MPI_Type_free_keyval(&keyval);
    MPI_Type_free(&type);
    MPI_Type_free(&copy);
  });
}

TEST(Type, PacksAndUnpacks) {
  as_rank([] {
    MPI_Datatype type = vector_of_ints();
    std::array<int, 6> from{0, 10, 20, 30, 40, 50};
    std::array<char, 64> packed{};
    int position = 0;
    EXPECT_EQ(MPI_Pack(&from[4], 1, type, packed.data(), 64, &position, MPI_COMM_WORLD), MPI_ERR_TYPE);
    EXPECT_EQ(MPI_Type_commit(&type), MPI_SUCCESS);
    EXPECT_EQ(MPI_Pack(&from[4], 1, type, packed.data(), 64, &position, MPI_COMM_WORLD), MPI_SUCCESS);
    EXPECT_EQ(position, 12);
    EXPECT_EQ(MPI_Pack(from.data(), 1, MPI_INT, packed.data(), 15, &position, MPI_COMM_WORLD), MPI_ERR_TRUNCATE);
    EXPECT_EQ(position, 12);
    EXPECT_EQ(MPI_Pack(nullptr, 1, MPI_INT, packed.data(), 64, &position, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    std::array<int, 3> numbers{};
    position = 0;
    EXPECT_EQ(MPI_Unpack(packed.data(), 12, &position, numbers.data(), 3, MPI_INT, MPI_COMM_WORLD), MPI_SUCCESS);
    EXPECT_EQ(numbers, (std::array<int, 3>{40, 20, 0}));
    int size = 0;
    EXPECT_EQ(MPI_Pack_size(5, type, MPI_COMM_WORLD, &size), MPI_SUCCESS);
    EXPECT_EQ(size, 60);
    // Absolute addresses.
    MPI_Aint address = 0;
    MPI_Get_address(&from[2], &address);
    MPI_Datatype there = MPI_DATATYPE_NULL;
    const int one = 1;
    EXPECT_EQ(MPI_Type_create_hindexed(1, &one, &address, MPI_INT, &there), MPI_SUCCESS);
    MPI_Type_commit(&there);
    position = 0;
    EXPECT_EQ(MPI_Pack(MPI_BOTTOM, 1, there, packed.data(), 64, &position, MPI_COMM_WORLD), MPI_SUCCESS);
    EXPECT_EQ(std::memcmp(packed.data(), &from[2], sizeof(int)), 0);
    MPI_Aint place = 0;
    MPI_Aint bytes = 0;
    EXPECT_EQ(MPI_Pack_external_size("external32", 3, MPI_LONG, &bytes), MPI_SUCCESS);
    EXPECT_EQ(bytes, 12);
    EXPECT_EQ(MPI_Pack_external("external32", &from[1], 1, MPI_INT, packed.data(), 64, &place), MPI_SUCCESS);
    EXPECT_EQ(place, 4);
    EXPECT_EQ(packed[3], 10);
    place = 0;
    EXPECT_EQ(MPI_Unpack_external("external32", packed.data(), 64, &place, numbers.data(), 1, MPI_INT), MPI_SUCCESS);
    EXPECT_EQ(numbers[0], 10);
    EXPECT_EQ(MPI_Pack_external_size("native", 3, MPI_LONG, &bytes), MPI_ERR_ARG);
    MPI_Type_free(&there);
    MPI_Type_free(&type);
  });
}

TEST(Type, FindsPredefinedOnes) {
  as_rank([] {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    EXPECT_EQ(MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &type), MPI_SUCCESS);
    EXPECT_EQ(type, MPI_REAL8);
    EXPECT_EQ(MPI_Type_match_size(MPI_TYPECLASS_COMPLEX, 16, &type), MPI_SUCCESS);
    EXPECT_EQ(type, MPI_COMPLEX16);
    EXPECT_EQ(MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 3, &type), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &type), MPI_SUCCESS);
    EXPECT_EQ(type, MPI_DOUBLE_INT);
    EXPECT_EQ(MPI_Type_get_value_index(MPI_DOUBLE, MPI_LONG, &type), MPI_SUCCESS);
    EXPECT_EQ(type, MPI_DATATYPE_NULL);
  });
}

TEST(Type, OfFortranByPrecisionAndRange) {
  as_rank([] {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Datatype again = MPI_DATATYPE_NULL;
    int size = 0;
    EXPECT_EQ(MPI_Type_create_f90_real(15, MPI_UNDEFINED, &type), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_size(type, &size), MPI_SUCCESS);
    EXPECT_EQ(size, 8);
    EXPECT_EQ(MPI_Type_create_f90_real(15, MPI_UNDEFINED, &again), MPI_SUCCESS);
    EXPECT_EQ(again, type);
    EXPECT_NE(type, MPI_REAL8);
    int integers = 0;
    int addresses = 0;
    int types = 0;
    int combiner = 0;
    EXPECT_EQ(MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner), MPI_SUCCESS);
    EXPECT_EQ(combiner, MPI_COMBINER_F90_REAL);
    EXPECT_EQ(types, 0);
    std::array<int, 2> chosen{};
    EXPECT_EQ(MPI_Type_get_contents(type, 2, 0, 0, chosen.data(), nullptr, nullptr), MPI_SUCCESS);
    EXPECT_EQ(chosen, (std::array<int, 2>{15, MPI_UNDEFINED}));
    const double one = 1.5;
    double sum = 0;
    EXPECT_EQ(MPI_Allreduce(&one, &sum, 1, type, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
    EXPECT_EQ(sum, 1.5);
    MPI_Datatype pair = MPI_DATATYPE_NULL;
    EXPECT_EQ(MPI_Type_contiguous(2, type, &pair), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_get_contents(pair, 1, 0, 1, chosen.data(), nullptr, &again), MPI_SUCCESS);
    EXPECT_EQ(again, type);
    EXPECT_EQ(MPI_Type_free(&pair), MPI_SUCCESS);
    EXPECT_EQ(MPI_Type_free(&type), MPI_ERR_TYPE);
    const auto size_of = [](int code, const MPI_Datatype& made) {
      int bytes = -1;
      return code == MPI_SUCCESS && MPI_Type_size(made, &bytes) == MPI_SUCCESS ? bytes : -code;
    };
    EXPECT_EQ(size_of(MPI_Type_create_f90_real(6, 37, &type), type), 4);
    EXPECT_EQ(size_of(MPI_Type_create_f90_real(6, 38, &type), type), 8);
    EXPECT_EQ(size_of(MPI_Type_create_f90_complex(MPI_UNDEFINED, 307, &type), type), 16);
    EXPECT_EQ(size_of(MPI_Type_create_f90_complex(33, 10, &type), type), 32);
    EXPECT_EQ(size_of(MPI_Type_create_f90_integer(0, &type), type), 1);
    EXPECT_EQ(size_of(MPI_Type_create_f90_integer(9, &type), type), 4);
    EXPECT_EQ(size_of(MPI_Type_create_f90_integer(10, &type), type), 8);
    EXPECT_EQ(MPI_Type_create_f90_integer(39, &type), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Type_create_f90_integer(MPI_UNDEFINED, &type), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Type_create_f90_real(MPI_UNDEFINED, MPI_UNDEFINED, &type), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Type_create_f90_real(34, 0, &type), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Type_create_f90_real(-1, 0, &type), MPI_ERR_ARG);
  });
}

}  // namespace
}  // namespace aplib
