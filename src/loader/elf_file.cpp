// SPDX-License-Identifier: MIT
#include "loader/elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "arch/elf.hpp"
#include "base/os/descriptor.hpp"
#include "loader/elf_segments.hpp"

namespace aplib::loader {

using arch::RelocationKind;

namespace {

// ---------------------------------------------------------------- the dynamic section, as numbers
// The tables that they name are read and checked below.

struct ElfDynamic {
  /// Throws Error(failed) when the section does not end, an element has another size than it must, or a kind of
  /// table is foreign to the machine.
  static ElfDynamic read(const ElfSegments& segments);

  std::vector<std::uint64_t> needed;  ///< Offsets into the strings, as are soname, rpath and runpath.
  std::optional<std::uint64_t> soname;
  std::optional<std::uint64_t> rpath;
  std::optional<std::uint64_t> runpath;
  Range strings;
  std::uint64_t symbols = 0;  ///< Addresses; 0: none.
  std::uint64_t hash = 0;
  std::uint64_t gnu_hash = 0;
  std::uint64_t version_indices = 0;
  std::uint64_t version_needs = 0;
  std::uint64_t version_need_count = 0;
  std::uint64_t version_definitions = 0;
  std::uint64_t version_definition_count = 0;
  Range relocations;         ///< DT_RELA
  Range jump_slots;          ///< DT_JMPREL
  Range packed_relocations;  ///< DT_RELR
  std::uint64_t init = 0;
  std::uint64_t fini = 0;
  Range preinit_array;
  Range init_array;
  Range fini_array;
  std::uint64_t flags = 0;    ///< DF_*; the older tags DT_SYMBOLIC and DT_TEXTREL are included.
  std::uint64_t flags_1 = 0;  ///< DF_1_*
};

constexpr std::string_view section = "dynamic section";

// Newer than the elf.h of some systems that we build on.
constexpr std::int64_t dt_relr_bytes = 35;
constexpr std::int64_t dt_relr = 36;
constexpr std::int64_t dt_relr_entry = 37;

struct Expected {
  std::int64_t tag;
  std::uint64_t value;
  std::string_view name;
};

constexpr std::array<Expected, 5> expected{{
    {DT_SYMENT, sizeof(Elf64_Sym), "size of a symbol"},
    {DT_RELAENT, sizeof(Elf64_Rela), "size of a relocation"},
    {dt_relr_entry, sizeof(std::uint64_t), "size of a packed relocation"},
    {DT_PLTREL, DT_RELA, "kind of jump slot relocations"},
    {DT_RELSZ, 0, "size of relocations without addends (x86-64 has none)"},
}};

struct Field {
  std::int64_t tag;
  std::uint64_t* value;
};

/// Where the values of the entries go that occur once.
auto fields_of(ElfDynamic& d) {
  return std::to_array<Field>({{DT_STRTAB, &d.strings.address},
                               {DT_STRSZ, &d.strings.bytes},
                               {DT_SYMTAB, &d.symbols},
                               {DT_HASH, &d.hash},
                               {DT_GNU_HASH, &d.gnu_hash},
                               {DT_VERSYM, &d.version_indices},
                               {DT_VERNEED, &d.version_needs},
                               {DT_VERNEEDNUM, &d.version_need_count},
                               {DT_VERDEF, &d.version_definitions},
                               {DT_VERDEFNUM, &d.version_definition_count},
                               {DT_RELA, &d.relocations.address},
                               {DT_RELASZ, &d.relocations.bytes},
                               {DT_JMPREL, &d.jump_slots.address},
                               {DT_PLTRELSZ, &d.jump_slots.bytes},
                               {dt_relr, &d.packed_relocations.address},
                               {dt_relr_bytes, &d.packed_relocations.bytes},
                               {DT_INIT, &d.init},
                               {DT_FINI, &d.fini},
                               {DT_PREINIT_ARRAY, &d.preinit_array.address},
                               {DT_PREINIT_ARRAYSZ, &d.preinit_array.bytes},
                               {DT_INIT_ARRAY, &d.init_array.address},
                               {DT_INIT_ARRAYSZ, &d.init_array.bytes},
                               {DT_FINI_ARRAY, &d.fini_array.address},
                               {DT_FINI_ARRAYSZ, &d.fini_array.bytes},
                               {DT_FLAGS_1, &d.flags_1}});
}

void check_expected(const ElfInput& input, const Elf64_Dyn& entry) {
  for (const Expected& one : expected) {
    if (entry.d_tag == one.tag && entry.d_un.d_val != one.value) {
      input.damaged(section, fmt::format("{}: {}, not {}", one.name, entry.d_un.d_val, one.value));
    }
  }
}

void check_sizes(const ElfInput& input, const ElfDynamic& dynamic) {
  for (const Range& range : {dynamic.relocations, dynamic.jump_slots}) {
    if (range.bytes % sizeof(Elf64_Rela) != 0) {
      input.damaged(section, fmt::format("a table of relocations of {} bytes", range.bytes));
    }
  }
  for (const Range& range :
       {dynamic.packed_relocations, dynamic.preinit_array, dynamic.init_array, dynamic.fini_array}) {
    if (range.bytes % sizeof(std::uint64_t) != 0) {
      input.damaged(section, fmt::format("a table of addresses of {} bytes", range.bytes));
    }
  }
}

ElfDynamic ElfDynamic::read(const ElfSegments& segments) {
  const ElfInput& input = segments.input();
  const Range place = segments.dynamic();
  if (place.address % alignof(Elf64_Dyn) != 0) input.damaged(section, "is not aligned");

  ElfDynamic result;
  const auto fields = fields_of(result);
  for (const Elf64_Dyn& entry : segments.table<Elf64_Dyn>(place.address, place.bytes / sizeof(Elf64_Dyn), section)) {
    const std::uint64_t value = entry.d_un.d_val;
    check_expected(input, entry);
    switch (entry.d_tag) {
      case DT_NULL:
        check_sizes(input, result);
        return result;
      case DT_NEEDED:
        result.needed.push_back(value);
        break;
      case DT_SONAME:
        result.soname = value;
        break;
      case DT_RPATH:
        result.rpath = value;
        break;
      case DT_RUNPATH:
        result.runpath = value;
        break;
      case DT_SYMBOLIC:
        result.flags |= DF_SYMBOLIC;
        break;
      case DT_TEXTREL:
        result.flags |= DF_TEXTREL;
        break;
      case DT_FLAGS:
        result.flags |= value;
        break;
      default:
        for (const Field& field : fields) {
          if (entry.d_tag == field.tag) *field.value = value;
        }
    }
  }
  input.damaged(section, "has no end");  // Debuggers would walk on.
}

// ---------------------------------------------------------------- the symbols, out of tables that nobody vouches for

constexpr std::size_t longest_name = 1 << 20;
// Linkers let names share their ends, so together they can be longer than their table, but not by much.
constexpr std::size_t most_sharing = 16;
constexpr std::uint16_t hidden_version_bit = 0x8000;

std::uint64_t count_in_sysv_hash(const ElfSegments& segments, std::uint64_t address) {
  constexpr std::string_view what = "hash table (DT_HASH)";
  const auto header = segments.table<std::uint32_t>(address, 2, what);
  const std::uint64_t words = 2 + std::uint64_t{header[0]} + header[1];
  if (words > segments.bytes_from(address) / sizeof(std::uint32_t)) {
    segments.input().damaged(what, fmt::format("{} buckets and {} symbols do not fit", header[0], header[1]));
  }
  return header[1];
}

/// The highest symbol is the last one of the chain that begins highest.
std::uint64_t count_in_gnu_hash(const ElfSegments& segments, std::uint64_t address) {
  constexpr std::string_view what = "hash table (DT_GNU_HASH)";
  const auto header = segments.table<std::uint32_t>(address, 4, what);
  const std::uint64_t bucket_count = header[0];
  const std::uint64_t first_symbol = header[1];
  const std::uint64_t filter_words = header[2];
  const std::uint64_t buckets_address = address + header.size() * 4 + filter_words * 8;
  const auto buckets = segments.table<std::uint32_t>(buckets_address, bucket_count, what);
  const std::uint64_t last_chain = buckets.empty() ? 0 : *std::max_element(buckets.begin(), buckets.end());
  if (last_chain == 0) return first_symbol;
  if (last_chain < first_symbol) segments.input().damaged(what, "a chain begins before the first symbol");

  const std::uint64_t chains_address = buckets_address + bucket_count * 4;
  std::array<std::uint32_t, 64> part{};
  for (std::uint64_t symbol = last_chain;;) {
    const std::uint64_t at = chains_address + (symbol - first_symbol) * 4;
    const std::uint64_t count = std::min<std::uint64_t>(segments.bytes_from(at) / 4, part.size());
    if (count == 0) segments.input().damaged(what, "the last chain has no end");
    for (const std::uint32_t word : segments.table<std::uint32_t>(at, count, what)) {
      ++symbol;
      if ((word & 1) != 0) return symbol;
    }
  }
}

/// Checks what a definition says of its place.
void check_place(const ElfSegments& segments, const Symbol& symbol) {
  const auto wrong = [&](const char* cause) {
    segments.input().damaged("symbol table", fmt::format("{}: {}", symbol.name, cause));
  };
  if (symbol.type == STT_TLS) {
    if (!segments.tls()) wrong("is thread-local in a file without thread-locals");
    if (!lies_in(symbol.value, symbol.bytes, segments.tls()->memory_bytes)) wrong("lies outside the thread-locals");
  } else if (!symbol.absolute && !lies_in(symbol.value, symbol.bytes, segments.span())) {
    wrong("lies outside the image");
  }
}

/// The string at `offset`; `strings` ends with a zero byte. Throws Error(failed), naming `what`, when there is none.
std::string_view string_at(const std::vector<char>& strings, std::uint64_t offset, const ElfInput& input,
                           std::string_view what) {
  if (offset >= strings.size()) {
    input.damaged(what, fmt::format("a name at {} in {} bytes of names", offset, strings.size() - 1));
  }
  const std::string_view name(strings.data() + offset, ::strnlen(strings.data() + offset, longest_name + 1));
  if (name.size() > longest_name) input.damaged(what, fmt::format("a name of more than {} bytes", longest_name));
  return name;
}

/// How many dynamic symbols the hash tables prove; the file has no direct word on it. Relocations may name further
/// ones.
std::uint64_t count_hashed_symbols(const ElfSegments& segments, const ElfDynamic& dynamic) {
  std::uint64_t count = 0;
  if (dynamic.hash != 0) count = count_in_sysv_hash(segments, dynamic.hash);
  if (dynamic.gnu_hash != 0) count = std::max(count, count_in_gnu_hash(segments, dynamic.gnu_hash));
  return count;
}

// Source of the format: Drepper, "ELF Symbol Versioning". Needs and definitions are chains of records, each of
// which says how many bytes further the next one is; 0 ends a chain.

// Symbols have 15 bits for the index.
constexpr std::uint32_t most_versions = 1U << 15;

class VersionReader {
 public:
  VersionReader(const ElfSegments& segments, const std::vector<char>& strings)
      : segments_(segments), strings_(strings) {}

