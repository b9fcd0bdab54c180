// SPDX-License-Identifier: MIT
// Operations: each predefined one on each type that it is defined for, against a naive computation; refusals; and those
// of programs.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

constexpr std::size_t length = 37;  // not a whole number of vectors

template <class T>
T random_value(std::mt19937& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random() % 4 == 0 ? random() % 2 : random());
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<int>(random() % 2001) - 1000) / 8;
  } else {
    using Part = typename T::value_type;
    return {random_value<Part>(random), random_value<Part>(random)};
  }
}

/// left op right by MPI_Reduce_local, and as rank 0 op rank 1 by MPI_Allreduce, against `naive`.
template <class T, class Naive>
void expect_combined(MPI_Op op, MPI_Datatype type, const Naive& naive) {
  std::mt19937 random(7);
  std::vector<T> left(length);
  std::vector<T> right(length);
  for (T& value : left) value = random_value<T>(random);
  for (T& value : right) value = random_value<T>(random);
  std::vector<T> wanted;
  for (std::size_t i = 0; i < length; ++i) wanted.push_back(naive(left[i], right[i]));
  const auto expect_wanted = [&](const std::vector<T>& result, const char* call) {
    for (std::size_t i = 0; i < length; ++i)
      EXPECT_TRUE(result[i] == wanted[i])
          << call << ", operation " << MPI_Op_toint(op) << ", type " << MPI_Type_toint(type);
  };
  constexpr int count = length;
  int rank = -1;
  ASSERT_EQ(MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_SUCCESS);
  std::vector<T> result(length);
  ASSERT_EQ(MPI_Allreduce(rank == 0 ? left.data() : right.data(), result.data(), count, type, op, MPI_COMM_WORLD),
            MPI_SUCCESS);
  expect_wanted(result, "MPI_Allreduce");
  ASSERT_EQ(MPI_Reduce_local(left.data(), right.data(), count, type, op), MPI_SUCCESS);
  expect_wanted(right, "MPI_Reduce_local");
}

template <class T>
void expect_bits(MPI_Datatype type) {
  expect_combined<T>(MPI_BAND, type, [](T a, T b) { return static_cast<T>(a & b); });
  expect_combined<T>(MPI_BOR, type, [](T a, T b) { return static_cast<T>(a | b); });
  expect_combined<T>(MPI_BXOR, type, [](T a, T b) { return static_cast<T>(a ^ b); });
}

template <class T>
void expect_logic(MPI_Datatype type) {
  expect_combined<T>(MPI_LAND, type, [](T a, T b) { return static_cast<T>(a != 0 && b != 0 ? 1 : 0); });
  expect_combined<T>(MPI_LOR, type, [](T a, T b) { return static_cast<T>(a != 0 || b != 0 ? 1 : 0); });
  expect_combined<T>(MPI_LXOR, type, [](T a, T b) { return static_cast<T>((a != 0) != (b != 0) ? 1 : 0); });
}

template <class T>
void expect_order(MPI_Datatype type) {
  expect_combined<T>(MPI_MIN, type, [](T a, T b) { return b < a ? b : a; });
  expect_combined<T>(MPI_MAX, type, [](T a, T b) { return b > a ? b : a; });
}

template <class T>
void expect_whole(MPI_Datatype type) {
  // In 64 bits without a sign nothing overflows, and the lower bits are the same.
  expect_combined<T>(MPI_SUM, type, [](T a, T b) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  });
  expect_combined<T>(MPI_PROD, type, [](T a, T b) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  });
  expect_order<T>(type);
  expect_bits<T>(type);
  expect_logic<T>(type);
}

template <class T>
void expect_arithmetic(MPI_Datatype type) {
  expect_combined<T>(MPI_SUM, type, [](T a, T b) { return a + b; });
  expect_combined<T>(MPI_PROD, type, [](T a, T b) { return a * b; });
}

