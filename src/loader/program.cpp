// SPDX-License-Identifier: MIT
#include "loader/program.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "aplib/error.hpp"
#include "arch/elf.hpp"
#include "base/os/descriptor.hpp"
#include "base/other_mpi.hpp"
#include "loader/resolver.hpp"

namespace aplib::loader {

using namespace other_mpi;

namespace {

/// Where the table is: by its symbol, or, where a version script hides all symbols, by the note.
std::optional<std::uint64_t> find_table(const ElfFile& file) {
  if (const Symbol* table = file.find("aplib_program_entries")) return table->value;
  for (const Note& note : file.notes()) {
    std::uint64_t distance = 0;
    if (note.owner != "APlib" || note.type != 1 || note.description.size() < sizeof distance) continue;
    std::memcpy(&distance, note.description.data(), sizeof distance);
    return note.address + distance;
  }
  return std::nullopt;
}

/// The word at `address` as the file has it; 0: no such place.
std::uint64_t word_in_file(const ElfFile& file, std::uint64_t address) {
  for (const Segment& segment : file.segments()) {
    std::uint64_t word = 0;
    if (address < segment.address || segment.file_bytes < sizeof word ||
        address - segment.address > segment.file_bytes - sizeof word) {
      continue;
    }
    const auto offset = static_cast<off_t>(segment.offset + (address - segment.address));
    if (pread(file.descriptor(), &word, sizeof word, offset) == sizeof word) return word;
  }
  return 0;
}

}  // namespace

ProgramEntries::ProgramEntries(const ElfFile& file, const RelocationPlan& plan) {
  const std::optional<std::uint64_t> table = find_table(file);
  if (!table) return;
  // The words that have a relative relocation, of either kind, are addresses; the others stay null.
  const auto own = [&](std::uint64_t word) { return (word - *table) / 8 < names.size() && (word - *table) % 8 == 0; };
  for (const RelocationPlan::Store& store : plan.relative) {
    if (own(store.offset)) addresses_[(store.offset - *table) / 8] = store.value;
  }
  for (const std::uint64_t word : plan.packed) {
    if (own(word)) addresses_[(word - *table) / 8] = word_in_file(file, word);
  }
  for (std::uint64_t& address : addresses_) {
    if (address >= file.span()) address = 0;
  }
}

std::uint64_t ProgramEntries::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? 0 : addresses_[static_cast<std::size_t>(found - names.begin())];
}

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
    key += around.files[i] != nullptr
               ? fmt::format("{}{} ", key_of(around.files[i]->identity()), around.static_tls_offsets[i])
               : ";";
  key += fmt::format("{} {}", fmt::join(around.global, ","), around.own_first);
  const std::lock_guard lock(main.plugins_mutex_);
  std::shared_ptr<const Program>& known = main.plugins_[key];
  if (known == nullptr) {
    std::shared_ptr<Program> plugin(new Program);
    plugin->options_ = main.options_;
    Resolver(*plugin, file->path()).run(main, around, file, asked_by);
    if (plugin->wants_executable_stack() && !main.wants_executable_stack()) {
      throw Error(Errc::failed,
                  fmt::format("{} wants an executable stack, which flows that run already have not: link the program "
                              "with -Wl,-z,execstack, or with this library",
                              file->path()));
    }
    known = plugin;
  }
  return known;
}

bool Program::wants_executable_stack() const noexcept {
  return std::ranges::any_of(images_, [](const Image& image) {
    return image.file != nullptr && image.file->wants_executable_stack();  // null: was taken away by dlclose()
  });
}

bool Program::binds(std::string_view name) const noexcept { return std::ranges::binary_search(bound_, name); }

Program::Definition Program::find(std::string_view name) const noexcept {
  const ElfFile& file = *images_.front().file;
  if (const Symbol* symbol = file.find(name); symbol != nullptr && !symbol->absolute && symbol->type != STT_TLS)
    return {symbol->value};
  return {entries_.find(name)};  // hidden
}

