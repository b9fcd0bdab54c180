// SPDX-License-Identifier: MIT
// Semaphores, mutexes, condition variables, barriers and locks of POSIX, which ranks of a host share by memory, the
// ends of threads, and the queues and semaphores that the system keeps. Who would have to wait lets other cells run
// instead. Where there is nothing to wait for, the native call does all of it.
//
// A condition variable may wake for no reason, so a wait here is a pause without the mutex. Nothing but the native call
// can arrive at a barrier, so a thread of ours does that for the task.
//
// The C library knows by its thread who holds a recursive or error-checking mutex, a lock for writing, or a FILE. But
// cells share threads, and move from one to another. So each program remembers what its tasks hold of these, and its
// cell keeps its thread meanwhile.
#include <aio.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <threads.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/os/thread.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"
#include "loader/libc/streams.hpp"
#include "loader/libc/waiting.hpp"

namespace aplib::loader::libc {

namespace {

using Deadline = std::optional<WaitClock::time_point>;

bool is_deadline(const timespec& time) noexcept { return time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000; }

/// An absolute time of `clock`; EINVAL: it is none.
int find_deadline(clockid_t clock, const timespec* time, Deadline& deadline) noexcept {
  if (time == nullptr || !is_deadline(*time)) return EINVAL;
  deadline = deadline_at(clock, *time);
  return 0;
}

/// `attempt`, an int(): EBUSY: not now.
template <class Attempt>
int lock_in_turn(Instance& instance, Deadline deadline, Attempt attempt) {
  int result = 0;
  const Waited how = wait_in_turn(instance, deadline, EndedBy::nothing, [&] { return (result = attempt()) != EBUSY; });
  return how == Waited::late ? ETIMEDOUT : result;
}

// ---------------------------------------------------------------- semaphores

int semaphore_in_turn(Instance& instance, sem_t* semaphore, Deadline deadline) {
  int result = 0;
  const Waited how = wait_in_turn(instance, deadline, EndedBy::without_restart, [&] {
    result = ::sem_trywait(semaphore);
    return result == 0 || errno_now() != EAGAIN;
  });
  if (how == Waited::late) return failed(ETIMEDOUT);
  return how == Waited::interrupted ? failed(EINTR) : result;
}

int bound_sem_wait(sem_t* semaphore) {
  if (::sem_trywait(semaphore) == 0) return 0;
  Instance* const instance = sharing(__builtin_return_address(0));
  return instance != nullptr ? semaphore_in_turn(*instance, semaphore, std::nullopt) : ::sem_wait(semaphore);
}

int bound_sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* time) {
  if (::sem_trywait(semaphore) == 0) return 0;
  Instance* const instance = sharing(__builtin_return_address(0));
  Deadline deadline;
  if (instance == nullptr || find_deadline(clock, time, deadline) != 0) return ::sem_clockwait(semaphore, clock, time);
  return semaphore_in_turn(*instance, semaphore, deadline);
}

int bound_sem_timedwait(sem_t* semaphore, const timespec* time) {
  if (::sem_trywait(semaphore) == 0) return 0;
  Instance* const instance = sharing(__builtin_return_address(0));
  Deadline deadline;
  if (instance == nullptr || find_deadline(CLOCK_REALTIME, time, deadline) != 0)
    return ::sem_timedwait(semaphore, time);
  return semaphore_in_turn(*instance, semaphore, deadline);
}

// ---------------------------------------------------------------- what a thread holds

/// What tasks of the instance hold; a recursive mutex as often as it is locked.
using Held = std::vector<HeldLock>;

/// The instance whose task calls. Null: it is a thread, which stays what it is.
Instance* of_task(const void* caller) noexcept {
  const TaskContext* const flow = here();
  return flow != nullptr && !flow->of_thread ? calling(caller) : nullptr;
}

void hold(const void* caller, const void* lock, pthread_mutex_t* robust = nullptr) {
  Instance* const instance = of_task(caller);
  if (instance == nullptr) return;
  Held& held = instance->libc().held_locks;
  held.push_back({lock, robust});
  if (held.size() == 1) instance->services().keep_thread(true);
}

void let_go(const void* caller, const void* lock) noexcept {
  Instance* const instance = of_task(caller);
  if (instance == nullptr) return;
  Held& held = instance->libc().held_locks;
  const auto found = std::ranges::find(held, lock, &HeldLock::lock);
  if (found == held.end()) return;
  held.erase(found);
  if (held.empty()) instance->services().keep_thread(false);
}

// ---------------------------------------------------------------- mutexes

/// Its kind asks who owns it (glibc: recursive 1, error-checking 2, robust bit 4, two protocols bits 5 and 6).
bool is_owned(const pthread_mutex_t* mutex) noexcept { return (mutex->__data.__kind & 0x73) != 0; }
bool is_robust(const pthread_mutex_t* mutex) noexcept { return (mutex->__data.__kind & 0x10) != 0; }
/// And processes share it (bit 7).
bool is_shared_and_owned(const pthread_mutex_t* mutex) noexcept {
  return (mutex->__data.__kind & 0x80) != 0 && is_owned(mutex);
}

/// The thread owns the mutex for another cell.
bool is_held_by_neighbour(Instance& instance, const pthread_mutex_t* mutex) noexcept {
  if (mutex->__data.__owner != ::gettid()) return false;
  const Held& held = instance.libc().held_locks;
  return std::ranges::find(held, static_cast<const void*>(mutex), &HeldLock::lock) == held.end();
}

/// Of one that processes share.
int lock_shared(Instance& instance, pthread_mutex_t* mutex, Deadline deadline) {
  const auto is_own = [&] { return mutex->__data.__owner == ::gettid() && !is_held_by_neighbour(instance, mutex); };
  return is_own() ? ::pthread_mutex_lock(mutex) : lock_in_turn(instance, deadline, [&] {
    return is_held_by_neighbour(instance, mutex) ? EBUSY : ::pthread_mutex_trylock(mutex);
  });
}

int lock_unshared(const void* caller, pthread_mutex_t* mutex) noexcept {
  if (const int result = ::pthread_mutex_trylock(mutex); result != EBUSY) return result;
  Instance* const instance = sharing(caller);
  if (instance == nullptr) return ::pthread_mutex_lock(mutex);
  if (mutex->__data.__owner == ::gettid() && (mutex->__data.__kind & 3) == PTHREAD_MUTEX_ERRORCHECK) return EDEADLK;
  return lock_in_turn(*instance, std::nullopt, [=] { return ::pthread_mutex_trylock(mutex); });
}

/// After a try to lock it: its result.
int locked(const void* caller, pthread_mutex_t* mutex, int result) {
  if ((result == 0 || result == EOWNERDEAD) && is_owned(mutex)) hold(caller, mutex, is_robust(mutex) ? mutex : nullptr);
  return result;
}

int lock_mutex(const void* caller, pthread_mutex_t* mutex) noexcept {
  Instance* const instance = is_shared_and_owned(mutex) ? sharing(caller) : nullptr;
  return locked(caller, mutex,
                instance != nullptr ? lock_shared(*instance, mutex, std::nullopt) : lock_unshared(caller, mutex));
}

int bound_mutex_lock(pthread_mutex_t* mutex) { return lock_mutex(__builtin_return_address(0), mutex); }

int try_mutex(const void* caller, pthread_mutex_t* mutex) noexcept {
  Instance* const instance = is_shared_and_owned(mutex) ? sharing(caller) : nullptr;
  if (instance != nullptr && is_held_by_neighbour(*instance, mutex)) return EBUSY;
  return locked(caller, mutex, ::pthread_mutex_trylock(mutex));
}

int bound_mutex_trylock(pthread_mutex_t* mutex) { return try_mutex(__builtin_return_address(0), mutex); }

int unlock_mutex(const void* caller, pthread_mutex_t* mutex) noexcept {
  if (!is_owned(mutex)) return ::pthread_mutex_unlock(mutex);
  if (is_shared_and_owned(mutex)) [[unlikely]] {
    Instance* const instance = sharing(caller);
    if (instance != nullptr && is_held_by_neighbour(*instance, mutex)) return EPERM;
  }
  const int result = ::pthread_mutex_unlock(mutex);
  if (result == 0) let_go(caller, mutex);
  return result;
}

int bound_mutex_unlock(pthread_mutex_t* mutex) { return unlock_mutex(__builtin_return_address(0), mutex); }

int lock_mutex_until(const void* caller, pthread_mutex_t* mutex, clockid_t clock, const timespec* time) noexcept {
  Instance* const instance = sharing(caller);
  Deadline deadline;
  if (instance == nullptr || find_deadline(clock, time, deadline) != 0)
    return locked(caller, mutex, ::pthread_mutex_clocklock(mutex, clock, time));
  if (is_shared_and_owned(mutex)) return locked(caller, mutex, lock_shared(*instance, mutex, deadline));
  return locked(caller, mutex, lock_in_turn(*instance, deadline, [=] { return ::pthread_mutex_trylock(mutex); }));
}

int bound_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* time) {
  return lock_mutex_until(__builtin_return_address(0), mutex, clock, time);
}

