// SPDX-License-Identifier: MIT
// The standard streams of an instance, and the files it has open. Stdin, stdout and stderr are FILEs of its own over
// outlets. An outlet says where the instance's descriptor 0, 1 or 2 leads: to the CellServices until the program
// redirects it (freopen, dup2, close). Descriptors of the process stay as they are.
//
// Invariants: (1) A FILE of a standard stream keeps its address until the instance ends, also over freopen and fclose.
// (2) Reading and writing through an outlet never switches tasks, because libc holds the FILE's lock for the thread
// meanwhile. (3) Every FILE that glibc would visit at the process's end is closed while the memory that it may point
// into is mapped, or has nothing buffered.
#pragma once

#include <sys/types.h>
#include <syslog.h>

#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "loader/cell_services.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"

namespace aplib::loader::libc {

/// Where descriptor 0, 1 or 2 of an instance leads.
struct Outlet {
  enum class Leads : unsigned char { to_cell, to_file, nowhere };
  Instance* instance = nullptr;
  std::FILE* file = nullptr;        ///< The standard stream over it; null: not made yet.
  Stream stream = Stream::in;       ///< Which descriptor this is.
  Stream cell_stream = Stream::in;  ///< What of the host it leads to.
  Leads leads = Leads::to_cell;
  os::GuardedFd descriptor;   ///< Where it leads to a file.
  bool waits = false;         ///< That one is a pipe, socket or terminal.
  bool ends_at_exec = false;  ///< FD_CLOEXEC, as the program has set it.
  int orientation = 0;        ///< fwide()'s.
};

/// Error() and err() keep these; the first three are data symbols.
struct ErrorReports {
  Variable<void (*)()> print_program_name;
  Variable<unsigned> count;
  Variable<int> one_per_line;
  std::string last_file;
  unsigned last_line = 0;
};

/// As openlog() and setlogmask() have set it.
struct SystemLog {
  const char* name = nullptr;  ///< Null: the program's.
  int options = 0;
  int facility = LOG_USER;
  int mask = LOG_UPTO(LOG_DEBUG);
};

struct StdioPrivate {
  StdioPrivate() = default;
  ~StdioPrivate();  ///< Closes without writing what is still buffered.
  StdioPrivate(const StdioPrivate&) = delete;
  StdioPrivate& operator=(const StdioPrivate&) = delete;

  struct Open {
    std::FILE* file;
    Outlet* outlet;  ///< Of fdopen(1, ...) and the like; else null.
    bool owns;       ///< fclose() closes that one.
  };
  std::mutex mutex;
  std::array<Outlet, 3> outlets;
  std::vector<Open> open;  ///< What the program has open besides its standard streams.
  ErrorReports errors;
  SystemLog log;
};

StdioPrivate& stdio_of(Instance& instance);
inline Outlet& outlet_of(Instance& instance, int number) {
  return stdio_of(instance).outlets[static_cast<std::size_t>(number)];
}
constexpr bool is_standard(int descriptor) noexcept { return descriptor >= 0 && descriptor <= 2; }

/// The program's stdin, stdout or stderr, as it has set them; made at first use. Never null unless memory is out.
/// Call from: any flow of the instance.
std::FILE* stream_of(Instance& instance, Stream stream);
/// The same for a bound function: `caller` is its return address. The process's own where no instance calls.
std::FILE* stream_at(const void* caller, Stream stream);

/// The outlet that `file` is over, or null: a file as any other. `owned`: only what fclose() would close.
Outlet* outlet_of(Instance& instance, std::FILE* file, bool owned = false);
/// The lowest one that the program has closed, `least` or above; null: none.
Outlet* closed_outlet(Instance& instance, int least = 0);

/// write(2) and read(2) on an outlet, with errno. Do not switch tasks.
ssize_t write_outlet(Outlet& outlet, const char* bytes, std::size_t count);
ssize_t read_outlet(Outlet& outlet, char* bytes, std::size_t count);
/// Returns when read_outlet() need not wait; lets other tasks run meanwhile. False: a handler of the program's has run;
/// errno is EINTR. Call from: a flow of the instance that shares its thread (sharing()).
bool await_outlet(Outlet& outlet);
/// Has the host show what it holds of a line.
void show_outlet(Outlet& outlet);
/// Leads elsewhere from now on; to a file: `descriptor`.
void redirect(Outlet& outlet, Outlet::Leads leads, os::GuardedFd descriptor = {});

/// A number that is never open: EBADF, and POLLNVAL.
inline constexpr int no_descriptor = std::numeric_limits<int>::max();
/// The kernel's number of a descriptor of the program that calls: where the program has redirected 0, 1 or 2 to a file,
/// that one's; where it has closed it, no_descriptor. `caller`: the bound function's return address.
int redirected(const void* caller, int descriptor) noexcept;
int redirected(Instance& instance, int descriptor) noexcept;
/// dup2() onto `number`, the program's own 0, 1 or 2.
int redirect_to(Instance& instance, int from, int number);
/// dup3() likewise.
int redirect_to(Instance& instance, int from, int number, int flags);
/// close() of the program's own 0, 1 or 2.
int close_outlet(Outlet& outlet);
/// fcntl() of F_GETFD and F_SETFD on 0, 1 or 2.
int descriptor_flags(Outlet& outlet, int command, int flags) noexcept;
/// The other way round: what the program calls the kernel's `descriptor`.
int number_of(Instance& instance, int descriptor) noexcept;

/// "/dev/stdin", "/dev/fd/1", "/proc/self/fd/2" and the like: 0, 1 or 2; else -1. `path` may be null.
int named_descriptor(Instance& instance, const char* path);
/// A path as the kernel knows what the program means by it: its own file, its own 0, 1 and 2.
class SeenPath {
 public:
  /// `instance`: null: none. `path` outlives it.
  SeenPath(Instance* instance, const char* path);
  [[nodiscard]] const char* get() const noexcept { return other_.empty() ? path_ : other_.c_str(); }