Program::Definition Program::start() const noexcept {
  return {binds("__libc_start_main") ? images_.front().file->entry() : 0};
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

const calls::DebugFunction* Program::types_of(Definition function) const {
  const std::scoped_lock lock(types_mutex_);
  const auto [row, is_new] = types_.try_emplace(function.address);
  if (is_new) row->second = calls::debug_function(path(), function.address);
  return row->second ? &*row->second : nullptr;
}

// ---------------------------------------------------------------- libraries

// ---------------------------------------------------------------- the system's libraries

namespace {

constexpr const char* cache_file = "/etc/ld.so.cache";
constexpr std::string_view magic = "glibc-ld.so.cache1.1";

/// What follows the magic bytes.
struct CacheHeader {
  std::uint32_t entries;
  std::uint32_t string_bytes;
  std::uint8_t flags;
  std::array<std::uint8_t, 3> padding;
  std::uint32_t extensions;
  std::array<std::uint32_t, 3> unused;
};

struct CacheEntry {
  std::int32_t flags;
  std::uint32_t name;  // both: offset of a string from the start of the cache
  std::uint32_t path;
  std::uint32_t system_version;
  std::uint64_t processor;  // 0: any of this machine
};

template <class T>
bool copy_at(std::string_view bytes, std::uint64_t offset, T& to) {
  if (offset > bytes.size() || sizeof to > bytes.size() - offset) return false;
  std::memcpy(&to, bytes.data() + offset, sizeof to);
  return true;
}

std::string_view text_at(std::string_view bytes, std::uint64_t offset) {
  if (offset >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(offset);
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
}

}  // namespace

std::string find_in_library_cache(std::string_view cache, std::string_view name) {
  CacheHeader header{};
  if (!cache.starts_with(magic) || !copy_at(cache, magic.size(), header)) return {};
  std::uint64_t at = magic.size() + sizeof header;
  for (std::uint32_t i = 0; i < header.entries; ++i, at += sizeof(CacheEntry)) {
    CacheEntry entry{};
    if (!copy_at(cache, at, entry)) return {};
    if (entry.flags == arch::library_cache_flags && entry.processor == 0 && text_at(cache, entry.name) == name) {
      return std::string(text_at(cache, entry.path));
    }
  }
  return {};
}

std::string find_system_library(std::string_view name) {
  const std::string cached = find_in_library_cache(os::read_file(cache_file).value_or(""), name);
  if (!cached.empty() && ::access(cached.c_str(), R_OK) == 0) return cached;
  for (const std::string& folder :
       {fmt::format("/lib/{}/", arch::multiarch_folder), fmt::format("/usr/lib/{}/", arch::multiarch_folder),
        std::string("/lib64/"), std::string("/usr/lib64/"), std::string("/lib/"), std::string("/usr/lib/")}) {
    std::string path = folder + std::string(name);
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

namespace {

// A second copy of these would not know the first one's threads, locks, heap, stacks or cells.
constexpr std::array never_separate{
    "libc.so*",      "libm.so*",       "libmvec.so*",   "libpthread.so*", "libdl.so*",    "librt.so*",
    "libutil.so*",   "libresolv.so*",  "libnsl.so*",    "libanl.so*",     "libnss_*.so*", "libthread_db.so*",
    "ld-linux*.so*", "linux-vdso.so*", "libunwind.so*", "libgcc_s.so*",   "libaplib.so*", "libmpi_abi.so*",
};
constexpr std::array sanitizer_runtimes{"libasan.so*", "libtsan.so*",   "libubsan.so*",
                                        "liblsan.so*", "libhwasan.so*", "libclang_rt.*"};
// What speaks to a device that the process has once. And libquadmath, whose only state is what it tells libc's printf,
// which has one table for the process.
constexpr std::array shareable{"libcuda.so*", "libnvidia*.so*", "libOpenCL.so*", "libibverbs.so*", "libquadmath.so*"};

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string resolved(const std::string& path) {
  char* const text = ::realpath(path.c_str(), nullptr);
  std::string result = text != nullptr ? text : path;
  std::free(text);
  return result;
}

/// What $LIB stands for: the folder of the C library, "lib64" or "lib/x86_64-linux-gnu".
std::string library_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&::gnu_get_libc_version), &info) == 0 || info.dli_fname == nullptr) {
    return "lib64";
  }
  const std::string path = folder_of(info.dli_fname);
  return path.substr(path.starts_with("/usr/") ? 5 : path.starts_with('/') ? 1 : 0);
}

void replace_all(std::string& text, std::string_view what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

/// `text` with $ORIGIN and its like replaced, for something that `file` says.
std::string expanded(std::string text, const ElfFile* file) {
  if (text.find('$') == std::string::npos) return text;
  if (file != nullptr) {
    const std::string origin = folder_of(file->path());
    replace_all(text, "${ORIGIN}", origin);
    replace_all(text, "$ORIGIN", origin);
  }
  for (const char* name : {"${LIB}", "$LIB"}) replace_all(text, name, library_folder());
  for (const char* name : {"${PLATFORM}", "$PLATFORM"}) replace_all(text, name, std::string(arch::platform));
  return text;
}

/// Other machines' libraries are passed over, as the dynamic linker does; everything else is tried, so that its
/// fault is told.
bool is_for_other_machine(const std::string& path) {
  std::array<char, 20> start{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(start.data(), start.size())) return false;
  const std::string_view text(start.data(), start.size());
  const bool elf = text.starts_with(
      "\x7f"
      "ELF");
  const bool ours = text[4] == 2 && text[5] == 1 && text[18] == 62 && text[19] == 0;
  return elf && !ours;
}

/// The file of ours that lies in the folder of this code; empty: there is none.
std::string beside_this_code(const std::string& file) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&matches_any), &info) == 0 || info.dli_fname == nullptr) return {};
  std::string path = folder_of(info.dli_fname) + "/" + file;
  return ::access(path.c_str(), F_OK) == 0 ? path : std::string();
}

