// SPDX-License-Identifier: MIT
// x86-64: Linux's signal frame. Source of the layout: Linux, struct rt_sigframe and struct _fpx_sw_bytes of x86-64,
// both part of the kernel's binary interface.
#include "arch/system.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace aplib::arch {

namespace {

/// As the kernel lays it out; libc's ucontext_t is longer at its end, which the kernel does not write.
struct SignalFrame {
  void* restorer;  // where the handler returns to: it calls rt_sigreturn
  std::byte context[304];
  siginfo_t info;
};
static_assert(sizeof(SignalFrame) == 8 + 304 + 128);

constexpr std::size_t red_zone_bytes = 128;
constexpr std::size_t left_for_handler = 8 * 1024;
constexpr std::size_t alignment_of_fpu_state = 64;

// In the legacy part of the state, at the place the kernel keeps for software.
constexpr std::size_t software_bytes_at = 464;
constexpr std::uint32_t extended_magic = 0x46505853;
struct SoftwareBytes {
  std::uint32_t magic;
  std::uint32_t bytes;  // of the whole state
};
constexpr std::size_t legacy_bytes = 512;
constexpr unsigned long direction_flag = 0x400;
constexpr unsigned long trap_flag = 0x100;

std::size_t bytes_of(const void* fpu_state) noexcept {
  SoftwareBytes found{};
  std::memcpy(&found, static_cast<const char*>(fpu_state) + software_bytes_at, sizeof found);
  return found.magic == extended_magic ? found.bytes : legacy_bytes;
}

/// What the kernel gives to handlers: no pending exception, all exceptions masked.
void reset(void* fpu_state) noexcept {
  auto* legacy = static_cast<_libc_fpstate*>(fpu_state);
  constexpr std::uint16_t default_control = 0x37f;
  constexpr std::uint32_t default_mxcsr = 0x1f80;
  legacy->cwd = default_control;
  legacy->swd = 0;
  legacy->ftw = 0;
  legacy->mxcsr = default_mxcsr;
  if (bytes_of(fpu_state) > legacy_bytes) {
    const std::uint64_t all_initial = 0;  // the header's bit for each part of the state
    std::memcpy(static_cast<char*>(fpu_state) + legacy_bytes, &all_initial, sizeof all_initial);
  }
}

std::uintptr_t align_down(std::uintptr_t address, std::size_t alignment) noexcept {
  return address - address % alignment;
}

}  // namespace

Interrupted interrupted(const void* context) noexcept {
  const greg_t* const registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return {reinterpret_cast<const void*>(registers[REG_RIP]), reinterpret_cast<const char*>(registers[REG_RSP])};
}

bool call_on_interrupted_stack(int signal, const siginfo_t& info, void* context,
                               void (*handler)(int, siginfo_t*, void*), const char* stack_low) noexcept {
  auto& interrupted = *static_cast<ucontext_t*>(context);
  greg_t* const registers = interrupted.uc_mcontext.gregs;
  const auto stack = static_cast<std::uintptr_t>(registers[REG_RSP]);
  const auto signal_stack = reinterpret_cast<std::uintptr_t>(interrupted.uc_stack.ss_sp);
  const std::size_t signal_stack_bytes = interrupted.uc_stack.ss_size;
  if (stack - signal_stack < signal_stack_bytes) return false;  // a fault in a signal handler
  if (reinterpret_cast<std::uintptr_t>(context) - signal_stack >= signal_stack_bytes) {
    // The thread has no signal stack, so we are where the handler shall be.
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    siginfo_t copy = info;
    handler(signal, &copy, context);
    return true;
  }

  void* const fpu_state = interrupted.uc_mcontext.fpregs;
  const std::size_t fpu_bytes = fpu_state != nullptr ? bytes_of(fpu_state) : 0;
  const std::size_t needed =
      red_zone_bytes + fpu_bytes + alignment_of_fpu_state + sizeof(SignalFrame) + left_for_handler;
  const auto low = reinterpret_cast<std::uintptr_t>(stack_low);
  if (stack < low || stack - low < needed) return false;

  const std::uintptr_t fpu_copy = align_down(stack - red_zone_bytes - fpu_bytes, alignment_of_fpu_state);
  // At a function's entry the return address lies just below a multiple of 16.
  const std::uintptr_t frame_place = align_down(fpu_copy - sizeof(SignalFrame), 16) - sizeof(void*);
  auto* frame = reinterpret_cast<SignalFrame*>(frame_place);
  std::memcpy(frame, static_cast<char*>(context) - offsetof(SignalFrame, context), offsetof(SignalFrame, info));
  std::memcpy(&frame->info, &info, sizeof info);
  if (fpu_state != nullptr) {
    auto* fpu_place = reinterpret_cast<char*>(fpu_copy);
    std::memcpy(fpu_place, fpu_state, fpu_bytes);
    std::memcpy(frame->context + offsetof(ucontext_t, uc_mcontext.fpregs), &fpu_place, sizeof fpu_place);
    reset(fpu_state);
  }

  registers[REG_RIP] = reinterpret_cast<greg_t>(handler);
  registers[REG_RSP] = static_cast<greg_t>(frame_place);
  registers[REG_RDI] = signal;
  registers[REG_RSI] = reinterpret_cast<greg_t>(&frame->info);
  registers[REG_RDX] = reinterpret_cast<greg_t>(frame->context);
  registers[REG_RAX] = 0;
  registers[REG_EFL] &= ~static_cast<greg_t>(direction_flag);
  return true;
}

