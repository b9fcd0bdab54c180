// SPDX-License-Identifier: MIT
// Program: a program file with its separate libraries, every symbol resolved once. Making an instance replays the plan.
// A process has one for each file. It does not change after load(), so any number of threads may make instances of it
// at once.
//
// Library: which file a needed library is, and whether every instance gets its own copy of it or all share the
// process's one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calls/debug_types.hpp"
#include "loader/context.hpp"
#include "loader/elf_file.hpp"
#include "loader/libc/bindings.hpp"

namespace aplib::loader {

// ---------------------------------------------------------------- libraries

/// The user's word on libraries, by file name or soname with `*` and `?`. A private pattern wins over a shared one.
struct SharingRules {
  std::vector<std::string> private_names;
  std::vector<std::string> shared_names;
};

enum class Sharing : std::uint8_t {
  shared,    ///< The process's own.
  separate,  ///< Every instance has its own copy.
};

struct Library {
  Sharing sharing = Sharing::shared;
  std::string path;                     ///< Separate: the file. Shared: what dlopen takes.
  std::shared_ptr<const ElfFile> file;  ///< Separate only.
  void* handle = nullptr;               ///< Shared only: dlopen's, kept for ever.
};

/// One of the chain of those who need a library: who names it comes first, then who needs that one, up to the program.
struct Requester {
  const ElfFile* file = nullptr;  ///< Null: the host itself asks.
  const Requester* needed_by = nullptr;
};

/// Finds `name` (a DT_NEEDED entry or an argument of dlopen) for `requester`.
///
/// Order, as ld.so's: a name with a slash is a path; else DT_RPATH of the chain (where the requester has no
/// DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH of the requester alone, the system's. $ORIGIN, $LIB and $PLATFORM are
/// replaced; files for other machines are passed over.
///
/// Sharing: some libraries are never separate, whatever the rules (libc and its parts, ld-linux, libgcc_s,
/// libaplib, sanitizer runtimes), and of those the process's own is taken, wherever another lies; libaplib is always
/// the one that this code is in. Other MPIs' are replaced by front ends. Else the rules decide. Where they say
/// nothing, every instance has its own copy, as a process would, but of what speaks to a device and of libquadmath.
///
/// Call from: any thread; blocks while files are read, and runs constructors of shared libraries that the process
/// has not yet loaded. Throws Error(failed) naming the library, who needs it, and where it was looked for.
Library find_library(std::string_view name, const Requester& requester, const SharingRules& rules);

/// /lib, /lib64, /usr/lib, ... and everything below: `path` is a library of the system.
bool is_of_system(std::string_view path);

/// The process has this library once, whatever the rules.
bool is_never_separate(std::string_view name);

/// True when one of `patterns` (with * and ?) is the whole of `name`.
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

// Where the system's libraries lie, without loading one: the dynamic linker's cache.

/// Path of the system's library `name` for this machine; empty: the system has none. Call from: any thread; blocks
/// while files are read.
[[nodiscard]] std::string find_system_library(std::string_view name);

/// Looks `name` up in the bytes of a cache; empty: not there, or the bytes make no sense. Source of the format:
/// glibc's ldconfig, "glibc-ld.so.cache1.1".
[[nodiscard]] std::string find_in_library_cache(std::string_view cache, std::string_view name);

// ---------------------------------------------------------------- what a file tells before it is loaded
// Call from: any thread; they block while files are read.

/// Why cells can load the executable, and cannot run it: "is built with a sanitizer". Empty: nothing is known.
[[nodiscard]] std::string why_for_processes(const ElfFile& file);
/// The file or one of its libraries calls MPI or APlib, or it is made by apcc. False also where it cannot be read.
[[nodiscard]] bool calls_mpi(const std::string& path);
/// The file or one of its libraries calls MPI: programs of CellOS do not.
[[nodiscard]] bool needs_mpi(const std::string& path);
/// An executable that forks or executes others by itself, and was not made by apcc: env, bash, strace.
[[nodiscard]] bool starts_others(const std::string& path);
/// A program of MPI that apcc has made, and that imports itself or in a library what only a process may do, as fork().
[[nodiscard]] bool needs_process(const std::string& path);
/// Where the words of ProgramEntries::names are. Nothing: apcc did not make it.
[[nodiscard]] std::optional<std::uint64_t> entries_of(const std::string& path);
/// As an ordinary process, it finds our MPI by LD_LIBRARY_PATH: nothing names another place for it.
[[nodiscard]] bool finds_our_mpi(const std::string& path);

// ---------------------------------------------------------------- programs

/// What is left to do for an image in each instance once every symbol is resolved: add bases and store values, in the
/// order of the members.
struct RelocationPlan {
  /// word at offset = value
  struct Store {
    std::uint64_t offset;
    std::uint64_t value;
  };
  /// word at offset = base of image `image` + value
  struct Based {
    std::uint64_t offset;
    std::uint64_t value;
    std::uint32_t image;
  };
  /// word at offset = place of the instance's datum + value
  struct Datum {
    std::uint64_t offset;
    std::uint64_t value;
    const libc::Binding* binding;
  };
  /// What `binding` stands for lies at offset
  struct Room {
    std::uint64_t offset;
    const libc::Binding* binding;
  };
  /// `bytes` bytes at offset = those at `value` of image `image`, or, with image == of_process, of the process
  struct Copy {
    std::uint64_t offset;
    std::uint64_t value;
    std::uint64_t bytes;
    std::uint32_t image;
  };
  static constexpr std::uint32_t of_process = 0xffff'ffff;

