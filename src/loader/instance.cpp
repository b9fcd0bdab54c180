// SPDX-License-Identifier: MIT
#include "loader/instance.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "aplib/error.hpp"
#include "loader/find_object.hpp"
#include "loader/libc/dl.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/start.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/threads.hpp"
#include "loader/thread_state.hpp"
#include "memory/slot_heap.hpp"

namespace aplib::loader {

namespace {

constexpr std::size_t plugins_reserved = 256;

}  // namespace

std::unique_ptr<Instance> Instance::make(std::shared_ptr<const Program> program, Host& host, AddressRange range,
                                         Arguments arguments) {
  std::unique_ptr<Instance> instance(new Instance);
  instance->program_ = std::move(program);
  host.instance_begins();
  instance->host_ = &host;
  instance->gone_.host = &host;
  instance->arguments_ = std::move(arguments);
  for (std::string& argument : instance->arguments_.argv) instance->argv_.push_back(argument.data());
  instance->argv_.push_back(nullptr);

  const Program& plan = *instance->program_;
  for (const Image& image : plan.images()) image.file->check_unchanged();
  instance->home_ = range;
  // Other threads of the program may look at images while one of them loads more.
  if (plan.binds("dlopen")) instance->images_.reserve(plan.images().size() + plugins_reserved);
  instance->range_ = ReservedRange(plan.span(), plan.alignment(), range.low, range.bytes);
  for (std::size_t i = 0; i < plan.images().size(); ++i) {
    const Image& image = plan.images()[i];
    instance->images_.push_back({image.file.get(), &image.plan, instance->range_.base() + plan.place(i), image.module,
                                 image.static_tls_offset});
  }
  start_libc(*instance);
  for (const LoadedImage& image : instance->images_) instance->map_image(image);
  for (const LoadedImage& image : instance->images_) instance->relocate_image(image);
  for (const LoadedImage& image : instance->images_) instance->finish_image(image);
  instance->debugger_.tell();
  return instance;
}

Instance::~Instance() {
  for (const LoadedImage& image : images_) {
    if (image.file != nullptr) remove_image(image.base);
  }
  if (host_ == nullptr || program_ == nullptr || !program_->has_slot_heap()) return;
  host_->keep(std::move(range_));
  for (Plugged& plugged : plugged_) host_->keep(std::move(plugged.range));
}

void Instance::share_heap() {
  if (SlotHeap* heap = slot_heap()) heap->share();
}

void Instance::start_in(const std::string& folder) {
  const int directory = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    throw Error(Errc::failed,
                fmt::format("cannot work in folder {}: {}; create it first", folder, std::strerror(errno)));
  }
  libc_.thread_directory = directory;
}

Outcome Instance::run(std::unique_ptr<Instance> owned, const std::function<int(Instance&)>& entry,
                      const std::function<void(ProgramContext*)>& enter) {
  Instance& self = *owned;
  auto* context = new TaskContext(self);
  owned.release();  // from here on its contexts own it
  self.main_ = context;
  enter(context);
  if (context->swaps) swap_thread_state(nullptr, context);
  Outcome outcome;
  try {
    outcome = until_exit(*context, [&self, &entry] {
      self.construct();
      return entry(self);
    });
    if (!outcome.jumped) {
      self.runs_handlers_ = true;
      note_exit_status(self, outcome.status);
    }
    warn_of_threads(self);
  } catch (...) {
    // Out of constructors, the entry, or the end: no more code of the program, but its output is shown.
    leave_for_good(context);
    enter(nullptr);
    throw;
  }
  leave_for_good(context);
  enter(nullptr);
  return outcome;
}

void Instance::leave(int status, bool runs_handlers) {
  TaskContext* context = here();
  if (context == main_) runs_handlers_ = runs_handlers;
  if (context == nullptr || context->exit_frame == nullptr) {
    host_->task_exited(status);
    pthread_exit(nullptr);
  }
  exit_to_frame(*context, status);
}

const LoadedImage* Instance::image_of_module(std::uint32_t module) const noexcept {
  const auto found = std::ranges::find_if(
      images_, [module](const LoadedImage& image) { return image.file != nullptr && image.module == module; });
  return found != images_.end() ? &*found : nullptr;
}

const LoadedImage* Instance::image_at(const void* address) const noexcept {
  const auto* place = static_cast<const char*>(address);
  const auto found = std::ranges::find_if(images_, [place](const LoadedImage& image) {
    return image.file != nullptr && place >= image.base && place < image.base + image.file->span();
  });
  return found != images_.end() ? &*found : nullptr;
}

