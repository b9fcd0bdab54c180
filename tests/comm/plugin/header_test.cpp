// SPDX-License-Identifier: MIT
// <aplib/comm_module.h> as plug-ins compile it: in C and C++, and with the version that they require.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace aplib::comm::test {
namespace {

/// The compiler's messages for a source that includes the header.
std::string compiler_says(const std::string& command, const std::string& source) {
  const std::string whole = "printf '%s\\n' '#include <aplib/comm_module.h>' '" + source + "' | " + command +
                            " -Wall -Wextra -pedantic -fsyntax-only -I" APLIB_INCLUDE " - 2>&1";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(whole.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 256> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) text += line.data();
  return text;
}

const std::string c = C_COMPILER " -std=c11 -x c";
const std::string cxx = CXX_COMPILER " -std=c++11 -x c++";

TEST(Header, IsCleanCAndCxx) {
  for (const std::string& compiler : {c, cxx}) EXPECT_EQ(compiler_says(compiler, "APLIB_COMM_REQUIRE(1, 0);"), "");
}

TEST(Header, RefusesToCompileWhatNeedsANewerOne) {
  for (const std::string& compiler : {c, cxx}) {
    for (const auto& [major, minor] : {std::pair("1", "7"), std::pair("2", "0"), std::pair("0", "9")}) {
      const std::string text =
          compiler_says(compiler, std::string("APLIB_COMM_REQUIRE(") + major + ", " + minor + ");");
      EXPECT_NE(text.find(std::string("this module needs plug-in interface ") + major + "." + minor + "; "),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("compile it with the headers of an APlib that has it"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace aplib::comm::test
