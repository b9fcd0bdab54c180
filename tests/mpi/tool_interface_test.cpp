// SPDX-License-Identifier: MIT
// The tool interface: it says, by its own rules, that there is nothing.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

TEST(ToolInterface, HasNothing) {
  run_well({{2, 1}, 1}, [] {
    int provided = -1;
    ASSERT_EQ(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided), MPI_SUCCESS);  // before MPI_Init
    EXPECT_EQ(provided, MPI_THREAD_FUNNELED);
    for (int (*const get)(int*) : {MPI_T_cvar_get_num, MPI_T_pvar_get_num, MPI_T_category_get_num, MPI_T_event_get_num,
                                   MPI_T_source_get_num, MPI_T_category_changed}) {
      int number = -1;
      EXPECT_EQ(get(&number), MPI_SUCCESS);
      EXPECT_EQ(number, 0);
      EXPECT_EQ(get(nullptr), MPI_T_ERR_INVALID);
    }
    int index = -1;
    EXPECT_EQ(MPI_T_cvar_get_index("limit", &index), MPI_T_ERR_INVALID_NAME);
    EXPECT_EQ(MPI_T_pvar_get_index("limit", MPI_T_PVAR_CLASS_COUNTER, &index), MPI_T_ERR_INVALID_NAME);
    EXPECT_EQ(MPI_T_category_get_index("limit", &index), MPI_T_ERR_INVALID_NAME);
    EXPECT_EQ(MPI_T_event_get_index("limit", &index), MPI_T_ERR_INVALID_NAME);
    int length = 0;
    int number = 0;
    EXPECT_EQ(MPI_T_category_get_info(0, nullptr, &length, nullptr, &length, &number, &number, &number),
              MPI_T_ERR_INVALID_INDEX);
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    EXPECT_EQ(MPI_T_cvar_handle_alloc(0, nullptr, &handle, &number), MPI_T_ERR_INVALID_INDEX);
    EXPECT_EQ(MPI_T_cvar_handle_free(&handle), MPI_T_ERR_INVALID_HANDLE);
    MPI_Init(nullptr, nullptr);
    EXPECT_EQ(MPI_T_finalize(), MPI_SUCCESS);
    MPI_Finalize();
  });
}

TEST(ToolInterface, BeginsAndEndsAsOftenAsOneLikes) {
  run_well({{1, 1}, 1}, [] {
    int number = -1;
    EXPECT_EQ(MPI_T_cvar_get_num(&number), MPI_T_ERR_NOT_INITIALIZED);
    EXPECT_EQ(MPI_T_cvar_get_index("limit", &number), MPI_T_ERR_NOT_INITIALIZED);
    EXPECT_EQ(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
    MPI_Init(nullptr, nullptr);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &number);
    EXPECT_EQ(number, MPI_THREAD_SINGLE);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &number);
    EXPECT_EQ(MPI_T_finalize(), MPI_SUCCESS);
    MPI_Finalize();
    EXPECT_EQ(MPI_T_cvar_get_num(&number), MPI_SUCCESS);
    EXPECT_EQ(MPI_T_finalize(), MPI_SUCCESS);
    EXPECT_EQ(MPI_T_cvar_get_num(&number), MPI_T_ERR_NOT_INITIALIZED);
  });
}

TEST(ToolInterface, HasSessions) {
  run_well({{1, 1}, 1}, [] {
    int provided = -1;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
    EXPECT_EQ(MPI_T_pvar_session_free(&session), MPI_T_ERR_INVALID_SESSION);
    EXPECT_EQ(MPI_T_pvar_session_create(&session), MPI_SUCCESS);
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int count = 0;
    EXPECT_EQ(MPI_T_pvar_handle_alloc(session, 0, nullptr, &handle, &count), MPI_T_ERR_INVALID_INDEX);
    EXPECT_EQ(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES), MPI_SUCCESS);
    EXPECT_EQ(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES), MPI_SUCCESS);
    EXPECT_EQ(MPI_T_pvar_reset(session, MPI_T_PVAR_HANDLE_NULL), MPI_T_ERR_INVALID_HANDLE);
    EXPECT_EQ(MPI_T_pvar_session_free(&session), MPI_SUCCESS);
    EXPECT_EQ(session, MPI_T_PVAR_SESSION_NULL);
    EXPECT_EQ(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES), MPI_T_ERR_INVALID_SESSION);
    MPI_T_finalize();
  });
}

}  // namespace
}  // namespace aplib