int bound_mutex_timedlock(pthread_mutex_t* mutex, const timespec* time) {
  return lock_mutex_until(__builtin_return_address(0), mutex, CLOCK_REALTIME, time);
}

pthread_mutex_t* mutex_of(mtx_t* mutex) noexcept { return reinterpret_cast<pthread_mutex_t*>(mutex); }

/// As C11 has it.
int in_words_of_c11(int result) noexcept {
  if (result == 0) return thrd_success;
  if (result == ETIMEDOUT) return thrd_timedout;
  return result == EBUSY ? thrd_busy : thrd_error;
}

int bound_mtx_lock(mtx_t* mutex) { return in_words_of_c11(lock_mutex(__builtin_return_address(0), mutex_of(mutex))); }
int bound_mtx_trylock(mtx_t* mutex) { return in_words_of_c11(try_mutex(__builtin_return_address(0), mutex_of(mutex))); }
int bound_mtx_timedlock(mtx_t* mutex, const timespec* time) {
  return in_words_of_c11(lock_mutex_until(__builtin_return_address(0), mutex_of(mutex), CLOCK_REALTIME, time));
}
int bound_mtx_unlock(mtx_t* mutex) {
  return in_words_of_c11(unlock_mutex(__builtin_return_address(0), mutex_of(mutex)));
}

