// SPDX-License-Identifier: MIT
// The promises of every module, kept through the plug-in interface: by plug-in files (tcp and the example), and by the
// loop with its remote memory, exported and imported again inside this process.
#include "conformance.hpp"
#include "comm/plugin/plugin_module.hpp"
#include "exporter.hpp"
#include "kind_net.hpp"
#include "loop/loop_net.hpp"
#include "own_modules.hpp"

namespace aplib::comm::test {
namespace {

/// The modules of a LoopNet, as a kind.
class LoopKind final : public ModuleKind {
 public:
  explicit LoopKind(loop::LoopNet& net) : net_(net) {}
  std::string name() const override { return "loop"; }
  std::string version() const override { return "1"; }
  std::string description() const override { return "frames inside a process"; }
  int rank() const override { return 1; }
  bool one_host() const override { return true; }
  bool has_remote_memory() const override { return true; }
  bool keeps(Secure) const override { return true; }
  std::optional<std::string> unusable(const PortSettings&) const override { return std::nullopt; }
  std::unique_ptr<Port> open(const PortSettings&) const override { return std::make_unique<LoopPort>(net_); }
  bool joins(const std::string&, const std::string&) const override { return true; }

 private:
  class LoopPort final : public Port {
   public:
    explicit LoopPort(loop::LoopNet& net) : net_(net) {}
    std::string endpoint() const override { return "loop"; }
    std::unique_ptr<Module> join(const JoinSettings& settings) override { return net_.module(settings.self); }

   private:
    loop::LoopNet& net_;
  };
  loop::LoopNet& net_;
};

class ExportedLoop final : public Net {
 public:
  explicit ExportedLoop(std::uint32_t processes)
      : loop_(processes, {.delay_polls_max = 3, .piece_bytes_max = 60'000, .hold_back_bytes = 500}),
        exporter_(std::make_unique<LoopKind>(loop_)),
        kind_(exporter_.plugin()),
        net_(kind_, processes) {}
  std::unique_ptr<Module> module(Peer process) override { return net_.module(process); }
  bool kill(Peer process) override {
    loop_.kill(process);
    return true;
  }
  bool corrupt(Peer from, Peer to) override {
    loop_.corrupt(from, to);
    return true;
  }

 private:
  loop::LoopNet loop_;
  Exporter exporter_;
  plugin::PluginKind kind_;
  KindNet net_;
};

Subject file(const char* name) {
  return {name, [name](std::uint32_t processes) { return std::make_unique<KindNet>(own_module(name), processes); }};
}

std::vector<Subject> subjects() {
  std::vector<Subject> all{
      {"exported_loop", [](std::uint32_t processes) { return std::make_unique<ExportedLoop>(processes); }},
      file("example")};
#if !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)  // comm_tcp_test has the same, and the others use the interface
  all.push_back(file("tcp"));
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plugin, Conformance, testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
