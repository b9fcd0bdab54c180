// SPDX-License-Identifier: MIT
// The kinds of modules that this host has.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/kind.hpp"

namespace aplib::comm {

// One function per kind of ours, in its own folder: src/comm/tcp/tcp_kind.cpp, src/comm/rdma/rdma_kind.cpp, src/comm/shm/shm_module.cpp. Each is made a plug-in (src/comm/CMakeLists.txt):
// processes find it there, by find_modules(), and do not link it.
[[nodiscard]] std::unique_ptr<ModuleKind> tcp_kind();
[[nodiscard]] std::unique_ptr<ModuleKind> rdma_kind();  ///< Only where libfabric was there at build time.
[[nodiscard]] std::unique_ptr<ModuleKind> shm_kind();

/// A plug-in file, and what it is: a kind, or not.
struct FoundModule {
  std::string file;                  ///< "/usr/lib/aplib/modules/tcp.so".
  std::unique_ptr<ModuleKind> kind;  ///< Null: refused.
  std::string refusal{};             ///< Why: "built for plug-in interface 3.0, this APlib has 1.0: rebuild it".
};

/// Opens the plug-ins of the folders in `module_path` (option module-path, "FOLDER:FOLDER"), and then of lib/aplib/modules beside the running program's bin/. The first of a name wins, later ones
/// are refused. In the order of rank, best first, refused ones last. What is opened stays in the process. Costs a dlopen() each: once per process, at its start.
/// `only`: a name; others are not opened where the file's name tells (NAME.so). Call from: any thread. Throws nothing but for memory: what is wrong with a file is its refusal.
[[nodiscard]] std::vector<FoundModule> find_modules(const std::string& module_path, const std::string& only = {});

/// The kind of that name; null: there is none.
[[nodiscard]] const ModuleKind* kind_of(std::span<const FoundModule> found, const std::string& name);

/// What to tell a person who asked for a module that is not there or was refused: "there is no module "tpc"; did you mean "tcp"? Known: shm, rdma, tcp".
[[nodiscard]] std::string unknown_module(std::span<const FoundModule> found, const std::string& name);

}  // namespace aplib::comm
