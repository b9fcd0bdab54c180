// SPDX-License-Identifier: MIT
#include "compile/tree.hpp"

#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "base/os/own_folder.hpp"

namespace aplib::compile {

// ---------------------------------------------------------------- the tree

namespace {

/// An installation folder: relative to the tree, or where a distribution put it.
std::string place(const std::string& root, const std::string& folder) {
  return folder.starts_with('/') ? folder : root + "/" + folder;
}

}  // namespace

Prefix Prefix::own() {
  std::string folder = folder_of(os::own_program());
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

// ---------------------------------------------------------------- the object

namespace {

/// Every program has this many bytes for the path of its stub, so that moving APlib seldom means linking again.
constexpr std::uint64_t room_for_start = 256;

/// A copy of the T at `offset`; false: it does not lie in `bytes`.
template <class T>
bool load(const std::string& bytes, std::uint64_t offset, T& value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return true;
}

/// FNV-1a, 64 bit, in hexadecimal: a name for the contents.
std::string digest(const std::string& bytes) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string filled_template(const Prefix& prefix, const std::string& start) {
  const std::string path = prefix.program_template();
  auto object = os::read_file(path);
  if (!object) {
    throw BrokenTree(path + ": " + std::strerror(errno) + "; it belongs to APlib at " + prefix.root +
                     ": install APlib there again, or use the wrapper of a complete installation");
  }
  return with_start(std::move(*object), start);
}

std::string kept_path(const Prefix& prefix, const std::string& object) {
  return prefix.support_folder + "/program-" + digest(object) + ".o";
}

/// Writes `object` to `path` so that others see all of it or nothing. False: errno.
bool keep(const std::string& path, const std::string& object) {
  std::string temporary = path + ".XXXXXX";
  os::UniqueFd file(mkstemp(temporary.data()));
  if (!file) return false;
  const bool written = fchmod(file.get(), 0644) == 0 && os::write_all(file.get(), object);
  file.reset();
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int reason = errno;
  unlink(temporary.c_str());
  errno = reason;
  return false;
}

}  // namespace

std::string with_start(std::string object, const std::string& start) {
  const auto broken = [] {
    return BrokenTree("aplib-program.o is not the object that APlib installs; install APlib again");
  };
  Elf64_Ehdr header;
  Elf64_Shdr names;
  if (!load(object, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      !load(object, header.e_shoff + header.e_shstrndx * sizeof(Elf64_Shdr), names)) {
    throw broken();
  }
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const std::uint64_t place = header.e_shoff + i * sizeof(Elf64_Shdr);
    Elf64_Shdr section;
    char name[8];  // ".interp" and its end
    if (!load(object, place, section) || !load(object, names.sh_offset + section.sh_name, name)) continue;
    if (std::memcmp(name, ".interp", sizeof name) != 0) continue;
    if (section.sh_offset > object.size() || object.size() - section.sh_offset < section.sh_size) throw broken();
    if (start.size() >= section.sh_size) {
      throw BrokenTree(start + ": this path is too long to start programs by (" + std::to_string(section.sh_size - 1) +
                       " bytes at most); move APlib to a shorter path");
    }
    std::memcpy(object.data() + section.sh_offset, start.c_str(), start.size() + 1);
    section.sh_size =
        std::min<std::uint64_t>(section.sh_size, std::max<std::uint64_t>(start.size() + 1, room_for_start));
    std::memcpy(object.data() + place, &section, sizeof section);
    return object;
  }
  throw broken();
}

std::string program_object(const Prefix& prefix, const std::string& start) {
  const std::string object = filled_template(prefix, start);
  const std::string path = kept_path(prefix, object);
  if (exists(path) || keep(path, object)) return path;
  // Inherited by the compiler and its linker: not closed on exec.
  const int descriptor = memfd_create("aplib-program.o", 0);
  if (descriptor < 0 || !os::write_all(descriptor, object)) {
    throw BrokenTree(path + ": " + std::strerror(errno) + "; run \"" + prefix.root +
                     "/" APLIB_BIN_FOLDER "/apcc --aplib-prepare\" as the owner of that folder");
  }
  return "/proc/self/fd/" + std::to_string(descriptor);
}

void prepare_program_object(const Prefix& prefix, const std::string& start) {
  const std::string object = filled_template(prefix, start);
  const std::string path = kept_path(prefix, object);
  if (!keep(path, object))
    throw BrokenTree(path + ": " + std::strerror(errno) + "; run this as the owner of that folder");
}

void retarget(const std::string& file, const std::string& start) {
  const auto fail = [&](const std::string& cause) { return BrokenTree(file + ": " + cause); };
  const auto bytes = os::read_file(file);
  if (!bytes) throw fail(std::string(std::strerror(errno)) + "; name a program made by apcc");
  Elf64_Ehdr header;
  if (!load(*bytes, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    throw fail("not a program; name one made by apcc");
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!load(*bytes, header.e_phoff + i * sizeof segment, segment) || segment.p_type != PT_INTERP) continue;
    if (segment.p_offset > bytes->size() || bytes->size() - segment.p_offset < segment.p_filesz) break;
    const std::string old = bytes->substr(segment.p_offset, segment.p_filesz);
    if (!std::string_view(old.c_str()).ends_with("/aplib-start")) break;
    if (start.size() >= segment.p_filesz) {
      throw fail("no room for " + start + " (" + std::to_string(segment.p_filesz - 1) +
                 " bytes at most); link it again with this apcc");
    }
    std::string path = start;
    path.resize(segment.p_filesz, '\0');
    const os::UniqueFd descriptor(open(file.c_str(), O_WRONLY | O_CLOEXEC));
    if (!descriptor || pwrite(descriptor.get(), path.data(), path.size(), static_cast<off_t>(segment.p_offset)) !=
                           static_cast<ssize_t>(path.size()))
      throw fail(std::string(std::strerror(errno)) +
                 "; run this as the file's owner, while no copy of the program runs");
    return;
  }
  throw fail("it is not started by APlib; name a program made by apcc");
}

// ---------------------------------------------------------------- the module mpi

namespace {

/// False: `folder` is not there and cannot be made.
bool make_folders(const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) return true;
  return errno == ENOENT && folder.size() > 1 && make_folders(folder_of(folder)) && mkdir(folder.c_str(), 0755) == 0;
}

/// Whether the command succeeds. It is silent.
bool run_silently(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

/// Compiles the module into `folder`, so that others see all of it or nothing.
bool compile_module(std::vector<std::string> words, const std::string& source, const std::string& folder) {
  std::string place = folder + "/new.XXXXXX";
  if (!make_folders(folder) || mkdtemp(place.data()) == nullptr) return false;
  const std::string made = place + "/mpi.mod";
  words.insert(words.end(), {"-fsyntax-only", "-J", place, source});
  const bool is_made = run_silently(std::move(words)) && std::rename(made.c_str(), (folder + "/mpi.mod").c_str()) == 0;
  unlink(made.c_str());
  rmdir(place.c_str());
  return is_made;
}

/// Where a user's programs keep what they can make again; empty: nowhere.
std::string user_cache() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr && *value == '/' ? value : "");
  };
  const std::string cache = variable("XDG_CACHE_HOME");
  const std::string home = variable("HOME");
  return !cache.empty() || home.empty() ? cache : home + "/.cache";
}

}  // namespace

