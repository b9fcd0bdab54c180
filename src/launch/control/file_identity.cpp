// SPDX-License-Identifier: MIT
#include "launch/control/file_identity.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "aplib/error.hpp"

namespace aplib::launch {
namespace {

/// A file's bytes, mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (descriptor < 0 || ::fstat(descriptor, &status) != 0) fail(path, errno, descriptor);
    if (!S_ISREG(status.st_mode)) fail(path, S_ISDIR(status.st_mode) ? EISDIR : EINVAL, descriptor);
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ > 0) {
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (data_ == MAP_FAILED) fail(path, errno, descriptor);
    }
    ::close(descriptor);
  }
  ~MappedFile() {
    if (size_ > 0) ::munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  [[noreturn]] static void fail(const std::string& path, int error, int descriptor) {
    if (descriptor >= 0) ::close(descriptor);
    throw Error(Errc::failed, fmt::format("cannot read {}: {}", path, std::strerror(error)));
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class Structure>
std::optional<Structure> structure_at(std::span<const std::byte> bytes, std::uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(Structure)) return std::nullopt;
  Structure result;
  std::memcpy(&result, bytes.data() + at, sizeof result);
  return result;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

/// The build-id among notes; empty: there is none.
std::string build_id_in(std::span<const std::byte> notes) {
  constexpr auto padded = [](std::uint64_t size) { return (size + 3) & ~std::uint64_t{3}; };
  for (std::uint64_t at = 0; const auto note = structure_at<Elf64_Nhdr>(notes, at);) {
    const std::uint64_t name = at + sizeof *note;
    const std::uint64_t description = name + padded(note->n_namesz);
    const std::uint64_t end = description + note->n_descsz;
    if (end > notes.size()) break;
    if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && std::memcmp(notes.data() + name, "GNU", 4) == 0)
      return hexadecimal(notes.subspan(description, note->n_descsz));
    at = description + padded(note->n_descsz);
  }
  return {};
}

std::string build_id_of(std::span<const std::byte> file) {
  const auto header = structure_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
    return {};
  for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = structure_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) break;
    if (segment->p_type != PT_NOTE || segment->p_offset > file.size() ||
        segment->p_filesz > file.size() - segment->p_offset)
      continue;
    if (std::string id = build_id_in(file.subspan(segment->p_offset, segment->p_filesz)); !id.empty()) return id;
  }
  return {};
}

/// FNV-1a over words of eight bytes: not against forgers, who would have to know the job's key, but against mix-ups.
std::uint64_t sum_of(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), sizeof sum);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), count);
    sum = (sum ^ word) * 0x100000001b3;
    sum ^= sum >> 29;  // what is multiplied reaches the upper bits alone
    bytes = bytes.subspan(count);
  }
  return sum == 0 ? 1 : sum;
}

}  // namespace

FileIdentity identify_file(const std::string& path) {
  const MappedFile file(path);
  FileIdentity identity{build_id_of(file.bytes()), file.bytes().size(), 0};
  if (identity.build_id.empty()) identity.sum = sum_of(file.bytes());
  return identity;
}

std::string identity_text(const FileIdentity& identity) {
  return identity.build_id.empty() ? fmt::format("{} bytes, sum {:x}", identity.bytes, identity.sum)
                                   : fmt::format("build-id {}", identity.build_id);
}

}  // namespace aplib::launch
