// SPDX-License-Identifier: MIT
// Dlopen, dlsym and dlclose inside an instance. A file that is not the system's is loaded into the instance alone; the system's are shared by the process.
// Source: POSIX.1-2017 dlopen, dlsym, dlclose, dlerror; Linux man-pages dlopen(3), dlsym(3).
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aplib/error.hpp"
#include "loader/instance.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/dl.hpp"
#include "loader/libc/tables.hpp"
#include "loader/library.hpp"

namespace aplib::loader::libc {
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

DlState& state_of(Instance& instance) { return shared_part(instance.libc().dl); }

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
  for (const auto& copy : plan.copies) {
    if (copy.image != RelocationPlan::of_state) needs.push_back(copy.image);
  }
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

void* open(const Caller& caller, const char* name, int flags) {
  Instance& instance = *caller.instance;
  DlState& state = state_of(instance);
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
    while (opened.handle->constructor != nullptr && opened.handle->constructor != here()) instance.host().yield();
  }
  return opened.handle;
}

// ---------------------------------------------------------------- dlclose

/// A thread_local that code of the image made is still to be destroyed by it.
bool has_thread_exits(Instance& instance, const LoadedImage& image) {
  bool found = false;
  instance.for_each_context([&](const TaskContext& context) {
    for (const TaskContext::ThreadExit& exit : context.thread_exits) {
      const auto* place = reinterpret_cast<const char*>(exit.function);
      found = found || (place >= image.base && place < image.base + image.file->span());
    }
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

int close(Instance& instance, void* name) {
  DlState& state = state_of(instance);
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
      return reinterpret_cast<char*>(&instance.libc()) + binding->offset;
    case Binding::Kind::made:
      return binding->place(instance);
  }
  return nullptr;
}

/// Behind the images: bindings, then the system's libraries that `origin` needs, those that dlopen made global, the process.
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
  DlState& state = state_of(*caller.instance);
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
  return caller.instance == nullptr ? dlopen(name, flags) : open(caller, name, flags);
}

void* own_dlmopen(Lmid_t space, const char* name, int flags) {
  const Caller caller(__builtin_return_address(0));
  if (caller.instance == nullptr) return dlmopen(space, name, flags);
  if (space == LM_ID_BASE) return open(caller, name, flags);
  DlState& state = state_of(*caller.instance);
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
  DlState& state = state_of(*instance);
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

}  // namespace aplib::loader::libc
