// SPDX-License-Identifier: MIT
// ElfSegments: the program headers, checked, and the way from an address of the image to bytes of the file.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "loader/elf_file.hpp"
#include "loader/elf_input.hpp"

namespace aplib::loader {

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
  [[nodiscard]] std::vector<Note> notes() const;

  /// The segment whose memory holds all of `range`; null: none.
  [[nodiscard]] const Segment* holding(Range range) const noexcept;

  /// `count` elements at `address`, from the file. Throws Error(failed), naming `what`, when they are not all in the file's part of one segment.
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
};

}  // namespace aplib::loader
