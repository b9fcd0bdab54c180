// SPDX-License-Identifier: MIT
#include "base/os/thread.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/os/time.hpp"
#include "base/sanitizer.hpp"

extern "C" {
void _pthread_cleanup_push(_pthread_cleanup_buffer* buffer, void (*routine)(void*), void* argument) noexcept;
void _pthread_cleanup_pop(_pthread_cleanup_buffer* buffer, int execute);
}

namespace aplib::os {

namespace {

long wait_for_some(std::span<futex_waitv> words, const timespec* deadline) noexcept {
  return syscall(SYS_futex_waitv, words.data(), words.size(), 0, deadline, CLOCK_MONOTONIC);
}

futex_waitv waiting_for(std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  return {.val = expected,
          .uaddr = reinterpret_cast<std::uintptr_t>(&word),
          .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG,
          .__reserved = 0};
}

bool can_wait_for_some() noexcept {
  std::atomic<std::uint32_t> word{0};
  futex_waitv other[] = {waiting_for(word, 1)};
  return wait_for_some(other, nullptr) == -1 && errno == EAGAIN;
}

const bool has_groups = can_wait_for_some();

/// Where a thread's block has the head of the list, from the thread pointer on; negative: not found.
APLIB_NO_SANITIZE std::ptrdiff_t find_cleanup_list() noexcept {
  constexpr std::size_t searched = 1536;  // bytes of libc's own part, which has more
  const auto* const block = static_cast<const char*>(__builtin_thread_pointer());
  _pthread_cleanup_buffer probe{};
  _pthread_cleanup_push(
      &probe, [](void*) {}, nullptr);
  std::ptrdiff_t found = -1;
  for (std::size_t at = 0; at < searched && found < 0; at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, block + at, sizeof word);
    if (word == &probe) found = static_cast<std::ptrdiff_t>(at);
  }
  _pthread_cleanup_pop(&probe, 0);
  return found;
}

}  // namespace

void** cleanup_list() noexcept {
  static const std::ptrdiff_t place = find_cleanup_list();
  thread_local void* nobodys = nullptr;
  return place < 0 ? &nobodys : reinterpret_cast<void**>(static_cast<char*>(__builtin_thread_pointer()) + place);
}

bool FutexGroup::can_wake_together() noexcept { return has_groups; }

void FutexGroup::wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::optional<std::chrono::nanoseconds> timeout) noexcept {
  if (!has_groups) return futex_wait(word, expected, timeout);
  // acquire: a word that changed before the last wake is seen to have
  futex_waitv words[] = {waiting_for(word, expected), waiting_for(wakes_, wakes_.load(std::memory_order_acquire))};
  timespec deadline{};
  if (timeout) deadline = timespec_of(std::chrono::steady_clock::now().time_since_epoch() + *timeout);
  wait_for_some(words, timeout ? &deadline : nullptr);
}

void FutexGroup::wake_all() noexcept {
  wakes_.fetch_add(1, std::memory_order_release);  // release: the words
  futex_wake(wakes_);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::optional<std::chrono::nanoseconds> timeout) noexcept {
  const timespec time = timespec_of(timeout.value_or(std::chrono::nanoseconds(0)));
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, timeout ? &time : nullptr,
          nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void offer_core() noexcept { ::sched_yield(); }

bool expects_signal(pid_t process, int signal) {
  const auto has = [signal](const std::string& folder, std::initializer_list<std::string_view> sets) {
    const std::string text = read_file(folder + "/status").value_or("");
    return std::ranges::any_of(sets, [&](std::string_view set) {
      const std::size_t at = text.find(set);
      const std::uint64_t signals = at != text.npos ? std::strtoull(&text[at + set.size()], nullptr, 16) : 0;
      return (signals >> (static_cast<unsigned>(signal) - 1) & 1) != 0;
    });
  };
  // The kernel shows what such a thread waits for as not blocked.
  const auto waits = [](const std::string& thread) {
    return read_file(thread + "/syscall").value_or("").starts_with(std::to_string(SYS_rt_sigtimedwait) + " ");
  };
  const std::string folder = "/proc/" + std::to_string(process);
  if (has(folder, {"\nSigCgt:", "\nSigIgn:"})) return true;
  std::error_code gone;
  std::size_t threads = 0;
  for (std::filesystem::directory_iterator each(folder + "/task", gone), end; !gone && each != end;
       each.increment(gone), ++threads)
    if (!has(each->path(), {"\nSigBlk:"}) && !waits(each->path())) return false;
  return threads != 0;
}

ProcessState state_of(const std::string& process) {
  ProcessState state;
  const std::string line = read_file("/proc/" + process + "/stat").value_or("");
  const std::size_t name_end = line.rfind(')');  // a name may hold anything
  if (name_end != line.npos) std::sscanf(&line[name_end + 1], " %c %d", &state.state, &state.parent);
  return state;
}

}  // namespace aplib::os
