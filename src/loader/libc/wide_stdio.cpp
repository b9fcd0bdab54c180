// SPDX-License-Identifier: MIT
// Wide characters on standard streams. glibc's fopencookie(3) makes streams for bytes alone, so that these
// functions convert on the way to and from an instance's standard streams; for every other FILE they are libc's
// own.
//
// Formatted input converts the format and reads bytes: what it means is the same, but that widths count bytes.
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cwchar>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/libc/caller.hpp"
#include "loader/libc/streams.hpp"

extern "C" {
int __vfwprintf_chk(std::FILE*, int, const wchar_t*, va_list);
int __vswprintf_chk(wchar_t*, std::size_t, int, std::size_t, const wchar_t*, va_list);
int __isoc99_vfwscanf(std::FILE*, const wchar_t*, va_list);
int native_vfwscanf(std::FILE*, const wchar_t*, va_list) __asm__("vfwscanf");
int __isoc99_vfscanf(std::FILE*, const char*, va_list);
int native_vfscanf(std::FILE*, const char*, va_list) __asm__("vfscanf");
}

namespace aplib::loader::libc {

namespace {

/// `text` in bytes of the locale; none, with errno EILSEQ, where it cannot be said in it.
std::optional<std::string> narrow(std::wstring_view text) {
  std::string bytes;
  std::mbstate_t state{};
  std::array<char, MB_LEN_MAX> one{};
  for (const wchar_t character : text) {
    const std::size_t length = std::wcrtomb(one.data(), character, &state);
    if (length == static_cast<std::size_t>(-1)) return std::nullopt;
    bytes.append(one.data(), length);
  }
  return bytes;
}

}  // namespace

wint_t put_wide(std::FILE* file, wchar_t character) {
  return put_wide(file, &character, 1) ? static_cast<wint_t>(character) : WEOF;
}

bool put_wide(std::FILE* file, const wchar_t* text, std::size_t count) {
  const std::optional<std::string> bytes = narrow({text, count});
  return bytes && std::fwrite(bytes->data(), 1, bytes->size(), file) == bytes->size();
}

wint_t get_wide(std::FILE* file) {
  std::mbstate_t state{};
  for (;;) {
    const int byte = std::getc(file);
    if (byte == EOF) return WEOF;
    const char one = static_cast<char>(byte);
    wchar_t character = L'\0';
    const std::size_t length = std::mbrtowc(&character, &one, 1, &state);
    if (length == static_cast<std::size_t>(-1)) return WEOF;
    if (length != static_cast<std::size_t>(-2)) return static_cast<wint_t>(character);
  }
}

wint_t unget_wide(std::FILE* file, wint_t character) {
  if (character == WEOF) return WEOF;
  std::mbstate_t state{};
  std::array<char, MB_LEN_MAX> one{};
  std::size_t length = std::wcrtomb(one.data(), static_cast<wchar_t>(character), &state);
  if (length == static_cast<std::size_t>(-1)) return WEOF;
  while (length > 0) {
    if (std::ungetc(static_cast<unsigned char>(one[--length]), file) == EOF) return WEOF;
  }
  return character;
}

namespace {

// The outlet that `file` of the caller is over, or null: libc does it.
Outlet* outlet_at(const void* caller, std::FILE* file) {
  Instance* instance = calling(caller);
  Outlet* outlet = instance == nullptr ? nullptr : outlet_of(*instance, file);
  if (outlet != nullptr && outlet->orientation == 0) outlet->orientation = 1;
  return outlet;
}

// --- output

// `level` < 0: unchecked.
int print(std::FILE* file, bool own, int level, const wchar_t* format, va_list arguments) {
  if (!own)
    return level < 0 ? std::vfwprintf(file, format, arguments) : __vfwprintf_chk(file, level, format, arguments);
  constexpr std::size_t characters_max = std::size_t{1} << 24;
  for (std::size_t room = 256; room <= characters_max; room *= 4) {
    std::vector<wchar_t> text(room);
    va_list again;
    va_copy(again, arguments);
    errno = 0;
    const int length = level < 0 ? std::vswprintf(text.data(), room, format, again)
                                 : __vswprintf_chk(text.data(), room, level, room, format, again);
    va_end(again);
    if (length >= 0) return put_wide(file, text.data(), static_cast<std::size_t>(length)) ? length : -1;
    if (errno == EILSEQ) return -1;
  }
  errno = EOVERFLOW;
  return -1;
}

int own_vfwprintf(std::FILE* file, const wchar_t* format, va_list arguments) {
  return print(file, outlet_at(__builtin_return_address(0), file) != nullptr, -1, format, arguments);
}
int own_vfwprintf_chk(std::FILE* file, int level, const wchar_t* format, va_list arguments) {
  return print(file, outlet_at(__builtin_return_address(0), file) != nullptr, level, format, arguments);
}
int own_vwprintf(const wchar_t* format, va_list arguments) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::out);
  return print(file, outlet_at(__builtin_return_address(0), file) != nullptr, -1, format, arguments);
}
int own_vwprintf_chk(int level, const wchar_t* format, va_list arguments) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::out);
  return print(file, outlet_at(__builtin_return_address(0), file) != nullptr, level, format, arguments);
}
int own_fwprintf(std::FILE* file, const wchar_t* format, ...) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  va_list arguments;
  va_start(arguments, format);
  const int result = print(file, own, -1, format, arguments);
  va_end(arguments);
  return result;
}
int own_fwprintf_chk(std::FILE* file, int level, const wchar_t* format, ...) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  va_list arguments;
  va_start(arguments, format);
  const int result = print(file, own, level, format, arguments);
  va_end(arguments);
  return result;
}
int own_wprintf(const wchar_t* format, ...) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::out);
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  va_list arguments;
  va_start(arguments, format);
  const int result = print(file, own, -1, format, arguments);
  va_end(arguments);
  return result;
}
int own_wprintf_chk(int level, const wchar_t* format, ...) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::out);
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  va_list arguments;
  va_start(arguments, format);
  const int result = print(file, own, level, format, arguments);
  va_end(arguments);
  return result;
}

