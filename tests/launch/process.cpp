// SPDX-License-Identifier: MIT
#include "process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace aplib::test {

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "aprun-test-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) path_ = std::filesystem::canonical(name);
}

Folder::~Folder() {
  if (!path_.empty()) std::filesystem::remove_all(path_);
}

std::string Folder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
  return *this / name;
}

std::string Folder::read(const std::string& name) const {
  std::ifstream file(path_ / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Folder::compile(const std::string& name, const std::string& source, const std::string& options) const {
  const std::string text = write(name + ".c", source);
  const Ended compiler = run({.arguments = {"/bin/sh", "-c",
                                            std::string(TEST_COMPILER) + " -O1 -fPIC -shared -I" + TEST_INCLUDE +
                                                " -o '" + (*this / name) + "' '" + text + "' " + options}});
  EXPECT_EQ(compiler.status, 0) << compiler.error;
  return compiler.status == 0 ? *this / name : std::string{};
}

Process::Process(const Start& start) {
  int in[2];
  int out[2];
  int error[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(error, O_CLOEXEC) != 0) std::abort();
  std::vector<char*> argv;
  for (const std::string& argument : start.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (const auto& [name, value] : start.environment) variables.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** each = ::environ; *each != nullptr; ++each) {
    const std::string_view name = std::string_view(*each).substr(0, std::string_view(*each).find('='));
    if (!start.environment.contains(std::string(name))) environment.push_back(*each);
  }
  environment.push_back(nullptr);
  child_ = ::fork();
  if (child_ == 0) {  // nothing is allocated here: a reader of another process may have held a lock of the heap
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::dup2(error[1], 2);
    if (!start.folder.empty() && ::chdir(start.folder.c_str()) != 0) ::_exit(126);
    ::execvpe(argv[0], argv.data(), environment.data());
    ::_exit(127);
  }
  for (const int theirs : {in[0], out[1], error[1]}) ::close(theirs);
  input_ = in[1];
  out_reader_ = std::thread([this, from = out[0]] { read_all(from, ended_.out); });
  error_reader_ = std::thread([this, from = error[0]] { read_all(from, ended_.error); });
  std::signal(SIGPIPE, SIG_IGN);  // the program need not read its input
  [[maybe_unused]] const ssize_t written = ::write(input_, start.input.data(), start.input.size());
  if (!start.keep_input_open) {
    ::close(input_);
    input_ = -1;
  }
}

Process::~Process() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    (void)wait();
  }
  if (input_ >= 0) ::close(input_);
}

void Process::read_all(int descriptor, std::string& into) {
  char piece[4096];
  ssize_t count = 0;
  while ((count = ::read(descriptor, piece, sizeof piece)) > 0) {
    const std::lock_guard lock(mutex_);
    into.append(piece, static_cast<std::size_t>(count));
    changed_.notify_all();
  }
  ::close(descriptor);
  const std::lock_guard lock(mutex_);
  --open_;
  changed_.notify_all();
}

bool Process::wait_for(const std::string& text) {
  std::unique_lock lock(mutex_);
  const auto found = [&] { return ended_.out.find(text) != std::string::npos; };
  changed_.wait(lock, [&] { return found() || open_ == 0; });
  return found();
}

void Process::signal(int number) const { ::kill(child_, number); }

Ended Process::wait() {
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  out_reader_.join();
  error_reader_.join();
  ended_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended_;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

}  // namespace aplib::test
