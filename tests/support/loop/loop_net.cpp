// SPDX-License-Identifier: MIT
#include "loop/loop_net.hpp"

#include <fmt/format.h>

#include "aplib/error.hpp"
#include "loop/loop_module.hpp"

namespace aplib::comm::loop {
LoopNet::State::State(std::uint32_t count, const LoopFaults& chosen, std::uint64_t seed)
    : processes(count), faults(chosen), first_seed(seed), process_list(std::make_unique<Process[]>(count)) {
  pipes.reserve(std::size_t{count} * count);
  for (std::uint32_t i = 0; i < count * count; ++i) {
    pipes.push_back(std::make_unique<LoopPipe>(faults, i, seed * 0x9e37'79b9'7f4a'7c15ULL + (std::uint64_t{i} << 32U)));
  }
}

void LoopNet::State::check(Peer peer, const char* what) const {
  if (peer < processes) return;
  throw Error(Errc::bad_argument,
              fmt::format("loop: {}: there is no process {}; the net has processes 0..{}", what, peer, processes - 1));
}

LoopNet::LoopNet(std::uint32_t processes, const LoopFaults& faults, std::uint64_t seed) {
  if (processes == 0 || faults.capacity_bytes == 0) {
    throw Error(Errc::bad_argument,
                fmt::format("loop: {} processes with {} bytes on the way: at least 1 of each is needed", processes,
                            faults.capacity_bytes));
  }
  state_ = std::make_shared<State>(processes, faults, seed);
}

LoopNet::~LoopNet() = default;

std::unique_ptr<Module> LoopNet::module(Peer process) {
  state_->check(process, "module");
  if (state_->process(process).taken.exchange(true)) {
    throw Error(Errc::bad_argument, fmt::format("loop: module: process {} has its module already", process));
  }
  return std::make_unique<LoopModule>(state_, process);
}

void LoopNet::kill(Peer process) {
  state_->check(process, "kill");
  state_->process(process).killed.store(true);
  for (Peer peer = 0; peer < state_->processes; ++peer) {
    if (peer == process) continue;
    state_->pipe(peer, process).close_reading();
    state_->pipe(peer, process).memory().conceal_all();
    state_->pipe(process, peer).break_off("connection reset by peer", true);
    state_->pipe(process, peer).forget_transfers();
    state_->process(peer).bell.ring();
  }
  state_->process(process).bell.ring();
}

void LoopNet::cut(Peer a, Peer b) {
  state_->check(a, "cut");
  state_->check(b, "cut");
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    state_->pipe(from, to).break_off("connection timed out", true);
    state_->process(to).bell.ring();
  }
}

void LoopNet::corrupt(Peer from, Peer to) {
  state_->check(from, "corrupt");
  state_->check(to, "corrupt");
  state_->pipe(from, to).corrupt_next();
}

void LoopNet::freeze(Peer process) {
  state_->check(process, "freeze");
  state_->process(process).frozen.store(true);
}

void LoopNet::thaw(Peer process) {
  state_->check(process, "thaw");
  state_->process(process).frozen.store(false);
  state_->process(process).bell.ring();
}

bool LoopNet::quiet() const {
  for (const std::unique_ptr<LoopPipe>& pipe : state_->pipes) {
    if (!pipe->quiet()) return false;
  }
  return true;
}

}  // namespace aplib::comm::loop