/// Still mapped, and can be read.
bool is_there(const pthread_mutex_t& mutex) noexcept {
  pthread_mutex_t copy;
  const iovec to{&copy, sizeof copy};
  const iovec from{const_cast<pthread_mutex_t*>(&mutex), sizeof mutex};
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == static_cast<ssize_t>(sizeof mutex);
}

/// What the system does for a thread that ends with a robust mutex, whose next owner is told by EOWNERDEAD; but the
/// thread goes on, so it comes off the thread's list, too. Sources: robust-futexes.txt of Linux' documentation, and
/// glibc's DEQUEUE_MUTEX.
void abandon(pthread_mutex_t& mutex) noexcept {
  auto& state = mutex.__data;
  const std::atomic_ref<int> word(state.__lock);
  const auto bits = static_cast<unsigned>(word.load(std::memory_order_relaxed));  // relaxed: its owner is this thread
  if (static_cast<pid_t>(bits & FUTEX_TID_MASK) != ::gettid()) return;
  // The kernel alone can give on one with priority inheritance that others wait for, and does not tell them.
  if ((state.__kind & 0x20) != 0 && (bits & FUTEX_WAITERS) != 0) {
    while (::pthread_mutex_unlock(&mutex) == 0) {  // as often as it is locked
    }
    return;
  }
  const auto entry_of = [](const __pthread_internal_list* next) {  // the system marks pointers by their last bit
    return reinterpret_cast<__pthread_internal_list*>((reinterpret_cast<std::uintptr_t>(next) & ~std::uintptr_t{1}) -
                                                      offsetof(__pthread_internal_list, __next));
  };
  entry_of(state.__list.__next)->__prev = state.__list.__prev;
  entry_of(state.__list.__prev)->__next = state.__list.__next;
  state.__list = {};
  state.__owner = 0;
  const unsigned waits = bits & FUTEX_WAITERS;
  const auto before = static_cast<unsigned>(
      word.exchange(static_cast<int>(waits | FUTEX_OWNER_DIED), std::memory_order_release));  // what it has guarded
  if (((before | waits) & FUTEX_WAITERS) != 0) ::syscall(SYS_futex, &state.__lock, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// ---------------------------------------------------------------- condition variables

/// The last condition that the flow has waited for: a program that finds it unmet comes back at once.
struct LastCondition {
  const pthread_cond_t* condition;
  WaitClock::time_point since;
  WaitClock::time_point returned;
};

/// How long to be away this time: as Patience has it, over all waits for one condition.
std::chrono::nanoseconds pause_for(LastCondition& last, const pthread_cond_t* condition) noexcept {
  using namespace std::chrono_literals;
  constexpr auto at_once = 20us;
  const WaitClock::time_point now = WaitClock::now();
  if (last.condition != condition || now - last.returned > 100us) last = {condition, now, now};
  const auto waited = now - last.since;
  return waited < at_once ? 0ns : std::clamp<std::chrono::nanoseconds>(waited / 8, at_once, 5ms);
}

int condition_in_turn(const void* caller, Instance& instance, pthread_cond_t* condition, pthread_mutex_t* mutex,
                      Deadline deadline) {
  constinit static thread_local LastCondition last{};  // a hint: of another cell's it is none
  pthread_testcancel();
  if (const int error = unlock_mutex(caller, mutex); error != 0) return error;
  const bool late = deadline && WaitClock::now() >= *deadline;
  if (!late) {
    std::chrono::nanoseconds pause = pause_for(last, condition);
    if (deadline) pause = std::clamp<std::chrono::nanoseconds>(*deadline - WaitClock::now(), {}, pause);
    let_others_run(instance, pause);
    expire_timers(instance);
    deliver_pending_signals(instance);
  }
  if (const int error = lock_mutex(caller, mutex); error != 0) return error;
  return late ? ETIMEDOUT : 0;
}

// Not noexcept: a thread that is cancelled in its wait unwinds from there.
int wait_for_condition(const void* caller, pthread_cond_t* condition, pthread_mutex_t* mutex) {
  Instance* const instance = sharing(caller);
  if (instance == nullptr) return ::pthread_cond_wait(condition, mutex);
  return condition_in_turn(caller, *instance, condition, mutex, std::nullopt);
}

int bound_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait_for_condition(__builtin_return_address(0), condition, mutex);
}

int bound_cnd_wait(cnd_t* condition, mtx_t* mutex) {
  const int error = wait_for_condition(__builtin_return_address(0), reinterpret_cast<pthread_cond_t*>(condition),
                                       reinterpret_cast<pthread_mutex_t*>(mutex));
  return error == 0 ? thrd_success : thrd_error;
}

int bound_cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* time) {
  const void* const caller = __builtin_return_address(0);
  Instance* const instance = sharing(caller);
  Deadline deadline;
  if (instance == nullptr || find_deadline(CLOCK_REALTIME, time, deadline) != 0)
    return ::cnd_timedwait(condition, mutex, time);
  const int error = condition_in_turn(caller, *instance, reinterpret_cast<pthread_cond_t*>(condition),
                                      reinterpret_cast<pthread_mutex_t*>(mutex), deadline);
  return error == 0 ? thrd_success : error == ETIMEDOUT ? thrd_timedout : thrd_error;
}

