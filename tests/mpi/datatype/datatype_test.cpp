// SPDX-License-Identifier: MIT
// Datatypes: what the standard's examples say, and what its rules refuse.
#include "mpi/datatype.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "datatype_model.hpp"

namespace aplib::mpi {
namespace {

using testing_support::map_of;
using testing_support::TypeMap;

const BasicType character{0x43};

DatatypePtr int_type() { return Datatype::named(BasicType::int32); }
DatatypePtr double_type() { return Datatype::named(BasicType::float64); }
DatatypePtr char_type() { return Datatype::named(character); }

DatatypePtr structure(std::vector<Count> blocklengths, std::vector<Count> displacements,
                      std::vector<DatatypePtr> types) {
  return Datatype::structure(blocklengths, displacements, types);
}

// {(double, 0), (char, 8)}, the type of most of the standard's examples.
DatatypePtr double_char() { return structure({1, 1}, {0, 8}, {double_type(), char_type()}); }

// (double, d), (char, d + 8) for each d.
TypeMap doubles_and_chars(const std::vector<Count>& displacements) {
  TypeMap map;
  for (const Count displacement : displacements) {
    map.emplace_back(BasicType::float64, displacement);
    map.emplace_back(character, displacement + 8);
  }
  return map;
}

std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const DatatypeError& error) {
    return error.what();
  }
  return "(made)";
}

TEST(Datatype, PredefinedTypesHaveTheSizesOfTheLanguage) {
  struct Expected {
    int handle;
    Count size;
    Count extent;
  };
  const Expected all[] = {
      {0x209, sizeof(int), sizeof(int)},
      {0x20a, sizeof(long), sizeof(long)},
      {0x220, sizeof(long double), sizeof(long double)},
      {0x216, 16, 16},
      {0x23c, sizeof(wchar_t), sizeof(wchar_t)},
      {0x228, 8, sizeof(std::pair<float, int>)},
      {0x229, 12, sizeof(std::pair<double, int>)},
      {0x22a, 12, sizeof(std::pair<long, int>)},
      {0x22b, 8, 8},
      {0x22c, 6, sizeof(std::pair<short, int>)},
      {0x22d, 20, sizeof(std::pair<long double, int>)},
      {0x231, 16, 16},
      {0x2eb, 32, 32},
      {0x2ca, 0, 0},  // gfortran has no REAL2
      {0x200, 0, 0},
  };
  for (const auto& [handle, size, extent] : all) {
    const Datatype& type = *Datatype::named(static_cast<BasicType>(handle & 0xff));
    EXPECT_EQ(type.size(), size) << std::hex << handle;
    EXPECT_EQ(type.extent(), extent) << std::hex << handle;
    EXPECT_EQ(type.lb(), 0);
  }
  // The code says the size of what has one in its name.
  for (int code = 0x40; code <= 0xff; code = code == 0x5f ? 0xc0 : code + 1) {
    const BasicInfo& info = basic_info(static_cast<BasicType>(code));
    if (info.size != 0) {
      EXPECT_EQ(info.size, 1 << ((code >> 3) & 7)) << info.name;
    }
  }
  EXPECT_EQ(map_of(*Datatype::named(static_cast<BasicType>(0x2c))),
            (TypeMap{{BasicType::int16, 0}, {BasicType::int32, 4}}));
}