std::string mpi_module_folder(const Prefix& prefix, const std::vector<std::string>& words, const std::string& name) {
  const std::string source = prefix.mpi_include() + "/mpi.f90";
  struct stat source_status {};
  if (stat(source.c_str(), &source_status) != 0) return {};
  std::vector<std::string> folders = {prefix.support_folder + "/mpi/modules/" + name};
  const std::string cache = user_cache();
  if (!cache.empty()) folders.push_back(cache + "/aplib/" + digest(prefix.root) + "/" + name);
  for (const std::string& folder : folders) {
    struct stat status {};
    const bool is_there = stat((folder + "/mpi.mod").c_str(), &status) == 0;
    if (is_there && status.st_mtime >= source_status.st_mtime) return folder;
  }
  for (const std::string& folder : folders) {
    if (compile_module(words, source, folder)) return folder;
  }
  return {};
}

// ---------------------------------------------------------------- files

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

std::string find_command(const std::string& command) {
  const auto runs = [](const std::string& path) {
    struct stat status;
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (command.find('/') != command.npos) return runs(command) ? command : std::string();
  const char* variable = std::getenv("PATH");
  std::string_view folders = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (;;) {
    const std::size_t colon = folders.find(':');
    const std::string_view folder = folders.substr(0, colon);
    std::string path = folder.empty() ? std::string(".") : std::string(folder);
    path += '/';
    path += command;
    if (runs(path)) return path;
    if (colon == folders.npos) return std::string();
    folders.remove_prefix(colon + 1);
  }
}

}  // namespace aplib::compile
