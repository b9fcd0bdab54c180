// SPDX-License-Identifier: MIT
#include "comm/mixed/endpoint_list.hpp"

#include <algorithm>

namespace aplib::comm {

std::string join_endpoints(const std::vector<NamedEndpoint>& endpoints) {
  std::string list;
  for (const NamedEndpoint& each : endpoints) {
    if (!list.empty()) list += ';';
    list += each.module + '=' + each.endpoint;
  }
  return list;
}

std::vector<NamedEndpoint> split_endpoints(std::string_view list) {
  std::vector<NamedEndpoint> endpoints;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(';'), list.size());
    const std::string_view entry = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t equals = entry.find('=');
    if (equals == entry.npos || equals == 0 || equals + 1 == entry.size()) continue;
    endpoints.push_back({std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1))});
  }
  return endpoints;
}

std::string endpoint_of(std::string_view list, std::string_view module) {
  for (NamedEndpoint& each : split_endpoints(list))
    if (each.module == module) return std::move(each.endpoint);
  return {};
}

}  // namespace aplib::comm
