// SPDX-License-Identifier: MIT
#include "comm/rdma/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstdlib>

namespace aplib::comm {
namespace {

/// Before it is loaded, because it is read then. A user's own values stay.
void prepare_environment() {
  // Registrations are cached here; libfabric's own cache would replace functions of libc in memory to watch over it.
  setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
  // ofi_rxm (verbs, tcp) carries our packets in one piece up to this size; its own limit, 16 KiB, is a little less than the largest.
  setenv("FI_OFI_RXM_BUFFER_SIZE", "20480", 0);
  // Programs that fork must not take registered pages along.
  setenv("RDMAV_FORK_SAFE", "1", 0);
  // Libraries of Omni-Path that print their own report of crashes.
  setenv("HFI_NO_BACKTRACE", "1", 0);
  setenv("IPATH_NO_BACKTRACE", "1", 0);
}

FabricLibrary load() {
  prepare_environment();
  FabricLibrary library;
  void* const file = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    library.why = fmt::format("libfabric is not there: {}; install it (package libfabric1)", dlerror());
    return library;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(file, name));
    if (function == nullptr) library.why = fmt::format("libfabric.so.1 has no function {}", name);
  };
  find(library.getinfo, "fi_getinfo");
  find(library.freeinfo, "fi_freeinfo");
  find(library.dupinfo, "fi_dupinfo");
  find(library.fabric, "fi_fabric");
  find(library.strerror, "fi_strerror");
  find(library.version, "fi_version");
  return library;  // Stays loaded: its threads and handlers may be anywhere.
}

}  // namespace

const FabricLibrary& fabric_library() {
  static const FabricLibrary library = load();
  return library;
}

std::string fabric_words(long error) {
  const FabricLibrary& library = fabric_library();
  return library.strerror != nullptr ? library.strerror(static_cast<int>(std::labs(error))) : "no libfabric";
}

}  // namespace aplib::comm