wint_t own_fputwc(wchar_t character, std::FILE* file) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return own ? put_wide(file, character) : std::fputwc(character, file);
}
int own_fputws(const wchar_t* text, std::FILE* file) {
  if (outlet_at(__builtin_return_address(0), file) == nullptr) return std::fputws(text, file);
  return put_wide(file, text, std::wcslen(text)) ? 1 : -1;
}
wint_t own_putwchar(wchar_t character) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::out);
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return own ? put_wide(file, character) : std::fputwc(character, file);
}

// --- input

wint_t own_fgetwc(std::FILE* file) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return own ? get_wide(file) : std::fgetwc(file);
}
wint_t own_getwchar() {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::in);
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return own ? get_wide(file) : std::fgetwc(file);
}
wint_t own_ungetwc(wint_t character, std::FILE* file) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return own ? unget_wide(file, character) : std::ungetwc(character, file);
}

wchar_t* read_line(std::FILE* file, wchar_t* text, int room) {
  int length = 0;
  while (length + 1 < room) {
    const wint_t character = get_wide(file);
    if (character == WEOF) break;
    text[length++] = static_cast<wchar_t>(character);
    if (character == L'\n') break;
  }
  if (length == 0) return nullptr;
  text[length] = L'\0';
  return text;
}
wchar_t* own_fgetws(wchar_t* text, int room, std::FILE* file) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return own ? read_line(file, text, room) : std::fgetws(text, room, file);
}
// `size`: characters at `text`; a larger `room` is cut to it, where libc would abort the process.
wchar_t* own_fgetws_chk(wchar_t* text, std::size_t size, int room, std::FILE* file) {
  if (size < static_cast<std::size_t>(INT_MAX) && room > static_cast<int>(size)) room = static_cast<int>(size);
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return own ? read_line(file, text, room) : std::fgetws(text, room, file);
}

// `standard`: C99's %a.
int scan(std::FILE* file, bool own, bool standard, const wchar_t* format, va_list arguments) {
  if (!own) return standard ? __isoc99_vfwscanf(file, format, arguments) : native_vfwscanf(file, format, arguments);
  const std::optional<std::string> bytes = narrow(format);
  if (!bytes) return EOF;
  return standard ? __isoc99_vfscanf(file, bytes->c_str(), arguments) : native_vfscanf(file, bytes->c_str(), arguments);
}