TEST(Datatype, ExamplesOfTheStandard) {
  const DatatypePtr old = double_char();
  EXPECT_EQ(old->size(), 9);
  EXPECT_EQ(old->extent(), 16);  // the double must be aligned in an array
  EXPECT_EQ(old->true_extent(), 9);
  EXPECT_EQ(map_of(*Datatype::contiguous(3, old)), doubles_and_chars({0, 16, 32}));
  EXPECT_EQ(Datatype::contiguous(3, old)->extent(), 48);
  EXPECT_EQ(map_of(*Datatype::vector(2, 3, 4, old)), doubles_and_chars({0, 16, 32, 64, 80, 96}));
  const DatatypePtr backwards = Datatype::vector(3, 1, -2, old);
  EXPECT_EQ(map_of(*backwards), doubles_and_chars({0, -32, -64}));
  EXPECT_EQ(backwards->lb(), -64);
  EXPECT_EQ(backwards->ub(), 16);
  EXPECT_EQ(map_of(*Datatype::hvector(2, 3, 64, old)), map_of(*Datatype::vector(2, 3, 4, old)));
  const std::array<Count, 2> blocklengths{3, 1};
  EXPECT_EQ(map_of(*Datatype::indexed(blocklengths, std::array<Count, 2>{4, 0}, old)),
            doubles_and_chars({64, 80, 96, 0}));
  EXPECT_EQ(map_of(*Datatype::hindexed(blocklengths, std::array<Count, 2>{64, 0}, old)),
            doubles_and_chars({64, 80, 96, 0}));
  EXPECT_EQ(map_of(*Datatype::indexed_block(2, std::array<Count, 2>{4, 0}, old)), doubles_and_chars({64, 80, 0, 16}));
  const DatatypePtr mixed =
      structure({2, 1, 3}, {0, 16, 26}, {Datatype::named(BasicType::float32), double_char(), char_type()});
  EXPECT_EQ(map_of(*mixed), (TypeMap{{BasicType::float32, 0},
                                     {BasicType::float32, 4},
                                     {BasicType::float64, 16},
                                     {character, 24},
                                     {character, 26},
                                     {character, 27},
                                     {character, 28}}));
  EXPECT_EQ(mixed->extent(), 32);
}

// MPICH and Open MPI do so, too.
TEST(Datatype, OnlyStructuresEndWhereTheNextIsAligned) {
  const DatatypePtr apart = Datatype::hvector(2, 1, 15, Datatype::named(BasicType::float64));
  EXPECT_EQ(apart->extent(), 23);
  EXPECT_EQ(Datatype::contiguous(2, apart)->extent(), 46);
  EXPECT_EQ(Datatype::hindexed(std::array<Count, 2>{1, 1}, std::array<Count, 2>{3, 20}, int_type())->extent(), 21);
  const DatatypePtr whole = structure({1}, {3}, {apart});
  EXPECT_EQ(whole->lb(), 3);
  EXPECT_EQ(whole->extent(), 24);
  EXPECT_EQ(whole->true_extent(), 23);
  EXPECT_EQ(Datatype::contiguous(2, whole)->extent(), 48);
}

TEST(Datatype, BoundsThatAreSetCountInsteadOfTheBytes) {
  const DatatypePtr wide = Datatype::resized(int_type(), -3, 9);
  EXPECT_EQ(wide->lb(), -3);
  EXPECT_EQ(wide->extent(), 9);
  EXPECT_EQ(wide->true_lb(), 0);
  EXPECT_EQ(wide->true_extent(), 4);
  const DatatypePtr two = Datatype::contiguous(2, wide);
  EXPECT_EQ(two->lb(), -3);
  EXPECT_EQ(two->extent(), 18);
  EXPECT_EQ(map_of(*two), (TypeMap{{BasicType::int32, 0}, {BasicType::int32, 9}}));
  // A mark of one member hides the bytes of the others.
  const DatatypePtr marked = structure({1, 1}, {0, 100}, {wide, int_type()});
  EXPECT_EQ(marked->ub(), 6);
  EXPECT_EQ(marked->true_extent(), 104);
  // Elements may lie upon each other, or in reverse.
  EXPECT_EQ(map_of(*Datatype::contiguous(2, Datatype::resized(int_type(), 0, -8))),
            (TypeMap{{BasicType::int32, 0}, {BasicType::int32, -8}}));
  // Marks without bytes stay, a type without either is nothing.
  const DatatypePtr empty = Datatype::contiguous(0, int_type());
  EXPECT_EQ(empty->extent(), 0);
  EXPECT_EQ(Datatype::contiguous(3, Datatype::resized(empty, 5, 10))->ub(), 35);
  EXPECT_EQ(structure({1, 1}, {400, 4}, {empty, int_type()})->lb(), 4);
}

