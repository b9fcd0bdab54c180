// SPDX-License-Identifier: MIT
// Sessions: programs that begin MPI by them alone, and beside MPI_Init; process sets; errors.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <string>

#include "error_class.hpp"
#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

MPI_Session new_session() {
  MPI_Session session = MPI_SESSION_NULL;
  EXPECT_EQ(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session), MPI_SUCCESS);
  return session;
}

MPI_Comm comm_of_set(MPI_Session session, const char* set, const char* tag) {
  MPI_Group group = MPI_GROUP_NULL;
  EXPECT_EQ(MPI_Group_from_session_pset(session, set, &group), MPI_SUCCESS);
  MPI_Comm comm = MPI_COMM_NULL;
  EXPECT_EQ(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_SUCCESS);
  EXPECT_EQ(MPI_Group_free(&group), MPI_SUCCESS);
  return comm;
}

/// All ranks add up what they have.
void expect_sum(MPI_Comm comm, int own, int sum) {
  int got = -1;
  EXPECT_EQ(MPI_Allreduce(&own, &got, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
  EXPECT_EQ(got, sum);
}

bool is_initialized() {
  int flag = -1;
  MPI_Initialized(&flag);
  return flag != 0;
}
bool is_finalized() {
  int flag = -1;
  MPI_Finalized(&flag);
  return flag != 0;
}

TEST(Sessions, AreEnoughForAProgram) {
  run_well({{4, 1}, 2}, [] {
    for (int round = 0; round < 3; ++round) {
      MPI_Session session = new_session();
      EXPECT_FALSE(is_initialized());
      MPI_Comm comm = comm_of_set(session, "mpi://WORLD", "round");
      int rank = -1;
      MPI_Comm_rank(comm, &rank);
      EXPECT_EQ(rank, static_cast<int>(me()));
      expect_sum(comm, rank, 6);
      const int next = (rank + 1) % 4;
      const int last = (rank + 3) % 4;
      int got = -1;
      MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &got, 1, MPI_INT, last, 0, comm, MPI_STATUS_IGNORE);
      EXPECT_EQ(got, last);
      MPI_Comm alone = comm_of_set(session, "MPI://self", "other");
      expect_sum(alone, rank, rank);
      MPI_Comm_free(&alone);
      MPI_Comm_free(&comm);
      EXPECT_EQ(MPI_Session_finalize(&session), MPI_SUCCESS);
      EXPECT_EQ(session, MPI_SESSION_NULL);
    }
    EXPECT_FALSE(is_finalized());
  });
}

// In any order; the last one ends MPI.
TEST(Sessions, LiveBesideTheWorld) {
  run_well({{2, 1}, 1}, [] {
    MPI_Session before = new_session();
    MPI_Comm early = comm_of_set(before, "mpi://WORLD", "early");
    EXPECT_EQ(MPI_Init(nullptr, nullptr), MPI_SUCCESS);
    EXPECT_TRUE(is_initialized());
    MPI_Session within = new_session();
    EXPECT_EQ(MPI_Session_finalize(&within), MPI_SUCCESS);
    MPI_Session after = new_session();
    expect_sum(MPI_COMM_WORLD, 1, 2);
    EXPECT_EQ(MPI_Finalize(), MPI_SUCCESS);
    EXPECT_TRUE(is_finalized());
    expect_sum(early, 3, 6);
    MPI_Comm_free(&early);
    EXPECT_EQ(MPI_Session_finalize(&before), MPI_SUCCESS);
    MPI_Comm late = comm_of_set(after, "mpi://WORLD", "late");
    expect_sum(late, 5, 10);
    MPI_Comm_free(&late);
    EXPECT_EQ(MPI_Session_finalize(&after), MPI_SUCCESS);
  });
}

TEST(Sessions, AllowMpiToBeginAfterThem) {
  run_well({{2, 1}, 1}, [] {
    MPI_Session session = new_session();
    EXPECT_EQ(MPI_Session_finalize(&session), MPI_SUCCESS);
    EXPECT_EQ(MPI_Init(nullptr, nullptr), MPI_SUCCESS);
    expect_sum(MPI_COMM_WORLD, 2, 4);
    MPI_Finalize();
    session = new_session();
    MPI_Comm comm = comm_of_set(session, "mpi://WORLD", "again");
    expect_sum(comm, 2, 4);
    MPI_Comm_free(&comm);
    EXPECT_EQ(MPI_Session_finalize(&session), MPI_SUCCESS);
  });
}

TEST(Sessions, OutsideOfThemCallsAreErrors) {
  run_well({{1, 1}, 1}, [] {
    MPI_Session session = new_session();
    MPI_Comm comm = comm_of_set(session, "mpi://SELF", "tag");
    MPI_Session_finalize(&session);
    EXPECT_EQ(class_of(MPI_Barrier(comm)), MPI_ERR_OTHER);
  });
  const Report world = run({{1, 1}, 1}, [] {
    new_session();
    MPI_Finalize();
  });
  EXPECT_NE(world.reason.find("MPI_Finalize: it came before MPI_Init"), std::string::npos) << world.reason;
}

TEST(Sessions, KnowProcessSets) {
  run_well({{3, 1}, 1}, [] {
    MPI_Session session = new_session();
    int count = 0;
    EXPECT_EQ(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count), MPI_SUCCESS);
    ASSERT_EQ(count, 2);
    const std::array<std::string, 2> names = {"mpi://WORLD", "mpi://SELF"};
    const std::array<std::string, 2> sizes = {"3", "1"};
    for (int n = 0; n < 2; ++n) {
      const std::string& expected = names.at(static_cast<std::size_t>(n));
      int length = 0;
      EXPECT_EQ(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, nullptr), MPI_SUCCESS);
      EXPECT_EQ(length, static_cast<int>(expected.size()) + 1);
      std::array<char, MPI_MAX_PSET_NAME_LEN> name{};
      EXPECT_EQ(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name.data()), MPI_SUCCESS);
      EXPECT_EQ(name.data(), expected);
      length = 6;
      EXPECT_EQ(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name.data()), MPI_SUCCESS);
      EXPECT_EQ(name.data(), expected.substr(0, 5));
      EXPECT_EQ(length, static_cast<int>(expected.size()) + 1);
      MPI_Info info = MPI_INFO_NULL;
      EXPECT_EQ(MPI_Session_get_pset_info(session, expected.c_str(), &info), MPI_SUCCESS);
      std::array<char, 16> value{};
      int flag = 0;
      MPI_Info_get(info, "mpi_size", 15, value.data(), &flag);
      EXPECT_EQ(flag, 1);
      EXPECT_EQ(value.data(), sizes.at(static_cast<std::size_t>(n)));
      MPI_Info_free(&info);
    }
    MPI_Session_finalize(&session);
  });
}

