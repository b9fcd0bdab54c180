// SPDX-License-Identifier: MIT
// Instance: a program's private copy in one cell. Life: make() maps, relocates and protects; run() on the cell's own task runs constructors and the entry; the last context that leaves
// runs exit handlers and destructors; then it is unmapped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "loader/context.hpp"
#include "loader/host.hpp"
#include "loader/libc/state.hpp"
#include "loader/program.hpp"

namespace aplib::loader {

/// Where an instance's images go.
struct AddressRange {
  char* low = nullptr;  ///< null: anywhere
  std::uint64_t bytes = 0;
};

/// What main() gets. Copied.
struct Arguments {
  std::vector<std::string> argv;         ///< argv[0] is the program's name.
  std::vector<std::string> environment;  ///< "NAME=value"
};

/// An image at its place in an instance.
struct LoadedImage {
  const ElfFile* file = nullptr;
  const RelocationPlan* plan = nullptr;
  char* base = nullptr;
};

/// How a program ended.
struct Outcome {
  int status = 0;
  bool jumped = false;  ///< By exit() or the like, not by return.
};

class Instance {
 public:
  /// Maps and relocates a copy of `program` at the first free place in `range`. `host` must outlive it. Runs no code of the program but IFUNC resolvers. Throws Error(exhausted) when the
  /// kernel's limit on mappings or memory is met, Error(failed) when the file was changed. Call from: any thread.
  static std::unique_ptr<Instance> make(std::shared_ptr<const Program> program, Host& host, AddressRange range,
                                        Arguments arguments);
  /// Unmaps. Only when no context is left and finish() has run (or the program never started).
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  /// Constructors (dependencies first), then `entry`; until it returns or the program calls exit(), _exit(), quick_exit(). Exceptions pass through.
  /// Call from: the task that owns `context`, once. Switches tasks: as the program does.
  Outcome run(TaskContext& context, const std::function<int(Instance&)>& entry);
  /// Exit handlers, destructors, flush of streams: what exit() does. Nothing if _exit() or abort() ended the program. Call from: the last
  /// task of the instance. Exceptions pass through; exit() inside is ignored as libc does.
  void finish(TaskContext& context);

  /// Ends the program as exit() (runs_handlers) or _exit() do: from the main task jumps to run(), from a task that the program spawned ends that task. Call from: a flow of the instance.
  [[noreturn]] void leave(int status, bool runs_handlers);

  [[nodiscard]] const Program& program() const noexcept { return *program_; }
  [[nodiscard]] Host& host() const noexcept { return *host_; }
  [[nodiscard]] LibcState& libc() noexcept { return libc_; }
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }
  [[nodiscard]] int argc() const noexcept { return static_cast<int>(arguments_.argv.size()); }
  [[nodiscard]] char** argv() noexcept { return argv_.data(); }  ///< Stays where it is; the program may change it.
  /// Program's images, then what it loaded by dlopen (empty slots: file null, after dlclose).
  [[nodiscard]] const std::vector<LoadedImage>& images() const noexcept { return images_; }
  [[nodiscard]] char* address_of(Program::Definition definition) const noexcept {
    return images_.front().base + definition.address;
  }
  /// The image that `address` lies in, or null. Call from: flows of the instance, unwinder.
  [[nodiscard]] const LoadedImage* image_at(const void* address) const noexcept;

  /// Contexts of the instance come and go by these; TaskContext calls them. `left` says whether that was the last one. Call from: any flow of the instance.
  void entered(TaskContext& context);
  bool left(TaskContext& context) noexcept;
  /// Calls `function` for every context. Call from: a flow of the instance.
  void for_each_context(const std::function<void(TaskContext&)>& function);

 private:
  Instance() = default;

  std::shared_ptr<const Program> program_;
  Host* host_ = nullptr;
  Arguments arguments_;
  std::vector<char*> argv_;
  std::vector<LoadedImage> images_;
  AddressRange mapped_;
  LibcState libc_;
  std::mutex contexts_mutex_;
  std::vector<TaskContext*> contexts_;
  bool constructed_ = false;
  bool runs_handlers_ = true;
};

}  // namespace aplib::loader
