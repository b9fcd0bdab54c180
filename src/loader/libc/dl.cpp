// SPDX-License-Identifier: MIT
// dlopen and its relatives: the scopes in which names are looked up, and the end of plug-ins.
#include "loader/libc/dl.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/known_images.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/program.hpp"

namespace aplib::loader::libc {

// ---------------------------------------------------------------- scopes and handles

std::uint32_t index_of(const Instance& instance, const LoadedImage& image) noexcept {
  return static_cast<std::uint32_t>(&image - instance.images().data());
}

std::vector<std::uint32_t> global_scope(const Instance& instance, const DlState& state) {
  std::vector<std::uint32_t> scope = instance.program().group();
  for (const DlHandle& handle : state.handles) {
    if (handle.kind != DlHandle::Kind::images || !handle.global) continue;
    for (const std::uint32_t index : handle.group) {
      if (std::ranges::find(scope, index) == scope.end()) scope.push_back(index);
    }
  }
  return scope;
}

std::vector<std::uint32_t> scope_of(const Instance& instance, const DlState& state, std::uint32_t index) {
  std::vector<std::uint32_t> scope = global_scope(instance, state);
  // What a plug-in sees besides is its group: that of the handle that brought it, the oldest of those that name it.
  for (const DlHandle& handle : state.handles) {
    if (std::ranges::find(handle.group, index) == handle.group.end()) continue;
    for (const std::uint32_t other : handle.group) {
      if (std::ranges::find(scope, other) == scope.end()) scope.push_back(other);
    }
    break;
  }
  return scope;
}

void* address_of(const Instance& instance, std::uint32_t index, const Symbol& symbol) {
  const LoadedImage& image = instance.images()[index];
  if (symbol.absolute) return reinterpret_cast<void*>(symbol.value);
  if (symbol.type == STT_TLS) {
    if (image.file->uses_static_tls())
      return static_cast<char*>(__builtin_thread_pointer()) + image.static_tls_offset + symbol.value;
    const TlsIndex place{own_module(image.module), symbol.value};
    return tls_get_addr(&place);
  }
  char* const address = image.base + symbol.value;
  if (symbol.type == STT_GNU_IFUNC) return reinterpret_cast<void* (*)()>(address)();
  return address;
}

DlHandle* find_handle(DlState& state, const void* handle) noexcept {
  const auto found = std::ranges::find_if(state.handles, [handle](const DlHandle& one) { return &one == handle; });
  return found != state.handles.end() ? &*found : nullptr;
}

void set_error(DlState& state, std::string text) {
  state.error = std::move(text);
  state.failed = true;
}

void end_plugins(Instance& instance) {
  DlState* const state = instance.libc().dl.part;
  if (state == nullptr) return;
  while (!state->construction_order.empty()) {
    const std::uint32_t index = state->construction_order.back();
    state->construction_order.pop_back();
    const LoadedImage image = instance.images()[index];
    until_exit(*here(), [&instance, &image] {
      instance.destroy_image(image);
      return 0;
    });
  }
}
// Dlopen, dlsym and dlclose inside an instance. A file that is not the system's is loaded into the instance alone;
// the system's are shared by the process. Source: POSIX.1-2017 dlopen, dlsym, dlclose, dlerror; Linux man-pages
// dlopen(3), dlsym(3).

namespace {

/// An instance and the image whose code calls.
struct Caller {
  Instance* instance = nullptr;
  std::uint32_t image = 0;  ///< The program's own for calls from elsewhere (a callback of the system's libraries).