class Search {
 public:
  Search(std::string_view name, const Requester& requester, const SharingRules& rules)
      : name_(name), requester_(requester), rules_(rules) {}

  Library find();
  std::optional<std::string> find_file();

 private:
  std::optional<std::string> find_in(std::string_view folders, const char* separators, const ElfFile* file,
                                     const std::string& whose);
  std::optional<std::string> find_inherited();
  bool is_separate(const std::string& path, std::string_view soname) const;
  bool matches_one(const std::vector<std::string>& patterns, const std::string& path, std::string_view soname) const;
  Library found(const std::string& path);
  Library of_process();
  Library shared(const std::string& what);
  [[noreturn]] void fail(const std::string& cause, const std::string& remedy) const;
  [[noreturn]] void not_found(const std::string& reason) const;
  std::string who() const;

  std::string name_;
  const Requester& requester_;
  const SharingRules& rules_;
  std::vector<std::string> looked_;
};

std::string Search::who() const {
  std::string text;
  for (const Requester* one = &requester_; one != nullptr; one = one->needed_by) {
    if (one->file == nullptr) continue;
    text += fmt::format("{}{}", text.empty() ? "needed by " : ", which is needed by ", one->file->path());
  }
  return text.empty() ? "asked for by the host" : text;
}

void Search::fail(const std::string& cause, const std::string& remedy) const {
  throw Error(Errc::failed, fmt::format("library {} ({}): {}; {}", name_, who(), cause, remedy));
}

void Search::not_found(const std::string& reason) const {
  std::string cause = "not found; looked in ";
  for (const std::string& place : looked_) cause += (&place == looked_.data() ? "" : ", ") + place;
  if (!reason.empty()) cause += fmt::format(" ({})", reason);
  fail(cause, "install it, or name its folder in LD_LIBRARY_PATH or when linking (-Wl,-rpath,FOLDER)");
}

std::optional<std::string> Search::find_in(std::string_view folders, const char* separators, const ElfFile* file,
                                           const std::string& whose) {
  while (true) {
    const std::size_t end = folders.find_first_of(separators);
    std::string folder = expanded(std::string(folders.substr(0, end)), file);
    if (folder.empty()) folder.assign(1, '.');
    std::string path = folder + "/" + name_;
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      looked_.push_back(fmt::format("{} ({})", folder, whose));
    } else if (is_for_other_machine(path)) {
      looked_.push_back(fmt::format("{} ({}; the file there is for another machine)", folder, whose));
    } else {
      return path;
    }
    if (end == std::string_view::npos) return std::nullopt;
    folders.remove_prefix(end + 1);
  }
}

