// SPDX-License-Identifier: MIT
#include "comm/plugin/plugin_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "aplib/error.hpp"
#include "comm/plugin/plugin_module.hpp"
#include "comm/plugin/status.hpp"

namespace aplib::comm {
namespace {

/// The settings, pointing into `settings`.
aplib_comm_port_settings to_c(const PortSettings& settings) {
  static_assert(JobKey::size == APLIB_COMM_KEY_BYTES);
  static_assert(static_cast<int>(Secure::off) == APLIB_COMM_SECURE_OFF &&
                static_cast<int>(Secure::auth) == APLIB_COMM_SECURE_AUTH &&
                static_cast<int>(Secure::tls) == APLIB_COMM_SECURE_TLS);
  return {.bytes = sizeof(aplib_comm_port_settings),
          .secure = static_cast<std::uint32_t>(settings.secure),
          .address = settings.address.c_str(),
          .ports = settings.ports.c_str(),
          .host = settings.host.c_str(),
          .key = reinterpret_cast<const std::uint8_t*>(settings.key.secret().data()),
          .provider = settings.provider.c_str(),
          .streams = settings.streams,
          .peer_timeout = static_cast<std::uint32_t>(std::clamp<std::chrono::milliseconds::rep>(
              settings.peer_timeout.count(), 0, std::numeric_limits<std::uint32_t>::max()))};
}

std::vector<const char*> to_c(const std::vector<std::string>& texts, std::size_t count) {
  std::vector<const char*> all(count, "");
  for (std::size_t i = 0; i < std::min(count, texts.size()); ++i) all[i] = texts[i].c_str();
  return all;
}

class PluginPort final : public Port {
 public:
  PluginPort(std::shared_ptr<const Plugin> plugin, aplib_comm_port* port) : plugin_(std::move(plugin)), port_(port) {}
  ~PluginPort() override { (*plugin_)->close_port(port_); }
  PluginPort(const PluginPort&) = delete;
  PluginPort& operator=(const PluginPort&) = delete;

  [[nodiscard]] std::string endpoint() const override {
    const char* const text = (*plugin_)->endpoint(port_);
    const std::string endpoint = text != nullptr ? text : "";
    // It goes into lists and messages.
    if (endpoint.size() >= APLIB_COMM_ENDPOINT_BYTES || std::ranges::any_of(endpoint, [](unsigned char c) {
          return std::isprint(c) == 0 || c == ' ' || c == ',' || c == ';';
        })) {
      throw Error(
          Errc::failed,
          fmt::format("module {}: its endpoint is not printable, has a blank, a comma or a semicolon, or is too "
                      "long: correct the plug-in",
                      (*plugin_)->name));
    }
    return endpoint;
  }

  [[nodiscard]] std::unique_ptr<Module> join(const JoinSettings& settings) override {
    const std::vector<const char*> endpoints = to_c(settings.endpoints, settings.endpoints.size());
    const std::vector<const char*> names = to_c(settings.names, settings.endpoints.size());
    const aplib_comm_join_settings to_plugin{.bytes = sizeof(aplib_comm_join_settings),
                                             .self = settings.self,
                                             .processes = static_cast<std::uint32_t>(endpoints.size()),
                                             .reserved = 0,
                                             .machine = settings.machine.c_str(),
                                             .endpoints = endpoints.data(),
                                             .names = names.data()};
    aplib_comm_module* module = nullptr;
    ErrorText error;
    const std::int32_t status = (*plugin_)->join(port_, &to_plugin, &module, &error);
    if (status < 0) throw_status(status, error, (*plugin_)->name);
    return std::make_unique<PluginModule>(plugin_, module);
  }

 private:
  const std::shared_ptr<const Plugin> plugin_;
  aplib_comm_port* const port_;
};

}  // namespace

bool PluginKind::keeps(Secure secure) const {
  switch (secure) {
    case Secure::auth:
      return plugin().can(APLIB_COMM_KEEPS_AUTH);
    case Secure::tls:
      return plugin().can(APLIB_COMM_KEEPS_TLS);
    case Secure::off:
      break;
  }
  return true;
}

std::optional<std::string> PluginKind::unusable(const PortSettings& settings) const {
  const aplib_comm_port_settings to_plugin = to_c(settings);
  ErrorText error;
  if (plugin()->usable(plugin().exported(), &to_plugin, &error) >= 0) return std::nullopt;
  error.text[sizeof error.text - 1] = '\0';
  return error.text[0] != '\0' ? error.text : "it does not say why";
}

std::unique_ptr<Port> PluginKind::open(const PortSettings& settings) const {
  const aplib_comm_port_settings to_plugin = to_c(settings);
  aplib_comm_port* port = nullptr;
  ErrorText error;
  const std::int32_t status = plugin()->open(plugin().exported(), &to_plugin, &port, &error);
  if (status < 0) throw_status(status, error, plugin()->name);
  return std::make_unique<PluginPort>(plugin_, port);
}

bool PluginKind::joins(const std::string& endpoint, const std::string& other) const {
  return plugin()->joins(plugin().exported(), endpoint.c_str(), other.c_str()) > 0;
}

}  // namespace aplib::comm