 private:
  const char* path_;
  std::string other_;
};

/// A further FILE over an outlet; `owns`: whose fclose() closes that. Null with errno as fdopen().
std::FILE* open_outlet(Outlet& outlet, const char* mode, bool owns = false);
/// Files of the program come and go. `outlet`, `owns`: see StdioPrivate::Open. A null `file` is ignored.
std::FILE* track(Instance& instance, std::FILE* file, Outlet* outlet = nullptr, bool owns = false);
/// The same of one that a call has just opened: it gets the lowest free number, `least` or above, as by note_lowest().
/// The FILE may be another one then. `mode`: fopen()'s. Null with errno: the program's own limit forbids it.
std::FILE* track_lowest(Instance& instance, std::FILE* file, const char* mode, int least = 0);
/// fclose().
int close_file(Instance& instance, std::FILE* file);
void untrack(Instance& instance, std::FILE* file);

/// fcloseall() as libc has it: all is written out, nothing is buffered any more, and no descriptor is closed.
int close_all_files(Instance& instance);

/// fflush(stream) for any of the program's, fflush(nullptr) for all of them.
int flush_stream(Instance& instance, std::FILE* file);

/// What is said to the program's stderr in one piece. Never throws.
void say(Instance& instance, std::string_view text) noexcept;

/// Makes those standard streams that the program names, so that the data symbols point to them before any code
/// runs. May throw std::bad_alloc.
void start_stdio(Instance& instance);
/// At the end of the instance, after its last code: writes what is buffered (standard streams, files), and closes all
/// if the calling flow is `alone`: nothing of the program may run afterwards. No lock of a file is waited for: who held
/// it may have ended. Call from: the last flow of the instance.
void stop_stdio(Instance& instance, bool alone);

/// A cancellation point where `file` is about to write, as in libc, rather than to keep text. Call from: without locks.
void may_be_cancelled(std::FILE* file);

/// What vprintf() writes, or with a `level` its fortified form. False: errno says why there is none.
class PrintedText {
 public:
  static constexpr int unchecked = -1;
  PrintedText(int level, const char* format, va_list arguments) noexcept;
  explicit operator bool() const noexcept { return text_ != nullptr; }
  [[nodiscard]] int bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::string_view view() const noexcept { return {text_.get(), static_cast<std::size_t>(bytes_)}; }

