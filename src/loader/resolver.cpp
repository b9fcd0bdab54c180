// SPDX-License-Identifier: MIT
#include "loader/resolver.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "aplib/error.hpp"
#include "arch/elf.hpp"
#include "loader/context.hpp"
#include "loader/libc/heap.hpp"

extern "C" void* __tls_get_addr(void* index);  // ld.so's

namespace aplib::loader {

using arch::RelocationKind;

// Beginnings of names: those of aplib/cellos_one_sided.h, and what the templates of aplib/one_sided.hpp call.
bool is_one_sided_call(std::string_view symbol) noexcept {
  static constexpr std::array<std::string_view, 13> beginnings{
      "cellos_put",
      "cellos_get",
      "cellos_fetch_",
      "cellos_swap",
      "cellos_compare_swap",
      "put_stride",
      "get_stride",
      "amcheck",
      "amackwait",
      "_ZN5aplib6detail3putE",
      "_ZN5aplib6detail3getE",
      "_ZN5aplib6detail5fetchE",
      "_ZN5aplib6detail9wait_flagE",
  };
  return std::ranges::any_of(beginnings, [symbol](std::string_view begin) { return symbol.starts_with(begin); });
}

// Beginnings of names: those of aplib/cellos.h and of the headers that it includes.
bool is_cellos_call(std::string_view symbol) noexcept {
  static constexpr auto beginnings = std::to_array<std::string_view>({
      "cellos_", "cconfxy", "ccreat",  "initstat", "waitstable", "cell_exit", "getcid",  "gethcid", "getncel",
      "l_asend", "l_rsend", "l_arecv", "l_aqrecv", "h_send",     "h_recv",    "hsync",   "cbroad",  "cscatter",
      "cgather", "crecv",   "readmsg", "getmcid",  "getmtid",    "getmtype",  "getmlen", "cprobe",  "xy_",
      "x_",      "y_",      "pstat",   "cstat",    "gstat",      "dgettime",  "ap_init",
  });
  return std::ranges::any_of(beginnings, [symbol](std::string_view begin) { return symbol.starts_with(begin); });
}

namespace {

bool is_call_for_threads(std::string_view symbol) noexcept {
  return symbol == "MPI_Init_thread" || symbol == "mpi_init_thread_" || symbol == "MPI_Session_init" ||
         symbol == "mpi_session_init_";
}

/// Of POSIX, C11, C++; and of OpenMP, if the program itself says how many.
bool is_maker_of_threads(std::string_view symbol) noexcept {
  static constexpr auto beginnings = std::to_array<std::string_view>(
      {"pthread_create", "thrd_create", "_ZNSt6thread15_M_start_thread", "omp_set_num_threads"});
  return std::ranges::any_of(beginnings, [symbol](std::string_view begin) { return symbol.starts_with(begin); });
}

/// By gcc and clang.
bool is_openmp_region(std::string_view symbol) noexcept {
  static constexpr auto beginnings =
      std::to_array<std::string_view>({"GOMP_parallel", "GOMP_task", "__kmpc_fork_call"});
  return std::ranges::any_of(beginnings, [symbol](std::string_view begin) { return symbol.starts_with(begin); });
}

constexpr std::size_t missing_shown_max = 10;

/// What aplib/compat/old.h defines.
constexpr std::string_view low_memory_mark = "aplib_low_memory";

/// Variables of libraries that are never separate of which a program may have its own: the library does without the
/// program's changes.
bool may_differ(std::string_view name) {
  static constexpr std::array<std::string_view, 3> names{"obstack_alloc_failed_handler", "_nl_msg_cat_cntr",
                                                         "argp_err_exit_status"};
  return std::ranges::find(names, name) != names.end();
}

/// True as long as the process has one thread. Programs go without it: it may change after they have copied it.
constexpr std::string_view single_threaded = "__libc_single_threaded";

std::string name_with_version(const Symbol& symbol) {
  return symbol.version.empty() ? std::string(symbol.name) : fmt::format("{}@{}", symbol.name, symbol.version);
}

/// The process's symbol at `address` has no version. Ld.so accepts one for any reference; dlvsym passes over it
/// where its library has versions of other symbols.
bool is_unversioned(void* address) {
  if (address == nullptr) return false;
  Dl_info info{};
  void* found = nullptr;
  if (dladdr1(address, &info, &found, RTLD_DL_SYMENT) == 0 || found == nullptr) return false;
  const auto* symbol = static_cast<const Elf64_Sym*>(found);
  if (dladdr1(address, &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) return false;
  const Elf64_Sym* symbols = nullptr;
  const Elf64_Half* versions = nullptr;
  for (const Elf64_Dyn* entry = static_cast<link_map*>(found)->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Elf64_Sym*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_VERSYM) versions = reinterpret_cast<const Elf64_Half*>(entry->d_un.d_ptr);
  }
  constexpr unsigned index_bits = 0x7fff;
  return symbols != nullptr && (versions == nullptr || (versions[symbol - symbols] & index_bits) <= VER_NDX_GLOBAL);
}

/// What the process has at an address.
struct ProcessDatum {
  std::uint64_t bytes = 0;
  bool constant = false;
};

ProcessDatum process_datum(void* address) {
  ProcessDatum datum;
  Dl_info info{};
  void* found = nullptr;
  if (dladdr1(address, &info, &found, RTLD_DL_SYMENT) == 0 || found == nullptr) return datum;
  datum.bytes = static_cast<const Elf64_Sym*>(found)->st_size;
  if (dladdr1(address, &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) return datum;
  struct Search {
    std::uint64_t base, address;
    bool writable = true, protected_later = false;
  } search{static_cast<const link_map*>(found)->l_addr, reinterpret_cast<std::uint64_t>(address)};
  dl_iterate_phdr(
      [](dl_phdr_info* image, std::size_t, void* state) {
        auto& wanted = *static_cast<Search*>(state);
        if (image->dlpi_addr != wanted.base) return 0;
        for (const auto& header : std::span(image->dlpi_phdr, image->dlpi_phnum)) {
          if (wanted.address - wanted.base - header.p_vaddr >= header.p_memsz) continue;
          if (header.p_type == PT_LOAD) wanted.writable = (header.p_flags & PF_W) != 0;
          if (header.p_type == PT_GNU_RELRO) wanted.protected_later = true;
        }
        return 1;
      },
      &search);
  datum.constant = !search.writable || search.protected_later;
  return datum;
}

/// What libstdc++ keeps for each thread, of which every instance uses the process's. Which exceptions are thrown and
/// caught goes with the task, so tasks switch that. Executables refer to the thread-locals of std::call_once at a fixed
/// distance (initial-exec), which a copy has not; they mean something during that call only.
bool is_of_thread_in_cxx(std::string_view name) noexcept {
  static constexpr std::array<std::string_view, 4> names{"__cxa_get_globals", "__cxa_get_globals_fast",
                                                         "_ZSt11__once_call", "_ZSt15__once_callable"};
  return std::ranges::find(names, name) != names.end();
}

/// Where the system keeps the thread-locals of `library`, for the calling thread; and their module number.
struct SystemTls {
  std::size_t module = 0;
  char* block = nullptr;
};

SystemTls system_tls(void* address_of_variable, const std::vector<Library>& libraries) {
  // Which of the libraries it is: the one in whose block the variable's address lies; the offsets are small.
  for (const Library& library : libraries) {
    SystemTls found;
    if (dlinfo(library.handle, RTLD_DI_TLS_MODID, &found.module) != 0 || found.module == 0) continue;
    TlsIndex index{found.module, 0};
    found.block = static_cast<char*>(__tls_get_addr(&index));
    const auto distance = static_cast<char*>(address_of_variable) - found.block;
    if (distance >= 0 && distance < (std::ptrdiff_t{1} << 20)) return found;
  }
  return {};
}

}  // namespace

Resolver::Resolver(Program& program, const std::string& path) : program_(program), path_(path) {}

void Resolver::run() {
  add(ElfFile::open(path_), nullptr);
  preload();
  find_libraries();
  scope_ = program_.group_;
  choose_memory();
  bind();
}

void Resolver::run(const Program& main, const Surroundings& around, std::shared_ptr<const ElfFile> file,
                   const Requester& asked_by) {
  is_plugin_ = true;
  for (std::uint32_t i = 0; i < around.files.size(); ++i) {
    Image& image = program_.images_.emplace_back();
    image.file = around.files[i];
    image.module = i;
    image.static_tls_offset = around.static_tls_offsets[i];
    if (image.file != nullptr && image.file->uses_static_tls() && image.file->tls() && !image.file->is_executable())
      static_tls_used_ = std::max(static_tls_used_, static_tls_end(image.static_tls_offset, *image.file->tls()));
  }
  files_.resize(program_.images_.size());
  program_.shared_ = main.shared_;
  program_.is_reached_ = main.is_reached_;
  program_.has_low_memory_ = main.has_low_memory_;
  add(std::move(file), &asked_by);
  find_libraries();
  const auto& group = program_.group_;
  scope_ = around.global;
  scope_.insert(around.own_first ? scope_.begin() : scope_.end(), group.begin(), group.end());
  bind();
}

void Resolver::bind() {
  lay_out();
  order_initialization();
  for (const std::uint32_t index : program_.group_) {
    if (files_[index] != nullptr) plan_image(index);
  }
  report_missing();
  std::ranges::sort(program_.bound_);
  program_.bound_.erase(std::unique(program_.bound_.begin(), program_.bound_.end()), program_.bound_.end());
}

/// Gives `file` a place among the images and in the group.
std::uint32_t Resolver::add(std::shared_ptr<const ElfFile> file, const Requester* needed_by) {
  const auto free = std::ranges::find_if(program_.images_, [](const Image& image) { return image.file == nullptr; });
  const auto index = static_cast<std::uint32_t>(free - program_.images_.begin());
  if (free == program_.images_.end()) {
    program_.images_.emplace_back();
    files_.emplace_back();
  }
  files_[index] = std::make_unique<File>();
  files_[index]->requester = {file.get(), needed_by};
  program_.images_[index].module = index;
  program_.images_[index].file = std::move(file);
  program_.group_.push_back(index);
  return index;
}

void Resolver::enter_group(std::uint32_t index) {
  if (index >= program_.images_.size()) return;
  if (std::ranges::find(program_.group_, index) == program_.group_.end()) program_.group_.push_back(index);
}

/// The image of a library that an image there before needs; none if it is shared.
std::uint32_t Resolver::image_named(std::string_view name) const {
  const auto found = std::ranges::find_if(
      program_.images_, [name](const Image& image) { return image.file != nullptr && image.file->is_named(name); });
  return static_cast<std::uint32_t>(found - program_.images_.begin());
}

/// What comes between the program and the libraries that it names. Libc, which all share, and the program must have one
/// allocator.
void Resolver::preload() {
  for (const std::string& name : program_.options_.preload) {
    try {
      const Library library = find_library(name, files_.front()->requester, program_.options_.sharing);
      if (library.sharing == Sharing::shared) continue;
      if (library.file->find("malloc") != nullptr) {
        if (dlopen(library.path.c_str(), RTLD_NOLOAD | RTLD_LAZY) != nullptr) continue;
        throw Error(Errc::failed,
                    fmt::format("{} brings an allocator, which the whole process must have from its start; set "
                                "LD_PRELOAD in the environment of aprun or mpiexec, or use --processes",
                                library.path));
      }
      files_.front()->needs.push_back(add(library.file, &files_.front()->requester));
    } catch (const Error& error) {
      throw Error(Errc::failed, fmt::format("LD_PRELOAD: {}", error.what()));
    }
  }
}

void Resolver::find_libraries() {
  for (std::size_t at = 0; at < program_.group_.size(); ++at) {  // grows as it goes: breadth first
    const std::uint32_t user = program_.group_[at];
    const std::shared_ptr<const ElfFile> file = program_.images_[user].file;
    for (const std::string_view name : file->needed()) {
      if (files_[user] == nullptr) {  // was there before, and so is what it needs
        enter_group(image_named(name));
        continue;
      }
      Library library = find_library(name, files_[user]->requester, program_.options_.sharing);
      if (library.sharing == Sharing::shared) {
        const auto same = [&library](const Library& other) { return other.handle == library.handle; };
        if (std::ranges::none_of(program_.shared_, same)) program_.shared_.push_back(std::move(library));
        continue;
      }
      const auto known = std::ranges::find_if(program_.images_, [&library](const Image& image) {
        return image.file != nullptr && image.file->identity() == library.file->identity();
      });
      auto index = static_cast<std::uint32_t>(known - program_.images_.begin());
      if (known == program_.images_.end()) {
        // For is_of_thread_in_cxx().
        if (library.file->is_named("libstdc++.so.6"))
          program_.shared_.push_back({Sharing::shared, "libstdc++.so.6", nullptr, dlopen("libstdc++.so.6", RTLD_LAZY)});
        index = add(library.file, &files_[user]->requester);
      } else {
        enter_group(index);
      }
      files_[user]->needs.push_back(index);
    }
  }
}

/// The heap is in the slot where some image uses CellOS, or calls what names remote memory. Also notes whether the
/// program has threads.
void Resolver::choose_memory() {
  const auto is_own = [this](const Symbol& symbol) {
    return std::ranges::any_of(program_.images_, [&symbol](const Image& image) {
      return image.file->find(symbol.name, symbol.version) != nullptr;
    });
  };
  const auto calls = [this, &is_own](bool (*is_wanted)(std::string_view) noexcept) {
    return std::ranges::any_of(program_.images_, [&is_own, is_wanted](const Image& image) {
      return std::ranges::any_of(image.file->symbols(), [&is_own, is_wanted](const Symbol& symbol) {
        return !symbol.defined && is_wanted(symbol.name) && !is_own(symbol);
      });
    });
  };
  const auto asks_for_low_memory = [this] {
    return std::ranges::any_of(program_.images_,
                               [](const Image& image) { return image.file->find(low_memory_mark) != nullptr; });
  };
  // Libraries of the system do both for those that ask them, unless they call MPI themselves. Fortran's and those of
  // other ABIs are MPI.
  const auto refers_to = [](const Image& image, const auto& is_wanted) {
    return std::ranges::any_of(image.file->symbols(), [&is_wanted](const Symbol& symbol) {
      return !symbol.defined && is_wanted(symbol.name);
    });
  };
  const auto is_mpi_call = [](std::string_view symbol) {
    return symbol.starts_with("MPI_") || symbol.starts_with("mpi_");
  };
  const auto has = [this, &refers_to, &is_mpi_call](bool (*is_wanted)(std::string_view) noexcept) {
    return std::ranges::any_of(program_.images_, [&](const Image& image) {
      const std::string_view name = image.file->soname();
      if (name.starts_with("libmpifort_abi.so") || name.starts_with("libmpi.so")) return false;
      const bool counts =
          &image == program_.images_.data() || !is_of_system(image.file->path()) || refers_to(image, is_mpi_call);
      return counts && refers_to(image, is_wanted);
    });
  };
  program_.makes_threads_ = has(is_maker_of_threads);
  program_.has_openmp_regions_ = has(is_openmp_region);
  program_.asks_for_threads_ = has(is_call_for_threads);
  const bool names_remote_memory = calls(is_one_sided_call);
  HeapPlace& heap = program_.options_.heap;
  program_.has_low_memory_ = program_.options_.low_memory.value_or(!names_remote_memory && asks_for_low_memory());
  program_.is_reached_ = heap == HeapPlace::slot || (heap == HeapPlace::as_needed && names_remote_memory);
  if (heap != HeapPlace::as_needed) return;
  const bool in_slot = program_.has_low_memory_ || names_remote_memory || calls(is_cellos_call);
  heap = in_slot ? HeapPlace::slot : HeapPlace::libc;
}

void Resolver::lay_out() {
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < program_.images_.size(); ++i) {
    Image& image = program_.images_[i];
    if (files_[i] == nullptr) {  // a place of the instance that is none of ours
      program_.places_.push_back(0);
      continue;
    }
    const std::uint64_t alignment = image.file->alignment();
    if (alignment > SlotPlan::alignment && program_.is_reached_ && !program_.has_low_memory_) {
      refuse(i,
             fmt::format("has variables aligned to {} bytes, and the memory that cells put to and get from lies alike "
                         "in all of them up to alignments of {}; align them to {} at most",
                         alignment, SlotPlan::alignment, SlotPlan::alignment));
    }
    at = (at + alignment - 1) & ~(alignment - 1);
    program_.places_.push_back(at);
    at += image.file->span();
    program_.alignment_ = std::max(program_.alignment_, alignment);
    if (image.file->uses_static_tls() && image.file->tls()) {
      const TlsTemplate& tls = *image.file->tls();
      if (image.file->is_executable()) {
        if (i != 0 || is_plugin_)
          refuse(i, "is an executable with thread-locals, and no library; link it with -shared");
        image.static_tls_offset = place_executable_tls(image.file->path().c_str(), tls);
        continue;
      }
      image.static_tls_offset = place_static_tls(image.file->path().c_str(), tls, static_tls_used_);
      static_tls_used_ = static_tls_end(image.static_tls_offset, tls);
    }
  }
  program_.span_ = at;
}

// Dependencies first; in a circle, who was found later goes first (as ld.so does).
void Resolver::order_initialization() {
  std::vector<bool> visited(files_.size(), false);
  const std::function<void(std::uint32_t)> visit = [&](std::uint32_t index) {
    if (visited[index] || files_[index] == nullptr) return;
    visited[index] = true;
    const auto& needs = files_[index]->needs;
    for (auto need = needs.rbegin(); need != needs.rend(); ++need) visit(*need);
    program_.initialization_order_.push_back(index);
  };
  visit(program_.group_.front());
}

void Resolver::plan_image(std::uint32_t index) {
  Image& image = program_.images_[index];
  const ElfFile& file = *image.file;
  cache_.assign(file.symbols().size(), {});
  cached_.assign(file.symbols().size(), false);
  image.plan.packed = file.packed_relative();
  for (const Relocation& relocation : file.relocations()) plan_relocation(index, relocation);
  if (index == 0 && !is_plugin_) program_.entries_ = ProgramEntries(file, image.plan);
}

void Resolver::plan_relocation(std::uint32_t index, const Relocation& relocation) {
  Image& image = program_.images_[index];
  RelocationPlan& plan = image.plan;
  const auto addend = static_cast<std::uint64_t>(relocation.addend);
  const RelocationKind kind = arch::relocation_kind(relocation.type);
  Target target;
  if (relocation.symbol != 0 && kind != RelocationKind::copy) {
    if (!cached_[relocation.symbol]) {
      cache_[relocation.symbol] = look_up(index, image.file->symbols()[relocation.symbol]);
      cached_[relocation.symbol] = true;
    }
    target = cache_[relocation.symbol];
  }
  switch (kind) {
    case RelocationKind::base:
      plan.relative.push_back({relocation.offset, addend});
      break;
    case RelocationKind::symbol:
      plan_symbolic(index, relocation, target, addend);
      break;
    case RelocationKind::slot:
      plan_symbolic(index, relocation, target, 0);  // by the ABI these have no addend
      break;
    case RelocationKind::resolver:
      plan.indirect.push_back({relocation.offset, addend, index});
      break;
    case RelocationKind::tls_module:
    case RelocationKind::tls_offset:
    case RelocationKind::tls_from_thread:
    case RelocationKind::tls_descriptor:
      plan_thread_local(index, relocation, target);
      break;
    case RelocationKind::copy:
      plan_copy(index, relocation);
      break;
    case RelocationKind::symbol_size: {
      const Symbol& symbol =
          target.kind == Target::Kind::image ? *target.symbol : image.file->symbols()[relocation.symbol];
      plan.absolute.push_back({relocation.offset, symbol.bytes + addend});
      break;
    }
    default:
      refuse(index,
             fmt::format("relocation type {} at {:#x} is none that a shared object should have; compile it with apcc "
                         "or with -fPIC -shared",
                         relocation.type, relocation.offset));
  }
}

void Resolver::plan_symbolic(std::uint32_t index, const Relocation& relocation, const Target& target,
                             std::uint64_t addend) {
  RelocationPlan& plan = program_.images_[index].plan;
  switch (target.kind) {
    case Target::Kind::none:
      plan.absolute.push_back({relocation.offset, addend});  // an undefined weak symbol, or symbol 0
      break;
    case Target::Kind::image:
      if (target.symbol->type == STT_GNU_IFUNC) {
        plan.indirect.push_back({relocation.offset, target.symbol->value, target.image});
      } else if (target.symbol->absolute) {
        plan.absolute.push_back({relocation.offset, target.symbol->value + addend});
      } else if (target.image == index) {
        plan.relative.push_back({relocation.offset, target.symbol->value + addend});
      } else {
        plan.based.push_back({relocation.offset, target.symbol->value + addend, target.image});
      }
      break;
    case Target::Kind::binding:
      switch (target.binding->kind) {
        case libc::Binding::Kind::function:
          plan.absolute.push_back(
              {relocation.offset, reinterpret_cast<std::uint64_t>(target.binding->function) + addend});
          break;
        case libc::Binding::Kind::datum:
          plan.data.push_back({relocation.offset, addend, target.binding});
          break;
      }
      break;
    case Target::Kind::process:
      plan.absolute.push_back({relocation.offset, reinterpret_cast<std::uint64_t>(target.address) + addend});
      break;
  }
}

void Resolver::plan_thread_local(std::uint32_t index, const Relocation& relocation, const Target& target) {
  Image& image = program_.images_[index];
  RelocationPlan& plan = image.plan;
  const auto addend = static_cast<std::uint64_t>(relocation.addend);
  std::uint64_t module = own_module(image.module);  // symbol 0: the image's own block (local dynamic)
  std::uint64_t offset = addend;
  std::int64_t static_offset = image.static_tls_offset;
  bool in_static_block = image.file->uses_static_tls();
  if (target.kind == Target::Kind::image) {
    const Image& owner = program_.images_[target.image];
    module = own_module(owner.module);
    offset += target.symbol->value;
    static_offset = owner.static_tls_offset;
    in_static_block = owner.file->uses_static_tls();
  } else if (target.kind == Target::Kind::process) {
    const SystemTls home = system_tls(target.address, program_.shared_);
    if (home.module == 0) {
      refuse(
          index,
          fmt::format("thread-local '{}' belongs to a library that none of the program's own names; link that library",
                      image.file->symbols()[relocation.symbol].name));
    }
    module = home.module;
    offset += static_cast<std::uint64_t>(static_cast<char*>(target.address) - home.block);
    static_offset = home.block - static_cast<char*>(__builtin_thread_pointer());
    in_static_block = true;  // libraries that the process has had from its start
  } else if (relocation.symbol != 0) {
    module = 0;  // undefined and weak
  }
  switch (arch::relocation_kind(relocation.type)) {
    case RelocationKind::tls_module:
      plan.absolute.push_back({relocation.offset, module});
      break;
    case RelocationKind::tls_offset:
      plan.absolute.push_back({relocation.offset, offset});
      break;
    case RelocationKind::tls_from_thread:
      if (!in_static_block) {
        refuse(index, fmt::format("initial-exec reference to thread-local '{}' of a library without initial-exec "
                                  "thread-locals; compile with "
                                  "-ftls-model=global-dynamic",
                                  image.file->symbols()[relocation.symbol].name));
      }
      plan.absolute.push_back({relocation.offset, static_cast<std::uint64_t>(static_offset) + offset});
      break;
    default: {  // a descriptor
      const auto& owned = program_.tls_indices_.emplace_back(std::make_unique<TlsIndex>(TlsIndex{module, offset}));
      plan.absolute.push_back({relocation.offset, reinterpret_cast<std::uint64_t>(&aplib_tls_descriptor_resolver)});
      plan.absolute.push_back({relocation.offset + 8, reinterpret_cast<std::uint64_t>(owned.get())});
    }
  }
}

void Resolver::plan_copy(std::uint32_t index, const Relocation& relocation) {
  Image& image = program_.images_[index];
  const Symbol& symbol = image.file->symbols()[relocation.symbol];
  const Target target = look_up(index, symbol, true);
  if (index != 0 || is_plugin_) {
    refuse(index, fmt::format("it holds a copy of '{}', as executables do, and is wanted as a library; link it with "
                              "-shared",
                              symbol.name));
  }
  switch (target.kind) {
    case Target::Kind::none:
      return;  // it is missing, or weak
    case Target::Kind::image:
      image.plan.copies.push_back(
          {relocation.offset, target.symbol->value, std::min(symbol.bytes, target.symbol->bytes), target.image});
      return;
    case Target::Kind::binding:
      if (target.binding->kind != libc::Binding::Kind::datum || target.binding->bytes != symbol.bytes) break;
      image.plan.rooms.push_back({relocation.offset, target.binding});
      return;
    case Target::Kind::process:
      if (plan_copy_of_process(relocation, symbol, target.address)) return;
      break;
  }
  refuse(index, fmt::format("it holds a copy of '{}', as executables do, and the library that has the variable is one "
                            "that all cells share; compile and link it with apcc, or with -fPIC -shared",
                            symbol.name));
}

bool may_be_copied(std::string_view symbol, void* address) {
  return symbol == single_threaded || may_differ(symbol) || process_datum(address).constant;
}

bool Resolver::plan_copy_of_process(const Relocation& relocation, const Symbol& symbol, void* address) {
  if (symbol.name == single_threaded) return true;
  if (!may_be_copied(symbol.name, address)) return false;
  program_.images_.front().plan.copies.push_back({relocation.offset, reinterpret_cast<std::uint64_t>(address),
                                                  std::min(symbol.bytes, process_datum(address).bytes),
                                                  RelocationPlan::of_process});
  return true;
}

Resolver::Target Resolver::look_up(std::uint32_t index, const Symbol& reference, bool skip_program) {
  const auto in_image = [&](std::uint32_t i) -> Target {
    const Symbol* found = program_.images_[i].file->find(reference.name, reference.version);
    if (found == nullptr) return {};
    return {Target::Kind::image, i, found, nullptr, nullptr, nullptr};
  };
  // Local and protected symbols, and those of symbolically linked images: its own.
  if (!skip_program && reference.defined &&
      (reference.binding == STB_LOCAL || program_.images_[index].file->binds_symbolically() || index == 0)) {
    return {Target::Kind::image, index, &reference, nullptr, nullptr, nullptr};
  }
  if (is_of_thread_in_cxx(reference.name)) {
    if (Target found = look_up_in_process(reference); found.kind != Target::Kind::none) return found;
  }
  for (const std::uint32_t i : scope_) {
    if (skip_program && i == index) continue;
    if (Target found = in_image(i); found.kind != Target::Kind::none) return found;
  }
  if (reference.name == "__tls_get_addr")
    return {Target::Kind::process, 0, nullptr, nullptr, reinterpret_cast<void*>(&tls_get_addr), nullptr};
  const libc::Binding* binding = libc::find_binding(reference.name);
  if (binding != nullptr && program_.binds(*binding) && !allocates_for_process(index, reference.name)) {
    program_.bound_.push_back(binding->name);
    return {Target::Kind::binding, 0, nullptr, binding, nullptr, nullptr};
  }
  if (Target found = look_up_in_process(reference); found.kind != Target::Kind::none) return found;
  if (reference.binding != STB_WEAK) {
    missing_.push_back(
        fmt::format("'{}' (needed by {})", name_with_version(reference), program_.images_[index].file->path()));
  }
  return {};
}

/// What C++ allocates may end in code of the process, which must be able to free it.
bool Resolver::allocates_for_process(std::uint32_t index, std::string_view name) const {
  static constexpr std::array<std::string_view, 4> names{"malloc", "calloc", "aligned_alloc", "posix_memalign"};
  static const bool is_freed_anywhere = process_frees_slot_blocks();
  return !is_freed_anywhere && program_.has_slot_heap() && std::ranges::find(names, name) != names.end() &&
         program_.images_[index].file->find("__cxa_get_globals") != nullptr;
}

Resolver::Target Resolver::look_up_in_process(const Symbol& reference) const {
  // Entries of programs: never the process's own, even if it exports one.
  if (std::ranges::find(ProgramEntries::names, reference.name) != ProgramEntries::names.end()) return {};
  const std::string name(reference.name);
  const std::string version(reference.version);
  const auto in_library = [&](void* handle) -> void* {
    dlerror();
    return version.empty() ? dlsym(handle, name.c_str()) : dlvsym(handle, name.c_str(), version.c_str());
  };
  // The global scope first, as ld.so does: where the process has another malloc than libc's (a sanitizer's, one
  // that was preloaded), libc and the program must use the same.
  void* const versioned = in_library(RTLD_DEFAULT);
  void* const first = dlsym(RTLD_DEFAULT, name.c_str());
  if (void* address = first != versioned && is_unversioned(first) ? first : versioned)
    return {Target::Kind::process, 0, nullptr, nullptr, address, nullptr};
  for (const Library& library : program_.shared_) {
    if (void* address = in_library(library.handle)) {
      return {Target::Kind::process, 0, nullptr, nullptr, address, library.handle};
    }
  }
  return {};
}

void Resolver::report_missing() const {
  if (missing_.empty()) return;
  std::vector<std::string> shown = missing_;
  std::ranges::sort(shown);
  shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
  std::string more;
  if (shown.size() > missing_shown_max) {
    more = fmt::format(" and {} more", shown.size() - missing_shown_max);
    shown.resize(missing_shown_max);
  }
  const bool extends_mpi = std::ranges::any_of(
      missing_, [](std::string_view text) { return text.starts_with("'MPIX_") || text.starts_with("'PMPIX_"); });
  const std::string remedy =
      extends_mpi ? "MPIX_ begins what one MPI has beyond the standard: start the program with that MPI's mpiexec, or "
                    "compile it so that it does without"
                  : fmt::format("link the library that defines {}", shown.size() > 1 ? "them" : "it");
  throw Error(Errc::failed, fmt::format("{}: undefined symbol{} {}{}; {}", path_, shown.size() > 1 ? "s" : "",
                                        fmt::join(shown, ", "), more, remedy));
}

void Resolver::refuse(std::uint32_t index, const std::string& what) const {
  throw Error(Errc::failed, fmt::format("{}: {}", program_.images_[index].file->path(), what));
}

}  // namespace aplib::loader