  explicit Caller(const void* address) : instance(calling(address)) {
    if (instance == nullptr) return;
    if (const LoadedImage* found = instance->image_at(address)) image = index_of(*instance, *found);
  }
};

DlState& dl_state_of(Instance& instance) { return shared_part(instance.libc().dl); }

// ---------------------------------------------------------------- dlopen

DlHandle& new_handle(DlState& state, DlHandle::Kind kind, std::string path) {
  DlHandle& handle = state.handles.emplace_back();
  handle.kind = kind;
  handle.path = std::move(path);
  handle.map.l_name = handle.path.data();
  return handle;
}

void* open_program(Instance& instance, DlState& state) {
  for (DlHandle& handle : state.handles) {
    if (handle.kind == DlHandle::Kind::program) return &handle;
  }
  DlHandle& handle = new_handle(state, DlHandle::Kind::program, instance.program().path());
  const LoadedImage& image = instance.images().front();
  handle.map.l_addr = reinterpret_cast<ElfW(Addr)>(image.base);
  handle.map.l_ld = reinterpret_cast<ElfW(Dyn)*>(image.base + image.file->dynamic_address());
  return &handle;
}

void* open_system(DlState& state, void* system, const std::string& path, int flags) {
  const auto known =
      std::ranges::find_if(state.handles, [system](const DlHandle& one) { return one.system == system; });
  DlHandle& handle = known != state.handles.end() ? *known : new_handle(state, DlHandle::Kind::system, path);
  if (handle.system == nullptr) {
    handle.system = system;
    const auto* map = static_cast<const link_map*>(system);
    handle.map.l_addr = map->l_addr;
    handle.map.l_ld = map->l_ld;
  }
  handle.global = handle.global || (flags & RTLD_GLOBAL) != 0;
  ++handle.count;
  return &handle;
}

/// Images that image `index` of `plugin` cannot do without: those it is bound to and those it names.
std::vector<std::uint32_t> needs_of(const Instance& instance, const Program& plugin, std::uint32_t index) {
  std::vector<std::uint32_t> needs;
  const RelocationPlan& plan = plugin.images()[index].plan;
  for (const auto& store : plan.based) needs.push_back(store.image);
  for (const auto& store : plan.indirect) needs.push_back(store.image);
  for (const std::string_view name : plugin.images()[index].file->needed()) {
    for (const std::uint32_t other : plugin.group()) {
      if (instance.images()[other].file->is_named(name)) needs.push_back(other);
    }
  }
  std::ranges::sort(needs);
  needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
  return needs;
}

/// Fills `handle.needs`: of the images that it reaches, those that plug-ins brought.
void count_needs(const Instance& instance, DlState& state, DlHandle& handle) {
  const auto add = [&](std::uint32_t index) {
    if (index >= instance.program().images().size() && std::ranges::find(handle.needs, index) == handle.needs.end())
      handle.needs.push_back(index);
  };
  add(handle.group.front());
  for (std::size_t at = 0; at < handle.needs.size(); ++at) {
    DlState::Brought& brought = state.brought[handle.needs[at]];
    ++brought.uses;
    for (const std::uint32_t index : brought.needs) add(index);
  }
}

/// The handle of an image that is there already, or null.
DlHandle* handle_of(DlState& state, std::uint32_t image) {
  for (DlHandle& handle : state.handles) {
    if (handle.kind == DlHandle::Kind::images && handle.group.front() == image) return &handle;
  }
  return nullptr;
}

/// The first image for which `is_it(file)` holds; else the number of images.
std::uint32_t image_of(const Instance& instance, const DlState& state, const auto& is_it) {
  const auto& images = instance.images();
  for (std::uint32_t i = 0; i < images.size(); ++i) {
    if (images[i].file == nullptr || !is_it(*images[i].file)) continue;
    const auto brought = state.brought.find(i);
    if (brought == state.brought.end() || !brought->second.closing) return i;
  }
  return static_cast<std::uint32_t>(images.size());
}

DlHandle& new_image_handle(const Instance& instance, DlState& state, std::vector<std::uint32_t> group) {
  const LoadedImage& image = instance.images()[group.front()];
  DlHandle& handle = new_handle(state, DlHandle::Kind::images, image.file->path());
  handle.group = std::move(group);
  handle.map.l_addr = reinterpret_cast<ElfW(Addr)>(image.base);
  handle.map.l_ld = reinterpret_cast<ElfW(Dyn)*>(image.base + image.file->dynamic_address());
  return handle;
}

/// Image `index` with the images that it needs, breadth first.
std::vector<std::uint32_t> group_of(const Instance& instance, const DlState& state, std::uint32_t index) {
  std::vector<std::uint32_t> group{index};
  for (std::size_t at = 0; at < group.size(); ++at) {
    for (const std::string_view name : instance.images()[group[at]].file->needed()) {
      const std::uint32_t other =
          image_of(instance, state, [name](const ElfFile& file) { return file.is_named(name); });
      if (other < instance.images().size() && std::ranges::find(group, other) == group.end()) group.push_back(other);
    }
  }
  return group;
}

void apply_flags(DlState& state, DlHandle& handle, int flags) {
  handle.global = handle.global || (flags & RTLD_GLOBAL) != 0;
  if ((flags & RTLD_NODELETE) != 0) {
    for (const std::uint32_t index : handle.needs) state.brought[index].stays = true;
  }
}

void* open_present(Instance& instance, DlState& state, std::uint32_t image, int flags) {
  DlHandle* handle = handle_of(state, image);
  if (handle == nullptr) {
    handle = &new_image_handle(instance, state, group_of(instance, state, image));
    count_needs(instance, state, *handle);
  }
  ++handle->count;
  apply_flags(state, *handle, flags);
  return handle;
}

/// What open_file() leaves to do outside the mutex.
struct Opened {
  DlHandle* handle = nullptr;
  std::vector<std::uint32_t> to_construct;
};

/// Under the mutex. Null handle: RTLD_NOLOAD, and it is not there. Throws Error.
Opened open_file(const Caller& caller, DlState& state, const std::string& name, int flags) {
  Instance& instance = *caller.instance;
  const bool only_present = (flags & RTLD_NOLOAD) != 0;
  if (name.find('/') == std::string::npos) {
    const std::uint32_t there = image_of(instance, state, [&name](const ElfFile& file) { return file.is_named(name); });
    if (there < instance.images().size())
      return {static_cast<DlHandle*>(open_present(instance, state, there, flags)), {}};
    if (only_present) {
      void* system = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
      return {system != nullptr ? static_cast<DlHandle*>(open_system(state, system, name, flags)) : nullptr, {}};
    }
  }
  const Requester program{instance.images().front().file, nullptr};
  const Requester asked_by{instance.images()[caller.image].file, caller.image == 0 ? nullptr : &program};
  const Library library = find_library(name, asked_by, instance.program().options().sharing);
  if (library.sharing == Sharing::shared)
    return {static_cast<DlHandle*>(open_system(state, library.handle, library.path, flags)), {}};
  const FileIdentity& identity = library.file->identity();
  const std::uint32_t there =
      image_of(instance, state, [&identity](const ElfFile& file) { return file.identity() == identity; });
  if (there < instance.images().size())
    return {static_cast<DlHandle*>(open_present(instance, state, there, flags)), {}};
  if (only_present) return {};

  Surroundings around = instance.surroundings();
  around.global = global_scope(instance, state);
  around.own_first = (flags & RTLD_DEEPBIND) != 0;
  const auto plugin = Program::load_plugin(instance.program(), around, library.file, asked_by);
  instance.add_plugin(plugin);
  DlHandle& handle = new_image_handle(instance, state, plugin->group());
  for (const std::uint32_t index : plugin->initialization_order())
    state.brought[index].needs = needs_of(instance, *plugin, index);
  count_needs(instance, state, handle);
  handle.count = 1;
  apply_flags(state, handle, flags);
  handle.constructor = here();
  return {&handle, plugin->initialization_order()};
}

void construct(Instance& instance, DlState& state, const Opened& opened) {
  struct Done {
    DlHandle* handle;
    ~Done() { handle->constructor = nullptr; }
  } done{opened.handle};
  for (const std::uint32_t index : opened.to_construct) {
    {
      const std::lock_guard lock(state.mutex);
      state.construction_order.push_back(index);
    }
    instance.construct_image(LoadedImage(instance.images()[index]));
  }
}

/// No cancellation point, as in libc: a library is loaded as a whole, or not.
void* open_of(const Caller& caller, const char* name, int flags) {
  const os::CancellationDisabled uncancelled;
  Instance& instance = *caller.instance;
  DlState& state = dl_state_of(instance);
  Opened opened;
  {
    const std::lock_guard lock(state.mutex);
    if ((flags & (RTLD_LAZY | RTLD_NOW)) == 0) {
      set_error(state, "invalid mode for dlopen(): pass RTLD_NOW or RTLD_LAZY");
      return nullptr;
    }
    if (name == nullptr || *name == '\0') return open_program(instance, state);
    try {
      opened = open_file(caller, state, name, flags);
    } catch (const std::exception& error) {
      set_error(state, error.what());
      return nullptr;
    }
    if (opened.handle == nullptr) return nullptr;
  }
  if (!opened.to_construct.empty()) {
    construct(instance, state, opened);
  } else {
    // Another task loads it and is still in its constructors, which may wait for something.
    while (opened.handle->constructor != nullptr && opened.handle->constructor != here()) instance.services().yield();
  }
  return opened.handle;
}

// ---------------------------------------------------------------- dlclose

/// A thread_local of the image is still to be destroyed, perhaps by code of another (libstdc++'s, for a string).
bool has_thread_exits(Instance& instance, const LoadedImage& image) {
  bool found = false;
  const auto is_inside = [&image](const void* address) {
    const auto* const place = static_cast<const char*>(address);
    return place >= image.base && place < image.base + image.file->span();
  };
  instance.for_each_context([&](const TaskContext& context) {
    for (const TaskContext::ThreadExit& exit : context.thread_exits)
      found = found || is_inside(exit.dso) || is_inside(reinterpret_cast<const void*>(exit.function));
  });
  return found;
}

/// Takes the handle out; images that nobody needs any more, last constructed first.
std::vector<std::uint32_t> give_up(Instance& instance, DlState& state, DlHandle& handle) {
  for (const std::uint32_t index : handle.needs) --state.brought[index].uses;
  state.handles.remove_if([&handle](const DlHandle& one) { return &one == &handle; });
  std::vector<std::uint32_t> victims;
  for (auto index = state.construction_order.rbegin(); index != state.construction_order.rend(); ++index) {
    DlState::Brought& brought = state.brought[*index];
    if (brought.uses != 0 || brought.stays) continue;
    brought.stays = has_thread_exits(instance, instance.images()[*index]);
    if (brought.stays) continue;
    brought.closing = true;
    victims.push_back(*index);
  }
  std::erase_if(state.construction_order,
                [&victims](std::uint32_t index) { return std::ranges::find(victims, index) != victims.end(); });
  return victims;
}

/// No cancellation point, either.
int close(Instance& instance, void* name) {
  const os::CancellationDisabled uncancelled;
  DlState& state = dl_state_of(instance);
  std::vector<std::uint32_t> victims;
  {
    const std::lock_guard lock(state.mutex);
    DlHandle* handle = find_handle(state, name);
    if (handle == nullptr) {
      set_error(state, "dlclose: invalid handle; pass what dlopen returned and has not been closed");
      return -1;
    }
    if (handle->kind == DlHandle::Kind::program || --handle->count != 0) return 0;
    if (handle->kind == DlHandle::Kind::images) victims = give_up(instance, state, *handle);
  }
  for (const std::uint32_t index : victims) instance.destroy_image(LoadedImage(instance.images()[index]));
  const std::lock_guard lock(state.mutex);
  for (const std::uint32_t index : victims) {
    state.brought.erase(index);
    instance.drop_image(index);
  }
  return 0;
}

// ---------------------------------------------------------------- dlsym

/// A name to look for.
struct Wanted {
  std::string name;
  std::string version;  // empty: the default one

