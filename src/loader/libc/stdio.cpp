// SPDX-License-Identifier: MIT
// Functions that use stdin or stdout without naming them, and those that open and close files: what a program leaves
// open is written and closed at its end. Functions that get a FILE are libc's own, except those that read (input.cpp),
// those that write (output.cpp), and the few that mean more than the FILE itself.
//
// Wide characters on standard streams. glibc's fopencookie(3) makes streams for bytes alone, so these functions convert
// on the way to and from an instance's standard streams. For every other FILE they are libc's own. Formatted input
// converts the format and reads bytes: it means the same, but widths count bytes.
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/state.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

extern "C" {
// libc's, declared by no header, or under another name when compiled as C++.
int __vfwprintf_chk(std::FILE*, int, const wchar_t*, va_list);
int __vswprintf_chk(wchar_t*, std::size_t, int, std::size_t, const wchar_t*, va_list);
int __isoc99_vfwscanf(std::FILE*, const wchar_t*, va_list);
int native_vfwscanf(std::FILE*, const wchar_t*, va_list) __asm__("vfwscanf");
int __isoc99_vfscanf(std::FILE*, const char*, va_list);
int native_vfscanf(std::FILE*, const char*, va_list) __asm__("vfscanf");
}

namespace aplib::loader::libc {

namespace {

// --- output

int print(const void* caller, const char* format, va_list arguments) {
  return print_in_turn(stream_at(caller, Stream::out), std::nullopt, format, arguments);
}

int print_checked(const void* caller, int level, const char* format, va_list arguments) {
  return print_in_turn(stream_at(caller, Stream::out), level, format, arguments);
}

int own_puts(const char* text) {
  std::FILE* out = stream_at(__builtin_return_address(0), Stream::out);
  may_be_cancelled(out);
  const std::size_t length = std::strlen(text);
  if (write_may_wait(out))
    return write_in_turn(out, text, length) == length && put_byte_in_turn('\n', out) != EOF ? 1 : EOF;
  struct Locked {  // a cancellation unwinds from the write
    std::FILE* file;
    explicit Locked(std::FILE* of) noexcept : file(of) { ::flockfile(file); }
    ~Locked() { ::funlockfile(file); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
  } const locked(out);
  const bool done = ::fwrite_unlocked(text, 1, length, out) == length && ::putc_unlocked('\n', out) != EOF;
  return done ? static_cast<int>(length < 0x7fffffff ? length + 1 : 0x7fffffff) : EOF;
}

int own_putchar(int character) {
  return put_byte_in_turn(character, stream_at(__builtin_return_address(0), Stream::out));
}

// --- files

/// fopen(); a FIFO's other end may be another cell's to open.
std::FILE* fopen_in_turn(Instance& instance, const char* path, const char* mode) {
  const int access = std::strchr(mode, '+') != nullptr ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
  const int flags = std::strchr(mode, 'e') != nullptr ? access | O_CLOEXEC : access;
  if (!is_awaited_fifo(instance, AT_FDCWD, path, flags)) return ::fopen64(path, mode);
  const int descriptor = open_in_turn(&instance, AT_FDCWD, path, flags, 0);
  std::FILE* const file = descriptor >= 0 ? ::fdopen(descriptor, mode) : nullptr;
  if (file == nullptr && descriptor >= 0) ::close(descriptor);
  return file;
}

/// The cell's input is a file, which Linux opens anew by such a name: with a position of its own.
bool is_opened_anew(Outlet& outlet) {
  struct stat status {};
  return outlet.cell_stream == Stream::in && outlet.instance->services().input() >= 0 &&
         ::fstat(outlet.instance->services().input(), &status) == 0 && S_ISREG(status.st_mode);
}

// fopen("/dev/stdout") and the like mean the instance's, so that lines stay whole.
std::FILE* own_fopen(Instance& instance, const char* path, const char* mode) {
  if (const int number = named_descriptor(instance, path); number >= 0) {
    Outlet& outlet = outlet_of(instance, number);
    if (outlet.leads == Outlet::Leads::to_cell && !is_opened_anew(outlet)) return open_outlet(outlet, mode);
  }
  return track_lowest(instance, fopen_in_turn(instance, SeenPath(&instance, path).get(), mode), mode);
}

std::FILE* own_fdopen(Instance& instance, int descriptor, const char* mode) {
  if (is_standard(descriptor)) return open_outlet(outlet_of(instance, descriptor), mode, true);
  return track(instance, ::fdopen(descriptor, mode));
}

std::FILE* own_tmpfile(Instance& instance) { return track_lowest(instance, ::tmpfile64(), "w+"); }

std::FILE* own_fmemopen(void* memory, std::size_t bytes, const char* mode) {
  Instance* instance = calling(__builtin_return_address(0));
  std::FILE* file = ::fmemopen(memory, bytes, mode);
  return instance == nullptr ? file : track(*instance, file);
}

std::FILE* own_fopencookie(void* cookie, const char* mode, cookie_io_functions_t functions) {
  Instance* instance = calling(__builtin_return_address(0));
  std::FILE* file = ::fopencookie(cookie, mode, functions);
  return instance == nullptr ? file : track(*instance, file);
}

// The FILE stays: the program's variable still points to it, and exit handlers may print.
int close_standard(Outlet& outlet) {
  const int drained = drain_in_turn(outlet.file);
  const int flushed = std::fflush(outlet.file);
  const int result = outlet.leads == Outlet::Leads::nowhere || drained != 0 || flushed != 0 ? EOF : 0;
  if (result == EOF && outlet.leads == Outlet::Leads::nowhere) errno = EBADF;
  redirect(outlet, Outlet::Leads::nowhere);
  return result;
}

int own_fclose(std::FILE* file) {
  Instance* instance = calling(__builtin_return_address(0));
  return instance == nullptr || file == nullptr ? std::fclose(file) : close_file(*instance, file);
}

int own_fcloseall(Instance& instance) { return close_all_files(instance); }

// The process's descriptor 0, 1 or 2 is everyone's: the FILE gets a descriptor of its own below it.
std::FILE* reopen(Outlet& outlet, std::FILE* file, const char* path, const char* mode) {
  if (path == nullptr) return file;  // another mode for the same file: "wb" is all that is asked in practice
  static_cast<void>(drain_in_turn(file));
  std::fflush(file);
  __fpurge(file);
  std::clearerr(file);
  std::FILE* opened = fopen_in_turn(*outlet.instance, SeenPath(outlet.instance, path).get(), mode);  // knows the modes
  os::GuardedFd descriptor(opened != nullptr ? ::fcntl(fileno(opened), F_DUPFD_CLOEXEC, 3) : -1);
  const int error = errno;
  if (opened != nullptr) std::fclose(opened);
  if (!descriptor) {
    redirect(outlet, Outlet::Leads::nowhere);
    errno = error;
    return nullptr;
  }
  redirect(outlet, Outlet::Leads::to_file, std::move(descriptor));
  outlet.ends_at_exec = std::strchr(mode, 'e') != nullptr;
  outlet.orientation = 0;
  if (outlet.stream == Stream::out)
    ::setvbuf(file, nullptr, ::isatty(outlet.descriptor.get()) == 1 ? _IOLBF : _IOFBF, 0);
  return file;
}

std::FILE* own_freopen(Instance& instance, const char* path, const char* mode, std::FILE* file) {
  if (Outlet* const outlet = outlet_of(instance, file, true)) return reopen(*outlet, file, path, mode);
  const SeenPath seen(&instance, path);
  untrack(instance, file);
  return track(instance, ::freopen64(path != nullptr ? seen.get() : nullptr, mode, file));
}

int own_fflush(Instance& instance, std::FILE* file) {
  pthread_testcancel();
  return flush_stream(instance, file);
}

int own_fileno(std::FILE* file) {
  Instance* instance = calling(__builtin_return_address(0));
  const Outlet* outlet = instance == nullptr ? nullptr : outlet_of(*instance, file);
  return outlet == nullptr ? ::fileno(file) : static_cast<int>(outlet->stream);
}

/// Printf of all cells, and of the runtime, would call what the program registers, also after its end.
int bound_register_printf() {
  Instance* const instance = calling(__builtin_return_address(0));
  if (instance != nullptr) {
    instance->services().warn(
        "register_printf_function() and its kin are not available in a loaded program (they fail with ENOSYS): libc "
        "has "
        "one table for the process; run the program as processes (--processes)");
  }
  errno = ENOSYS;
  return -1;
}

}  // namespace

int close_file(Instance& instance, std::FILE* file) {
  for (Outlet& outlet : stdio_of(instance).outlets) {
    if (outlet.file == file) return close_standard(outlet);
  }
  Outlet* const outlet = outlet_of(instance, file, true);
  int result = drain_in_turn(file);
  untrack(instance, file);
  if (instance.libc().locks.part != nullptr) {  // they hold until the last byte is written
    std::fflush(file);
    give_up_record_locks(instance,
                         outlet != nullptr ? redirected(instance, static_cast<int>(outlet->stream)) : ::fileno(file));
  }
  if (std::fclose(file) != 0) result = EOF;
  if (outlet == nullptr) return result;
  if (outlet->leads == Outlet::Leads::nowhere) {
    errno = EBADF;
    return EOF;
  }
  redirect(*outlet, Outlet::Leads::nowhere);
  return result;
}

std::span<const Binding> stdio_bindings() {
  static const std::vector<Binding> table = [] {
    std::vector<Binding> all{
        variable<&LibcState::in>("stdin"),
        variable<&LibcState::out>("stdout"),
        variable<&LibcState::err>("stderr"),
        Binding::of("register_printf_function", &bound_register_printf),
        Binding::of("register_printf_specifier", &bound_register_printf),
        Binding::of("register_printf_modifier", &bound_register_printf),
        Binding::of("register_printf_type", &bound_register_printf),
        Binding::of("printf", &Formatted<print, char>::with_dots),
        Binding::of("_IO_printf", &Formatted<print, char>::with_dots),
        Binding::of("vprintf", &Formatted<print, char>::with_list),
        Binding::of("__printf_chk", &Formatted<print_checked, char, int>::with_dots),
        Binding::of("__vprintf_chk", &Formatted<print_checked, char, int>::with_list),
        Binding::of("puts", &own_puts),
        Binding::of("_IO_puts", &own_puts),
        Binding::of("putchar", &own_putchar),
        Binding::of("putchar_unlocked", &own_putchar),
        bound<std::fopen, own_fopen>("fopen"),
        bound<std::fopen, own_fopen>("fopen64"),
        bound<::fdopen, own_fdopen>("fdopen"),
        bound<::freopen64, own_freopen>("freopen"),
        bound<::freopen64, own_freopen>("freopen64"),
        bound<::tmpfile64, own_tmpfile>("tmpfile"),
        bound<::tmpfile64, own_tmpfile>("tmpfile64"),
        Binding::of("fmemopen", &own_fmemopen),
        Binding::of("fopencookie", &own_fopencookie),
        Binding::of("fclose", &own_fclose),
        bound<::fcloseall, own_fcloseall>("fcloseall"),
        bound<std::fflush, own_fflush>("fflush"),
        bound<std::fflush, own_fflush>("fflush_unlocked"),
        Binding::of("fileno", &own_fileno),
        Binding::of("fileno_unlocked", &own_fileno),
    };
    for (const std::span<const Binding> part : {wide_stdio_bindings(), descriptors_bindings(), redirected_bindings(),
                                                named_descriptors_bindings(), input_bindings(), output_bindings()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return table;
}

// ---------------------------------------------------------------- wide characters

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
    const int byte = next_byte(file);
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

/// `own`: a standard stream.
bool put_text(bool own, std::FILE* file, const wchar_t* text, std::size_t count) {
  return own ? put_wide(file, text, count) : put_wide_in_turn(file, text, count);
}

// `level` < 0: unchecked.
int print_wide(const void* caller, std::FILE* file, int level, const wchar_t* format, va_list arguments) {
  const bool own = outlet_at(caller, file) != nullptr;
  if (!own && !wide_may_wait(file))
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
    if (length >= 0) return put_text(own, file, text.data(), static_cast<std::size_t>(length)) ? length : -1;
    if (errno == EILSEQ) return -1;
  }
  errno = EOVERFLOW;
  return -1;
}

int print_wide(const void* caller, std::FILE* file, const wchar_t* format, va_list arguments) {
  return print_wide(caller, file, -1, format, arguments);
}
int print_wide(const void* caller, int level, const wchar_t* format, va_list arguments) {
  return print_wide(caller, stream_at(caller, Stream::out), level, format, arguments);
}
int print_wide(const void* caller, const wchar_t* format, va_list arguments) {
  return print_wide(caller, -1, format, arguments);
}

wint_t own_fputwc(wchar_t character, std::FILE* file) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return put_text(own, file, &character, 1) ? static_cast<wint_t>(character) : WEOF;
}
int own_fputws(const wchar_t* text, std::FILE* file) {
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  if (!own && !wide_may_wait(file)) return std::fputws(text, file);
  return put_text(own, file, text, std::wcslen(text)) ? 1 : -1;
}
wint_t own_putwchar(wchar_t character) {
  std::FILE* file = stream_at(__builtin_return_address(0), Stream::out);
  const bool own = outlet_at(__builtin_return_address(0), file) != nullptr;
  return put_text(own, file, &character, 1) ? static_cast<wint_t>(character) : WEOF;
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

template <bool standard>  // C99's %a
int scan_wide(const void* caller, std::FILE* file, const wchar_t* format, va_list arguments) {
  if (outlet_at(caller, file) == nullptr)
    return standard ? __isoc99_vfwscanf(file, format, arguments) : native_vfwscanf(file, format, arguments);
  const std::optional<std::string> bytes = narrow(format);
  if (!bytes) return EOF;
  return scan_in_turn(file, [&bytes, &arguments](std::FILE* from) {
    return standard ? __isoc99_vfscanf(from, bytes->c_str(), arguments)
                    : native_vfscanf(from, bytes->c_str(), arguments);
  });
}
template <bool standard>
int scan_wide(const void* caller, const wchar_t* format, va_list arguments) {
  return scan_wide<standard>(caller, stream_at(caller, Stream::in), format, arguments);
}

/// Print_wide and scan_wide with what stands before their formats.
template <class... Before>
using WidePrint =
    Formatted<[](const void* caller, auto... rest) { return print_wide(caller, rest...); }, wchar_t, Before...>;
template <bool standard, class... Before>
using WideScan = Formatted<[](const void* caller, auto... rest) { return scan_wide<standard>(caller, rest...); },
                           wchar_t, Before...>;

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
      Binding::of("wprintf", &WidePrint<>::with_dots),
      Binding::of("vwprintf", &WidePrint<>::with_list),
      Binding::of("fwprintf", &WidePrint<std::FILE*>::with_dots),
      Binding::of("vfwprintf", &WidePrint<std::FILE*>::with_list),
      Binding::of("__wprintf_chk", &WidePrint<int>::with_dots),
      Binding::of("__vwprintf_chk", &WidePrint<int>::with_list),
      Binding::of("__fwprintf_chk", &WidePrint<std::FILE*, int>::with_dots),
      Binding::of("__vfwprintf_chk", &WidePrint<std::FILE*, int>::with_list),
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
      Binding::of("wscanf", &WideScan<false>::with_dots),
      Binding::of("vwscanf", &WideScan<false>::with_list),
      Binding::of("fwscanf", &WideScan<false, std::FILE*>::with_dots),
      Binding::of("vfwscanf", &WideScan<false, std::FILE*>::with_list),
      Binding::of("__isoc99_wscanf", &WideScan<true>::with_dots),
      Binding::of("__isoc99_vwscanf", &WideScan<true>::with_list),
      Binding::of("__isoc99_fwscanf", &WideScan<true, std::FILE*>::with_dots),
      Binding::of("__isoc99_vfwscanf", &WideScan<true, std::FILE*>::with_list),
      Binding::of("__isoc23_wscanf", &WideScan<true>::with_dots),
      Binding::of("__isoc23_vwscanf", &WideScan<true>::with_list),
      Binding::of("__isoc23_fwscanf", &WideScan<true, std::FILE*>::with_dots),
      Binding::of("__isoc23_vfwscanf", &WideScan<true, std::FILE*>::with_list),
      Binding::of("fwide", &own_fwide),
  };
  return table;
}

}  // namespace aplib::loader::libc
