// SPDX-License-Identifier: MIT
#include "loader/program.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "loader/resolver.hpp"

namespace aplib::loader {

std::shared_ptr<const Program> Program::load(const std::string& path, const LoadOptions& options) {
  std::shared_ptr<Program> program(new Program);
  program->options_ = options;
  Resolver(*program, path).run();
  return program;
}

namespace {

std::string key_of(const FileIdentity& file) {
  return fmt::format("{}:{}:{}:{};", file.device, file.inode, file.bytes, file.modified_ns);
}

}  // namespace

std::shared_ptr<const Program> Program::load_plugin(const Program& main, const Surroundings& around,
                                                    std::shared_ptr<const ElfFile> file, const Requester& asked_by) {
  std::string key = key_of(file->identity());
  for (const Requester* one = &asked_by; one != nullptr; one = one->needed_by) key += key_of(one->file->identity());
  for (std::size_t i = main.images_.size(); i < around.files.size(); ++i)
    key += around.files[i] != nullptr ? key_of(around.files[i]->identity()) : ";";
  key += fmt::format("{} {}", fmt::join(around.global, ","), around.own_first);
  const std::lock_guard lock(main.plugins_mutex_);
  std::shared_ptr<const Program>& known = main.plugins_[key];
  if (known == nullptr) {
    std::shared_ptr<Program> plugin(new Program);
    plugin->options_ = main.options_;
    Resolver(*plugin, file->path()).run(main, around, file, asked_by);
    known = plugin;
  }
  return known;
}

bool Program::binds(std::string_view name) const noexcept { return std::ranges::binary_search(bound_, name); }

Program::Definition Program::find(std::string_view name) const noexcept {
  const ElfFile& file = *images_.front().file;
  if (const Symbol* symbol = file.find(name); symbol != nullptr && !symbol->absolute && symbol->type != STT_TLS)
    return {symbol->value};
  return {entries_.find(name)};  // hidden
}

std::vector<std::string_view> Program::functions() const {
  std::vector<std::string_view> names;
  for (const Symbol& symbol : images_.front().file->symbols()) {
    if (symbol.defined && symbol.type == STT_FUNC) names.push_back(symbol.name);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace aplib::loader
