// SPDX-License-Identifier: MIT
// Generalised requests, which the program itself completes. What such a request waits for is an empty message of the
// rank to itself, so that all waits and tests are as for others.
#include <fmt/format.h>

#include "kernel/mailbox.hpp"
#include "kernel/program_threads.hpp"
#include "mpi/request.hpp"

namespace aplib::mpi {

namespace {

void check_code(int code, const char* function) {
  if (code != MPI_SUCCESS)
    fail(code, fmt::format("the {} function of the generalised request returned {}", function, code));
}

api::Label label_of(const Request& request) {
  return {CellId{request.rank().world_rank()}, Comm::self_context | completing,
          static_cast<std::uint32_t>(request.tag)};
}

}  // namespace

void General::tell(MPI_Status* status) const {
  MPI_Status told{};
  set_empty_status(&told);
  const api::InCallback callback;
  const int code = query(state, &told);
  if (status != MPI_STATUS_IGNORE) *status = told;
  check_code(code, "query");
}

void General::end() const {
  const api::InCallback callback;
  check_code(free(state), "free");
}

void General::cancel(bool is_over) const {
  const api::InCallback callback;
  check_code(remove(state, is_over ? 1 : 0), "cancel");
}

void grequest_start(const Call& call, MPI_Grequest_query_function* query, MPI_Grequest_free_function* free,
                    MPI_Grequest_cancel_function* cancel, void* state, MPI_Request* place) {
  check_place(call, "query_fn", reinterpret_cast<const void*>(query));
  check_place(call, "free_fn", reinterpret_cast<const void*>(free));
  check_place(call, "cancel_fn", reinterpret_cast<const void*>(cancel));
  Rank& rank = call.rank();
  Request& request = Request::make(rank.self(), Request::Does::general);
  request.general = {query, free, cancel, state};
  request.tag = static_cast<int>(rank.general_requests++ % api::Label::tag_max);
  request.posted.cancelled = false;
  request.posted.how = Wake::done;
  const api::Label label = label_of(request);
  api::post(call.name(), mailbox_of(rank), request.posted, {}, {label.cell, label.context, label.tag});
  *place = handle_of<MPI_Request>(request);
}

void grequest_complete(const Call& call, MPI_Request handle) {
  Request* const request = request_at("request", 0, handle);
  if (request == nullptr || request->does != Request::Does::general)
    fail(MPI_ERR_REQUEST, "request is no generalised one; give one of MPI_Grequest_start");
  if (!request->is_open()) fail(MPI_ERR_REQUEST, "request is complete already; complete it once");
  api::send(call.name(), mailbox_of(call.rank()), label_of(*request), {});
  end_freed_requests(call);
}

}  // namespace aplib::mpi
