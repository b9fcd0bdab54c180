// SPDX-License-Identifier: MIT
// Functions that use stdin or stdout without naming them, and those that open and close files: what a program
// leaves open is written and closed at its end. Functions that are given a FILE are libc's own, the few apart that
// mean more than the FILE itself.
#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/streams.hpp"

extern "C" {
// libc's, declared by no header, or under another name when compiled as C++.
int __vfprintf_chk(std::FILE*, int, const char*, va_list);
int __isoc99_vfscanf(std::FILE*, const char*, va_list);
int native_vfscanf(std::FILE*, const char*, va_list) __asm__("vfscanf");
[[gnu::weak]] int __isoc23_vfscanf(std::FILE*, const char*, va_list);
}

namespace aplib::loader::libc {
namespace {

// --- output

int own_printf(const char* format, ...) {
  std::FILE* out = stream_at(__builtin_return_address(0), Stream::out);
  va_list arguments;
  va_start(arguments, format);
  const int result = std::vfprintf(out, format, arguments);
  va_end(arguments);
  return result;
}

int own_vprintf(const char* format, va_list arguments) {
  return std::vfprintf(stream_at(__builtin_return_address(0), Stream::out), format, arguments);
}

int own_printf_chk(int level, const char* format, ...) {
  std::FILE* out = stream_at(__builtin_return_address(0), Stream::out);
  va_list arguments;
  va_start(arguments, format);
  const int result = __vfprintf_chk(out, level, format, arguments);
  va_end(arguments);
  return result;
}

int own_vprintf_chk(int level, const char* format, va_list arguments) {
  return __vfprintf_chk(stream_at(__builtin_return_address(0), Stream::out), level, format, arguments);
}

int own_puts(const char* text) {
  std::FILE* out = stream_at(__builtin_return_address(0), Stream::out);
  ::flockfile(out);
  const std::size_t length = std::strlen(text);
  const bool done = ::fwrite_unlocked(text, 1, length, out) == length && ::putc_unlocked('\n', out) != EOF;
  ::funlockfile(out);
  return done ? static_cast<int>(length < 0x7fffffff ? length + 1 : 0x7fffffff) : EOF;
}

int own_putchar(int character) { return std::putc(character, stream_at(__builtin_return_address(0), Stream::out)); }
int own_putchar_unlocked(int character) {
  return ::putc_unlocked(character, stream_at(__builtin_return_address(0), Stream::out));
}

// --- input

enum class Scan { gnu, c99, c23 };

int scan(Scan dialect, std::FILE* in, const char* format, va_list arguments) {
  switch (dialect) {
    case Scan::gnu:
      return native_vfscanf(in, format, arguments);
    case Scan::c23:
      if (__isoc23_vfscanf != nullptr) return __isoc23_vfscanf(in, format, arguments);
      break;
    case Scan::c99:
      break;
  }
  return __isoc99_vfscanf(in, format, arguments);
}

template <Scan dialect>
int own_scanf(const char* format, ...) {
  std::FILE* in = stream_at(__builtin_return_address(0), Stream::in);
  va_list arguments;
  va_start(arguments, format);
  const int result = scan(dialect, in, format, arguments);
  va_end(arguments);
  return result;
}

template <Scan dialect>
int own_vscanf(const char* format, va_list arguments) {
  return scan(dialect, stream_at(__builtin_return_address(0), Stream::in), format, arguments);
}

int own_getchar() { return std::getc(stream_at(__builtin_return_address(0), Stream::in)); }
int own_getchar_unlocked() { return ::getc_unlocked(stream_at(__builtin_return_address(0), Stream::in)); }

// A line without its end. `room`: bytes at `buffer`. Ends the program as libc does where the line is longer.
char* read_line(std::FILE* in, char* buffer, std::size_t room) {
  std::size_t length = 0;
  ::flockfile(in);
  int character = ::getc_unlocked(in);
  for (; character != EOF && character != '\n'; character = ::getc_unlocked(in)) {
    if (length + 1 < room) buffer[length] = static_cast<char>(character);
    ++length;
  }
  const bool failed = character == EOF && (length == 0 || ::ferror_unlocked(in) != 0);
  ::funlockfile(in);
  if (failed) return nullptr;
  buffer[length < room ? length : room - 1] = '\0';
  return buffer;
}

// The function that C11 has removed: it cannot know the buffer's size.
char* own_unbounded_line(char* buffer) {
  return read_line(stream_at(__builtin_return_address(0), Stream::in), buffer, static_cast<std::size_t>(-1));
}
// What fits is kept, where libc would abort the process.
char* own_bounded_line(char* buffer, std::size_t room) {
  return read_line(stream_at(__builtin_return_address(0), Stream::in), buffer, room);
}

// --- files

// fopen("/dev/stdout") and the like mean the instance's, so that lines stay whole.
Outlet* named_outlet(Instance& instance, const char* path) {
  constexpr std::array<std::array<const char*, 3>, 3> names{{
      {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"},
      {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"},
      {"/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"},
  }};
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const char* name : names[i]) {
      if (std::strcmp(path, name) == 0) return &outlet_of(instance, static_cast<int>(i));
    }
  }
  return nullptr;
}

std::FILE* own_fopen(const char* path, const char* mode) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return std::fopen(path, mode);
  if (Outlet* outlet = named_outlet(*instance, path)) return open_outlet(*outlet, mode);
  return track(*instance, ::fopen64(path, mode));
}

std::FILE* own_fdopen(int descriptor, const char* mode) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::fdopen(descriptor, mode);
  if (is_standard(descriptor)) return open_outlet(outlet_of(*instance, descriptor), mode);
  return track(*instance, ::fdopen(descriptor, mode));
}

