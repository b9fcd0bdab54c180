// SPDX-License-Identifier: MIT
// A stand-in for aprun in tests of apcc. It checks what the stub passes, records it in the file $STAND_IN_RECORD, loads
// the program once with dlopen, and calls its entry. It finds the entries by name, or, if no name is visible, by the
// program's note.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace {

using Main = int (*)(int, char**, char**);
using CellMain = void (*)();

struct Entries {
  Main main;
  CellMain cell_main;
  CellMain host_main;
  CellMain fortran_main;
};

/// The content of the note "APlib", type 1, in the object whose dynamic section is at `dynamic`.
int find_note(dl_phdr_info* info, std::size_t, void* wanted) {
  auto* const result = static_cast<std::pair<const void*, const Entries*>*>(wanted);
  bool is_program = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const Elf64_Phdr& header = info->dlpi_phdr[i];
    is_program |=
        header.p_type == PT_DYNAMIC && reinterpret_cast<const void*>(info->dlpi_addr + header.p_vaddr) == result->first;
  }
  if (!is_program) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const Elf64_Phdr& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const char* const end = at + header.p_memsz;
    while (at < end) {
      Elf64_Nhdr note;
      std::memcpy(&note, at, sizeof note);
      const char* const name = at + sizeof note;
      const char* const content = name + ((note.n_namesz + 3U) & ~3U);
      if (note.n_type == 1 && note.n_namesz == 6 && std::memcmp(name, "APlib", 6) == 0) {
        std::int64_t distance = 0;
        std::memcpy(&distance, content, sizeof distance);
        result->second = reinterpret_cast<const Entries*>(content + distance);
      }
      at = content + ((note.n_descsz + 3U) & ~3U);
    }
  }
  return 1;
}

const Entries* entries_of(void* program) {
  if (void* const named = dlsym(program, "aplib_program_entries")) return static_cast<const Entries*>(named);
  link_map* map = nullptr;
  if (dlinfo(program, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  std::pair<const void*, const Entries*> wanted{map->l_ld, nullptr};
  dl_iterate_phdr(&find_note, &wanted);
  return wanted.second;
}

}  // namespace

int main(int argc, char** argv, char** environment) {
  if (argc < 4 || std::strcmp(argv[0], "aprun") != 0 || std::strcmp(argv[1], "--direct") != 0) {
    std::fprintf(stderr, "stand-in: not started as aprun --direct FILE ARGV0 ...\n");
    return 99;
  }
  if (const char* record = std::getenv("STAND_IN_RECORD")) {
    if (FILE* file = std::fopen(record, "w")) {
      for (int i = 2; i < argc; ++i) std::fprintf(file, "<%s>\n", argv[i]);
      std::fclose(file);
    }
  }
  // dlopen would look up a name without a slash as a library.
  char path[4096];
  if (realpath(argv[2], path) == nullptr) {
    std::fprintf(stderr, "stand-in: %s: no such file\n", argv[2]);
    return 99;
  }
  void* const program = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (program == nullptr) {
    std::fprintf(stderr, "stand-in: %s\n", dlerror());
    return 99;
  }
  const Entries* const entries = entries_of(program);
  if (entries == nullptr) {
    std::fprintf(stderr, "stand-in: no entries\n");
    return 99;
  }
  if (entries->main != nullptr) std::exit(entries->main(argc - 3, argv + 3, environment));
  if (entries->host_main != nullptr) entries->host_main();
  if (entries->cell_main != nullptr) entries->cell_main();
  return entries->cell_main == nullptr && entries->host_main == nullptr ? 98 : 0;
}
