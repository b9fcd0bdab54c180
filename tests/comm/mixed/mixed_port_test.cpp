// SPDX-License-Identifier: MIT
// Which modules a process opens, and which module each pair uses.
#include "comm/mixed/mixed_port.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aplib/error.hpp"
#include "comm/kind.hpp"

namespace aplib::comm::test {
namespace {

struct Count final : Receiver {
  bool wants(Peer) override { return true; }
  void frame(Peer from, const Label&, std::span<const std::byte>) override { frames.at(from) += 1; }
  std::byte* large_begin(Peer, const Label&, std::size_t) override { return nullptr; }
  void large_end(Peer, const Label&, std::size_t, bool) override {}
  void peer_lost(Peer peer, const std::string& why) override { ADD_FAILURE() << peer << ": " << why; }
  std::vector<int> frames;
};

/// tcp under another name, only between processes of one group.
class GroupKind final : public ModuleKind {
 public:
  GroupKind(std::string name, int rank, std::string group)
      : name_(std::move(name)), rank_(rank), group_(std::move(group)) {}

  std::string name() const override { return name_; }
  std::string version() const override { return "1"; }
  std::string description() const override { return "tcp within a group"; }
  int rank() const override { return rank_; }
  bool has_remote_memory() const override { return false; }
  bool keeps(Secure secure) const override { return secure != Secure::tls; }
  std::optional<std::string> unusable(const PortSettings&) const override { return missing; }
  std::unique_ptr<comm::Port> open(const PortSettings& settings) const override {
    if (broken) throw Error(Errc::failed, *broken);
    return std::make_unique<GroupPort>(group_, tcp_->open(settings));
  }
  bool joins(const std::string& endpoint, const std::string& other) const override {
    return endpoint.substr(0, endpoint.find('/')) == other.substr(0, other.find('/'));
  }

  std::optional<std::string> missing;
  std::optional<std::string> broken;

 private:
  struct GroupPort final : comm::Port {
    GroupPort(std::string its_group, std::unique_ptr<comm::Port> its_tcp)
        : group(std::move(its_group)), tcp(std::move(its_tcp)) {}
    std::string endpoint() const override { return group + '/' + tcp->endpoint(); }
    std::unique_ptr<Module> join(const JoinSettings& settings) override {
      JoinSettings plain = settings;
      for (std::string& each : plain.endpoints) each = each.substr(each.find('/') + 1);
      return tcp->join(plain);
    }
    std::string group;
    std::unique_ptr<comm::Port> tcp;
  };