/// The clock of its timed waits (glibc: bit 1 of the field that has the number of references).
clockid_t clock_of(const pthread_cond_t* condition) noexcept {
  return (condition->__data.__wrefs & 2U) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

int bound_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* time) {
  const void* const caller = __builtin_return_address(0);
  Instance* const instance = sharing(caller);
  Deadline deadline;
  if (instance == nullptr || find_deadline(clock_of(condition), time, deadline) != 0)
    return ::pthread_cond_timedwait(condition, mutex, time);
  return condition_in_turn(caller, *instance, condition, mutex, deadline);
}

int bound_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* time) {
  const void* const caller = __builtin_return_address(0);
  Instance* const instance = sharing(caller);
  Deadline deadline;
  if (instance == nullptr || find_deadline(clock, time, deadline) != 0)
    return ::pthread_cond_clockwait(condition, mutex, clock, time);
  return condition_in_turn(caller, *instance, condition, mutex, deadline);
}

// ---------------------------------------------------------------- locks for readers and writers, spin locks

template <auto native, auto attempt, class Lock>
int lock_or_wait(const void* caller, Lock* lock) noexcept {
  if (const int result = attempt(lock); result != EBUSY) return result;
  Instance* const instance = sharing(caller);
  return instance == nullptr ? native(lock) : lock_in_turn(*instance, std::nullopt, [=] { return attempt(lock); });
}

int bound_rdlock(pthread_rwlock_t* lock) {
  return lock_or_wait<::pthread_rwlock_rdlock, ::pthread_rwlock_tryrdlock>(__builtin_return_address(0), lock);
}
/// After a try to lock it for writing: its result.
int locked(const void* caller, const pthread_rwlock_t* lock, int result) {
  if (result == 0) hold(caller, lock);
  return result;
}
int bound_wrlock(pthread_rwlock_t* lock) {
  const void* const caller = __builtin_return_address(0);
  return locked(caller, lock, lock_or_wait<::pthread_rwlock_wrlock, ::pthread_rwlock_trywrlock>(caller, lock));
}
int bound_trywrlock(pthread_rwlock_t* lock) {
  return locked(__builtin_return_address(0), lock, ::pthread_rwlock_trywrlock(lock));
}
int bound_rwlock_unlock(pthread_rwlock_t* lock) {
  const void* const caller = __builtin_return_address(0);
  const int result = ::pthread_rwlock_unlock(lock);
  if (result == 0) let_go(caller, lock);
  return result;
}
int bound_spin_lock(pthread_spinlock_t* lock) {
  if (const int result = ::pthread_spin_trylock(lock); result != EBUSY) return result;
  Instance* const instance = sharing(__builtin_return_address(0));
  if (instance == nullptr) return ::pthread_spin_lock(lock);
  return lock_in_turn(*instance, std::nullopt, [=] { return ::pthread_spin_trylock(lock); });
}

template <auto native, auto attempt>
int lock_in_time(const void* caller, pthread_rwlock_t* lock, clockid_t clock, const timespec* time) noexcept {
  Instance* const instance = sharing(caller);
  Deadline deadline;
  if (instance == nullptr || find_deadline(clock, time, deadline) != 0) return native(lock, clock, time);
  return lock_in_turn(*instance, deadline, [=] { return attempt(lock); });
}
constexpr auto read_in_time = lock_in_time<::pthread_rwlock_clockrdlock, ::pthread_rwlock_tryrdlock>;
constexpr auto write_in_time = lock_in_time<::pthread_rwlock_clockwrlock, ::pthread_rwlock_trywrlock>;

