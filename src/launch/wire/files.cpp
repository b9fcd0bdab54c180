// SPDX-License-Identifier: MIT
#include "launch/wire/files.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"

namespace aplib::launch::wire {

namespace {

/// A file's bytes, mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const os::UniqueFd descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!descriptor || ::fstat(descriptor.get(), &status) != 0) fail(path, errno);
    if (!S_ISREG(status.st_mode)) fail(path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ > 0) {
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
      if (data_ == MAP_FAILED) fail(path, errno);
    }
  }
  ~MappedFile() {
    if (size_ > 0) ::munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  [[noreturn]] static void fail(const std::string& path, int error) {
    throw Error(Errc::failed, fmt::format("cannot read {}: {}", path, os::text_of(error)));
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class Structure>
std::optional<Structure> structure_at(std::span<const std::byte> bytes, std::uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(Structure)) return std::nullopt;
  Structure result;
  std::memcpy(&result, bytes.data() + at, sizeof result);
  return result;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

/// The build-id among the notes. Empty if there is none.
std::string build_id_in(std::span<const std::byte> notes) {
  constexpr auto padded = [](std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; };
  for (std::uint64_t at = 0; const auto note = structure_at<Elf64_Nhdr>(notes, at);) {
    const std::uint64_t name = at + sizeof *note;
    const std::uint64_t description = name + padded(note->n_namesz);
    const std::uint64_t end = description + note->n_descsz;
    if (end > notes.size()) break;
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && std::memcmp(notes.data() + name, "GNU", 4) == 0)
      return hexadecimal(notes.subspan(description, note->n_descsz));
    at = description + padded(note->n_descsz);
  }
  return {};
}

std::string build_id_of(std::span<const std::byte> file) {
  const auto header = structure_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
    return {};
  for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = structure_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) break;
    if (segment->p_type != PT_NOTE || segment->p_offset > file.size() ||
        segment->p_filesz > file.size() - segment->p_offset)
      continue;
    if (std::string id = build_id_in(file.subspan(segment->p_offset, segment->p_filesz)); !id.empty()) return id;
  }
  return {};
}

/// FNV-1a over words of eight bytes. It finds mix-ups, not forgeries, for which one would need the job's key.
std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), sizeof sum);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), count);
    sum = (sum ^ word) * 0x100000001b3;
    sum ^= sum >> 29;  // a product changes only bits above those of its factor
    bytes = bytes.subspan(count);
  }
  return sum == 0 ? 1 : sum;
}

}  // namespace

FileIdentity identify_file(const std::string& path) {
  const MappedFile file(path);
  FileIdentity identity{build_id_of(file.bytes()), file.bytes().size(), 0};
  if (identity.build_id.empty()) identity.sum = sum_of(file.bytes());
  return identity;
}

std::string identity_text(const FileIdentity& identity) {
  return identity.build_id.empty() ? fmt::format("{} bytes, sum {:x}", identity.bytes, identity.sum)
                                   : fmt::format("build-id {}", identity.build_id);
}

void check_file(const std::string& path, const FileRef& announced) {
  const FileIdentity is = identify_file(path);
  if (is.same(announced.identity) && is.bytes == announced.identity.bytes) return;
  throw Error(
      Errc::failed,
      fmt::format("{} was changed while it was sent: {} of {} came instead of {} of {}; start again", announced.path,
                  is.bytes, identity_text(is), announced.identity.bytes, identity_text(announced.identity)));
}

std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    // Only the name counts. A path of another host says nothing about folders here.
    std::string name = std::filesystem::path(path).filename().string();
    if (name.empty() || name == "." || name == "..") name = "program";
    const std::string own = name;
    for (unsigned more = 2; std::ranges::find(names, name) != names.end(); ++more)
      name = fmt::format("{}.{}", own, more);
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<FileRef> describe_files(const std::vector<std::string>& paths) {
  std::vector<FileRef> files;
  for (const std::string& path : paths) {
    std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
    FileIdentity identity = identify_file(absolute);
    files.push_back({std::move(absolute), std::move(identity)});
  }
  return files;
}

namespace {

/// Removes the folder when the process that holds the other end of the pipe has gone, however it went.
constexpr const char* keeper_script = R"(read -r nothing; rm -rf "$1")";

/// Whether programs in the folder can be mapped.
bool may_execute_in(const std::string& folder) {
  struct statvfs is {};
  return ::statvfs(folder.c_str(), &is) != 0 || (is.f_flag & ST_NOEXEC) == 0;
}

/// Starts the keeper in a session of its own, so that it outlives a kill of the node's group. Returns its pid, or -1.
pid_t start_keeper(const std::string& folder, int pipe) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&files) != 0) return -1;
  if (::posix_spawnattr_init(&attributes) != 0) {
    ::posix_spawn_file_actions_destroy(&files);
    return -1;
  }
  ::posix_spawn_file_actions_adddup2(&files, pipe, STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::string script = keeper_script;
  std::string where = folder;
  std::string name = "aprun-keeper";
  std::string shell = "sh";
  std::string command = "-c";
  char* arguments[] = {shell.data(), command.data(), script.data(), name.data(), where.data(), nullptr};
  pid_t pid = -1;
  if (::posix_spawn(&pid, "/bin/sh", &files, &attributes, arguments, environ) != 0) pid = -1;
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return pid;
}

}  // namespace

StagedFiles::~StagedFiles() { remove(); }

void StagedFiles::make_folder() {
  const char* wished = std::getenv("TMPDIR");
  std::vector<std::string> bases{"/tmp", "/var/tmp"};
  if (wished != nullptr && *wished != '\0') bases.insert(bases.begin(), wished);
  std::string problems;
  for (const std::string& base : bases) {
    if (!may_execute_in(base)) {
      problems += fmt::format("{}{} is mounted noexec", problems.empty() ? "" : ", ", base);
      continue;
    }
    std::string name = base + "/aplib-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) {  // mode 0700
      folder_ = name;
      break;
    }
    problems += fmt::format("{}{}: {}", problems.empty() ? "" : ", ", base, std::strerror(errno));
  }
  if (folder_.empty())
    throw Error(Errc::failed,
                fmt::format("cannot make a folder for program files: {}; TMPDIR names another place", problems));
  try {
    os::Pipe pipe = os::Pipe::make();
    keeper_ = start_keeper(folder_, pipe.reader.get());
    keeper_pipe_ = std::move(pipe.writer);
  } catch (const Error&) {  // without a keeper the folder stays when this process is killed
  }
}

std::string StagedFiles::next_folder() {
  if (folder_.empty()) make_folder();
  const std::string folder = fmt::format("{}/{}", folder_, ++folders_);
  if (::mkdir(folder.c_str(), 0700) != 0) {
    throw Error(Errc::failed,
                fmt::format("cannot make the folder {}: {}; TMPDIR names another place", folder, std::strerror(errno)));
  }
  return folder;
}

void StagedFiles::remove() noexcept {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  keeper_pipe_.reset();
  if (keeper_ > 0) ::waitpid(std::exchange(keeper_, -1), nullptr, 0);
}

}  // namespace aplib::launch::wire