template <class Value, class Index>
void expect_location(MPI_Datatype type) {
  struct Pair {
    Value value;
    Index index;
  };
  for (const bool is_min : {true, false}) {
    std::array<Pair, 4> left = {Pair{1, 5}, Pair{2, 6}, Pair{3, 9}, Pair{-4, 2}};
    std::array<Pair, 4> right = {Pair{2, 1}, Pair{1, 2}, Pair{3, 4}, Pair{-4, 3}};
    ASSERT_EQ(MPI_Reduce_local(left.data(), right.data(), 4, type, is_min ? MPI_MINLOC : MPI_MAXLOC), MPI_SUCCESS);
    const std::array<Pair, 4> wanted = is_min ? std::array<Pair, 4>{Pair{1, 5}, Pair{1, 2}, Pair{3, 4}, Pair{-4, 2}}
                                              : std::array<Pair, 4>{Pair{2, 1}, Pair{2, 6}, Pair{3, 4}, Pair{-4, 2}};
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(right[i].value == wanted[i].value) << MPI_Type_toint(type) << ' ' << i;
      EXPECT_TRUE(right[i].index == wanted[i].index) << MPI_Type_toint(type) << ' ' << i;
    }
  }
}

void begin_alone() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

TEST(MpiOp, PredefinedOnesDoWhatANaiveLoopDoes) {
  run_well({{2, 1}, 1}, [] {
    begin_alone();
    expect_whole<int>(MPI_INT);
    expect_whole<short>(MPI_SHORT);
    expect_whole<long>(MPI_LONG);
    expect_whole<long long>(MPI_LONG_LONG);
    expect_whole<signed char>(MPI_SIGNED_CHAR);
    expect_whole<unsigned char>(MPI_UNSIGNED_CHAR);
    expect_whole<unsigned short>(MPI_UNSIGNED_SHORT);
    expect_whole<unsigned>(MPI_UNSIGNED);
    expect_whole<unsigned long>(MPI_UNSIGNED_LONG);
    expect_whole<std::int8_t>(MPI_INT8_T);
    expect_whole<std::int16_t>(MPI_INT16_T);
    expect_whole<std::int32_t>(MPI_INT32_T);
    expect_whole<std::int64_t>(MPI_INT64_T);
    expect_whole<std::uint8_t>(MPI_UINT8_T);
    expect_whole<std::uint16_t>(MPI_UINT16_T);
    expect_whole<std::uint32_t>(MPI_UINT32_T);
    expect_whole<std::uint64_t>(MPI_UINT64_T);
    expect_whole<MPI_Aint>(MPI_AINT);
    expect_whole<MPI_Offset>(MPI_OFFSET);
    expect_whole<MPI_Count>(MPI_COUNT);
    expect_whole<int>(MPI_INTEGER);
    expect_whole<std::int16_t>(MPI_INTEGER2);
    expect_bits<unsigned char>(MPI_BYTE);
    expect_logic<unsigned char>(MPI_C_BOOL);
    expect_logic<int>(MPI_LOGICAL);
    expect_order<float>(MPI_FLOAT);
    expect_order<double>(MPI_DOUBLE);
    expect_order<long double>(MPI_LONG_DOUBLE);
    expect_arithmetic<float>(MPI_FLOAT);
    expect_arithmetic<double>(MPI_DOUBLE);
    expect_arithmetic<double>(MPI_DOUBLE_PRECISION);
    expect_arithmetic<long double>(MPI_LONG_DOUBLE);
    expect_arithmetic<std::complex<float>>(MPI_C_FLOAT_COMPLEX);
    expect_arithmetic<std::complex<double>>(MPI_C_DOUBLE_COMPLEX);
    expect_arithmetic<std::complex<double>>(MPI_DOUBLE_COMPLEX);
    expect_arithmetic<std::complex<long double>>(MPI_C_LONG_DOUBLE_COMPLEX);
    expect_location<float, int>(MPI_FLOAT_INT);
    expect_location<double, int>(MPI_DOUBLE_INT);
    expect_location<long, int>(MPI_LONG_INT);
    expect_location<int, int>(MPI_2INT);
    expect_location<short, int>(MPI_SHORT_INT);
    expect_location<long double, int>(MPI_LONG_DOUBLE_INT);
    expect_location<float, float>(MPI_2REAL);
    expect_location<double, double>(MPI_2DOUBLE_PRECISION);
    expect_location<int, int>(MPI_2INTEGER);
    MPI_Finalize();
  });
}

TEST(MpiOp, CharactersOfCAreIntegersAsInOtherMpis) {
  run_well({{1, 1}, 1}, [] {
    begin_alone();
    const std::array<char, 3> left{1, -2, 100};
    std::array<char, 3> right{2, -3, 27};
    EXPECT_EQ(MPI_Reduce_local(left.data(), right.data(), 3, MPI_CHAR, MPI_SUM), MPI_SUCCESS);
    EXPECT_EQ(right, (std::array<char, 3>{3, -5, 127}));
    EXPECT_EQ(MPI_Reduce_local(left.data(), right.data(), 3, MPI_CHAR, MPI_MIN), MPI_SUCCESS);
    EXPECT_EQ(right, (std::array<char, 3>{1, -5, 100}));
    MPI_Finalize();
  });
}