int bound_timedrdlock(pthread_rwlock_t* lock, const timespec* time) {
  return read_in_time(__builtin_return_address(0), lock, CLOCK_REALTIME, time);
}
int bound_clockrdlock(pthread_rwlock_t* lock, clockid_t clock, const timespec* time) {
  return read_in_time(__builtin_return_address(0), lock, clock, time);
}
int bound_timedwrlock(pthread_rwlock_t* lock, const timespec* time) {
  const void* const caller = __builtin_return_address(0);
  return locked(caller, lock, write_in_time(caller, lock, CLOCK_REALTIME, time));
}
int bound_clockwrlock(pthread_rwlock_t* lock, clockid_t clock, const timespec* time) {
  const void* const caller = __builtin_return_address(0);
  return locked(caller, lock, write_in_time(caller, lock, clock, time));
}

// ---------------------------------------------------------------- files

void bound_flockfile(FILE* file) {
  ::flockfile(file);
  hold(__builtin_return_address(0), file);
}
int bound_ftrylockfile(FILE* file) {
  const int result = ::ftrylockfile(file);
  if (result == 0) hold(__builtin_return_address(0), file);
  return result;
}
void bound_funlockfile(FILE* file) {
  ::funlockfile(file);
  let_go(__builtin_return_address(0), file);
}

// ---------------------------------------------------------------- barriers

/// Who arrives for a task. It outlives a task that the machine's end takes away.
struct Arrival {
  std::atomic<bool> over{false};
  int result = 0;
};

int arrive_in_turn(Instance& instance, pthread_barrier_t* barrier) noexcept {
  std::shared_ptr<Arrival> arrival;
  try {
    arrival = std::make_shared<Arrival>();
    const WithoutProgramContext without;
    os::quiet_thread("aplib-barrier", [arrival, barrier] {
      arrival->result = ::pthread_barrier_wait(barrier);
      arrival->over.store(true, std::memory_order_release);  // release: the result
    }).detach();
  } catch (const std::exception&) {  // no thread can be had
    return ::pthread_barrier_wait(barrier);
  }
  wait_in_turn(instance, std::nullopt, EndedBy::nothing, [&] {
    return arrival->over.load(std::memory_order_acquire);  // acquire: the result
  });
  return arrival->result;
}

int bound_barrier_wait(pthread_barrier_t* barrier) {
  Instance* const instance = sharing(__builtin_return_address(0));
  return instance != nullptr ? arrive_in_turn(*instance, barrier) : ::pthread_barrier_wait(barrier);
}

// ---------------------------------------------------------------- the ends of threads

// The kernel's thread that a task has named itself by may be another one than it runs on now.
bool is_caller(pthread_t thread) noexcept { return pthread_equal(thread, own_thread()) != 0; }

/// Ended by no signal, and a cancellation point.
int try_join(pthread_t thread, void** result) {
  pthread_testcancel();
  return ::pthread_tryjoin_np(thread, result);
}

int bound_join(pthread_t thread, void** result) {
  if (is_caller(thread)) return EDEADLK;
  Instance* const instance = sharing(__builtin_return_address(0));
  if (instance == nullptr) return ::pthread_join(thread, result);
  return lock_in_turn(*instance, std::nullopt, [=] { return try_join(thread, result); });
}

int join_in_time(const void* caller, pthread_t thread, void** result, clockid_t clock, const timespec* time) {
  if (is_caller(thread)) return EDEADLK;
  Instance* const instance = sharing(caller);
  Deadline deadline;
  if (instance == nullptr || find_deadline(clock, time, deadline) != 0)
    return ::pthread_clockjoin_np(thread, result, clock, time);
  return lock_in_turn(*instance, deadline, [=] { return try_join(thread, result); });
}
int bound_timedjoin(pthread_t thread, void** result, const timespec* time) {
  return join_in_time(__builtin_return_address(0), thread, result, CLOCK_REALTIME, time);
}
int bound_clockjoin(pthread_t thread, void** result, clockid_t clock, const timespec* time) {
  return join_in_time(__builtin_return_address(0), thread, result, clock, time);
}

int bound_thrd_join(thrd_t thread, int* result) {
  if (is_caller(thread)) return thrd_error;
  Instance* const instance = sharing(__builtin_return_address(0));
  if (instance == nullptr) return ::thrd_join(thread, result);
  void* ended = nullptr;
  if (lock_in_turn(*instance, std::nullopt, [&] { return try_join(thread, &ended); }) != 0) return thrd_error;
  if (result != nullptr) *result = static_cast<int>(reinterpret_cast<std::intptr_t>(ended));
  return thrd_success;
}

