// SPDX-License-Identifier: MIT
// What becomes of errors: by the error handler, and of functions that are not there yet. All of it is one cell's own.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstdarg>
#include <string>
#include <thread>

#include "machines.hpp"

namespace aplib {
namespace {

using namespace testing_support;

int rank_of(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

TEST(MpiError, IsFatalByDefaultAndSaysWhatIsAllowed) {
  const Report report = run({{3, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    if (me() != 1) {
      static_cast<void>(receive());  // ends with the machine
      return;
    }
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    const int rank = 7;
    MPI_Group_incl(world, 1, &rank, &world);
    ADD_FAILURE() << "it went on";
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_EQ(report.reason,
            "cell 1 task 0: MPI_Group_incl: rank 7 is not in the group; it has ranks 0..2 (MPI_ERR_RANK on "
            "MPI_COMM_SELF)");
}

TEST(MpiError, AFunctionThatIsNotThereNamesItself) {
  const Report report = run({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm other = MPI_COMM_NULL;
    if (me() == 0) MPI_Comm_accept("port", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
  });
  EXPECT_EQ(report.exit_status, 1);
  EXPECT_EQ(report.reason,
            "cell 0 task 0: MPI_Comm_accept: this version of APlib does not have this function yet "
            "(MPI_ERR_UNSUPPORTED_OPERATION on MPI_COMM_WORLD)");
}

TEST(MpiError, AbortEndsTheMachineWithItsCode) {
  for (const int code : {5, 0, 256 + 9}) {
    const Report report = run({{2, 1}, 2}, [code] {
      MPI_Init(nullptr, nullptr);
      if (me() == 1) MPI_Abort(MPI_COMM_WORLD, code);
      static_cast<void>(receive());
    });
    EXPECT_EQ(report.exit_status, code == 0 ? 1 : code & 255);
    EXPECT_EQ(report.reason,
              "cell 1 task 0: MPI_Abort: rank 1 of MPI_COMM_WORLD ends the machine with code " + std::to_string(code));
  }
}

TEST(MpiError, AWaitForARankThatHasFailedEndsTheRunWithItsStatus) {
  for (const std::uint32_t threads : {1U, 2U}) {
    for (const bool is_posted : {false, true}) {
      const Report report = run({{3, 1}, threads}, [is_posted] {
        MPI_Init(nullptr, nullptr);
        if (rank_now() == 1) this_task::exit(3);
        int word = 0;
        if (!is_posted) {
          MPI_Recv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          return;
        }
        MPI_Request request;
        MPI_Irecv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      });
      EXPECT_EQ(report.exit_status, 3);
      EXPECT_NE(report.reason.find("cell 1 failed first, with status 3"), std::string::npos) << report.reason;
    }
  }
}

TEST(MpiError, ADeadlockInWhichARankHasFailedHasItsStatus) {
  // On one thread: rank 1 goes on when rank 2 has ended.
  const Report report = run({{3, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    int word = 0;
    if (rank_now() == 2) {
      MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
      this_task::exit(5);
    }
    MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank_now() == 1) this_task::exit(3);
  });
  EXPECT_EQ(report.exit_status, 5);
  EXPECT_TRUE(report.reason.starts_with("cell 2 failed first, with status 5: deadlock: ")) << report.reason;
}

TEST(MpiError, CallsBeforeInitAndAfterFinalizeAreRefused) {
  const Report early = run({{1, 1}, 1}, [] {
    int flag = -1;
    EXPECT_EQ(MPI_Initialized(&flag), MPI_SUCCESS);
    EXPECT_EQ(flag, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &flag);
  });
  EXPECT_EQ(early.reason,
            "cell 0 task 0: MPI_Comm_rank: it came before MPI_Init; call MPI_Init first (MPI_ERR_OTHER on "
            "MPI_COMM_WORLD)");
  run_well({{2, 1}, 2}, [] {
    int flag = -1;
    int provided = -1;
    EXPECT_EQ(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), MPI_SUCCESS);
    EXPECT_EQ(provided, MPI_THREAD_FUNNELED);
    MPI_Initialized(&flag);
    EXPECT_EQ(flag, 1);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    EXPECT_EQ(MPI_Init(nullptr, nullptr), MPI_ERR_OTHER);
    EXPECT_EQ(rank_of(MPI_COMM_WORLD), static_cast<int>(me()));
    EXPECT_EQ(rank_of(MPI_COMM_SELF), 0);
    MPI_Is_thread_main(&flag);
    EXPECT_EQ(flag, 1);
    MPI_Finalized(&flag);
    EXPECT_EQ(flag, 0);
    EXPECT_EQ(MPI_Finalize(), MPI_SUCCESS);
    MPI_Finalized(&flag);
    EXPECT_EQ(flag, 1);
    int rank = -1;
    EXPECT_EQ(MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_ERR_OTHER);
  });
}

// What the handler was given. The cells of a test share it: they are carried by one processor.
int last_code = 0;
MPI_Comm last_comm = MPI_COMM_NULL;
std::string last_text;
void remember(MPI_Comm* comm, int* code, ...) {
  std::va_list rest;
  va_start(rest, code);
  last_text = va_arg(rest, const char*);
  va_end(rest);
  last_comm = *comm;
  last_code = *code;
}

TEST(MpiError, HandlersBelongToTheirCellAndLiveAsLongAsTheyAreUsed) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (me() == 0) {
      EXPECT_EQ(MPI_Comm_create_errhandler(remember, &handler), MPI_SUCCESS);
      EXPECT_EQ(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler), MPI_SUCCESS);
      EXPECT_EQ(MPI_Errhandler_free(&handler), MPI_SUCCESS);
      EXPECT_EQ(handler, MPI_ERRHANDLER_NULL);
    }
    barrier();
    last_code = 0;
    EXPECT_EQ(MPI_Comm_rank(MPI_COMM_WORLD, nullptr), MPI_ERR_ARG);
    EXPECT_EQ(last_code, me() == 0 ? MPI_ERR_ARG : 0);
    if (me() == 0) {
      EXPECT_EQ(last_comm, MPI_COMM_WORLD);
      EXPECT_EQ(last_text, "MPI_Comm_rank: rank is a null pointer; give the address of a place for it");
      EXPECT_EQ(MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_TAG), MPI_SUCCESS);
      EXPECT_EQ(last_code, MPI_ERR_TAG);
      EXPECT_EQ(last_text, "MPI_Comm_call_errhandler: MPI_ERR_TAG: the tag is not valid");
    }
    EXPECT_EQ(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler), MPI_SUCCESS);
    EXPECT_EQ(handler == MPI_ERRORS_RETURN, me() == 1);
    EXPECT_EQ(MPI_Errhandler_free(&handler), MPI_SUCCESS);
    EXPECT_EQ(MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN), MPI_SUCCESS);  // of MPI-1
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    EXPECT_EQ(MPI_Comm_rank(MPI_COMM_NULL, &last_code), MPI_ERR_COMM);
    EXPECT_EQ(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRHANDLER_NULL), MPI_ERR_ERRHANDLER);
    EXPECT_EQ(MPI_Close_port(""), MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_Comm none = MPI_COMM_NULL;
    EXPECT_EQ(MPI_Comm_connect("", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &none), MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_Finalize();
  });
}