  void read_needs(std::uint64_t address, std::uint64_t count);
  void read_definitions(std::uint64_t address, std::uint64_t count);
  [[nodiscard]] std::vector<std::string_view> take() { return std::move(names_); }

 private:
  template <class Record>
  [[nodiscard]] Record record(std::uint64_t address, std::string_view what);
  void name(std::uint32_t index, std::uint32_t string, std::string_view what);

  const ElfSegments& segments_;
  const std::vector<char>& strings_;
  std::vector<std::string_view> names_;
  std::uint32_t records_ = 0;
};

template <class Record>
Record VersionReader::record(std::uint64_t address, std::string_view what) {
  // Chains inside chains, each with steps of one byte, would take for ever.
  if (++records_ > 2 * most_versions) segments_.input().damaged(what, "more records than there can be versions");
  return segments_.table<Record>(address, 1, what).front();
}

void VersionReader::name(std::uint32_t index, std::uint32_t string, std::string_view what) {
  index &= most_versions - 1;
  if (index >= names_.size()) names_.resize(index + 1);
  names_[index] = string_at(strings_, string, segments_.input(), what);
}

void VersionReader::read_needs(std::uint64_t address, std::uint64_t count) {
  constexpr std::string_view what = "table of needed versions";
  for (; count != 0; --count) {
    const auto need = record<Elf64_Verneed>(address, what);
    if (need.vn_version != VER_NEED_CURRENT) {
      segments_.input().damaged(what, fmt::format("unknown format {}", need.vn_version));
    }
    std::uint64_t one = address + need.vn_aux;
    for (unsigned i = 0; i < need.vn_cnt; ++i) {
      const auto version = record<Elf64_Vernaux>(one, what);
      name(version.vna_other, version.vna_name, what);
      if (version.vna_next == 0) break;
      one += version.vna_next;
    }
    if (need.vn_next == 0) break;
    address += need.vn_next;
  }
}

void VersionReader::read_definitions(std::uint64_t address, std::uint64_t count) {
  constexpr std::string_view what = "table of defined versions";
  for (; count != 0; --count) {
    const auto definition = record<Elf64_Verdef>(address, what);
    if (definition.vd_version != VER_DEF_CURRENT) {
      segments_.input().damaged(what, fmt::format("unknown format {}", definition.vd_version));
    }
    // The base is the file itself; its symbols have no version. Further names of a version are its ancestors.
    if ((definition.vd_flags & VER_FLG_BASE) == 0 && definition.vd_cnt != 0) {
      name(definition.vd_ndx, record<Elf64_Verdaux>(address + definition.vd_aux, what).vda_name, what);
    }
    if (definition.vd_next == 0) break;
    address += definition.vd_next;
  }
}

/// Names of versions by the index that symbols carry; empty where there is none.
std::vector<std::string_view> read_versions(const ElfSegments& segments, const ElfDynamic& dynamic,
                                            const std::vector<char>& strings) {
  VersionReader reader(segments, strings);
  if (dynamic.version_needs != 0) reader.read_needs(dynamic.version_needs, dynamic.version_need_count);
  if (dynamic.version_definitions != 0) {
    reader.read_definitions(dynamic.version_definitions, dynamic.version_definition_count);
  }
  return reader.take();
}

/// `count` symbols; their names and versions point into `strings`.
std::vector<Symbol> read_symbols(const ElfSegments& segments, const ElfDynamic& dynamic,
                                 const std::vector<char>& strings, std::uint64_t count) {
  const auto versions = read_versions(segments, dynamic, strings);
  const auto raw = segments.table<Elf64_Sym>(dynamic.symbols, count, "symbol table");
  std::vector<std::uint16_t> indices;
  if (dynamic.version_indices != 0) {
    indices = segments.table<std::uint16_t>(dynamic.version_indices, count, "versions of symbols");
  }

  std::vector<Symbol> symbols(raw.size());
  std::size_t name_bytes = 0;
  // [0] is the null symbol, whatever its bytes say.
  for (std::size_t i = 1; i < raw.size(); ++i) {
    Symbol& symbol = symbols[i];
    symbol.name = string_at(strings, raw[i].st_name, segments.input(), "symbol table");
    name_bytes += symbol.name.size();
    if (name_bytes > longest_name + most_sharing * strings.size()) {
      segments.input().damaged("symbol table", "its names are longer than their table");
    }
    symbol.bytes = raw[i].st_size;
    symbol.type = ELF64_ST_TYPE(raw[i].st_info);
    symbol.binding = ELF64_ST_BIND(raw[i].st_info);
    symbol.visibility = ELF64_ST_VISIBILITY(raw[i].st_other);
    symbol.defined = raw[i].st_shndx != SHN_UNDEF;
    symbol.absolute = raw[i].st_shndx == SHN_ABS;
    if (symbol.defined) {
      symbol.value = raw[i].st_value;
      check_place(segments, symbol);
    }
    if (!indices.empty()) {
      const std::uint16_t index = indices[i] & ~hidden_version_bit;
      symbol.hidden_version = (indices[i] & hidden_version_bit) != 0;
      // 0 and 1 mean "local" and "without version".
      if (index > VER_NDX_GLOBAL) {
        if (index >= versions.size()) {
          segments.input().damaged("versions of symbols", fmt::format("{}: unknown version {}", symbol.name, index));
        }
        symbol.version = versions[index];
      }
    }
  }
  return symbols;
}

// ---------------------------------------------------------------- relocations
// Read, each once, and checked against the segments and the symbols.

constexpr std::string_view relocation_tables = "relocations";
constexpr std::uint64_t word_bytes = 8;
/// Bytes that a relocation of this kind changes; 0: no kind that a position-independent file may have. A copy
/// depends on its symbol.
constexpr std::uint64_t bytes_changed(RelocationKind kind) {
  switch (kind) {
    case RelocationKind::none:
    case RelocationKind::copy:
    case RelocationKind::unknown:
      return 0;
    case RelocationKind::tls_descriptor:
      return 2 * word_bytes;
    default:
      return word_bytes;
  }
}

[[noreturn]] void refuse_text_relocations(const ElfSegments& segments, std::uint64_t address) {
  segments.refuse(fmt::format("relocations change its code or constants (at address {:#x})", address),
                  "compile all its parts with -fPIC (apcc does) and link it with -Wl,-z,text to see which are not");
}

void append(std::vector<Relocation>& relocations, const std::vector<Elf64_Rela>& entries) {
  for (const Elf64_Rela& entry : entries) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info));
    if (arch::relocation_kind(type) == RelocationKind::none) continue;
    relocations.push_back({.offset = entry.r_offset,
                           .type = type,
                           .symbol = static_cast<std::uint32_t>(ELF64_R_SYM(entry.r_info)),
                           .addend = entry.r_addend});
  }
}

