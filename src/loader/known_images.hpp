// SPDX-License-Identifier: MIT
// Finds the image of an instance that an address lies in. The unwinder asks once per frame of a throw; bound functions
// that unknown threads call ask, and so does dladdr.
//
// Tells debuggers of the images that we map, by a namespace of our own (struct r_debug_extended of <link.h>, r_version
// 2) behind those of ld.so. A debugger that understands namespaces (gdb 13 and newer) then lists the images of all
// instances like any shared object, breaks in all of them, and prints each one's globals. The list belongs to the
// process, because the debugger's protocol does (one _r_debug).
//
// Debuggers are slow with thousands of objects, so the list has only the first ones. aplib_debugger_counts says what
// was left out.
//
// Source: <link.h>; System V gABI chapter 5, DT_DEBUG; glibc manual "Dynamic Linker Introspection".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

/// For the debugger (aplib_gdb.py reads it by name): images in the list, and images that the limit kept out of it,
/// at this moment; the list's r_debug_extended.
struct AplibDebuggerCounts {
  std::uint64_t listed;
  std::uint64_t left_out;
  std::uint64_t limit;
  const void* space;
};
extern "C" __attribute__((visibility("default"))) AplibDebuggerCounts aplib_debugger_counts;

namespace aplib::loader {

class Instance;
struct LoadedImage;

/// What is known of an address.
struct FoundImage {
  Instance* instance = nullptr;
  const char* low = nullptr;
  const char* high = nullptr;             ///< Exclusive.
  const char* eh_frame_header = nullptr;  ///< null: none
};

/// Call from: any thread, at any time, also inside a throw. Takes no lock and allocates nothing. False: not in an
/// instance.
bool find_image(const void* address, FoundImage& found) noexcept;

/// A debugger, or another tracer, is attached, or was within the last milliseconds. One that has attached meanwhile
/// stopped the process for longer, and has read the whole list. Async-signal-safe.
[[nodiscard]] bool was_traced_lately() noexcept;

/// Makes an image known, or unknown. REQUIRES: `image` stays where it is in between; for remove_image, no code of it
/// runs any more. Call from: any thread. add_image() may throw std::bad_alloc; then nothing is known.
void add_image(Instance& instance, const LoadedImage& image);
void remove_image(const char* base) noexcept;

// ---------------------------------------------------------------- debuggers

/// One instance's entries in the debugger's list. Destroy it before the images are unmapped.
class DebuggerEntries {
 public:
  DebuggerEntries() noexcept;
  ~DebuggerEntries();
  DebuggerEntries(DebuggerEntries&& other) noexcept;
  DebuggerEntries& operator=(DebuggerEntries&& other) noexcept;

  /// Enters an image: file, where it lies, where its dynamic section lies (both addresses in the process). Nothing
  /// happens beyond the limit, or when the system's dynamic linker has no list of namespaces (glibc before 2.35).
  /// Call from: any thread. Costs no system call. May throw std::bad_alloc.
  void add(const std::string& path, const char* base, const char* dynamic_section);
  /// Takes the image at `base` out. Call from: any thread.
  void remove(const char* base) noexcept;
  /// Has a debugger that watches us read the list again, so that its pending breakpoints get their places. Call after a
  /// group of add() or remove(), before any code of the images runs, or before they are unmapped. Does nothing if
  /// nothing changed or nobody watches. Call from: any thread that holds no lock, because it may dlopen.
  void tell() noexcept;

  struct Entry;

 private:
  void remove_all() noexcept;

  Entry* first_ = nullptr;
  bool changed_ = false;
};

/// How many images may be listed from now on. Default: 64.
void limit_debugger_list(std::size_t images) noexcept;

}  // namespace aplib::loader
