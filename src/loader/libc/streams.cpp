// SPDX-License-Identifier: MIT
#include "loader/libc/streams.hpp"

#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "base/os/thread.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

StdioPrivate::~StdioPrivate() {
  const auto drop = [](std::FILE* file) {
    if (file == nullptr) return;
    __fpurge(file);
    std::fclose(file);
  };
  for (const Open& each : open) drop(each.file);
  for (const Outlet& outlet : outlets) drop(outlet.file);
}

namespace {

// What succeeds leaves errno alone, as libc's own streams do.
class KeepErrno {
 public:
  KeepErrno() = default;
  ~KeepErrno() { errno = error_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int error_ = errno;
};

// --- what glibc calls for a FILE over an outlet (fopencookie(3))

ssize_t read_cookie(void* cookie, char* bytes, std::size_t count) {
  return read_outlet(*static_cast<Outlet*>(cookie), bytes, count);
}

// An error is told by 0 here, not by -1.
ssize_t write_cookie(void* cookie, const char* bytes, std::size_t count) {
  return std::max<ssize_t>(write_outlet(*static_cast<Outlet*>(cookie), bytes, count), 0);
}

int seek_cookie(void* cookie, off64_t* position, int whence) {
  const auto& outlet = *static_cast<Outlet*>(cookie);
  int descriptor = outlet.descriptor.get();
  if (outlet.leads == Outlet::Leads::to_cell && outlet.cell_stream == Stream::in)
    descriptor = outlet.instance->services().input();
  if (descriptor < 0) {
    errno = ESPIPE;
    return -1;
  }
  const off64_t reached = ::lseek64(descriptor, *position, whence);
  if (reached < 0) return -1;
  *position = reached;
  return 0;
}

/// -1: it has none.
int descriptor_of(std::FILE* file) {
  const KeepErrno kept;
  return ::fileno(file);
}

std::FILE* make_file(Outlet& outlet, const char* mode) {
  return ::fopencookie(&outlet, mode, {read_cookie, write_cookie, seek_cookie, nullptr});
}

std::FILE*& variable_of(LibcState& state, Stream stream) {
  return stream == Stream::in ? *state.in : stream == Stream::out ? *state.out : *state.err;
}

std::FILE* make_stream(Instance& instance, Stream stream) {
  const KeepErrno kept;
  StdioPrivate& own = stdio_of(instance);
  Outlet& outlet = own.outlets[static_cast<std::size_t>(stream)];
  const std::lock_guard lock(own.mutex);
  const std::atomic_ref<std::FILE*> variable(variable_of(instance.libc(), stream));
  if (std::FILE* other = variable.load(std::memory_order_acquire)) return other;
  if (outlet.file == nullptr) outlet.file = make_file(outlet, stream == Stream::in ? "r" : "w");
  if (outlet.file == nullptr) return nullptr;
  // As libc chooses for a fresh process.
  if (stream == Stream::err) ::setvbuf(outlet.file, nullptr, _IONBF, 0);
  if (stream == Stream::out && ::isatty(STDOUT_FILENO) == 1) ::setvbuf(outlet.file, nullptr, _IOLBF, 0);
  variable.store(outlet.file, std::memory_order_release);  // a complete FILE is seen
  return outlet.file;
}

// What is in front of the reader is shown before it is asked, as libc does for terminals.
void show_question(Instance& instance) {
  const KeepErrno kept;
  Outlet& outlet = outlet_of(instance, static_cast<int>(Stream::out));
  if (outlet.file == nullptr || __flbf(outlet.file) == 0) return;
  std::fflush(outlet.file);
  show_outlet(outlet);
}

ssize_t write_all(int descriptor, const char* bytes, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t written = ::write(descriptor, bytes + done, count - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return done > 0 ? static_cast<ssize_t>(done) : -1;
    done += static_cast<std::size_t>(written);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

StdioPrivate& stdio_of(Instance& instance) {
  StdioPrivate& own = shared_part(instance.libc().stdio);
  if (std::atomic_ref(own.outlets[2].instance).load(std::memory_order_acquire) != nullptr) return own;
  const std::lock_guard lock(own.mutex);
  if (own.outlets[2].instance != nullptr) return own;
  for (std::size_t i = 0; i < own.outlets.size(); ++i) {
    own.outlets[i].stream = own.outlets[i].cell_stream = static_cast<Stream>(i);
    // The last one tells that all are set.
    std::atomic_ref(own.outlets[i].instance).store(&instance, std::memory_order_release);
  }
  return own;
}

std::FILE* stream_of(Instance& instance, Stream stream) {
  const std::atomic_ref<std::FILE*> variable(variable_of(instance.libc(), stream));
  std::FILE* file = variable.load(std::memory_order_acquire);
  return file != nullptr ? file : make_stream(instance, stream);
}

std::FILE* stream_at(const void* caller, Stream stream) {
  if (Instance* instance = calling(caller)) return stream_of(*instance, stream);
  return stream == Stream::in ? stdin : stream == Stream::out ? stdout : stderr;
}

Outlet* outlet_of(Instance& instance, std::FILE* file, bool owned) {
  StdioPrivate& own = stdio_of(instance);
  for (Outlet& outlet : own.outlets) {
    if (outlet.file == file && file != nullptr) return &outlet;
  }
  const std::lock_guard lock(own.mutex);
  const auto found = std::ranges::find(own.open, file, &StdioPrivate::Open::file);
  return found != own.open.end() && (found->owns || !owned) ? found->outlet : nullptr;
}

Outlet* closed_outlet(Instance& instance, int least) {
  for (int number = least; is_standard(number); ++number) {
    Outlet& outlet = outlet_of(instance, number);
    if (outlet.leads == Outlet::Leads::nowhere) return &outlet;
  }
  return nullptr;
}

ssize_t write_outlet(Outlet& outlet, const char* bytes, std::size_t count) {
  switch (outlet.leads) {
    case Outlet::Leads::to_file:
      return write_all(outlet.descriptor.get(), bytes, count);
    case Outlet::Leads::to_cell: {
      if (outlet.cell_stream == Stream::in) break;
      const KeepErrno kept;
      if (count > 0) outlet.instance->services().write(outlet.cell_stream, std::span(bytes, count));
      return static_cast<ssize_t>(count);
    }
    case Outlet::Leads::nowhere:
      break;
  }
  errno = EBADF;
  return -1;
}

ssize_t read_outlet(Outlet& outlet, char* bytes, std::size_t count) {
  switch (outlet.leads) {
    case Outlet::Leads::to_file:
      return ::read(outlet.descriptor.get(), bytes, count);
    case Outlet::Leads::to_cell: {
      if (outlet.cell_stream != Stream::in) break;
      show_question(*outlet.instance);
      const int input = outlet.instance->services().input();
      return input < 0 ? 0 : ::read(input, bytes, count);
    }
    case Outlet::Leads::nowhere:
      break;
  }
  errno = EBADF;
  return -1;
}

bool await_outlet(Outlet& outlet) {
  int descriptor = outlet.descriptor.get();
  bool waits = outlet.waits;
  if (outlet.leads == Outlet::Leads::to_cell && outlet.cell_stream == Stream::in) {
    show_question(*outlet.instance);
    descriptor = outlet.instance->services().input();
    waits = descriptor >= 0 && may_wait(descriptor);
  }
  return !waits || await_descriptor(*outlet.instance, descriptor, POLLIN);
}

void show_outlet(Outlet& outlet) {
  const KeepErrno kept;
  if (outlet.leads == Outlet::Leads::to_cell && outlet.cell_stream != Stream::in)
    outlet.instance->services().flush(outlet.cell_stream);
}

void redirect(Outlet& outlet, Outlet::Leads leads, os::GuardedFd descriptor) {
  outlet.waits = leads == Outlet::Leads::to_file && may_wait(descriptor.get());
  outlet.descriptor = std::move(descriptor);
  outlet.leads = leads;
  outlet.ends_at_exec = false;
  if (leads == Outlet::Leads::to_cell) outlet.cell_stream = outlet.stream;
}

std::FILE* open_outlet(Outlet& outlet, const char* mode, bool owns) {
  if (outlet.leads == Outlet::Leads::nowhere) {
    errno = EBADF;
    return nullptr;
  }
  std::FILE* file = make_file(outlet, mode);
  return track(*outlet.instance, file, &outlet, owns);
}

std::FILE* track(Instance& instance, std::FILE* file, Outlet* outlet, bool owns) {
  if (file == nullptr) return nullptr;
  note_opened(instance, descriptor_of(file));
  StdioPrivate& own = stdio_of(instance);
  const std::lock_guard lock(own.mutex);
  own.open.push_back({file, outlet, owns});
  return file;
}

std::FILE* track_lowest(Instance& instance, std::FILE* file, const char* mode, int least) {
  if (file == nullptr) return nullptr;
  if (closed_outlet(instance, least) == nullptr) {
    if (has_room(instance)) return track(instance, file);
    std::fclose(file);
    failed(EMFILE);
    return nullptr;
  }
  const int number = note_lowest(&instance, ::fcntl(::fileno(file), F_DUPFD_CLOEXEC, STDERR_FILENO + 1), least);
  const int error = errno;
  std::fclose(file);
  errno = error;
  if (number < 0) return nullptr;
  Outlet& outlet = outlet_of(instance, number);
  outlet.ends_at_exec = std::strchr(mode, 'e') != nullptr;
  std::FILE* const placed = open_outlet(outlet, mode, true);
  if (placed != nullptr && ::isatty(outlet.descriptor.get()) == 1) ::setvbuf(placed, nullptr, _IOLBF, 0);
  return placed;
}

void untrack(Instance& instance, std::FILE* file) {
  note_closed(instance, descriptor_of(file));
  StdioPrivate& own = stdio_of(instance);
  const std::lock_guard lock(own.mutex);
  const auto found = std::ranges::find(own.open, file, &StdioPrivate::Open::file);
  if (found == own.open.end()) return;
  *found = own.open.back();
  own.open.pop_back();
}

namespace {

std::vector<std::FILE*> files_of(StdioPrivate& own) {
  std::vector<std::FILE*> files;
  const std::lock_guard lock(own.mutex);
  for (const Outlet& outlet : own.outlets) {
    if (outlet.file != nullptr) files.push_back(outlet.file);
  }
  for (const StdioPrivate::Open& each : own.open) files.push_back(each.file);
  return files;
}

void close_files(Instance& instance, StdioPrivate& own) {
  for (const StdioPrivate::Open& each : std::exchange(own.open, {})) {
    note_closed(instance, descriptor_of(each.file));
    std::fclose(each.file);
  }
  for (Outlet& outlet : own.outlets) {
    if (outlet.file != nullptr) std::fclose(std::exchange(outlet.file, nullptr));
    redirect(outlet, Outlet::Leads::nowhere);
    variable_of(instance.libc(), outlet.stream) = nullptr;
  }
}

}  // namespace

int close_all_files(Instance& instance) {
  const int result = flush_stream(instance, nullptr);
  for (std::FILE* const each : files_of(stdio_of(instance))) ::setvbuf(each, nullptr, _IONBF, 0);
  return result;
}

int flush_stream(Instance& instance, std::FILE* file) {
  if (file != nullptr) {
    const int drained = drain_in_turn(file);
    const int result = std::fflush(file) == 0 ? drained : EOF;
    if (Outlet* outlet = outlet_of(instance, file)) show_outlet(*outlet);
    return result;
  }
  StdioPrivate& own = stdio_of(instance);
  int result = 0;
  for (std::FILE* each : files_of(own)) {
    // Input is left alone: the program's next read goes on where it was.
    if (__fwriting(each) == 0) continue;
    const int drained = drain_in_turn(each);
    if (std::fflush(each) != 0 || drained != 0) result = EOF;
  }
  for (Outlet& outlet : own.outlets) {
    if (outlet.file != nullptr) show_outlet(outlet);
  }
  return result;
}

void say(Instance& instance, std::string_view text) noexcept {
  const os::CancellationDisabled uncancelled;
  if (std::FILE* file = stream_of(instance, Stream::err)) std::fwrite(text.data(), 1, text.size(), file);
}

void start_stdio(Instance& instance) {
  const Program& program = instance.program();
  // What plug-ins name is not known yet.
  const bool loads_plugins = program.binds("dlopen") || program.binds("dlsym");
  constexpr std::array<std::pair<std::string_view, Stream>, 3> names{
      {{"stdin", Stream::in}, {"stdout", Stream::out}, {"stderr", Stream::err}}};
  for (const auto& [name, stream] : names) {
    if ((loads_plugins || program.binds(name)) && stream_of(instance, stream) == nullptr) throw std::bad_alloc();
  }
}

void stop_stdio(Instance& instance, bool alone) {
  StdioPrivate* const own = instance.libc().stdio.part;
  if (own != nullptr) {
    for (std::FILE* const each : files_of(*own)) __fsetlocking(each, FSETLOCKING_BYCALLER);
    flush_stream(instance, nullptr);
  }
  if (!alone) return;
  if (own != nullptr) close_files(instance, *own);
  close_descriptors(instance);
}

}  // namespace aplib::loader::libc
