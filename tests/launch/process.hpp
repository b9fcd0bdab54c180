// SPDX-License-Identifier: MIT
// Programs as a shell runs them: files that a compiler makes, and processes with their streams.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace aplib::test {

/// A folder for a test's files, removed with it.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string path() const { return path_.string(); }

  /// Writes a file; returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  [[nodiscard]] std::string read(const std::string& name) const;
  /// Compiles C text to a loadable file; <aplib/cellos.h> is found. Returns its path. If the compiler refuses, returns
  /// an empty path and the test fails.
  std::string compile(const std::string& name, const std::string& source, const std::string& options = "") const;

 private:
  std::filesystem::path path_;
};

struct Ended {
  int status = -1;  ///< As a shell gives it: 128 + signal if one killed it.
  std::string out;
  std::string error;
};

struct Start {
  std::vector<std::string> arguments;  ///< [0] is the file.
  std::string input{};
  bool keep_input_open = false;  ///< The input is a pipe that gives `input` and never ends.
  std::map<std::string, std::string> environment{};
  std::string folder{};  ///< Empty: the test's own.
};

class Process {
 public:
  explicit Process(const Start& start);
  /// Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Waits until it has written `text` to stdout. False: it ended without that.
  bool wait_for(const std::string& text);
  void signal(int number) const;
  [[nodiscard]] pid_t pid() const { return child_; }
  /// Waits for its end.
  Ended wait();

 private:
  void read_all(int descriptor, std::string& into);

  pid_t child_ = -1;
  int input_ = -1;
  std::mutex mutex_;  // guards what the readers write
  std::condition_variable changed_;
  Ended ended_;
  int open_ = 2;
  std::thread out_reader_;
  std::thread error_reader_;
};

inline Ended run(const Start& start) { return Process(start).wait(); }

/// The lines of a text, sorted.
std::vector<std::string> sorted_lines(const std::string& text);

}  // namespace aplib::test
