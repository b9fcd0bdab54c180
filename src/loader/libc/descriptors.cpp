// SPDX-License-Identifier: MIT
// Descriptors 0, 1 and 2, used without stdio. They belong to the process and so to all cells: what an instance
// writes to 1 and 2 goes to its host, which keeps lines whole, and what it does to them by dup2 and close it does
// to its own outlets. What is not here (fcntl, ioctl, fstat, isatty, poll, sendfile) sees the process's
// descriptors.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "loader/libc/caller.hpp"
#include "loader/libc/streams.hpp"

extern "C" {
int __vasprintf_chk(char**, int, const char*, va_list);
ssize_t __read_chk(int, void*, std::size_t, std::size_t);
}

namespace aplib::loader::libc {
namespace {

// The caller's outlet, or null: any other descriptor, or no instance.
Outlet* outlet_at(const void* caller, int descriptor) {
  if (!is_standard(descriptor)) return nullptr;
  Instance* instance = calling(caller);
  return instance == nullptr ? nullptr : &outlet_of(*instance, descriptor);
}

ssize_t own_write(int descriptor, const void* bytes, std::size_t count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::write(descriptor, bytes, count);
  return write_outlet(*outlet, static_cast<const char*>(bytes), count);
}

ssize_t own_writev(int descriptor, const iovec* pieces, int count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::writev(descriptor, pieces, count);
  if (outlet->leads == Outlet::Leads::to_file) return ::writev(outlet->descriptor, pieces, count);
  std::string whole;
  for (int i = 0; i < count; ++i) whole.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  return write_outlet(*outlet, whole.data(), whole.size());
}

ssize_t own_pwrite(int descriptor, const void* bytes, std::size_t count, off64_t position) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::pwrite64(descriptor, bytes, count, position);
  if (outlet->leads == Outlet::Leads::to_file) return ::pwrite64(outlet->descriptor, bytes, count, position);
  errno = ESPIPE;
  return -1;
}

ssize_t own_read(int descriptor, void* bytes, std::size_t count) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr) return ::read(descriptor, bytes, count);
  return read_outlet(*outlet, static_cast<char*>(bytes), count);
}

ssize_t own_read_chk(int descriptor, void* bytes, std::size_t count, std::size_t room) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  if (outlet == nullptr || count > room) return __read_chk(descriptor, bytes, count, room);
  return read_outlet(*outlet, static_cast<char*>(bytes), count);
}

// `level` < 0: unchecked.
int print(Outlet& outlet, int level, const char* format, va_list arguments) {
  char* made = nullptr;
  const int length =
      level < 0 ? ::vasprintf(&made, format, arguments) : __vasprintf_chk(&made, level, format, arguments);
  if (length < 0) return -1;
  const std::unique_ptr<char, void (*)(void*)> text(made, &std::free);
  return static_cast<int>(write_outlet(outlet, text.get(), static_cast<std::size_t>(length)));
}

int own_vdprintf(int descriptor, const char* format, va_list arguments) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  return outlet == nullptr ? ::vdprintf(descriptor, format, arguments) : print(*outlet, -1, format, arguments);
}

int own_dprintf(int descriptor, const char* format, ...) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  va_list arguments;
  va_start(arguments, format);
  const int result =
      outlet == nullptr ? ::vdprintf(descriptor, format, arguments) : print(*outlet, -1, format, arguments);
  va_end(arguments);
  return result;
}

int own_vdprintf_chk(int descriptor, int level, const char* format, va_list arguments) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  return outlet == nullptr ? ::vdprintf(descriptor, format, arguments) : print(*outlet, level, format, arguments);
}

int own_dprintf_chk(int descriptor, int level, const char* format, ...) {
  Outlet* outlet = outlet_at(__builtin_return_address(0), descriptor);
  va_list arguments;
  va_start(arguments, format);
  const int result =
      outlet == nullptr ? ::vdprintf(descriptor, format, arguments) : print(*outlet, level, format, arguments);
  va_end(arguments);
  return result;
}

// --- redirection

