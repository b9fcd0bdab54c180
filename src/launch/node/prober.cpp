// SPDX-License-Identifier: MIT
#include "launch/node/prober.hpp"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "comm/connect/acceptor.hpp"
#include "comm/connect/caller.hpp"
#include "comm/connect/relay_call.hpp"

namespace aplib::launch::node {
namespace {

using comm::Greeting;
using comm::Introduction;
using comm::connect::Caller;
using comm::connect::Socket;

/// For a connection and its greeting: a packet may be lost once, and the other end of the world is near enough.
constexpr std::chrono::milliseconds connect_time{2500};
/// More than others at a time: all of them may call at once.
constexpr std::size_t greeted_max = 8192;

}  // namespace

struct Prober::Impl {
  Impl(int listening, const comm::JobKey& its_key, std::uint32_t its_self, const wire::Probe& its_task)
      : key(its_key), relays_key(comm::relay_key(its_key, its_task.machine)), self(its_self), task(its_task) {
    found.relays.resize(task.relays.size());
    acceptor.emplace(io,
                     comm::connect::Acceptor::Settings{
                         .key = key, .mine = introduction(Introduction::anyone), .greeted_max = greeted_max},
                     comm::connect::Acceptor::Events{.arrived = [](Socket, const Greeting&) {},
                                                     .refused = [](const std::string&) {}});
    if (listening >= 0) {
      os::UniqueFd copy(::fcntl(listening, F_DUPFD_CLOEXEC, 0));
      if (!copy) os::refuse_descriptor("a look for ways");
      ::fcntl(copy.get(), F_SETFL, ::fcntl(copy.get(), F_GETFL) | O_NONBLOCK);
      acceptor->listen(std::move(copy));
    }
    boost::asio::post(io, [this] { begin(); });
  }

  [[nodiscard]] Introduction introduction(std::uint32_t peer) const {
    return {.secure = comm::Secure::auth,
            .purpose = comm::Purpose::reach,
            .self = self,
            .peer = peer,
            .machine = task.machine};
  }

  void begin() {
    for (const wire::ProbedPeer& peer : task.peers) {
      call(peer.address, key, introduction(peer.process),
           [this, process = peer.process] { found.reached.push_back(process); });
    }
    for (std::size_t relay = 0; relay < task.relays.size(); ++relay) {
      Introduction mine = introduction(self);
      mine.purpose = comm::Purpose::relay;
      for (const std::string& place : task.relays[relay].places) {
        call(place, relays_key, mine, [this, relay, place] {
          if (found.relays[relay].empty()) found.relays[relay] = place;
        });
      }
    }
    check();
  }

  void call(const std::string& place, const comm::JobKey& by, const Introduction& mine, std::function<void()> good) {
    Caller::Events events;
    events.introduce = [mine](Socket&) { return std::optional(mine); };
    const auto settled = std::make_shared<bool>(false);  // what is greeted is not failed later, when time is over
    events.greeted = [this, settled, good = std::move(good)](Socket, const Greeting&) {
      *settled = true;
      good();
      done();
    };
    // Nobody has ended yet: who refuses a connection now refuses every one.
    events.judge = [](std::size_t, const Caller::Failure& failure) {
      using Kind = Caller::Failure::Kind;
      const bool again = failure.kind == Kind::ended;
      return Caller::Verdict{{}, !again};
    };
    events.failed = [this, settled](bool, std::span<const std::string>) {
      if (!*settled) done();
    };
    callers.push_back(std::make_unique<Caller>(
        io,
        Caller::Settings{.places = {comm::connect::relay_place(place).value_or(Caller::Place{})},
                         .key = by,
                         .patience = connect_time,
                         .attempt_max = connect_time},
        std::move(events)));
    ++open;
    boost::asio::post(io, [caller = callers.back().get()] { caller->begin(); });
  }

  void done() {
    --open;
    check();
  }
  void check() {
    if (open != 0) return;
    const std::lock_guard lock(mutex);
    over = true;
    changed.notify_all();
  }

  const comm::JobKey key;
  const comm::JobKey relays_key;
  const std::uint32_t self;
  const wire::Probe task;
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::optional<comm::connect::Acceptor> acceptor;
  std::vector<std::unique_ptr<Caller>> callers;
  std::size_t open = 0;
  wire::Probed found;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread thread;
};

Prober::Prober(int listening, const comm::JobKey& key, std::uint32_t self, const wire::Probe& what)
    : impl_(std::make_unique<Impl>(listening, key, self, what)) {
  impl_->thread = os::quiet_thread("aprun-prober", [impl = impl_.get()] { impl->io.run(); });
}

Prober::~Prober() {
  impl_->io.stop();
  impl_->thread.join();
  impl_->acceptor->close();
  impl_->callers.clear();
}

wire::Probed Prober::result() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return impl_->over; });
  return impl_->found;
}

}  // namespace aplib::launch::node
