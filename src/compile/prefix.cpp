// SPDX-License-Identifier: MIT
#include "compile/prefix.hpp"

#include "compile/file.hpp"

namespace aplib::compile {
namespace {

/// An installation folder: relative to the tree, or where a distribution put it.
std::string place(const std::string& root, const std::string& folder) {
  return folder.starts_with('/') ? folder : root + "/" + folder;
}

}  // namespace

Prefix Prefix::own() {
  std::string folder = folder_of(real_path("/proc/self/exe"));
  // bin, or as many levels as the installation chose.
  std::string_view levels = APLIB_BIN_FOLDER;
  while (!levels.empty()) {
    folder = folder_of(folder);
    const std::size_t slash = levels.find('/');
    if (slash == levels.npos) break;
    levels.remove_prefix(slash + 1);
  }
  return at(folder);
}

Prefix Prefix::at(const std::string& root) {
  Prefix prefix;
  prefix.root = root;
  prefix.include_folder = place(root, APLIB_INCLUDE_FOLDER);
  prefix.support_folder = root + "/" APLIB_SUPPORT_FOLDER;
  // An installed tree has the one, a build tree always "lib".
  for (const char* folder : {APLIB_LIBRARY_FOLDER, "lib"}) {
    std::string libraries = place(root, folder);
    if (exists(libraries + "/libaplib.so")) {
      prefix.library_folder = std::move(libraries);
      break;
    }
  }
  return prefix;
}

}  // namespace aplib::compile
