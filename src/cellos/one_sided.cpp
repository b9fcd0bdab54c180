// SPDX-License-Identifier: MIT
// put, get and their relatives in C.
#include "aplib/one_sided.hpp"
#include <cerrno>
#include "aplib/symmetric.hpp"
#include "cellos/check.hpp"

using namespace aplib;
using namespace aplib::cellos;
using detail::Fetch;

namespace {

Flag* flag(volatile int* address) { return reinterpret_cast<Flag*>(const_cast<int*>(address)); }

int put_bytes(const char* call, int cid, const void* local, int size, void* remote, volatile int* recv_flag,
              volatile int* send_flag, int ack) {
  const auto bytes = source(call, local, size);
  detail::put(call, destination(call, cid), bytes.data(), bytes.size(), remote,
              {flag(recv_flag), flag(send_flag), ack != 0});
  return 1;
}

detail::Blocks blocks(const char* call, const void* local, int local_stride, int item, int count, int remote_stride) {
  static_cast<void>(source(call, local, item));
  if (count < 0) api::fail(Errc::bad_argument, call, "the count of items is negative; give 0 or more");
  return {std::size_t(item), std::size_t(count), local_stride, remote_stride};
}

int fetch(const char* call, Fetch what, int cid, volatile int* remote, int value, int expected = 0) {
  return detail::fetch_as(call, what, destination(call, cid), const_cast<int*>(remote), value, expected);
}

long long fetch(const char* call, Fetch what, int cid, volatile long long* remote, long long value,
                long long expected = 0) {
  return detail::fetch_as(call, what, destination(call, cid), const_cast<long long*>(remote), value, expected);
}

}  // namespace

int cellos_put(int cid, const void* local, int size, void* remote, volatile int* recv_flag, volatile int* send_flag,
               int ack) {
  return put_bytes("put", cid, local, size, remote, recv_flag, send_flag, ack);
}

int cellos_put_local_flag_first(int cid, const void* local, int size, void* remote, volatile int* send_flag,
                                volatile int* recv_flag, int ack) {
  return put_bytes("put", cid, local, size, remote, recv_flag, send_flag, ack);
}

int cellos_get(int cid, void* local, int size, const void* remote, volatile int* local_flag,
               volatile int* remote_flag) {
  constexpr const char* call = "get";
  const auto bytes = target(call, local, size);
  detail::get(call, destination(call, cid), bytes.data(), bytes.size(), remote, {flag(local_flag), flag(remote_flag)});
  return 1;
}

int put_stride(int cid, const void* local, int local_stride, int item, int count, void* remote, int remote_stride,
               volatile int* recv_flag, volatile int* send_flag, int ack) {
  constexpr const char* call = "put_stride";
  detail::put(call, destination(call, cid), local, remote,
              blocks(call, local, local_stride, item, count, remote_stride),
              {flag(recv_flag), flag(send_flag), ack != 0});
  return 1;
}

int get_stride(int cid, void* local, int local_stride, int item, int count, const void* remote, int remote_stride,
               volatile int* local_flag, volatile int* remote_flag) {
  constexpr const char* call = "get_stride";
  detail::get(call, destination(call, cid), local, remote,
              blocks(call, local, local_stride, item, count, remote_stride), {flag(local_flag), flag(remote_flag)});
  return 1;
}

int amcheck(const volatile int* flag, int n) {
  if (flag == nullptr) [[unlikely]]
    fail_null("amcheck", "the flag");
  const Caller caller = APLIB_CALLER("amcheck");
  note(caller);
  detail::wait_flag(caller.call, const_cast<const int*>(flag), n);
  return 1;
}

int amackwait(void) {
  detail::wait_acknowledged("amackwait");
  return 1;
}

int cellos_fetch_add(int cid, volatile int* remote, int value) {
  return fetch("cellos_fetch_add", Fetch::add, cid, remote, value);
}
int cellos_fetch_and(int cid, volatile int* remote, int value) {
  return fetch("cellos_fetch_and", Fetch::bit_and, cid, remote, value);
}
int cellos_fetch_or(int cid, volatile int* remote, int value) {
  return fetch("cellos_fetch_or", Fetch::bit_or, cid, remote, value);
}
int cellos_fetch_xor(int cid, volatile int* remote, int value) {
  return fetch("cellos_fetch_xor", Fetch::bit_xor, cid, remote, value);
}
int cellos_fetch_min(int cid, volatile int* remote, int value) {
  return fetch("cellos_fetch_min", Fetch::min, cid, remote, value);
}
int cellos_fetch_max(int cid, volatile int* remote, int value) {
  return fetch("cellos_fetch_max", Fetch::max, cid, remote, value);
}
int cellos_swap(int cid, volatile int* remote, int value) {
  return fetch("cellos_swap", Fetch::exchange, cid, remote, value);
}
int cellos_compare_swap(int cid, volatile int* remote, int expected, int value) {
  return fetch("cellos_compare_swap", Fetch::compare_exchange, cid, remote, value, expected);
}

long long cellos_fetch_add8(int cid, volatile long long* remote, long long value) {
  return fetch("cellos_fetch_add8", Fetch::add, cid, remote, value);
}
long long cellos_fetch_and8(int cid, volatile long long* remote, long long value) {
  return fetch("cellos_fetch_and8", Fetch::bit_and, cid, remote, value);
}
long long cellos_fetch_or8(int cid, volatile long long* remote, long long value) {
  return fetch("cellos_fetch_or8", Fetch::bit_or, cid, remote, value);
}
long long cellos_fetch_xor8(int cid, volatile long long* remote, long long value) {
  return fetch("cellos_fetch_xor8", Fetch::bit_xor, cid, remote, value);
}
long long cellos_fetch_min8(int cid, volatile long long* remote, long long value) {
  return fetch("cellos_fetch_min8", Fetch::min, cid, remote, value);
}
long long cellos_fetch_max8(int cid, volatile long long* remote, long long value) {
  return fetch("cellos_fetch_max8", Fetch::max, cid, remote, value);
}
long long cellos_swap8(int cid, volatile long long* remote, long long value) {
  return fetch("cellos_swap8", Fetch::exchange, cid, remote, value);
}
long long cellos_compare_swap8(int cid, volatile long long* remote, long long expected, long long value) {
  return fetch("cellos_compare_swap8", Fetch::compare_exchange, cid, remote, value, expected);
}

int ap_init(void) {
  require_cell("ap_init");
  api::barrier("ap_init", false, Scope::all);  // behind it every cell's memory can be reached
  return 1;
}

// ------------------------------------------------ symmetric memory, for programs that are linked with the library

void* ap_malloc(size_t bytes) { return api::symmetric_allocate("ap_malloc", bytes, symmetric_alignment); }

void* ap_calloc(size_t count, size_t bytes) {
  std::size_t whole = 0;
  if (__builtin_mul_overflow(count, bytes, &whole)) {
    errno = ENOMEM;
    return nullptr;
  }
  return api::symmetric_allocate("ap_calloc", whole, symmetric_alignment, true);
}

void* ap_realloc(void* memory, size_t bytes) {
  if (memory == nullptr || bytes != 0) return api::symmetric_resize("ap_realloc", memory, bytes);
  api::symmetric_free("ap_realloc", memory);
  return nullptr;
}

void* ap_aligned_alloc(size_t alignment, size_t bytes) {
  return api::symmetric_allocate("ap_aligned_alloc", bytes, alignment);
}

void ap_free(void* memory) { api::symmetric_free("ap_free", memory); }
