// SPDX-License-Identifier: MIT
// The tool interface, which says by its own rules that there is nothing: no variables, categories, events and sources.
// Functions that are about one of these have no more than a row in functions.txt.
#include <algorithm>
#include <memory>

#include "mpi/error.hpp"
#include "mpi/rank.hpp"

namespace aplib::mpi {

namespace {

/// Of performance variables.
struct ToolSession : Object {
  static constexpr ObjectKind kind = ObjectKind::tool_session;

  explicit ToolSession(Rank& rank) : Object(rank, kind) {}
};

void check_begun(const Call& call) {
  if (call.rank().tool_begins == 0) fail(MPI_T_ERR_NOT_INITIALIZED, "the tool interface is not initialized");
}

ToolSession& tool_session(MPI_T_pvar_session handle) {
  auto* const found = find_made<ToolSession>(handle);
  if (found == nullptr) fail(MPI_T_ERR_INVALID_SESSION, "there is no such session");
  return *found;
}

}  // namespace

int tool_code(Failure* failure) {
  const std::unique_ptr<Failure> given(failure);
  if (given->code == MPI_ERR_NO_MEM) return MPI_T_ERR_MEMORY;
  return given->code >= MPI_T_ERR_CANNOT_INIT ? given->code : MPI_T_ERR_INVALID;
}

int tool_answer(const char* name, int code) {
  Failure* failure = nullptr;
  try {
    const Call call(name, Call::any_time);
    check_begun(call);
    return code;
  } catch (...) {
    failure = caught();
  }
  return tool_code(failure);
}

// Before MPI_Init, no other thread than the main one may call.
void t_init_thread(const Call& call, int required, int* provided) {
  ++call.rank().tool_begins;
  *provided = std::min(required, std::max(call.rank().thread_level, MPI_THREAD_FUNNELED));
}

void t_finalize(const Call& call) {
  check_begun(call);
  --call.rank().tool_begins;
}

void t_none(const Call& call, int* number) {
  check_begun(call);
  *number = 0;
}

void t_pvar_session_create(const Call& call, MPI_T_pvar_session* place) {
  check_begun(call);
  *place = handle_of<MPI_T_pvar_session>(*new ToolSession(call.rank()));
}

void t_pvar_session_free(const Call& call, MPI_T_pvar_session* place) {
  check_begun(call);
  tool_session(*place).release();
  *place = MPI_T_PVAR_SESSION_NULL;
}

void t_pvar_handle_alloc(const Call& call, MPI_T_pvar_session session, int, void*, MPI_T_pvar_handle*, int*) {
  check_begun(call);
  static_cast<void>(tool_session(session));
  fail(MPI_T_ERR_INVALID_INDEX, "there are no performance variables");
}

// All handles of a session are none.
void t_pvar_act(const Call& call, MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
  check_begun(call);
  static_cast<void>(tool_session(session));
  if (handle != MPI_T_PVAR_ALL_HANDLES) fail(MPI_T_ERR_INVALID_HANDLE, "there is no such handle");
}

}  // namespace aplib::mpi