TEST(MpiOp, WhatIsNotDefinedIsRefused) {
  run_well({{1, 1}, 1}, [] {
    begin_alone();
    std::array<double, 8> left{};
    std::array<double, 8> right{};
    const auto reduce = [&](MPI_Datatype type, MPI_Op op) {
      return MPI_Reduce_local(left.data(), right.data(), 1, type, op);
    };
    for (MPI_Op const op : {MPI_BAND, MPI_LAND, MPI_MINLOC, MPI_REPLACE, MPI_NO_OP, MPI_OP_NULL})
      EXPECT_EQ(reduce(MPI_DOUBLE, op), MPI_ERR_OP);
    for (MPI_Op const op : {MPI_SUM, MPI_MAX, MPI_LOR, MPI_MAXLOC}) EXPECT_EQ(reduce(MPI_BYTE, op), MPI_ERR_OP);
    for (MPI_Op const op : {MPI_SUM, MPI_BOR, MPI_LOR, MPI_MIN}) EXPECT_EQ(reduce(MPI_WCHAR, op), MPI_ERR_OP);
    EXPECT_EQ(reduce(MPI_C_DOUBLE_COMPLEX, MPI_MAX), MPI_ERR_OP);
    EXPECT_EQ(reduce(MPI_INT, MPI_MAXLOC), MPI_ERR_OP);
    EXPECT_EQ(reduce(MPI_2INT, MPI_MAX), MPI_ERR_OP);
    EXPECT_EQ(MPI_Reduce_local(left.data(), left.data(), 1, MPI_DOUBLE, MPI_SUM), MPI_ERR_BUFFER);
    MPI_Datatype vector = MPI_DATATYPE_NULL;
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &vector);
    EXPECT_EQ(reduce(vector, MPI_SUM), MPI_ERR_TYPE);  // not committed
    MPI_Type_commit(&vector);
    EXPECT_EQ(reduce(vector, MPI_SUM), MPI_ERR_OP);
    MPI_Type_free(&vector);
    MPI_Op sum = MPI_SUM;
    EXPECT_EQ(MPI_Op_free(&sum), MPI_ERR_OP);
    EXPECT_EQ(MPI_Op_create(nullptr, 1, &sum), MPI_ERR_ARG);
    MPI_Finalize();
  });
}

void subtract(void* left, void* right, int* count, MPI_Datatype* type) {
  EXPECT_EQ(*type, MPI_INT);
  for (int i = 0; i < *count; ++i)
    static_cast<int*>(right)[i] = static_cast<int*>(left)[i] - static_cast<int*>(right)[i];
}

void subtract_large(void* left, void* right, MPI_Count* count, MPI_Datatype* type) {
  int length_of_all = static_cast<int>(*count);
  subtract(left, right, &length_of_all, type);
}

TEST(MpiOp, ThoseOfProgramsAreCalledAsTheyWereMade) {
  run_well({{1, 1}, 1}, [] {
    begin_alone();
    for (const bool is_large : {false, true}) {
      MPI_Op op = MPI_OP_NULL;
      ASSERT_EQ(is_large ? MPI_Op_create_c(subtract_large, 0, &op) : MPI_Op_create(subtract, 1, &op), MPI_SUCCESS);
      int commutes = -1;
      EXPECT_EQ(MPI_Op_commutative(op, &commutes), MPI_SUCCESS);
      EXPECT_EQ(commutes, is_large ? 0 : 1);
      std::array<int, 3> left = {10, 20, 30};
      std::array<int, 3> right = {1, 2, 3};
      EXPECT_EQ(MPI_Reduce_local(left.data(), right.data(), 3, MPI_INT, op), MPI_SUCCESS);
      EXPECT_EQ(right, (std::array<int, 3>{9, 18, 27}));
      EXPECT_EQ(MPI_Op_free(&op), MPI_SUCCESS);
      EXPECT_EQ(op, MPI_OP_NULL);
    }
    int commutes = 0;
    EXPECT_EQ(MPI_Op_commutative(MPI_MINLOC, &commutes), MPI_SUCCESS);
    EXPECT_EQ(commutes, 1);
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