TEST(Datatype, ArraysLieWhereTheirIndicesSay) {
  // The standard's example of a row of blocks: rows 2..3 and columns 1..4 of 5 x 7 ints.
  const std::array<Count, 2> sizes{5, 7};
  const std::array<Count, 2> subsizes{2, 4};
  const std::array<Count, 2> starts{2, 1};
  TypeMap in_c;
  TypeMap in_fortran;
  for (Count i = 2; i < 4; ++i) {
    for (Count j = 1; j < 5; ++j) in_c.emplace_back(BasicType::int32, (i * 7 + j) * 4);
  }
  for (Count j = 1; j < 5; ++j) {
    for (Count i = 2; i < 4; ++i) in_fortran.emplace_back(BasicType::int32, (j * 5 + i) * 4);
  }
  const DatatypePtr rows = Datatype::subarray(sizes, subsizes, starts, order_c, int_type());
  EXPECT_EQ(map_of(*rows), in_c);
  EXPECT_EQ(rows->lb(), 0);
  EXPECT_EQ(rows->extent(), 140);
  EXPECT_EQ(rows->true_lb(), 60);
  EXPECT_EQ(map_of(*Datatype::subarray(sizes, subsizes, starts, order_fortran, int_type())), in_fortran);
}

// Which of the places of a dimension has index i, by the standard's words.
int place_of(Count i, Count size, int distribution, Count darg, int places) {
  if (distribution == distribute_none) return 0;
  if (distribution == distribute_block) {
    return static_cast<int>(i / (darg == distribute_default ? (size + places - 1) / places : darg));
  }
  return static_cast<int>(i / (darg == distribute_default ? 1 : darg) % places);
}

TEST(Datatype, DistributedArraysHaveEachElementOnce) {
  const std::vector<Count> gsizes{7, 10, 4};
  const std::vector<int> psizes{2, 3, 1};
  for (const int order : {order_c, order_fortran}) {
    for (const std::array<int, 4> choice :
         {std::array<int, 4>{distribute_block, distribute_default, distribute_cyclic, distribute_default},
          std::array<int, 4>{distribute_block, 5, distribute_cyclic, 2},
          std::array<int, 4>{distribute_cyclic, 3, distribute_block, 9},
          std::array<int, 4>{distribute_cyclic, 30, distribute_cyclic, 3}}) {
      const std::vector<int> distribs{choice[0], choice[2], distribute_none};
      const std::vector<int> dargs{choice[1], choice[3], distribute_default};
      for (int rank = 0; rank < 6; ++rank) {
        TypeMap expected;
        std::array<Count, 3> index{};
        const auto visit = [&](Count i, Count j, Count k) {
          index = {i, j, k};
          for (std::size_t d = 0; d < 3; ++d) {
            const int place = d == 0 ? rank / 3 : d == 1 ? rank % 3 : 0;
            if (place_of(index[d], gsizes[d], distribs[d], dargs[d], psizes[d]) != place) return;
          }
          const Count at = order == order_c ? (i * 10 + j) * 4 + k : (k * 10 + j) * 7 + i;
          expected.emplace_back(BasicType::float64, at * 8);
        };
        for (Count n = 0; n < 280; ++n) {  // in the order of memory
          if (order == order_c) {
            visit(n / 40, n / 4 % 10, n % 4);
          } else {
            visit(n % 7, n / 7 % 10, n / 70);
          }
        }
        const DatatypePtr share = Datatype::darray({6, rank, gsizes, distribs, dargs, psizes, order}, double_type());
        EXPECT_EQ(map_of(*share), expected) << "rank " << rank << " order " << order;
        EXPECT_EQ(share->extent(), 280 * 8);
      }
    }
  }
}

TEST(Datatype, RemembersItsConstructor) {
  const std::array<Count, 2> lengths{3, 1};
  const std::array<Count, 2> places{40, 0};
  const DatatypePtr small = Datatype::hindexed(lengths, places, int_type());
  EXPECT_EQ(small->contents().combiner, Combiner::hindexed);
  EXPECT_EQ(small->contents().integers, (std::vector<int>{2, 3, 1}));
  EXPECT_EQ(small->contents().addresses, (std::vector<Count>{40, 0}));
  EXPECT_EQ(small->contents().types, std::vector<DatatypePtr>{int_type()});
  const DatatypePtr large = Datatype::hindexed(lengths, places, int_type(), Form::large);
  EXPECT_EQ(large->contents().large_counts, (std::vector<Count>{2, 3, 1, 40, 0}));
  EXPECT_TRUE(large->contents().integers.empty());
  const std::array<Count, 1> size{9};
  const std::array<Count, 1> start{1};
  const DatatypePtr part = Datatype::subarray(size, std::array<Count, 1>{4}, start, order_c, small, Form::large);
  EXPECT_EQ(part->contents().integers, (std::vector<int>{1, order_c}));
  EXPECT_EQ(part->contents().large_counts, (std::vector<Count>{9, 4, 1}));
  EXPECT_EQ(Datatype::dup(part)->contents().types, std::vector<DatatypePtr>{part});
  EXPECT_EQ(int_type()->contents().combiner, Combiner::named);
}

