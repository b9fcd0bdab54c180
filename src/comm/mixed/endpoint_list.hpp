// SPDX-License-Identifier: MIT
// The endpoints of one process, one for each module by which it can be reached, as one text: "shm=4f1c;tcp=10.0.0.1:5100".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aplib::comm {

struct NamedEndpoint {
  std::string module;
  std::string endpoint;
};

[[nodiscard]] std::string join_endpoints(const std::vector<NamedEndpoint>& endpoints);
/// What makes no sense in it is left out.
[[nodiscard]] std::vector<NamedEndpoint> split_endpoints(std::string_view list);
/// That of one module; empty: there is none.
[[nodiscard]] std::string endpoint_of(std::string_view list, std::string_view module);

}  // namespace aplib::comm
