// SPDX-License-Identifier: MIT
// Attributes: kept, replaced, deleted and told of by the functions of the program.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <string>
#include <vector>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// Writes down each value whose attribute is deleted; `state` is the string.
int note_delete(MPI_Comm, int, void* value, void* state) {
  static_cast<std::string*>(state)->push_back(*static_cast<char*>(value));
  return MPI_SUCCESS;
}

int refuse_delete(MPI_Comm, int, void*, void*) { return MPI_ERR_OTHER; }

void* get(MPI_Comm comm, int keyval) {
  void* value = nullptr;
  int is_there = -1;
  EXPECT_EQ(MPI_Comm_get_attr(comm, keyval, static_cast<void*>(&value), &is_there), MPI_SUCCESS);
  return is_there == 1 ? value : nullptr;
}

TEST(Attribute, IsKeptReplacedAndDeleted) {
  run_well({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    std::string deleted;
    std::string values = "abc";
    int keyval = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note_delete, &keyval, &deleted);
    EXPECT_NE(keyval, MPI_KEYVAL_INVALID);
    EXPECT_EQ(get(MPI_COMM_WORLD, keyval), nullptr);
    EXPECT_EQ(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, values.data()), MPI_SUCCESS);
    EXPECT_EQ(get(MPI_COMM_WORLD, keyval), values.data());
    EXPECT_EQ(get(MPI_COMM_SELF, keyval), nullptr);
    EXPECT_EQ(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &values[1]), MPI_SUCCESS);
    EXPECT_EQ(deleted, "a");
    const int kept = keyval;
    EXPECT_EQ(MPI_Comm_free_keyval(&keyval), MPI_SUCCESS);
    EXPECT_EQ(keyval, MPI_KEYVAL_INVALID);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EXPECT_EQ(MPI_Comm_set_attr(MPI_COMM_WORLD, kept, values.data()), MPI_ERR_KEYVAL);  // the program freed it
    EXPECT_EQ(deleted, "a");
    MPI_Finalize();
  });
}

/// A search through all attributes for each one would take minutes.
TEST(Attribute, ManyTakeNoMoreThanTheirNumber) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    constexpr std::size_t many = 200'000;
    std::vector<int> keyvals(many);
    for (int& keyval : keyvals) {
      MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keyval, nullptr);
      MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &keyval);
    }
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    std::size_t right = 0;
    for (int& keyval : keyvals) right += get(copy, keyval) == &keyval ? 1U : 0U;
    EXPECT_EQ(right, many);
    for (std::size_t i = 0; i < many; i += 2) MPI_Comm_delete_attr(copy, keyvals[i]);
    EXPECT_EQ(get(copy, keyvals[0]), nullptr);
    EXPECT_EQ(get(copy, keyvals[1]), &keyvals[1]);
    MPI_Comm_free(&copy);
    MPI_Finalize();
  });
}

TEST(Attribute, ThoseOfSelfAreDeletedAtTheEndTheLastOneFirst) {
  run_well({{2, 1}, 1}, [] {
    std::string deleted;
    std::string values = "abc";
    MPI_Init(nullptr, nullptr);
    for (char& value : values) {
      int keyval = MPI_KEYVAL_INVALID;
      MPI_Keyval_create(MPI_NULL_COPY_FN, note_delete, &keyval, &deleted);
      MPI_Attr_put(MPI_COMM_SELF, keyval, &value);
      MPI_Keyval_free(&keyval);
    }
    EXPECT_EQ(MPI_Finalize(), MPI_SUCCESS);
    EXPECT_EQ(deleted, "cba");
  });
}

TEST(Attribute, WrongKeysAndFailingFunctionsAreToldOf) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int keyval = MPI_KEYVAL_INVALID;
    EXPECT_EQ(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, nullptr), MPI_ERR_KEYVAL);
    EXPECT_EQ(MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_TAG_UB, nullptr), MPI_ERR_KEYVAL);
    EXPECT_EQ(MPI_Comm_free_keyval(&keyval), MPI_ERR_KEYVAL);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, nullptr);
    EXPECT_EQ(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, nullptr), MPI_ERR_KEYVAL);
    EXPECT_EQ(MPI_Type_free_keyval(&keyval), MPI_SUCCESS);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuse_delete, &keyval, nullptr);
    EXPECT_EQ(MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval), MPI_ERR_KEYVAL);
    EXPECT_EQ(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &keyval), MPI_SUCCESS);
    EXPECT_EQ(MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval), MPI_ERR_OTHER);
    EXPECT_EQ(get(MPI_COMM_WORLD, keyval), &keyval);  // so it stays
    MPI_Finalize();
  });
}

TEST(Attribute, AFreedKeyWorksWhileAnAttributeHasIt) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::string deleted;
    std::string values = "a";
    int keyval = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note_delete, &keyval, &deleted);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, values.data());
    for (int times = 0; times < 3; ++times) {
      int again = keyval;
      EXPECT_EQ(MPI_Comm_free_keyval(&again), MPI_SUCCESS);
      EXPECT_EQ(again, MPI_KEYVAL_INVALID);
      EXPECT_EQ(get(MPI_COMM_WORLD, keyval), values.data());
    }
    EXPECT_EQ(MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval), MPI_SUCCESS);
    EXPECT_EQ(deleted, "a");
    EXPECT_EQ(MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval), MPI_ERR_KEYVAL);
    EXPECT_EQ(MPI_Comm_free_keyval(&keyval), MPI_ERR_KEYVAL);
    MPI_Finalize();
  });
}

TEST(Attribute, ThePredefinedOnesAreThere) {
  run_well({{3, 2}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    const auto value = [](int keyval) { return *static_cast<int*>(get(MPI_COMM_WORLD, keyval)); };
    EXPECT_GE(value(MPI_TAG_UB), (1 << 28) - 1);
    EXPECT_EQ(value(MPI_UNIVERSE_SIZE), 6);
    EXPECT_EQ(value(MPI_IO), MPI_ANY_SOURCE);
    const int before = value(MPI_LASTUSEDCODE);
    int error_class = 0;
    MPI_Add_error_class(&error_class);
    EXPECT_EQ(value(MPI_LASTUSEDCODE), error_class);
    EXPECT_GT(error_class, before);
    std::array<char, MPI_MAX_OBJECT_NAME> name{};
    int length = 0;
    MPI_Comm_get_name(MPI_COMM_WORLD, name.data(), &length);
    EXPECT_STREQ(name.data(), "MPI_COMM_WORLD");
    MPI_Comm_set_name(MPI_COMM_WORLD, "everybody");
    MPI_Comm_get_name(MPI_COMM_WORLD, name.data(), &length);
    EXPECT_STREQ(name.data(), "everybody");
    EXPECT_EQ(length, 9);
    MPI_Comm_get_name(MPI_COMM_NULL, name.data(), &length);
    EXPECT_STREQ(name.data(), "MPI_COMM_NULL");
    MPI_Type_get_name(MPI_DATATYPE_NULL, name.data(), &length);
    EXPECT_STREQ(name.data(), "MPI_DATATYPE_NULL");
    MPI_Win_get_name(MPI_WIN_NULL, name.data(), &length);
    EXPECT_STREQ(name.data(), "MPI_WIN_NULL");
    MPI_Finalize();
  });
}

}  // namespace
}  // namespace aplib
