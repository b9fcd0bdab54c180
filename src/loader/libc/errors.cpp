// SPDX-License-Identifier: MIT
// perror, err, error, assert and their relatives, which write to stderr without naming it, and may end the program.
// Each message reaches the instance's stderr in one piece.
#include <err.h>
#include <error.h>
#include <fmt/format.h>
#include <netdb.h>
#include <syslog.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/os/thread.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/streams.hpp"

// <cassert> declares these only without NDEBUG.
extern "C" [[noreturn]] void __assert_fail(const char*, const char*, unsigned, const char*) noexcept;
extern "C" [[noreturn]] void __assert_perror_fail(int, const char*, unsigned, const char*) noexcept;
extern "C" [[noreturn]] void __assert(const char*, const char*, int) noexcept;

namespace aplib::loader::libc {
namespace {

std::string printed(const char* format, va_list arguments, int level = PrintedText::unchecked) {
  const PrintedText text(level, format, arguments);
  return std::string(text ? text.view() : format);
}

std::string error_text(int number) {
  std::array<char, 256> buffer{};
  return ::strerror_r(number, buffer.data(), buffer.size());
}

std::string program_name(Instance& instance, bool full) {
  const char* name = full ? *instance.libc().program_name : *instance.libc().program_short_name;
  return name != nullptr ? name : "";
}

// "prefix: text", or the text alone.
std::string after(const char* prefix, const std::string& text) {
  return prefix != nullptr && *prefix != '\0' ? fmt::format("{}: {}\n", prefix, text) : text + '\n';
}

// --- messages

/// A cancellation point, as in libc.
void tell(Instance& instance, const std::string& text) {
  pthread_testcancel();
  say(instance, text);
}

void own_perror(const char* prefix) {
  const int number = errno;
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::perror(prefix);
  tell(*instance, after(prefix, error_text(number)));
}

void own_herror(const char* prefix) {
  const int number = h_errno;
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) return ::herror(prefix);
  say(*instance, after(prefix, ::hstrerror(number)));
}

std::string signal_text(int signal) {
  const char* text = ::sigdescr_np(signal);
  return text != nullptr ? text : fmt::format("Unknown signal {}", signal);
}

void own_psignal(Instance& instance, int signal, const char* prefix) {
  say(instance, after(prefix, signal_text(signal)));
}

// Less than libc's: no word for each code.
void own_psiginfo(Instance& instance, const siginfo_t* info, const char* prefix) {
  const bool fault =
      info->si_signo == SIGSEGV || info->si_signo == SIGBUS || info->si_signo == SIGILL || info->si_signo == SIGFPE;
  say(instance,
      after(prefix, fault ? fmt::format("{} (code {} [{}])", signal_text(info->si_signo), info->si_code, info->si_addr)
                          : fmt::format("{} (code {} {} {})", signal_text(info->si_signo), info->si_code, info->si_pid,
                                        info->si_uid)));
}

// --- err, warn (err(3))

// `number` < 0: without the text of an error.
void warn_of(Instance& instance, int number, const char* format, va_list arguments) {
  std::string text = program_name(instance, false) + ": ";
  if (format != nullptr) {
    text += printed(format, arguments);
    if (number >= 0) text += ": ";
  }
  if (number >= 0) text += error_text(number);
  tell(instance, text + '\n');
}

void print_warning(const void* caller, const char* format, va_list arguments) {
  const int number = errno;
  Instance* instance = calling(caller);
  if (instance == nullptr) return ::vwarn(format, arguments);
  warn_of(*instance, number, format, arguments);
}

void print_warning_alone(const void* caller, const char* format, va_list arguments) {
  Instance* instance = calling(caller);
  if (instance == nullptr) return ::vwarnx(format, arguments);
  warn_of(*instance, -1, format, arguments);
}

void end_with(const void* caller, int status, const char* format, va_list arguments) {
  const int number = errno;
  Instance* instance = calling(caller);
  if (instance == nullptr) ::verr(status, format, arguments);
  warn_of(*instance, number, format, arguments);
  exit_instance(*instance, status);
}

void end_with_text_alone(const void* caller, int status, const char* format, va_list arguments) {
  Instance* instance = calling(caller);
  if (instance == nullptr) ::verrx(status, format, arguments);
  warn_of(*instance, -1, format, arguments);
  exit_instance(*instance, status);
}

// --- error, error_at_line (error(3))

struct SourceLine {
  const char* file = nullptr;  ///< null: error()
  unsigned line = 0;
};

void report(Instance& instance, int number, SourceLine place, const char* format, va_list arguments) {
  ErrorReports& reports = stdio_of(instance).errors;
  if (place.file != nullptr && *reports.one_per_line != 0) {
    if (reports.last_line == place.line && reports.last_file == place.file) return;
    reports.last_file = place.file;
    reports.last_line = place.line;
  }
  const os::CancellationDisabled uncancelled;  // no cancellation point in libc, either
  if (std::FILE* out = stream_of(instance, Stream::out)) std::fflush(out);
  std::string text;
  if (*reports.print_program_name != nullptr) {
    (*reports.print_program_name)();
    if (place.file == nullptr) text = " ";
  } else {
    text = program_name(instance, true) + (place.file != nullptr ? ":" : ": ");
  }
  if (place.file != nullptr) text += fmt::format("{}:{}: ", place.file, place.line);
  text += printed(format, arguments);
  if (number != 0) text += ": " + error_text(number);
  say(instance, text + '\n');
  ++*reports.count;
}

void own_error(int status, int number, const char* format, ...) {
  Instance* instance = calling(__builtin_return_address(0));
  va_list arguments;
  va_start(arguments, format);
  if (instance != nullptr) {
    report(*instance, number, {}, format, arguments);
  } else {
    ::error(status, number, "%s", printed(format, arguments).c_str());
  }
  va_end(arguments);
  if (instance != nullptr && status != 0) exit_instance(*instance, status);
}

void own_error_at_line(int status, int number, const char* file, unsigned line, const char* format, ...) {
  Instance* instance = calling(__builtin_return_address(0));
  va_list arguments;
  va_start(arguments, format);
  if (instance != nullptr) {
    report(*instance, number, {file, line}, format, arguments);
  } else {
    ::error_at_line(status, number, file, line, "%s", printed(format, arguments).c_str());
  }
  va_end(arguments);
  if (instance != nullptr && status != 0) exit_instance(*instance, status);
}

// --- the system's log (syslog(3))

// Libc sends it, by the name and in the time zone of the program.
void write_log(const void* caller, int priority, int level, const char* format, va_list arguments) {
  const std::string text = printed(format, arguments, level);  // first: it may name errno
  pthread_testcancel();
  Instance* const instance = calling(caller);
  if (instance == nullptr) return ::syslog(priority, "%s", text.c_str());
  StdioPrivate& own = stdio_of(*instance);
  const SystemLog log = [&] {
    const std::lock_guard lock(own.mutex);
    return own.log;
  }();
  if ((LOG_MASK(LOG_PRI(priority)) & log.mask) == 0) return;
  std::string name = log.name != nullptr ? log.name : program_name(*instance, false);
  if ((log.options & LOG_PID) != 0) name += fmt::format("[{}]", pid_of(*instance));
  if ((log.options & LOG_PERROR) != 0) {
    const std::string line = fmt::format("{}: {}{}", name, text, text.ends_with('\n') ? "" : "\n");
    write_outlet(outlet_of(*instance, STDERR_FILENO), line.data(), line.size());
  }
  if ((priority & LOG_FACMASK) == 0) priority |= log.facility;
  const os::CancellationDisabled uncancelled;
  in_zone(instance->libc(), [&] {
    ::openlog(name.c_str(), log.options & LOG_CONS, 0);
    ::syslog(priority, "%s", text.c_str());
    ::closelog();
  });
}

void write_log_unchecked(const void* caller, int priority, const char* format, va_list arguments) {
  write_log(caller, priority, PrintedText::unchecked, format, arguments);
}

void own_openlog(Instance& instance, const char* name, int options, int facility) {
  StdioPrivate& own = stdio_of(instance);
  const std::lock_guard lock(own.mutex);
  if (name != nullptr) own.log.name = name;
  own.log.options = options;
  if (facility != 0 && (facility & ~LOG_FACMASK) == 0) own.log.facility = facility;
}

void own_closelog(Instance& instance) {
  StdioPrivate& own = stdio_of(instance);
  const std::lock_guard lock(own.mutex);
  own.log.name = nullptr;
}

int own_setlogmask(Instance& instance, int mask) {
  StdioPrivate& own = stdio_of(instance);
  const std::lock_guard lock(own.mutex);
  return std::exchange(own.log.mask, mask != 0 ? mask : own.log.mask);
}

// --- assert

// As libc words it, without the end of the line.
std::string failed_at(Instance& instance, const char* file, unsigned line, const char* function) {
  return fmt::format("{}: {}:{}: {}{}", program_name(instance, false), file, line, function != nullptr ? function : "",
                     function != nullptr ? ": " : "");
}

// No temporary may live in a frame that ends in abort_instance(): it is left by a jump.
[[gnu::noinline]] std::string assertion_text(Instance& instance, const char* file, unsigned line, const char* function,
                                             const char* expression) {
  return failed_at(instance, file, line, function) + fmt::format("Assertion `{}' failed.", expression);
}

[[gnu::noinline]] std::string unexpected_text(Instance& instance, const char* file, unsigned line, const char* function,
                                              int number) {
  return failed_at(instance, file, line, function) + fmt::format("Unexpected error: {}.", error_text(number));
}

[[noreturn]] void own_assert_fail(const char* expression, const char* file, unsigned line, const char* function) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) __assert_fail(expression, file, line, function);
  abort_instance(*instance, assertion_text(*instance, file, line, function, expression));
}