  std::string name_;
  int rank_;
  std::string group_;
  std::unique_ptr<ModuleKind> tcp_ = tcp_kind();
};

std::string message_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class MixedPorts : public testing::Test {
 protected:
  /// A process with these kinds of modules.
  mixed::MixedPort& add(const std::vector<const ModuleKind*>& kinds, const std::string& wish = "auto") {
    ports_.push_back(std::make_unique<mixed::MixedPort>(kinds, wish, settings_));
    return *ports_.back();
  }
  JoinSettings join_settings(Peer self) {
    JoinSettings settings{.machine = "machine-of-the-test", .self = self, .endpoints = {}, .names = {}};
    for (const auto& port : ports_) {
      settings.endpoints.push_back(port->endpoint());
      settings.names.push_back("ws" + std::to_string(settings.names.size() + 1));
    }
    return settings;
  }
  void join_all() {
    std::vector<JoinSettings> settings;
    for (Peer self = 0; self < ports_.size(); ++self) settings.push_back(join_settings(self));
    for (Peer self = 0; self < ports_.size(); ++self) modules_.push_back(ports_[self]->join(settings[self]));
  }
  /// Every process sends to every other, and everything arrives.
  void talk() {
    std::vector<Count> counts(modules_.size());
    for (std::size_t self = 0; self < modules_.size(); ++self) {
      counts[self].frames.resize(modules_.size());
      modules_[self]->start(counts[self]);
    }
    for (Peer self = 0; self < modules_.size(); ++self) {
      for (Peer peer = 0; peer < modules_.size(); ++peer)
        if (peer != self) modules_[self]->send(peer, {}, {});
    }
    const auto all_here = [&] {
      for (std::size_t self = 0; self < modules_.size(); ++self) {
        for (std::size_t peer = 0; peer < modules_.size(); ++peer)
          if (peer != self && counts[self].frames[peer] == 0) return false;
      }
      return true;
    };
    while (!all_here()) {
      for (const auto& module : modules_) module->poll();
    }
    modules_.clear();
  }

  const std::unique_ptr<ModuleKind> tcp_ = tcp_kind();
  PortSettings settings_{.address = "127.0.0.1",
                         .ports = {},
                         .host = "here",
                         .key = JobKey::make(),
                         .secure = Secure::auth,
                         .streams = 1,
                         .provider = {}};
  std::vector<std::unique_ptr<mixed::MixedPort>> ports_;
  std::vector<std::unique_ptr<Module>> modules_;
};

TEST_F(MixedPorts, EachPairHasItsBest) {
  GroupKind near_a("near", 300, "a");
  GroupKind near_b("near", 300, "b");
  GroupKind fast("fast", 200, "fabric");
  // Two processes on host a, two on host b, and one elsewhere without the fast network.
  add({tcp_.get(), &near_a, &fast});
  add({&fast, tcp_.get(), &near_a});
  add({tcp_.get(), &near_b, &fast});
  add({tcp_.get(), &near_b});
  add({tcp_.get()});
  const std::string list = ports_[0]->endpoint();
  EXPECT_EQ(mixed::endpoint_of(list, "near").substr(0, 12), "a/127.0.0.1:") << list;
  EXPECT_EQ(mixed::endpoint_of(list, "tcp").substr(0, 10), "127.0.0.1:") << list;
  join_all();
  const char* const expected[] = {"near+fast+tcp", "near+fast+tcp", "near+fast+tcp", "near+tcp", "tcp"};
  // All modules here are tcp, so their names are, too.
  for (std::size_t self = 0; self < modules_.size(); ++self) {
    const std::string name = modules_[self]->name();
    EXPECT_EQ(std::count(name.begin(), name.end(), '+'),
              std::count(expected[self], expected[self] + std::string(expected[self]).size(), '+'));
  }
  talk();
}

TEST_F(MixedPorts, OneForAllIsUsedAsItIs) {
  GroupKind near("near", 300, "a");
  for (int i = 0; i < 3; ++i) add({tcp_.get(), &near});
  join_all();
  for (const auto& module : modules_) EXPECT_STREQ(module->name(), "tcp");
  talk();
}

TEST_F(MixedPorts, AProcessAloneNeedsNobody) {
  GroupKind near("near", 300, "a");
  add({tcp_.get(), &near});
  join_all();
  EXPECT_STREQ(modules_[0]->name(), "tcp");
}

TEST_F(MixedPorts, AutoLeavesOutWhatCannotBeUsed) {
  GroupKind missing("fast", 200, "a");
  missing.missing = "no such device is there";
  GroupKind broken("odd", 150, "a");
  broken.broken = "odd: no memory to lock";
  const mixed::MixedPort& port = add({tcp_.get(), &missing, &broken});
  EXPECT_EQ(mixed::split_endpoints(port.endpoint()).size(), 1U);
  ASSERT_EQ(port.left_out().size(), 2U);
  EXPECT_EQ(port.left_out()[0].module, "fast");
  EXPECT_EQ(port.left_out()[0].why, "no such device is there");
  EXPECT_EQ(port.left_out()[1].why, "odd: no memory to lock");
}

TEST_F(MixedPorts, AutoLeavesOutWhatIsNotSecureEnough) {
  GroupKind near("near", 300, "a");
  settings_.secure = Secure::tls;
  const mixed::MixedPort& port = add({tcp_.get(), &near});
  ASSERT_EQ(port.left_out().size(), 1U);
  EXPECT_EQ(port.left_out()[0].why, "it cannot keep secure = \"tls\"");
  EXPECT_EQ(message_of([&] {
              add({tcp_.get(), &near}, "near,tcp");
            }),
            "cannot use module near: it cannot keep secure = \"tls\"");
}

TEST_F(MixedPorts, NamesAreOrders) {
  GroupKind near("near", 300, "a");
  GroupKind fast("fast", 200, "a");
  EXPECT_EQ(mixed::split_endpoints(add({tcp_.get(), &near, &fast}, "tcp").endpoint()).size(), 1U);
  const auto two = mixed::split_endpoints(add({tcp_.get(), &near, &fast}, "tcp,near").endpoint());
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].module, "near");
  fast.missing = "no such device is there";
  EXPECT_EQ(message_of([&] { add({tcp_.get(), &fast}, "fast"); }), "cannot use module fast: no such device is there");
  EXPECT_EQ(message_of([&] {
              add({tcp_.get(), &fast}, "odd");
            }),
            "cannot use module odd: it is not installed here; there are fast, tcp");
}

TEST_F(MixedPorts, APairWithoutWayIsRefused) {
  GroupKind near_a("near", 300, "a");
  GroupKind near_b("near", 300, "b");
  add({tcp_.get(), &near_a}, "near");
  add({tcp_.get(), &near_b}, "near");
  EXPECT_EQ(message_of([&] { static_cast<void>(ports_[0]->join(join_settings(0))); }),
            "no module joins it to ws2: it has near, ws2 has near; use module = \"auto\", or name one more (tcp goes "
            "everywhere)");
}

TEST_F(MixedPorts, WithoutAnyModuleThereIsNoPort) {
  GroupKind fast("fast", 200, "a");
  fast.missing = "no such device is there";
  EXPECT_EQ(message_of([&] { add({&fast}); }), "no module can be used: fast: no such device is there");
}

TEST(EndpointList, ReadsWhatItWrites) {
  const std::string list = mixed::join_endpoints({{"shm", "4f1c"}, {"tcp", "[fe80::1%eth0]:5100"}});
  EXPECT_EQ(list, "shm=4f1c;tcp=[fe80::1%eth0]:5100");
  EXPECT_EQ(mixed::endpoint_of(list, "tcp"), "[fe80::1%eth0]:5100");
  EXPECT_EQ(mixed::endpoint_of(list, "rdma"), "");
  EXPECT_EQ(mixed::split_endpoints("=x;;tcp=;rdma;a=b=c").size(), 1U);
  EXPECT_EQ(mixed::endpoint_of("=x;;tcp=;rdma;a=b=c", "a"), "b=c");
  EXPECT_TRUE(mixed::split_endpoints("").empty());
}

TEST(WishedModules, AutoNamesNone) {
  EXPECT_TRUE(mixed::wished_modules("auto").empty());
  EXPECT_TRUE(mixed::wished_modules("").empty());
  EXPECT_EQ(mixed::wished_modules("rdma,tcp"), (std::vector<std::string>{"rdma", "tcp"}));
}

}  // namespace
}  // namespace aplib::comm::test
