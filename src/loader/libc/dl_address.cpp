// SPDX-License-Identifier: MIT
// From addresses to files and names, inside an instance: dladdr, dlinfo, dl_iterate_phdr, backtrace_symbols.
// Source: Linux man-pages dladdr(3), dlinfo(3), dl_iterate_phdr(3), backtrace(3).
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "loader/find_object.hpp"
#include "loader/instance.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/dl.hpp"
#include "loader/libc/tables.hpp"
#include "loader/tls.hpp"

namespace aplib::loader::libc {
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

void own_backtrace_symbols_fd(void* const* addresses, int count, int descriptor) {
  for (int i = 0; i < count; ++i) {
    const std::string line = describe_frame(addresses[i]) + '\n';
    const char* rest = line.data();
    for (std::size_t left = line.size(); left != 0;) {
      const ssize_t written = ::write(descriptor, rest, left);
      if (written <= 0) return;
      rest += written;
      left -= static_cast<std::size_t>(written);
    }
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
      Binding::of("backtrace_symbols_fd", own_backtrace_symbols_fd),
  };
  return table;
}

}  // namespace aplib::loader::libc