TEST(MpiError, WhatHasNoHandlerOfItsOwnHasThatOfWorld) {
  run_well({{2, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm earlier = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &earlier);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm later = MPI_COMM_NULL;
    MPI_Comm_dup(earlier, &later);
    for (const MPI_Comm comm : {MPI_COMM_SELF, earlier, later}) {
      MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
      EXPECT_EQ(MPI_Comm_get_errhandler(comm, &handler), MPI_SUCCESS);
      EXPECT_EQ(handler, MPI_ERRORS_ARE_FATAL);
      EXPECT_EQ(MPI_Comm_size(comm, nullptr), MPI_ERR_ARG);
    }
    EXPECT_EQ(MPI_Type_contiguous(1, MPI_INT, nullptr), MPI_ERR_ARG);  // on MPI_COMM_SELF
    last_code = 0;
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(remember, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    EXPECT_EQ(MPI_Comm_size(later, nullptr), MPI_ERR_ARG);
    EXPECT_EQ(last_comm, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(later, MPI_ERRORS_RETURN);
    last_code = 0;
    EXPECT_EQ(MPI_Comm_size(later, nullptr), MPI_ERR_ARG);
    EXPECT_EQ(last_code, 0);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&earlier);
    MPI_Comm_free(&later);
    MPI_Finalize();
  });
}

TEST(MpiError, AHandlerThatIsSetIsNotThatOfWorld) {
  const Report report = run({{1, 1}, 1}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Type_contiguous(1, MPI_INT, nullptr);
    ADD_FAILURE() << "it went on";
  });
  EXPECT_EQ(report.exit_status, 1);
}