[[noreturn]] void own_assert_perror_fail(int number, const char* file, unsigned line, const char* function) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) __assert_perror_fail(number, file, line, function);
  abort_instance(*instance, unexpected_text(*instance, file, line, function, number));
}

[[noreturn]] void own_assert(const char* expression, const char* file, int line) {
  Instance* instance = calling(__builtin_return_address(0));
  if (instance == nullptr) __assert(expression, file, line);
  abort_instance(*instance, assertion_text(*instance, file, static_cast<unsigned>(line), nullptr, expression));
}

// --- variables

auto& print_program_name(Instance& instance) { return stdio_of(instance).errors.print_program_name; }
auto& message_count(Instance& instance) { return stdio_of(instance).errors.count; }
auto& one_per_line(Instance& instance) { return stdio_of(instance).errors.one_per_line; }

}  // namespace

std::span<const Binding> errors_bindings() {
  static const std::array table{
      Binding::of("perror", &own_perror),
      Binding::of("herror", &own_herror),
      bound<::psignal, own_psignal>("psignal"),
      bound<::psiginfo, own_psiginfo>("psiginfo"),
      Binding::of("warn", &Formatted<print_warning, char>::with_dots),
      Binding::of("vwarn", &Formatted<print_warning, char>::with_list),
      Binding::of("warnx", &Formatted<print_warning_alone, char>::with_dots),
      Binding::of("vwarnx", &Formatted<print_warning_alone, char>::with_list),
      Binding::of("err", &Formatted<end_with, char, int>::with_dots),
      Binding::of("verr", &Formatted<end_with, char, int>::with_list),
      Binding::of("errx", &Formatted<end_with_text_alone, char, int>::with_dots),
      Binding::of("verrx", &Formatted<end_with_text_alone, char, int>::with_list),
      Binding::of("error", &own_error),
      Binding::of("error_at_line", &own_error_at_line),
      variable<print_program_name>("error_print_progname"),
      variable<message_count>("error_message_count"),
      variable<one_per_line>("error_one_per_line"),
      Binding::of("syslog", &Formatted<write_log_unchecked, char, int>::with_dots),
      Binding::of("vsyslog", &Formatted<write_log_unchecked, char, int>::with_list),
      Binding::of("__syslog_chk", &Formatted<write_log, char, int, int>::with_dots),
      Binding::of("__vsyslog_chk", &Formatted<write_log, char, int, int>::with_list),
      bound<::openlog, own_openlog>("openlog"),
      bound<::closelog, own_closelog>("closelog"),
      bound<::setlogmask, own_setlogmask>("setlogmask"),
      Binding::of("__assert_fail", &own_assert_fail),
      Binding::of("__assert_perror_fail", &own_assert_perror_fail),
      Binding::of("__assert", &own_assert),
  };
  return table;
}

}  // namespace aplib::loader::libc