/// Finds writable places; remembers the last segment, for neighbours mostly share it.
class WritablePlaces {
 public:
  explicit WritablePlaces(const ElfSegments& segments) : segments_(segments) {}

  void check(Range range) {
    if (last_ == nullptr || range.address < last_->address ||
        !lies_in(range.address - last_->address, range.bytes, last_->memory_bytes)) {
      last_ = segments_.holding(range);
      if (last_ == nullptr) {
        segments_.input().damaged(
            relocation_tables,
            fmt::format("{} bytes at address {:#x} lie outside the loaded segments", range.bytes, range.address));
      }
    }
    if ((last_->protection & PROT_WRITE) == 0) refuse_text_relocations(segments_, range.address);
  }

 private:
  const ElfSegments& segments_;
  const Segment* last_ = nullptr;
};

/// DT_RELA and what of DT_JMPREL does not lie inside it, without empty ones. Their places and symbols are not
/// checked yet.
std::vector<Relocation> read_relocations(const ElfSegments& segments, const ElfDynamic& dynamic) {
  constexpr std::uint64_t entry = sizeof(Elf64_Rela);
  const Range& all = dynamic.relocations;
  const Range& jumps = dynamic.jump_slots;
  std::vector<Relocation> relocations;
  if (!all.empty()) append(relocations, segments.table<Elf64_Rela>(all.address, all.bytes / entry, relocation_tables));
  if (jumps.empty()) return relocations;

  // Some linkers count the jump slots among DT_RELA too, at its end.
  auto slots = segments.table<Elf64_Rela>(jumps.address, jumps.bytes / entry, "relocations of jump slots");
  if (!all.empty() && jumps.address < all.end() && all.address < jumps.end()) {
    if (jumps.address < all.address || (jumps.address - all.address) % entry != 0) {
      segments.input().damaged(relocation_tables, "the tables of relocations overlap");
    }
    const std::uint64_t common = (all.end() - jumps.address) / entry;
    slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(std::min(common, slots.size())));
  }
  append(relocations, slots);
  return relocations;
}

