// SPDX-License-Identifier: MIT
// Printer: what jobs have written, whole, on apfarm's own streams. A reader that does not read holds up printing alone:
// a signal ends the wait.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace aplib::farm {

class Printer {
 public:
  /// `signals` is readable when a signal ends the session: then writing gives up.
  explicit Printer(int signals);

  /// To standard output, soon.
  void print(std::string_view text);
  /// All of a file, to standard output or standard error, each line behind `tag`.
  void print_file(int file, int stream, std::string_view tag);
  /// A file as text of a JSON string, without its quotation marks.
  void print_json_file(int file);
  /// Standard output has all. False: its reader is gone, it takes no more, or a signal has come.
  bool flush();
  [[nodiscard]] bool reader_gone() const noexcept { return problem_ == EPIPE; }
  /// Why standard output has not taken something (errno); 0: it has taken all.
  [[nodiscard]] int problem() const noexcept { return problem_; }

 private:
  bool write(int stream, std::string_view text);

  int signals_;
  bool output_is_file_;
  int problem_ = 0;
  std::string buffer_;
};

[[nodiscard]] std::uint64_t bytes_of_file(int file) noexcept;
/// All of a file, behind what the other one has. -1: nothing. False: it cannot be read or written (errno).
[[nodiscard]] bool copy_file(int from, int to) noexcept;

}  // namespace aplib::farm
