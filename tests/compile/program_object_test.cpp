// SPDX-License-Identifier: MIT
#include "compile/tree.hpp"

#include <random>

#include <gtest/gtest.h>

namespace aplib::compile {
namespace {

TEST(ProgramObject, WhatIsNoTemplateIsSaid) {
  EXPECT_THROW(with_start("", "/s"), BrokenTree);
  EXPECT_THROW(with_start("hello", "/s"), BrokenTree);
  EXPECT_THROW(with_start(std::string(4096, '\0'), "/s"), BrokenTree);
}

TEST(ProgramObject, AnyBytesAreRefusedOrFilled) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(64 + random() % 512, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 4 == 0 ? random() : 0);
    bytes.replace(0, 4,
                  "\x7f"
                  "ELF");
    try {
      EXPECT_EQ(with_start(bytes, "/s").size(), bytes.size());
    } catch (const BrokenTree&) {
    }
  }
}

TEST(ProgramObject, MissingTemplateSaysWhatToDo) {
  Prefix prefix;
  prefix.root = "/nowhere";
  prefix.support_folder = "/nowhere/lib/aplib";
  try {
    program_object(prefix, prefix.start());
    FAIL() << "there is no template";
  } catch (const BrokenTree& broken) {
    EXPECT_NE(std::string(broken.what()).find("/nowhere/lib/aplib/aplib-program.o"), std::string::npos);
    EXPECT_NE(std::string(broken.what()).find("install APlib there again"), std::string::npos);
  }
}

}  // namespace
}  // namespace aplib::compile