TEST(Datatype, RefusesWhatCannotBe) {
  EXPECT_EQ(refusal([] { (void)Datatype::contiguous(-1, int_type()); }), "count is -1; it must be 0 or more");
  EXPECT_EQ(refusal([] {
              (void)Datatype::indexed(std::array<Count, 2>{1, -2}, std::array<Count, 2>{0, 0}, int_type());
            }),
            "blocklengths[1] is -2; it must be 0 or more");
  const std::array<Count, 1> nine{9};
  const std::array<Count, 1> four{4};
  const std::array<Count, 1> six{6};
  EXPECT_EQ(refusal([&] { (void)Datatype::subarray(nine, four, six, order_c, int_type()); }),
            "starts[0] is 6; it must be 0..5");
  EXPECT_EQ(refusal([&] { (void)Datatype::subarray(four, nine, six, order_c, int_type()); }),
            "subsizes[0] is 9; it must be 1..4");
  EXPECT_EQ(refusal([&] { (void)Datatype::subarray(four, four, four, 13, int_type()); }),
            "the order is 13; it must be MPI_ORDER_C or MPI_ORDER_FORTRAN");
  const std::array<int, 1> block{distribute_block};
  const std::array<int, 1> two{2};
  EXPECT_EQ(refusal([&] {
              (void)Datatype::darray({3, 0, nine, block, two, two, order_c}, int_type());
            }),
            "the product of psizes is 2; it must be the size, 3");
  EXPECT_EQ(refusal([&] {
              (void)Datatype::darray({2, 0, nine, block, two, two, order_c}, int_type());
            }),
            "dargs[0] is 2; it must be at least 5, so that 2 blocks hold all 9");
}

TEST(Datatype, RefusesWhatDoesNotFitInto64Bits) {
  const Count huge = Count{1} << 62;
  EXPECT_EQ(refusal([&] { (void)Datatype::contiguous(huge, int_type()); }),
            "the size of the datatype does not fit into 64 bits");
  EXPECT_EQ(refusal([&] { (void)Datatype::vector(2, 1, huge, int_type()); }),
            "the stride of the datatype does not fit into 64 bits");
  EXPECT_EQ(refusal([&] { (void)Datatype::hvector(4, 1, huge, int_type()); }),
            "the upper bound of the datatype does not fit into 64 bits");
  EXPECT_EQ(
      refusal([&] {
        (void)Datatype::hindexed(std::array<Count, 2>{1, 1}, std::array<Count, 2>{huge, -huge - huge}, int_type());
      }),
      "the extent of the datatype does not fit into 64 bits");
  EXPECT_EQ(refusal([&] { (void)Datatype::resized(int_type(), huge, huge); }),
            "the upper bound of the datatype does not fit into 64 bits");
  // Each level has twice the bytes of the one before.
  const auto doubled = [](int levels) {
    DatatypePtr type = int_type();
    for (int i = 0; i < levels; ++i) type = structure({1, 1}, {0, (Count{6} << i) + 1}, {type, type});
    return type;
  };
  EXPECT_EQ(doubled(58)->size(), Count{4} << 58);
  EXPECT_NE(refusal([&] { (void)doubled(63); }), "(made)");
}

TEST(Datatype, HugeTypesAreAsCheapAsOthers) {
  const Count many = Count{1} << 40;
  const DatatypePtr old = structure({1, 1}, {0, 8}, {int_type(), char_type()});  // 5 bytes, extent 12
  const DatatypePtr type = Datatype::vector(many, 1, 2, old, Form::large);
  EXPECT_EQ(type->size(), 5 * many);
  EXPECT_EQ(type->true_extent(), (many - 1) * 24 + 9);
  const Elements elements = *type->elements(nullptr, 1);
  Cursor cursor(elements, 5 * (many - 1) + 4);
  EXPECT_EQ(reinterpret_cast<Count>(cursor.run().address), (many - 1) * 24 + 8);
  EXPECT_EQ(type->signature().elements_in(5 * (many - 1) + 4), 2 * many - 1);
  EXPECT_EQ(type->signature().bytes_of_first(2 * many - 1), 5 * (many - 1) + 4);
  EXPECT_FALSE(type->elements(nullptr, many).has_value());
}