  [[nodiscard]] void* in_system(void* library) const {
    return version.empty() ? dlsym(library, name.c_str()) : dlvsym(library, name.c_str(), version.c_str());
  }
};

void* in_images(const Instance& instance, std::span<const std::uint32_t> scope, const Wanted& wanted, bool& found) {
  for (const std::uint32_t index : scope) {
    const ElfFile* file = instance.images()[index].file;
    const Symbol* symbol = file != nullptr ? file->find(wanted.name, wanted.version) : nullptr;
    if (symbol == nullptr) continue;
    found = true;
    return address_of(instance, index, *symbol);
  }
  return nullptr;
}

void* in_bindings(Instance& instance, const Wanted& wanted) {
  const Binding* binding = find_binding(wanted.name);
  if (binding == nullptr || !instance.program().binds(*binding)) return nullptr;
  switch (binding->kind) {
    case Binding::Kind::function:
      return const_cast<void*>(binding->function);
    case Binding::Kind::datum:
      return binding->place(instance);
  }
  return nullptr;
}

/// Behind the images: bindings, then the system's libraries that `origin` needs, those that dlopen made global, the
/// process.
void* in_process(Instance& instance, const DlState& state, const Program& origin, const Wanted& wanted, bool anywhere) {
  if (void* address = in_bindings(instance, wanted)) return address;
  for (const Library& library : origin.shared_libraries()) {
    if (void* address = wanted.in_system(library.handle)) return address;
  }
  if (!anywhere) return nullptr;
  for (const DlHandle& handle : state.handles) {
    if (handle.kind != DlHandle::Kind::system || !handle.global) continue;
    if (void* address = wanted.in_system(handle.system)) return address;
  }
  return wanted.in_system(RTLD_DEFAULT);
}

void* look_up(const Caller& caller, DlState& state, void* name, const Wanted& wanted, bool& found) {
  Instance& instance = *caller.instance;
  std::vector<std::uint32_t> scope;
  const Program* origin = &instance.program();
  bool anywhere = true;
  if (name == RTLD_DEFAULT || name == RTLD_NEXT) {
    scope = scope_of(instance, state, caller.image);
    if (name == RTLD_NEXT) {
      const auto own = std::ranges::find(scope, caller.image);
      scope.erase(scope.begin(), own != scope.end() ? own + 1 : own);
    }
    origin = &instance.origin_of(caller.image);
  } else {
    const DlHandle* handle = find_handle(state, name);
    if (handle == nullptr) throw Error(Errc::bad_argument, "dlsym: invalid handle; pass what dlopen returned");
    switch (handle->kind) {
      case DlHandle::Kind::system: {
        void* address = wanted.in_system(handle->system);
        void* own = address != nullptr ? in_bindings(instance, wanted) : nullptr;
        found = address != nullptr;
        return own != nullptr ? own : address;
      }
      case DlHandle::Kind::program:
        scope = global_scope(instance, state);
        break;
      case DlHandle::Kind::images:
        scope = handle->group;
        origin = &instance.origin_of(handle->group.front());
        anywhere = false;
    }
  }
  if (void* address = in_images(instance, scope, wanted, found); found) return address;
  void* address = in_process(instance, state, *origin, wanted, anywhere);
  found = address != nullptr;
  return address;
}

void* symbol(const Caller& caller, void* handle, const Wanted& wanted) {
  DlState& state = dl_state_of(*caller.instance);
  const std::lock_guard lock(state.mutex);
  try {
    bool found = false;
    void* address = look_up(caller, state, handle, wanted, found);
    if (found) return address;
    const DlHandle* named = find_handle(state, handle);
    set_error(state, fmt::format("{}: undefined symbol: {}{}{}",
                                 named != nullptr ? named->path : caller.instance->images()[caller.image].file->path(),
                                 wanted.name, wanted.version.empty() ? "" : ", version ", wanted.version));
  } catch (const std::exception& error) {
    set_error(state, error.what());
  }
  return nullptr;
}

// ---------------------------------------------------------------- what programs are bound to

void* own_dlopen(const char* name, int flags) {
  const Caller caller(__builtin_return_address(0));
  return caller.instance == nullptr ? dlopen(name, flags) : open_of(caller, name, flags);
}

void* own_dlmopen(Lmid_t space, const char* name, int flags) {
  const Caller caller(__builtin_return_address(0));
  if (caller.instance == nullptr) return dlmopen(space, name, flags);
  if (space == LM_ID_BASE) return open_of(caller, name, flags);
  DlState& state = dl_state_of(*caller.instance);
  const std::lock_guard lock(state.mutex);
  set_error(
      state,
      fmt::format("dlmopen({}): a second set of system libraries in the process cannot work with cells; use dlopen",
                  name != nullptr ? name : "NULL"));
  return nullptr;
}

void* own_dlsym(void* handle, const char* name) {
  const Caller caller(__builtin_return_address(0));
  return caller.instance == nullptr ? dlsym(handle, name) : symbol(caller, handle, {name, {}});
}

void* own_dlvsym(void* handle, const char* name, const char* version) {
  const Caller caller(__builtin_return_address(0));
  return caller.instance == nullptr ? dlvsym(handle, name, version) : symbol(caller, handle, {name, version});
}

int own_dlclose(void* handle) {
  const Caller caller(__builtin_return_address(0));
  return caller.instance == nullptr ? dlclose(handle) : close(*caller.instance, handle);
}

char* own_dlerror() {
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return dlerror();
  DlState& state = dl_state_of(*instance);
  const std::lock_guard lock(state.mutex);
  if (!std::exchange(state.failed, false)) return nullptr;
  state.told = std::move(state.error);
  return state.told.data();
}

}  // namespace

std::span<const Binding> dl_bindings() {
  static const std::vector<Binding> table = [] {
    std::vector<Binding> all{
        Binding::of("dlopen", own_dlopen), Binding::of("dlmopen", own_dlmopen), Binding::of("dlsym", own_dlsym),
        Binding::of("dlvsym", own_dlvsym), Binding::of("dlclose", own_dlclose), Binding::of("dlerror", own_dlerror),
    };
    const std::span<const Binding> more = dl_address_bindings();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return table;
}

// ---------------------------------------------------------------- addresses
// From addresses to files and names, inside an instance: dladdr, dlinfo, dl_iterate_phdr, backtrace_symbols.
// Source: Linux man-pages dladdr(3), dlinfo(3), dl_iterate_phdr(3), backtrace(3).

namespace {

/// What is known of an address in an instance.
struct Place {
  const LoadedImage* image = nullptr;
  const Symbol* symbol = nullptr;  ///< The one whose extent covers it; null: none does.
  std::uint32_t symbol_index = 0;
};

bool covers(const Symbol& symbol, std::uint64_t offset) noexcept {
  if (!symbol.defined || symbol.absolute || symbol.type == STT_TLS || symbol.name.empty()) return false;
  return symbol.bytes == 0 ? offset == symbol.value : offset >= symbol.value && offset - symbol.value < symbol.bytes;
}

/// Instances other than the caller's too: a host program may be told addresses of its cells.
Place find_place(const void* address) noexcept {
  FoundImage found;
  if (!find_image(address, found)) return {};
  Place place;
  place.image = found.instance->image_at(address);
  if (place.image == nullptr) return {};
  const auto offset = static_cast<std::uint64_t>(static_cast<const char*>(address) - place.image->base);
  const std::vector<Symbol>& symbols = place.image->file->symbols();
  for (std::uint32_t i = 1; i < symbols.size(); ++i) {
    if (!covers(symbols[i], offset) || (place.symbol != nullptr && symbols[i].value < place.symbol->value)) continue;
    place.symbol = &symbols[i];
    place.symbol_index = i;
  }
  return place;
}

void describe(const Place& place, Dl_info& info) noexcept {
  info.dli_fname = place.image->file->path().c_str();
  info.dli_fbase = place.image->base;
  info.dli_sname = nullptr;
  info.dli_saddr = nullptr;
  if (place.symbol == nullptr) return;
  info.dli_sname = place.symbol->name.data();  // ends with a zero, as names in an ELF file do
  info.dli_saddr = place.image->base + place.symbol->value;
}

int own_dladdr(const void* address, Dl_info* info) {
  const Place place = find_place(address);
  if (place.image == nullptr) return dladdr(address, info);
  describe(place, *info);
  return 1;
}

/// The image's symbol table as it lies in memory.
const ElfW(Sym) * symbol_table(const LoadedImage& image) noexcept {
  for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(image.base + image.file->dynamic_address());
       entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) return reinterpret_cast<const ElfW(Sym)*>(image.base + entry->d_un.d_ptr);
  }
  return nullptr;
}

int own_dladdr1(const void* address, Dl_info* info, void** more, int flags) {
  const Place place = find_place(address);
  if (place.image == nullptr) return dladdr1(address, info, more, flags);
  if (flags == RTLD_DL_SYMENT) {
    *more = place.symbol != nullptr ? const_cast<ElfW(Sym)*>(symbol_table(*place.image) + place.symbol_index) : nullptr;
  } else if (flags == RTLD_DL_LINKMAP) {
    *more = nullptr;  // there is none but of what dlopen returned
    FoundImage found;
    if (find_image(address, found) && found.instance->libc().dl.part != nullptr) {
      DlState& state = *found.instance->libc().dl.part;
      const std::lock_guard lock(state.mutex);
      for (DlHandle& handle : state.handles) {
        if (handle.map.l_addr == reinterpret_cast<ElfW(Addr)>(place.image->base)) *more = &handle.map;
      }
    }
    if (*more == nullptr) return 0;
  }
  describe(place, *info);
  return 1;
}

int own_dlinfo(void* name, int request, void* result) {
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return dlinfo(name, request, result);
  DlState& state = shared_part(instance->libc().dl);
  const std::lock_guard lock(state.mutex);
  DlHandle* handle = find_handle(state, name);
  if (handle == nullptr) {
    set_error(state, "dlinfo: invalid handle; pass what dlopen returned");
    return -1;
  }
  if (handle->kind == DlHandle::Kind::system) {
    if (dlinfo(handle->system, request, result) == 0) return 0;
    const char* reason = dlerror();
    set_error(state, reason != nullptr ? reason : "dlinfo failed");
    return -1;
  }
  switch (request) {
    case RTLD_DI_LMID:
      *static_cast<Lmid_t*>(result) = LM_ID_BASE;
      return 0;
    case RTLD_DI_LINKMAP:
      *static_cast<link_map**>(result) = &handle->map;
      return 0;
    case RTLD_DI_ORIGIN: {
      const std::string folder = handle->path.substr(0, handle->path.rfind('/'));
      std::memcpy(result, folder.c_str(), folder.size() + 1);
      return 0;
    }
    case RTLD_DI_TLS_MODID: {
      const std::uint32_t index = handle->group.empty() ? 0 : handle->group.front();
      const LoadedImage& image = instance->images()[index];
      *static_cast<std::size_t*>(result) = image.file->tls() ? own_module(image.module) : 0;
      return 0;
    }
    default:
      set_error(
          state,
          fmt::format("dlinfo: request {} is not supported in a cell; supported are RTLD_DI_LMID, RTLD_DI_LINKMAP, "
                      "RTLD_DI_ORIGIN, RTLD_DI_TLS_MODID",
                      request));
      return -1;
  }
}

using PhdrCallback = int(dl_phdr_info*, std::size_t, void*);

/// The instance's images first, the program at their head as in a process of its own; then the process's.
int own_dl_iterate_phdr(PhdrCallback* callback, void* data) {
  // Not by name: the library offers a dl_iterate_phdr of its own to the process, which lists instances too.
  static const auto of_process = reinterpret_cast<int (*)(PhdrCallback*, void*)>(dlsym(RTLD_NEXT, "dl_iterate_phdr"));
  if (Instance* const instance = calling(__builtin_return_address(0))) {
    for (std::size_t i = 0; i < instance->images().size(); ++i) {  // a callback may load more
      const LoadedImage image = instance->images()[i];
      if (image.file == nullptr) continue;
      dl_phdr_info info{};
      info.dlpi_addr = reinterpret_cast<ElfW(Addr)>(image.base);
      info.dlpi_name = image.file->path().c_str();
      info.dlpi_phdr = reinterpret_cast<const ElfW(Phdr)*>(image.file->program_headers().data());
      info.dlpi_phnum = static_cast<ElfW(Half)>(image.file->program_headers().size() / sizeof(ElfW(Phdr)));
      info.dlpi_adds = instance->images().size();
      info.dlpi_tls_modid = image.file->tls() ? own_module(image.module) : 0;
      if (const int result = callback(&info, sizeof info, data); result != 0) return result;
    }
  }
  return of_process != nullptr ? of_process(callback, data) : 0;
}

}  // namespace