bool same_file(int one, int other) {
  struct stat64 a {};
  struct stat64 b {};
  return other >= 0 && ::fstat64(one, &a) == 0 && ::fstat64(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino && a.st_rdev == b.st_rdev;
}

// The process's descriptor behind an outlet that leads to the host.
int process_descriptor(const Outlet& outlet) {
  return outlet.cell_stream == Stream::in ? outlet.instance->services().input() : static_cast<int>(outlet.cell_stream);
}

// dup2() with an outlet as the new descriptor.
int redirect_to(Instance& instance, int from, int number) {
  Outlet& outlet = outlet_of(instance, number);
  if (from == number) {
    if (outlet.leads != Outlet::Leads::nowhere) return number;
    errno = EBADF;
    return -1;
  }
  if (is_standard(from)) {
    const Outlet& other = outlet_of(instance, from);
    if (other.leads == Outlet::Leads::to_cell) {
      redirect(outlet, Outlet::Leads::to_cell, -1);
      outlet.cell_stream = other.cell_stream;
      return number;
    }
    from = other.descriptor;
  } else if (number != 0 ? same_file(from, number) : same_file(from, instance.services().input())) {
    // It restores what it has saved by dup(1).
    redirect(outlet, Outlet::Leads::to_cell, -1);
    return number;
  }
  const int descriptor = ::fcntl(from, F_DUPFD_CLOEXEC, 3);
  if (descriptor < 0) return -1;
  redirect(outlet, Outlet::Leads::to_file, descriptor);
  return number;
}

// The process's descriptor that `descriptor` of the caller stands for.
int translated(const void* caller, int descriptor) {
  const Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) return descriptor;
  return outlet->leads == Outlet::Leads::to_cell ? process_descriptor(*outlet) : outlet->descriptor;
}

int own_dup(int descriptor) { return ::dup(translated(__builtin_return_address(0), descriptor)); }

int own_dup2(int from, int to) {
  const void* caller = __builtin_return_address(0);
  Instance* instance = is_standard(to) ? calling(caller) : nullptr;
  return instance == nullptr ? ::dup2(translated(caller, from), to) : redirect_to(*instance, from, to);
}

int own_dup3(int from, int to, int flags) {
  const void* caller = __builtin_return_address(0);
  Instance* instance = is_standard(to) && from != to ? calling(caller) : nullptr;
  return instance == nullptr ? ::dup3(translated(caller, from), to, flags) : redirect_to(*instance, from, to);
}

int own_close(int descriptor) {
  const void* caller = __builtin_return_address(0);
  Outlet* outlet = outlet_at(caller, descriptor);
  if (outlet == nullptr) {
    if (Instance* instance = calling(caller)) give_up_record_locks(*instance, descriptor);
    return ::close(descriptor);
  }
  if (outlet->leads == Outlet::Leads::nowhere) {
    errno = EBADF;
    return -1;
  }
  redirect(*outlet, Outlet::Leads::nowhere, -1);
  return 0;
}

}  // namespace

std::span<const Binding> descriptors_bindings() {
  static const std::array table{
      Binding::of("write", &own_write),
      Binding::of("__write", &own_write),
      Binding::of("writev", &own_writev),
      Binding::of("pwrite", &own_pwrite),
      Binding::of("pwrite64", &own_pwrite),
      Binding::of("read", &own_read),
      Binding::of("__read", &own_read),
      Binding::of("__read_chk", &own_read_chk),
      Binding::of("dprintf", &own_dprintf),
      Binding::of("vdprintf", &own_vdprintf),
      Binding::of("__dprintf_chk", &own_dprintf_chk),
      Binding::of("__vdprintf_chk", &own_vdprintf_chk),
      Binding::of("dup", &own_dup),
      Binding::of("dup2", &own_dup2),
      Binding::of("__dup2", &own_dup2),
      Binding::of("dup3", &own_dup3),
      Binding::of("close", &own_close),
      Binding::of("__close", &own_close),
  };
  return table;
}

}  // namespace aplib::loader::libc
