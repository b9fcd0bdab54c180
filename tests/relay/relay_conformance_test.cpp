// SPDX-License-Identifier: MIT
// The promises of every module, kept by tcp on each way that is not the direct one.
#include "comm/job_key.hpp"
#include "conformance.hpp"
#include "relay_net.hpp"
#include "tcp_net.hpp"

namespace aplib::comm::test {
namespace {

using Kind = Way::Kind;

/// Who is gone comes to no relay, so the others wait for it.
constexpr std::chrono::milliseconds resume_time{300};

/// Of a pair, the process with the even number, or else the lower one, reaches the other.
Kind reverse_way(Peer self, Peer peer) {
  const bool other = self % 2 == peer % 2;
  const bool calls = other ? self < peer : self % 2 == 0;
  return calls ? Kind::calls : Kind::called;
}

[[maybe_unused]] std::unique_ptr<Net> reverse_net(std::uint32_t processes) {
  TcpNetOptions options;
  options.resume_time = resume_time;
  options.way = [](Peer self, Peer peer) { return Way{.kind = reverse_way(self, peer)}; };
  return std::make_unique<TcpNet>(processes, options);
}

/// Processes that talk by a relay, or by a chain of three.
class RelayNet final : public Net {
 public:
  RelayNet(std::uint32_t processes, bool chain, Secure secure) : net_(processes, options(chain, secure)) {
    const JobKey key = relay_key(net_.key(), net_.machine());
    for (relay::test::RunningRelay& relay : relays_) {
      relay.with([&](relay::Relay& made) { made.add_job(net_.machine(), key); });
    }
    if (!chain) return;
    for (Peer a = 0; a < processes; ++a) {
      for (Peer b = a + 1; b < processes; ++b) {
        relays_[1].with([&](relay::Relay& middle) {
          middle.dial(relays_[0].endpoint(), {net_.machine(), b, a}, [](const std::string&) {});
          middle.dial(relays_[2].endpoint(), {net_.machine(), a, b}, [](const std::string&) {});
        });
      }
    }
  }

  std::unique_ptr<Module> module(Peer process) override { return net_.module(process); }
  bool kill(Peer process) override { return net_.kill(process); }

 private:
  TcpNetOptions options(bool chain, Secure secure) {
    TcpNetOptions options{.secure = secure, .resume_time = resume_time};
    options.way = [this, chain](Peer self, Peer peer) {
      const std::size_t relay = chain && self > peer ? 2 : 0;
      return Way{.kind = Kind::relay, .place = relays_[relay].endpoint(), .relay = "gate"};
    };
    return options;
  }

  std::array<relay::test::RunningRelay, 3> relays_;
  TcpNet net_;
};

/// Connections on these ways come up before anything is sent, which these tests would take for something sent.
const std::map<std::string, std::string> skips{
    {"DescriptorHearsAWakeBeforeTheSleep", "needs a module that connects when it sends"},
    {"CloseOfAnIdleModule", "needs a module that connects when it sends"},
};

Subject relay_subject(std::string name, bool chain, Secure secure) {
  return {std::move(name),
          [=](std::uint32_t processes) { return std::make_unique<RelayNet>(processes, chain, secure); }, skips};
}

std::vector<Subject> subjects() {
  std::vector<Subject> all{relay_subject("relay", false, Secure::auth)};
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // the same code again
  all.push_back({"reverse", reverse_net, skips});
  all.push_back(relay_subject("chain", true, Secure::off));
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, Conformance, testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
