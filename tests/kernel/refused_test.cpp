// SPDX-License-Identifier: MIT
// Code that must not compile, and the compiler's messages for it.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace aplib {
namespace {

constexpr std::size_t first_line = 12;  // of the body

/// The compiler's message for a function body. Empty: it compiles.
std::string complaints(const std::string& body) {
  const std::filesystem::path folder = testing::TempDir();
  const std::filesystem::path file =
      folder / (std::string("refused-") + testing::UnitTest::GetInstance()->current_test_info()->name() + ".cpp");
  std::ofstream(file) << "#include <aplib/aplib.hpp>\n"
                         "#include <functional>\n#include <list>\n#include <memory>\n#include <ranges>\n"
                         "#include <string>\n#include <string_view>\n#include <vector>\n"
                         "using namespace aplib;\n"
                         "inline constexpr CellId other{1};\n"
                         "void body() {\n" +
                             body + "\n}\n";
  const std::string command =
      std::string(TEST_COMPILER) + " -std=c++20 -fsyntax-only -I " TEST_INCLUDE " " + file.string() + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "cannot run the compiler";
  std::string text;
  for (char part[4096]; std::size_t bytes = std::fread(part, 1, sizeof part, pipe);) text.append(part, bytes);
  const int status = pclose(pipe);
  std::filesystem::remove(file);
  return status == 0 ? "" : text;
}

/// Each line alone is refused, with this message.
void expect_refused(const std::vector<std::string>& lines, const std::string& why) {
  std::string body;
  for (const std::string& line : lines) body += "  { " + line + " }\n";
  const std::string text = complaints(body);
  EXPECT_NE(text.find(why), std::string::npos) << text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string place = ".cpp:" + std::to_string(first_line + i) + ":";
    EXPECT_NE(text.find(place), std::string::npos) << lines[i] << "\n" << text;
  }
}

TEST(Refused, NothingOfWhatIsAllowed) {
  EXPECT_EQ(complaints("send(other, 1); send(other, 2.5, {.type = 7}); send(other, \"text\");"
                       "send(other, std::string_view(\"text\")); send(other, std::vector<float>(3));"
                       "int numbers[3] = {}; send(other, numbers); send(other, std::span(numbers));"
                       "struct Point { double x, y; }; send(other, Point{}); send(other, std::vector<Point>(2));"
                       "const Message message = receive(); for (float f : message.span<float>()) (void)f;"
                       "(void)message.as<Point>(); (void)receive().as<int>(); receive_into(numbers);"
                       "broadcast(other, numbers); (void)reduce_sum(1L);"),
            "");
}

TEST(Refused, SendOfWhatPointsElsewhere) {
  expect_refused(
      {"int x = 0; send(other, &x);", "send(other, nullptr);", "const char* text = \"text\"; send(other, text);",
       "std::vector<int> v(3); send(other, v.begin());", "short x = 0; send(other, std::vector<short*>{&x});",
       "std::vector<std::string_view> v; send(other, v);", "std::vector<std::string> v; send(other, v);",
       "std::list<int> l; send(other, l);", "int x = 0; send(other, std::ref(x));",
       "send(other, std::make_unique<int>(1));", "send(other, std::views::iota(1, 3));"},
      "send() cannot copy this");
}

TEST(Refused, BodyOfATemporaryMessage) {
  expect_refused({"auto body = receive().bytes();", "auto body = receive().data();", "auto body = receive().text();",
                  "auto body = receive().span<int>();"},
                 "deleted");
}

TEST(Refused, BodiesAsWhatPointsElsewhere) {
  expect_refused({"(void)receive().as<int*>();", "(void)receive().as<std::string_view>();",
                  "const Message m = receive(); (void)m.span<const char*>();"},
                 "what a message brings is bytes");
}

}  // namespace
}  // namespace aplib
