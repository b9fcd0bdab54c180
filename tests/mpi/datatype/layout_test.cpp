// SPDX-License-Identifier: MIT
// Copies of random datatypes, compared with the naive model: packed, unpacked, and from type to type, in pieces that
// are cut anywhere and copied in any order.
#include "mpi/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "datatype_model.hpp"

namespace aplib::mpi {
namespace {

using aplib::testing_support::number_from_environment;
using aplib::testing_support::test_seed;
using testing_support::Model;

// A datatype and what the model says it is.
struct Made {
  DatatypePtr type;
  Model model;
};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  // Of [first, last].
  Count number(Count first, Count last) {
    return first + static_cast<Count>(random_() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool one_in(Count n) { return number(1, n) == 1; }
  template <class Values>
  void shuffle(Values& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }
  std::vector<Count> numbers(Count count, Count first, Count last) {
    std::vector<Count> values(static_cast<std::size_t>(count));
    for (Count& value : values) value = number(first, last);
    return values;
  }

 private:
  std::mt19937_64 random_;
};

class RandomTypes {
 public:
  explicit RandomTypes(Dice& dice) : dice_(dice) {}

  Made make(Count levels) {
    if (levels == 0 || dice_.one_in(8)) return basic();
    if (dice_.one_in(5)) return structure(levels);
    const Made old = make(levels - 1);
    if (old.model.map.size() > 30) return resized(old);
    switch (dice_.number(0, 8)) {
      case 0:
        return contiguous(old);
      case 1:
      case 2:
        return vector(old, dice_.one_in(2));
      case 3:
        return indexed(old, dice_.one_in(2));
      case 4:
        return indexed_block(old, dice_.one_in(2));
      case 5:
        return subarray(old);
      case 6:
        return darray(old);
      case 7:
        return Made{Datatype::dup(old.type), old.model};
      default:
        return resized(old);
    }
  }

 private:
  Made basic() {
    constexpr std::uint8_t codes[] = {0x43, 0x08, 0x09, 0x14, 0x10, 0x16, 0x20, 0x29, 0x2c, 0x47, 0x24};
    const auto code = static_cast<BasicType>(codes[dice_.number(0, std::size(codes) - 1)]);
    Made made{Datatype::named(code), {}};
    const BasicInfo& info = basic_info(code);
    if (info.kind == Kind::pair) {
      made.model.add_basic(info.value, 0);
      made.model.add_basic(info.index, std::max(basic_info(info.value).size, basic_info(info.index).alignment));
      made.model.pad();
    } else {
      made.model.add_basic(code, 0);
    }
    return made;
  }

  // Mostly such that elements do not lie upon each other.
  Count distance(Count blocklength) { return dice_.one_in(4) ? dice_.number(-6, 6) : blocklength + dice_.number(0, 2); }

  Made contiguous(const Made& old) {
    const Count count = dice_.number(0, 5);
    Made made{Datatype::contiguous(count, old.type), {}};
    made.model.add_block(old.model, 0, count);
    return made;
  }

  Made vector(const Made& old, bool in_bytes) {
    const Count count = dice_.number(0, 6);
    const Count blocklength = dice_.number(0, 3);
    const Count stride = distance(blocklength);
    const Count extent = old.model.extent();
    const Count bytes = stride * extent + (in_bytes ? dice_.number(0, 3) : 0);
    Made made{in_bytes ? Datatype::hvector(count, blocklength, bytes, old.type)
                       : Datatype::vector(count, blocklength, stride, old.type),
              {}};
    for (Count i = 0; i < count; ++i) made.model.add_block(old.model, i * bytes, blocklength);
    return made;
  }

  std::vector<Count> displacements(const std::vector<Count>& blocklengths) {
    std::vector<Count> places;
    Count next = dice_.number(-3, 3);
    for (const Count blocklength : blocklengths) {
      places.push_back(next);
      next += distance(blocklength);
    }
    return places;
  }

  Made indexed(const Made& old, bool in_bytes) {
    const auto blocklengths = dice_.numbers(dice_.number(0, 6), 0, 3);
    auto places = displacements(blocklengths);
    Made made;
    if (in_bytes) {
      for (Count& place : places) place *= old.model.extent();
      made.type = Datatype::hindexed(blocklengths, places, old.type);
    } else {
      made.type = Datatype::indexed(blocklengths, places, old.type);
      for (Count& place : places) place *= old.model.extent();
    }
    for (std::size_t i = 0; i < places.size(); ++i) made.model.add_block(old.model, places[i], blocklengths[i]);
    return made;
  }

  Made indexed_block(const Made& old, bool in_bytes) {
    const Count blocklength = dice_.number(0, 3);
    auto places = displacements(std::vector<Count>(static_cast<std::size_t>(dice_.number(0, 12)), blocklength));
    Made made;
    if (!in_bytes) made.type = Datatype::indexed_block(blocklength, places, old.type);
    for (Count& place : places) place *= old.model.extent();
    if (in_bytes) made.type = Datatype::hindexed_block(blocklength, places, old.type);
    for (const Count place : places) made.model.add_block(old.model, place, blocklength);
    return made;
  }

  Made structure(Count levels) {
    std::vector<Count> blocklengths;
    std::vector<Count> places;
    std::vector<DatatypePtr> types;
    Made made;
    Count next = dice_.number(-20, 20);
    for (Count members = dice_.number(0, 4); members > 0; --members) {
      const Made old = make(levels - 1);
      const Count blocklength = old.model.map.size() > 30 ? 1 : dice_.number(0, 2);
      blocklengths.push_back(blocklength);
      places.push_back(next - old.model.lb());
      types.push_back(old.type);
      made.model.add_block(old.model, places.back(), blocklength);
      next += dice_.one_in(6) ? dice_.number(-40, 0)
                              : std::max<Count>(0, blocklength * old.model.extent()) + dice_.number(0, 9);
    }
    made.model.pad();
    made.type = Datatype::structure(blocklengths, places, types);
    return made;
  }

  Made resized(const Made& old) {
    const Count lb = old.model.lb() + dice_.number(-9, 9);
    const Count extent = dice_.one_in(6) ? dice_.number(-30, 30) : old.model.extent() + dice_.number(0, 16);
    Made made{Datatype::resized(old.type, lb, extent), old.model};
    made.model.mark(lb, lb + extent);
    return made;
  }

  // The elements of an array for which `taken(dimension, index)`; the dimension that varies fastest is the first.
  template <class Taken>
  void add_part(Model& model, const Model& old, const std::vector<Count>& sizes, const Taken& taken) {
    Count elements = 1;
    for (const Count size : sizes) elements *= size;
    const Count distance = old.extent();
    for (Count n = 0; n < elements; ++n) {
      Count rest = n;
      bool is_taken = true;
      for (std::size_t i = 0; i < sizes.size(); rest /= sizes[i++]) is_taken = is_taken && taken(i, rest % sizes[i]);
      if (is_taken) model.add(old, n * distance);
    }
    model.mark(0, elements * old.extent());
  }

  Made subarray(const Made& old) {
    const Count dimensions = dice_.number(1, 3);
    std::vector<Count> sizes = dice_.numbers(dimensions, 1, 4);
    std::vector<Count> subsizes;
    std::vector<Count> starts;
    for (const Count size : sizes) {
      subsizes.push_back(dice_.number(1, size));
      starts.push_back(dice_.number(0, size - subsizes.back()));
    }
    const bool in_c = dice_.one_in(2);
    Made made{Datatype::subarray(sizes, subsizes, starts, in_c ? order_c : order_fortran, old.type), {}};
    if (in_c) {
      for (auto* values : {&sizes, &subsizes, &starts}) std::reverse(values->begin(), values->end());
    }
    add_part(made.model, old.model, sizes,
             [&](std::size_t i, Count index) { return index >= starts[i] && index < starts[i] + subsizes[i]; });
    return made;
  }

  Made darray(const Made& old) {
    std::vector<Count> sizes = dice_.numbers(dice_.number(1, 2), 1, 6);
    std::vector<int> distribs;
    std::vector<int> dargs;
    std::vector<int> places;
    std::vector<Count> blocks;
    for (const Count size : sizes) {
      places.push_back(static_cast<int>(dice_.number(1, 3)));
      const bool cyclic = dice_.one_in(2);
      distribs.push_back(cyclic ? distribute_cyclic : distribute_block);
      const Count least = cyclic ? 1 : (size + places.back() - 1) / places.back();
      blocks.push_back(least + (dice_.one_in(2) ? 0 : dice_.number(0, 2)));
      dargs.push_back(blocks.back() == least && dice_.one_in(2) ? distribute_default : static_cast<int>(blocks.back()));
    }
    int size = 1;
    for (const int count : places) size *= count;
    const int rank = static_cast<int>(dice_.number(0, size - 1));
    std::vector<Count> mine(places.size());
    int rest = rank;
    for (std::size_t i = places.size(); i-- > 0; rest /= places[i]) mine[i] = rest % places[i];
    const bool in_c = dice_.one_in(2);
    Made made{Datatype::darray({size, rank, sizes, distribs, dargs, places, in_c ? order_c : order_fortran}, old.type),
              {}};
    if (in_c) {
      std::reverse(sizes.begin(), sizes.end());
      std::reverse(blocks.begin(), blocks.end());
      std::reverse(places.begin(), places.end());
      std::reverse(mine.begin(), mine.end());
    }
    add_part(made.model, old.model, sizes,
             [&](std::size_t i, Count index) { return index / blocks[i] % places[i] == mine[i]; });
    return made;
  }

  Dice& dice_;
};

// `count` elements in memory of their own, whose byte i has value i (of 251), and what lies where.
class Memory {
 public:
  Memory(const Made& made, Count count, bool filled) : places_(made.model.bytes(count)) {
    Count lowest = 0;
    Count highest = 0;
    if (!places_.empty()) {
      lowest = *std::min_element(places_.begin(), places_.end());
      highest = *std::max_element(places_.begin(), places_.end());
    }
    bytes_.resize(static_cast<std::size_t>(highest - lowest + 1));
    for (Count& place : places_) place -= lowest;
    if (filled) {
      for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i % 251);
    }
    // The address of offset 0 may be anywhere.
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) - static_cast<std::uintptr_t>(lowest);
    elements_ = *made.type->elements(reinterpret_cast<void*>(address), count);
  }