 private:
  int bytes_ = -1;
  std::unique_ptr<char, decltype(&std::free)> text_{nullptr, &std::free};
};

// ---------------------------------------------------------------- reading (input.cpp)
// As libc's, but where bytes are to come that nobody has sent yet, other tasks run meanwhile. `file`: any of the
// program's. Call from: a flow of the instance, or a thread, which blocks.

/// getc().
int next_byte(std::FILE* file);
/// getdelim() would have to wait, or might.
bool line_may_wait(std::FILE* file, int delimiter);
/// What getdelim() reads, when line_may_wait(). False: nothing.
bool read_line_in_turn(std::FILE* file, int delimiter, std::string& line);
/// Calls `scan`, which is scanf or one of its kin, with a FILE that stands for `file`.
int scan_in_turn(std::FILE* file, const std::function<int(std::FILE*)>& scan);

// ---------------------------------------------------------------- writing (output.cpp)
// As libc's, but where a reader must make room, other tasks run meanwhile. `file`: any of the program's. Call from: a
// flow of the instance, or a thread, which blocks.

/// A call that writes would have to wait, or might.
bool write_may_wait(std::FILE* file);
/// fwrite() of bytes; putc(); vfprintf(), or with `level` its fortified form.
std::size_t write_in_turn(std::FILE* file, const char* bytes, std::size_t count);
int put_byte_in_turn(int byte, std::FILE* file);
int print_in_turn(std::FILE* file, std::optional<int> level, const char* format, va_list arguments);
/// The same of wide characters, of a file that is no standard stream; all of `text`. False: an error.
bool wide_may_wait(std::FILE* file);
bool put_wide_in_turn(std::FILE* file, const wchar_t* text, std::size_t count);
/// Before fflush() or fclose(): writes what the buffer holds, if that may wait. Returns 0 or EOF as they do.
[[nodiscard]] int drain_in_turn(std::FILE* file);

// ---------------------------------------------------------------- wide characters
// On a stream of bytes, converted by the locale of the calling thread.

/// fputwc(), fgetwc(), ungetwc() on a stream of bytes; WEOF with errno EILSEQ for what cannot be converted.
wint_t put_wide(std::FILE* file, wchar_t character);
wint_t get_wide(std::FILE* file);
wint_t unget_wide(std::FILE* file, wint_t character);
/// All of `text` in one piece. False: nothing was written (it cannot be converted), or not all.
bool put_wide(std::FILE* file, const wchar_t* text, std::size_t count);

// ---------------------------------------------------------------- descriptors

/// To be called before an instance closes `descriptor`: as POSIX has it, that gives up all its record locks on the
/// file, whichever descriptor they were made by. Costs a comparison for programs that lock nothing. Keeps errno.
/// Call from: a flow of the instance.
void give_up_record_locks(Instance& instance, int descriptor) noexcept;

/// `descriptor`, which a call of `instance` (null: none) has just opened, or -1; fails where the program's own limit
/// forbids it.
int note_new(Instance* instance, int descriptor) noexcept;

/// The instance may have one more descriptor; false: errno is EMFILE.
bool has_room(Instance& instance) noexcept;

/// The same of a call that takes the lowest free number, `least` or above, by which programs that have closed 0, 1 or 2
/// redirect them.
int note_lowest(Instance* instance, int descriptor, int least = 0);

/// Another instance has opened it. Keeps errno.
bool is_of_another(Instance& instance, int descriptor) noexcept;

/// A call of the instance has opened `descriptor`, or is about to close it. Keep errno. Call from: a flow of the
/// instance.
void note_opened(Instance& instance, int descriptor) noexcept;
void note_closed(Instance& instance, int descriptor) noexcept;
/// Those that are open now and not guarded are all instances', and stay open. Call from: before the first one runs.
void note_inherited_descriptors();
/// A reader or writer of it may have to wait, as those of files never have. Costs no call of the system for what the
/// program has opened.
bool may_wait(int descriptor) noexcept;
/// Closes what the instance has left open, at its end.
void close_descriptors(Instance& instance) noexcept;

// The tables that stdio's is made of.
std::span<const Binding> wide_stdio_bindings();
std::span<const Binding> descriptors_bindings();
std::span<const Binding> redirected_bindings();
std::span<const Binding> named_descriptors_bindings();
std::span<const Binding> input_bindings();
std::span<const Binding> output_bindings();

/// The system is not to send a signal when a descriptor is ready: says so. -1, with errno set. `call`: as in the text.
int refuse_async(Instance& instance, const char* call);

}  // namespace aplib::loader::libc
