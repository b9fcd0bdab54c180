// SPDX-License-Identifier: MIT
// A root folder with only the files of /proc and /sys that give a process's CPU quota. The destructor removes it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace aplib {

class CgroupTree {
 public:
  CgroupTree() {
    std::string name = (std::filesystem::temp_directory_path() / "aplib-cgroup-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    root_ = name;
  }
  ~CgroupTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  CgroupTree(const CgroupTree&) = delete;
  CgroupTree& operator=(const CgroupTree&) = delete;

  CgroupTree& write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return *this;
  }

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

}  // namespace aplib
