// SPDX-License-Identifier: MIT
// bench-load WHAT HOW FILE: prints one number. apbench's `load` runs it. It is a separate program because it uses the
// loader directly, and so that each measurement starts in a fresh process.
//   WHAT  time (us for one more), memory (private kB of one more), text (private kB of text of all), count (how
//   many there can be, at most 10,000), unload (us), throw (us, 1,000 loaded)
//   HOW   instance, dlmopen, copy (the file is copied, then dlopened)
#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "loader/instance.hpp"
#include "memory/slot.hpp"

namespace {

using namespace aplib::loader;
using Touch = int(int);

constexpr int count_max = 10'000;

class QuietHost : public CellServices {
 public:
  std::string name() override { return "bench"; }
  void write(Stream, std::span<const char>) override {}
  void flush(Stream) override {}
  int input() override { return -1; }
  void sleep(std::chrono::nanoseconds) override {}
  void yield() override {}
  void task_exited(int) override {}
  [[noreturn]] void fail(int, const std::string& text) override { throw std::runtime_error(text); }
  void warn(const std::string&) override {}
};

double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A field of smaps, in kB, summed over mappings whose first line has `mode` in it and, if given, `file`.
double smaps(const std::string& field, const std::string& mode = "", const std::string& file = "") {
  std::ifstream stream("/proc/self/smaps");
  double sum = 0;
  bool wanted = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.find('-') < line.find(' ')) {
      wanted = line.find(mode) != line.npos && line.find(file) != line.npos;
    } else if (wanted && line.starts_with(field + ":")) {
      sum += std::stod(line.substr(field.size() + 1));
    }
  }
  return sum;
}

/// A way to load a program many times.
class Copies {
 public:
  virtual ~Copies() = default;
  /// Makes one more. False: no more can be made.
  virtual bool more() = 0;
  virtual void* symbol(std::size_t index, const char* name) = 0;
  virtual void clear() {}
};

class Instances : public Copies {
 public:
  explicit Instances(const std::string& file) : program_(Program::load(file)) { instances_.reserve(count_max); }
  bool more() override {
    const auto cell = static_cast<std::uint32_t>(instances_.size());
    try {
      instances_.push_back(Instance::make(program_, host_,
                                          {aplib::SlotPlan::instances_of(cell), aplib::SlotPlan::instances_bytes()},
                                          {{"program"}, environment_}));
    } catch (const aplib::Error&) {
      return false;
    }
    return true;
  }
  void* symbol(std::size_t index, const char* name) override {
    return instances_[index]->address_of(program_->find(name));
  }
  void clear() override { instances_.clear(); }

 private:
  std::shared_ptr<const Program> program_;
  QuietHost host_;
  std::shared_ptr<const std::vector<std::string>> environment_ = [] {
    auto entries = std::make_shared<std::vector<std::string>>();
    for (char** entry = environ; *entry != nullptr; ++entry) entries->emplace_back(*entry);
    return entries;
  }();
  std::vector<std::unique_ptr<Instance>> instances_;
};

class Namespaces : public Copies {
 public:
  explicit Namespaces(std::string file) : file_(std::move(file)) {}
  bool more() override {
    void* handle = dlmopen(LM_ID_NEWLM, file_.c_str(), RTLD_NOW);
    if (handle != nullptr) handles_.push_back(handle);
    return handle != nullptr;
  }
  void* symbol(std::size_t index, const char* name) override { return dlsym(handles_[index], name); }

 private:
  std::string file_;
  std::vector<void*> handles_;
};

class FileCopies : public Copies {
 public:
  explicit FileCopies(std::string file) : file_(std::move(file)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "bench-load-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + pattern);
    folder_ = pattern;
  }
  ~FileCopies() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  bool more() override {
    const std::string copy = fmt::format("{}/{}.so", folder_, handles_.size());
    std::filesystem::copy_file(file_, copy);
    void* handle = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) handles_.push_back(handle);
    return handle != nullptr;
  }
  void* symbol(std::size_t index, const char* name) override { return dlsym(handles_[index], name); }

 private:
  std::string file_;
  std::string folder_;
  std::vector<void*> handles_;
};

/// Makes up to `wanted` more, and returns how many it made.
int make(Copies& copies, int wanted) {
  int made = 0;
  while (made < wanted && copies.more()) ++made;
  return made;
}

double measure(const std::string& what, const std::string& how, const std::string& file) {
  std::unique_ptr<Copies> copies;
  int wanted = 1000;
  if (how == "instance") {
    copies = std::make_unique<Instances>(file);
  } else if (how == "dlmopen") {
    copies = std::make_unique<Namespaces>(file);
    wanted = 8;
  } else if (how == "copy") {
    copies = std::make_unique<FileCopies>(file);
    wanted = 200;
  } else {
    throw std::runtime_error("HOW is instance, dlmopen or copy");
  }
  if (what == "count") return make(*copies, count_max);
  make(*copies, 1);  // the first one pays for files and tables
  const double memory_before = what == "memory" ? smaps("Private_Dirty") + smaps("Private_Clean", "rw") : 0;
  const double start = microseconds();
  const int made = make(*copies, wanted);
  const double time = (microseconds() - start) / made;
  if (made == 0) throw std::runtime_error("not even two copies could be made");
  if (what == "time") return time;
  if (what == "memory") return (smaps("Private_Dirty") + smaps("Private_Clean", "rw") - memory_before) / made;
  if (what == "text") {
    for (int i = 0; i < made; ++i) reinterpret_cast<Touch*>(copies->symbol(static_cast<std::size_t>(i), "touch"))(i);
    return smaps("Private_Dirty", " r-xp ", file);
  }
  if (what == "unload") {
    const double begin = microseconds();
    copies->clear();
    return (microseconds() - begin) / (made + 1);
  }
  if (what == "throw") {
    constexpr int throws = 20'000;
    auto* const call = reinterpret_cast<Touch*>(copies->symbol(static_cast<std::size_t>(made) / 2, "throw_and_catch"));
    for (int i = 0; i < 100; ++i) call(i);
    const double begin = microseconds();
    for (int i = 0; i < throws; ++i) call(i);
    return (microseconds() - begin) / throws;
  }
  throw std::runtime_error("WHAT is time, memory, text, count, unload or throw");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: bench-load time|memory|text|count|unload|throw instance|dlmopen|copy FILE\n", stderr);
    return 2;
  }
  try {
    fmt::print("{:.3f}\n", measure(argv[1], argv[2], argv[3]));
    std::fflush(stdout);
    _exit(0);  // without unloading thousands of copies
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-load: {}\n", error.what());
    return 1;
  }
}