  std::vector<Room> rooms;            ///< RelocationKind::copy, of what is each instance's own
  std::vector<std::uint64_t> packed;  ///< word at offset += own base (DT_RELR)
  std::vector<Store> relative;        ///< word at offset = own base + value
  std::vector<Store> absolute;        ///< the process's symbols; modules and offsets of thread-locals
  std::vector<Based> based;           ///< symbols of other images of the instance
  std::vector<Datum> data;
  std::vector<Copy> copies;  ///< RelocationKind::copy, once all images have the above
  std::vector<Based>
      indirect;  ///< word at offset = result of the resolver at base of image `image` + value; last of all
};

/// The functions that a program made by apcc starts with, as it says itself. They need not be visible. Source:
/// src/compile/start/program.S.
class ProgramEntries {
 public:
  /// All entries there are, in the table's order.
  static constexpr std::array<std::string_view, 4> names{"main", "cell_main", "host_main", "MAIN__"};

  ProgramEntries() = default;
  /// Of `file`, whose own relocations are `plan`. None where apcc did not link the file.
  ProgramEntries(const ElfFile& file, const RelocationPlan& plan);

  /// Address in the image of the entry called `name`; 0: the program lacks it, or no entry has that name.
  [[nodiscard]] std::uint64_t find(std::string_view name) const noexcept;

 private:
  std::array<std::uint64_t, names.size()> addresses_{};  // by names
};

/// Where a program's malloc takes memory from.
enum class HeapPlace : std::uint8_t {
  as_needed,  ///< Slot, if the program uses CellOS or one-sided communication (resolver.hpp); else libc.
  slot,       ///< Its cell's heap (memory/slot_heap.hpp), which CellServices::heap() gives.
  libc,       ///< The process's.
};

struct LoadOptions {
  SharingRules sharing;
  /// Libraries that come before those that the program names (LD_PRELOAD), as find_library() takes them. Such with an
  /// allocator are the process's, which must have them.
  std::vector<std::string> preload;
  HeapPlace heap = HeapPlace::as_needed;  ///< Of a loaded program: slot or libc.
  bool account_heap = false;              ///< Count each instance's malloc (docs/privatization.md).
  /// Globals and heap lie below 2 GiB (memory/slot.hpp, LowPlan). None: those of programs that ask for it
  /// (aplib/compat/old.h) and call no one-sided functions.
  std::optional<bool> low_memory;
};

/// One file of a program in resolved form.
struct Image {
  std::shared_ptr<const ElfFile> file;
  RelocationPlan plan;
  std::uint32_t module = 0;  ///< Number of its thread-locals, one per image, also of those loaded later (context.hpp).
  std::int64_t static_tls_offset =
      0;  ///< Of its initial-exec thread-locals from the thread pointer; only if file->uses_static_tls().
};

/// What an instance has when it loads a file more (dlopen).
struct Surroundings {
  std::vector<std::shared_ptr<const ElfFile>> files;  ///< By image of the instance; null: a free place.
  std::vector<std::int64_t> static_tls_offsets;       ///< The same of their initial-exec thread-locals.
  std::vector<std::uint32_t> global;                  ///< Images whose symbols every image sees, in order of search.
  bool own_first = false;                             ///< RTLD_DEEPBIND: the new file's own symbols before those.
};

class Program {
 public:
  /// Opens `path` (found as given; no search), finds its libraries, resolves everything. Throws Error(failed):
  /// file, symbol, who refers to it, and what to do.
  static std::shared_ptr<const Program> load(const std::string& path, const LoadOptions& options = {});

  /// A file that instances of `main` load while they run, with the separate libraries that they do not have yet,
  /// resolved against `around`. The result's images() are all of the instance by their places there;
  /// initialization_order() names the new ones alone. Made once for all instances that ask for it in the same
  /// surroundings. `asked_by`: whose call it is. Throws Error(failed) as load(), and for initial-exec
  /// thread-locals, for which it is too late then.
  static std::shared_ptr<const Program> load_plugin(const Program& main, const Surroundings& around,
                                                    std::shared_ptr<const ElfFile> file, const Requester& asked_by);