TEST(Datatype, LongChainsOfTypesEnd) {
  DatatypePtr type = int_type();
  for (int i = 0; i < 200'000; ++i) type = Datatype::dup(type);
  EXPECT_EQ(type->size(), 4);
  type = int_type();
  type.reset();
  // What nests is refused in words before it becomes too deep to copy.
  DatatypePtr list = int_type();
  const std::string text = refusal([&] {
    for (Count i = 1; i < 100'000; ++i) list = structure({1, 1}, {0, 5 + i % 2}, {char_type(), list});
  });
  EXPECT_NE(text.find("build it of fewer levels"), std::string::npos) << text;
  EXPECT_GT(list->size(), 4000);
}

TEST(Datatype, SignaturesMatchWhateverTheyAreMadeOf) {
  const DatatypePtr pair = structure({1, 1}, {0, 8}, {double_type(), int_type()});
  const DatatypePtr flat = structure({1, 1, 1, 1}, {0, 100, 8, 40},
                                     {double_type(), int_type(), double_type(), Datatype::named(BasicType::integer)});
  EXPECT_TRUE(SentSignature::of(*pair, 2).matches(*flat, 1));
  EXPECT_TRUE(SentSignature::of(*pair, 1).matches(*flat, 1));  // shorter messages are allowed
  EXPECT_FALSE(SentSignature::of(*pair, 3).matches(*flat, 1));
  EXPECT_TRUE(SentSignature::of(*flat, 1).matches(*pair, 2));
  EXPECT_FALSE(SentSignature::of(*double_type(), 2).matches(*pair, 2));
  EXPECT_TRUE(SentSignature::of(*double_type(), 2).matches(*Datatype::named(BasicType::packed), 16));
  EXPECT_FALSE(SentSignature::of(*double_type(), 2).matches(*Datatype::named(BasicType::byte), 16));
  EXPECT_EQ(pair->signature().only_type(), std::nullopt);
  EXPECT_EQ(Datatype::vector(3, 2, 5, double_type())->signature().only_type(), BasicType::float64);
}

TEST(Datatype, External32IsBigEndianAndHasItsOwnSizes) {
  struct Value {
    short number;
    long wide;
    double real;
    long double extended;
  };
  const DatatypePtr type = structure(
      {1, 1, 1, 1}, {offsetof(Value, number), offsetof(Value, wide), offsetof(Value, real), offsetof(Value, extended)},
      {Datatype::named(BasicType::int16), Datatype::named(BasicType::int64), double_type(),
       Datatype::named(BasicType::long_double)});
  EXPECT_EQ(type->extent(), static_cast<Count>(sizeof(Value)));
  EXPECT_EQ(type->signature().external_bytes(), 2 + 4 + 8 + 16);
  std::vector<Value> values(500);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto n = static_cast<int>(i);
    values[i] = Value{static_cast<short>(-n), -2L * n, n / 3.0, -n / 7.0L};
  }
  std::vector<unsigned char> external(values.size() * 30);
  pack_external(external.data(), *type->elements(values.data(), 500), type->shared_signature());
  EXPECT_EQ(external[30], 0xff);
  EXPECT_EQ(external[31], 0xff);  // -1 in 2 bytes
  EXPECT_EQ(external[35], 0xfe);  // -2 in 4
  EXPECT_EQ(external[3 * 30 + 6], 0x3f);
  EXPECT_EQ(external[3 * 30 + 7], 0xf0);  // 1.0
  EXPECT_EQ(external[7 * 30 + 14], 0xbf);
  EXPECT_EQ(external[7 * 30 + 15], 0xff);  // -1.0L as a quadruple
  std::vector<Value> back(500);
  unpack_external(*type->elements(back.data(), 500), external.data(), type->shared_signature());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back[i].number, values[i].number);
    EXPECT_EQ(back[i].wide, values[i].wide);
    EXPECT_EQ(back[i].real, values[i].real);
    EXPECT_EQ(back[i].extended, values[i].extended);
  }
}

}  // namespace
}  // namespace aplib::mpi
