// SPDX-License-Identifier: MIT
// Generalised requests: when the program's functions are called, and with what.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <string>

#include "aplib/error.hpp"
#include "error_class.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

/// What a request's functions do and have seen.
struct SeenCalls {
  int queries = 0;
  int frees = 0;
  std::string cancels;
  int code = MPI_SUCCESS;  ///< Of the query.
};

int ask_seen(void* state, MPI_Status* status) {
  ++static_cast<SeenCalls*>(state)->queries;
  MPI_Status_set_elements(status, MPI_INT, 5);
  MPI_Status_set_cancelled(status, static_cast<SeenCalls*>(state)->cancels.empty() ? 0 : 1);
  status->MPI_SOURCE = 3;
  return static_cast<SeenCalls*>(state)->code;
}

int end_seen(void* state) {
  ++static_cast<SeenCalls*>(state)->frees;
  return MPI_SUCCESS;
}

int cancel_seen(void* state, int is_complete) {
  static_cast<SeenCalls*>(state)->cancels += is_complete != 0 ? "late " : "early ";
  return MPI_SUCCESS;
}

MPI_Request started_request(SeenCalls& seen) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Grequest_start(ask_seen, end_seen, cancel_seen, &seen, &request);
  return request;
}

TEST(GeneralRequests, AreOverWhenTheProgramSaysSo) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    SeenCalls seen;
    MPI_Request request = started_request(seen);
    int flag = 1;
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    EXPECT_EQ(flag, 0);
    EXPECT_EQ(seen.queries, 0);
    EXPECT_EQ(MPI_Grequest_complete(request), MPI_SUCCESS);
    MPI_Status status{};
    MPI_Request_get_status(request, &flag, &status);
    EXPECT_EQ(flag, 1);
    EXPECT_EQ(seen.queries, 1);
    EXPECT_EQ(seen.frees, 0);
    EXPECT_EQ(MPI_Wait(&request, &status), MPI_SUCCESS);
    EXPECT_EQ(request, MPI_REQUEST_NULL);
    EXPECT_EQ(seen.queries, 2);
    EXPECT_EQ(seen.frees, 1);
    int count = 0;
    MPI_Get_count(&status, MPI_INT, &count);
    EXPECT_EQ(count, 5);
    EXPECT_EQ(status.MPI_SOURCE, 3);
    MPI_Finalize();
  });
}

TEST(GeneralRequests, AreWaitedForBesideOthers) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    std::array<SeenCalls, 3> seen;
    std::array<MPI_Request, 4> requests{};
    for (std::size_t i = 0; i < 3; ++i) requests[i] = started_request(seen[i]);
    int got = 0;
    const int rank = static_cast<int>(me());
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &requests[3]);
    MPI_Grequest_complete(requests[1]);  // which is no message for the receive
    int index = -1;
    MPI_Waitany(4, requests.data(), &index, MPI_STATUS_IGNORE);
    EXPECT_EQ(index, 1);
    MPI_Send(&rank, 1, MPI_INT, 0, 9, MPI_COMM_SELF);
    MPI_Grequest_complete(requests[2]);
    MPI_Grequest_complete(requests[0]);
    EXPECT_EQ(MPI_Waitall(4, requests.data(), MPI_STATUSES_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(got, rank);
    for (const SeenCalls& each : seen) {
      EXPECT_EQ(each.queries, 1);
      EXPECT_EQ(each.frees, 1);
    }
    MPI_Finalize();
  });
}

TEST(GeneralRequests, MayBeCancelledAndFreed) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    SeenCalls seen;
    MPI_Request request = started_request(seen);
    MPI_Cancel(&request);
    MPI_Grequest_complete(request);
    MPI_Cancel(&request);
    EXPECT_EQ(seen.cancels, "early late ");
    MPI_Status status{};
    MPI_Wait(&request, &status);
    int flag = 0;
    MPI_Test_cancelled(&status, &flag);
    EXPECT_EQ(flag, 1);

    SeenCalls other;
    request = started_request(other);
    const MPI_Request kept = request;
    MPI_Request_free(&request);
    EXPECT_EQ(request, MPI_REQUEST_NULL);
    EXPECT_EQ(other.frees, 0);
    MPI_Grequest_complete(kept);
    EXPECT_EQ(other.frees, 1);
    EXPECT_EQ(other.queries, 0);
    MPI_Finalize();
  });
}

TEST(GeneralRequests, PassOnWhatTheirFunctionsReturn) {
  run_well({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    SeenCalls seen;
    seen.code = MPI_ERR_OTHER;
    MPI_Request request = started_request(seen);
    MPI_Grequest_complete(request);
    EXPECT_EQ(class_of(MPI_Grequest_complete(request)), MPI_ERR_REQUEST);
    EXPECT_EQ(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_OTHER);
    EXPECT_EQ(seen.frees, 1);
    EXPECT_EQ(class_of(MPI_Grequest_complete(MPI_REQUEST_NULL)), MPI_ERR_REQUEST);
    EXPECT_EQ(class_of(MPI_Grequest_start(nullptr, end_seen, cancel_seen, nullptr, &request)), MPI_ERR_ARG);
    MPI_Finalize();
  });
}

TEST(GeneralRequests, ThatNobodyCompletesAreADeadlock) {
  const Report report = run({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    SeenCalls seen;
    MPI_Request request = started_request(seen);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  });
  EXPECT_EQ(report.exit_status, static_cast<int>(ExitStatus::deadlock));
  EXPECT_NE(report.reason.find("by MPI_Grequest_complete"), std::string::npos) << report.reason;
}

}  // namespace
}  // namespace aplib