TEST(MpiError, ClassesCodesAndTextsCanBeAddedAndRemoved) {
  run_well({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int error_class = 0;
    int code = 0;
    int found = 0;
    EXPECT_EQ(MPI_Add_error_class(&error_class), MPI_SUCCESS);
    EXPECT_GT(error_class, MPI_ERR_LASTCODE);
    EXPECT_EQ(MPI_Add_error_code(error_class, &code), MPI_SUCCESS);
    EXPECT_NE(code, error_class);
    EXPECT_EQ(MPI_Add_error_string(code, "the moon is full"), MPI_SUCCESS);
    EXPECT_EQ(MPI_Error_class(code, &found), MPI_SUCCESS);
    EXPECT_EQ(found, error_class);
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    EXPECT_EQ(MPI_Error_string(code, text.data(), &length), MPI_SUCCESS);
    EXPECT_STREQ(text.data(), "the moon is full");
    EXPECT_EQ(length, 16);
    EXPECT_EQ(MPI_Error_string(MPI_ERR_RANK, text.data(), &length), MPI_SUCCESS);
    EXPECT_STREQ(text.data(), "MPI_ERR_RANK: the rank is not valid");
    EXPECT_EQ(MPI_Error_class(MPI_ERR_LASTCODE, &found), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Error_class(-1, &found), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Add_error_string(MPI_ERR_RANK, "no"), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Remove_error_class(error_class), MPI_ERR_ARG);  // it has a code
    EXPECT_EQ(MPI_Remove_error_code(code), MPI_ERR_ARG);          // it has a text
    EXPECT_EQ(MPI_Remove_error_string(code), MPI_SUCCESS);
    EXPECT_EQ(MPI_Error_string(code, text.data(), &length), MPI_SUCCESS);
    EXPECT_EQ(length, 0);
    EXPECT_EQ(MPI_Remove_error_code(code), MPI_SUCCESS);
    EXPECT_EQ(MPI_Add_error_string(error_class, "moons"), MPI_SUCCESS);
    EXPECT_EQ(MPI_Remove_error_class(error_class), MPI_ERR_ARG);
    EXPECT_EQ(MPI_Remove_error_string(error_class), MPI_SUCCESS);
    EXPECT_EQ(MPI_Remove_error_class(error_class), MPI_SUCCESS);
    EXPECT_EQ(MPI_Error_class(code, &found), MPI_ERR_ARG);
  });
}

TEST(MpiError, MemoryIsGivenAndTakenBack) {
  run_well({{2, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    void* memory = nullptr;
    EXPECT_EQ(MPI_Alloc_mem(1000, MPI_INFO_NULL, static_cast<void*>(&memory)), MPI_SUCCESS);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(MPI_Free_mem(memory), MPI_SUCCESS);
    EXPECT_EQ(MPI_Alloc_mem(-1, MPI_INFO_NULL, static_cast<void*>(&memory)), MPI_ERR_SIZE);
    EXPECT_EQ(MPI_Alloc_mem(8, MPI_INFO_NULL, nullptr), MPI_ERR_ARG);
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    EXPECT_EQ(MPI_Get_processor_name(name.data(), &length), MPI_SUCCESS);
    EXPECT_GT(length, 0);
    MPI_Finalize();
  });
}

TEST(MpiError, WhatAProgramNeverFreesEndsWithItsCell) {  // LeakSanitizer looks
  run_well({{3, 1}, 2}, [] {
    MPI_Init(nullptr, nullptr);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_create_errhandler(remember, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    EXPECT_GE(MPI_Info_toint(info), 4096);
  });
}

}  // namespace
}  // namespace aplib
