// SPDX-License-Identifier: MIT
// Interfaces of a library's functions, by their types.
#include "gridrpc/draft.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "calls/idl.hpp"
#include "checks.hpp"

namespace aplib::gridrpc {
namespace {

std::string draft(const std::vector<std::string>& names, Sizes sizes) {
  return draft_interface(TEST_LIBRARY, names, sizes);
}

std::string refusal(const std::vector<std::string>& names, Sizes sizes) {
  const std::string library = TEST_LIBRARY;
  const std::string text = testing_support::error_text([&] { (void)draft(names, sizes); }, Errc::bad_option);
  return text.starts_with(library + ": ") ? text.substr(library.size() + 2) : text;
}

TEST(Draft, HasWhatTypesSay) {
  const calls::Interface interface =
      calls::read_interface(draft({"solve", "mean", "greet"}, Sizes::refused), "library.so");
  ASSERT_EQ(interface.functions.size(), 3U);
  EXPECT_EQ(print_function(interface.functions[0]), "solve(IN int n, IN double eps, OUT int *result)");
  EXPECT_EQ(interface.functions[0].description, "solve(int n, double eps) -> int");
  EXPECT_EQ(print_function(interface.functions[1]), "mean(IN float a, IN unsigned char b, OUT double *result)");
  EXPECT_EQ(print_function(interface.functions[2]), "greet(IN string who, OUT string result)");
}

TEST(Draft, LeavesSizesToItsReader) {
  EXPECT_EQ(refusal({"norm"}, Sizes::refused),
            "norm: how many elements double const *x has is not known: write the IDL file with --idl, and the sizes "
            "into it");
  std::string text = draft({"norm"}, Sizes::left_open);
  EXPECT_NE(text.find("Define norm(IN int n, IN double x[SIZE_OF_x], OUT double *result)"), std::string::npos) << text;
  EXPECT_THROW((void)calls::read_interface(text, "draft.idl"), Error);
  text.replace(text.find("SIZE_OF_x"), 9, "n");
  EXPECT_EQ(print_function(calls::read_interface(text, "draft.idl").functions[0]),
            "norm(IN int n, IN double x[n], OUT double *result)");
}

TEST(Draft, NamesWhatIsNotThere) {
  EXPECT_EQ(refusal({"slove"}, Sizes::refused),
            "slove: no types of such a function are known: name one, and compile with -g; or write an IDL file");
}

}  // namespace
}  // namespace aplib::gridrpc