/// DT_RPATH is asked all the way up, unless who needs the library has a DT_RUNPATH of its own.
std::optional<std::string> Search::find_inherited() {
  const ElfFile* first = requester_.file;
  if (first != nullptr && !first->runpath().empty() && !first->runpath_is_inherited()) return std::nullopt;
  for (const Requester* one = &requester_; one != nullptr; one = one->needed_by) {
    if (one->file == nullptr || !one->file->runpath_is_inherited() || one->file->runpath().empty()) continue;
    auto path = find_in(one->file->runpath(), ":", one->file, "RPATH of " + one->file->path());
    if (path) return path;
  }
  return std::nullopt;
}

std::optional<std::string> Search::find_file() {
  if (name_.find('/') != std::string::npos) {
    std::string path = expanded(name_, requester_.file);
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return path;
    looked_.push_back(path);
    not_found("");
  }
  if (auto path = find_inherited()) return path;
  const char* folders = ::secure_getenv("LD_LIBRARY_PATH");
  if (folders != nullptr && *folders != '\0') {
    if (auto path = find_in(folders, ":;", requester_.file, "LD_LIBRARY_PATH")) return path;
  } else {
    looked_.emplace_back("LD_LIBRARY_PATH (not set)");
  }
  const ElfFile* file = requester_.file;
  if (file != nullptr && !file->runpath().empty() && !file->runpath_is_inherited()) {
    return find_in(file->runpath(), ":", file, "RUNPATH of " + file->path());
  }
  return std::nullopt;
}

bool Search::matches_one(const std::vector<std::string>& patterns, const std::string& path,
                         std::string_view soname) const {
  return matches_any(patterns, file_name(name_)) || matches_any(patterns, file_name(path)) ||
         (!soname.empty() && matches_any(patterns, soname));
}

/// By the rules, or else by default.
bool Search::is_separate(const std::string& path, std::string_view soname) const {
  if (matches_one(rules_.private_names, path, soname)) return true;
  return !matches_one(rules_.shared_names, path, soname) && !any_matches(shareable, file_name(path));
}

Library Search::shared(const std::string& what) {
  void* handle = ::dlopen(what.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    const std::string_view text = reason != nullptr ? reason : "no reason given";
    fail(fmt::format("cannot be loaded: {}", text),
         text.find(std::strerror(EMFILE)) != text.npos
             ? "raise the limit of open files (ulimit -n)"
             : "repair it, or let every cell have its own copy (a private library)");
  }
  return {.sharing = Sharing::shared, .path = what, .file = nullptr, .handle = handle};
}

/// A file that was found by a path, by RPATH, RUNPATH or LD_LIBRARY_PATH.
Library Search::found(const std::string& path) {
  // Whether it is to be shared can depend on the name inside, so the file is opened first; if it is shared in the
  // end, no fault of it matters here.
  std::shared_ptr<const ElfFile> file;
  std::optional<Error> fault;
  try {
    file = ElfFile::open(path);
  } catch (const Error& error) {
    fault = error;
  }
  const std::string_view soname = file != nullptr ? file->soname() : std::string_view{};
  if (!is_separate(path, soname)) return shared(path.find('/') == std::string::npos ? "./" + path : path);
  if (fault) fail(fault->what(), "every cell gets its own copy of this library, so it must be made for that");
  return {.sharing = Sharing::separate, .path = file->path(), .file = file, .handle = nullptr};
}

/// A library that the process has, or can have, only once.
Library Search::of_process() {
  const std::string name(file_name(name_));
  if (matches("libaplib.so*", name)) {
    // This code is in it, whatever the version that the program was linked with.
    Dl_info info{};
    const bool known = ::dladdr(reinterpret_cast<const void*>(&matches_any), &info) != 0 && info.dli_fname != nullptr;
    void* handle = known ? ::dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW) : nullptr;
    // Not a library of its own: it is linked into the executable.
    if (handle == nullptr) handle = ::dlopen(nullptr, RTLD_NOW);
    return {.sharing = Sharing::shared, .path = name, .file = nullptr, .handle = handle};
  }
  if (matches("libmpi_abi.so*", name)) {
    // Whatever the program was linked with: two would not know each other's ranks. Programs that were linked with
    // early stubs of the ABI ask for libmpi_abi.so.0.
    const std::string own = beside_this_code("libmpi_abi.so.1");
    if (!own.empty()) return shared(own);
  }
  if (void* handle = ::dlopen(name.c_str(), RTLD_NOLOAD | RTLD_NOW)) {
    return {.sharing = Sharing::shared, .path = name, .file = nullptr, .handle = handle};
  }
  if (any_matches(sanitizer_runtimes, name)) {
    fail("the program is built with a sanitizer, whose runtime must be in the process from its start",
         fmt::format("start with LD_PRELOAD={}, or build the program without -fsanitize", name));
  }
  if (void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    return {.sharing = Sharing::shared, .path = name, .file = nullptr, .handle = handle};
  }
  if (const auto path = find_file()) return shared(*path);
  looked_.emplace_back("the system's libraries");
  not_found("");
}

