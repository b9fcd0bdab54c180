// SPDX-License-Identifier: MIT
#include "end.hpp"

#include <atomic>
#include <stdexcept>

namespace bench_module {

using namespace aplib::comm;

End::End(const ModuleKind& kind, const PortSettings& settings, Peer self, const Wire& wire) : peer_(1 - self) {
  const std::unique_ptr<Port> port = kind.open(settings);
  std::vector<std::string> endpoints(2);
  endpoints[self] = port->endpoint();
  endpoints[peer_] = wire.swap(endpoints[self]);
  if (!kind.joins(endpoints[0], endpoints[1])) {
    throw std::runtime_error("the module cannot join " + endpoints[0] + " and " + endpoints[1]);
  }
  module_ = port->join({.machine = "bench-module", .self = self, .endpoints = endpoints, .names = {"near", "far"}});
  module_->start(*this);
  static_cast<void>(wire.swap(self));  // both have started
  if (!module_->reaches_memory(peer_)) return;
  theirs_ = wire.swap(Opened{module_->expose(peer_, arena_.span()), reinterpret_cast<std::uintptr_t>(arena_.data())});
}

void End::poll() {
  module_->poll();
  if (!lost_.empty()) throw std::runtime_error("the other process is lost: " + lost_);
  if (failed_ != 0) throw std::runtime_error("a transfer of remote memory failed");
}

void End::await_frames(std::uint64_t count) {
  while (frames_ < count) poll();
  frames_ -= count;
}

void End::write(std::size_t bytes, std::size_t at) {
  module_->write(peer_, theirs_->key, theirs_->address, local_.span().subspan(at, bytes), 0);
}

void End::read(std::size_t bytes, std::size_t at) {
  module_->read(peer_, theirs_->key, theirs_->address, local_.span().subspan(at, bytes), 0);
}

void End::await_transfers(std::uint64_t count) {
  while (transfers_ < count) poll();
  transfers_ -= count;
}

void End::await_word(std::uint64_t value) {
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(arena_.data()));
  while (word.load(std::memory_order_acquire) < value) poll();  // acquire: pairs with the module's write
}

}  // namespace bench_module