  [[nodiscard]] const Elements& elements() const { return elements_; }
  [[nodiscard]] Count bytes() const { return static_cast<Count>(places_.size()); }
  [[nodiscard]] char at(Count i) const {
    return bytes_[static_cast<std::size_t>(places_[static_cast<std::size_t>(i)])];
  }
  void set(Count i, char value) { bytes_[static_cast<std::size_t>(places_[static_cast<std::size_t>(i)])] = value; }
  [[nodiscard]] const std::vector<char>& all() const { return bytes_; }
  [[nodiscard]] bool overlaps() const {
    std::vector<char> seen(bytes_.size());
    return std::any_of(places_.begin(), places_.end(),
                       [&](Count place) { return std::exchange(seen[static_cast<std::size_t>(place)], 1) != 0; });
  }

 private:
  std::vector<Count> places_;
  std::vector<char> bytes_;
  Elements elements_{};
};

// Calls visit(first, bytes) for pieces of [0, bytes), cut and ordered at random.
template <class Visit>
void in_pieces(Dice& dice, Count bytes, const Visit& visit) {
  std::vector<Count> cuts = dice.numbers(dice.one_in(3) ? 0 : dice.number(1, 5), 0, bytes);
  cuts.push_back(0);
  cuts.push_back(bytes);
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::size_t> pieces(cuts.size() - 1);
  std::iota(pieces.begin(), pieces.end(), std::size_t{0});
  dice.shuffle(pieces);
  for (const std::size_t i : pieces) visit(cuts[i], cuts[i + 1] - cuts[i]);
}

void check_bounds(const Made& made) {
  const Datatype& type = *made.type;
  const Model& model = made.model;
  ASSERT_EQ(type.size(), model.size());
  ASSERT_EQ(type.true_lb(), model.true_lb());
  ASSERT_EQ(type.true_lb() + type.true_extent(), model.true_ub());
  ASSERT_EQ(type.lb(), model.lb());
  ASSERT_EQ(type.ub(), model.ub());
}

void check_signature(const Made& made, Dice& dice) {
  const Signature& signature = made.type->signature();
  const auto length = static_cast<Count>(made.model.map.size());
  ASSERT_EQ(signature.elements(), length);
  if (length == 0) return;
  const Count count = dice.number(0, std::min<Count>(3 * length, 50));  // of several copies
  Count bytes = 0;
  SignatureBuilder flat;
  for (Count i = 0; i < count; ++i) {
    const BasicType basic = made.model.map[static_cast<std::size_t>(i % length)].first;
    const Count size = basic_info(basic).size;
    ASSERT_EQ(signature.elements_in(bytes), i);
    if (size > 1) {
      ASSERT_EQ(signature.elements_in(bytes + 1), std::nullopt);
    }
    bytes += size;
    flat.add(Signature::of(basic));
  }
  ASSERT_EQ(signature.bytes_of_first(count), bytes);
  ASSERT_EQ(signature.digest_of_first(count), flat.finish()->digest());
}

void check_copies(const Made& made, const Made& other, Dice& dice) {
  const Count count = dice.number(0, 4);
  const Memory from(made, count, true);
  const Count bytes = from.bytes();
  ASSERT_EQ(from.elements().bytes(), bytes);
  std::vector<char> expected_packed;
  for (Count i = 0; i < bytes; ++i) expected_packed.push_back(from.at(i));
  std::vector<char> packed(expected_packed.size());
  in_pieces(dice, bytes, [&](Count first, Count piece) { pack(packed.data() + first, from.elements(), first, piece); });
  ASSERT_EQ(packed, expected_packed);

  Memory back(made, count, false);
  if (!back.overlaps()) {
    Memory expected = back;
    for (Count i = 0; i < bytes; ++i) expected.set(i, packed[static_cast<std::size_t>(i)]);
    in_pieces(dice, bytes,
              [&](Count first, Count piece) { unpack(back.elements(), packed.data() + first, first, piece); });
    ASSERT_EQ(back.all(), expected.all()) << "unpacked";
  }

  Memory to(other, other.model.map.empty() ? 0 : dice.number(0, 6), false);
  if (to.overlaps()) return;
  const Count both = std::min(bytes, to.bytes());
  Memory expected = to;
  for (Count i = 0; i < both; ++i) expected.set(i, packed[static_cast<std::size_t>(i)]);
  in_pieces(dice, both, [&](Count first, Count piece) { copy(to.elements(), from.elements(), first, piece); });
  ASSERT_EQ(to.all(), expected.all()) << "from type to type";
}

TEST(Layout, ElementsThatStepBackAreNotContiguous) {
  const DatatypePtr& byte = Datatype::named(BasicType::byte);
  const DatatypePtr gaps = Datatype::vector(2, 1, 2, byte);
  for (const Count extent : {-1, 0}) {
    std::array<char, 8> memory{0, 1, 2, 3, 4, 5, 6, 7};
    const DatatypePtr type = Datatype::resized(gaps, 0, extent);
    const Elements elements = *type->elements(memory.data() + 4, 2);
    EXPECT_EQ(elements.contiguous(), nullptr);
    std::array<char, 4> packed{};
    copy(bytes_at(packed.data(), 4), elements, 0, 4);
    EXPECT_EQ(packed, (std::array<char, 4>{4, 6, static_cast<char>(4 + extent), static_cast<char>(6 + extent)}));
  }
}

TEST(Layout, CopiesRandomTypesAsTheModelDoes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::uint64_t usual = 5'000;
#else
  const std::uint64_t usual = 100'000;
#endif
  const std::uint64_t seeds = number_from_environment("LAYOUT_SEEDS", usual);
  for (std::uint64_t seed = test_seed(); seed < test_seed() + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    RandomTypes types(dice);
    const Made made = types.make(dice.number(0, 4));
    const Made other = dice.one_in(4) ? made : types.make(dice.number(0, 3));
    check_bounds(made);
    check_signature(made, dice);
    if (!HasFatalFailure()) check_copies(made, other, dice);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace aplib::mpi