Library Search::find() {
  const std::string base(file_name(name_));
  if (base.empty()) fail("is not the name of a library", "name a file");
  if (const FrontEnd* const front_end = front_end_for(base)) {
    const std::string own = beside_this_code(front_end->file);
    if (!own.empty()) return found(own);
  }
  if (any_matches(other_mpis, base) && !any_matches(kept_libraries, base)) {
    fail(
        "is another MPI's, which has ranks that are processes, and another binary interface than APlib's; of those "
        "APlib has those of Open MPI 4 to 6 (libmpi.so.40) and MPICH 3.2 to 5 (libmpi.so.12)",
        "compile the program again with APlib's mpicc or mpifort, or start it with that MPI's mpiexec");
  }
  if (is_never_separate(base)) {
    if (std::ranges::count(rules_.private_names, base) != 0)  // a pattern may cover it by the way; a name means it
      fail("is wanted private, and is one that all cells share with the process", "leave it out of --private");
    return of_process();
  }
  if (matches("libmpifort_abi.so*", base)) {  // it belongs to our libmpi_abi
    const std::string own = beside_this_code("libmpifort_abi.so.1");
    if (!own.empty()) return found(own);
  }
  if (const auto path = find_file()) return found(*path);

  const std::string path = find_system_library(base);
  const bool wants_separate = is_separate(base, {});
  if (wants_separate && !path.empty()) return found(path);
  looked_.emplace_back("the system's libraries");
  void* handle = ::dlopen(base.c_str(), RTLD_NOLOAD | RTLD_NOW);
  if (handle == nullptr) handle = ::dlopen(base.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    not_found(reason != nullptr ? reason : "");
  }
  if (wants_separate) return found(static_cast<const link_map*>(handle)->l_name);
  return {.sharing = Sharing::shared, .path = base, .file = nullptr, .handle = handle};
}

}  // namespace

Library find_library(std::string_view name, const Requester& requester, const SharingRules& rules) {
  return Search(name, requester, rules).find();
}

bool is_of_system(std::string_view path) {
  if (path.starts_with("/usr/")) path.remove_prefix(4);
  return path.starts_with("/lib") && path.substr(1).find('/') != std::string_view::npos;
}

bool is_never_separate(std::string_view name) {
  return any_matches(never_separate, name) || any_matches(sanitizer_runtimes, name);
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  return any_matches(patterns, name);
}

// ---------------------------------------------------------------- what a file tells before it is loaded

