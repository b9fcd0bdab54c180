// SPDX-License-Identifier: MIT
// A temporary folder in which commands run, with the build tree's wrappers of MPI in PATH.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace aplib {

class MpiCommands : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "aplib-mpi-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }

  /// stdout and stderr of a command in the folder, and its status; 0 is expected where nobody asks for it.
  [[nodiscard]] std::string output(const std::string& command, int* status = nullptr) const {
    write("command.sh",
          "unset AP_CC AP_CXX AP_FC CC CXX FC MPICC_CC OMPI_CC MPICH_CC MPIFORT_FC OMPI_FC MPICH_FC\n"
          "unset MAKEFLAGS CFLAGS FFLAGS LDFLAGS\n"
          "unset OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_NUM_TASKS\n"
          "cd " +
              folder_ + " && PATH=" BUILD_TREE "/lib/aplib/mpi/bin:" BUILD_TREE "/bin:$PATH\n" + command + "\n");
    FILE* const pipe = popen(("sh " + folder_ + "/command.sh 2>&1 </dev/null").c_str(), "r");
    std::string text;
    std::array<char, 4096> part{};
    while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), count);
    const int end = WEXITSTATUS(pclose(pipe));
    if (status != nullptr) {
      *status = end;
    } else {
      EXPECT_EQ(end, 0) << command << '\n' << text;
    }
    return text;
  }

  /// The command ends with that status, and says `part`.
  void expect_end(const std::string& command, int wanted, const std::string& part) const {
    int status = 0;
    const std::string text = output(command, &status);
    EXPECT_EQ(status, wanted) << command << '\n' << text;
    EXPECT_NE(text.find(part), std::string::npos) << command << '\n' << text;
  }

  std::string folder_;
};

}  // namespace aplib
