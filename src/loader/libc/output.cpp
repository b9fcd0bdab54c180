// SPDX-License-Identifier: MIT
// What writes a FILE, of any kind. libc would write out the FILE's buffer by a write() that stops the thread with all
// its cells where a pipe or socket is full. So the caller writes what the buffer holds before, part by part, while
// other tasks run, and libc finds it empty. What fits into the buffer costs a comparison more, and a file costs no call
// of the system more.
//
// Printf and its kin format into memory first, where the FILE is such a one. libc holds the FILE's lock while it
// writes, so no task may be switched there: what is written has left the buffer before.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

extern "C" {
// libc's, declared by no header.
int __overflow(std::FILE*, int);
int __vfprintf_chk(std::FILE*, int, const char*, va_list);
int __vasprintf_chk(char**, int, const char*, va_list);
}

namespace aplib::loader::libc {

namespace {

constexpr int unbuffered = 0x2;  // glibc's flags of a FILE
constexpr int write_failed = 0x20;
constexpr int line_buffered = 0x200;
constexpr int has_output = 0x800;

/// Where `file` leads, if it is a pipe, socket or terminal, and the calling flow must not block its thread. `wide`: of
/// a stream of wide characters; else of one of bytes.
std::optional<int> waiting_descriptor(std::FILE* file, bool wide = false) noexcept {
  TaskContext* const context = here();
  Instance* const instance = context != nullptr ? sharing_flow(*context->instance) : nullptr;
  if (instance == nullptr || (::fwide(file, 0) > 0) != wide) return std::nullopt;
  const int error = errno_now();
  const int descriptor = ::fileno(file);
  failed(error);
  if (descriptor < 0) {
    const Outlet* const outlet = outlet_of(*instance, file);
    return outlet != nullptr && outlet->waits ? std::optional(outlet->descriptor.get()) : std::nullopt;
  }
  return may_wait(descriptor) ? std::optional(descriptor) : std::nullopt;
}

/// How many of these bytes have been written.
std::size_t send_all(int descriptor, const char* bytes, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t some = write_in_turn(nullptr, descriptor, bytes + done, count - done);
    if (some < 0) break;
    done += static_cast<std::size_t>(some);
  }
  return done;
}

bool drain(std::FILE* file, int descriptor) {
  if ((file->_flags & has_output) == 0 || file->_IO_write_ptr == file->_IO_write_base) return true;
  const std::string bytes(file->_IO_write_base, file->_IO_write_ptr);
  file->_IO_write_ptr = file->_IO_write_base;
  if (send_all(descriptor, bytes.data(), bytes.size()) == bytes.size()) return true;
  file->_flags |= write_failed;  // the bytes are lost, as in libc
  return false;
}

/// What glibc has of a stream of wide characters, as far as it concerns us.
struct WideBuffer {
  wchar_t* read_ptr;
  wchar_t* read_end;
  wchar_t* read_base;
  wchar_t* write_base;
  wchar_t* write_ptr;
};

/// Until libc can write all that it has of a stream of wide characters, which is no more than a pipe takes when it is
/// ready. False: a handler has run, and errno is EINTR.
bool await_room(int descriptor) { return await_descriptor(*here()->instance, descriptor, POLLOUT); }

/// Writes what libc has, where with `more` characters it would be more than that.
bool keep_short(std::FILE* file, int descriptor, std::size_t more) {
  const auto* const wide = reinterpret_cast<const WideBuffer*>(file->_wide_data);
  const auto waiting = static_cast<std::size_t>(wide->write_ptr - wide->write_base);
  const bool at_once = (file->_flags & (unbuffered | line_buffered)) != 0;
  if (!at_once && (waiting + more) * MB_CUR_MAX <= PIPE_BUF) return true;
  return await_room(descriptor) && std::fflush(file) == 0 && await_room(descriptor);
}

/// Libc has so much room that it need not write.
bool fits(const std::FILE* file, std::size_t count) noexcept {
  return file->_IO_write_ptr < file->_IO_write_end &&
         count <= static_cast<std::size_t>(file->_IO_write_end - file->_IO_write_ptr);
}

/// fwrite() of bytes.
std::size_t put(std::FILE* file, int descriptor, const char* bytes, std::size_t count) {
  constexpr std::size_t small = 1024;  // fits into any buffer
  if (!drain(file, descriptor)) return 0;
  const bool at_once = (file->_flags & unbuffered) != 0 ||
                       ((file->_flags & line_buffered) != 0 && std::memchr(bytes, '\n', count) != nullptr);
  if (!at_once && count <= small) return std::fwrite(bytes, 1, count, file);
  const std::size_t done = send_all(descriptor, bytes, count);
  if (done < count) file->_flags |= write_failed;
  return done;
}

/// A cancellation point where it writes, as in libc.
std::size_t write_stream(std::FILE* file, const char* bytes, std::size_t count) {
  if (fits(file, count)) return std::fwrite(bytes, 1, count, file);
  pthread_testcancel();
  const std::optional<int> descriptor = waiting_descriptor(file);
  return descriptor ? put(file, *descriptor, bytes, count) : std::fwrite(bytes, 1, count, file);
}

// --- what programs call

std::size_t own_fwrite(const void* bytes, std::size_t size, std::size_t count, std::FILE* file) {
  std::size_t whole = 0;
  if (__builtin_mul_overflow(size, count, &whole) || whole == 0) return std::fwrite(bytes, size, count, file);
  const std::size_t done = write_stream(file, static_cast<const char*>(bytes), whole);
  return done == whole ? count : done / size;
}

int own_fputs(const char* text, std::FILE* file) {
  const std::size_t count = std::strlen(text);
  return write_stream(file, text, count) == count ? 1 : EOF;
}

template <auto native>
int put_byte(int byte, std::FILE* file) {
  if (fits(file, 1)) return native(byte, file);
  pthread_testcancel();
  const std::optional<int> descriptor = waiting_descriptor(file);
  if (!descriptor) return native(byte, file);
  const auto one = static_cast<unsigned char>(byte);
  return put(file, *descriptor, reinterpret_cast<const char*>(&one), 1) == 1 ? one : EOF;
}

int overflow(int byte, std::FILE* file) { return __overflow(file, byte); }

int own_overflow(std::FILE* file, int byte) {
  return byte == EOF ? __overflow(file, byte) : put_byte<overflow>(byte, file);
}

int own_putw(int word, std::FILE* file) {
  return write_stream(file, reinterpret_cast<const char*>(&word), sizeof word) == sizeof word ? 0 : EOF;
}

int print_to(const void* /*caller*/, std::FILE* file, const char* format, va_list arguments) {
  return print_in_turn(file, std::nullopt, format, arguments);
}
int print_to_checked(const void* /*caller*/, std::FILE* file, int level, const char* format, va_list arguments) {
  return print_in_turn(file, level, format, arguments);
}

}  // namespace

