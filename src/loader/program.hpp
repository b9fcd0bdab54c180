// SPDX-License-Identifier: MIT
// Program: a program file with its separate libraries, every symbol resolved once. From it instances are made by replaying the plan. One per file and
// process; immutable after load(), so any number of threads may make instances of it at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "loader/binding.hpp"
#include "loader/elf_file.hpp"
#include "loader/library.hpp"
#include "loader/program_entries.hpp"
#include "loader/relocation.hpp"
#include "loader/tls.hpp"

namespace aplib::loader {

/// Where a program's malloc takes memory from.
enum class HeapPlace : std::uint8_t {
  as_needed,  ///< Slot, if the program uses one-sided communication (one_sided_calls.hpp); else libc.
  slot,       ///< Its cell's heap (memory/slot_heap.hpp), which Host::heap() gives.
  libc,       ///< The process's.
};

struct LoadOptions {
  SharingRules sharing;
  HeapPlace heap = HeapPlace::as_needed;  ///< Of a loaded program: slot or libc.
  bool account_heap = false;              ///< Count each instance's malloc (docs/privatization.md).
};

/// One file of a program in resolved form.
struct Image {
  std::shared_ptr<const ElfFile> file;
  RelocationPlan plan;
  std::uint32_t module =
      0;  ///< Number of its thread-locals, one per image of the program, also of images loaded later (tls.hpp).
  std::int64_t static_tls_offset =
      0;  ///< Of its initial-exec thread-locals from the thread pointer; only if file->uses_static_tls().
};

/// What an instance has when it loads a file more (dlopen).
struct Surroundings {
  std::vector<std::shared_ptr<const ElfFile>> files;  ///< By image of the instance; null: a free place.
  std::vector<std::uint32_t> global;                  ///< Images whose symbols every image sees, in order of search.
  bool own_first = false;                             ///< RTLD_DEEPBIND: the new file's own symbols before those.
};

class Program {
 public:
  /// Opens `path` (found as given; no search), finds its libraries, resolves everything. Throws Error(failed): file, symbol, who refers to it, and what to do.
  static std::shared_ptr<const Program> load(const std::string& path, const LoadOptions& options = {});

  /// A file that instances of `main` load while they run, with the separate libraries that they do not have yet, resolved against `around`. The result's images() are all of the instance by
  /// their places there; initialization_order() names the new ones alone. Made once for all instances that ask for it in the same surroundings.
  /// `asked_by`: whose call it is. Throws Error(failed) as load(), and for initial-exec thread-locals, for which it is too late then.
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
  /// References of the program to this name are bound by us.
  [[nodiscard]] bool binds(const Binding& binding) const noexcept {
    return !binding.of_heap || has_slot_heap() || options_.account_heap;
  }
  /// Some image refers to the binding (binding.hpp) of this name: what nobody uses need not be made.
  [[nodiscard]] bool binds(std::string_view name) const noexcept;

  /// A function or datum that the program itself (image 0) defines, or null. For main, cell_main, host_main and MAIN__ also when it is
  /// hidden, if the program was linked by apcc.
  struct Definition {
    std::uint64_t address = 0;  ///< In image 0; 0: none.
    explicit operator bool() const noexcept { return address != 0; }
  };
  [[nodiscard]] Definition find(std::string_view name) const noexcept;
  /// Names of the functions that image 0 offers, sorted; for error messages.
  [[nodiscard]] std::vector<std::string_view> functions() const;

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
  std::vector<std::unique_ptr<TlsIndex>> tls_indices_;  // what TLS descriptors point to
  std::vector<std::string_view> bound_;                 // sorted
  mutable std::mutex plugins_mutex_;
  mutable std::map<std::string, std::shared_ptr<const Program>> plugins_;  // by file and surroundings
  ProgramEntries entries_;
};

}  // namespace aplib::loader
