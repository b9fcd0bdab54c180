// SPDX-License-Identifier: MIT
// apctl web: the page of the running machines and farms, for a browser. docs/web.md says what it does.
#pragma once

#include <cstdint>
#include <string>

namespace aplib::launch::web {

struct WebOptions {
  std::string socket{};    ///< The path of a Unix socket; empty: the loopback.
  std::uint16_t port = 0;  ///< 0: any that is free.
  bool control = false;    ///< The page may end machines and farms.
};

/// Serves the page until a signal ends this process. `folder`: the registry's. Returns an exit status. Throws Error.
[[nodiscard]] int serve_page(const WebOptions& options, const std::string& folder);

}  // namespace aplib::launch::web
