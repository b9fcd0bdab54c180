// SPDX-License-Identifier: MIT
// The kinds of modules that this host has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/kind.hpp"

namespace aplib::comm {

// One function per built-in kind, in its own folder: src/comm/tcp/tcp_kind.cpp, src/comm/rdma/rdma_kind.cpp, src/comm/shm/shm_kind.cpp.
[[nodiscard]] std::unique_ptr<ModuleKind> tcp_kind();
[[nodiscard]] std::unique_ptr<ModuleKind> rdma_kind();  ///< Only where libfabric was there at build time.
[[nodiscard]] std::unique_ptr<ModuleKind> shm_kind();

}  // namespace aplib::comm
