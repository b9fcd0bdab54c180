// SPDX-License-Identifier: MIT
#include "launch/files/manifest.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/os/descriptor.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::files {

namespace {

constexpr std::size_t told_names_bytes_max = std::size_t{4} << 10;

}  // namespace

std::int64_t time_of(const struct stat& status) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  return static_cast<std::int64_t>(status.st_mtim.tv_sec) * second + status.st_mtim.tv_nsec;
}

bool is_safe_path(std::string_view path) noexcept {
  if (path.empty() || path.size() > Entry::path_bytes_max || path.find('\0') != path.npos) return false;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view name = path.substr(at, end - at);
    if (name.empty() || name == "." || name == ".." || name.size() > NAME_MAX) return false;
    at = end + 1;
  }
  return true;
}

std::string plain_path(const std::string& path) {
  std::filesystem::path plain = std::filesystem::path(path).lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();  // of "folder/"
  return plain.string();
}

std::string own_place(const std::string& path) {
  const std::string place = plain_path(path);
  return is_safe_path(place) ? place : std::filesystem::path(place).filename().string();
}

std::string shown(std::string_view path) {
  const std::string text = one_line(path);
  const bool plain = !text.empty() && text.size() == path.size() && text.find_first_of(" '\"") == text.npos;
  return plain ? text : fmt::format("'{}'", text);
}

namespace {

const char* kind_text(mode_t mode) {
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode) || S_ISCHR(mode)) return "a device";
  return "neither file, folder nor link";
}

class Gatherer {
 public:
  explicit Gatherer(Manifest& manifest) : manifest_(manifest) {}

  void add_source(const Source& source) {
    struct stat status {};
    if (::stat(source.path.c_str(), &status) != 0) return cannot_read(source.path, errno);
    mode_ = source.mode;
    if (!is_safe_path(source.target)) {
      return complain(fmt::format("{}: {} is no place in the receiver's folder: use a relative path without .. for it",
                                  shown(source.path), shown(source.target)));
    }
    add(source.path, source.target, status);
  }

 private:
  void complain(std::string text) { manifest_.problems.push_back(std::move(text)); }
  void cannot_read(const std::string& path, int error) {
    complain(fmt::format("cannot read {}: {}", shown(path), os::text_of(error)));
  }

  void add(const std::string& path, const std::string& target, const struct stat& status) {
    Entry entry{.path = target,
                .mode = status.st_mode & 0777,
                .time = time_of(status),
                .device = status.st_dev,
                .inode = status.st_ino};
    if (!targets_.insert(target).second) {
      return complain(
          fmt::format("{}: another file goes to {}, too: give one of them another target", shown(path), shown(target)));
    }
    path_bytes_ += target.size() + path.size();
    if (manifest_.entries.size() >= Manifest::entries_max || path_bytes_ > Manifest::path_bytes_max) {
      if (!std::exchange(too_many_, true))
        complain(fmt::format("{}: more than {} files, or paths that are too long: send them as one archive",
                             shown(path), Manifest::entries_max));
      return;
    }
    if (!is_safe_path(target)) return complain(fmt::format("{}: its path is too long", shown(path)));
    if (S_ISREG(status.st_mode)) {
      if (status.st_size == 0 && has_content(path)) {
        return complain(
            fmt::format("{}: its file system does not say how much is in it, as that of /proc: copy it, and "
                        "send the copy",
                        shown(path)));
      }
      constexpr std::uint64_t block = 512;
      entry.bytes = static_cast<std::uint64_t>(status.st_size);
      entry.stored = std::min<std::uint64_t>(static_cast<std::uint64_t>(status.st_blocks) * block, entry.bytes);
      if (mode_ != 0) entry.mode = mode_;
      return keep(std::move(entry), path);
    }
    if (S_ISLNK(status.st_mode)) {
      std::error_code error;
      entry.kind = EntryKind::link;
      entry.link = std::filesystem::read_symlink(path, error).string();
      if (error) return cannot_read(path, error.value());
      return keep(std::move(entry), path);
    }
    if (!S_ISDIR(status.st_mode)) {
      return complain(
          fmt::format("{} is {}, which cannot be carried: leave it out", shown(path), kind_text(status.st_mode)));
    }
    entry.kind = EntryKind::folder;
    keep(std::move(entry), path);
    add_folder(path, target);
  }

  /// Nothing can be read where it cannot be opened, which the sender will say.
  static bool has_content(const std::string& path) {
    const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    char byte = 0;
    return file && ::read(file.get(), &byte, 1) == 1;
  }

  void keep(Entry entry, const std::string& path) {
    manifest_.entries.push_back(std::move(entry));
    manifest_.places.push_back(path);
  }

  void add_folder(const std::string& path, const std::string& target) {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator each(path, error); !error && each != std::filesystem::directory_iterator();
         each.increment(error))
      names.push_back(each->path().filename().string());
    if (error) return cannot_read(path, error.value());
    std::ranges::sort(names);  // so that the same tree is the same manifest
    for (const std::string& name : names) {
      struct stat status {};
      const std::string each = path + "/" + name;
      if (::lstat(each.c_str(), &status) != 0) {
        cannot_read(each, errno);
      } else {
        add(each, target + "/" + name, status);
      }
    }
  }

  Manifest& manifest_;
  std::set<std::string> targets_;
  std::uint64_t path_bytes_ = 0;
  std::uint32_t mode_ = 0;
  bool too_many_ = false;
};

}  // namespace

std::vector<Source> matches(const std::string& pattern) {
  std::vector<Source> sources;
  glob_t found{};
  if (::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      sources.push_back({found.gl_pathv[i], own_place(found.gl_pathv[i])});
  }
  ::globfree(&found);
  return sources;
}

Manifest gather(const std::vector<Source>& sources, std::string host) {
  Manifest manifest{.host = std::move(host)};
  Gatherer gatherer(manifest);
  for (const Source& source : sources) gatherer.add_source(source);
  return manifest;
}

std::optional<std::string> names_in(const std::string& folder) {
  std::string names;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error); !error && each != std::filesystem::directory_iterator();
       each.increment(error)) {
    names += each->path().filename().string() + "/";
    if (names.size() > told_names_bytes_max) return std::nullopt;
  }
  if (error && error != std::errc::no_such_file_or_directory) return std::nullopt;
  return names;
}

bool all_are_new(const Manifest& manifest, std::string_view names) {
  if (names.empty()) return true;
  // What is left of a file has its name within its own, or the beginning of a long one.
  constexpr std::size_t compared_max = 200;
  return std::ranges::none_of(manifest.entries, [&](const Entry& entry) {
    const std::size_t first = std::min(entry.path.find('/'), compared_max);
    return names.find(std::string_view(entry.path).substr(0, first)) != names.npos;
  });
}

}  // namespace aplib::launch::files
