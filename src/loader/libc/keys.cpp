// SPDX-License-Identifier: MIT
// Keys of thread-specific data (pthread_key_create, tss_create). The C library's keys belong to the process, and their
// values to the thread, which carries many cells. Here keys belong to the instance, and values to the task or thread of
// the program: they go where it goes.
//
// Destructors run when a task that the program spawned or a thread that it made ends, and when main() leaves by
// pthread_exit(). As in a process, exit() and the return of main() run none.
//
// Source: POSIX.1-2017, pthread_key_create, pthread_key_delete; C11 7.26.6.
#include <pthread.h>
#include <threads.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include "loader/context.hpp"
#include "loader/instance.hpp"
#include "loader/libc/bindings.hpp"
#include "loader/libc/caller.hpp"
#include "loader/libc/end.hpp"

namespace aplib::loader::libc {

using KeyDestructor = void (*)(void*);

/// The keys of an instance.
struct Keys {
  struct Key {
    /// Odd: the key is in use. A value is of the use in which it was set. Relaxed everywhere: who uses a key has been
    /// told of it by who made it.
    std::atomic<std::uint32_t> use{0};
    std::atomic<KeyDestructor> destructor{nullptr};
  };
  std::mutex mutex;  // of who makes and deletes
  std::array<Key, PTHREAD_KEYS_MAX> keys;

  [[nodiscard]] std::uint32_t use_of(pthread_key_t key) const noexcept {
    return key < keys.size() ? keys[key].use.load(std::memory_order_relaxed) : 0;
  }
};

namespace {

constexpr bool is_used(std::uint32_t use) noexcept { return use % 2 != 0; }

TaskContext* flow_of(const void* caller) {
  TaskContext* const context = here();
  return context != nullptr ? context : adopt_thread(caller);
}

int create_key(Instance& instance, pthread_key_t* key, KeyDestructor destructor) {
  try {
    Keys& all = shared_part(instance.libc().keys);
    const std::lock_guard lock(all.mutex);
    for (std::size_t i = 0; i < all.keys.size(); ++i) {
      Keys::Key& one = all.keys[i];
      const std::uint32_t use = one.use.load(std::memory_order_relaxed);
      if (is_used(use)) continue;
      one.destructor.store(destructor, std::memory_order_relaxed);
      one.use.store(use + 1, std::memory_order_relaxed);
      *key = static_cast<pthread_key_t>(i);
      return 0;
    }
    return EAGAIN;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int delete_key(Instance& instance, pthread_key_t key) {
  Keys* const all = instance.libc().keys.part;
  if (all == nullptr) return EINVAL;
  const std::lock_guard lock(all->mutex);
  const std::uint32_t use = all->use_of(key);
  if (!is_used(use)) return EINVAL;
  all->keys[key].use.store(use + 1, std::memory_order_relaxed);
  return 0;
}

void* value_of(const TaskContext& context, pthread_key_t key) noexcept {
  if (key >= context.key_values.size()) return nullptr;
  const TaskContext::KeyValue& one = context.key_values[key];
  return one.value != nullptr && context.instance->libc().keys.part->use_of(key) == one.use ? one.value : nullptr;
}

int set_value(TaskContext& context, pthread_key_t key, const void* value) noexcept {
  const Keys* const all = context.instance->libc().keys.part;
  const std::uint32_t use = all != nullptr ? all->use_of(key) : 0;
  if (!is_used(use)) return EINVAL;
  try {
    if (key >= context.key_values.size()) {
      if (value == nullptr) return 0;
      context.key_values.resize(key + 1);
    }
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  context.key_values[key] = {const_cast<void*>(value), use};
  return 0;
}

}  // namespace

void run_key_destructors(TaskContext& context) {
  const Keys* const all = context.instance->libc().keys.part;
  bool again = all != nullptr;
  for (int round = 0; again && round < PTHREAD_DESTRUCTOR_ITERATIONS; ++round) {
    again = false;
    for (pthread_key_t key = 0; key < context.key_values.size(); ++key) {  // a destructor may set more
      void* const value = value_of(context, key);
      const KeyDestructor destructor = all->keys[key].destructor.load(std::memory_order_relaxed);
      if (value == nullptr || destructor == nullptr) continue;
      context.key_values[key].value = nullptr;
      destructor(value);
      again = true;
    }
  }
  context.key_values.clear();
}

namespace {

int bound_key_create(Instance& instance, pthread_key_t* key, KeyDestructor destructor) {
  return create_key(instance, key, destructor);
}
int bound_key_delete(Instance& instance, pthread_key_t key) { return delete_key(instance, key); }

void* bound_getspecific(pthread_key_t key) {
  const TaskContext* const context = flow_of(__builtin_return_address(0));
  return context != nullptr ? value_of(*context, key) : ::pthread_getspecific(key);
}
int bound_setspecific(pthread_key_t key, const void* value) {
  TaskContext* const context = flow_of(__builtin_return_address(0));
  return context != nullptr ? set_value(*context, key, value) : ::pthread_setspecific(key, value);
}

int bound_tss_create(Instance& instance, tss_t* key, tss_dtor_t destructor) {
  return create_key(instance, key, destructor) == 0 ? thrd_success : thrd_error;
}
void bound_tss_delete(Instance& instance, tss_t key) { delete_key(instance, key); }
int bound_tss_set(tss_t key, void* value) {
  TaskContext* const context = flow_of(__builtin_return_address(0));
  if (context == nullptr) return ::tss_set(key, value);
  return set_value(*context, key, value) == 0 ? thrd_success : thrd_error;
}

}  // namespace

std::span<const Binding> keys_bindings() {
  static const Binding table[] = {
      bound<::pthread_key_create, bound_key_create>("pthread_key_create"),
      bound<::pthread_key_create, bound_key_create>("__pthread_key_create"),
      bound<::pthread_key_delete, bound_key_delete>("pthread_key_delete"),
      Binding::of("pthread_getspecific", bound_getspecific),
      Binding::of("__pthread_getspecific", bound_getspecific),
      Binding::of("pthread_setspecific", bound_setspecific),
      Binding::of("__pthread_setspecific", bound_setspecific),
      bound<::tss_create, bound_tss_create>("tss_create"),
      bound<::tss_delete, bound_tss_delete>("tss_delete"),
      Binding::of("tss_get", bound_getspecific),
      Binding::of("tss_set", bound_tss_set),
  };
  return table;
}

}  // namespace aplib::loader::libc
