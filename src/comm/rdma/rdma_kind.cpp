// SPDX-License-Identifier: MIT
// The kind "rdma". The text of an endpoint has four parts with colons between them: provider, fabric, host and address,
// as in "verbs+ofi_rxm:49422d…:-:0200…". The fabric names the network where addresses do not. The host is there for
// providers that do not leave it. The address is the provider's own bytes in hexadecimal.
#include <fmt/format.h>
#include <rdma/fabric.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "comm/kind.hpp"
#include "comm/rdma/fabric.hpp"
#include "comm/rdma/rdma_module.hpp"

namespace aplib::comm::rdma {
namespace {

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::optional<std::vector<std::byte>> from_hex(std::string_view text) {
  std::vector<std::byte> bytes(text.size() / 2);
  if (text.size() % 2 != 0) return std::nullopt;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    const char* const end = text.data() + 2 * i + 2;
    const auto [read, error] = std::from_chars(end - 2, end, value, 16);
    if (error != std::errc() || read != end) return std::nullopt;
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

/// The four parts of an endpoint's text.
std::optional<std::array<std::string_view, 4>> split(std::string_view endpoint) {
  std::array<std::string_view, 4> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t colon = endpoint.find(':');
    if ((colon == std::string_view::npos) != (i == parts.size() - 1)) return std::nullopt;
    parts[i] = endpoint.substr(0, colon);
    endpoint.remove_prefix(std::min(endpoint.size(), parts[i].size() + 1));
  }
  return parts;
}

bool same_network(const std::string& endpoint, const std::string& other) {
  const auto one = split(endpoint);
  const auto two = split(other);
  return one && two && (*one)[0] == (*two)[0] && (*one)[1] == (*two)[1] && (*one)[2] == (*two)[2];
}

class RdmaPort final : public Port {
 public:
  explicit RdmaPort(const PortSettings& settings) : settings_(settings) {
    ProviderChoice choice = choose_provider(settings);
    if (!choice.info) throw Error(Errc::failed, "module rdma: " + choice.why);
    fabric_ = std::make_shared<Fabric>(std::move(choice.info));
    const fi_info& info = fabric_->info();
    std::string provider = info.fabric_attr->prov_name;
    std::replace(provider.begin(), provider.end(), ';', '+');
    const std::string_view network = info.fabric_attr->name != nullptr ? info.fabric_attr->name : "";
    endpoint_ = fmt::format("{}:{}:{}:{}", provider, speaks_ip(info) ? "-" : hex_of(std::as_bytes(std::span(network))),
                            stays_on_host(info) ? hex_of(std::as_bytes(std::span(settings.host))) : "-",
                            hex_of(fabric_->name()));
  }

  [[nodiscard]] std::string endpoint() const override { return endpoint_; }

  [[nodiscard]] std::unique_ptr<Module> join(const JoinSettings& settings) override {
    std::vector<std::vector<std::byte>> addresses(settings.endpoints.size());
    for (std::size_t peer = 0; peer < addresses.size(); ++peer) {
      const std::string& endpoint = settings.endpoints[peer];
      if (peer == settings.self || !same_network(endpoint, endpoint_)) continue;
      if (auto address = from_hex((*split(endpoint))[3])) addresses[peer] = std::move(*address);
    }
    return std::make_unique<RdmaModule>(Settings{settings_, settings, std::move(fabric_), std::move(addresses)});
  }

 private:
  const PortSettings settings_;
  std::shared_ptr<Fabric> fabric_;
  std::string endpoint_;
};

class RdmaKind final : public ModuleKind {
 public:
  [[nodiscard]] std::string name() const override { return "rdma"; }
  [[nodiscard]] std::string version() const override {
    // The version that it was built with. To ask for the installed one would load libfabric in every process.
    return fmt::format("libfabric {}.{}", FI_MAJOR_VERSION, FI_MINOR_VERSION);
  }
  [[nodiscard]] std::string description() const override {
    return "frames and remote memory by libfabric: verbs, EFA, CXI and others";
  }
  [[nodiscard]] int rank() const override { return 200; }
  [[nodiscard]] bool has_remote_memory() const override { return true; }
  [[nodiscard]] bool keeps(Secure secure) const override { return secure != Secure::tls; }
  [[nodiscard]] std::optional<std::string> unusable(const PortSettings& settings) const override {
    ProviderChoice choice = choose_provider(settings);
    if (choice.info) return std::nullopt;
    return std::move(choice.why);
  }
  [[nodiscard]] std::unique_ptr<Port> open(const PortSettings& settings) const override {
    return std::make_unique<RdmaPort>(settings);
  }
  [[nodiscard]] bool joins(const std::string& endpoint, const std::string& other) const override {
    return same_network(endpoint, other);
  }
};

}  // namespace

}  // namespace aplib::comm::rdma

std::unique_ptr<aplib::comm::ModuleKind> aplib::comm::rdma_kind() { return std::make_unique<rdma::RdmaKind>(); }
