// SPDX-License-Identifier: MIT
// ElfFile: a program or library file, read and checked once, in the terms of its own addresses (0 = start of the
// image). Nothing here depends on where an instance lies. The input is hostile: whatever the bytes are, open() returns
// a consistent object, or throws Error(failed) with path, place in the file, cause, and remedy. After open() no member
// refers to anything outside the file or the image's span.
//
// Source of the format: System V ABI (gABI 4.1 and its supplement for the machine), GNU extensions as described with
// binutils.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib::loader {

inline constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t page_down(std::uint64_t address) { return address & ~(page_bytes - 1); }
constexpr std::uint64_t page_up(std::uint64_t address) { return page_down(address + page_bytes - 1); }

/// Range of the image's own addresses.
struct Range {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  [[nodiscard]] bool empty() const noexcept { return bytes == 0; }
  [[nodiscard]] std::uint64_t end() const noexcept { return address + bytes; }
};

/// A PT_LOAD. Invariants after open(): sorted by address, disjoint page ranges, the first in page 0, file_bytes <=
/// memory_bytes, offset + file_bytes <= size of the file; where file_bytes > 0, address % page == offset % page.
struct Segment {
  std::uint64_t address = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t file_bytes = 0;
  int protection = 0;  ///< PROT_READ | PROT_WRITE | PROT_EXEC, as in the file.
};

/// A dynamic symbol. `name` and `version` point into the ElfFile.
struct Symbol {
  std::string_view name;
  std::string_view version;  ///< Of the definition, or wanted by the reference; empty: none.
  std::uint64_t value = 0;   ///< Address in the image; of a TLS symbol the offset in the TLS block; undefined: 0.
  std::uint64_t bytes = 0;
  std::uint8_t type = 0;        ///< STT_*
  std::uint8_t binding = 0;     ///< STB_*
  std::uint8_t visibility = 0;  ///< STV_*; not STV_DEFAULT: the file's own references bind to this definition.
  bool defined = false;         ///< st_shndx is not SHN_UNDEF.
  bool absolute = false;        ///< SHN_ABS: value is no address of the image.
  bool hidden_version = false;  ///< Definition: matches only references that name its version.
};

/// One dynamic relocation.
struct Relocation {
  std::uint64_t offset = 0;
  std::uint32_t type = 0;    ///< The machine's number; what it means says arch::relocation_kind().
  std::uint32_t symbol = 0;  ///< Index into symbols(); 0: none.
  std::int64_t addend = 0;
};

/// The initial contents of a module's thread-locals.
struct TlsTemplate {
  std::uint64_t address = 0;  ///< Of the initial data in the image.
  std::uint64_t file_bytes = 0;
  std::uint64_t memory_bytes = 0;
  /// A power of two, at most page_bytes. A block lies where it has the remainder address % alignment, mostly 0.
  std::uint64_t alignment = 1;
};

/// A note in the file for its readers (PT_NOTE).
struct Note {
  std::string owner;
  std::uint32_t type = 0;
  std::uint64_t address = 0;  ///< Of the description in the image.
  std::vector<std::byte> description;
};

/// Who a file is: replaced or changed files differ.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

