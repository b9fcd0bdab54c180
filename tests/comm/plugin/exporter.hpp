// SPDX-License-Identifier: MIT
// Exporter: presents a ModuleKind, written in C++, as the structure of the plug-in interface. Exceptions become
// statuses. So the suite covers the whole interface, including remote memory, which the example does not have.
#pragma once

#include <memory>
#include <string>

#include "aplib/comm_module.h"
#include "comm/kind.hpp"

namespace aplib::comm::test {

class Exporter {
 public:
  explicit Exporter(std::unique_ptr<ModuleKind> kind);
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  /// Valid as long as the exporter. A copy may be used instead.
  [[nodiscard]] const aplib_comm_plugin& plugin() const noexcept { return plugin_; }

 private:
  struct Functions;
  const std::unique_ptr<ModuleKind> kind_;
  const std::string name_;
  const std::string version_;
  const std::string description_;
  aplib_comm_plugin plugin_{};
};

}  // namespace aplib::comm::test