/// Throws Error(failed) when a relocation has an unknown kind or symbol, or changes what is not a writable part of
/// the image.
void check_relocations(const ElfSegments& segments, const std::vector<Relocation>& relocations,
                       const std::vector<Symbol>& symbols) {
  WritablePlaces places(segments);
  for (const Relocation& relocation : relocations) {
    if (relocation.symbol >= symbols.size()) {
      segments.input().damaged(relocation_tables, fmt::format("symbol {} of {}", relocation.symbol, symbols.size()));
    }
    const RelocationKind kind = arch::relocation_kind(relocation.type);
    std::uint64_t bytes = bytes_changed(kind);
    if (kind == RelocationKind::copy) {
      bytes = symbols[relocation.symbol].bytes;
    } else if (bytes == 0) {
      segments.refuse(
          fmt::format("needs a relocation of type {} at address {:#x}, which only code for a fixed address has",
                      relocation.type, relocation.offset),
          "compile all its parts with -fPIC (apcc does)");
    }
    places.check({relocation.offset, bytes});
  }
}

/// DT_RELR: the places it stands for, all inside writable segments.
std::vector<std::uint64_t> expand_packed_relocations(const ElfSegments& segments, const ElfDynamic& dynamic) {
  constexpr std::string_view packed = "packed relocations (DT_RELR)";
  constexpr unsigned places_per_bitmap = 63;
  const Range& table = dynamic.packed_relocations;
  std::vector<std::uint64_t> result;
  if (table.empty()) return result;
  // Each stands for a word of the file.
  const std::uint64_t most = segments.input().bytes() / word_bytes;
  WritablePlaces places(segments);
  const auto add = [&](std::uint64_t address) {
    if (result.size() >= most) segments.input().damaged(packed, "stand for more words than the file has");
    places.check({address, word_bytes});
    result.push_back(address);
  };

  // An even entry is an address; an odd one a bitmap of which of the words that follow are meant. Source: gABI,
  // "Relative Relocation Table".
  std::uint64_t next = 0;
  for (const std::uint64_t entry : segments.table<std::uint64_t>(table.address, table.bytes / word_bytes, packed)) {
    if ((entry & 1) == 0) {
      add(entry);
      next = entry + word_bytes;
      continue;
    }
    if (next == 0) segments.input().damaged(packed, "begin with a bitmap");
    for (unsigned i = 0; i < places_per_bitmap; ++i) {
      if ((entry >> (i + 1) & 1) != 0) add(next + i * word_bytes);
    }
    next += places_per_bitmap * word_bytes;
  }
  return result;
}

}  // namespace

