// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.hpp"
#include "comm/kind.hpp"
#include "comm/plugin/plugin.hpp"
#include "comm/plugin/plugin_module.hpp"

namespace aplib::comm {
namespace {

namespace fs = std::filesystem;

/// Beside the running program's folder: the same in a build tree, an installed tree and a moved one.
std::optional<fs::path> own_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
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

}  // namespace

std::vector<FoundModule> find_modules(const std::string& module_path, const std::string& only) {
  std::vector<FoundModule> found;
  std::vector<fs::path> candidates = files(module_path, found);
  const auto is_named = [&only](const fs::path& file) { return file.stem() == only; };
  if (std::ranges::any_of(candidates, is_named))
    std::erase_if(candidates, [&](const fs::path& file) { return !is_named(file); });
  for (const fs::path& file : candidates) {
    const plugin::OpenedPlugin opened = plugin::open_plugin(file.string());
    if (opened.exported == nullptr) {
      found.push_back({file.string(), nullptr, opened.refusal});
      continue;
    }
    auto kind = std::make_unique<plugin::PluginKind>(*opened.exported);
    const auto first = std::ranges::find_if(
        found, [&](const FoundModule& other) { return other.kind && other.kind->name() == kind->name(); });
    if (first != found.end()) {
      found.push_back({file.string(), nullptr, fmt::format("\"{}\" is already {}", kind->name(), first->file)});
    } else {
      found.push_back({file.string(), std::move(kind), {}});
    }
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