// ---------------------------------------------------------------- queues of messages of POSIX
// A time that is over makes one attempt of a call.

constexpr timespec over{};

template <class Try>
ssize_t try_queue(Instance& instance, const timespec* time, Try attempt) {
  ssize_t result = 0;
  std::optional<WaitClock::time_point> deadline;
  if (time != nullptr) deadline = deadline_at(CLOCK_REALTIME, *time);
  const Waited how = wait_in_turn(instance, deadline, EndedBy::without_restart, [&] {
    result = attempt();
    return result >= 0 || errno_now() != ETIMEDOUT;
  });
  if (how == Waited::done) return result;
  return failed(how == Waited::late ? ETIMEDOUT : EINTR);
}

bool is_queue_time(const timespec* time) noexcept { return time == nullptr || is_time(*time); }

ssize_t receive_message(const void* caller, mqd_t queue, char* bytes, std::size_t room, unsigned* priority,
                        const timespec* time) {
  queue = redirected(caller, queue);
  Instance* const instance = is_queue_time(time) ? sharing(caller) : nullptr;
  if (instance == nullptr) {
    return time == nullptr ? ::mq_receive(queue, bytes, room, priority)
                           : ::mq_timedreceive(queue, bytes, room, priority, time);
  }
  return try_queue(*instance, time, [=] { return ::mq_timedreceive(queue, bytes, room, priority, &over); });
}

ssize_t bound_mq_receive(mqd_t queue, char* bytes, std::size_t room, unsigned* priority) {
  return receive_message(__builtin_return_address(0), queue, bytes, room, priority, nullptr);
}
ssize_t bound_mq_timedreceive(mqd_t queue, char* bytes, std::size_t room, unsigned* priority, const timespec* time) {
  return receive_message(__builtin_return_address(0), queue, bytes, room, priority, time);
}

int send_message(const void* caller, mqd_t queue, const char* bytes, std::size_t count, unsigned priority,
                 const timespec* time) {
  queue = redirected(caller, queue);
  Instance* const instance = is_queue_time(time) ? sharing(caller) : nullptr;
  if (instance == nullptr) {
    return time == nullptr ? ::mq_send(queue, bytes, count, priority)
                           : ::mq_timedsend(queue, bytes, count, priority, time);
  }
  return static_cast<int>(
      try_queue(*instance, time, [=] { return ::mq_timedsend(queue, bytes, count, priority, &over); }));
}

int bound_mq_send(mqd_t queue, const char* bytes, std::size_t count, unsigned priority) {
  return send_message(__builtin_return_address(0), queue, bytes, count, priority, nullptr);
}
int bound_mq_timedsend(mqd_t queue, const char* bytes, std::size_t count, unsigned priority, const timespec* time) {
  return send_message(__builtin_return_address(0), queue, bytes, count, priority, time);
}

// ---------------------------------------------------------------- System V's semaphores and messages

template <class Try>
int try_in_turn(Instance& instance, std::optional<WaitClock::time_point> deadline, int none, Try attempt) {
  ssize_t result = 0;
  const Waited how = wait_in_turn(instance, deadline, EndedBy::all, [&] {
    result = attempt();
    return result >= 0 || errno_now() != none;
  });
  if (how != Waited::done) return failed(how == Waited::late ? none : EINTR);
  return static_cast<int>(result);
}

int semaphores_in_turn(Instance& instance, int set, const sembuf* operations, std::size_t count,
                       std::optional<WaitClock::time_point> deadline) {
  std::vector<sembuf> all(operations, operations + count);
  for (sembuf& each : all) each.sem_flg = static_cast<short>(each.sem_flg | IPC_NOWAIT);
  return try_in_turn(instance, deadline, EAGAIN, [&] { return ::semop(set, all.data(), all.size()); });
}

/// What SEM_UNDO asks for at the end of a process is done at that of a cell. Each undo of ours is one for the system,
/// too, so the process's end does nothing twice.
struct Undos {
  using Semaphore = std::pair<int, unsigned short>;  // of a set, by number

  std::mutex mutex;
  std::map<std::uint32_t, std::map<Semaphore, int>> changes;  // by LibcState::number; what gives back the rest

