// SPDX-License-Identifier: MIT
// A relay inside this test program, on a thread of its own.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "relay/relay.hpp"

namespace aplib::relay::test {

class RunningRelay {
 public:
  RunningRelay();
  ~RunningRelay();
  RunningRelay(const RunningRelay&) = delete;
  RunningRelay& operator=(const RunningRelay&) = delete;

  /// "127.0.0.1:41231".
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }
  /// On the relay's thread.
  template <class What>
  auto with(What&& what) {
    std::packaged_task<std::invoke_result_t<What, Relay&>()> task([&] { return what(*relay_); });
    auto result = task.get_future();
    post([&task] { task(); });
    return result.get();
  }
  [[nodiscard]] Counts counts() {
    return with([](Relay& relay) { return relay.counts(); });
  }

 private:
  void post(std::function<void()> what);

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<Relay> relay_;
  std::string endpoint_;
  std::thread thread_;
};

}  // namespace aplib::relay::test
