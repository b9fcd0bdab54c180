// SPDX-License-Identifier: MIT
// The messages of aprun and apctl to their user, and the standard streams for them.
//
//   tell_user("aprun", "host 'ws1': ssh ended with status 255");   // standard error: "aprun: host 'ws1': ..."
//   return print("apctl", table);                                  // standard output; 1 when it cannot be written
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace CLI {
class App;
}

namespace aplib::launch {

/// Opens /dev/null for each of the descriptors 0 to 2 that is closed. Otherwise the next opened file would be taken for
/// standard input or output. Call it first in main().
void open_standard_streams() noexcept;

/// Writes all of `bytes`, also after interruptions, short writes, and on descriptors that do not block. Returns errno,
/// or 0.
[[nodiscard]] int write_all(int descriptor, std::string_view bytes) noexcept;

/// `text` for a terminal. It may contain names and words of others, so control characters except ends of lines and tabs
/// are spelled ("\x1b").
[[nodiscard]] std::string printable(std::string_view text);

/// The same for what has to stay within its line, so that no name or word of another host looks like a line of ours.
[[nodiscard]] std::string one_line(std::string_view text);

/// Rows of equal length as lines with aligned columns. A column that is empty in all rows is left out. Each text is
/// made one_line().
using TableRow = std::vector<std::string>;
[[nodiscard]] std::string table(const std::vector<TableRow>& rows);

/// What the user is told when std::bad_alloc is thrown.
inline constexpr const char* no_memory_text =
    "no memory is left; raise the limit on address space (ulimit -v), or that of the control group";

/// What the user is told of an exception that ends the program.
[[nodiscard]] std::string failure_text(const std::exception& error);

/// What the user is told of a word that is none of the options: also which one was probably meant.
[[nodiscard]] std::string unknown_option(const CLI::App& options, std::string_view word);

/// Writes "who: text" and an end of line to standard error, in one piece; without a name, only the text. If standard
/// error takes nothing, that is no failure, because there is nobody to tell.
void tell_user(std::string_view who, std::string_view text);

/// Tells the user once what is waited for, as tell_user() does, where it lives longer than 2 s. With an empty `who` or
/// `text` it does nothing. Throws Error(exhausted) where no thread can be had.
class WaitNote {
 public:
  WaitNote(std::string who, std::string text);
  ~WaitNote();
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};
/// For the time in which a file is read that the user names: somebody else has to write what comes from a pipe.
[[nodiscard]] std::string wait_text(const std::string& path);

/// Writes `text` to standard output. Returns an exit status: 0, or 1 if it cannot be written, which the user is told.
[[nodiscard]] int print(std::string_view who, std::string_view text);

/// The same for what a library has written to std::cout. Call it after the last of that.
[[nodiscard]] int finish_output(std::string_view who);

}  // namespace aplib::launch
