// SPDX-License-Identifier: MIT
// Expects an Error whose text names the file and the remedy.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "aplib/error.hpp"

namespace aplib::loader::test {

/// The text of the Error that `call` throws. If it throws none, the test fails and the text is "".
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

inline ::testing::AssertionResult contains(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << '"' << text << "\" does not contain \"" << part << '"';
}

}  // namespace aplib::loader::test