template <bool standard>
int own_vfwscanf(std::FILE* file, const wchar_t* format, va_list arguments) {
  return scan(file, outlet_at(__builtin_return_address(0), file) != nullptr, standard, format, arguments);
}
template <bool standard>
int own_vwscanf(const wchar_t* format, va_list arguments) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::in);
  return scan(file, outlet_at(__builtin_return_address(0), file) != nullptr, standard, format, arguments);
}
template <bool standard>
int own_fwscanf(std::FILE* file, const wchar_t* format, ...) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  va_list arguments;
  va_start(arguments, format);
  const int result = scan(file, own, standard, format, arguments);
  va_end(arguments);
  return result;
}
template <bool standard>
int own_wscanf(const wchar_t* format, ...) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::in);
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  va_list arguments;
  va_start(arguments, format);
  const int result = scan(file, own, standard, format, arguments);
  va_end(arguments);
  return result;
}

int own_fwide(std::FILE* file, int mode) {
  Instance* instance = calling(__builtin_return_address(0));
  Outlet* outlet = instance == nullptr ? nullptr : outlet_of(*instance, file);
  if (outlet == nullptr) return std::fwide(file, mode);
  if (outlet->orientation == 0 && mode != 0) outlet->orientation = mode > 0 ? 1 : -1;
  return outlet->orientation;
}

}  // namespace

std::span<const Binding> wide_stdio_bindings() {
  static const std::array table{
      Binding::of("wprintf", &own_wprintf),
      Binding::of("vwprintf", &own_vwprintf),
      Binding::of("fwprintf", &own_fwprintf),
      Binding::of("vfwprintf", &own_vfwprintf),
      Binding::of("__wprintf_chk", &own_wprintf_chk),
      Binding::of("__vwprintf_chk", &own_vwprintf_chk),
      Binding::of("__fwprintf_chk", &own_fwprintf_chk),
      Binding::of("__vfwprintf_chk", &own_vfwprintf_chk),
      Binding::of("fputwc", &own_fputwc),
      Binding::of("putwc", &own_fputwc),
      Binding::of("fputwc_unlocked", &own_fputwc),
      Binding::of("putwc_unlocked", &own_fputwc),
      Binding::of("fputws", &own_fputws),
      Binding::of("fputws_unlocked", &own_fputws),
      Binding::of("putwchar", &own_putwchar),
      Binding::of("putwchar_unlocked", &own_putwchar),
      Binding::of("fgetwc", &own_fgetwc),
      Binding::of("getwc", &own_fgetwc),
      Binding::of("fgetwc_unlocked", &own_fgetwc),
      Binding::of("getwc_unlocked", &own_fgetwc),
      Binding::of("getwchar", &own_getwchar),
      Binding::of("getwchar_unlocked", &own_getwchar),
      Binding::of("ungetwc", &own_ungetwc),
      Binding::of("fgetws", &own_fgetws),
      Binding::of("fgetws_unlocked", &own_fgetws),
      Binding::of("__fgetws_chk", &own_fgetws_chk),
      Binding::of("__fgetws_unlocked_chk", &own_fgetws_chk),
      Binding::of("wscanf", &own_wscanf<false>),
      Binding::of("vwscanf", &own_vwscanf<false>),
      Binding::of("fwscanf", &own_fwscanf<false>),
      Binding::of("vfwscanf", &own_vfwscanf<false>),
      Binding::of("__isoc99_wscanf", &own_wscanf<true>),
      Binding::of("__isoc99_vwscanf", &own_vwscanf<true>),
      Binding::of("__isoc99_fwscanf", &own_fwscanf<true>),
      Binding::of("__isoc99_vfwscanf", &own_vfwscanf<true>),
      Binding::of("__isoc23_wscanf", &own_wscanf<true>),
      Binding::of("__isoc23_vwscanf", &own_vwscanf<true>),
      Binding::of("__isoc23_fwscanf", &own_fwscanf<true>),
      Binding::of("__isoc23_vfwscanf", &own_vfwscanf<true>),
      Binding::of("fwide", &own_fwide),
  };
  return table;
}

}  // namespace aplib::loader::libc
