// SPDX-License-Identifier: MIT
// What reads a FILE, of any kind. libc fills the FILE's buffer by a read() that stops the thread with all its cells
// where a pipe, socket or terminal has nothing. So the caller waits before, while other tasks run, and then takes what
// one read() gives. What libc has in the buffer costs one comparison more, and a file costs no call of the system more.
//
// Scanf and its kin read as they go: they get a FILE that hands on byte for byte.
//
// libc holds the FILE's lock while it reads, so no task may be switched there: a wait is always before the call. Where
// threads of a program read one FILE at once, a line that came in pieces may be shared out between them.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

extern "C" {
// libc's, declared by no header, or under another name when compiled as C++.
int __uflow(std::FILE*);
int __underflow(std::FILE*);
char* __fgets_chk(char*, std::size_t, int, std::FILE*);
std::size_t __fread_chk(void*, std::size_t, std::size_t, std::size_t, std::FILE*);
int __isoc99_vfscanf(std::FILE*, const char*, va_list);
int native_vfscanf(std::FILE*, const char*, va_list) __asm__("vfscanf");
[[gnu::weak]] int __isoc23_vfscanf(std::FILE*, const char*, va_list);
}

namespace aplib::loader::libc {

namespace {

constexpr int error_seen = 0x20;  // glibc's flags of a FILE
constexpr int in_backup = 0x100;  // what ungetc() has put back lies in front of the buffer

/// Bytes that the next reader gets at once.
std::size_t bytes_at_hand(const std::FILE* file) noexcept {
  return static_cast<std::size_t>(file->_IO_read_end - file->_IO_read_ptr);
}

bool has_bytes(const std::FILE* file) noexcept {
  if (file->_IO_read_ptr < file->_IO_read_end) return true;
  return (file->_flags & in_backup) != 0 && file->_IO_save_base < file->_IO_save_end;
}

/// Where it must not block its thread: the instance whose flow calls.
Instance* reader() noexcept {
  TaskContext* const context = here();
  return context != nullptr && context->instance != nullptr ? sharing_flow(*context->instance) : nullptr;
}

/// The instance that would have to wait for more bytes of `file` than libc has, or null: libc need not wait, or may.
Instance* waiting_for_more(std::FILE* file) noexcept {
  Instance* const instance = reader();
  if (instance == nullptr) return nullptr;
  const int error = errno;
  const bool waits = outlet_of(*instance, file) != nullptr || may_wait(::fileno(file));
  errno = error;
  return waits ? instance : nullptr;
}

/// The same for the next byte.
Instance* waiting_reader(std::FILE* file) noexcept {
  if (has_bytes(file)) return nullptr;
  return waiting_for_more(file);
}

/// Before `instance` has more of `file` read. False: a handler has run, and errno is EINTR.
bool await_bytes(Instance& instance, std::FILE* file) {
  if (has_bytes(file) || ::feof_unlocked(file) != 0) return true;
  Outlet* const outlet = outlet_of(instance, file);
  const bool there = outlet != nullptr ? await_outlet(*outlet) : await_descriptor(instance, ::fileno(file), POLLIN);
  if (!there) file->_flags |= error_seen;
  return there;
}

/// The next piece of `file`, at most `room` bytes and up to the first `delimiter`; 0: the end, or an error.
std::size_t take_piece(Instance& instance, std::FILE* file, char* bytes, std::size_t room, int delimiter) {
  if (!await_bytes(instance, file)) return 0;
  if (bytes_at_hand(file) == 0) {  // this reads
    const int byte = std::getc(file);
    if (byte == EOF) return 0;
    *bytes = static_cast<char>(byte);
    return 1;
  }
  std::size_t count = std::min(room, bytes_at_hand(file));
  const void* const end = delimiter == EOF ? nullptr : std::memchr(file->_IO_read_ptr, delimiter, count);
  if (end != nullptr) count = static_cast<std::size_t>(static_cast<const char*>(end) - file->_IO_read_ptr) + 1;
  return ::fread_unlocked(bytes, 1, count, file);
}

bool ends_with(const char* bytes, std::size_t count, int delimiter) noexcept {
  return delimiter != EOF && count > 0 && bytes[count - 1] == static_cast<char>(delimiter);
}

/// Fread's; at most `count` bytes and up to the first `delimiter`.
std::size_t take(Instance& instance, std::FILE* file, char* bytes, std::size_t count, int delimiter) {
  std::size_t done = 0;
  while (done < count) {
    const std::size_t piece = take_piece(instance, file, bytes + done, count - done, delimiter);
    done += piece;
    if (piece == 0 || ends_with(bytes, done, delimiter)) break;
  }
  return done;
}

/// fread() of bytes.
std::size_t read_stream(std::FILE* file, void* bytes, std::size_t count) {
  Instance* const instance = count <= bytes_at_hand(file) ? nullptr : waiting_for_more(file);
  if (instance == nullptr) return std::fread(bytes, 1, count, file);
  return take(*instance, file, static_cast<char*>(bytes), count, EOF);
}

/// The buffer has all that fgets() or getdelim() asks for.
bool has_line(const std::FILE* file, std::size_t room, int delimiter) noexcept {
  const std::size_t count = bytes_at_hand(file);
  return count >= room || (count > 0 && std::memchr(file->_IO_read_ptr, delimiter, count) != nullptr);
}

// --- what programs call

template <auto native>
int one_byte(std::FILE* file) {
  Instance* const instance = waiting_reader(file);
  return instance == nullptr || await_bytes(*instance, file) ? native(file) : EOF;
}

int own_getw(std::FILE* file) {
  int word = 0;
  return read_stream(file, &word, sizeof word) == sizeof word ? word : EOF;
}

char* own_fgets(char* text, int room, std::FILE* file) {
  const auto most = static_cast<std::size_t>(std::max(room, 1)) - 1;
  Instance* const instance = most == 0 || has_line(file, most, '\n') ? nullptr : waiting_for_more(file);
  if (instance == nullptr) return std::fgets(text, room, file);
  const std::size_t count = take(*instance, file, text, most, '\n');
  if (count == 0) return nullptr;
  text[count] = '\0';
  return text;
}

char* own_fgets_chk(char* text, std::size_t size, int room, std::FILE* file) {
  if (room > 0 && static_cast<std::size_t>(room) > size) return __fgets_chk(text, size, room, file);  // ends it
  return own_fgets(text, room, file);
}

std::size_t own_fread(void* bytes, std::size_t size, std::size_t count, std::FILE* file) {
  std::size_t whole = 0;
  if (__builtin_mul_overflow(size, count, &whole) || whole <= bytes_at_hand(file))
    return std::fread(bytes, size, count, file);
  const std::size_t done = read_stream(file, bytes, whole);
  return done == whole ? count : done / size;
}

std::size_t own_fread_chk(void* bytes, std::size_t room, std::size_t size, std::size_t count, std::FILE* file) {
  std::size_t whole = 0;
  if (__builtin_mul_overflow(size, count, &whole) || whole > room) return __fread_chk(bytes, room, size, count, file);
  return own_fread(bytes, size, count, file);
}

/// What a FILE that scanf reads is over.
struct Source {
  Instance& instance;
  std::FILE* file;
};

ssize_t read_source(void* cookie, char* bytes, std::size_t) {
  const Source& source = *static_cast<Source*>(cookie);
  return static_cast<ssize_t>(take_piece(source.instance, source.file, bytes, 1, EOF));
}

enum class Scan { gnu, c99, c23 };

template <Scan dialect>
int scan_file(const void* /*caller*/, std::FILE* file, const char* format, va_list arguments) {
  return scan_in_turn(file, [format, &arguments](std::FILE* from) {
    if (dialect == Scan::gnu) return native_vfscanf(from, format, arguments);
    if (dialect == Scan::c23 && __isoc23_vfscanf != nullptr) return __isoc23_vfscanf(from, format, arguments);
    return __isoc99_vfscanf(from, format, arguments);
  });
}

template <Scan dialect>
int scan(const void* caller, const char* format, va_list arguments) {
  return scan_file<dialect>(caller, stream_at(caller, Stream::in), format, arguments);
}

int own_getchar() { return next_byte(stream_at(__builtin_return_address(0), Stream::in)); }
int own_getchar_unlocked() { return one_byte<::getc_unlocked>(stream_at(__builtin_return_address(0), Stream::in)); }

/// A line without its end.
char* read_text(std::FILE* in, char* buffer, std::size_t room) {
  std::size_t length = 0;
  int character = next_byte(in);
  for (; character != EOF && character != '\n'; character = next_byte(in)) {
    if (length + 1 < room) buffer[length] = static_cast<char>(character);
    ++length;
  }
  if (character == EOF && (length == 0 || std::ferror(in) != 0)) return nullptr;
  buffer[length < room ? length : room - 1] = '\0';
  return buffer;
}

// The function that C11 has removed: it cannot know the buffer's size.
char* own_unbounded_line(char* buffer) {
  return read_text(stream_at(__builtin_return_address(0), Stream::in), buffer, static_cast<std::size_t>(-1));
}
// What fits is kept, where libc would abort the process.
char* own_bounded_line(char* buffer, std::size_t room) {
  return read_text(stream_at(__builtin_return_address(0), Stream::in), buffer, room);
}

}  // namespace

int next_byte(std::FILE* file) { return one_byte<std::getc>(file); }

bool line_may_wait(std::FILE* file, int delimiter) {
  return !has_line(file, static_cast<std::size_t>(-1), delimiter) && waiting_for_more(file) != nullptr;
}

bool read_line_in_turn(std::FILE* file, int delimiter, std::string& line) {
  Instance* const instance = reader();
  constexpr std::size_t piece_max = 4096;
  while (instance != nullptr) {
    const std::size_t before = line.size();
    line.resize(before + piece_max);
    const std::size_t piece = take_piece(*instance, file, line.data() + before, piece_max, delimiter);
    line.resize(before + piece);
    if (piece == 0 || ends_with(line.data(), line.size(), delimiter)) break;
  }
  return !line.empty();
}

int scan_in_turn(std::FILE* file, const std::function<int(std::FILE*)>& scan) {
  Instance* const instance = waiting_for_more(file);
  if (instance == nullptr) return scan(file);
  Source source{*instance, file};
  std::FILE* const one_by_one = ::fopencookie(&source, "r", {read_source, nullptr, nullptr, nullptr});
  if (one_by_one == nullptr) return EOF;
  ::setvbuf(one_by_one, nullptr, _IONBF, 0);  // takes nothing that is not asked for
  const int result = scan(one_by_one);
  const int error = errno_now();
  std::vector<int> returned;  // what it has looked at and left
  while (has_bytes(one_by_one)) returned.push_back(::getc_unlocked(one_by_one));
  for (; !returned.empty(); returned.pop_back()) std::ungetc(returned.back(), file);
  std::fclose(one_by_one);
  failed(error);
  return result;
}

std::span<const Binding> input_bindings() {
  static const Binding table[] = {
      Binding::of("getc", &one_byte<std::getc>),
      Binding::of("fgetc", &one_byte<std::getc>),
      Binding::of("_IO_getc", &one_byte<std::getc>),
      Binding::of("getc_unlocked", &one_byte<::getc_unlocked>),
      Binding::of("fgetc_unlocked", &one_byte<::getc_unlocked>),
      Binding::of("__uflow", &one_byte<__uflow>),
      Binding::of("__underflow", &one_byte<__underflow>),
      Binding::of("getw", &own_getw),
      Binding::of("getchar", &own_getchar),
      Binding::of("getchar_unlocked", &own_getchar_unlocked),
      Binding::of("gets", &own_unbounded_line),
      Binding::of("__gets_chk", &own_bounded_line),
      Binding::of("fgets", &own_fgets),
      Binding::of("fgets_unlocked", &own_fgets),
      Binding::of("__fgets_chk", &own_fgets_chk),
      Binding::of("__fgets_unlocked_chk", &own_fgets_chk),
      Binding::of("fread", &own_fread),
      Binding::of("fread_unlocked", &own_fread),
      Binding::of("__fread_chk", &own_fread_chk),
      Binding::of("__fread_unlocked_chk", &own_fread_chk),
      Binding::of("scanf", &Formatted<scan<Scan::gnu>, char>::with_dots),
      Binding::of("vscanf", &Formatted<scan<Scan::gnu>, char>::with_list),
      Binding::of("__isoc99_scanf", &Formatted<scan<Scan::c99>, char>::with_dots),
      Binding::of("__isoc99_vscanf", &Formatted<scan<Scan::c99>, char>::with_list),
      Binding::of("__isoc23_scanf", &Formatted<scan<Scan::c23>, char>::with_dots),
      Binding::of("__isoc23_vscanf", &Formatted<scan<Scan::c23>, char>::with_list),
      Binding::of("fscanf", &Formatted<scan_file<Scan::gnu>, char, std::FILE*>::with_dots),
      Binding::of("vfscanf", &Formatted<scan_file<Scan::gnu>, char, std::FILE*>::with_list),
      Binding::of("__isoc99_fscanf", &Formatted<scan_file<Scan::c99>, char, std::FILE*>::with_dots),
      Binding::of("__isoc99_vfscanf", &Formatted<scan_file<Scan::c99>, char, std::FILE*>::with_list),
      Binding::of("__isoc23_fscanf", &Formatted<scan_file<Scan::c23>, char, std::FILE*>::with_dots),
      Binding::of("__isoc23_vfscanf", &Formatted<scan_file<Scan::c23>, char, std::FILE*>::with_list),
  };
  return table;
}

}  // namespace aplib::loader::libc