// ---------------------------------------------------------------- the file

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

/// What lies in memory needs no more than this. Linkers write the largest page of any machine into segments; sections
/// know better, where the file still has them.
std::uint64_t needed_alignment(const ElfInput& input, std::uint64_t of_segments) {
  const Elf64_Ehdr header = input.table<Elf64_Ehdr>(0, 1, "header").front();
  const std::uint64_t bytes = std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  if (of_segments <= page_bytes || bytes == 0 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shoff > input.bytes() || bytes > input.bytes() - header.e_shoff)
    return of_segments;
  std::uint64_t needed = page_bytes;
  for (const Elf64_Shdr& section : input.table<Elf64_Shdr>(header.e_shoff, header.e_shnum, "section headers")) {
    if ((section.sh_flags & SHF_ALLOC) != 0) needed = std::max(needed, std::uint64_t{section.sh_addralign});
  }
  return std::has_single_bit(needed) ? std::min(needed, of_segments) : of_segments;
}

}  // namespace

void ElfReader::take_segments() {
  ElfFile& file = *file_;
  file.segments_ = segments_.segments();
  file.span_ = segments_.span();
  file.alignment_ = needed_alignment(input_, segments_.alignment());
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
  file.wants_executable_stack_ = segments_.wants_executable_stack();
  file.binds_symbolically_ = (dynamic_.flags & DF_SYMBOLIC) != 0;
}