  /// Without memory, it is not undone.
  void note(std::uint32_t owner, int set, std::span<const sembuf> operations) noexcept {
    const std::lock_guard lock(mutex);
    try {
      for (const sembuf& each : operations) {
        if ((each.sem_flg & SEM_UNDO) != 0) changes[owner][{set, each.sem_num}] -= each.sem_op;
      }
    } catch (const std::bad_alloc&) {
    }
  }
  /// Its value was set: nothing is left to undo. No number: all of the set.
  void forget(int set, std::optional<unsigned short> number) {
    const std::lock_guard lock(mutex);
    for (auto& [owner, of_owner] : changes) {
      std::erase_if(of_owner, [&](const auto& each) {
        return each.first.first == set && (!number || each.first.second == *number);
      });
    }
  }
  void undo(std::uint32_t owner) {
    const std::lock_guard lock(mutex);
    const auto found = changes.find(owner);
    if (found == changes.end()) return;
    for (const auto& [semaphore, change] : found->second) {
      if (change == 0) continue;
      sembuf operation{semaphore.second, static_cast<short>(change), SEM_UNDO | IPC_NOWAIT};
      if (::semop(semaphore.first, &operation, 1) == 0 || errno_now() != EAGAIN) continue;
      operation.sem_op = static_cast<short>(-::semctl(semaphore.first, semaphore.second, GETVAL));  // as far as it goes
      if (operation.sem_op != 0) ::semop(semaphore.first, &operation, 1);
    }
    changes.erase(found);
  }
};
Undos& undos() {
  static auto* const all = new Undos;  // instances may end late
  return *all;
}

/// `result` of a call for these operations, which counts where it is 0.
int with_undo(const void* caller, int set, std::span<const sembuf> operations, int result) {
  const bool asks =
      result == 0 && std::ranges::any_of(operations, [](const sembuf& each) { return (each.sem_flg & SEM_UNDO) != 0; });
  if (Instance* const instance = asks ? calling(caller) : nullptr)
    undos().note(instance->libc().number, set, operations);
  return result;
}

int own_semctl(int set, int number, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);  // libc reads it so for every command
  va_end(arguments);
  const int result = ::semctl(set, number, command, argument);
  if (result < 0) return result;
  if (command == SETVAL) undos().forget(set, static_cast<unsigned short>(number));
  if (command == SETALL || command == IPC_RMID) undos().forget(set, std::nullopt);
  return result;
}

bool is_without_wait(const sembuf* operations, std::size_t count) noexcept {
  return std::any_of(operations, operations + count,
                     [](const sembuf& each) { return (each.sem_flg & IPC_NOWAIT) != 0; });
}

int operate(const void* caller, int set, sembuf* operations, std::size_t count, const timespec* timeout) {
  Instance* const instance = sharing(caller);
  const int result = instance == nullptr || is_without_wait(operations, count)
                         ? ::semtimedop(set, operations, count, timeout)
                         : semaphores_in_turn(*instance, set, operations, count, deadline_in(timeout));
  return with_undo(caller, set, {operations, count}, result);
}

int bound_semop(int set, sembuf* operations, std::size_t count) {
  return operate(__builtin_return_address(0), set, operations, count, nullptr);
}
int bound_semtimedop(int set, sembuf* operations, std::size_t count, const timespec* timeout) {
  return operate(__builtin_return_address(0), set, operations, count, timeout);
}

int bound_aio_suspend(const aiocb* const* operations, int count, const timespec* timeout) {
  Instance* const instance = timeout == nullptr || is_time(*timeout) ? sharing(__builtin_return_address(0)) : nullptr;
  if (instance == nullptr) return ::aio_suspend(operations, count, timeout);
  return try_in_turn(*instance, deadline_in(timeout), EAGAIN, [=] { return ::aio_suspend(operations, count, &over); });
}

ssize_t bound_msgrcv(int queue, void* message, std::size_t bytes, long type, int flags) {
  Instance* const instance = (flags & IPC_NOWAIT) == 0 ? sharing(__builtin_return_address(0)) : nullptr;
  if (instance == nullptr) return ::msgrcv(queue, message, bytes, type, flags);
  return try_in_turn(*instance, std::nullopt, ENOMSG,
                     [=] { return ::msgrcv(queue, message, bytes, type, flags | IPC_NOWAIT); });
}

int bound_msgsnd(int queue, const void* message, std::size_t bytes, int flags) {
  Instance* const instance = (flags & IPC_NOWAIT) == 0 ? sharing(__builtin_return_address(0)) : nullptr;
  if (instance == nullptr) return ::msgsnd(queue, message, bytes, flags);
  return try_in_turn(*instance, std::nullopt, EAGAIN,
                     [=] { return ::msgsnd(queue, message, bytes, flags | IPC_NOWAIT); });
}

}  // namespace

