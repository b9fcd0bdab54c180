// SPDX-License-Identifier: MIT
#include "cellos/program_file.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace aplib::cellos {

ProgramFile find_program_file(const std::string& name, const std::string& host_file) {
  namespace fs = std::filesystem;
  const fs::path given(name);
  std::vector<fs::path> spellings{given, fs::path(name + ".so"), fs::path(name + ".cell")};
  if (given.has_extension()) {
    for (const char* suffix : {"", ".so", ".cell"}) spellings.push_back(fs::path(given).replace_extension(suffix));
  }

  ProgramFile file;
  const auto look = [&file](const fs::path& path) {
    if (std::ranges::find(file.places, path.string()) != file.places.end()) return false;
    file.places.push_back(path.string());
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return false;
    file.path = path.string();
    return true;
  };
  if (name.empty()) return file;
  if (std::ranges::any_of(spellings, look)) return file;
  if (given.is_absolute()) return file;
  const fs::path folder = fs::path(host_file).parent_path();
  for (const fs::path& spelling : spellings) {
    if (look(folder / spelling)) break;
  }
  return file;
}

}  // namespace aplib::cellos
