// SPDX-License-Identifier: MIT
#include "relay_net.hpp"

#include <boost/asio/post.hpp>
#include <utility>

#include "comm/tcp/address.hpp"

namespace aplib::relay::test {

RunningRelay::RunningRelay() : relay_(std::make_unique<Relay>(io_)) {
  comm::tcp::Listener listener("127.0.0.1", "");
  endpoint_ = listener.endpoint();
  relay_->listen(listener.release());
  thread_ = std::thread([this] { io_.run(); });
}

RunningRelay::~RunningRelay() {
  post([this] { relay_.reset(); });
  work_.reset();
  thread_.join();
}

void RunningRelay::post(std::function<void()> what) { boost::asio::post(io_, std::move(what)); }

}  // namespace aplib::relay::test