void ElfReader::check_executable() const {
  if ((dynamic_.flags & DF_TEXTREL) != 0) {
    segments_.refuse("has text relocations: code or constants that must be changed for each address",
                     "compile all its parts with -fPIC, or link them with apcc");
  }
  if (!file_->is_executable_) return;
  if (!segments_.has_interpreter()) {
    input_.leave_to_processes("is linked with its own C library (-static-pie)", "link it with apcc, without -static");
  }
  if (input_.gives_rights()) {
    input_.leave_to_processes(
        "is set-user-ID, set-group-ID or has capabilities, and programs of cells take no privileges from their file",
        "execute it by itself, or name a copy without them");
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
  if (file_->is_executable_) file_->entry_ = function(segments_.entry(), "ELF header");
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
    if (arch::relocation_kind(relocation.type) == RelocationKind::tls_from_thread) file.uses_static_tls_ = true;
  }
  if ((dynamic_.flags & DF_STATIC_TLS) != 0 || (file.is_executable_ && file.tls_)) file.uses_static_tls_ = true;
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

void ElfFile::check_unchanged() const {
  constexpr const char* remedy = "start again to use the new file";
  if (identify(descriptor_.get(), path_) != identity_) {
    throw Error(Errc::failed, fmt::format("{}: was changed since it was loaded; {}", path_, remedy));
  }
  if (identify(path_) != identity_) {
    throw Error(Errc::failed, fmt::format("{}: was replaced since it was loaded; {}", path_, remedy));
  }
}

bool ElfFile::was_written_to() const noexcept {
  struct stat now {};
  return ::fstat(descriptor_.get(), &now) == 0 &&
         (static_cast<std::uint64_t>(now.st_size) != identity_.bytes ||
          now.st_mtim.tv_sec * 1'000'000'000LL + now.st_mtim.tv_nsec != identity_.modified_ns);
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

std::optional<ElfFile::Function> ElfFile::function_around(std::uint64_t address) const {
  try {
    const ElfInput input(path_);
    if (input.identity() != identity_) return std::nullopt;
    const Elf64_Ehdr header = input.table<Elf64_Ehdr>(0, 1, "header").front();
    if (header.e_shentsize != sizeof(Elf64_Shdr)) return std::nullopt;
    const auto sections = input.table<Elf64_Shdr>(header.e_shoff, header.e_shnum, "section headers");
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
      const Elf64_Shdr& strings = sections[section.sh_link];
      auto names = input.table<char>(strings.sh_offset, strings.sh_size, "names of symbols");
      names.push_back('\0');
      for (const Elf64_Sym& symbol :
           input.table<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym), "symbols")) {
        const bool covers = symbol.st_shndx != SHN_UNDEF && address - symbol.st_value < symbol.st_size;
        if (covers && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_name < names.size())
          return Function{names.data() + symbol.st_name, symbol.st_value};
      }
    }
  } catch (const Error&) {
    // The file is gone or damaged; this is only for the text of another error.
  }
  return std::nullopt;
}

