// SPDX-License-Identifier: MIT
// Checks what CellOS callers may get wrong before the kernel sees it, and turns plain numbers into its ids and spans.
// The kernel judges what only it can judge (is there a cell 99?). Call from: task.
#pragma once

#include <cstddef>
#include <span>

#include "aplib/cellos.h"
#include "kernel/api.hpp"

namespace aplib::cellos {

/// A call that waits and where it returns to in the program, for reports of what tasks wait for.
struct Caller {
  const char* call;
  const void* place;
};
#define APLIB_CALLER(call) \
  aplib::cellos::Caller { call, __builtin_return_address(0) }

inline api::CellosState& note(const Caller& caller) {
  api::CellosState& state = api::cellos_state(caller.call);
  state.place_of = caller.call;
  state.place = caller.place;
  return state;
}

// What fails is out of line, so that a check costs a compare on the path of a message.
[[noreturn]] void fail_cell(const char* call, int cid);
[[noreturn]] void fail_task(const char* call, int tid);
[[noreturn]] void fail_type(const char* call, int type);
[[noreturn]] void fail_buffer(const char* call, int size);
[[noreturn]] void fail_null(const char* call, const char* what);

/// Fail on the wrong side.
void require_cell(const char* call);
void require_host(const char* call);
/// For calls of cells that speak to the host program: fails on the host, and where there is none.
void require_host_program(const char* call);

/// No machine has a host id below this, so one compare tells an ordinary cid from the host.
inline constexpr int host_id_min = 4096;

inline bool is_host(const char* call, int cid) {
  return cid >= host_id_min && index(api::host_cell(call)) == unsigned(cid);
}

inline void check_type(const char* call, int type) {
  if (type < 0 || type > message_type_max) [[unlikely]]
    fail_type(call, type);
}

inline std::span<const std::byte> source(const char* call, const void* buffer, int size) {
  if (size < 0 || (buffer == nullptr && size > 0)) [[unlikely]]
    fail_buffer(call, size);
  return {static_cast<const std::byte*>(buffer), std::size_t(size)};
}

inline std::span<std::byte> target(const char* call, void* buffer, int size) {
  if (size < 0 || (buffer == nullptr && size > 0)) [[unlikely]]
    fail_buffer(call, size);
  return {static_cast<std::byte*>(buffer), std::size_t(size)};
}

inline CellId destination(const char* call, int cid) {
  if (cid < 0) [[unlikely]]
    fail_cell(call, cid);
  return CellId(cid);
}

/// The host program has one mailbox, whatever task the caller names.
inline To label(const char* call, int cid, int tid, int type) {
  if (tid < 0 || tid > int(task_id_max)) [[unlikely]]
    fail_task(call, tid);
  check_type(call, type);
  return {.task = is_host(call, cid) ? TaskId{0} : TaskId(tid), .type = type};
}

/// A source, with the wildcards ANY_CELL, ANY_TASK, ANY_TYPE. The host's task is not looked at: programs name their
/// own there.
inline From sender(const char* call, int cid, int tid, int type) {
  if (cid < ANY_CELL) [[unlikely]]
    fail_cell(call, cid);
  if (tid < ANY_TASK || tid > int(task_id_max)) [[unlikely]]
    fail_task(call, tid);
  if (type != ANY_TYPE) check_type(call, type);
  return {.cell = cid == ANY_CELL ? any_cell : CellId(cid),
          .task = tid == ANY_TASK || is_host(call, cid) ? any_task : TaskId(tid),
          .type = type == ANY_TYPE ? any_type : type};
}

}  // namespace aplib::cellos