namespace {

constexpr std::array<unsigned char, 2> syscall_instruction{0x0f, 0x05};

/// One byte after the other: what follows a shorter instruction may not be mapped.
bool is_system_call(const unsigned char* instruction) noexcept {
  return instruction[0] == syscall_instruction[0] && instruction[1] == syscall_instruction[1];
}

}  // namespace

// The instruction leaves where it ends in RCX.
bool is_after_call(const void* context) noexcept {
  const greg_t* const registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* const next = static_cast<const unsigned char*>(interrupted(context).instruction);
  return registers[REG_RCX] == registers[REG_RIP] && is_system_call(next - syscall_instruction.size());
}

void step(void* context, bool steps) noexcept {
  auto& flags = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
  flags = steps ? flags | static_cast<greg_t>(trap_flag) : flags & ~static_cast<greg_t>(trap_flag);
}

bool ends_steps(const void* context) noexcept {
  static constexpr auto calls =
      std::to_array<long>({SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_clone, SYS_clone3, SYS_fork,
                           SYS_vfork, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group});
  const auto* const next = static_cast<const unsigned char*>(interrupted(context).instruction);
  if (!is_system_call(next)) return false;
  const long number = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX];
  return std::ranges::find(calls, number) != calls.end();
}

// The kernel either has the call return EINTR, or goes back to its instruction, with the call's number.
Waits was_waiting(const void* context) noexcept {
  static constexpr auto waits = std::to_array<long>(
      {SYS_read, SYS_readv, SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_nanosleep, SYS_clock_nanosleep,
       SYS_wait4, SYS_waitid, SYS_recvfrom, SYS_recvmsg, SYS_accept, SYS_accept4, SYS_epoll_wait, SYS_epoll_pwait});
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* const next = static_cast<const unsigned char*>(interrupted(context).instruction);
  const long result = registers[REG_RAX];
  const auto* const call = result == -EINTR ? next - syscall_instruction.size() : next;
  if (!is_system_call(call)) return Waits::none;
  // A wait for a lock that has no limit begins again, if the handler's flags have SA_RESTART.
  if (result == SYS_futex) return Waits::for_lock;
  return result == -EINTR || std::ranges::find(waits, result) != waits.end() ? Waits::for_others : Waits::none;
}

void pass_on_wake(const void* context) noexcept {
  if (was_waiting(context) != Waits::for_lock) return;
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  ::syscall(SYS_futex, registers[REG_RDI], FUTEX_WAKE | (registers[REG_RSI] & FUTEX_PRIVATE_FLAG), 1, nullptr, nullptr,
            0);
}

void break_off_wait(void* context) noexcept {
  if (was_waiting(context) == Waits::none) return;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (registers[REG_RAX] == -EINTR) return;
  registers[REG_RIP] += static_cast<greg_t>(syscall_instruction.size());
  registers[REG_RAX] = -EINTR;
}

}  // namespace aplib::arch