// The header alone, and not ElfFile: the system runs files that cells refuse, also those of other machines.
std::string why_no_process(const std::string& path) {
  const os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  Elf64_Ehdr header{};
  const auto read = [&file](void* to, std::size_t bytes, std::uint64_t at) {
    return ::pread(file.get(), to, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
  };
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  if (status.st_size == 0) return "is empty";
  if (!read(&header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header.e_type == ET_REL) return "is an object file (.o), not yet linked";
  if (header.e_type == ET_CORE) return "is a core dump";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != arch::elf_machine) return {};
  bool has_interpreter = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    const bool whole =
        read(&part, sizeof part, header.e_phoff + i * sizeof part) &&
        (part.p_type != PT_LOAD || lies_in(part.p_offset, part.p_filesz, static_cast<std::uint64_t>(status.st_size)));
    if (!whole) return fmt::format("is cut off: its parts need more than its {} bytes", status.st_size);
    has_interpreter = has_interpreter || part.p_type == PT_INTERP;
  }
  if (header.e_type != ET_DYN || has_interpreter) return {};
  // Linkers before 2.35 give libraries an entry, too. Nobody would load what one of those needs.
  try {
    const auto library = ElfFile::open(path);
    if (header.e_entry == 0 || (!library->is_executable() && !library->needed().empty())) return "is a shared library";
  } catch (const Error&) {  // the system may know what to do with it
  }
  return {};
}

}  // namespace aplib::loader
