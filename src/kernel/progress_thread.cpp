// SPDX-License-Identifier: MIT
#include "kernel/progress_thread.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>

#include "base/os/futex.hpp"
#include "kernel/module_network.hpp"
#include "kernel/process.hpp"

namespace aplib {

namespace {

constexpr auto tick_time = std::chrono::milliseconds(1);
/// The longest pause: each look that was not needed doubles it, since on a host with a share of a core, or with
/// many processes, ticks are felt.
constexpr auto pause_max = std::chrono::milliseconds(16);
constexpr std::uint32_t quiet_ticks = 20;  // asleep for so long: told to the overseer

}  // namespace

ProgressThread::ProgressThread(Domain& domain, ModuleNetwork& network, Supervisor& supervisor)
    : domain_(domain), network_(network), supervisor_(supervisor) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, &before);  // others are for threads that run the machine
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ProgressThread::~ProgressThread() {
  closing_.store(true, std::memory_order_seq_cst);
  tick_.store(1, std::memory_order_release);
  os::futex_wake(tick_);
  network_.progress().dozes.store(0, std::memory_order_release);
  os::futex_wake(network_.progress().dozes);
  network_.progress().asleep.store(0, std::memory_order_release);
  os::futex_wake(network_.progress().asleep);
  network_.wake();
  thread_.join();
}

void ProgressThread::sleep_until_stirred(std::uint64_t quiet_word) {
  network_.progress().asleep.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own word before the looks; pairs with stirred()
  const bool nothing_new = domain_.sleepers.load(std::memory_order_acquire) == quiet_word && network_.someone_waits() &&
                           !network_.status_due() && !closing_.load(std::memory_order_acquire);
  while (nothing_new && network_.progress().asleep.load(std::memory_order_acquire) == 1)
    os::futex_wait(network_.progress().asleep, 1, std::nullopt);
  network_.progress().asleep.store(0, std::memory_order_relaxed);  // relaxed: a waker in between wakes nobody
}

/// Who leaves a frame behind ends a long pause, or, as it is told of the pause too late, nearly always.
void ProgressThread::pause(std::chrono::milliseconds time) {
  if (time == tick_time) {
    os::futex_wait(tick_, 0, time);
    return;
  }
  network_.progress().dozes.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own word before the looks; pairs with wake_progress()
  if (!closing_.load(std::memory_order_seq_cst) && !network_.status_due())
    os::futex_wait(network_.progress().dozes, 1, time);
  network_.progress().dozes.store(0, std::memory_order_relaxed);  // relaxed: a waker in between wakes nobody
}

void ProgressThread::run() {
  std::uint64_t quiet_word = 0;
  auto time = tick_time;
  std::uint32_t ticks = 0;
  bool told = false;
  while (!closing_.load(std::memory_order_acquire)) {
    if (network_.status_due()) {  // collected for a tick
      os::futex_wait(tick_, 0, tick_time);
      network_.tell_status();
    }
    const std::uint64_t word = domain_.sleepers.load(std::memory_order_acquire);
    const bool all_asleep = network_.all_asleep();
    if (!all_asleep || word != quiet_word) {
      ticks = 0;
      told = false;
    }
    quiet_word = word;
    if (all_asleep && ticks < quiet_ticks) ++ticks;
    if (ticks == quiet_ticks && !told && network_.is_quiet(word)) {
      told = true;
      ByteWriter note = begin_note(NoteKind::quiet);
      network_.counts().write(note);
      supervisor_.send_note(note.bytes());
    }
    if (network_.someone_waits() && (!all_asleep || told) && !network_.is_short_of_memory()) {
      sleep_until_stirred(word);
      continue;
    }
    if (all_asleep || network_.is_short_of_memory()) time = tick_time;
    const std::uint64_t polls = network_.polls();
    pause(time);
    const auto longer = std::min(2 * time, pause_max);
    if (network_.polls() != polls || network_.someone_waits()) {
      if (network_.is_short_of_memory()) network_.poll();
      time = network_.holds_back.load(std::memory_order_relaxed) ? tick_time : longer;  // relaxed: a hint
      network_.flush();
      continue;
    }
    // Nobody looks after it: wait for what comes, so that it need not wait for the next tick.
    const std::uint64_t arrivals = network_.arrivals();
    network_.poll();
    network_.wait(tick_time);
    network_.poll();
    time = network_.arrivals() != arrivals ? tick_time : longer;
    // A processor may have begun to wait beside us, and what woke us may have been meant for it.
    if (network_.someone_waits()) network_.wake();
  }
}

}  // namespace aplib
