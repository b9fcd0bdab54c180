// SPDX-License-Identifier: MIT
// Target: the folder below which a receiver makes files. Paths in it are those of a stranger, so no symbolic link is
// followed, and no file is seen under its own name before all of it is there.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/os/descriptor.hpp"
#include "comm/digest.hpp"
#include "launch/files/manifest.hpp"

namespace aplib::launch::files {

/// What happens to a file that is there and differs.
enum class Existing : std::uint8_t { refuse, replace };

/// A file that is being written. Without place(), it is gone when its object is, unless it is to be resumed.
class Part {
 public:
  Part() = default;
  ~Part() { drop(); }
  Part(Part&& other) noexcept
      : folder_(std::move(other.folder_)),
        file_(std::move(other.file_)),
        name_(std::exchange(other.name_, {})),
        stays_(other.stays_) {}
  Part& operator=(Part&& other) noexcept {
    if (this == &other) return *this;
    drop();
    folder_ = std::move(other.folder_);
    file_ = std::move(other.file_);
    name_ = std::exchange(other.name_, {});
    stays_ = other.stays_;
    return *this;
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(file_); }
  /// It is worth nothing: it goes, even if it was to be resumed.
  void spoil() noexcept {
    stays_ = false;
    drop();
  }

 private:
  friend class Target;
  void drop() noexcept {
    if (file_ && !name_.empty() && !stays_) ::unlinkat(folder_.get(), name_.c_str(), 0);
    file_.reset();
  }

  os::UniqueFd folder_;
  os::UniqueFd file_;
  std::string name_;  // empty: it has none yet
  bool stays_ = false;
};

/// One thread at a time. Its functions throw Error(failed), which says what is wrong with the path, and what to do.
/// Paths are is_safe_path().
class Target {
 public:
  /// Makes the folder if it is not there.
  explicit Target(std::string folder);

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  /// Bytes that are free on its disk for this user; nothing where the system does not say.
  [[nodiscard]] std::optional<std::uint64_t> free_bytes() const;

  /// What is there, a link as a link.
  [[nodiscard]] std::optional<struct stat> look(const std::string& path);
  /// The sum of the file's bytes. Nothing if there is no such file, or if it cannot be read.
  [[nodiscard]] std::optional<comm::Digest> sum(const std::string& path);

  /// For people: another file has this path.
  [[nodiscard]] std::string differs(const std::string& path) const;

  /// What a transfer before has left of this file, to be resumed: its size and sum.
  [[nodiscard]] std::optional<std::pair<std::uint64_t, comm::Digest>> left(const std::string& path);
  /// Begins a file. `resume`: what is written stays for left() if no more comes; then `from` bytes are kept of what is
  /// there already.
  [[nodiscard]] Part begin(const std::string& path, bool resume, std::uint64_t from);
  /// Gives it its name. `sum` is that of its bytes. False: the same file is there already.
  bool place(Part part, const std::string& path, std::uint32_t mode, std::int64_t time, Existing existing,
             const comm::Digest& sum);

  /// `mode`: that it will have in the end; until then, files can be made in it. So a transfer that is cut off leaves
  /// none that is closed to others. False: it is there.
  bool make_folder(const std::string& path, std::uint32_t mode);
  void finish_folder(const std::string& path, std::uint32_t mode, std::int64_t time);
  /// False: the same link is there.
  bool make_link(const std::string& path, const std::string& link, Existing existing);

 private:
  struct Place {
    int folder = -1;
    std::string name;
  };
  /// The folder that `path` is in, made if it is missing.
  Place find(const std::string& path, bool make);
  void go_to(std::string_view parent, bool make);
  [[nodiscard]] os::UniqueFd step(int from, const std::string& name, std::string_view path, bool make);
  [[nodiscard]] std::string full(std::string_view path) const;
  [[noreturn]] void fail(std::string_view path, int error) const;
  bool settle(const Place& place, const std::string& path, Existing existing, const comm::Digest& sum);

  const std::string folder_;
  os::UniqueFd root_;
  std::string parent_;  // the last folder that was asked for, because the next file is often there, too
  os::UniqueFd parent_fd_;
};

/// The sum of a file's bytes from its beginning on, up to `bytes` of them. Nothing: it has fewer, or cannot be read.
[[nodiscard]] std::optional<comm::Sha256> sum_of(int descriptor, std::uint64_t bytes);

}  // namespace aplib::launch::files
