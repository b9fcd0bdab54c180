// SPDX-License-Identifier: MIT
#include "comm/mixed/mixed_module.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "aplib/error.hpp"
#include "arch/cpu.hpp"
#include "base/os/thread.hpp"
#include "base/os/time.hpp"

namespace aplib::comm::mixed {

Sleeper::Sleeper(Module& module, os::Bell& bell)
    : module_(module), bell_(bell), thread_(os::quiet_thread("aplib-sleeper", [this] { run(); })) {}

Sleeper::~Sleeper() {
  {
    const std::lock_guard hold(lock_);
    closing_ = true;
    end_wait();
  }
  changed_.notify_all();
  thread_.join();
}

/// Call with lock_ held. A wake() that comes before the wait() ends it, too. One that comes after it ends the next
/// wait() too early, once.
void Sleeper::end_wait() noexcept {
  if (!waiting_) return;
  recalled_ = true;
  module_.wake();
}

void Sleeper::arm() {
  {
    const std::lock_guard hold(lock_);
    ++armed_;
    ++orders_;
  }
  changed_.notify_one();
}

void Sleeper::disarm() noexcept {
  const std::lock_guard hold(lock_);
  if (--armed_ == 0) end_wait();
}

void Sleeper::run() noexcept {
  std::uint64_t done = 0;
  std::unique_lock hold(lock_);
  while (true) {
    changed_.wait(hold, [&] { return closing_ || (armed_ != 0 && orders_ != done); });
    if (closing_) return;
    done = orders_;
    waiting_ = true;
    hold.unlock();
    try {
      module_.wait(std::nullopt);
    } catch (...) {
      // A thread that is woken polls, and meets the error there.
    }
    hold.lock();
    waiting_ = false;
    // A thread that was called back wakes nobody: the one that came since wants it to look once more.
    if (!std::exchange(recalled_, false) && armed_ != 0) bell_.ring();
  }
}

MixedModule::MixedModule(Peer self, std::vector<std::unique_ptr<Module>> modules, std::vector<std::uint32_t> in_charge)
    : self_(self) {
  if (modules.empty() || modules.size() > modules_max) {
    throw Error(Errc::bad_argument,
                fmt::format("{} modules cannot be mixed: 1 to {} can", modules.size(), modules_max));
  }
  for (auto& module : modules) {
    name_ += fmt::format("{}{}", name_.empty() ? "" : "+", module->name());
    parts_.push_back({std::move(module)});
  }
  for (Peer peer = 0; peer < in_charge.size(); ++peer)
    by_peer_.push_back(peer == self ? nullptr : parts_.at(in_charge[peer]).module.get());
}

void MixedModule::no_peer(Peer peer, const char* call) const {
  throw Error(
      Errc::bad_argument,
      peer == self_
          ? fmt::format("{}: {}: process {} is this process; modules carry frames to others", name_, call, peer)
          : fmt::format("{}: {}: there is no process {}; the machine has {}", name_, call, peer, by_peer_.size()));
}

void MixedModule::start(Receiver& receiver) {
  for (Part& part : parts_) {
    part.module->start(receiver);
    if (part.module->descriptor() < 0) part.sleeper = std::make_unique<Sleeper>(*part.module, bell_);
  }
}

void MixedModule::flush() noexcept {
  for (Part& part : parts_) part.module->flush();
}

void MixedModule::Asked::learn(std::uint64_t cycles) noexcept {
  // A poll that takes much longer than usual was interrupted.
  constexpr std::uint64_t first = 1000;
  constexpr std::uint64_t weight = 8;
  cost = (cost * (weight - 1) + std::min(cycles, 2 * cost + first)) / weight;
}

bool MixedModule::poll() {
  const bool all = ask_all_.load(std::memory_order_relaxed);  // relaxed: a hint for the thread that slept itself,
  if (all) ask_all_.store(false, std::memory_order_relaxed);  // or for others, which poll again
  bool took = parts_[0].module->poll();
  std::uint64_t now = cycles();
  if (took) parts_[0].asked.last_brought = now;
  std::uint64_t busy = parts_[0].asked.last_brought;  // When an earlier module last brought something.
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    Asked& asked = part.asked;
    if (!all && !asked.brings && now - busy < Asked::busy_for * asked.cost &&
        now - asked.last < Asked::share * asked.cost) {
      part.module->flush();
    } else {
      asked.brings = part.module->poll();
      const std::uint64_t begin = std::exchange(now, cycles());
      asked.last = now;
      if (asked.brings) {
        asked.last_brought = now;
        took = true;
      } else {
        asked.learn(now - begin);
      }
    }
    busy = std::max(busy, asked.last_brought);
  }
  return took;
}

void MixedModule::wait(std::optional<std::chrono::nanoseconds> timeout) {
  std::array<pollfd, modules_max + 1> entries{};
  entries[0] = {bell_.descriptor(), POLLIN, 0};
  std::size_t armed = 0;
  bell_.begin();
  const bool sleep = [&] {
    while (armed < parts_.size()) {
      const Part& part = parts_[armed];
      entries[++armed] = {part.module->descriptor(), POLLIN, 0};  // poll(2) leaves out -1
      if (part.sleeper) {
        part.module->flush();
        part.sleeper->arm();
      } else if (!part.module->arm()) {
        return false;
      }
    }
    return true;
  }();
  if (sleep) {
    const timespec time = os::timespec_of(timeout.value_or(std::chrono::nanoseconds(0)));
    ::ppoll(entries.data(), armed + 1, timeout ? &time : nullptr, nullptr);
  }
  while (armed != 0) {
    const Part& part = parts_[--armed];
    part.sleeper ? part.sleeper->disarm() : part.module->disarm();
  }
  bell_.end();
  ask_all_.store(true, std::memory_order_relaxed);  // relaxed: see poll()
}

bool MixedModule::close(std::chrono::nanoseconds linger) {
  if (std::exchange(closed_, true)) return true;
  const auto limit = std::chrono::steady_clock::now() + linger;
  bool all = true;
  // Modules close one after the other, in the same order everywhere, so that processes do not wait in a circle.
  for (Part& part : parts_) {
    part.sleeper.reset();
    const std::chrono::nanoseconds left = limit - std::chrono::steady_clock::now();
    all &= part.module->close(std::max(left, std::chrono::nanoseconds(0)));
  }
  return all;
}

bool MixedModule::abandon() {
  closed_ = true;
  bool all = true;
  for (Part& part : parts_) {
    part.sleeper.reset();
    all &= part.module->abandon();
  }
  return all;
}

const Module& in_charge_of(const Module& module, Peer peer) {
  const auto* const mixed = dynamic_cast<const MixedModule*>(&module);
  return mixed != nullptr ? mixed->in_charge_of(peer) : module;
}

Traffic MixedModule::traffic() const noexcept {
  Traffic sum;
  for (const Part& part : parts_) {
    const Traffic one = part.module->traffic();
    sum.frames_sent += one.frames_sent;
    sum.frames_received += one.frames_received;
    sum.bytes_sent += one.bytes_sent;
    sum.bytes_received += one.bytes_received;
    sum.system_calls += one.system_calls;
    sum.refused += one.refused;
  }
  return sum;
}

}  // namespace aplib::comm::mixed
