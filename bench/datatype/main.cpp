// SPDX-License-Identifier: MIT
// bench-datatype: copies of datatypes, beside the plain loops that a program would contain.
//
//   bench-datatype     a table: microseconds of the library, of the loop, and the ratio
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "mpi/datatype.hpp"

namespace {

using aplib::mpi::BasicType;
using aplib::mpi::Count;
using aplib::mpi::Datatype;
using aplib::mpi::DatatypePtr;
using aplib::mpi::Elements;

// The best of some rounds, because others use the machine too.
template <class Work>
double microseconds(const Work& work) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int round = 0; round < 15; ++round) {
    constexpr int repetitions = 100;
    const auto begin = Clock::now();
    for (int i = 0; i < repetitions; ++i) {
      work();
      asm("" : : : "memory");
    }
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / repetitions);
  }
  return best;
}

struct Times {
  double library;
  double loop;
  [[nodiscard]] std::string text() const {
    return fmt::format("{:9.2f} {:9.2f} {:5.2f}", library, loop, library / loop);
  }
};

void print(const char* name, const Times& pack, const Times& unpack, const Times& copy) {
  fmt::print("{:<30} | {} | {} | {}\n", name, pack.text(), unpack.text(), copy.text());
}

// `block` bytes of each `distance`, where `loop_distance` is a constant for the compiler, as in a program.
template <std::size_t block, std::size_t distance>
void measure_vector(const char* name, std::size_t span) {
  const std::size_t count = span / distance;
  std::vector<char> from(span);
  std::vector<char> to(span);
  std::vector<char> packed(count * block);
  const DatatypePtr bytes = Datatype::named(BasicType::byte);
  const DatatypePtr type =
      Datatype::hvector(static_cast<Count>(count), static_cast<Count>(block), static_cast<Count>(distance), bytes);
  const Elements source = *type->elements(from.data(), 1);
  const Elements target = *type->elements(to.data(), 1);
  const auto loop = [count](char* to, std::size_t to_distance, const char* from, std::size_t from_distance) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * to_distance, from + i * from_distance, block);
  };
  print(name, {microseconds([&] { pack(packed.data(), source, 0, source.bytes()); }), microseconds([&] {
                 loop(packed.data(), block, from.data(), distance);
               })},
        {microseconds([&] { unpack(target, packed.data(), 0, target.bytes()); }),
         microseconds([&] { loop(to.data(), distance, packed.data(), block); })},
        {microseconds([&] { copy(target, source, 0, source.bytes()); }),
         microseconds([&] { loop(to.data(), distance, from.data(), distance); })});
}

// `move(i, to, from)` copies element i from the one memory to the other, `pack(i, packed, from)` and
// `unpack(i, to, packed)` as their names say: the program's loops.
template <class Move, class Pack, class Unpack>
void measure(const char* name, const DatatypePtr& type, std::size_t count, std::size_t bytes, const Move& move,
             const Pack& pack_one, const Unpack& unpack_one) {
  std::vector<char> from(bytes);
  std::vector<char> to(bytes);
  std::vector<char> packed(static_cast<std::size_t>(type->size()) * count);
  const Elements source = *type->elements(from.data(), static_cast<Count>(count));
  const Elements target = *type->elements(to.data(), static_cast<Count>(count));
  const auto all = [count](const auto& one, char* to, const char* from) {
    for (std::size_t i = 0; i < count; ++i) one(i, to, from);
  };
  print(name, {microseconds([&] { pack(packed.data(), source, 0, source.bytes()); }), microseconds([&] {
                 all(pack_one, packed.data(), from.data());
               })},
        {microseconds([&] { unpack(target, packed.data(), 0, target.bytes()); }),
         microseconds([&] { all(unpack_one, to.data(), packed.data()); })},
        {microseconds([&] { copy(target, source, 0, source.bytes()); }),
         microseconds([&] { all(move, to.data(), from.data()); })});
}

