// SPDX-License-Identifier: MIT
#include "loader/elf_file.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <span>
#include <utility>

#include "aplib/error.hpp"
#include "loader/elf_dynamic.hpp"
#include "loader/elf_input.hpp"
#include "loader/elf_relocations.hpp"
#include "loader/elf_segments.hpp"
#include "loader/elf_symbols.hpp"

namespace aplib::loader {

/// Puts an ElfFile together, one kind of contents after the other.
class ElfReader {
 public:
  explicit ElfReader(const std::string& path)
      : input_(path), segments_(input_), dynamic_(ElfDynamic::read(segments_)), file_(new ElfFile) {}

  std::shared_ptr<const ElfFile> read() {
    take_segments();
    check_executable();
    read_strings();
    read_calls();
    read_symbols_and_relocations();
    index_definitions();
    file_->identity_ = input_.identity();
    file_->path_ = input_.path();
    file_->descriptor_ = input_.release();
    return std::move(file_);
  }

 private:
  void take_segments();
  void check_executable() const;
  void read_strings();
  void read_calls();
  void read_symbols_and_relocations();
  void index_definitions();
  std::string_view string(std::uint64_t offset) const {
    return string_at(file_->strings_, offset, input_, "dynamic section");
  }
  std::uint64_t function(std::uint64_t address, const char* what) const;
  Range functions(Range table, const char* what) const;

