// SPDX-License-Identifier: MIT
#include "launch/control/staged_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "launch/control/file_identity.hpp"
#include "launch/destination.hpp"

namespace aplib::launch {
namespace {

/// Removes the folder when the process that holds the other end of the pipe has gone, however it went.
constexpr const char* keeper_script = R"(read -r nothing; rm -rf "$1")";

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
  const char* base = std::getenv("TMPDIR");
  std::string name = fmt::format("{}/aplib-XXXXXX", base != nullptr && *base != '\0' ? base : "/tmp");
  if (::mkdtemp(name.data()) == nullptr) {  // mode 0700
    throw Error(Errc::failed,
                fmt::format("cannot make a folder like {} for program files: {}; TMPDIR names another place", name,
                            std::strerror(errno)));
  }
  folder_ = name;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  keeper_ = start_keeper(folder_, ends[0]);
  ::close(ends[0]);
  keeper_pipe_ = ends[1];
}

void StagedFiles::begin(const FileRef& file) {
  if (folder_.empty()) make_folder();
  close_file();
  file_ = file;
  // The name alone: what comes from elsewhere says nothing about folders here.
  std::string name = std::filesystem::path(file.path).filename().string();
  if (name.empty() || name == "." || name == "..") name = "program";
  path_ = folder_ + "/" + name;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0700);
  if (descriptor_ < 0) throw Error(Errc::failed, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

void StagedFiles::write(std::span<const std::byte> bytes) {
  const int error = write_all(descriptor_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (error == 0) return;
  close_file();
  throw Error(Errc::failed,
              fmt::format("cannot write {}: {}; TMPDIR names another place", path_, std::strerror(error)));
}

std::string StagedFiles::finish() {
  close_file();
  const FileIdentity is = identify_file(path_);
  if (!is.same(file_.identity) || is.bytes != file_.identity.bytes) {
    throw Error(
        Errc::failed,
        fmt::format("{} was changed while it was sent: {} of {} came instead of {} of {}; start again", file_.path,
                    is.bytes, identity_text(is), file_.identity.bytes, identity_text(file_.identity)));
  }
  return path_;
}

void StagedFiles::close_file() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void StagedFiles::remove() noexcept {
  close_file();
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  if (keeper_pipe_ >= 0) ::close(std::exchange(keeper_pipe_, -1));
  if (keeper_ > 0) ::waitpid(std::exchange(keeper_, -1), nullptr, 0);
}

}  // namespace aplib::launch