PrintedText::PrintedText(int level, const char* format, va_list arguments) noexcept {
  char* made = nullptr;
  bytes_ = level < 0 ? ::vasprintf(&made, format, arguments) : __vasprintf_chk(&made, level, format, arguments);
  if (bytes_ >= 0) text_.reset(made);
}

void may_be_cancelled(std::FILE* file) {
  constexpr std::size_t much = 512;
  const bool at_once = (file->_flags & (unbuffered | line_buffered)) != 0;
  if (at_once || (file->_IO_write_ptr != file->_IO_write_base && !fits(file, much))) pthread_testcancel();
}

int print_in_turn(std::FILE* file, std::optional<int> level, const char* format, va_list arguments) {
  may_be_cancelled(file);
  const std::optional<int> descriptor = waiting_descriptor(file);
  if (!descriptor) {
    return level ? __vfprintf_chk(file, *level, format, arguments) : std::vfprintf(file, format, arguments);
  }
  const PrintedText text(level.value_or(PrintedText::unchecked), format, arguments);
  return text && write_stream(file, text.view().data(), text.view().size()) == text.view().size() ? text.bytes() : -1;
}

int put_byte_in_turn(int byte, std::FILE* file) { return put_byte<std::putc>(byte, file); }

bool write_may_wait(std::FILE* file) { return waiting_descriptor(file).has_value(); }

std::size_t write_in_turn(std::FILE* file, const char* bytes, std::size_t count) {
  return write_stream(file, bytes, count);
}

bool wide_may_wait(std::FILE* file) { return ::fwide(file, 1) > 0 && waiting_descriptor(file, true).has_value(); }

bool put_wide_in_turn(std::FILE* file, const wchar_t* text, std::size_t count) {
  constexpr std::size_t piece_max = 256;
  const std::optional<int> descriptor = wide_may_wait(file) ? waiting_descriptor(file, true) : std::nullopt;
  for (std::size_t done = 0; done < count; ++done) {
    const bool begins = done % piece_max == 0;
    if (descriptor && begins && !keep_short(file, *descriptor, std::min(count - done, piece_max))) return false;
    if (std::fputwc(text[done], file) == WEOF) return false;
  }
  return true;
}

int drain_in_turn(std::FILE* file) {
  if (const std::optional<int> wide = waiting_descriptor(file, true)) return await_room(*wide) ? 0 : EOF;
  const std::optional<int> descriptor = waiting_descriptor(file);
  return !descriptor || drain(file, *descriptor) ? 0 : EOF;
}

std::span<const Binding> output_bindings() {
  static const Binding table[] = {
      Binding::of("fwrite", &own_fwrite),
      Binding::of("fwrite_unlocked", &own_fwrite),
      Binding::of("_IO_fwrite", &own_fwrite),
      Binding::of("fputs", &own_fputs),
      Binding::of("fputs_unlocked", &own_fputs),
      Binding::of("_IO_fputs", &own_fputs),
      Binding::of("putc", &put_byte<std::putc>),
      Binding::of("fputc", &put_byte<std::putc>),
      Binding::of("_IO_putc", &put_byte<std::putc>),
      Binding::of("putc_unlocked", &put_byte<::putc_unlocked>),
      Binding::of("fputc_unlocked", &put_byte<::putc_unlocked>),
      Binding::of("__overflow", &own_overflow),
      Binding::of("putw", &own_putw),
      Binding::of("fprintf", &Formatted<print_to, char, std::FILE*>::with_dots),
      Binding::of("_IO_fprintf", &Formatted<print_to, char, std::FILE*>::with_dots),
      Binding::of("vfprintf", &Formatted<print_to, char, std::FILE*>::with_list),
      Binding::of("_IO_vfprintf", &Formatted<print_to, char, std::FILE*>::with_list),
      Binding::of("__fprintf_chk", &Formatted<print_to_checked, char, std::FILE*, int>::with_dots),
      Binding::of("__vfprintf_chk", &Formatted<print_to_checked, char, std::FILE*, int>::with_list),
  };
  return table;
}

}  // namespace aplib::loader::libc