class ElfFile {
 public:
  /// Opens and checks `path`. Accepts this machine's ET_DYN (shared objects, position-independent executables).
  /// Refuses, saying which flag or tool to use: not ELF, other machine or class, ET_EXEC, ET_REL, -static, executables
  /// that give rights (set-user-ID), truncated, corrupt tables, text relocations. Call from: any thread; blocks while
  /// the file is read.
  static std::shared_ptr<const ElfFile> open(const std::string& path);
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }  ///< Absolute, symbolic links resolved.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }
  /// Throws Error(failed) when the file on disk is no longer the one that was opened, or was changed since.
  void check_unchanged() const;
  /// Somebody has written to the file since it was opened, and so to what programs have mapped. Async-signal-safe.
  [[nodiscard]] bool was_written_to() const noexcept;

  /// It puts code on the stack, as nested functions of C and internal procedures of Fortran that are arguments do.
  [[nodiscard]] bool wants_executable_stack() const noexcept { return wants_executable_stack_; }
  [[nodiscard]] const std::string& build_id() const noexcept { return build_id_; }  ///< Hexadecimal; empty: none.
  /// In the order of the file. Notes that make no sense are left out, and so are long ones (more than 4 KiB).
  [[nodiscard]] const std::vector<Note>& notes() const noexcept { return notes_; }
  [[nodiscard]] std::string_view soname() const noexcept { return soname_; }  ///< Empty: none.
  /// It is what `name` (without a slash) in a DT_NEEDED or for dlopen means, if nothing else is: its soname or file
  /// name.
  [[nodiscard]] bool is_named(std::string_view name) const noexcept {
    return name == soname_ || name == std::string_view(path_).substr(path_.rfind('/') + 1);
  }
  [[nodiscard]] const std::vector<std::string_view>& needed() const noexcept { return needed_; }
  /// DT_RUNPATH, or DT_RPATH where there is none; raw, with $ORIGIN.
  [[nodiscard]] std::string_view runpath() const noexcept { return runpath_; }
  [[nodiscard]] bool runpath_is_inherited() const noexcept { return runpath_is_inherited_; }  ///< It is a DT_RPATH.

  /// Bytes of address space an image takes, whole pages; the lowest segment starts at page 0.
  [[nodiscard]] std::uint64_t span() const noexcept { return span_; }
  [[nodiscard]] std::uint64_t alignment() const noexcept { return alignment_; }  ///< At least a page.
  [[nodiscard]] const std::vector<Segment>& segments() const noexcept { return segments_; }
  [[nodiscard]] const std::vector<std::byte>& program_headers() const noexcept {
    return program_headers_;
  }  ///< Elf64_Phdr[]
  [[nodiscard]] std::uint64_t program_headers_address() const noexcept {
    return program_headers_address_;
  }  ///< In the image; 0: not mapped.
  [[nodiscard]] std::uint64_t dynamic_address() const noexcept { return dynamic_.address; }
  [[nodiscard]] Range relro() const noexcept { return relro_; }  ///< Whole pages.
  [[nodiscard]] Range eh_frame_header() const noexcept { return eh_frame_header_; }
  [[nodiscard]] const std::optional<TlsTemplate>& tls() const noexcept { return tls_; }
  [[nodiscard]] bool uses_static_tls() const noexcept {
    return uses_static_tls_;
  }  ///< DF_STATIC_TLS, a TPOFF relocation, or an executable's own, which its code reaches without any.
  [[nodiscard]] bool is_executable() const noexcept {
    return is_executable_;
  }  ///< DF_1_PIE; an interpreter alone makes none.
  [[nodiscard]] bool binds_symbolically() const noexcept {
    return binds_symbolically_;
  }  ///< DT_SYMBOLIC or DF_SYMBOLIC.

  /// Where the system enters an executable; 0: it is none.
  [[nodiscard]] std::uint64_t entry() const noexcept { return entry_; }
  [[nodiscard]] std::uint64_t init() const noexcept { return init_; }  ///< 0: none
  [[nodiscard]] std::uint64_t fini() const noexcept { return fini_; }
  [[nodiscard]] Range preinit_array() const noexcept { return preinit_array_; }
  [[nodiscard]] Range init_array() const noexcept { return init_array_; }
  [[nodiscard]] Range fini_array() const noexcept { return fini_array_; }

  /// All dynamic symbols; [0] is the null symbol.
  [[nodiscard]] const std::vector<Symbol>& symbols() const noexcept { return symbols_; }
  /// The definition of `name` that a reference wanting `version` binds to; null: none. Weak and unique ones count,
  /// local and hidden symbols do not. Without a version: the default one. With one: that version, else a definition
  /// without any (of a file that was linked before its symbols had versions).
  [[nodiscard]] const Symbol* find(std::string_view name, std::string_view version = {}) const noexcept;

  struct Function {
    std::string name;
    std::uint64_t address = 0;
  };
  /// The function around `address` by the file's full symbol table, which has static ones too. None: the file is
  /// stripped, or its table makes no sense. Call from: any thread; reads the file each time.
  [[nodiscard]] std::optional<Function> function_around(std::uint64_t address) const;

  /// DT_RELA and DT_JMPREL together, each entry once; empty ones left out. The types: 64, GLOB_DAT, JUMP_SLOT,
  /// RELATIVE, RELATIVE64, DTPMOD64, DTPOFF64, TPOFF64, SIZE64, IRELATIVE, TLSDESC, COPY. What one changes (8
  /// bytes; 16 for TLSDESC, those of the symbol for COPY) lies in a writable segment.
  [[nodiscard]] const std::vector<Relocation>& relocations() const noexcept { return relocations_; }
  /// DT_RELR expanded, each in a writable segment: words to which the image's base is added.
  [[nodiscard]] const std::vector<std::uint64_t>& packed_relative() const noexcept { return packed_relative_; }

 private:
  friend class ElfReader;
  ElfFile() = default;

  std::string path_;
  os::GuardedFd descriptor_;
  FileIdentity identity_;
  std::string build_id_;
  std::vector<Note> notes_;
  std::string_view soname_;
  std::vector<std::string_view> needed_;
  std::string_view runpath_;
  bool runpath_is_inherited_ = false;
  std::uint64_t span_ = 0;
  std::uint64_t alignment_ = page_bytes;
  std::vector<Segment> segments_;
  std::vector<std::byte> program_headers_;
  std::uint64_t program_headers_address_ = 0;
  Range dynamic_;
  Range relro_;
  Range eh_frame_header_;
  std::optional<TlsTemplate> tls_;
  bool uses_static_tls_ = false;
  bool is_executable_ = false;
  bool wants_executable_stack_ = false;
  bool binds_symbolically_ = false;
  std::uint64_t entry_ = 0;
  std::uint64_t init_ = 0;
  std::uint64_t fini_ = 0;
  Range preinit_array_;
  Range init_array_;
  Range fini_array_;
  std::vector<char> strings_;  ///< DT_STRTAB, zero-terminated: what the string_views point into.
  std::vector<Symbol> symbols_;
  std::vector<std::uint32_t> buckets_;  ///< By hash of the name, a power of two of them: the first definition; 0: none.
  std::vector<std::uint32_t> next_;     ///< By symbol: the next definition of the same bucket; 0: none.
  std::vector<Relocation> relocations_;
  std::vector<std::uint64_t> packed_relative_;
};

/// Why the system cannot run the file as a program, which it tells only by a crash, or not at all: "is a shared
/// library". Empty: it can, or says why not.
[[nodiscard]] std::string why_no_process(const std::string& path);

}  // namespace aplib::loader
