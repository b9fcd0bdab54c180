// SPDX-License-Identifier: MIT
// Plugin: the structure that a plug-in exports, as this APlib understands it: checked, and with nothing where an
// older plug-in has no members yet.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "aplib/comm_module.h"

namespace aplib::comm::plugin {

class Plugin {
 public:
  /// Why a plug-in cannot be used by this APlib: versions, sizes, missing functions. Nothing: it can. `readable`:
  /// bytes that may be looked at from `exported` on.
  [[nodiscard]] static std::optional<std::string> refusal(const aplib_comm_plugin& exported, std::size_t readable);

  /// `exported`: for which refusal() had nothing to say; it outlives the plug-in.
  explicit Plugin(const aplib_comm_plugin& exported) noexcept;

  /// The functions, to be called with exported().
  [[nodiscard]] const aplib_comm_plugin* operator->() const noexcept { return &known_; }
  [[nodiscard]] const aplib_comm_plugin* exported() const noexcept { return exported_; }
  [[nodiscard]] bool can(std::uint32_t what) const noexcept { return (known_.can & what) != 0; }

 private:
  const aplib_comm_plugin* exported_;
  aplib_comm_plugin known_{};
};

struct OpenedPlugin {
  const aplib_comm_plugin* exported = nullptr;  ///< Null: refused. Valid as long as the file is open.
  std::string refusal{};                        ///< Why: "function send is missing".
};

/// What the opened file (dlopen()) exports as a plug-in, checked. Call from: any thread.
[[nodiscard]] OpenedPlugin exported_plugin(void* file);

/// The size of the variable that dlsym() has found. Nothing: it is no variable.
[[nodiscard]] std::optional<std::size_t> bytes_of_variable(void* symbol);

}  // namespace aplib::comm::plugin
