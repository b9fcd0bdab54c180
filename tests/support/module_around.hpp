// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "comm/module.hpp"

namespace aplib::testing_support {

/// A module with another one inside, which does all the work: for tests that look at what goes by, or change it.
class ModuleAround : public comm::Module, protected comm::Receiver {
 public:
  explicit ModuleAround(std::unique_ptr<comm::Module> module) : module_(std::move(module)) {}

  [[nodiscard]] const char* name() const noexcept override { return module_->name(); }
  void start(comm::Receiver& receiver) override {
    receiver_ = &receiver;
    module_->start(*this);
  }
  void send(comm::Peer to, const comm::Label& label, std::span<const std::byte> body) override {
    module_->send(to, label, body);
  }
  [[nodiscard]] std::size_t queued(comm::Peer to) const noexcept override { return module_->queued(to); }
  void flush() noexcept override { module_->flush(); }
  bool poll() override { return module_->poll(); }
  void wait(std::optional<std::chrono::nanoseconds> timeout) override { module_->wait(timeout); }
  void wake() noexcept override { module_->wake(); }
  bool close(std::chrono::nanoseconds linger) override { return module_->close(linger); }
  [[nodiscard]] comm::Traffic traffic() const noexcept override { return module_->traffic(); }
  [[nodiscard]] std::string describe(comm::Peer peer) const override { return module_->describe(peer); }

 protected:
  bool wants(comm::Peer from) override { return receiver_->wants(from); }
  void frame(comm::Peer from, const comm::Label& label, std::span<const std::byte> body) override {
    receiver_->frame(from, label, body);
  }
  std::byte* large_begin(comm::Peer from, const comm::Label& label, std::size_t bytes) override {
    return receiver_->large_begin(from, label, bytes);
  }
  void large_end(comm::Peer from, const comm::Label& label, std::size_t bytes, bool complete) override {
    receiver_->large_end(from, label, bytes, complete);
  }
  void peer_lost(comm::Peer peer, const std::string& why) override { receiver_->peer_lost(peer, why); }

 private:
  const std::unique_ptr<comm::Module> module_;
  comm::Receiver* receiver_ = nullptr;
};

}  // namespace aplib::testing_support