// ---------------------------------------------------------------- contexts

void Instance::entered(TaskContext& context) {
  holders_.fetch_add(1);
  const std::lock_guard lock(contexts_mutex_);
  contexts_.push_back(&context);
}

bool Instance::left(TaskContext& context) noexcept {
  const std::lock_guard lock(contexts_mutex_);
  std::erase(contexts_, &context);
  return contexts_.empty();
}

void Instance::disown(TaskContext& context) noexcept {
  left(context);
  holders_.fetch_sub(1);
}

void Instance::for_each_context(const std::function<void(TaskContext&)>& function) {
  const std::lock_guard lock(contexts_mutex_);
  for (TaskContext* context : contexts_) function(*context);
}

void Instance::leave_for_good(TaskContext* context) {
  struct Free {
    TaskContext* context;
    ~Free() {
      Instance* instance = context->instance;
      if (context->swaps) swap_thread_state(context, nullptr);
      current_program_context = nullptr;  // what is asked below is no longer the program's
      delete context;
      instance->let_go();
    }
  } freed{context};
  Instance& self = *context->instance;
  const bool is_main = context == self.main_;
  if (self.runs_handlers_ || !is_main) {
    while (until_exit(*context, [context] {
             run_thread_exits(*context);
             return 0;
           }).jumped) {
    }
  }
  if (self.left(*context)) {
    self.finish();
  } else if (is_main) {
    // What the program has written so far is shown even if the threads that go on never end.
    libc::flush_iostreams(self);
    libc::flush_stream(self, nullptr);
  }
}

void Instance::drop(TaskContext* context) noexcept {
  Instance* instance = context->instance;
  instance->left(*context);
  delete context;
  instance->let_go();
}

void Instance::let_go() noexcept {
  if (holders_.fetch_sub(1) == 1) delete this;
}

// ---------------------------------------------------------------- beginning and end

void Instance::construct() {
  const std::vector<std::uint32_t>& order = program_->initialization_order();
  const LoadedImage& program = images_.front();
  using Function = void (*)(int, char**, char**);
  if (const Range functions = program.file->preinit_array(); program.file->is_executable() && !functions.empty()) {
    for (std::uint64_t i = 0; i < functions.bytes / 8; ++i)
      reinterpret_cast<Function*>(program.base + functions.address)[i](argc(), argv(), libc_.environ);
  }
  while (constructed_ < order.size()) construct_image(images_[order[constructed_++]]);
}

void Instance::construct_image(const LoadedImage& image) {
  using Function = void (*)(int, char**, char**);
  if (image.file->init() != 0) {
    reinterpret_cast<Function>(image.base + image.file->init())(argc(), argv(), libc_.environ);
  }
  const Range functions = image.file->init_array();
  for (std::uint64_t i = 0; i < functions.bytes / 8; ++i) {
    const Function function = reinterpret_cast<Function*>(image.base + functions.address)[i];
    if (function != nullptr && function != reinterpret_cast<Function>(-1)) function(argc(), argv(), libc_.environ);
  }
}

void Instance::destroy_image(const LoadedImage& image) {
  using Function = void (*)();
  const Range functions = image.file->fini_array();
  for (std::uint64_t i = functions.bytes / 8; i-- > 0;) {
    const Function function = reinterpret_cast<Function*>(image.base + functions.address)[i];
    if (function != nullptr && function != reinterpret_cast<Function>(-1)) function();
  }
  if (image.file->fini() != 0) reinterpret_cast<Function>(image.base + image.file->fini())();
}

// On the last flow of the instance. What ended by _exit() or an exception runs no code any more, but what it has written is shown.
void Instance::finish() {
  TaskContext& context = *here();
  if (runs_handlers_) {
    while (until_exit(context, [this] {
             run_exit_handlers(*this);
             return 0;
           }).jumped) {
    }
    libc::end_plugins(*this);
    while (constructed_ > 0) {
      const LoadedImage& image = images_[program_->initialization_order()[--constructed_]];
      until_exit(context, [this, &image] {
        destroy_image(image);
        return 0;
      });
    }
  }
  libc::stop_stdio(*this);
  if (program_->options().account_heap) host_->heap_used(heap_use(*this));
}

}  // namespace aplib::loader