std::FILE* own_tmpfile() {
  Instance* instance = calling(__builtin_return_address(0));
  return instance == nullptr ? ::tmpfile64() : track(*instance, ::tmpfile64());
}

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
  const int result = outlet.leads == Outlet::Leads::nowhere ? EOF : std::fflush(outlet.file);
  if (result == EOF && outlet.leads == Outlet::Leads::nowhere) errno = EBADF;
  redirect(outlet, Outlet::Leads::nowhere, -1);
  return result;
}

int close_file(Instance& instance, std::FILE* file) {
  for (Outlet& outlet : stdio_of(instance).outlets) {
    if (outlet.file == file) return close_standard(outlet);
  }
  untrack(instance, file);
  if (instance.libc().locks.part != nullptr) {  // they hold until the last byte is written
    std::fflush(file);
    give_up_record_locks(instance, ::fileno(file));
  }
  return std::fclose(file);
}

int own_fclose(std::FILE* file) {
  Instance* instance = calling(__builtin_return_address(0));
  return instance == nullptr || file == nullptr ? std::fclose(file) : close_file(*instance, file);
}

int own_fcloseall() {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::fcloseall();
  StdioPrivate& own = stdio_of(*instance);
  int result = flush_stream(*instance, nullptr);
  std::vector<StdioPrivate::Open> open;
  {
    const std::lock_guard lock(own.mutex);
    open.swap(own.open);
  }
  for (const StdioPrivate::Open& each : open) {
    if (std::fclose(each.file) != 0) result = EOF;
  }
  for (Outlet& outlet : own.outlets) {
    if (outlet.file != nullptr) close_standard(outlet);
  }
  return result;
}

// The process's descriptor 0, 1 or 2 is everyone's: the FILE gets a descriptor of its own below it.
std::FILE* reopen_standard(Outlet& outlet, const char* path, const char* mode) {
  if (path == nullptr) return outlet.file;  // another mode for the same file: "wb" is all that is asked in practice
  std::fflush(outlet.file);
  __fpurge(outlet.file);
  std::clearerr(outlet.file);
  std::FILE* opened = ::fopen64(path, mode);  // knows the modes
  const int descriptor = opened != nullptr ? ::fcntl(fileno(opened), F_DUPFD_CLOEXEC, 3) : -1;
  const int error = errno;
  if (opened != nullptr) std::fclose(opened);
  if (descriptor < 0) {
    redirect(outlet, Outlet::Leads::nowhere, -1);
    errno = error;
    return nullptr;
  }
  redirect(outlet, Outlet::Leads::to_file, descriptor);
  outlet.orientation = 0;
  if (outlet.stream == Stream::out) ::setvbuf(outlet.file, nullptr, ::isatty(descriptor) == 1 ? _IOLBF : _IOFBF, 0);
  return outlet.file;
}