TEST(Sessions, TellTheLevelOfThreads) {
  run_well({{2, 1}, 1}, [] {
    MPI_Info hints = MPI_INFO_NULL;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "thread_level", "MPI_THREAD_FUNNELED");
    MPI_Session session = MPI_SESSION_NULL;
    EXPECT_EQ(MPI_Session_init(hints, MPI_ERRORS_RETURN, &session), MPI_SUCCESS);
    MPI_Info used = MPI_INFO_NULL;
    EXPECT_EQ(MPI_Session_get_info(session, &used), MPI_SUCCESS);
    std::array<char, 64> value{};
    int flag = 0;
    MPI_Info_get(used, "thread_level", 63, value.data(), &flag);
    EXPECT_STREQ(value.data(), "MPI_THREAD_FUNNELED");
    MPI_Info_free(&used);
    MPI_Session_finalize(&session);
    MPI_Info_set(hints, "thread_level", "many");
    EXPECT_EQ(class_of(MPI_Session_init(hints, MPI_ERRORS_RETURN, &session)), MPI_ERR_INFO_VALUE);
    MPI_Info_free(&hints);
  });
}

/// What an error handler of sessions has seen.
int seen_code = MPI_SUCCESS;
MPI_Session seen_session = MPI_SESSION_NULL;
void see_error(MPI_Session* session, int* code, ...) {
  seen_session = *session;
  seen_code = *code;
}

