// SPDX-License-Identifier: MIT
// LibcState: what libc keeps per process and an instance needs for itself. It is made with the instance and small,
// because every instance pays for it. What is large or rarely used hangs on a pointer; the file that owns it makes it
// at first use.
//
// Adding a concern: a struct here with its data, a file src/loader/libc/<concern>.cpp with its functions and its
// table of bindings, a line in bindings.cpp, a row in docs/privatization.md, a test in tests/loader/.
#pragma once

#include <locale.h>
#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/os/descriptor.hpp"

namespace aplib::loader {
class Instance;
}  // namespace aplib::loader

namespace aplib::loader::libc {

/// Owns a part that is made at first use and that only its own file knows, and destroys it.
template <class T>
struct Lazy {
  T* part = nullptr;
  void (*destroy)(T*) noexcept = nullptr;
  Lazy() = default;
  Lazy(const Lazy&) = delete;
  Lazy& operator=(const Lazy&) = delete;
  ~Lazy() { reset(); }
  /// The part; makes it at the first call. Call where T is complete. Call from: the instance's flows, one at a time.
  T& get() {
    if (part == nullptr) {
      part = new T();
      destroy = [](T* dead) noexcept { delete dead; };
    }
    return *part;
  }
  void reset() noexcept {
    if (part != nullptr) destroy(part);
    part = nullptr;
  }
};

/// A variable that programs name. It lies here, or in the program if that has room for it, as executables have: their
/// code knows no other place.
template <class T>
class Variable {
 public:
  Variable() = default;
  explicit Variable(T value) : value_(value) {}
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  [[nodiscard]] T& operator*() noexcept { return *place_; }
  [[nodiscard]] const T& operator*() const noexcept { return *place_; }
  [[nodiscard]] T* place() noexcept { return place_; }
  /// Lies in `room` from now on, with the value that it has.
  void move_to(void* room) noexcept {
    std::memcpy(room, place_, sizeof(T));
    place_ = static_cast<T*>(room);
  }

 private:
  T value_{};
  T* place_ = &value_;
};

struct GetoptPrivate;   // getopt.cpp
struct RandomState;     // numbers.cpp
struct EnvironPrivate;  // environ.cpp
struct ArgpPrivate;     // getopt.cpp
struct StaticBuffers;   // static_buffers.cpp: strtok, strerror, asctime, ...
struct LocaleState;     // locale.cpp
struct SignalTable;     // signals.cpp
struct StdioPrivate;    // stdio.cpp
struct TimerState;      // timers.cpp
struct ProcessPrivate;  // process.cpp: popen's
struct HeapAccount;     // heap.cpp
struct ChosenPlaces;    // mappings.cpp
struct ExitLists;       // exit.cpp: atexit, __cxa_atexit, at_quick_exit
struct RecordLocks;     // record_locks.cpp
struct Keys;            // keys.cpp: of thread-specific data
struct OwnThreads;      // threads.cpp: those that have not ended
struct Identity;        // identity.cpp: the pid
struct DlState;         // dl.cpp: handles of the program's own dlopen, dlerror's text

/// What a task holds: a mutex, a lock for writing, a FILE.
struct HeldLock {
  const void* lock;
  pthread_mutex_t* robust;  ///< The lock, if its next owner is told of an end that has not let it go; else null.
};

struct LibcState {
  LibcState() noexcept;
  LibcState(const LibcState&) = delete;
  LibcState& operator=(const LibcState&) = delete;

  // --- data symbols: an instance's references to `optind` and so on are bound to these. Names and types as in libc.
  Variable<char*> optarg;
  Variable<int> optind{1};
  Variable<int> opterr{1};
  Variable<int> optopt{'?'};
  Variable<char**> environ;            // environ, __environ, _environ
  Variable<std::FILE*> in;             // stdin. Made with the instance (stdio.cpp), as are:
  Variable<std::FILE*> out;            // stdout
  Variable<std::FILE*> err;            // stderr
  Variable<char*> program_name;        // program_invocation_name, __progname_full
  Variable<char*> program_short_name;  // program_invocation_short_name, __progname
  Variable<int> signgam;               // lgamma's
  Variable<long> timezone;
  Variable<int> daylight;
  Variable<std::array<char*, 2>> tzname;

  /// The zone that these three are of; null: they are as at the beginning. An empty name: TZ is unset.
  std::unique_ptr<const std::optional<std::string>> zone;

  Variable<void*> stack_end;  // __libc_stack_end: the top of main()'s stack

  int (*main)(int, char**, char**) = nullptr;  ///< Of an executable that has begun (end.hpp).