std::FILE* own_freopen(const char* path, const char* mode, std::FILE* file) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::freopen64(path, mode, file);
  for (Outlet& outlet : stdio_of(*instance).outlets) {
    if (outlet.file == file) return reopen_standard(outlet, path, mode);
  }
  std::FILE* result = ::freopen64(path, mode, file);
  if (result == nullptr) untrack(*instance, file);
  return result;
}

int own_fflush(std::FILE* file) {
  Instance* instance = calling(__builtin_return_address(0));
  return instance == nullptr ? std::fflush(file) : flush_stream(*instance, file);
}

int own_fileno(std::FILE* file) {
  Instance* instance = calling(__builtin_return_address(0));
  const Outlet* outlet = instance == nullptr ? nullptr : outlet_of(*instance, file);
  if (outlet == nullptr) return ::fileno(file);
  switch (outlet->leads) {
    case Outlet::Leads::to_file:
      return outlet->descriptor;
    case Outlet::Leads::to_cell:
      return static_cast<int>(outlet->stream);
    case Outlet::Leads::nowhere:
      break;
  }
  errno = EBADF;
  return -1;
}

}  // namespace

std::span<const Binding> stdio_bindings() {
  static const std::vector<Binding> table = [] {
    std::vector<Binding> all{
        Binding::datum("stdin", offsetof(LibcState, in)),
        Binding::datum("stdout", offsetof(LibcState, out)),
        Binding::datum("stderr", offsetof(LibcState, err)),
        Binding::of("printf", &own_printf),
        Binding::of("_IO_printf", &own_printf),
        Binding::of("vprintf", &own_vprintf),
        Binding::of("__printf_chk", &own_printf_chk),
        Binding::of("__vprintf_chk", &own_vprintf_chk),
        Binding::of("puts", &own_puts),
        Binding::of("_IO_puts", &own_puts),
        Binding::of("putchar", &own_putchar),
        Binding::of("putchar_unlocked", &own_putchar_unlocked),
        Binding::of("scanf", &own_scanf<Scan::gnu>),
        Binding::of("vscanf", &own_vscanf<Scan::gnu>),
        Binding::of("__isoc99_scanf", &own_scanf<Scan::c99>),
        Binding::of("__isoc99_vscanf", &own_vscanf<Scan::c99>),
        Binding::of("__isoc23_scanf", &own_scanf<Scan::c23>),
        Binding::of("__isoc23_vscanf", &own_vscanf<Scan::c23>),
        Binding::of("getchar", &own_getchar),
        Binding::of("getchar_unlocked", &own_getchar_unlocked),
        Binding::of("gets", &own_unbounded_line),
        Binding::of("__gets_chk", &own_bounded_line),
        Binding::of("fopen", &own_fopen),
        Binding::of("fopen64", &own_fopen),
        Binding::of("fdopen", &own_fdopen),
        Binding::of("freopen", &own_freopen),
        Binding::of("freopen64", &own_freopen),
        Binding::of("tmpfile", &own_tmpfile),
        Binding::of("tmpfile64", &own_tmpfile),
        Binding::of("fmemopen", &own_fmemopen),
        Binding::of("fopencookie", &own_fopencookie),
        Binding::of("fclose", &own_fclose),
        Binding::of("fcloseall", &own_fcloseall),
        Binding::of("fflush", &own_fflush),
        Binding::of("fflush_unlocked", &own_fflush),
        Binding::of("fileno", &own_fileno),
        Binding::of("fileno_unlocked", &own_fileno),
    };
    for (const std::span<const Binding> part : {wide_stdio_bindings(), descriptors_bindings()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return table;
}

}  // namespace aplib::loader::libc