TEST(Sessions, HaveErrorHandlers) {
  run_well({{1, 1}, 1}, [] {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    EXPECT_EQ(MPI_Session_create_errhandler(see_error, &handler), MPI_SUCCESS);
    MPI_Session session = MPI_SESSION_NULL;
    EXPECT_EQ(MPI_Session_init(MPI_INFO_NULL, handler, &session), MPI_SUCCESS);
    MPI_Group group = MPI_GROUP_NULL;
    EXPECT_EQ(class_of(MPI_Group_from_session_pset(session, "mpi://OTHERS", &group)), MPI_ERR_ARG);
    EXPECT_EQ(class_of(seen_code), MPI_ERR_ARG);
    EXPECT_EQ(seen_session, session);
    EXPECT_EQ(MPI_Session_call_errhandler(session, MPI_ERR_SPAWN), MPI_SUCCESS);
    EXPECT_EQ(seen_code, MPI_ERR_SPAWN);
    MPI_Errhandler got = MPI_ERRHANDLER_NULL;
    EXPECT_EQ(MPI_Session_get_errhandler(session, &got), MPI_SUCCESS);
    EXPECT_EQ(got, handler);
    MPI_Errhandler_free(&got);
    MPI_Errhandler_free(&handler);
    EXPECT_EQ(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN), MPI_SUCCESS);
    int length = 0;
    EXPECT_EQ(class_of(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 2, &length, nullptr)), MPI_ERR_ARG);
    MPI_Session_finalize(&session);
  });
  const Report report = run({{1, 1}, 1}, [] {
    MPI_Session none = MPI_SESSION_NULL;
    MPI_Session_finalize(&none);
  });
  EXPECT_NE(report.reason.find("MPI_ERR_SESSION"), std::string::npos) << report.reason;
}

TEST(Sessions, HaveBuffersForSends) {
  run_well({{1, 1}, 1}, [] {
    MPI_Session session = new_session();
    MPI_Comm comm = comm_of_set(session, "mpi://SELF", "buffer");
    std::array<char, MPI_BSEND_OVERHEAD + 10> buffer{};
    std::array<char, 16> data{};
    EXPECT_EQ(class_of(MPI_Bsend(data.data(), 1, MPI_CHAR, 0, 0, comm)), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Session_attach_buffer(session, buffer.data(), static_cast<int>(buffer.size())), MPI_SUCCESS);
    EXPECT_EQ(class_of(MPI_Bsend(data.data(), 11, MPI_CHAR, 0, 0, comm)), MPI_ERR_BUFFER);
    EXPECT_EQ(MPI_Bsend(data.data(), 10, MPI_CHAR, 0, 0, comm), MPI_SUCCESS);
    EXPECT_EQ(MPI_Recv(data.data(), 10, MPI_CHAR, 0, 0, comm, MPI_STATUS_IGNORE), MPI_SUCCESS);
    EXPECT_EQ(MPI_Session_flush_buffer(session), MPI_SUCCESS);
    MPI_Request request = MPI_REQUEST_NULL;
    EXPECT_EQ(MPI_Session_iflush_buffer(session, &request), MPI_SUCCESS);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    void* place = nullptr;
    int size = 0;
    EXPECT_EQ(MPI_Session_detach_buffer(session, static_cast<void*>(&place), &size), MPI_SUCCESS);
    EXPECT_EQ(place, buffer.data());
    EXPECT_EQ(size, static_cast<int>(buffer.size()));
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
  });
}

}  // namespace
}  // namespace aplib