// Structures of a double, an int and a double, whose gap no message carries.
void measure_structures() {
  const std::vector<Count> lengths{1, 1, 1};
  const std::vector<Count> places{0, 8, 16};
  const DatatypePtr number = Datatype::named(BasicType::float64);
  const std::vector<DatatypePtr> types{number, Datatype::named(BasicType::int32), number};
  const auto copy_one = [](char* to, const char* from, std::size_t to_gap, std::size_t from_gap) {
    std::memcpy(to, from, 12);
    std::memcpy(to + 12 + to_gap, from + 12 + from_gap, 8);
  };
  measure(
      "4,000 structures of 20 of 24 B", Datatype::structure(lengths, places, types), 4000, std::size_t{4000} * 24,
      [&](std::size_t i, char* to, const char* from) { copy_one(to + i * 24, from + i * 24, 4, 4); },
      [&](std::size_t i, char* to, const char* from) { copy_one(to + i * 20, from + i * 24, 0, 4); },
      [&](std::size_t i, char* to, const char* from) { copy_one(to + i * 24, from + i * 20, 4, 0); });
}

// A part of a matrix, 64 rows of every second of 8 doubles.
void measure_two_loops() {
  const DatatypePtr row = Datatype::vector(4, 1, 2, Datatype::named(BasicType::float64));
  const auto each = [](std::size_t to_distance, std::size_t from_distance, char* to, const char* from) {
    for (std::size_t j = 0; j < 4; ++j) std::memcpy(to + j * to_distance, from + j * from_distance, 8);
  };
  measure(
      "1,000 rows of 4 of 8 doubles", Datatype::resized(row, 0, 64), 1000, 64000,
      [&](std::size_t i, char* to, const char* from) { each(16, 16, to + i * 64, from + i * 64); },
      [&](std::size_t i, char* to, const char* from) { each(8, 16, to + i * 32, from + i * 64); },
      [&](std::size_t i, char* to, const char* from) { each(16, 8, to + i * 64, from + i * 32); });
}

// Doubles here and there, as those that an unstructured mesh shares with its neighbour.
void measure_list() {
  std::vector<Count> places;
  for (Count i = 0; i < 4000; ++i) places.push_back(i * 7919 % 20000);
  const auto at = [&places](std::size_t i) { return places[i] * 8; };
  measure(
      "4,000 of 20,000 doubles", Datatype::indexed_block(1, places, Datatype::named(BasicType::float64)), 1, 160000,
      [&](std::size_t, char* to, const char* from) {
        for (std::size_t i = 0; i < places.size(); ++i) std::memcpy(to + at(i), from + at(i), 8);
      },
      [&](std::size_t, char* to, const char* from) {
        for (std::size_t i = 0; i < places.size(); ++i) std::memcpy(to + i * 8, from + at(i), 8);
      },
      [&](std::size_t, char* to, const char* from) {
        for (std::size_t i = 0; i < places.size(); ++i) std::memcpy(to + at(i), from + i * 8, 8);
      });
}

}  // namespace

int main() {
  fmt::print("{:<30} | {:<25} | {:<25} | {:<25}\n", "us: library, loop, ratio", "pack", "unpack", "type to type");
  measure_vector<4, 8>("1 of 2 floats, 64 KiB", 64 * 1024);
  measure_vector<4, 8>("1 of 2 floats, 1 MiB", 1024 * 1024);
  measure_vector<32, 64>("8 of 16 floats, 64 KiB", 64 * 1024);
  measure_vector<256, 512>("64 of 128 floats, 64 KiB", 64 * 1024);
  measure_vector<1, 2>("1 of 2 chars, 64 KiB", 64 * 1024);
  measure_vector<8, 80>("1 of 10 doubles, 64 KiB", 64 * 1024);
  measure_vector<12, 24>("3 of 6 floats, 64 KiB", 64 * 1024);
  measure_vector<8, 16>("1 of 2 doubles, 64 B", 64);
  measure_structures();
  measure_two_loops();
  measure_list();
  return 0;
}
