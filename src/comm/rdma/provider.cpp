// SPDX-License-Identifier: MIT
#include "comm/rdma/provider.hpp"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace aplib::comm {
namespace {

constexpr std::uint32_t api = FI_VERSION(1, 9);  // The oldest with all that is used here.

// Hardware first, the best first. What stands behind is only taken by name: it has no gain over the tcp module, or does not leave the host.
constexpr std::array<std::string_view, 6> with_hardware{"cxi", "verbs", "efa", "opx", "psm3", "psm2"};

/// Where the system lists the devices of those above. To ask libfabric takes it tens of milliseconds, or hundreds, on a host that has none.
constexpr std::array<const char*, 3> device_folders{"/sys/class/infiniband", "/sys/class/cxi", "/sys/class/hfi1"};

bool any_device() {
  return std::any_of(device_folders.begin(), device_folders.end(), [](const char* folder) {
    std::error_code error;
    const std::filesystem::directory_iterator first(folder, error);
    return !error && first != std::filesystem::directory_iterator();
  });
}

/// "verbs;ofi_rxm" is verbs.
bool is_provider(const fi_info& info, std::string_view name) {
  const std::string_view full = info.fabric_attr->prov_name;
  return full == name || (full.starts_with(name) && full.substr(name.size()).starts_with(';'));
}

ProviderInfo hints_for(const PortSettings& settings) {
  ProviderInfo hints(fabric_library().dupinfo(nullptr));
  if (!hints) return hints;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  if (!settings.provider.empty()) hints->fabric_attr->prov_name = strdup(settings.provider.c_str());
  return hints;
}

}  // namespace

bool speaks_ip(const fi_info& info) noexcept {
  return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6;
}

bool stays_on_host(const fi_info& info) noexcept { return is_provider(info, "shm"); }

ProviderChoice choose_provider(const PortSettings& settings) {
  if (settings.provider.empty() && !any_device()) {
    return {nullptr,
            "no RDMA device is there; with provider = \"...\" others of libfabric's providers are used, which are "
            "no faster than the module tcp"};
  }
  const FabricLibrary& library = fabric_library();
  if (!library.why.empty()) return {nullptr, library.why};
  const ProviderInfo hints = hints_for(settings);
  if (!hints) return {nullptr, "libfabric has no memory"};
  const auto ask = [&](const char* node) {
    fi_info* found = nullptr;
    const int error = library.getinfo(api, node, nullptr, node != nullptr ? FI_SOURCE : 0, hints.get(), &found);
    return std::pair(ProviderInfo(found), error);
  };
  // First with the host's address, which decides between networks; a provider with addresses of another kind does not know it.
  auto [all, error] = ask(settings.address.empty() ? nullptr : settings.address.c_str());
  if (!all && !settings.address.empty()) std::tie(all, error) = ask(nullptr);
  const std::string wanted = settings.provider.empty() ? "an RDMA device" : "provider '" + settings.provider + "'";
  if (!all) {
    return {nullptr, fmt::format("libfabric finds no provider for {}: {}; `fi_info` lists those of this host", wanted,
                                 fabric_words(error))};
  }
  std::string others;
  const fi_info* best = nullptr;
  std::size_t best_rank = with_hardware.size();
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    if (!settings.provider.empty()) {
      if (best == nullptr &&
          (is_provider(*info, settings.provider) || settings.provider == info->fabric_attr->prov_name))
        best = info;
      continue;
    }
    for (std::size_t rank = 0; rank < best_rank; ++rank) {
      if (!is_provider(*info, with_hardware[rank])) continue;
      best = info;
      best_rank = rank;
    }
    const std::string_view name = info->fabric_attr->prov_name;
    if (others.find(name) == std::string::npos) others += (others.empty() ? "" : ", ") + std::string(name);
  }
  if (best != nullptr && !settings.address.empty() && !speaks_ip(*best)) {
    // shm takes the host's address for a name of its own, which no two processes can have.
    PortSettings anywhere = settings;
    anywhere.address.clear();
    return choose_provider(anywhere);
  }
  if (best != nullptr) return {ProviderInfo(library.dupinfo(best)), {}};
  if (!settings.provider.empty()) {
    return {nullptr, fmt::format("libfabric finds no provider for {} with reliable datagrams and remote memory; "
                                 "`fi_info` lists those of this host",
                                 wanted)};
  }
  return {nullptr, fmt::format("libfabric finds no provider for {}: there are {}, which are no faster than the module "
                               "tcp; with provider = \"...\" one is used all the same",
                               wanted, others)};
}

}  // namespace aplib::comm