long futex_in_turn(Instance& instance, const long* words) {
  constexpr std::chrono::milliseconds longest(5);  // somebody may have woken it without a change
  const bool absolute = (words[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
  const auto* const time = reinterpret_cast<const timespec*>(words[3]);
  if (time != nullptr && !is_time(*time)) return failed(EINVAL);
  const bool real = (words[1] & FUTEX_CLOCK_REALTIME) != 0;
  std::optional<WaitClock::time_point> deadline;
  if (time != nullptr)
    deadline = absolute ? deadline_at(real ? CLOCK_REALTIME : CLOCK_MONOTONIC, *time) : deadline_in(time);
  const timespec none{};
  int error = 0;
  const auto is_changed = [&] {  // a wait that is over at once
    ::syscall(SYS_futex, words[0], FUTEX_WAIT | (words[1] & FUTEX_PRIVATE_FLAG), words[2], &none);
    error = errno_now();
    return error != ETIMEDOUT && error != EINTR;
  };
  if (is_changed()) return failed(error);
  const auto soon = WaitClock::now() + longest;
  const bool until_deadline = deadline && *deadline <= soon;
  const Waited how = wait_in_turn(instance, until_deadline ? *deadline : soon,
                                  time != nullptr ? EndedBy::all : EndedBy::without_restart, is_changed);
  if (how == Waited::interrupted) return failed(EINTR);
  if (how == Waited::late) return until_deadline ? failed(ETIMEDOUT) : 0;
  return error == EAGAIN ? 0 : failed(error);
}

void undo_semaphores(Instance& instance) noexcept { undos().undo(instance.libc().number); }

void abandon_locks(Instance& instance) noexcept {
  Held& held = instance.libc().held_locks;
  if (held.empty() || on_program_thread()) return;
  for (const HeldLock& each : held) {
    if (each.robust != nullptr && is_there(*each.robust)) abandon(*each.robust);
  }
  held.clear();
  instance.services().keep_thread(false);
}

std::span<const Binding> synchronization_bindings() {
  static const Binding table[] = {
      Binding::of("sem_wait", bound_sem_wait),
      Binding::of("sem_timedwait", bound_sem_timedwait),
      Binding::of("sem_clockwait", bound_sem_clockwait),
      Binding::of("pthread_mutex_lock", bound_mutex_lock),
      Binding::of("pthread_mutex_trylock", bound_mutex_trylock),
      Binding::of("pthread_mutex_unlock", bound_mutex_unlock),
      Binding::of("pthread_mutex_timedlock", bound_mutex_timedlock),
      Binding::of("pthread_mutex_clocklock", bound_mutex_clocklock),
      Binding::of("mtx_lock", bound_mtx_lock),
      Binding::of("mtx_trylock", bound_mtx_trylock),
      Binding::of("mtx_timedlock", bound_mtx_timedlock),
      Binding::of("mtx_unlock", bound_mtx_unlock),
      Binding::of("pthread_cond_wait", bound_cond_wait),
      Binding::of("pthread_cond_timedwait", bound_cond_timedwait),
      Binding::of("pthread_cond_clockwait", bound_cond_clockwait),
      Binding::of("cnd_wait", bound_cnd_wait),
      Binding::of("cnd_timedwait", bound_cnd_timedwait),
      Binding::of("pthread_rwlock_rdlock", bound_rdlock),
      Binding::of("pthread_rwlock_wrlock", bound_wrlock),
      Binding::of("pthread_rwlock_trywrlock", bound_trywrlock),
      Binding::of("pthread_rwlock_unlock", bound_rwlock_unlock),
      Binding::of("pthread_rwlock_timedrdlock", bound_timedrdlock),
      Binding::of("pthread_rwlock_timedwrlock", bound_timedwrlock),
      Binding::of("pthread_rwlock_clockrdlock", bound_clockrdlock),
      Binding::of("pthread_rwlock_clockwrlock", bound_clockwrlock),
      Binding::of("pthread_spin_lock", bound_spin_lock),
      Binding::of("flockfile", bound_flockfile),
      Binding::of("ftrylockfile", bound_ftrylockfile),
      Binding::of("funlockfile", bound_funlockfile),
      Binding::of("pthread_barrier_wait", bound_barrier_wait),
      Binding::of("pthread_join", bound_join),
      Binding::of("pthread_timedjoin_np", bound_timedjoin),
      Binding::of("pthread_clockjoin_np", bound_clockjoin),
      Binding::of("thrd_join", bound_thrd_join),
      Binding::of("mq_receive", bound_mq_receive),
      Binding::of("mq_timedreceive", bound_mq_timedreceive),
      Binding::of("mq_send", bound_mq_send),
      Binding::of("mq_timedsend", bound_mq_timedsend),
      Binding::of("aio_suspend", bound_aio_suspend),
      Binding::of("aio_suspend64", bound_aio_suspend),
      Binding::of("semctl", own_semctl),
      Binding::of("semop", bound_semop),
      Binding::of("semtimedop", bound_semtimedop),
      Binding::of("msgrcv", bound_msgrcv),
      Binding::of("msgsnd", bound_msgsnd),
  };
  return table;
}

}  // namespace aplib::loader::libc
