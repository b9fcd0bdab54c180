// SPDX-License-Identifier: MIT
// Tree: an installed APlib in a temporary folder, with aprun or a stand-in for it, and a working folder in which
// commands run.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace aplib::compile::test {

struct Outcome {
  int status = -1;     ///< As a shell reports it.
  std::string output;  ///< stdout and stderr.
};

class Tree : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Runs `command` with sh in the working folder; the wrappers are in PATH.
  [[nodiscard]] Outcome shell(const std::string& command) const;
  /// The output of `command`. The test fails if the command fails.
  std::string output(const std::string& command) const;
  /// Runs `command` and expects success without output.
  void silent(const std::string& command) const;
  /// Whether the shell finds `command`.
  [[nodiscard]] bool has(const std::string& command) const;
  /// Writes a file in the working folder.
  void write(const std::string& name, const std::string& text) const;
  [[nodiscard]] std::string read(const std::string& name) const;

  std::string root_;  ///< Contains both folders.
  std::string tree_;  ///< root_/tree: bin, lib, include.
  std::string work_;  ///< root_/work
};

}  // namespace aplib::compile::test
