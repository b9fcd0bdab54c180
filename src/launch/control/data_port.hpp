// SPDX-License-Identifier: MIT
// DataPort: where a node listens for frames of the others, and what becomes of it once all addresses are known: a module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aplib/options.hpp"
#include "comm/job_key.hpp"
#include "comm/module.hpp"

namespace aplib::launch {

class DataPort {
 public:
  virtual ~DataPort() = default;
  /// For the others.
  [[nodiscard]] virtual std::string endpoint() const = 0;
  /// The module of process `self`; `endpoints`: of all, by process. Once. Throws Error.
  [[nodiscard]] virtual std::unique_ptr<comm::Module> make_module(const std::string& machine, std::uint32_t self,
                                                                  const std::vector<std::string>& endpoints,
                                                                  const std::vector<std::string>& names) = 0;
};

/// Listens on `address`, on a port that the options allow. Throws Error.
[[nodiscard]] std::unique_ptr<DataPort> open_data_port(const Options& options, const std::string& address,
                                                       const comm::JobKey& key);

}  // namespace aplib::launch
