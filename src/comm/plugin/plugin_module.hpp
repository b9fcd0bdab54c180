// SPDX-License-Identifier: MIT
// A plug-in as a ModuleKind, and its module as a Module: they call the plug-in's functions and turn statuses into
// exceptions. Each call is one indirect call more than one of a module that is built in.
#pragma once

#include <exception>
#include <memory>

#include "comm/kind.hpp"
#include "comm/module.hpp"
#include "comm/plugin/plugin.hpp"

namespace aplib::comm::plugin {

class PluginModule final : public Module {
 public:
  /// Owns `module` from now on.
  PluginModule(std::shared_ptr<const Plugin> plugin, aplib_comm_module* module);
  ~PluginModule() override;

  [[nodiscard]] const char* name() const noexcept override { return call_->name; }
  void start(Receiver& receiver) override;
  void send(Peer to, const Label& label, std::span<const std::byte> body) override;
  [[nodiscard]] std::size_t queued(Peer to) const noexcept override { return call_->queued(module_, to); }
  void flush() noexcept override { call_->flush(module_); }
  bool poll() override;
  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  void wake() noexcept override { call_->wake(module_); }

  [[nodiscard]] bool reaches_memory(Peer peer) const noexcept override;
  MemoryKey expose(Peer peer, std::span<std::byte> memory) override;
  void conceal(Peer peer, const MemoryKey& key) noexcept override;
  void write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
             std::uint64_t context) override;
  void read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
            std::uint64_t context) override;

  [[nodiscard]] int descriptor() noexcept override;
  bool arm() override;
  void disarm() noexcept override;

  void let_go() noexcept override;
  bool close(std::chrono::nanoseconds linger) override;
  bool abandon() override;
  [[nodiscard]] Traffic traffic() const noexcept override;
  [[nodiscard]] std::string describe(Peer peer) const override;

 private:
  struct Upcalls;
  /// What an upcall threw; the plug-in must not see it, so it waits for the end of the call.
  void rethrow();
  std::int32_t checked(std::int32_t status, const aplib_comm_error& error) const;

  const std::shared_ptr<const Plugin> plugin_;
  const aplib_comm_plugin* const call_;  // The plug-in's functions.
  aplib_comm_module* const module_;
  Receiver* receiver_ = nullptr;
  std::exception_ptr thrown_;  // Thread that polls.
  aplib_comm_receiver upcalls_{};
};

/// A plug-in as a ModuleKind. tests/comm/plugin/exporter.hpp is the other side.
class PluginKind final : public ModuleKind {
 public:
  /// `exported`: for which Plugin::refusal() had nothing to say; it outlives the kind, its ports and its modules.
  explicit PluginKind(const aplib_comm_plugin& exported) : plugin_(std::make_shared<const Plugin>(exported)) {}

  [[nodiscard]] std::string name() const override { return plugin()->name; }
  [[nodiscard]] std::string version() const override { return plugin()->version; }
  [[nodiscard]] std::string description() const override { return plugin()->description; }
  [[nodiscard]] int rank() const override { return plugin()->rank; }
  [[nodiscard]] bool one_host() const override { return plugin().can(APLIB_COMM_ONE_HOST); }
  [[nodiscard]] bool has_remote_memory() const override { return plugin().can(APLIB_COMM_REMOTE_MEMORY); }
  [[nodiscard]] bool keeps(Secure secure) const override;
  [[nodiscard]] std::optional<std::string> unusable(const PortSettings& settings) const override;
  [[nodiscard]] std::unique_ptr<Port> open(const PortSettings& settings) const override;
  [[nodiscard]] bool joins(const std::string& endpoint, const std::string& other) const override;

 private:
  [[nodiscard]] const Plugin& plugin() const noexcept { return *plugin_; }
  const std::shared_ptr<const Plugin> plugin_;  // Of its ports and modules too.
};

}  // namespace aplib::comm::plugin