  // --- state of the thread while the instance runs on it (context.hpp); unset: the process's own
  locale_t thread_locale = nullptr;  ///< What uselocale() is given. Owned by locale.cpp.
  os::GuardedFd thread_directory;    ///< O_PATH descriptor of the working directory.
  /// Which one that is; nothing where calls of libc may change it meanwhile, or the system cannot say.
  std::optional<os::DirectoryId> thread_directory_id;
  bool has_walked = false;  ///< Such a call was made (nftw, fts).
  int thread_mask = -1;     ///< umask.

  // --- CPU time (context.hpp)
  std::int64_t cpu_before = 0;                ///< CellServices::computed() when the program began.
  std::atomic<bool> measures_cpu{false};      ///< The program has asked for it: the switch measures.
  std::atomic<std::int64_t> cpu_of_ended{0};  ///< ns, of flows that have ended.

  // --- descriptors (streams.hpp)
  const std::uint32_t number;           ///< Nobody else's, before or after; not 0.
  std::atomic<int> descriptors{0};      ///< That the program has open, as far as is known.
  std::atomic<int> descriptors_max{0};  ///< RLIMIT_NOFILE that it has set; 0: none.
  std::vector<HeldLock> held_locks;     // synchronization.cpp

  // --- the rest
  Lazy<GetoptPrivate> getopt;
  Lazy<ArgpPrivate> argp;
  Lazy<RandomState> random;
  Lazy<EnvironPrivate> environment;
  Lazy<StaticBuffers> buffers;
  Lazy<LocaleState> locale;
  Lazy<SignalTable> signals;
  Lazy<TimerState> timers;
  Lazy<StdioPrivate> stdio;
  Lazy<ProcessPrivate> process;
  Lazy<HeapAccount> heap;
  Lazy<ChosenPlaces> places;
  Lazy<ExitLists> exits;
  Lazy<Keys> keys;
  Lazy<OwnThreads> threads;
  Lazy<DlState> dl;
  Lazy<Identity> identity;
  Lazy<RecordLocks> locks;  // ends before the pid that others may ask it for
};

// What must be made in an instance before any code of it runs, constructors included. Instance::make() calls
// start_libc() once the images lie and argv is known.

/// Calls all of the functions below. Throws what they throw. Call from: any thread, before the program's first
/// instruction.
void start_libc(Instance& instance);

/// environ from Instance::arguments().environment; the program may change and replace it. May throw std::bad_alloc.
void start_environment(Instance& instance);
/// program_invocation_name and its relatives from argv[0], which they point into.
void start_program_name(Instance& instance) noexcept;
/// "C", whatever the process uses. May throw std::bad_alloc.
void start_locale(Instance& instance);
/// A thread of the program begins: with the global locale, whatever its maker has chosen. Call from: that thread.
void start_thread_locale(Instance& instance) noexcept;
/// tzname before the first tzset(), as in a fresh process.
void start_time_zone(Instance& instance) noexcept;

// The environment, for those who read or change it on the instance's behalf.

/// The value of `name` in the block that the program sees as `environ`, or null. It lives as long as the instance,
/// unless the program itself replaced it. Call from: any flow of the instance, not while another thread of it
/// changes the environment.
char* find_variable(const LibcState& state, std::string_view name) noexcept;

/// "NAME=value" into the block; replaces. `entry` is copied. May throw std::bad_alloc.
void set_variable(LibcState& state, std::string_view entry);

/// Calls `body` while the process's time zone is the instance's: for one instance at a time. Call from: any flow of it.
void in_zone(LibcState& state, const std::function<void()>& body);

// What the system knows a process by (identity.cpp). Each instance that asks has a pid that is nobody else's on the
// host.

/// The instance's pid, which the first call makes. Call from: any flow of the instance.
pid_t pid_of(Instance& instance);

/// What a shell is told to have the limits that the program has set for itself. Call from: a flow of the instance.
std::string limits_for_shell(Instance& instance);
/// A child has just begun: it has those limits, and the program's priority. Call from: a flow of the instance.
void give_limits(Instance& instance, pid_t child) noexcept;

/// Calls use(instance) for the other instance of this process that has this pid. False: there is none, and `pid` is
/// the system's. That instance lives meanwhile; no code of a program may run, and no instance may end, in `use`.
bool with_instance(pid_t pid, void (*use)(Instance& instance, void* state), void* state);

/// `path` is the system's name of the caller's program file: "/proc/self/exe" and the like.
bool names_own_file(Instance& instance, const char* path);

}  // namespace aplib::loader::libc
