// SPDX-License-Identifier: MIT
// Wide characters on a stream of bytes, converted by the locale of the calling thread.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cwchar>

namespace aplib::loader::libc {

/// fputwc(), fgetwc(), ungetwc() on a stream of bytes; WEOF with errno EILSEQ for what cannot be converted.
wint_t put_wide(std::FILE* file, wchar_t character);
wint_t get_wide(std::FILE* file);
wint_t unget_wide(std::FILE* file, wint_t character);
/// All of `text` in one piece. False: nothing was written (it cannot be converted), or not all.
bool put_wide(std::FILE* file, const wchar_t* text, std::size_t count);

}  // namespace aplib::loader::libc
