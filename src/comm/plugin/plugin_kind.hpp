// SPDX-License-Identifier: MIT
// PluginKind: a plug-in as a ModuleKind: its ports and modules call the plug-in's functions and turn statuses into exceptions. src/comm/plugin/exporter.hpp is the other side.
#pragma once

#include <memory>

#include "comm/kind.hpp"
#include "comm/plugin/plugin.hpp"

namespace aplib::comm {

class PluginKind final : public ModuleKind {
 public:
  /// `exported`: for which Plugin::refusal() had nothing to say; it outlives the kind, its ports and its modules.
  explicit PluginKind(const aplib_comm_plugin& exported) : plugin_(std::make_shared<const Plugin>(exported)) {}

  [[nodiscard]] std::string name() const override { return plugin()->name; }
  [[nodiscard]] std::string version() const override { return plugin()->version; }
  [[nodiscard]] std::string description() const override { return plugin()->description; }
  [[nodiscard]] int rank() const override { return plugin()->rank; }
  [[nodiscard]] bool one_host() const override { return plugin().can(APLIB_COMM_ONE_HOST); }
  [[nodiscard]] bool has_remote_memory() const override { return plugin().can(APLIB_COMM_REMOTE_MEMORY); }
  [[nodiscard]] bool keeps(Secure secure) const override;
  [[nodiscard]] std::optional<std::string> unusable(const PortSettings& settings) const override;
  [[nodiscard]] std::unique_ptr<Port> open(const PortSettings& settings) const override;
  [[nodiscard]] bool joins(const std::string& endpoint, const std::string& other) const override;

 private:
  [[nodiscard]] const Plugin& plugin() const noexcept { return *plugin_; }
  const std::shared_ptr<const Plugin> plugin_;  // Of its ports and modules too.
};

}  // namespace aplib::comm
