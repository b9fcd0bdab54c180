// SPDX-License-Identifier: MIT
// Info objects: what is set is got, in order, cut where the buffer ends; and they belong to one cell.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

std::string value_of(MPI_Info info, const std::string& key, int room) {
  std::string text(static_cast<std::size_t>(room) + 1, '#');
  int is_there = -1;
  EXPECT_EQ(MPI_Info_get(info, key.c_str(), room, text.data(), &is_there), MPI_SUCCESS);
  return is_there == 1 ? text.c_str() : "(none)";
}

/// A search through all keys for each one would take minutes.
TEST(Info, ManyKeysTakeNoMoreThanTheirNumber) {
  run_well({{1, 1}, 1}, [] {
    MPI_Info info = MPI_INFO_NULL;
    ASSERT_EQ(MPI_Info_create(&info), MPI_SUCCESS);
    constexpr int many = 200'000;
    for (int i = 0; i < many; ++i) MPI_Info_set(info, std::to_string(i).c_str(), "x");
    for (int i = 0; i < many; ++i) MPI_Info_set(info, std::to_string(i).c_str(), std::to_string(i).c_str());
    int wrong = 0;
    std::array<char, MPI_MAX_INFO_KEY> key{};
    for (int i = 0; i < many; ++i) {
      MPI_Info_get_nthkey(info, i, key.data());
      wrong += key.data() != std::to_string(i) || value_of(info, key.data(), 9) != key.data() ? 1 : 0;
    }
    for (const int n : {many - 1, 0, many / 2, many / 2 - 1, 7, many - 7}) {
      MPI_Info_get_nthkey(info, n, key.data());
      wrong += key.data() != std::to_string(n) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0);
    MPI_Info copy = MPI_INFO_NULL;
    MPI_Info_dup(info, &copy);
    for (int i = 0; i < many; ++i) {
      MPI_Info_get_nthkey(copy, i % 2 == 0 ? 0 : many - i - 1, key.data());
      wrong += MPI_Info_delete(copy, key.data()) != MPI_SUCCESS ? 1 : 0;
    }
    int left = -1;
    MPI_Info_get_nkeys(copy, &left);
    EXPECT_EQ(left + wrong, 0);
    MPI_Info_free(&copy);
    MPI_Info_free(&info);
  });
}

TEST(Info, WhatIsSetIsGotInOrder) {
  const std::uint64_t seed = std::random_device{}();
  run_well({{3, 1}, 2}, [seed] {
    std::mt19937_64 random(seed + me());
    SCOPED_TRACE("seed " + std::to_string(seed + me()));
    MPI_Info info = MPI_INFO_NULL;
    ASSERT_EQ(MPI_Info_create(&info), MPI_SUCCESS);
    std::vector<std::pair<std::string, std::string>> model;
    for (int i = 0; i < 400; ++i) {
      const std::string key = "key" + std::to_string(random() % 40);
      const auto place = std::ranges::find(model, key, [](const auto& entry) { return entry.first; });
      if (random() % 3 == 0) {
        if (place == model.end()) continue;
        EXPECT_EQ(MPI_Info_delete(info, key.c_str()), MPI_SUCCESS);
        model.erase(place);
      } else {
        const std::string value(random() % 50, static_cast<char>('a' + random() % 26));
        EXPECT_EQ(MPI_Info_set(info, key.c_str(), value.c_str()), MPI_SUCCESS);
        if (place == model.end()) {
          model.emplace_back(key, value);
        } else {
          place->second = value;
        }
      }
    }
    MPI_Info copy = MPI_INFO_NULL;
    MPI_Info_dup(info, &copy);
    MPI_Info_free(&info);
    EXPECT_EQ(info, MPI_INFO_NULL);
    int count = 0;
    MPI_Info_get_nkeys(copy, &count);
    ASSERT_EQ(static_cast<std::size_t>(count), model.size());
    for (int i = 0; i < count; ++i) {
      const auto& [key, value] = model[static_cast<std::size_t>(i)];
      std::array<char, MPI_MAX_INFO_KEY> name{};
      EXPECT_EQ(MPI_Info_get_nthkey(copy, i, name.data()), MPI_SUCCESS);
      EXPECT_EQ(name.data(), key);
      EXPECT_EQ(value_of(copy, key, 60), value);
      EXPECT_EQ(value_of(copy, key, 7), value.substr(0, 7));
      int length = -1;
      int is_there = -1;
      MPI_Info_get_valuelen(copy, key.c_str(), &length, &is_there);
      EXPECT_EQ(static_cast<std::size_t>(length), value.size());
    }
    MPI_Info_free(&copy);
  });
}

