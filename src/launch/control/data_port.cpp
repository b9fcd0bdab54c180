// SPDX-License-Identifier: MIT
#include "launch/control/data_port.hpp"

#include <utility>

#include "comm/greeting.hpp"
#include "comm/tcp/listener.hpp"
#include "comm/tcp/tcp_module.hpp"

namespace aplib::launch {
namespace {

class TcpPort final : public DataPort {
 public:
  TcpPort(const Options& options, const std::string& address, const comm::JobKey& key)
      : options_(options), key_(key), listener_(address, options.ports) {}

  std::string endpoint() const override { return listener_.endpoint(); }

  std::unique_ptr<comm::Module> make_module(const std::string& machine, std::uint32_t self,
                                            const std::vector<std::string>& endpoints,
                                            const std::vector<std::string>& names) override {
    return std::make_unique<comm::TcpModule>(
        comm::TcpSettings{.self = self,
                          .listener = std::move(listener_),
                          .endpoints = endpoints,
                          .key = key_,
                          .machine = machine,
                          .secure = comm::secure_from(options_.secure),
                          .streams = options_.streams,
                          .peer_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options_.peer_timeout),
                          .names = names});
  }

 private:
  const Options options_;
  const comm::JobKey key_;
  comm::TcpListener listener_;
};

}  // namespace

std::unique_ptr<DataPort> open_data_port(const Options& options, const std::string& address, const comm::JobKey& key) {
  return std::make_unique<TcpPort>(options, address, key);
}

}  // namespace aplib::launch