std::string place_in_program(const void* address) {
  // The instruction before: a call that never returns may be a function's last.
  const Place place = find_place(static_cast<const char*>(address) - 1);
  if (place.image == nullptr) return {};
  const std::string_view path = place.image->file->path();
  const std::string_view file = path.substr(path.rfind('/') + 1);
  const auto offset = static_cast<std::uint64_t>(static_cast<const char*>(address) - place.image->base);
  if (place.symbol != nullptr)
    return fmt::format("{}+{:#x} of {}", place.symbol->name, offset - place.symbol->value, file);
  if (const auto function = place.image->file->function_around(offset - 1))
    return fmt::format("{}+{:#x} of {}", function->name, offset - function->address, file);
  return fmt::format("{}+{:#x}", file, offset);
}

namespace {

/// As libc writes it: "file(name+0x12) [0x7f...]".
std::string describe_frame(const void* address) {
  Dl_info info{};
  if (own_dladdr(address, &info) == 0 || info.dli_fname == nullptr) return fmt::format("[{}]", address);
  const bool named = info.dli_sname != nullptr;
  const auto* from = static_cast<const char*>(named ? info.dli_saddr : info.dli_fbase);
  const auto distance = static_cast<const char*>(address) - from;
  return fmt::format("{}({}{}{:#x}) [{}]", info.dli_fname, named ? info.dli_sname : "", distance < 0 ? "-" : "+",
                     distance < 0 ? -distance : distance, address);
}

char** own_backtrace_symbols(void* const* addresses, int count) {
  std::vector<std::string> lines;
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    lines.push_back(describe_frame(addresses[i]));
    bytes += sizeof(char*) + lines.back().size() + 1;
  }
  // One block, which the caller frees: pointers, then texts.
  auto** const block = static_cast<char**>(std::malloc(std::max<std::size_t>(bytes, 1)));
  if (block == nullptr) return nullptr;
  char* text = reinterpret_cast<char*>(block + lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    block[i] = text;
    std::memcpy(text, lines[i].c_str(), lines[i].size() + 1);
    text += lines[i].size() + 1;
  }
  return block;
}

void own_backtrace_symbols_fd(Instance& instance, void* const* addresses, int count, int descriptor) {
  std::string text;
  for (int i = 0; i < count; ++i) text += describe_frame(addresses[i]) + '\n';
  if (is_standard(descriptor)) {
    static_cast<void>(write_outlet(outlet_of(instance, descriptor), text.data(), text.size()));
  } else {
    static_cast<void>(os::write_all(descriptor, text));
  }
}

}  // namespace

std::span<const Binding> dl_address_bindings() {
  static const std::array table{
      Binding::of("dladdr", own_dladdr),
      Binding::of("dladdr1", own_dladdr1),
      Binding::of("dlinfo", own_dlinfo),
      Binding::of("dl_iterate_phdr", own_dl_iterate_phdr),
      Binding::of("backtrace_symbols", own_backtrace_symbols),
      bound<::backtrace_symbols_fd, own_backtrace_symbols_fd>("backtrace_symbols_fd"),
  };
  return table;
}

}  // namespace aplib::loader::libc
