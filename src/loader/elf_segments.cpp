// SPDX-License-Identifier: MIT
#include "loader/elf_segments.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "loader/elf_header.hpp"

namespace aplib::loader {
namespace {

// Far above any image, far below where sums of addresses and sizes could overflow.
constexpr std::uint64_t largest_address = 1ULL << 46;
constexpr std::uint64_t largest_alignment = 1ULL << 30;
constexpr std::uint64_t longest_notes = 64 << 10;
constexpr std::uint64_t longest_note = 4 << 10;

constexpr std::uint64_t page_down(std::uint64_t address) { return address & ~(page_bytes - 1); }
constexpr std::uint64_t page_up(std::uint64_t address) { return page_down(address + page_bytes - 1); }
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::string place(std::size_t index) { return fmt::format("program header {}", index); }

int protection_of(std::uint32_t flags) {
  return ((flags & PF_R) != 0 ? PROT_READ : 0) | ((flags & PF_W) != 0 ? PROT_WRITE : 0) |
         ((flags & PF_X) != 0 ? PROT_EXEC : 0);
}

}  // namespace

ElfSegments::ElfSegments(const ElfInput& input) : input_(input) {
  read_headers();
  read_loads();
  read_others();
  find_headers_address();
}

void ElfSegments::read_headers() {
  const Elf64_Ehdr header = read_elf_header(input_);
  if (header.e_phnum == 0) input_.damaged("ELF header", "no program headers");
  if (header.e_phnum == PN_XNUM) input_.damaged("ELF header", "more program headers than any real file has");
  if (header.e_phentsize != sizeof(Elf64_Phdr)) {
    input_.damaged("ELF header", fmt::format("program headers of {} bytes", header.e_phentsize));
  }
  headers_offset_ = header.e_phoff;
  headers_ = input_.table<Elf64_Phdr>(headers_offset_, header.e_phnum, "program headers");
}

void ElfSegments::read_loads() {
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    if (headers_[i].p_type == PT_LOAD && headers_[i].p_memsz != 0) add_load(headers_[i], i);
  }
  if (segments_.empty()) input_.damaged("program headers", "nothing to load");
  if (page_down(segments_.front().address) != 0) {
    input_.refuse(fmt::format("is linked to start at address {:#x}", segments_.front().address),
                  "link it without -Ttext-segment or --image-base, and do not prelink it");
  }
  span_ = page_up(segments_.back().address + segments_.back().memory_bytes);
}

void ElfSegments::add_load(const Elf64_Phdr& header, std::size_t index) {
  const std::uint64_t alignment = std::max(header.p_align, page_bytes);
  if (!lies_in(header.p_vaddr, header.p_memsz, largest_address)) {
    input_.damaged(place(index), fmt::format("{:#x} bytes at address {:#x}", header.p_memsz, header.p_vaddr));
  }
  if (header.p_filesz > header.p_memsz) input_.damaged(place(index), "more bytes in the file than in memory");
  if (!std::has_single_bit(alignment) || alignment > largest_alignment) {
    input_.damaged(place(index), fmt::format("alignment {:#x}", header.p_align));
  }
  if (header.p_filesz != 0 && !lies_in(header.p_offset, header.p_filesz, input_.bytes())) {
    input_.damaged(place(index),
                   fmt::format("{} bytes at offset {:#x} lie outside the file's {} bytes (is it cut off?)",
                               header.p_filesz, header.p_offset, input_.bytes()));
  }
  if (header.p_filesz != 0 && header.p_vaddr % page_bytes != header.p_offset % page_bytes) {
    input_.damaged(place(index), "address and offset differ within a page");
  }
  if (!segments_.empty() &&
      page_down(header.p_vaddr) < page_up(segments_.back().address + segments_.back().memory_bytes)) {
    input_.damaged(place(index), "begins before the end of the segment before it");
  }
  alignment_ = std::max(alignment_, alignment);
  segments_.push_back({.address = header.p_vaddr,
                       .memory_bytes = header.p_memsz,
                       .offset = header.p_filesz != 0 ? header.p_offset : 0,
                       .file_bytes = header.p_filesz,
                       .protection = protection_of(header.p_flags)});
}

void ElfSegments::read_others() {
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    const Elf64_Phdr& header = headers_[i];
    const Range range{header.p_vaddr, header.p_memsz};
    switch (header.p_type) {
      case PT_GNU_STACK:
        if ((header.p_flags & PF_X) != 0) {
          input_.refuse("wants an executable stack",
                        "link it with -Wl,-z,noexecstack (nested functions of C need one: make them plain functions)");
        }
        break;
      case PT_TLS:
        read_tls(header);
        break;
      case PT_GNU_RELRO:
        if (!range.empty()) read_relro(header);
        break;
      case PT_DYNAMIC:
      case PT_GNU_EH_FRAME:
      case PT_INTERP:
      case PT_NOTE:
      case PT_PHDR:
        // Debuggers and unwinders get these headers too, and trust them.
        if (!range.empty() && holding(range) == nullptr) input_.damaged(place(i), "lies outside the loaded segments");
        if (header.p_type == PT_DYNAMIC) dynamic_ = range;
        if (header.p_type == PT_GNU_EH_FRAME) eh_frame_header_ = range;
        if (header.p_type == PT_INTERP) has_interpreter_ = true;
        break;
      default:
        break;
    }
  }
  if (dynamic_.empty()) input_.refuse("has no dynamic section (linked with -static?)", "link it with apcc");
}

