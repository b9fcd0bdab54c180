// SPDX-License-Identifier: MIT
// Instance: a program's private copy in one cell. make() maps, relocates and protects it. run(), on the cell's own
// task, runs constructors and the entry. The last context that leaves runs exit handlers and destructors, and unmaps
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "loader/cell_services.hpp"
#include "loader/context.hpp"
#include "loader/known_images.hpp"
#include "loader/libc/state.hpp"
#include "loader/program.hpp"
#include "memory/mapping.hpp"

namespace aplib::loader {

/// Where an instance's images go.
struct AddressRange {
  char* low = nullptr;  ///< null: anywhere
  std::uint64_t bytes = 0;
};

/// What main() gets. Copied.
struct Arguments {
  std::vector<std::string> argv;  ///< argv[0] is the program's name.
  /// "NAME=value". Shared by all instances: a program that changes its environment changes its own list of pointers.
  std::shared_ptr<const std::vector<std::string>> environment;
};

/// An image at its place in an instance.
struct LoadedImage {
  const ElfFile* file = nullptr;
  const RelocationPlan* plan = nullptr;
  char* base = nullptr;
  std::uint32_t module = 0;
  std::int64_t static_tls_offset = 0;
};

class Instance {
 public:
  /// Maps and relocates a copy of `program` at the first free place in `range`. Runs no code of the program but IFUNC
  /// resolvers. Throws Error(exhausted) at the kernel's limit on mappings or memory, Error(failed) when the file was
  /// changed. REQUIRES: `services` outlives it. Call from: any thread.
  static std::unique_ptr<Instance> make(std::shared_ptr<const Program> program, CellServices& services,
                                        AddressRange range, Arguments arguments);
  /// Maps a copy somewhere and unmaps it, so that what hinders every instance shows before one is made. Throws as
  /// make(). Call from: any thread.
  static void try_out(std::shared_ptr<const Program> program);
  /// Unmaps. Only when no context is left.
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  /// Has the program begin in this folder instead of the process's. Throws Error(failed). Call from: before run().
  void start_in(const std::string& folder);

  /// Runs a program on the calling flow, from the first constructor to the last destructor. Returns, and gives the
  /// instance up, when the program returns, calls exit(), or lets an exception out, which passes through. Tasks and
  /// threads that it made may go on; the last of all frees the instance. `entry` gets the instance. `enter` makes a
  /// context the calling flow's (null: none). Call from: a flow without a context. Switches tasks: as the program does.
  static Outcome run(std::unique_ptr<Instance> instance, const std::function<int(Instance&)>& entry,
                     const std::function<void(ProgramContext*)>& enter);

  /// Ends the program as exit() (runs_handlers) or _exit() does. The main task jumps to run(); a task or thread that
  /// the program made ends alone. Call from: a flow of the instance.
  [[noreturn]] void leave(int status, bool runs_handlers);

  [[nodiscard]] const Program& program() const noexcept { return *program_; }
  [[nodiscard]] CellServices& services() const noexcept { return *services_; }
  [[nodiscard]] libc::LibcState& libc() noexcept { return libc_; }
  /// The cell's heap, if the program has its memory there (Program::has_slot_heap), else null. Call from: flows of the
  /// instance that have a context.
  [[nodiscard]] SlotHeap* slot_heap() {
    SlotHeap* heap = heap_.load(std::memory_order_relaxed);  // relaxed: the cell makes it known as a whole
    if (heap == nullptr && program_->has_slot_heap()) [[unlikely]] {
      heap = services_->heap(program_->has_low_memory());
      heap_.store(heap, std::memory_order_relaxed);
      if (!program_->options().account_heap) uncounted_heap_.store(heap, std::memory_order_relaxed);
    }
    return heap;
  }
  /// made_heap(), where nothing is counted.
  [[nodiscard]] SlotHeap* uncounted_heap() const noexcept { return uncounted_heap_.load(std::memory_order_relaxed); }
  /// The same if the program has used it. Call from: any flow of the instance.
  [[nodiscard]] SlotHeap* made_heap() const noexcept { return heap_.load(std::memory_order_relaxed); }
  /// Flows of the instance are about to run in parallel. Call from: a flow of the instance, before they do.
  void begin_threads();
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }
  [[nodiscard]] int argc() const noexcept { return static_cast<int>(arguments_.argv.size()); }
  [[nodiscard]] char** argv() noexcept { return argv_.data(); }  ///< Stays where it is; the program may change it.
  /// Program's images, then what it loaded by dlopen (empty slots: file null, after dlclose).
  [[nodiscard]] const std::vector<LoadedImage>& images() const noexcept { return images_; }
  [[nodiscard]] char* address_of(Program::Definition definition) const noexcept {
    return images_.front().base + definition.address;
  }
  /// Lets a flow of the instance have code on its stack, if the program wants that.
  void allow_code_on(char* low, char* top) noexcept;
  /// std::terminate() of its runtime of C++, which does not return; returns if it has none of its own. Call from: a
  /// flow of the instance, in a handler of what has left the program.
  void terminate() const;
  /// The image whose thread-locals have this module number, or null.
  [[nodiscard]] const LoadedImage* image_of_module(std::uint32_t module) const noexcept;
  /// The image that `address` lies in, or null. Call from: flows of the instance, unwinder.
  [[nodiscard]] const LoadedImage* image_at(const void* address) const noexcept;