  [[nodiscard]] const std::string& path() const noexcept { return images_.front().file->path(); }
  /// [0] is the program itself, then its separate libraries in breadth-first order of need.
  [[nodiscard]] const std::vector<Image>& images() const noexcept { return images_; }
  /// Image indices, dependencies first: the order of constructors.
  [[nodiscard]] const std::vector<std::uint32_t>& initialization_order() const noexcept {
    return initialization_order_;
  }
  /// Image indices, the file itself first, then what it needs, breadth first: the order of search.
  [[nodiscard]] const std::vector<std::uint32_t>& group() const noexcept { return group_; }
  [[nodiscard]] const std::vector<Library>& shared_libraries() const noexcept { return shared_; }
  [[nodiscard]] const LoadOptions& options() const noexcept { return options_; }
  /// Address space of one instance, all images; each image's place in it.
  [[nodiscard]] std::uint64_t span() const noexcept { return span_; }
  [[nodiscard]] std::uint64_t alignment() const noexcept { return alignment_; }
  [[nodiscard]] std::uint64_t place(std::size_t image) const noexcept { return places_[image]; }
  [[nodiscard]] bool has_slot_heap() const noexcept { return options_.heap == HeapPlace::slot; }
  /// LoadOptions::low_memory, decided.
  [[nodiscard]] bool has_low_memory() const noexcept { return has_low_memory_; }
  /// It makes threads. `by_openmp`: regions of OpenMP make threads.
  [[nodiscard]] bool makes_threads(bool by_openmp) const noexcept {
    return makes_threads_ || (by_openmp && has_openmp_regions_);
  }
  [[nodiscard]] bool wants_executable_stack() const noexcept;
  /// It asks for a level of MPI's support for threads.
  [[nodiscard]] bool asks_for_threads() const noexcept { return asks_for_threads_; }
  /// Both.
  [[nodiscard]] bool has_threads(bool by_openmp) const noexcept {
    return asks_for_threads_ && makes_threads(by_openmp);
  }
  /// Other cells may name the memory of its instances, also after their ends.
  [[nodiscard]] bool is_reached() const noexcept { return is_reached_; }
  /// References of the program to this name are bound by us.
  [[nodiscard]] bool binds(const libc::Binding& binding) const noexcept {
    return !binding.of_heap || has_slot_heap() || options_.account_heap;
  }
  /// Some image refers to the binding (libc/bindings.hpp) of this name: what nobody uses need not be made.
  [[nodiscard]] bool binds(std::string_view name) const noexcept;

  /// A function or datum that the program itself (image 0) defines, or null. For main, cell_main, host_main and
  /// MAIN__ also when it is hidden, if the program was linked by apcc.
  struct Definition {
    std::uint64_t address = 0;  ///< In image 0; 0: none.
    explicit operator bool() const noexcept { return address != 0; }
  };
  [[nodiscard]] Definition find(std::string_view name) const noexcept;
  /// Of an executable: where the system would enter it. There it calls libc's __libc_start_main. Null: it does not, or
  /// is no executable.
  [[nodiscard]] Definition start() const noexcept;
  /// Names of the functions that image 0 offers, sorted; for error messages.
  [[nodiscard]] std::vector<std::string_view> functions() const;
  /// What the file's debug information says of the function there; null: nothing. It is read once. Call from: any
  /// thread.
  [[nodiscard]] const calls::DebugFunction* types_of(Definition function) const;

 private:
  friend class Resolver;
  Program() = default;

  LoadOptions options_;
  std::vector<Image> images_;
  std::vector<Library> shared_;
  std::vector<std::uint32_t> initialization_order_;
  std::vector<std::uint32_t> group_;
  std::vector<std::uint64_t> places_;
  std::uint64_t span_ = 0;
  std::uint64_t alignment_ = page_bytes;
  bool is_reached_ = false;
  bool has_low_memory_ = false;
  bool makes_threads_ = false;                          ///< Beside those of OpenMP.
  bool has_openmp_regions_ = false;                     ///< Of as many threads as OMP_NUM_THREADS says.
  bool asks_for_threads_ = false;                       ///< Asks MPI for a level of support.
  std::vector<std::unique_ptr<TlsIndex>> tls_indices_;  // what TLS descriptors point to
  std::vector<std::string_view> bound_;                 // sorted
  mutable std::mutex plugins_mutex_;
  mutable std::map<std::string, std::shared_ptr<const Program>> plugins_;  // by file and surroundings
  mutable std::mutex types_mutex_;
  mutable std::map<std::uint64_t, std::optional<calls::DebugFunction>> types_;  // by address
  ProgramEntries entries_;
};

}  // namespace aplib::loader
