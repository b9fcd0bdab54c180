// SPDX-License-Identifier: MIT
#include "tree.hpp"

#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace aplib::compile::test {
namespace fs = std::filesystem;

void Tree::SetUp() {
  char name[] = "/tmp/aplib-apcc.XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  root_ = fs::canonical(name);
  ::chmod(root_.c_str(), 0755);
  tree_ = root_ + "/tree";
  work_ = root_ + "/work";
  for (const char* folder : {"/bin", "/lib/aplib"}) fs::create_directories(tree_ + folder);
  fs::create_directory(work_);
  for (const char* file : {"/bin/apcc", "/bin/apc++", "/bin/apfort", "/lib/aplib/aplib-start",
                           "/lib/aplib/aplib-program.o", "/lib/aplib/aplib-entries.ld"}) {
    fs::copy_file(std::string(BUILD_TREE) + file, tree_ + file);
  }
  fs::copy_file(APRUN, tree_ + "/bin/aprun");
  for (const auto& entry : fs::directory_iterator(BUILD_TREE "/lib")) {  // aprun finds the library beside itself
    const std::string library = entry.path().filename();
    if (library.starts_with("libaplib.so")) fs::create_symlink(entry.path(), tree_ + "/lib/" + library);
  }
  fs::create_directory_symlink(INCLUDE_FOLDER, tree_ + "/include");
}

void Tree::TearDown() {
  if (!HasFailure()) fs::remove_all(root_);
}

Outcome Tree::shell(const std::string& command) const {
  const std::string script = root_ + "/command.sh";
  std::ofstream(script) << "cd '" << work_ << "' || exit 96\nPATH='" << tree_
                        << "/bin':$PATH\nunset AP_CC AP_CXX AP_FC CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS\n"
                        << "LC_ALL=C; export PATH LC_ALL\n"
                        << command << "\n";
  Outcome outcome;
  FILE* pipe = ::popen(("sh '" + script + "' 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> piece{};
  while (const std::size_t bytes = std::fread(piece.data(), 1, piece.size(), pipe))
    outcome.output.append(piece.data(), bytes);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string Tree::output(const std::string& command) const {
  const Outcome outcome = shell(command);
  EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.output << "\nkept in " << root_;
  return outcome.output;
}

void Tree::silent(const std::string& command) const { EXPECT_EQ(output(command), "") << command; }

bool Tree::has(const std::string& command) const { return shell("command -v " + command).status == 0; }

void Tree::write(const std::string& name, const std::string& text) const {
  const fs::path path = fs::path(work_) / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::string Tree::read(const std::string& name) const {
  std::ostringstream text;
  text << std::ifstream(fs::path(work_) / name).rdbuf();
  return text.str();
}

}  // namespace aplib::compile::test
