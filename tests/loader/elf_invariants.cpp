// SPDX-License-Identifier: MIT
#include "elf_invariants.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <bit>
#include <cstring>

namespace aplib::loader::test {
namespace {

struct Broken {
  std::string text;
};

void promise(bool kept, const char* what) {
  if (!kept) throw Broken{what};
}

bool inside(std::uint64_t start, std::uint64_t bytes, std::uint64_t limit) {
  return start <= limit && bytes <= limit - start;
}

/// The segment whose memory (or, if asked, whose bytes in the file) contains the whole range.
const Segment* home(const ElfFile& file, std::uint64_t address, std::uint64_t bytes, bool of_file = false) {
  for (const Segment& one : file.segments()) {
    if (address >= one.address && inside(address - one.address, bytes, of_file ? one.file_bytes : one.memory_bytes)) {
      return &one;
    }
  }
  return nullptr;
}

void check_text(std::string_view text) {
  if (text.data() == nullptr) return;  // none
  // Reads every byte, so that a sanitizer checks its place.
  promise(std::memchr(text.data(), 0, text.size() + 1) == text.data() + text.size(), "a name ends with a zero byte");
}

void check_segments(const ElfFile& file) {
  std::uint64_t end = 0;
  promise(!file.segments().empty(), "there is a segment");
  promise(file.segments().front().address < page_bytes, "the first segment starts in page 0");
  for (const Segment& one : file.segments()) {
    promise(one.address / page_bytes * page_bytes >= end, "segments are sorted and share no page");
    promise(inside(one.address, one.memory_bytes, file.span()), "segments lie in the span");
    promise(one.memory_bytes > 0 && one.file_bytes <= one.memory_bytes, "bytes in file <= bytes in memory");
    promise(inside(one.offset, one.file_bytes, file.identity().bytes), "segments lie in the file");
    promise(one.file_bytes == 0 || one.address % page_bytes == one.offset % page_bytes, "pages can be mapped");
    promise((one.protection & ~(PROT_READ | PROT_WRITE | PROT_EXEC)) == 0, "protection");
    end = (one.address + one.memory_bytes + page_bytes - 1) / page_bytes * page_bytes;
  }
  promise(file.span() == end, "the span ends with the last page");
  promise(std::has_single_bit(file.alignment()) && file.alignment() >= page_bytes, "alignment");
}

void check_places(const ElfFile& file) {
  const auto& headers = file.program_headers();
  promise(headers.size() % sizeof(Elf64_Phdr) == 0 && !headers.empty(), "whole program headers");
  promise(file.program_headers_address() == 0 || home(file, file.program_headers_address(), headers.size(), true),
          "program headers are mapped");
  promise(home(file, file.dynamic_address(), sizeof(Elf64_Dyn), true), "the dynamic section is mapped");
  promise(file.eh_frame_header().empty() || home(file, file.eh_frame_header().address, file.eh_frame_header().bytes),
          "the unwind table is mapped");
  const Range relro = file.relro();
  promise(relro.address % page_bytes == 0 && relro.bytes % page_bytes == 0, "relro has whole pages");
  promise(inside(relro.address, relro.bytes, file.span()), "relro lies in the span");
  for (const std::uint64_t call : {file.init(), file.fini()}) {
    const Segment* code = home(file, call, 1);
    promise(call == 0 || (code != nullptr && (code->protection & PROT_EXEC) != 0), "init and fini are code");
  }
  for (const Range& table : {file.preinit_array(), file.init_array(), file.fini_array()}) {
    promise(table.address % 8 == 0 && table.bytes % 8 == 0, "arrays are aligned");
    promise(table.empty() || home(file, table.address, table.bytes), "arrays are mapped");
  }
  if (file.tls()) {
    const TlsTemplate& tls = *file.tls();
    promise(tls.file_bytes <= tls.memory_bytes, "thread-locals: bytes in file <= bytes in memory");
    promise(tls.file_bytes == 0 || home(file, tls.address, tls.file_bytes, true), "thread-locals are mapped");
    promise(std::has_single_bit(tls.alignment) && tls.alignment <= page_bytes, "alignment of thread-locals");
  }
}

void check_names(const ElfFile& file) {
  check_text(file.soname());
  check_text(file.runpath());
  for (const std::string_view name : file.needed()) {
    promise(!name.empty(), "libraries have names");
    check_text(name);
  }
  promise(file.build_id().size() <= 128, "build id");
  for (const Note& note : file.notes()) {
    promise(home(file, note.address, note.description.size(), true), "notes are mapped");
    promise(note.description.size() <= 4096, "notes are short");
  }
}

void check_symbols(const ElfFile& file) {
  promise(!file.symbols().empty(), "there is the null symbol");
  promise(file.symbols()[0].name.empty() && !file.symbols()[0].defined, "the first symbol is the null symbol");
  for (const Symbol& one : file.symbols()) {
    if (&one != file.symbols().data()) check_text(one.name);
    if (!one.version.empty()) check_text(one.version);
    if (!one.defined) {
      promise(one.value == 0, "undefined symbols have no value");
    } else if (one.type == STT_TLS) {
      promise(file.tls() && inside(one.value, one.bytes, file.tls()->memory_bytes), "thread-locals lie in their block");
    } else if (!one.absolute) {
      promise(inside(one.value, one.bytes, file.span()), "symbols lie in the span");
    }
    const Symbol* found = file.find(one.name, one.version);
    promise(found == nullptr || (found->defined && found->name == one.name), "find() finds what was asked for");
    promise(found != nullptr || !one.defined || one.binding != STB_GLOBAL || one.visibility != STV_DEFAULT ||
                one.type == STT_SECTION || one.type == STT_FILE || (one.version.empty() && one.hidden_version),
            "find() finds all global definitions");
  }
}

void check_relocations(const ElfFile& file) {
  for (const Relocation& one : file.relocations()) {
    promise(one.type != R_X86_64_NONE, "no empty relocations");
    promise(one.symbol < file.symbols().size(), "symbols of relocations exist");
    const std::uint64_t bytes = one.type == R_X86_64_COPY      ? file.symbols()[one.symbol].bytes
                                : one.type == R_X86_64_TLSDESC ? 16
                                                               : 8;
    const Segment* place = home(file, one.offset, bytes);
    promise(place != nullptr && (place->protection & PROT_WRITE) != 0, "relocations change writable memory");
  }
  promise(file.packed_relative().size() <= file.identity().bytes / 8, "packed relocations have a limit");
  for (const std::uint64_t address : file.packed_relative()) {
    const Segment* place = home(file, address, 8);
    promise(place != nullptr && (place->protection & PROT_WRITE) != 0, "packed relocations change writable memory");
  }
}

}  // namespace

std::string broken_promise(const ElfFile& file) {
  try {
    check_segments(file);
    check_places(file);
    check_names(file);
    check_symbols(file);
    check_relocations(file);
  } catch (const Broken& broken) {
    return broken.text;
  }
  return {};
}

}  // namespace aplib::loader::test
