// SPDX-License-Identifier: MIT
#include "loader/elf_segments.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "arch/elf.hpp"

namespace aplib::loader {

// ---------------------------------------------------------------- input

namespace {

// No table of a real file comes near; a sparse file of terabytes must not make us ask for terabytes of memory.
constexpr std::uint64_t largest_table_bytes = 256ULL << 20;

[[noreturn]] void fail(const std::string& path, std::string_view cause, std::string_view remedy) {
  throw Error(Errc::failed, fmt::format("{}: {}; {}", path, cause, remedy));
}

std::string system_text(int error) { return std::generic_category().message(error); }

os::UniqueFd open_file(const std::string& path) {
  if (path.empty()) throw Error(Errc::failed, "the name of the program file is empty; name a program made with apcc");
  // Not blocking: a named pipe without a writer would keep open() for ever.
  os::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file) return file;
  const int error = errno;
  switch (error) {
    case ENOENT:
      fail(path, "there is no such file", "check the name, or build the program first");
    case ENOTDIR:
      fail(path, "there is no such file (a part of the path is not a folder)", "check the name");
    case EACCES:
    case EPERM:
      fail(path, "may not be read", "give it read permission (chmod a+r), and its folders search permission");
    case EMFILE:
    case ENFILE:
      fail(path, "cannot be opened: too many open files", "raise the limit (ulimit -n)");
    default:
      fail(path, fmt::format("cannot be opened: {}", system_text(error)), "check the name and the file system");
  }
}

/// Where the open file is. A file without a name in any folder keeps the name it was opened by.
std::string absolute_path(const std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  if (resolved != nullptr) {
    std::string result = resolved;
    std::free(resolved);
    return result;
  }
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(path, ignored);
  return ignored ? path : absolute.lexically_normal().string();
}

void check_kind(const struct stat& status, const std::string& path) {
  constexpr std::string_view remedy = "name a program file made with apcc";
  if (S_ISDIR(status.st_mode)) fail(path, "is a folder", remedy);
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file", remedy);
  if (status.st_size == 0) fail(path, "is empty", "build the program again");
}

FileIdentity identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .modified_ns = status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec};
}

struct stat status_of(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error = errno;
    fail(path, fmt::format("cannot be examined: {}", system_text(error)), "check the file system");
  }
  return status;
}

}  // namespace

FileIdentity identify(int descriptor, const std::string& path) { return identity_of(status_of(descriptor, path)); }

FileIdentity identify(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    fail(path, error == ENOENT ? "there is no such file" : fmt::format("cannot be examined: {}", system_text(error)),
         "it was there when it was loaded");
  }
  return identity_of(status);
}

ElfInput::ElfInput(const std::string& path) : path_(path) {
  descriptor_ = os::GuardedFd(open_file(path));
  const struct stat status = status_of(descriptor_.get(), path);
  check_kind(status, path);
  identity_ = identity_of(status);
  gives_rights_ = (status.st_mode & (S_ISUID | S_ISGID)) != 0 ||
                  ::fgetxattr(descriptor_.get(), "security.capability", nullptr, 0) > 0;
  path_ = absolute_path(path);
}

void ElfInput::refuse(std::string_view cause, std::string_view remedy) const { fail(path_, cause, remedy); }

void ElfInput::leave_to_processes(std::string_view cause, std::string_view remedy) const {
  throw ForProcessesOnly(fmt::format("{}: {}; {}", path_, cause, remedy), cause);
}

void ElfInput::damaged(std::string_view place, std::string_view cause) const {
  throw Error(Errc::failed, fmt::format("{}: {}: {}; the file is damaged: build it again", path_, place, cause));
}

void ElfInput::check_table(std::uint64_t offset, std::uint64_t count, std::size_t element,
                           std::string_view what) const {
  if (count > bytes() / element || !lies_in(offset, count * element, bytes())) {
    damaged(what, fmt::format("{} elements of {} bytes at offset {:#x} lie outside the file's {} bytes", count, element,
                              offset, bytes()));
  }
  if (count * element > largest_table_bytes) {
    damaged(what, fmt::format("{} bytes are more than any real file has", count * element));
  }
}

void ElfInput::read(std::uint64_t offset, std::span<std::byte> to, std::string_view what) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      refuse(fmt::format("{} cannot be read: {}", what, system_text(error)), "check the file system");
    }
    if (got == 0) refuse(fmt::format("{}: the file became shorter while it was read", what), "start again");
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

// ---------------------------------------------------------------- header

