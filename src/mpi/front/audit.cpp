// SPDX-License-Identifier: MIT
// All of audit.so, which the dynamic linker asks where libraries lie (LD_AUDIT, rtld-audit(7)) in an ordinary process
// whose program, or a script that starts it, looks for MPI elsewhere than in LD_LIBRARY_PATH: whatever it asks for, it
// gets ours, as in cells. With another MPI each rank would be the only one of a world of its own.
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

#include <cstdint>

#include "base/other_mpi.hpp"

namespace {

using namespace aplib::other_mpi;

// By hand: valgrind knows the libc of the program alone, and takes the fast functions of this one for faults.
const char* base_of(const char* path) {
  const char* base = path;
  for (const char* at = path; *at != '\0'; ++at) {
    if (*at == '/') base = at + 1;
  }
  return base;
}

/// Our file, from libaplib's folder; null: there is none.
const char* file_for(const char* name) {
  if (matches("libmpi_abi.so*", name)) return "libmpi_abi.so.1";
  if (const FrontEnd* const front_end = front_end_for(name)) return front_end->file;
  return nullptr;
}

/// Where this file lies, libaplib's folder/aplib/.
const char* own_path() {
  Dl_info own{};
  return dladdr(reinterpret_cast<const void*>(&file_for), &own) != 0 ? own.dli_fname : "";
}

/// All of its folder, and below.
bool is_ours(const char* path) {
  const char* const own = own_path();
  const char* const end = base_of(own);
  const char* at = own;
  for (; at != end; ++at, ++path) {
    if (*at != *path) return false;
  }
  return true;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

unsigned la_version(unsigned version) { return version < LAV_CURRENT ? version : LAV_CURRENT; }

char* la_objsearch(const char* name, std::uintptr_t*, unsigned flag) {
  static char path[4096];  // the linker copies it before it asks again
  char* const given = const_cast<char*>(name);
  const char* const file = flag == LA_SER_ORIG ? file_for(base_of(name)) : nullptr;
  if (file == nullptr) return given;
  const char* const own = own_path();
  const auto folder = static_cast<int>(base_of(own) - own);
  snprintf(path, sizeof path, "%.*s../%s", folder, own, file);
  return path;
}

unsigned la_objopen(link_map* map, Lmid_t, std::uintptr_t*) {
  if (is_foreign_mpi(base_of(map->l_name)) && !is_ours(map->l_name)) {
    fprintf(stderr,
            "aplib: the program has loaded %s, another MPI, of which each rank is alone; compile it again with APlib's "
            "mpicc or mpifort, or start it with that MPI's mpiexec\n",
            map->l_name);
  }
  return 0;
}

#pragma GCC visibility pop
}