namespace {

/// Where find_library() looks for the file, whoever shares it and whatever takes its place; empty: nowhere.
std::string find_library_file(std::string_view name, const Requester& requester) {
  try {
    if (auto path = Search(name, requester, {}).find_file()) return *path;
  } catch (const Error&) {  // a path where nothing is
    return {};
  }
  return find_system_library(name);
}

/// It must start with the runtime of a sanitizer, which this process has not.
bool needs_missing_sanitizer(const ElfFile& file) {
  // Clang puts it into the executable itself.
  if (file.find("__asan_init") != nullptr || file.find("__tsan_init") != nullptr || file.find("__msan_init") != nullptr)
    return true;
  return std::ranges::any_of(file.needed(), [](std::string_view name) {
    return any_matches(sanitizer_runtimes, name) &&
           ::dlopen(std::string(name).c_str(), RTLD_NOLOAD | RTLD_NOW) == nullptr;
  });
}

std::shared_ptr<const ElfFile> open_or_null(const std::string& path) {
  try {
    return ElfFile::open(path);
  } catch (const Error&) {  // whoever loads it says why not
    return nullptr;
  }
}

bool is_mpi(std::string_view library) {
  return matches("libmpi_abi.so*", library) || matches("libmpifort_abi.so*", library) ||
         any_matches(other_mpis, library);
}

bool is_of_mpi(std::string_view library) { return is_mpi(library) || matches("libaplib.so*", library); }

bool is_made_by_apcc(const ElfFile& file) { return find_table(file).has_value(); }

/// Calls `look` with the names of all that the file needs, directly or not, and who names them, until it returns true.
template <class Look>
bool any_needed(const Requester& requester, std::set<std::string>& known, const Look& look) {
  for (const std::string_view name : requester.file->needed()) {
    if (look(name, *requester.file)) return true;
    if (!known.emplace(name).second) continue;
    if (is_never_separate(name)) continue;
    const std::shared_ptr<const ElfFile> library = open_or_null(find_library_file(name, requester));
    if (library != nullptr && any_needed({library.get(), &requester}, known, look)) return true;
  }
  return false;
}

bool calls_mpi(const ElfFile& file) {
  std::set<std::string> known;
  return is_made_by_apcc(file) ||
         any_needed({&file, nullptr}, known, [](std::string_view name, const ElfFile&) { return is_of_mpi(name); });
}

/// Libc, which all cells share, does not use what the program brings: it would free what libc allocates.
std::string allocator_of_its_own(const ElfFile& file) {
  constexpr std::array libraries{"libjemalloc.so*", "libtcmalloc*.so*", "libmimalloc.so*", "libhoard.so*"};
  if (std::ranges::any_of(file.symbols(),
                          [](const Symbol& symbol) { return !symbol.defined && is_cellos_call(symbol.name); }))
    return {};  // which only cells have
  if (file.find("malloc") != nullptr && file.find("free") != nullptr) {
    return is_made_by_apcc(file) ? "has a malloc of its own, which libc uses only if a plain compiler links the program"
                                 : "has a malloc of its own";
  }
  for (const std::string_view name : file.needed()) {
    if (any_matches(libraries, name)) return fmt::format("has another malloc ({})", name);
  }
  return {};
}

/// Of Boehm's collector, which stops the threads of a program by signals from one to another (Guile, ECL, Inkscape).
std::string collector_of(const ElfFile& file) {
  std::set<std::string> known;
  const auto is_collector = [](std::string_view name, const ElfFile&) { return matches("libgc.so*", name); };
  return any_needed({&file, nullptr}, known, is_collector) ? "has a collector that stops threads by signals (libgc)"
                                                           : std::string();
}

bool imports_some(const ElfFile& file, std::span<const std::string_view> functions) {
  return std::ranges::any_of(file.symbols(), [functions](const Symbol& symbol) {
    return !symbol.defined && std::ranges::find(functions, symbol.name) != functions.end();
  });
}

/// Of crt1.o's other form, with which gcc and clang link for -pg.
constexpr std::array<std::string_view, 1> starting_profile{"__monstartup"};

/// A variable of libc or a relative that the executable holds a copy of, and libc does not see; empty: none.
std::string_view shared_variable_of(const ElfFile& file) {
  for (const Relocation& each : file.relocations()) {
    if (arch::relocation_kind(each.type) != arch::RelocationKind::copy) continue;
    const std::string_view name = file.symbols()[each.symbol].name;
    void* const address =
        libc::find_binding(name) == nullptr ? ::dlsym(RTLD_DEFAULT, std::string(name).c_str()) : nullptr;
    Dl_info owner{};
    if (address != nullptr && ::dladdr(address, &owner) != 0 && is_never_separate(file_name(owner.dli_fname)) &&
        !may_be_copied(name, address))
      return name;
  }
  return {};
}

/// The dynamic linker that the executable names; empty: none.
std::string interpreter_of(const ElfFile& file) {
  const std::vector<std::byte>& bytes = file.program_headers();
  for (std::size_t at = 0; at + sizeof(Elf64_Phdr) <= bytes.size(); at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr header{};
    std::memcpy(&header, bytes.data() + at, sizeof header);
    std::array<char, 4096> name{};
    if (header.p_type != PT_INTERP || header.p_filesz >= name.size()) continue;
    if (::pread(file.descriptor(), name.data(), header.p_filesz, static_cast<off_t>(header.p_offset)) > 0)
      return name.data();
  }
  return {};
}

}  // namespace

