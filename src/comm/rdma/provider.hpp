// SPDX-License-Identifier: MIT
// Which of libfabric's providers carries the frames.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

#include "comm/kind.hpp"
#include "comm/rdma/library.hpp"

namespace aplib::comm {

struct InfoEnd {
  void operator()(fi_info* info) const noexcept { fabric_library().freeinfo(info); }
};
using ProviderInfo = std::unique_ptr<fi_info, InfoEnd>;

/// A provider, or why there is none.
struct ProviderChoice {
  ProviderInfo info;
  std::string why;  ///< For people, when `info` is null.
};

/// The provider that `settings` name, or the best one with hardware. Looks at the host's devices each time, which takes milliseconds.
[[nodiscard]] ProviderChoice choose_provider(const PortSettings& settings);

/// Whether its addresses are those of IP: they say themselves where they can be reached.
[[nodiscard]] bool speaks_ip(const fi_info& info) noexcept;

/// Whether it joins processes of one host alone, through shared memory.
[[nodiscard]] bool stays_on_host(const fi_info& info) noexcept;

}  // namespace aplib::comm