void ElfSegments::read_tls(const Elf64_Phdr& header) {
  constexpr std::string_view what = "thread-local segment";
  const std::uint64_t alignment = std::max<std::uint64_t>(header.p_align, 1);
  if (!std::has_single_bit(alignment)) input_.damaged(what, fmt::format("alignment {:#x}", alignment));
  if (alignment > page_bytes) {
    input_.refuse(fmt::format("has thread-local variables aligned to {} bytes", alignment),
                  fmt::format("at most {} are possible: lower their alignas", page_bytes));
  }
  if (header.p_filesz > header.p_memsz) input_.damaged(what, "more bytes in the file than in memory");
  // What follows the initial data is zero and takes no room in the image.
  if (!lies_in(header.p_vaddr, header.p_memsz, largest_address) || header.p_filesz > bytes_from(header.p_vaddr)) {
    input_.damaged(what, "lies outside the loaded segments");
  }
  tls_ = TlsTemplate{
      .address = header.p_vaddr, .file_bytes = header.p_filesz, .memory_bytes = header.p_memsz, .alignment = alignment};
}

void ElfSegments::read_relro(const Elf64_Phdr& header) {
  constexpr std::string_view what = "segment read-only after relocation";
  if (!lies_in(header.p_vaddr, header.p_memsz, largest_address)) input_.damaged(what, "lies outside the image");
  const std::uint64_t start = page_down(header.p_vaddr);
  const std::uint64_t end = page_down(header.p_vaddr + header.p_memsz);
  if (end <= start) return;
  const bool inside = std::any_of(segments_.begin(), segments_.end(), [=](const Segment& segment) {
    return (segment.protection & PROT_WRITE) != 0 && page_down(segment.address) <= start &&
           end <= page_up(segment.address + segment.memory_bytes);
  });
  if (!inside) input_.damaged(what, "is not inside a writable segment");
  relro_ = {start, end - start};
}

void ElfSegments::find_headers_address() {
  const std::uint64_t bytes = headers_.size() * sizeof(Elf64_Phdr);
  for (const Segment& segment : segments_) {
    if (headers_offset_ >= segment.offset && lies_in(headers_offset_ - segment.offset, bytes, segment.file_bytes)) {
      headers_address_ = segment.address + (headers_offset_ - segment.offset);
      return;
    }
  }
}

std::vector<Note> ElfSegments::notes() const {
  std::vector<Note> result;
  for (const Elf64_Phdr& header : headers_) {
    // Notes tell, they do not bind: what makes no sense is passed over.
    if (header.p_type != PT_NOTE || header.p_filesz > longest_notes || header.p_filesz > bytes_from(header.p_vaddr)) {
      continue;
    }
    const auto bytes = table<std::byte>(header.p_vaddr, header.p_filesz, "notes");
    const std::uint64_t alignment = header.p_align == 8 ? 8 : 4;
    std::uint64_t at = 0;
    Elf64_Nhdr note{};
    while (lies_in(at, sizeof note, bytes.size())) {
      std::memcpy(&note, bytes.data() + at, sizeof note);
      const std::uint64_t owner = at + sizeof note;
      const std::uint64_t description = owner + round_up(note.n_namesz, alignment);
      if (!lies_in(owner, note.n_namesz, bytes.size()) || !lies_in(description, note.n_descsz, bytes.size())) break;
      at = description + round_up(note.n_descsz, alignment);
      if (note.n_descsz > longest_note) continue;
      std::string name(reinterpret_cast<const char*>(bytes.data() + owner), note.n_namesz);
      name.resize(std::min(name.size(), name.find('\0')));
      result.push_back({.owner = std::move(name),
                        .type = note.n_type,
                        .address = header.p_vaddr + description,
                        .description = {bytes.data() + description, bytes.data() + description + note.n_descsz}});
    }
  }
  return result;
}

const Segment* ElfSegments::holding(Range range) const noexcept {
  const auto after = std::upper_bound(segments_.begin(), segments_.end(), range.address,
                                      [](std::uint64_t a, const Segment& segment) { return a < segment.address; });
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = *std::prev(after);
  return lies_in(range.address - segment.address, range.bytes, segment.memory_bytes) ? &segment : nullptr;
}

std::uint64_t ElfSegments::bytes_from(std::uint64_t address) const noexcept {
  const Segment* segment = holding({address, 0});
  if (segment == nullptr) return 0;
  const std::uint64_t skipped = address - segment->address;
  return skipped < segment->file_bytes ? segment->file_bytes - skipped : 0;
}

std::uint64_t ElfSegments::offset_of(std::uint64_t address, std::uint64_t count, std::size_t element,
                                     std::string_view what) const {
  if (count > bytes_from(address) / element) {
    input_.damaged(
        what, fmt::format("{} elements of {} bytes at address {:#x} are not all in the file", count, element, address));
  }
  const Segment* segment = holding({address, 0});
  return segment == nullptr ? 0 : segment->offset + (address - segment->address);
}

}  // namespace aplib::loader
