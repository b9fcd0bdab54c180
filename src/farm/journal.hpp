// SPDX-License-Identifier: MIT
// Journal: a file with the results of a farm's tasks. What a program that was killed has done, the next one takes from
// there.
//
//   the line journal_title, then records: 4 bytes each of length, checksum (CRC-32) of the length, and checksum of what
//   follows: the fields of JournalRecord
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/wire/fields.hpp"

namespace aplib::farm {

inline constexpr std::string_view journal_title = "aplib farm journal 2\n";

struct JournalRecord {
  std::string function{};
  std::span<const std::byte> arguments{};
  std::span<const std::byte> result{};
  template <class Self, class Fields>
  static void list(Self& self, Fields&& fields) {
    fields(self.function, self.arguments, self.result);
  }
};

void append_record(launch::wire::Bytes& to, const JournalRecord& record);

/// What is in a journal, whoever has written it.
struct JournalScan {
  std::vector<std::size_t> records{};  ///< Where they begin.
  std::size_t whole = 0;               ///< Bytes up to the end of the last one.
  bool damaged = false;  ///< What follows is no record, and not only the beginning of one that was being written.
};
/// `bytes`: behind the title.
[[nodiscard]] JournalScan scan_journal(std::span<const std::byte> bytes);
/// REQUIRES: scan_journal() has found a record there.
[[nodiscard]] JournalRecord record_at(std::span<const std::byte> bytes, std::size_t begin);

/// Thread safety: any thread.
class Journal {
 public:
  /// Opens the file, or makes it; a last record that is not whole is removed. Throws Error(failed), or
  /// Error(bad_option) when the file is something else or damaged, or when another process uses it.
  explicit Journal(const std::string& file);
  ~Journal();  ///< Says on standard error what check() could not tell.
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// A result of this task that the file had; each of them once.
  [[nodiscard]] std::optional<launch::wire::Bytes> take(std::string_view function,
                                                        std::span<const std::byte> arguments);
  void add(const JournalRecord& record);
  /// The system has all that was added.
  void flush() noexcept;
  /// Throws Error(failed) if something could not be written.
  void check();

 private:
  [[nodiscard]] std::string problem_text() const;

  const std::string file_;
  os::UniqueFd descriptor_;
  std::span<const std::byte> past_;  // mapped: behind the title
  std::span<std::byte> map_;
  mutable std::mutex mutex_;                                       // guards what follows
  std::unordered_map<std::size_t, std::deque<std::size_t>> left_;  // records of past_ by the hash of their task
  launch::wire::Bytes added_;
  std::string problem_;
  bool is_told_ = false;  // by check()
};

}  // namespace aplib::farm
