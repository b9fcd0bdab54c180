// SPDX-License-Identifier: MIT
// aplib-start: the interpreter (PT_INTERP) of programs made by apcc. Executing ./prog, the kernel maps prog and
// this stub and enters here; nothing of prog has run and no library is loaded. The stub becomes aprun, from the
// tree that the stub itself lies in:
//   argv = aprun --direct <path of prog> <argv[0]> <arguments>...
// Runs without a C library and without relocations: only code and constants.
#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "arch/system.hpp"

namespace {

using aplib::arch::call_execve, aplib::arch::call_exit_group, aplib::arch::call_write, aplib::arch::system_call;

constexpr int exit_cannot_start = 127;
constexpr size_t longest_path = 4096;

constexpr char from_start_to_aprun[] = "/" APLIB_START_TO_BIN "/aprun";

/// One line on stderr, whole.
class Message {
 public:
  Message& operator<<(const char* text) {
    while (*text != 0 && length_ < sizeof text_) text_[length_++] = *text++;
    return *this;
  }
  Message& operator<<(long number) {
    char digits[21];
    size_t first = sizeof digits;
    digits[--first] = 0;
    for (; number >= 10; number /= 10) digits[--first] = static_cast<char>('0' + number % 10);
    digits[--first] = static_cast<char>('0' + number);
    return *this << &digits[first];
  }
  [[noreturn]] void end() {
    *this << "\n";
    system_call(call_write, 2, reinterpret_cast<long>(text_), static_cast<long>(length_));
    system_call(call_exit_group, exit_cannot_start, 0, 0);
    __builtin_unreachable();
  }

 private:
  char text_[3 * longest_path];
  size_t length_ = 0;
};

const char* reason_of(long error) {
  switch (error) {
    case 2:
      return "no such file";
    case 7:
      return "arguments and environment are too long";
    case 8:
      return "not an executable file";
    case 12:
      return "out of memory";
    case 13:
      return "permission denied";
    case 40:
      return "too many symbolic links";
    default:
      return nullptr;
  }
}

/// The program's PT_INTERP, which is this file's path; null: there is none, somebody ran the stub itself.
const char* own_path(const Elf64_Phdr* headers, size_t count) {
  // Where the program lies: its headers are in the segment that starts with the file.
  uintptr_t base = 0;
  const Elf64_Phdr* path = nullptr;
  const Elf64_Phdr* segment = nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0) segment = &headers[i];
    if (headers[i].p_type == PT_INTERP) path = &headers[i];
  }
  if (segment == nullptr || path == nullptr) return nullptr;
  // Linkers put the headers right behind the file's header.
  base = reinterpret_cast<uintptr_t>(headers) - sizeof(Elf64_Ehdr) - segment->p_vaddr;
  return reinterpret_cast<const char*>(base + path->p_vaddr);
}

}  // namespace

/// `stack`: what the kernel left there: argc, argv, 0, environment, 0, auxiliary vector.
extern "C" [[noreturn]] __attribute__((used, visibility("hidden"))) void aplib_start(const char** stack) {
  const size_t argument_count = static_cast<size_t>(reinterpret_cast<uintptr_t>(stack[0]));
  const char** arguments = stack + 1;
  const char** environment = arguments + argument_count + 1;
  const char** after = environment;
  while (*after != nullptr) ++after;

  const Elf64_Phdr* headers = nullptr;
  size_t header_count = 0;
  const char* program = argument_count > 0 ? arguments[0] : "";
  bool has_privileges = false;
  for (auto* entry = reinterpret_cast<const Elf64_auxv_t*>(after + 1); entry->a_type != AT_NULL; ++entry) {
    const uintptr_t value = entry->a_un.a_val;
    if (entry->a_type == AT_PHDR) headers = reinterpret_cast<const Elf64_Phdr*>(value);
    if (entry->a_type == AT_PHNUM) header_count = value;
    if (entry->a_type == AT_EXECFN) program = reinterpret_cast<const char*>(value);
    if (entry->a_type == AT_SECURE) has_privileges = value != 0;
  }

  Message message;
  const char* path = own_path(headers, header_count);
  if (path == nullptr) {
    (message << program << ": this is what starts programs made by apcc, and not a program itself; run the program")
        .end();
  }
  if (has_privileges) {
    (message << program
             << ": it is set-user-ID, set-group-ID or has capabilities, and programs of cells take no privileges from "
                "their file; "
             << "clear the mode (chmod ug-s) or capabilities (setcap -r)")
        .end();
  }

  char aprun[longest_path + sizeof from_start_to_aprun];
  size_t length = 0, folder = 0;
  for (; path[length] != 0 && length < longest_path; ++length) {
    aprun[length] = path[length];
    if (path[length] == '/') folder = length;
  }
  for (size_t i = 0; i < sizeof from_start_to_aprun; ++i) aprun[folder + i] = from_start_to_aprun[i];

  // argv grows by three; an empty argv (which old kernels allow) gets its first.
  const size_t rest = argument_count > 0 ? argument_count - 1 : 0;
  auto** words = static_cast<const char**>(__builtin_alloca((rest + 5) * sizeof(char*)));
  size_t count = 0;
  words[count++] = "aprun";
  words[count++] = "--direct";
  words[count++] = program;
  words[count++] = argument_count > 0 ? arguments[0] : program;
  for (size_t i = 0; i < rest; ++i) words[count++] = arguments[i + 1];
  words[count] = nullptr;

  const long error = -system_call(call_execve, reinterpret_cast<long>(aprun), reinterpret_cast<long>(words),
                                  reinterpret_cast<long>(environment));
  message << program << ": cannot start " << aprun << ", which runs programs made by apcc: ";
  if (const char* reason = reason_of(error)) {
    message << reason;
  } else {
    message << "error " << error;
  }
  (message << "; install APlib there, or link the program again with the apcc of an installed APlib, or run: aprun "
           << program)
      .end();
}

APLIB_START_ENTRY;
