// SPDX-License-Identifier: MIT
#include "comm/plugin/plugin_file.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include "comm/plugin/plugin.hpp"

namespace aplib::comm {
namespace {

#if defined(__x86_64__)
constexpr unsigned our_processor = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned our_processor = EM_AARCH64;
#else
#error "which e_machine do plug-ins have on this processor?"
#endif

/// What dlopen() would not survive: it maps a file as its headers say, and a file that ends too early kills the process. Not a defence against evil: a plug-in's code runs anyway.
std::optional<std::string> damage(const std::string& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  std::ifstream in(file, std::ios::binary);
  if (error || !in) {
    return fmt::format("it cannot be read: {}",
                       error ? error.message() : std::error_code(errno, std::generic_category()).message());
  }
  ElfW(Ehdr) header{};
  in.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!in || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_type != ET_DYN || header.e_phentsize != sizeof(ElfW(Phdr))) {
    return "it is no shared object (64-bit ELF)";
  }
  if (header.e_machine != our_processor) return "it was compiled for another kind of processor";
  in.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part{};
    in.read(reinterpret_cast<char*>(&part), sizeof part);
    if (!in || part.p_offset > size || part.p_filesz > size - part.p_offset)
      return fmt::format("it is incomplete ({} bytes): copy it again", size);
  }
  return std::nullopt;
}

struct Close {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};

}  // namespace

OpenedPlugin open_plugin(const std::string& file) {
  if (std::optional<std::string> why = damage(file)) return {.refusal = *std::move(why)};
  // RTLD_LOCAL: what it brings along must not be found by others, nor replace theirs.
  std::unique_ptr<void, Close> handle(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) {
    const char* const text = ::dlerror();
    std::string why = text != nullptr ? text : "";
    if (why.starts_with(file + ": ")) why.erase(0, file.size() + 2);
    return {.refusal = fmt::format("it cannot be loaded: {}", why.empty() ? "dlopen() does not say why" : why)};
  }
  void* const symbol = ::dlsym(handle.get(), "aplib_comm_plugin_entry");
  if (symbol == nullptr) {
    return {
        .refusal =
            "it exports no aplib_comm_plugin_entry: it is not a module of APlib's, or APLIB_COMM_EXPORT is missing"};
  }
  Dl_info info{};
  ElfW(Sym)* entry = nullptr;
  if (::dladdr1(symbol, &info, reinterpret_cast<void**>(&entry), RTLD_DL_SYMENT) == 0 || entry == nullptr ||
      ELF64_ST_TYPE(entry->st_info) != STT_OBJECT) {
    return {.refusal = "its aplib_comm_plugin_entry is no variable: declare it as <aplib/comm_module.h> says"};
  }
  const auto* const exported = static_cast<const aplib_comm_plugin*>(symbol);
  if (std::optional<std::string> why = Plugin::refusal(*exported, entry->st_size)) return {.refusal = *std::move(why)};
  (void)handle.release();
  return {.exported = exported};
}

}  // namespace aplib::comm
