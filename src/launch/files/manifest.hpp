// SPDX-License-Identifier: MIT
// Manifest: what a transfer is to carry, as its sender has found it: files, folders and symbolic links, each with the
// path that it gets at the receiver.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/wire/fields.hpp"

namespace aplib::launch::files {

enum class EntryKind : std::uint8_t { file, folder, link, last = link };

struct Entry {
  static constexpr std::size_t path_bytes_max = 4095;

  std::string path{};  ///< At the receiver, relative to its folder: is_safe_path().
  EntryKind kind = EntryKind::file;
  std::uint32_t mode = 0;    ///< Permissions.
  std::int64_t time = 0;     ///< Of the last change, in nanoseconds.
  std::uint64_t bytes = 0;   ///< Of a file.
  std::uint64_t stored = 0;  ///< Bytes that these take on the disk; fewer where there are holes.
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string link{};  ///< What a symbolic link says.
  bool operator==(const Entry&) const = default;
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.path, self.kind, self.mode, self.time, self.bytes, self.stored, self.device, self.inode, self.link);
  }
};

/// The time of the last change in nanoseconds.
[[nodiscard]] std::int64_t time_of(const struct stat& status) noexcept;

/// Whether a path of a stranger stays below the folder to which it is relative: no component is empty, "." or "..", and
/// none is too long. Symbolic links on the way are not looked at.
[[nodiscard]] bool is_safe_path(std::string_view path) noexcept;

/// Without "./" and the like, and without a slash at its end.
[[nodiscard]] std::string plain_path(const std::string& path);

/// Where a file of this path goes in the receiver's folder if nobody says so: a safe path keeps itself. Of others the
/// last name counts, which may be none, or "..".
[[nodiscard]] std::string own_place(const std::string& path);

/// For people: "{folder} {word}", a path in quotes where it would be misread, with its control characters spelled.
[[nodiscard]] std::string shown(std::string_view path);

/// Names a file or folder of this computer, and the path that it gets at the receiver.
struct Source {
  std::string path{};
  std::string target{};  ///< is_safe_path()
  /// Of files, for those whose own permissions do not count. 0: their own.
  std::uint32_t mode = 0;
};

/// The files of this computer that a pattern means, with *, ?, [a-z] and {a,b}, each with the path that it has below
/// the current folder, or else with its name.
[[nodiscard]] std::vector<Source> matches(const std::string& pattern);

/// Does not change after gather().
struct Manifest {
  static constexpr std::size_t entries_max = std::size_t{4} << 20;
  static constexpr std::uint64_t path_bytes_max = std::uint64_t{1} << 30;  ///< Of all paths together.

  std::vector<Entry> entries{};       ///< A folder comes before what is in it.
  std::vector<std::string> places{};  ///< Their paths here. Empty: below `folder`, those of the entries.
  std::string folder{};
  std::vector<std::string> problems{};  ///< What cannot be carried, and why; with what to do.
  std::string host{};                   ///< Of computers, equal if they are the same.

  [[nodiscard]] std::string place(std::size_t entry) const {
    return places.empty() ? folder + "/" + entries[entry].path : places[entry];
  }
};

/// Looks at all files below the sources. A source that is a symbolic link is what the link leads to; links below are
/// carried as links. Two sources with the same target are a problem, and so is what is neither file, folder nor link.
/// `host`: see Manifest. Call from: any thread.
[[nodiscard]] Manifest gather(const std::vector<Source>& sources, std::string host);

/// The names in a folder of this computer, '/' between them. Nothing: they are too many to be told.
[[nodiscard]] std::optional<std::string> names_in(const std::string& folder);
/// A folder with such names has nothing of what the manifest carries, and no part that an earlier transfer has left.
[[nodiscard]] bool all_are_new(const Manifest& manifest, std::string_view names);

}  // namespace aplib::launch::files
