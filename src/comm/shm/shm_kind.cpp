// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "aplib/version.hpp"
#include "comm/kinds.hpp"
#include "comm/shm/settings.hpp"
#include "comm/shm/shared_memory.hpp"
#include "comm/shm/shm_module.hpp"

namespace aplib::comm {
namespace {

class ShmPort final : public Port {
 public:
  explicit ShmPort(const PortSettings& settings) : presence_(settings.host), settings_(settings) {}

  [[nodiscard]] std::string endpoint() const override { return presence_.own.print(); }

  [[nodiscard]] std::unique_ptr<Module> join(const JoinSettings& settings) override {
    return std::make_unique<shm::ShmModule>(shm::Settings{.self = settings.self,
                                                          .presence = std::move(presence_),
                                                          .endpoints = settings.endpoints,
                                                          .names = settings.names,
                                                          .key = settings_.key,
                                                          .machine = settings.machine,
                                                          .secure = settings_.secure,
                                                          .peer_timeout = settings_.peer_timeout});
  }

 private:
  shm::Presence presence_;
  PortSettings settings_;
};

class ShmKind final : public ModuleKind {
 public:
  [[nodiscard]] std::string name() const override { return "shm"; }
  [[nodiscard]] std::string version() const override { return aplib::version; }
  [[nodiscard]] std::string description() const override {
    return "frames through shared memory, between processes of one host";
  }
  [[nodiscard]] int rank() const override { return 300; }
  [[nodiscard]] bool one_host() const override { return true; }
  [[nodiscard]] bool has_remote_memory() const override { return true; }
  /// Nothing leaves the memory of the host: there is nothing to encrypt.
  [[nodiscard]] bool keeps(Secure) const override { return true; }
  [[nodiscard]] std::optional<std::string> unusable(const PortSettings& settings) const override {
    if (settings.host.empty()) return "it is not known which processes share this host's memory";
    try {
      (void)shm::SharedMemory::make(1);
    } catch (const std::exception& error) {
      return error.what();
    }
    return std::nullopt;
  }
  [[nodiscard]] std::unique_ptr<Port> open(const PortSettings& settings) const override {
    return std::make_unique<ShmPort>(settings);
  }
  [[nodiscard]] bool joins(const std::string& endpoint, const std::string& other) const override {
    const auto one = shm::Endpoint::parse(endpoint);
    const auto two = shm::Endpoint::parse(other);
    return one && two && one->joins(*two);
  }
};

}  // namespace

std::unique_ptr<ModuleKind> shm_kind() { return std::make_unique<ShmKind>(); }

}  // namespace aplib::comm
