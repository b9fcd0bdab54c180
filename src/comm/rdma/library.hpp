// SPDX-License-Identifier: MIT
// libfabric, loaded when the first one asks for it: it brings a dozen libraries along, some of which look for devices as they are loaded, and hosts without it can do without the module. All but these functions
// are called through tables in its own objects, and need no library.
#pragma once

#include <rdma/fabric.h>

#include <string>

namespace aplib::comm {

struct FabricLibrary {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&fi_strerror) strerror = nullptr;
  decltype(&fi_version) version = nullptr;
  std::string why;  ///< It is not there, for people; then the functions are null.
};

/// Any thread; the first call loads, and takes milliseconds.
[[nodiscard]] const FabricLibrary& fabric_library();

/// Words for one of libfabric's error numbers, of either sign.
[[nodiscard]] std::string fabric_words(long error);

}  // namespace aplib::comm
