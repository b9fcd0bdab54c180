// SPDX-License-Identifier: MIT
// ElfInput: the bytes of a file of unknown honesty, and the two ways to refuse it. Bytes are read, never mapped: a
// file that shrinks while it is read gives an error, not SIGBUS.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "aplib/error.hpp"
#include "loader/elf_file.hpp"

namespace aplib::loader {

/// True when [start, start + bytes) lies in [0, limit); never overflows.
[[nodiscard]] constexpr bool lies_in(std::uint64_t start, std::uint64_t bytes, std::uint64_t limit) noexcept {
  return start <= limit && bytes <= limit - start;
}

/// The system executes such a file, but no cell can load it.
class ForProcessesOnly : public Error {
 public:
  ForProcessesOnly(const std::string& text, std::string_view cause) : Error(Errc::failed, text), cause_(cause) {}
  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }

 private:
  std::string cause_;
};

class ElfInput {
 public:
  /// Opens `path` for reading; the descriptor is not inherited by other programs. Throws Error(failed) when there
  /// is no regular file to read.
  explicit ElfInput(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }  ///< Absolute, symbolic links resolved.
  [[nodiscard]] const FileIdentity& identity() const noexcept { return identity_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return identity_.bytes; }
  /// Who executes the file gets rights by it: set-user-ID, set-group-ID, capabilities.
  [[nodiscard]] bool gives_rights() const noexcept { return gives_rights_; }
  /// Gives the file away; nothing can be read any more.
  [[nodiscard]] os::GuardedFd release() noexcept { return std::move(descriptor_); }

  /// `count` elements at `offset` of the file; `what` is their name in an error.
  template <typename T>
  [[nodiscard]] std::vector<T> table(std::uint64_t offset, std::uint64_t count, std::string_view what) const {
    static_assert(std::is_trivially_copyable_v<T>);
    check_table(offset, count, sizeof(T), what);
    std::vector<T> elements(count);
    read(offset, std::as_writable_bytes(std::span(elements)), what);
    return elements;
  }

  /// Refuses an intact file that cannot be used here.
  [[noreturn]] void refuse(std::string_view cause, std::string_view remedy) const;
  /// The same as ForProcessesOnly.
  [[noreturn]] void leave_to_processes(std::string_view cause, std::string_view remedy) const;
  /// Refuses a file whose bytes contradict each other.
  [[noreturn]] void damaged(std::string_view place, std::string_view cause) const;

 private:
  void check_table(std::uint64_t offset, std::uint64_t count, std::size_t element, std::string_view what) const;
  void read(std::uint64_t offset, std::span<std::byte> to, std::string_view what) const;

  std::string path_;
  os::GuardedFd descriptor_;
  FileIdentity identity_;
  bool gives_rights_ = false;
};

/// Who the open file is. Throws Error(failed) naming `path` when the system cannot tell.
[[nodiscard]] FileIdentity identify(int descriptor, const std::string& path);
/// Which file has that name now, after one had it. Throws Error(failed) when none has.
[[nodiscard]] FileIdentity identify(const std::string& path);
// ElfSegments: the program headers, checked, and the way from an address of the image to bytes of the file.

class ElfSegments {
 public:
  /// Reads and checks the ELF header and the program headers. Throws Error(failed). `input` must outlive the object.
  explicit ElfSegments(const ElfInput& input);

  [[nodiscard]] const ElfInput& input() const noexcept { return input_; }
  [[nodiscard]] const std::vector<Elf64_Phdr>& headers() const noexcept { return headers_; }
  [[nodiscard]] std::uint64_t headers_address() const noexcept { return headers_address_; }  ///< 0: not mapped.
  [[nodiscard]] const std::vector<Segment>& segments() const noexcept { return segments_; }
  [[nodiscard]] std::uint64_t span() const noexcept { return span_; }
  [[nodiscard]] std::uint64_t alignment() const noexcept { return alignment_; }
  [[nodiscard]] Range dynamic() const noexcept { return dynamic_; }
  [[nodiscard]] Range relro() const noexcept { return relro_; }
  [[nodiscard]] Range eh_frame_header() const noexcept { return eh_frame_header_; }
  [[nodiscard]] const std::optional<TlsTemplate>& tls() const noexcept { return tls_; }
  [[nodiscard]] bool has_interpreter() const noexcept { return has_interpreter_; }
  [[nodiscard]] bool wants_executable_stack() const noexcept { return wants_executable_stack_; }
  /// Refuses an intact file that cells cannot load. Executables are left to processes.
  [[noreturn]] void refuse(std::string_view cause, std::string_view remedy) const;
  [[nodiscard]] std::uint64_t entry() const noexcept { return entry_; }  ///< As the file has it, not checked.
  [[nodiscard]] std::vector<Note> notes() const;

  /// The segment whose memory holds all of `range`; null: none.
  [[nodiscard]] const Segment* holding(Range range) const noexcept;

  /// `count` elements at `address`, from the file. Throws Error(failed), naming `what`, when they are not all in
  /// the file's part of one segment.
  template <typename T>
  [[nodiscard]] std::vector<T> table(std::uint64_t address, std::uint64_t count, std::string_view what) const {
    return input_.table<T>(offset_of(address, count, sizeof(T), what), count, what);
  }
  /// How many bytes of the file follow `address` in its segment; 0 when the file has none there.
  [[nodiscard]] std::uint64_t bytes_from(std::uint64_t address) const noexcept;

 private:
  void read_headers();
  void read_loads();
  void add_load(const Elf64_Phdr& header, std::size_t index);
  void read_others();
  void read_tls(const Elf64_Phdr& header);
  void read_relro(const Elf64_Phdr& header);
  void find_headers_address();
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t address, std::uint64_t count, std::size_t element,
                                        std::string_view what) const;

  const ElfInput& input_;
  std::uint64_t headers_offset_ = 0;
  std::vector<Elf64_Phdr> headers_;
  std::uint64_t headers_address_ = 0;
  std::vector<Segment> segments_;
  std::uint64_t span_ = 0;
  std::uint64_t alignment_ = page_bytes;
  Range dynamic_;
  Range relro_;
  Range eh_frame_header_;
  std::optional<TlsTemplate> tls_;
  bool has_interpreter_ = false;
  bool wants_executable_stack_ = false;
  std::uint64_t entry_ = 0;
};

}  // namespace aplib::loader
