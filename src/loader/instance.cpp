// SPDX-License-Identifier: MIT
#include "loader/instance.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "aplib/error.hpp"
#include "loader/context.hpp"
#include "loader/known_images.hpp"
#include "loader/libc/dl.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "memory/slot_heap.hpp"

namespace aplib::loader {

namespace {

constexpr std::size_t plugins_reserved = 256;

}  // namespace

std::unique_ptr<Instance> Instance::make(std::shared_ptr<const Program> program, CellServices& services,
                                         AddressRange range, Arguments arguments) {
  // What the runtime has open before any program runs.
  [[maybe_unused]] static const bool prepared =
      (os::guard_open_descriptors(), libc::note_inherited_descriptors(), libc::prepare_walks(), true);
  std::unique_ptr<Instance> instance(new Instance);
  services.instance_begins();
  instance->services_ = &services;
  instance->gone_.services = &services;
  instance->arguments_ = std::move(arguments);
  for (std::string& argument : instance->arguments_.argv) instance->argv_.push_back(argument.data());
  instance->argv_.push_back(nullptr);

  instance->reserve(std::move(program), range);
  libc::start_libc(*instance);
  for (const LoadedImage& image : instance->images_) instance->map_image(image);
  instance->give_rooms();
  for (const LoadedImage& image : instance->images_) instance->relocate_image(image);
  instance->copy_data();
  for (const LoadedImage& image : instance->images_) instance->finish_image(image);
  instance->debugger_.tell();
  return instance;
}

void Instance::try_out(std::shared_ptr<const Program> program) {
  Instance trial;
  trial.reserve(std::move(program), {});
  for (const LoadedImage& image : trial.images_) trial.map_image(image);
}

void Instance::reserve(std::shared_ptr<const Program> program, AddressRange range) {
  program_ = std::move(program);
  const Program& plan = *program_;
  for (const Image& image : plan.images()) image.file->check_unchanged();
  home_ = range;
  // Other threads of the program may look at images while one of them loads more.
  if (plan.binds("dlopen")) images_.reserve(plan.images().size() + plugins_reserved);
  range_ = ReservedRange(plan.span(), plan.alignment(), range.low, range.bytes);
  for (std::size_t i = 0; i < plan.images().size(); ++i) {
    const Image& image = plan.images()[i];
    images_.push_back(
        {image.file.get(), &image.plan, range_.base() + plan.place(i), image.module, image.static_tls_offset});
  }
}

Instance::~Instance() {
  for (const LoadedImage& image : images_) {
    if (image.file != nullptr) remove_image(image.base);
  }
  if (services_ == nullptr || program_ == nullptr || !program_->is_reached()) return;
  services_->keep(std::move(range_));
  for (Plugged& plugged : plugged_) services_->keep(std::move(plugged.range));
}

void Instance::begin_threads() {
  if (SlotHeap* heap = slot_heap()) heap->share();
  services_->begin_threads(program_ != nullptr && program_->asks_for_threads());
}

void Instance::start_in(const std::string& folder) {
  os::GuardedFd directory(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) {
    throw Error(Errc::failed,
                fmt::format("cannot work in folder {}: {}; create it first", folder, std::strerror(errno)));
  }
  libc_.thread_directory_id = os::id_of_directory(directory.get());
  libc_.thread_directory = std::move(directory);
}

Outcome Instance::run(std::unique_ptr<Instance> owned, const std::function<int(Instance&)>& entry,
                      const std::function<void(ProgramContext*)>& enter) {
  Instance& self = *owned;
  auto* context = new TaskContext(self);
  owned.release();  // from here on its contexts own it
  self.main_ = context;
  struct Entered {
    const std::function<void(ProgramContext*)>& enter;
    ~Entered() { enter(nullptr); }
  } const entered{enter};
  enter(context);
  if (context->swaps) swap_thread_state(nullptr, context);
  const auto [low, top] = self.services().stack();
  self.allow_code_on(low, top);
  self.libc_.cpu_before = self.services().computed();
  Outcome outcome;
  try {
    outcome = until_exit(*context, [&self, &entry] {
      self.construct();
      return entry(self);
    });
    if (context->ends_as_thread) {
      outcome = until_exit(*context, [context] {
        libc::run_thread_exits(*context);
        libc::run_key_destructors(*context);
        libc::await_threads(*context->instance);
        return 0;
      });
    }
    if (!outcome.jumped) {
      self.runs_handlers_ = true;
      libc::note_exit_status(self, outcome.status);
    }
  } catch (...) {
    // Out of constructors, the entry, or the end: no more code of the program, but its output is shown.
    leave_for_good(context);
    throw;
  }
  leave_for_good(context);
  return outcome;
}

void Instance::leave(int status, bool runs_handlers) {
  TaskContext* context = here();
  if (context == main_ || context == finisher_) runs_handlers_ = runs_handlers;
  if (context == nullptr || context->exit_frame == nullptr) {
    services_->task_exited(status);
    pthread_exit(nullptr);
  }
  exit_to_frame(*context, status);
}

void Instance::allow_code_on(char* low, char* top) noexcept {
  if (low == nullptr || !program_->wants_executable_stack()) return;
  const auto first = page_down(reinterpret_cast<std::uintptr_t>(low));
  const auto end = page_up(reinterpret_cast<std::uintptr_t>(top));
  if (::mprotect(reinterpret_cast<void*>(first), end - first, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
    services().warn("the system allows no code on stacks, which the program wants (nested functions)");
}

void Instance::terminate() const {
  for (const LoadedImage& image : images_) {
    const Symbol* const found = image.file != nullptr ? image.file->find("_ZSt9terminatev") : nullptr;
    if (found != nullptr && found->defined) reinterpret_cast<void (*)()>(image.base + found->value)();
  }
}

const LoadedImage* Instance::image_of_module(std::uint32_t module) const noexcept {
  const auto found = std::ranges::find_if(
      images_, [module](const LoadedImage& image) { return image.file != nullptr && image.module == module; });
  return found != images_.end() ? &*found : nullptr;
}

const char* Instance::changed_file() const noexcept {
  const auto found = std::ranges::find_if(
      images_, [](const LoadedImage& image) { return image.file != nullptr && image.file->was_written_to(); });
  return found != images_.end() ? found->file->path().c_str() : nullptr;
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

void Instance::left(TaskContext& context) noexcept {
  const std::lock_guard lock(contexts_mutex_);
  std::erase(contexts_, &context);
}

bool Instance::left_last(TaskContext& context) noexcept {
  const std::lock_guard lock(contexts_mutex_);
  std::erase(contexts_, &context);
  if (context.of_pool || finisher_ != nullptr) return false;
  if (&context == main_) ends_threads_ = true;
  const bool is_last = std::ranges::all_of(
      contexts_, [this](const TaskContext* other) { return other->of_pool || (ends_threads_ && other->of_thread); });
  if (is_last) finisher_ = &context;
  return is_last;
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
             libc::run_thread_exits(*context);
             if (context != context->instance->main_) libc::run_key_destructors(*context);
             return 0;
           }).jumped) {
    }
  }
  if (self.left_last(*context)) {
    if (!self.finish()) self.gone_.tell();
  } else if (is_main) {
    // What the program has written so far is shown even if what goes on never ends.
    static_cast<void>(until_exit(*context, [&self] { return libc::flush_stream(self, nullptr); }));
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

// An executable that asks has it among its constants, as the dynamic linker has.
void Instance::tell_stack_end() noexcept {
  const LoadedImage& program = images_.front();
  const Range constants = program.file->relro();
  char* const low = program.base + constants.address;
  const auto* const place = reinterpret_cast<const char*>(libc_.stack_end.place());
  const bool is_constant = place >= low && place < low + constants.bytes;
  if (is_constant && mprotect(low, constants.bytes, PROT_READ | PROT_WRITE) != 0) return;
  *libc_.stack_end = services_->stack().top;
  if (is_constant) mprotect(low, constants.bytes, PROT_READ);
}

void Instance::construct() {
  tell_stack_end();
  const std::vector<std::uint32_t>& order = program_->initialization_order();
  const LoadedImage& program = images_.front();
  using Function = void (*)(int, char**, char**);
  if (const Range functions = program.file->preinit_array(); program.file->is_executable() && !functions.empty()) {
    for (std::uint64_t i = 0; i < functions.bytes / 8; ++i)
      reinterpret_cast<Function*>(program.base + functions.address)[i](argc(), argv(), *libc_.environ);
  }
  while (constructed_ < order.size()) construct_image(images_[order[constructed_++]]);
}

void Instance::construct_image(const LoadedImage& image) {
  using Function = void (*)(int, char**, char**);
  if (image.file->init() != 0) {
    reinterpret_cast<Function>(image.base + image.file->init())(argc(), argv(), *libc_.environ);
  }
  const Range functions = image.file->init_array();
  for (std::uint64_t i = 0; i < functions.bytes / 8; ++i) {
    const Function function = reinterpret_cast<Function*>(image.base + functions.address)[i];
    if (function != nullptr && function != reinterpret_cast<Function>(-1)) function(argc(), argv(), *libc_.environ);
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
  // Libstdc++ keeps memory for exceptions that are thrown when there is none, until the process ends.
  if (const Symbol* const free = image.file->find("_ZN9__gnu_cxx9__freeresEv"))
    reinterpret_cast<Function>(image.base + free->value)();
}

// On the last flow of the instance. What ended by _exit() or an exception runs no code any more, but what it has
// written is shown.
bool Instance::finish() {
  TaskContext& context = *here();
  bool ended = false;
  // Left where the machine stops before a reader has made room.
  const auto show = [this, &context](bool alone) {
    static_cast<void>(until_exit(context, [this, alone] {
      libc::stop_stdio(*this, alone);
      return 0;
    }));
  };
  try {
    // Each may be left by exit(), which goes on with the rest, or by _exit() and its relatives, which do not.
    const auto run_part = [this, &context](const auto& part) {
      const Outcome outcome = until_exit(context, [&part] {
        part();
        return 0;
      });
      if (outcome.jumped) services_->task_exited(outcome.status);
      return outcome.jumped;
    };
    while (runs_handlers_ && run_part([this] { libc::run_exit_handlers(*this); })) {
    }
    if (runs_handlers_) libc::end_plugins(*this);
    while (runs_handlers_ && constructed_ > 0) {
      const LoadedImage& image = images_[program_->initialization_order()[--constructed_]];
      run_part([this, &image] { destroy_image(image); });
    }
    ended = libc::end_threads(*this);
    libc::abandon_locks(*this);
    libc::undo_semaphores(*this);
  } catch (...) {  // the machine stops
    show(holders_ == 1);
    throw;
  }
  show(ended);
  if (program_->options().account_heap) services_->heap_used(libc::heap_use(*this));
  return ended;
}

// ---------------------------------------------------------------- how an image gets into memory
// Text stays shared with all other instances (file-backed private mappings); only pages that are written become the
// instance's own.

namespace {

void map(const ElfFile& file, void* place, std::uint64_t bytes, int protection, int flags, int descriptor,
         std::uint64_t offset) {
  if (mmap(place, bytes, protection, flags | MAP_FIXED, descriptor, static_cast<off_t>(offset)) != MAP_FAILED) return;
  const int error = errno;
  const char* remedy = error == ENOMEM ? "start fewer cells, or raise vm.max_map_count (sysctl)"
                                       : "look whether the file may be mapped (noexec mount?)";
  throw Error(
      error == ENOMEM ? Errc::exhausted : Errc::failed,
      fmt::format("{}: cannot map {} KiB of it: {}; {}", file.path(), bytes / 1024, std::strerror(error), remedy));
}

std::uint64_t& word(char* base, std::uint64_t offset) noexcept {
  return *reinterpret_cast<std::uint64_t*>(base + offset);
}

}  // namespace

void Instance::map_image(const LoadedImage& image) {
  const ElfFile& file = *image.file;
  for (const Segment& segment : file.segments()) {
    const std::uint64_t begin = page_down(segment.address);
    const std::uint64_t file_end = segment.address + segment.file_bytes;
    const std::uint64_t memory_end = page_up(segment.address + segment.memory_bytes);
    std::uint64_t mapped_end = begin;
    if (segment.file_bytes != 0) {
      mapped_end = page_up(file_end);
      map(file, image.base + begin, mapped_end - begin, segment.protection, MAP_PRIVATE, file.descriptor(),
          page_down(segment.offset));
      // The rest of the last page holds what follows in the file.
      if (segment.memory_bytes > segment.file_bytes && (segment.protection & PROT_WRITE) != 0 && mapped_end != file_end)
        std::memset(image.base + file_end, 0, mapped_end - file_end);
    }
    if (memory_end > mapped_end) {
      map(file, image.base + mapped_end, memory_end - mapped_end, segment.protection, MAP_PRIVATE | MAP_ANONYMOUS, -1,
          0);
    }
  }
}

void Instance::relocate_image(const LoadedImage& image) {
  char* const base = image.base;
  const RelocationPlan& plan = *image.plan;
  const auto own = reinterpret_cast<std::uint64_t>(base);
  for (const std::uint64_t offset : plan.packed) word(base, offset) += own;
  for (const auto& store : plan.relative) word(base, store.offset) = own + store.value;
  for (const auto& store : plan.absolute) word(base, store.offset) = store.value;
  for (const auto& store : plan.based)
    word(base, store.offset) = reinterpret_cast<std::uint64_t>(images_[store.image].base) + store.value;
  for (const auto& datum : plan.data)
    word(base, datum.offset) = reinterpret_cast<std::uint64_t>(datum.binding->place(*this)) + datum.value;
}

void Instance::give_rooms() {
  const LoadedImage& program = images_.front();
  for (const auto& room : program.plan->rooms) room.binding->give_room(*this, program.base + room.offset);
  for (const auto& room : program.plan->rooms) room.binding->place(*this);
}

void Instance::copy_data() {
  const LoadedImage& program = images_.front();
  for (const auto& copy : program.plan->copies) {
    const char* from = copy.image == RelocationPlan::of_process ? nullptr : images_[copy.image].base;
    std::memcpy(program.base + copy.offset, from + copy.value, copy.bytes);
  }
}

void Instance::finish_image(const LoadedImage& image) {
  // Resolvers are code of the instance: everything else must be in place.
  using Resolve = std::uint64_t (*)();
  for (const auto& store : image.plan->indirect)
    word(image.base, store.offset) = reinterpret_cast<Resolve>(images_[store.image].base + store.value)();
  const Range relro = image.file->relro();
  if (!relro.empty() && mprotect(image.base + relro.address, relro.bytes, PROT_READ) != 0) {
    throw Error(Errc::exhausted,
                fmt::format("{}: cannot protect its relocated data: {}; raise vm.max_map_count (sysctl)",
                            image.file->path(), std::strerror(errno)));
  }
  add_image(*this, image);
  debugger_.add(image.file->path(), image.base, image.base + image.file->dynamic_address());
}

// ---------------------------------------------------------------- images that come and go while the program runs
// Instance: images that come and go while the program runs.

Surroundings Instance::surroundings() const {
  Surroundings around;
  for (const LoadedImage& image : images_) around.static_tls_offsets.push_back(image.static_tls_offset);
  for (const Image& image : program_->images()) around.files.push_back(image.file);
  for (const Plugged& place : plugged_) {
    const auto index = around.files.size();
    around.files.push_back(place.plugin != nullptr ? place.plugin->images()[index].file : nullptr);
  }
  return around;
}

const Program& Instance::origin_of(std::uint32_t index) const noexcept {
  const std::size_t own = program_->images().size();
  return index < own ? *program_ : *plugged_[index - own].plugin;
}

void Instance::add_static_tls(const LoadedImage& image) {
  if (!image.file->uses_static_tls() || !image.file->tls()) return;
  std::size_t flows = 0;
  for_each_context([&flows](TaskContext&) { ++flows; });
  TaskContext* const context = here();
  if (flows != 1 || context == nullptr) {
    throw Error(Errc::failed,
                fmt::format("{}: its initial-exec thread-locals need a place in every thread from the start, and it is "
                            "loaded by a program that has several threads or tasks; load it before they are made, link "
                            "it with the program, or compile it with -ftls-model=global-dynamic (the default of -fPIC)",
                            image.file->path()));
  }
  start_static_tls(*context, image, true);
}

void Instance::add_plugin(const std::shared_ptr<const Program>& plugin) {
  const std::size_t own = program_->images().size();
  const std::vector<std::uint32_t>& fresh = plugin->initialization_order();
  try {
    for (const std::uint32_t index : fresh) {
      const Image& image = plugin->images()[index];
      image.file->check_unchanged();
      if (images_.size() <= index) images_.resize(index + 1);
      if (plugged_.size() <= index - own) plugged_.resize(index - own + 1);
      plugged_[index - own] = {plugin,
                               ReservedRange(image.file->span(), image.file->alignment(), home_.low, home_.bytes)};
      images_[index] = {image.file.get(), &image.plan, plugged_[index - own].range.base(), image.module,
                        image.static_tls_offset};
    }
    for (const std::uint32_t index : fresh) map_image(images_[index]);
    for (const std::uint32_t index : fresh) relocate_image(images_[index]);
    for (const std::uint32_t index : fresh) add_static_tls(images_[index]);
    for (const std::uint32_t index : fresh) finish_image(images_[index]);
  } catch (...) {
    for (const std::uint32_t index : fresh) {
      if (index < images_.size() && images_[index].file != nullptr) drop_image(index);
    }
    throw;
  }
  debugger_.tell();
}

void Instance::drop_image(std::uint32_t index) noexcept {
  LoadedImage& image = images_[index];
  for_each_context([&image](TaskContext& context) {
    if (image.module >= context.tls_blocks.size()) return;
    std::free(std::exchange(context.tls_blocks[image.module], nullptr));
  });
  debugger_.remove(image.base);
  debugger_.tell();
  remove_image(image.base);
  image = {};
  plugged_[index - program_->images().size()] = {};
}

}  // namespace aplib::loader
