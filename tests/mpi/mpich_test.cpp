// SPDX-License-Identifier: MIT
// Programs that were compiled for MPICH: our own, by its mpicc, and those of the system.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "foreign.hpp"

namespace aplib {
namespace {

constexpr const char* mpich_front_end = MPI_LIBRARY_FOLDER "/aplib/mpi/mpich/libmpi.so.12";

using ForMpich = ForeignPrograms;

TEST_F(ForMpich, ProgramsAnswerAlikeInCellsAndProcesses) {
  SKIP_WITHOUT("mpicc.mpich");
  expect_no_errors_of_programs("mpicc.mpich");
  compile("mpicc.mpich", "large.c");
  expect_no_errors("./large");
}

// Its library for C++ is the system's, one for each cell.
TEST_F(ForMpich, ProgramsInCxxAnswerAlikeInCellsAndProcesses) {
  SKIP_WITHOUT("mpicxx.mpich");
  compile("mpicxx.mpich", "bindings.cpp");
  expect_no_errors("./bindings");
}

TEST_F(ForMpich, ErrorsSayWhatIsWrong) {
  SKIP_WITHOUT("mpicc.mpich");
  write("wrong.c", R"(
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  char port[MPI_MAX_PORT_NAME];
  int value = 0;
  MPI_Comm freed;
  MPI_Init(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &freed);
  const MPI_Comm kept = freed;
  MPI_Comm_free(&freed);
  switch (atoi(argv[1])) {
    case 1: MPI_Open_port(MPI_INFO_NULL, port); break;
    case 2: MPI_Send(&value, 1, MPI_INT, 99, 0, MPI_COMM_WORLD); break;
    case 3: MPI_Send(&value, 1, MPI_LB, 0, 0, MPI_COMM_WORLD); break;
    case 4: MPI_Abort(MPI_COMM_WORLD, 18); break;
    case 5: MPI_Barrier(kept); break;
    case 6: MPI_Barrier(MPI_INT); break;
    case 7: MPI_Barrier(-1); break;
  }
  MPI_Finalize();
})");
  EXPECT_EQ(output("mpicc.mpich -w wrong.c -o wrong"), "");
  expect_end("aprun -n 2 ./wrong 1", 1, "MPI_Open_port: this version of APlib does not have this function yet");
  expect_end("aprun -n 2 ./wrong 2", 1, "MPI_Send: dest is 99");
  expect_end("aprun -n 2 ./wrong 3", 1, "MPI_Send: datatype is ");
  expect_end("aprun -n 2 ./wrong 4", 18, "MPI_Abort");
  expect_end("aprun -n 2 ./wrong 5", 1, "MPI_Barrier: comm is ");
  expect_end("aprun -n 2 ./wrong 6", 1, "MPI_Barrier: comm is MPI_INT");
  expect_end("aprun -n 2 ./wrong 7", 1, "MPI_Barrier: comm is ");
}

TEST_F(ForMpich, WhatIsMissingIsNamed) {
  SKIP_WITHOUT("mpicc.mpich");
  write("more.c", "#include <mpi.h>\nint main(int c, char** v) { return MPIX_Comm_revoke(MPI_COMM_WORLD); }\n");
  EXPECT_EQ(output("mpicc.mpich -w more.c -o more"), "");
  expect_end("aprun -n 2 ./more", 1, "MPIX_Comm_revoke: this version of APlib does not have this function yet");
}

TEST_F(ForMpich, ProgramsInFortranAnswerAlikeInCellsAndProcesses) {
  SKIP_WITHOUT("mpifort.mpich");
  expect_no_errors_of_language("mpifort.mpich -fallow-argument-mismatch", "fortran.f90");
  expect_no_errors_of_language("mpifort.mpich", "fortran08.f90");
}

TEST_F(ForMpich, TheFrontEndHasWhatProgramsLinkWith) {
  const std::set<std::string> functions = functions_of(mpich_front_end);
  // What it lacked, programs would find in libmpi_abi, which takes no handles of theirs.
  for (const char* const name : {"MPI_Comm_f2c", "MPI_Comm_toint", "MPI_Send_c", "PMPI_Op_create_c"})
    EXPECT_TRUE(functions.contains(name)) << name;
  const std::string library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "needs the library libmpich.so.12";
  for (const std::string& name : functions_of(library)) EXPECT_TRUE(functions.contains(name)) << name;
  std::set<std::string> objects;
  for (const Symbol& symbol : exported_by(mpich_front_end)) objects.insert(symbol.name + " " + symbol.size);
  for (const Symbol& symbol : exported_by(library)) {
    if (symbol.is_function || !symbol.name.starts_with("MPI_")) continue;
    EXPECT_TRUE(objects.contains(symbol.name + " " + symbol.size)) << symbol.name << " has " << symbol.size;
  }
}

// Linked with our library, for the installed one may be that of version 4.0.
TEST_F(ForMpich, WhatNewerVersionsHaveIsThere) {
  expect_exports(mpich_front_end, {"MPIR_fortran_false",
                                   "MPIR_fortran_true",
                                   "MPIX_Allreduce_enqueue",
                                   "MPIX_Allreduce_enqueue_c",
                                   "MPIX_Async_get_state",
                                   "MPIX_Async_spawn",
                                   "MPIX_Async_start",
                                   "MPIX_Comm_create_errhandler_x",
                                   "MPIX_Comm_get_failed",
                                   "MPIX_Comm_get_stream",
                                   "MPIX_Comm_test_threadcomm",
                                   "MPIX_File_create_errhandler_x",
                                   "MPIX_Grequest_class_allocate",
                                   "MPIX_Grequest_class_create",
                                   "MPIX_Grequest_start",
                                   "MPIX_Info_set_hex",
                                   "MPIX_Irecv_enqueue",
                                   "MPIX_Irecv_enqueue_c",
                                   "MPIX_Isend_enqueue",
                                   "MPIX_Isend_enqueue_c",
                                   "MPIX_Op_create_x",
                                   "MPIX_Recv_enqueue",
                                   "MPIX_Recv_enqueue_c",
                                   "MPIX_Request_is_complete",
                                   "MPIX_Send_enqueue",
                                   "MPIX_Send_enqueue_c",
                                   "MPIX_Session_create_errhandler_x",
                                   "MPIX_Start_progress_thread",
                                   "MPIX_Stop_progress_thread",
                                   "MPIX_Stream_comm_create",
                                   "MPIX_Stream_comm_create_multiplex",
                                   "MPIX_Stream_create",
                                   "MPIX_Stream_free",
                                   "MPIX_Stream_irecv",
                                   "MPIX_Stream_irecv_c",
                                   "MPIX_Stream_isend",
                                   "MPIX_Stream_isend_c",
                                   "MPIX_Stream_progress",
                                   "MPIX_Stream_recv",
                                   "MPIX_Stream_recv_c",
                                   "MPIX_Stream_send",
                                   "MPIX_Stream_send_c",
                                   "MPIX_Threadcomm_finish",
                                   "MPIX_Threadcomm_free",
                                   "MPIX_Threadcomm_init",
                                   "MPIX_Threadcomm_start",
                                   "MPIX_Type_iov",
                                   "MPIX_Type_iov_len",
                                   "MPIX_Wait_enqueue",
                                   "MPIX_Waitall_enqueue",
                                   "MPIX_Win_create_errhandler_x",
                                   "PMPIX_Op_create_x",
                                   "PMPIX_Stream_create"});
  SKIP_WITHOUT("mpicc.mpich");
  compile("mpicc.mpich", "newer.c", mpich_front_end);
  expect_no_errors("./newer");
}

TEST_F(ForMpich, ProgramsMayChooseItAsTheyRun) {
  const std::string source = MPI_PROGRAMS "/foreign/opens.c";
  EXPECT_EQ(output("cc -w " + source + " -o opens -ldl"), "");
  EXPECT_EQ(output("aprun -n 3 --processes ./opens"), "3\n3\n3\n");
  for (const char* const name : {"libmpi.so.12", "libmpich.so.12"}) {
    EXPECT_EQ(output(std::string("aprun -n 3 --processes ./opens ") + name), "3\n3\n3\n");
    EXPECT_EQ(output(std::string("aprun -n 3 ./opens ") + name), "3\n3\n3\n");
  }
}

TEST_F(ForMpich, ProgramsOfTheSystemRun) {
  SKIP_WITHOUT("NPmpich2");
  const std::string text = output("aprun -n 2 NPmpich2 -u 4");
  EXPECT_NE(text.find("Mbps in"), std::string::npos) << text;
}

}  // namespace
}  // namespace aplib
