// SPDX-License-Identifier: MIT
#include "comm/mixed/sleeper.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <csignal>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm {

Sleeper::Sleeper(Module& module, Bell& bell) : module_(module), bell_(bell) {
  // Signals are for the threads of the program.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::error_code failed;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    failed = error.code();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed) {
    throw Error(Errc::exhausted, fmt::format("{}: cannot start a thread that waits for it: {}; raise the limit of "
                                             "processes (ulimit -u)",
                                             module.name(), failed.message()));
  }
  pthread_setname_np(thread_.native_handle(), "aplib-sleeper");
}

Sleeper::~Sleeper() {
  {
    const std::lock_guard hold(lock_);
    closing_ = true;
    end_wait();
  }
  changed_.notify_all();
  thread_.join();
}

/// With lock_ held. A wake() that comes before the wait() ends it as well; one that comes behind it ends the next one too early, once.
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
      // Whoever is woken polls, and meets the trouble there.
    }
    hold.lock();
    waiting_ = false;
    // Who was called back rings for nobody: whoever has come since wants it to look once more.
    if (!std::exchange(recalled_, false) && armed_ != 0) bell_.ring();
  }
}

}  // namespace aplib::comm
