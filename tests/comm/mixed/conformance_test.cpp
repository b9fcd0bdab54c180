// SPDX-License-Identifier: MIT
// The promises of every module, kept by mixtures of two modules, each of which has every other pair of processes.
#include "conformance.hpp"

#include <utility>

#include "comm/mixed/mixed_module.hpp"
#include "loop/loop_net.hpp"
#include "tcp_net.hpp"

namespace aplib::comm::test {
namespace {

/// Which of the two modules has the pair.
std::uint32_t in_charge(std::uint32_t first, Peer a, Peer b) { return (a + b + first + 1) % 2; }

/// A loop joins all processes of its net. Here, one end of it knows only the processes that it has.
class LoopForSome final : public Module, private Receiver {
 public:
  LoopForSome(std::unique_ptr<Module> loop, std::vector<bool> known, bool deaf)
      : loop_(std::move(loop)), known_(std::move(known)), deaf_(deaf) {}

  const char* name() const noexcept override { return loop_->name(); }
  void start(Receiver& receiver) override {
    receiver_ = &receiver;
    loop_->start(*this);
  }
  void send(Peer to, const Label& label, std::span<const std::byte> body) override { loop_->send(to, label, body); }
  std::size_t queued(Peer to) const noexcept override { return loop_->queued(to); }
  void flush() noexcept override { loop_->flush(); }
  bool poll() override {
    only_kept_back_ = false;
    return loop_->poll() && !only_kept_back_;
  }
  void wait(std::optional<std::chrono::nanoseconds> timeout) override { loop_->wait(timeout); }
  void wake() noexcept override { loop_->wake(); }
  int descriptor() noexcept override { return deaf_ ? -1 : loop_->descriptor(); }
  bool arm() override { return loop_->arm(); }
  void disarm() noexcept override { loop_->disarm(); }
  bool reaches_memory(Peer peer) const noexcept override { return loop_->reaches_memory(peer); }
  MemoryKey expose(Peer peer, std::span<std::byte> memory) override { return loop_->expose(peer, memory); }
  void conceal(Peer peer, const MemoryKey& key) noexcept override { loop_->conceal(peer, key); }
  void write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
             std::uint64_t context) override {
    loop_->write(to, key, address, local, context);
  }
  void read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
            std::uint64_t context) override {
    loop_->read(from, key, address, local, context);
  }
  bool close(std::chrono::nanoseconds linger) override { return loop_->close(linger); }
  Traffic traffic() const noexcept override { return loop_->traffic(); }
  std::string describe(Peer peer) const override { return loop_->describe(peer); }

 private:
  bool wants(Peer from) override { return receiver_->wants(from); }
  void frame(Peer from, const Label& label, std::span<const std::byte> body) override {
    only_kept_back_ = false;
    receiver_->frame(from, label, body);
  }
  std::byte* large_begin(Peer from, const Label& label, std::size_t bytes) override {
    return receiver_->large_begin(from, label, bytes);
  }
  void large_end(Peer from, const Label& label, std::size_t bytes, bool complete) override {
    receiver_->large_end(from, label, bytes, complete);
  }
  void peer_lost(Peer peer, const std::string& why) override {
    only_kept_back_ = !known_[peer];
    if (known_[peer]) receiver_->peer_lost(peer, why);
  }
  void memory_done(std::uint64_t context, bool ok) override { receiver_->memory_done(context, ok); }

  std::unique_ptr<Module> loop_;
  std::vector<bool> known_;
  const bool deaf_;  // It has no descriptor.
  Receiver* receiver_ = nullptr;
  bool only_kept_back_ = false;  // The only upcall of this poll, as far as can be seen.
};

class MixedNet final : public Net {
 public:
  enum class Kind : std::uint8_t { loop, tcp };
  struct Mixture {
    Kind first;
    Kind second;
    std::uint32_t turn;  ///< Which of them has the pair 0, 1.
    Secure secure = Secure::auth;
    loop::LoopFaults faults{};
    bool deaf = false;  ///< The loops have no descriptors.
  };

  MixedNet(std::uint32_t processes, const Mixture& mixture) : processes_(processes), mixture_(mixture) {
    const Kind kinds[] = {mixture.first, mixture.second};
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (kinds[i] == Kind::loop) {
        loops_[i] = std::make_unique<loop::LoopNet>(processes, mixture.faults);
      } else {
        TcpNetOptions options{.secure = mixture.secure};
        options.joins = [this, i](Peer a, Peer b) { return in_charge(mixture_.turn, a, b) == i; };
        tcps_[i] = std::make_unique<TcpNet>(processes, options);
      }
    }
  }

  std::unique_ptr<Module> module(Peer process) override {
    std::vector<std::unique_ptr<Module>> modules;
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (loops_[i]) {
        std::vector<bool> known;
        for (Peer peer = 0; peer < processes_; ++peer) known.push_back(in_charge(mixture_.turn, process, peer) == i);
        modules.push_back(std::make_unique<LoopForSome>(loops_[i]->module(process), std::move(known), mixture_.deaf));
      } else {
        modules.push_back(tcps_[i]->module(process));
      }
    }
    std::vector<std::uint32_t> charge;
    for (Peer peer = 0; peer < processes_; ++peer) charge.push_back(in_charge(mixture_.turn, process, peer));
    return std::make_unique<mixed::MixedModule>(process, std::move(modules), std::move(charge));
  }

  bool kill(Peer process) override {
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (loops_[i]) loops_[i]->kill(process);
      if (tcps_[i]) tcps_[i]->kill(process);
    }
    return true;
  }

  bool corrupt(Peer from, Peer to) override {
    loop::LoopNet* const loop = loops_[in_charge(mixture_.turn, from, to)].get();
    if (loop != nullptr) loop->corrupt(from, to);
    return loop != nullptr;
  }

 private:
  const std::uint32_t processes_;
  const Mixture mixture_;
  std::array<std::unique_ptr<loop::LoopNet>, 2> loops_;
  std::array<std::unique_ptr<TcpNet>, 2> tcps_;
};

Subject subject(std::string name, const MixedNet::Mixture& mixture) {
  return {std::move(name),
          [mixture](std::uint32_t processes) { return std::make_unique<MixedNet>(processes, mixture); }};
}

std::vector<Subject> subjects() {
  using Kind = MixedNet::Kind;
  std::vector<Subject> all{subject("loop_tls", {Kind::loop, Kind::tcp, 1, Secure::tls, {.hold_back_bytes = 500}}),
                           subject("deaf_tcp", {.first = Kind::loop, .second = Kind::tcp, .turn = 0, .deaf = true})};
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // the same code and threads again
  all.push_back(subject("loop_tcp", {Kind::loop, Kind::tcp, 0}));
  all.push_back(subject("loop_loop", {Kind::loop, Kind::loop, 1}));
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Mixed, Conformance, testing::ValuesIn(subjects()), subject_name);

}  // namespace
}  // namespace aplib::comm::test
