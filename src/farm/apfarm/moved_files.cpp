// SPDX-License-Identifier: MIT
#include "farm/apfarm/moved_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ranges>

#include "launch/this_host.hpp"

namespace aplib::farm {

namespace files = launch::files;

const std::string& own_host_id() {
  static const std::string id = launch::describe_this_host().host_id;
  return id;
}

std::shared_ptr<files::Manifest> manifest_of_names(std::span<const std::string> names) {
  std::vector<files::Source> sources;
  std::vector<std::string> problems;
  for (const std::string& name : names) {
    const std::string place = files::plain_path(name);
    if (files::is_safe_path(place))
      sources.push_back({place, place});
    else
      problems.push_back(fmt::format("{} is not below the current folder: use a name that is", files::shown(name)));
  }
  auto manifest = std::make_shared<files::Manifest>(files::gather(sources, own_host_id()));
  manifest->problems.insert(manifest->problems.begin(), problems.begin(), problems.end());
  return manifest;
}

bool is_among(const std::string& path, std::span<const std::string> names) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    const std::string place = files::plain_path(name);
    return path == place || path.starts_with(place + "/");
  });
}

void remove_files(std::span<const files::Entry> entries) {
  // A folder comes before what is in it.
  for (const files::Entry& entry : entries | std::views::reverse)
    entry.kind == files::EntryKind::folder ? ::rmdir(entry.path.c_str()) : ::unlink(entry.path.c_str());
}

}  // namespace aplib::farm