  /// One of its files that was_written_to(); null: none. Async-signal-safe.
  [[nodiscard]] const char* changed_file() const noexcept;

  /// The context of the flow that runs the entry: the program's first thread.
  [[nodiscard]] bool is_main(const TaskContext* context) const noexcept {
    return context != nullptr && context == main_.load();
  }

  /// TaskContext calls this when it comes. Call from: any flow of the instance.
  void entered(TaskContext& context);
  /// `context` does not keep the instance alive: its owner destroys it before the instance's end. Call while another
  /// one lives.
  void disown(TaskContext& context) noexcept;
  /// Calls `function` for every context. Call from: a flow of the instance.
  void for_each_context(const std::function<void(TaskContext&)>& function);
  /// The flow that owns `context` ends. Runs the destructors of its thread-locals and, for the last flow, the end of
  /// the instance. Frees both. Exceptions pass through. Call from: that flow.
  static void leave_for_good(TaskContext* context);
  /// The same for a context whose flow never ran: no code of the program.
  static void drop(TaskContext* context) noexcept;

  /// The steps by which make() and dlopen put an image of images() into reserved addresses; each step is done for all
  /// new images before the next. The last one calls IFUNC resolvers, protects, and makes the image known to unwinder
  /// and debugger. Throw Error.
  void map_image(const LoadedImage& image);
  void relocate_image(const LoadedImage& image);
  void finish_image(const LoadedImage& image);
  /// dlopen: enters, maps and relocates the images that `plugin` brings (Program::load_plugin for the surroundings as
  /// they are). Runs no code of them but IFUNC resolvers. Throws Error, and then nothing has changed. Call from: a flow
  /// of the instance, one at a time.
  void add_plugin(const std::shared_ptr<const Program>& plugin);
  /// dlclose: unmaps image `index`, which a plug-in has brought. REQUIRES: its destructors have run, and no code of it
  /// runs. Call from: a flow of the instance, one at a time.
  void drop_image(std::uint32_t index) noexcept;
  /// What brought image `index`: the program, or a plug-in.
  [[nodiscard]] const Program& origin_of(std::uint32_t index) const noexcept;
  [[nodiscard]] Surroundings surroundings() const;
  /// Runs an image's constructors / destructors. Call from: a flow of the instance. Switches tasks: as they do.
  void construct_image(const LoadedImage& image);
  void destroy_image(const LoadedImage& image);

 private:
  Instance() = default;

  /// A plug-in's initial-exec thread-locals, for the calling flow. Throws Error(failed) if it is not the only one.
  void add_static_tls(const LoadedImage& image);
  /// Addresses for the images of `program`.
  void reserve(std::shared_ptr<const Program> program, AddressRange range);
  /// What executables have room for: data of the instance's own, which is made there, and copies of the libraries'.
  void give_rooms();
  void copy_data();
  void tell_stack_end() noexcept;
  void construct();
  /// False: threads of the program have not ended.
  bool finish();
  void left(TaskContext& context) noexcept;
  /// The same; true: the program ends with it.
  bool left_last(TaskContext& context) noexcept;
  /// A context is gone; the last one's end frees the instance.
  void let_go() noexcept;

  /// First, so that it speaks last, when everything else is gone.
  struct TellHost {
    CellServices* services = nullptr;
    ~TellHost() { tell(); }
    void tell() noexcept {
      if (services != nullptr) services->instance_gone();
      services = nullptr;
    }
  } gone_;
  std::shared_ptr<const Program> program_;
  CellServices* services_ = nullptr;
  Arguments arguments_;
  std::vector<char*> argv_;
  std::vector<LoadedImage> images_;
  AddressRange home_;
  ReservedRange range_;
  struct Plugged {
    std::shared_ptr<const Program> plugin;
    ReservedRange range;
  };
  std::vector<Plugged> plugged_;  // by image, from the first that the program has not
  DebuggerEntries debugger_;      // after range_: goes before the images are unmapped
  libc::LibcState libc_;
  std::atomic<SlotHeap*> heap_{nullptr};
  std::atomic<SlotHeap*> uncounted_heap_{nullptr};
  // None of the atomics is on a hot path, so all have the default order.
  std::atomic<TaskContext*> main_{nullptr};  // the task that runs the entry
  // Counts contexts until the very end of their flows. contexts_ decides which flow runs the end of the program.
  // holders_ decides which one frees: perhaps another, which was still on its way out.
  std::atomic<std::uint32_t> holders_{0};
  std::mutex contexts_mutex_;
  std::vector<TaskContext*> contexts_;
  std::size_t constructed_ = 0;                  // so many of the program's initialization order
  bool ends_threads_ = false;                    // main has ended
  std::atomic<bool> runs_handlers_{false};       // it ended by return or exit(), not by _exit() or an exception
  std::atomic<TaskContext*> finisher_{nullptr};  // runs exit handlers and destructors, or has
};

}  // namespace aplib::loader