TEST(Info, TheStringHasItsLengthWithTheZero) {
  run_well({{1, 1}, 1}, [] {
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "word", "abcdef");
    int room = 0;
    int is_there = 0;
    EXPECT_EQ(MPI_Info_get_string(info, "word", &room, nullptr, &is_there), MPI_SUCCESS);
    EXPECT_EQ(room, 7);
    EXPECT_EQ(is_there, 1);
    std::array<char, 8> text{'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x'};
    room = 4;
    EXPECT_EQ(MPI_Info_get_string(info, "word", &room, text.data(), &is_there), MPI_SUCCESS);
    EXPECT_EQ(std::string(text.data()), "abc");
    EXPECT_EQ(room, 7);
    EXPECT_EQ(text[4], 'x');
    EXPECT_EQ(MPI_Info_get_string(info, "other", &room, text.data(), &is_there), MPI_SUCCESS);
    EXPECT_EQ(is_there, 0);
    MPI_Info_free(&info);
  });
}

TEST(Info, WrongArgumentsAreRefused) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Info info = MPI_INFO_NULL;
    EXPECT_EQ(MPI_Info_set(info, "a", "b"), MPI_ERR_INFO);
    MPI_Info_create(&info);
    EXPECT_EQ(MPI_Info_set(info, "", "b"), MPI_ERR_INFO_KEY);
    EXPECT_EQ(MPI_Info_set(info, std::string(MPI_MAX_INFO_KEY, 'k').c_str(), "b"), MPI_ERR_INFO_KEY);
    EXPECT_EQ(MPI_Info_set(info, "a", std::string(MPI_MAX_INFO_VAL, 'v').c_str()), MPI_ERR_INFO_VALUE);
    EXPECT_EQ(MPI_Info_set(info, nullptr, "b"), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Info_set(info, std::string(MPI_MAX_INFO_KEY - 1, 'k').c_str(), "b"), MPI_SUCCESS);
    EXPECT_EQ(MPI_Info_delete(info, "nothing"), MPI_ERR_INFO_NOKEY);
    std::array<char, MPI_MAX_INFO_KEY> key{};
    EXPECT_EQ(MPI_Info_get_nthkey(info, 1, key.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Info_get_nthkey(info, -1, key.data()), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Info_get_nthkey(info, 0, key.data()), MPI_SUCCESS);
    MPI_Info_free(&info);
    EXPECT_EQ(MPI_Info_free(&info), MPI_ERR_INFO);
    MPI_Info constant = MPI_INFO_ENV;
    EXPECT_EQ(MPI_Info_set(constant, "a", "b"), MPI_ERR_INFO);
    EXPECT_EQ(MPI_Info_free(&constant), MPI_ERR_INFO);
  });
}

TEST(Info, TheEnvironmentCountsTheRanks) {
  run_well({{3, 2}, 2}, [] {
    EXPECT_EQ(value_of(MPI_INFO_ENV, "maxprocs", 10), "6");
    std::string name = "prog";
    std::string option = "-x";
    std::array<char*, 3> arguments{name.data(), option.data(), nullptr};
    MPI_Info info = MPI_INFO_NULL;
    EXPECT_EQ(MPI_Info_create_env(2, arguments.data(), &info), MPI_SUCCESS);
    EXPECT_EQ(value_of(info, "command", 10), "prog");
    EXPECT_EQ(value_of(info, "argv", 10), "-x");
    MPI_Info_free(&info);
  });
}

}  // namespace
}  // namespace aplib