  ElfInput input_;
  ElfSegments segments_;
  ElfDynamic dynamic_;
  std::shared_ptr<ElfFile> file_;
};

namespace {

bool is_exported(const Symbol& symbol) {
  const bool global = symbol.binding == STB_GLOBAL || symbol.binding == STB_WEAK || symbol.binding == STB_GNU_UNIQUE;
  const bool visible = symbol.visibility == STV_DEFAULT || symbol.visibility == STV_PROTECTED;
  return symbol.defined && global && visible && symbol.type != STT_SECTION && symbol.type != STT_FILE;
}

std::string build_id_in(const std::vector<Note>& notes) {
  constexpr std::size_t longest_id = 64;
  for (const Note& note : notes) {
    if (note.owner != "GNU" || note.type != NT_GNU_BUILD_ID || note.description.size() > longest_id) continue;
    std::string text;
    for (const std::byte one : note.description) text += fmt::format("{:02x}", static_cast<unsigned>(one));
    return text;
  }
  return {};
}

std::size_t hash_of(std::string_view name) { return std::hash<std::string_view>{}(name); }

}  // namespace

void ElfReader::take_segments() {
  ElfFile& file = *file_;
  file.segments_ = segments_.segments();
  file.span_ = segments_.span();
  file.alignment_ = segments_.alignment();
  const auto headers = std::as_bytes(std::span(segments_.headers()));
  file.program_headers_.assign(headers.begin(), headers.end());
  file.program_headers_address_ = segments_.headers_address();
  file.dynamic_ = segments_.dynamic();
  file.relro_ = segments_.relro();
  file.eh_frame_header_ = segments_.eh_frame_header();
  file.tls_ = segments_.tls();
  file.notes_ = segments_.notes();
  file.build_id_ = build_id_in(file.notes_);
  file.is_executable_ = (dynamic_.flags_1 & DF_1_PIE) != 0;
  file.binds_symbolically_ = (dynamic_.flags & DF_SYMBOLIC) != 0;
}

void ElfReader::check_executable() const {
  if ((dynamic_.flags & DF_TEXTREL) != 0) {
    input_.refuse("has text relocations: code or constants that must be changed for each address",
                  "compile all its parts with -fPIC, or link them with apcc");
  }
  if (!file_->is_executable_) return;
  if (!segments_.has_interpreter()) {
    input_.refuse("is linked with its own C library (-static-pie)", "link it with apcc, without -static");
  }
  if (segments_.tls() && segments_.tls()->memory_bytes != 0) {
    input_.refuse(
        "is an executable with thread-local variables, which exist once per thread at a fixed place (local-exec)",
        "link it with apcc, or compile with -fPIC and link with -shared");
  }
}

void ElfReader::read_strings() {
  ElfFile& file = *file_;
  if (dynamic_.strings.bytes != 0) {
    file.strings_ = segments_.table<char>(dynamic_.strings.address, dynamic_.strings.bytes, "names (DT_STRTAB)");
  }
  file.strings_.push_back('\0');
  if (dynamic_.soname) file.soname_ = string(*dynamic_.soname);
  for (const std::uint64_t name : dynamic_.needed) {
    file.needed_.push_back(string(name));
    if (file.needed_.back().empty()) input_.damaged("dynamic section", "needs a library without a name");
  }
  if (dynamic_.runpath) {
    file.runpath_ = string(*dynamic_.runpath);
  } else if (dynamic_.rpath) {
    file.runpath_ = string(*dynamic_.rpath);
    file.runpath_is_inherited_ = true;
  }
}

void ElfReader::read_calls() {
  file_->init_ = function(dynamic_.init, "DT_INIT");
  file_->fini_ = function(dynamic_.fini, "DT_FINI");
  file_->preinit_array_ = functions(dynamic_.preinit_array, "DT_PREINIT_ARRAY");
  file_->init_array_ = functions(dynamic_.init_array, "DT_INIT_ARRAY");
  file_->fini_array_ = functions(dynamic_.fini_array, "DT_FINI_ARRAY");
}

std::uint64_t ElfReader::function(std::uint64_t address, const char* what) const {
  if (address == 0) return 0;
  const Segment* segment = segments_.holding({address, 1});
  if (segment == nullptr || (segment->protection & PROT_EXEC) == 0) {
    input_.damaged(what, fmt::format("there is no code at address {:#x}", address));
  }
  return address;
}

Range ElfReader::functions(Range table, const char* what) const {
  if (table.empty()) return {};
  if (table.address % sizeof(void*) != 0 || segments_.holding(table) == nullptr) {
    input_.damaged(what, fmt::format("{} bytes at address {:#x} are not aligned or not in one segment", table.bytes,
                                     table.address));
  }
  return table;
}

void ElfReader::read_symbols_and_relocations() {
  ElfFile& file = *file_;
  file.relocations_ = read_relocations(segments_, dynamic_);
  std::uint64_t count = count_hashed_symbols(segments_, dynamic_);
  for (const Relocation& relocation : file.relocations_) {
    if (relocation.symbol != 0) count = std::max<std::uint64_t>(count, std::uint64_t{relocation.symbol} + 1);
    if (relocation.type == R_X86_64_TPOFF64) file.uses_static_tls_ = true;
  }
  if ((dynamic_.flags & DF_STATIC_TLS) != 0) file.uses_static_tls_ = true;
  if (count != 0) file.symbols_ = read_symbols(segments_, dynamic_, file.strings_, count);
  if (file.symbols_.empty()) file.symbols_.emplace_back();
  check_relocations(segments_, file.relocations_, file.symbols_);
  file.packed_relative_ = expand_packed_relocations(segments_, dynamic_);
}

void ElfReader::index_definitions() {
  ElfFile& file = *file_;
  file.buckets_.resize(std::bit_ceil(file.symbols_.size()));
  file.next_.resize(file.symbols_.size());
  // Backwards, so that each chain is in the order of the table.
  for (std::size_t i = file.symbols_.size(); i-- > 1;) {
    if (!is_exported(file.symbols_[i])) continue;
    std::uint32_t& first = file.buckets_[hash_of(file.symbols_[i].name) & (file.buckets_.size() - 1)];
    file.next_[i] = first;
    first = static_cast<std::uint32_t>(i);
  }
}

std::shared_ptr<const ElfFile> ElfFile::open(const std::string& path) { return ElfReader(path).read(); }

ElfFile::~ElfFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void ElfFile::check_unchanged() const {
  constexpr const char* remedy = "start again to use the new file";
  if (identify(descriptor_, path_) != identity_) {
    throw Error(Errc::failed, fmt::format("{}: was changed since it was loaded; {}", path_, remedy));
  }
  FileIdentity now;
  try {
    now = ElfInput(path_).identity();
  } catch (const Error& error) {
    throw Error(Errc::failed, fmt::format("{} (it was there when it was loaded)", error.what()));
  }
  if (now != identity_) {
    throw Error(Errc::failed, fmt::format("{}: was replaced since it was loaded; {}", path_, remedy));
  }
}

const Symbol* ElfFile::find(std::string_view name, std::string_view version) const noexcept {
  const Symbol* without_version = nullptr;
  for (std::uint32_t i = buckets_[hash_of(name) & (buckets_.size() - 1)]; i != 0; i = next_[i]) {
    const Symbol& symbol = symbols_[i];
    if (symbol.name != name) continue;
    if (version.empty() ? !symbol.hidden_version : symbol.version == version) return &symbol;
    if (symbol.version.empty() && !symbol.hidden_version && without_version == nullptr) without_version = &symbol;
  }
  return without_version;
}

}  // namespace aplib::loader
