// SPDX-License-Identifier: MIT
#include "comm/kind.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "arch/elf.hpp"
#include "base/os/own_folder.hpp"
#include "base/text.hpp"
#include "comm/plugin/plugin.hpp"
#include "comm/plugin/plugin_module.hpp"

namespace aplib::comm {
namespace {

namespace fs = std::filesystem;

/// What makes dlopen() of the file deadly: it maps a file as its headers say, and one that ends too early kills the
/// process. This is no defence against evil, because a module's code runs anyway.
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
  if (header.e_machine != arch::elf_machine) return "it was compiled for another kind of processor";
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

/// The folder beside that of the running program, or of join.so. The paths are the same in build trees, installed trees
/// and moved ones.
std::optional<fs::path> own_folder() {
  Dl_info here{};
  link_map* object = nullptr;
  if (::dladdr1(reinterpret_cast<const void*>(&damage), &here, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) !=
          0 &&
      object->l_name[0] != '\0')
    return fs::path(object->l_name).parent_path() / "modules";
  const fs::path program = os::own_program();
  if (program.empty()) return std::nullopt;
  return (program.parent_path() / APLIB_MODULES_FROM_BIN).lexically_normal();
}

std::vector<fs::path> folders(const std::string& module_path) {
  std::vector<fs::path> all;
  for (std::size_t at = 0; at <= module_path.size();) {
    const std::size_t end = std::min(module_path.find(':', at), module_path.size());
    if (end != at) all.emplace_back(module_path.substr(at, end - at));
    at = end + 1;
  }
  if (std::optional<fs::path> own = own_folder()) all.push_back(*std::move(own));
  return all;
}

/// The plug-in files of all folders, in their order; a folder that cannot be read is noted in `found` as refused.
std::vector<fs::path> files(const std::string& module_path, std::vector<FoundModule>& found) {
  std::vector<fs::path> all;
  for (const fs::path& folder : folders(module_path)) {
    std::error_code error;
    std::vector<fs::path> here;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".so") here.push_back(at->path());
    if (error)
      found.push_back({folder.string(), nullptr, fmt::format("the folder cannot be read: {}", error.message())});
    std::ranges::sort(here);
    std::ranges::move(here, std::back_inserter(all));
  }
  return all;
}

/// Why this program cannot use one of APlib's own modules: it shares classes with the program, but not the build.
std::optional<std::string> other_build(void* exported) {
  const std::size_t bytes = plugin::bytes_of_variable(exported).value_or(0);
  if (bytes < sizeof OwnModule::build) return "it is damaged: copy it again";
  const auto& own = *static_cast<const OwnModule*>(exported);
  const std::string_view build(own.build, ::strnlen(own.build, sizeof own.build));
  if (build == APLIB_BUILD && bytes == sizeof(OwnModule)) return std::nullopt;
  return fmt::format(
      "it is of APlib's build {}, this program is of build {}: install the programs and the modules of one build",
      build, APLIB_BUILD);
}

}  // namespace

FoundModule open_module(const std::string& file) {
  const auto refused = [&file](std::string why) { return FoundModule{file, nullptr, std::move(why)}; };
  if (std::optional<std::string> why = damage(file)) return refused(*std::move(why));
  // RTLD_LOCAL: what it brings along must not be found by others, nor replace theirs.
  std::unique_ptr<void, Close> handle(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) {
    const char* const text = ::dlerror();
    std::string why = text != nullptr ? text : "";
    if (why.starts_with(file + ": ")) why.erase(0, file.size() + 2);
    return refused(fmt::format("it cannot be loaded: {}", why.empty() ? "dlopen() does not say why" : why));
  }
  std::unique_ptr<ModuleKind> kind;
  if (void* const own = ::dlsym(handle.get(), "aplib_own_module")) {
    if (std::optional<std::string> why = other_build(own)) return refused(*std::move(why));
    kind = static_cast<const OwnModule*>(own)->make_kind();
  } else {
    plugin::OpenedPlugin opened = plugin::exported_plugin(handle.get());
    if (opened.exported == nullptr) return refused(std::move(opened.refusal));
    kind = std::make_unique<plugin::PluginKind>(*opened.exported);
  }
  (void)handle.release();
  return {file, std::move(kind), {}};
}

std::vector<FoundModule> find_modules(const std::string& module_path, const std::string& only) {
  std::vector<FoundModule> found;
  std::vector<fs::path> candidates = files(module_path, found);
  const auto is_named = [&only](const fs::path& file) { return file.stem() == only; };
  if (std::ranges::any_of(candidates, is_named))
    std::erase_if(candidates, [&](const fs::path& file) { return !is_named(file); });
  for (const fs::path& file : candidates) {
    FoundModule opened = open_module(file.string());
    if (opened.kind) {
      const std::string name = opened.kind->name();
      const auto first = std::ranges::find_if(
          found, [&](const FoundModule& other) { return other.kind && other.kind->name() == name; });
      if (first != found.end()) opened = {opened.file, nullptr, fmt::format("\"{}\" is already {}", name, first->file)};
    }
    found.push_back(std::move(opened));
  }
  std::ranges::stable_sort(found, std::greater<>{}, [](const FoundModule& each) {
    return std::pair(each.kind != nullptr, each.kind ? each.kind->rank() : 0);
  });
  return found;
}

const ModuleKind* kind_of(std::span<const FoundModule> found, const std::string& name) {
  const auto it =
      std::ranges::find_if(found, [&](const FoundModule& each) { return each.kind && each.kind->name() == name; });
  return it != found.end() ? it->kind.get() : nullptr;
}

std::string unknown_module(std::span<const FoundModule> found, const std::string& name) {
  std::string refused;
  std::vector<std::string> known;
  for (const FoundModule& each : found) {
    if (each.kind) {
      known.push_back(each.kind->name());
    } else if (fs::path(each.file).stem() == name) {
      return fmt::format("module \"{}\" cannot be used: {}: {}", name, each.file, each.refusal);
    } else {
      refused += fmt::format("; {}: {}", each.file, each.refusal);
    }
  }
  if (known.empty()) return fmt::format("there is no module \"{}\", nor any other{}", name, refused);
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::optional<std::string_view> meant = text::nearest(name, views);
  return fmt::format("there is no module \"{}\"{}; known are {}{}", name,
                     meant ? fmt::format(": did you mean \"{}\"?", *meant) : std::string{}, fmt::join(known, ", "),
                     refused);
}

}  // namespace aplib::comm