namespace {

constexpr std::string_view link_as_shared = "link it with apcc, or compile with -fPIC and link with -shared";

struct Magic {
  std::string_view bytes;
  std::string_view cause;
  std::string_view remedy;
};

constexpr std::array<Magic, 4> other_files{{
    {"!<arch>", "is an archive of object files (.a)", link_as_shared},
    {"!<thin>", "is an archive of object files (.a)", link_as_shared},
    {"MZ", "is a Windows program", "build it on this system with apcc"},
    {"BC\xC0\xDE", "is LLVM bitcode", link_as_shared},
}};

struct OtherMachine {
  unsigned number;
  std::string_view name;
};

constexpr std::array<OtherMachine, 8> machines{{{EM_386, "32-bit x86"},
                                                {EM_ARM, "32-bit ARM"},
                                                {EM_AARCH64, "aarch64"},
                                                {EM_RISCV, "RISC-V"},
                                                {EM_PPC64, "PowerPC"},
                                                {EM_S390, "s390x"},
                                                {EM_SPARCV9, "SPARC"},
                                                {EM_MIPS, "MIPS"}}};

std::string machine_name(unsigned number) {
  const auto found =
      std::find_if(machines.begin(), machines.end(), [number](const OtherMachine& m) { return m.number == number; });
  return found == machines.end() ? fmt::format("machine number {}", number) : std::string(found->name);
}

void check_magic(const ElfInput& input) {
  const auto start = input.table<char>(0, std::min<std::uint64_t>(input.bytes(), 8), "start of the file");
  const std::string_view text(start.data(), start.size());
  if (text.starts_with(ELFMAG)) return;
  if (text.starts_with("#!"))
    input.leave_to_processes("is a script", "name the program file that the script starts, or make it executable");
  for (const Magic& other : other_files) {
    if (text.starts_with(other.bytes)) input.refuse(other.cause, other.remedy);
  }
  input.refuse("is not a program (no ELF file)", "name a program file made with apcc");
}

void check_machine(const ElfInput& input, const Elf64_Ehdr& header) {
  const std::string remedy = fmt::format("build it for this machine ({} Linux)", arch::machine_name);
  if (header.e_ident[EI_CLASS] == ELFCLASS32) input.refuse("is a 32-bit program", remedy);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) input.damaged("ELF header", "neither 32 nor 64 bits");
  if (header.e_ident[EI_DATA] == ELFDATA2MSB) input.refuse("is a program for a big-endian machine", remedy);
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) input.damaged("ELF header", "neither little- nor big-endian");
  if (header.e_machine != arch::elf_machine) {
    input.refuse(fmt::format("is a program for {}", machine_name(header.e_machine)), remedy);
  }
  const unsigned system = header.e_ident[EI_OSABI];
  if (system != ELFOSABI_SYSV && system != ELFOSABI_GNU) {
    input.refuse(fmt::format("is a program for another operating system (ABI number {})", system), remedy);
  }
  if (header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT) {
    input.damaged("ELF header", "unknown version of the format");
  }
}

void check_type(const ElfInput& input, unsigned type) {
  switch (type) {
    case ET_DYN:
      return;
    case ET_EXEC:
      input.leave_to_processes("is linked for one fixed address, so that it cannot be loaded several times",
                               "link it with -pie, its parts compiled with -fPIE, or with apcc");
    case ET_REL:
      input.refuse("is an object file (.o), not yet linked", link_as_shared);
    case ET_CORE:
      input.refuse("is a core dump", "name the program that made it");
    default:
      input.damaged("ELF header", fmt::format("unknown type of file {}", type));
  }
}

}  // namespace

Elf64_Ehdr read_elf_header(const ElfInput& input) {
  check_magic(input);
  // The identification comes first: the header of a 32-bit file is shorter.
  Elf64_Ehdr header{};
  const auto start = input.table<std::byte>(0, std::min<std::uint64_t>(input.bytes(), sizeof header), "ELF header");
  std::memcpy(&header, start.data(), start.size());
  if (input.bytes() < sizeof(Elf32_Ehdr)) input.damaged("ELF header", "the file ends inside it");
  check_machine(input, header);
  if (input.bytes() < sizeof header) input.damaged("ELF header", "the file ends inside it");
  check_type(input, header.e_type);
  return header;
}

// ---------------------------------------------------------------- segments

namespace {

// Far above any image, far below where sums of addresses and sizes could overflow.
constexpr std::uint64_t largest_address = 1ULL << 46;
constexpr std::uint64_t largest_alignment = 1ULL << 30;
constexpr std::uint64_t longest_notes = 64 << 10;
constexpr std::uint64_t longest_note = 4 << 10;

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
  entry_ = header.e_entry;
  headers_ = input_.table<Elf64_Phdr>(headers_offset_, header.e_phnum, "program headers");
  has_interpreter_ = std::ranges::find(headers_, PT_INTERP, &Elf64_Phdr::p_type) != headers_.end();
}

void ElfSegments::refuse(std::string_view cause, std::string_view remedy) const {
  if (has_interpreter_) input_.leave_to_processes(cause, remedy);
  input_.refuse(cause, remedy);
}

void ElfSegments::read_loads() {
  for (std::size_t i = 0; i < headers_.size(); ++i) {
    if (headers_[i].p_type == PT_LOAD && headers_[i].p_memsz != 0) add_load(headers_[i], i);
  }
  if (segments_.empty()) input_.damaged("program headers", "nothing to load");
  if (page_down(segments_.front().address) != 0) {
    refuse(fmt::format("is linked to start at address {:#x}", segments_.front().address),
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
        wants_executable_stack_ = (header.p_flags & PF_X) != 0;
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
        break;
      default:
        break;
    }
  }
  if (dynamic_.empty()) refuse("has no dynamic section (linked with -static?)", "link it with apcc");
}

void ElfSegments::read_tls(const Elf64_Phdr& header) {
  constexpr std::string_view what = "thread-local segment";
  const std::uint64_t alignment = std::max<std::uint64_t>(header.p_align, 1);
  if (!std::has_single_bit(alignment)) input_.damaged(what, fmt::format("alignment {:#x}", alignment));
  if (alignment > page_bytes) {
    refuse(fmt::format("has thread-local variables aligned to {} bytes", alignment),
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