std::string why_for_processes(const ElfFile& file) {
  if (std::string why = allocator_of_its_own(file); !why.empty()) return why;
  if (std::string why = collector_of(file); !why.empty()) return why;
  if (!file.is_executable() || is_made_by_apcc(file)) return {};
  if (needs_missing_sanitizer(file)) return "is built with a sanitizer";
  if (imports_some(file, starting_profile)) return "is built with -pg, and libc has one profile for a process";
  if (const std::string_view name = shared_variable_of(file); !name.empty())
    return fmt::format("holds a copy of '{}', a variable that all cells share", name);
  const std::string its = interpreter_of(file);
  Dl_info ours{};
  const bool known = ::dladdr(reinterpret_cast<const void*>(::getauxval(AT_BASE)), &ours) != 0;
  if (known && ours.dli_fname != nullptr && !its.empty() && resolved(its) != resolved(ours.dli_fname))
    return fmt::format("has a dynamic linker of its own ({})", its);
  const std::size_t room = executable_tls_room();
  if (file.tls() && room != 0 && file.tls()->memory_bytes > room)
    return fmt::format("has {} bytes of thread-locals, of which executables of cells have room for {}",
                       file.tls()->memory_bytes, room);
  return {};
}

bool calls_mpi(const std::string& path) {
  const auto file = open_or_null(path);
  return file != nullptr && calls_mpi(*file);
}

bool needs_mpi(const std::string& path) {
  const auto file = open_or_null(path);
  std::set<std::string> known;
  return file != nullptr &&
         any_needed({file.get(), nullptr}, known, [](std::string_view name, const ElfFile&) { return is_mpi(name); });
}

namespace {

constexpr std::array<std::string_view, 13> starting_others{"fork",   "vfork",  "_Fork",  "forkpty", "daemon",
                                                           "execve", "execv",  "execvp", "execvpe", "execl",
                                                           "execlp", "execle", "fexecve"};
/// A plug-in may do all of it.
constexpr std::array<std::string_view, 17> changing_process{
    "clone",  "setrlimit", "setrlimit64", "prlimit",   "prlimit64", "setuid", "seteuid", "setreuid", "setresuid",
    "setgid", "setegid",   "setregid",    "setresgid", "setgroups", "chroot", "dlopen",  "dlmopen"};

}  // namespace

bool starts_others(const std::string& path) {
  const auto file = open_or_null(path);
  return file != nullptr && file->is_executable() && !is_made_by_apcc(*file) && imports_some(*file, starting_others);
}

bool needs_process(const std::string& path) {
  const auto file = open_or_null(path);
  if (file == nullptr || !is_made_by_apcc(*file)) return false;
  const std::vector<std::string_view>& names = file->needed();
  if (std::ranges::none_of(names, is_of_mpi) ||
      std::ranges::any_of(names, [](std::string_view name) { return matches("libaplib.so*", name); }))
    return false;
  std::set<std::string> known;
  return any_needed({file.get(), nullptr}, known, [](std::string_view /*name*/, const ElfFile& user) {
    return imports_some(user, starting_others) || imports_some(user, changing_process);
  });
}

std::optional<std::uint64_t> entries_of(const std::string& path) {
  const auto file = open_or_null(path);
  return file != nullptr ? find_table(*file) : std::nullopt;
}

bool finds_our_mpi(const std::string& path) {
  const auto file = open_or_null(path);
  if (file == nullptr) return false;
  std::set<std::string> known;
  bool is_linked = is_made_by_apcc(*file);
  // What stands before LD_LIBRARY_PATH, and what LD_LIBRARY_PATH has of the user.
  const auto is_elsewhere = [&is_linked](std::string_view name, const ElfFile& user) {
    is_linked = is_linked || is_of_mpi(name);
    return is_foreign_mpi(name) || user.runpath_is_inherited();
  };
  const char* const folders = ::getenv("LD_LIBRARY_PATH");
  return (folders == nullptr || *folders == '\0') && !any_needed({file.get(), nullptr}, known, is_elsewhere) &&
         is_linked;
}

}  // namespace aplib::loader
