// SPDX-License-Identifier: MIT
// What aprun and apctl say to their user, and the standard streams that they say it on.
//
//   tell_user("aprun", "host 'ws1': ssh ended with status 255");   // standard error: "aprun: host 'ws1': ..."
//   return print("apctl", table);                                  // standard output; 1 when it cannot be written
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aplib::launch {

/// First thing in main(): /dev/null for each of the descriptors 0 to 2 that is closed. The next file that somebody
/// opens would else be taken for standard input or output.
void open_standard_streams() noexcept;

/// Writes all of `bytes`: goes on after interruptions, short writes, and on descriptors that do not block. Returns
/// errno, or 0.
[[nodiscard]] int write_all(int descriptor, std::string_view bytes) noexcept;

/// `text` for a terminal. Names and words of others come in it, so control characters are spelled ("\x1b"), but for
/// ends of lines and tabs.
[[nodiscard]] std::string printable(std::string_view text);

/// Rows of equal length as lines, their columns below each other; a column that is empty in all rows is left out. Each
/// text is made printable().
using TableRow = std::vector<std::string>;
[[nodiscard]] std::string table(const std::vector<TableRow>& rows);

/// "who: text" and an end of line on standard error, in one piece; without a name the text alone. A standard error
/// that takes nothing is no failure: there is nobody to tell.
void tell_user(std::string_view who, std::string_view text);

/// `text` on standard output. Returns an exit status: 0, or 1 when it cannot be written, which the user is told.
[[nodiscard]] int print(std::string_view who, std::string_view text);

/// The same for what a library has written to std::cout: call it when that is all.
[[nodiscard]] int finish_output(std::string_view who);

}  // namespace aplib::launch
