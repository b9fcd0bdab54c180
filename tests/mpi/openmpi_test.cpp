// SPDX-License-Identifier: MIT
// Programs that were compiled for Open MPI: our own, by its mpicc, and those of the system.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "foreign.hpp"

namespace aplib {
namespace {

constexpr const char* openmpi_front_end = MPI_LIBRARY_FOLDER "/aplib/mpi/openmpi/libmpi.so.40";
constexpr const char* openmpi_fortran = MPI_LIBRARY_FOLDER "/aplib/mpi/openmpi/libmpi_mpifh.so.40";

/// Objects of Open MPI 5 and 6 that version 4 has not, with their sizes there.
const std::set<std::string> newer_objects = {
    "ompi_mpi_c_short_float_complex 0000000000000200", "ompi_mpi_complex4 0000000000000200",
    "ompi_mpi_cxx_sfltcplex 0000000000000200",         "ompi_mpi_errors_abort 0000000000000400",
    "ompi_mpi_instance_null 0000000000000200",         "ompi_mpi_logical16 0000000000000200",
    "ompi_mpi_short_float 0000000000000200",
};

class ForOpenMpi : public ForeignPrograms {
 protected:
  /// "name size" of each object that stands for a handle.
  [[nodiscard]] std::set<std::string> objects_of(const std::string& library) const {
    std::set<std::string> names;
    for (const Symbol& symbol : exported_by(library)) {
      if (symbol.name.starts_with("ompi_mpi_") || symbol.name.starts_with("ompi_request_null"))
        names.insert(symbol.name + " " + symbol.size);
    }
    return names;
  }
};

TEST_F(ForOpenMpi, ProgramsAnswerAlikeInCellsAndProcesses) {
  SKIP_WITHOUT("mpicc.openmpi");
  expect_no_errors_of_programs("mpicc.openmpi");
}

TEST_F(ForOpenMpi, ErrorsSayWhatIsWrong) {
  SKIP_WITHOUT("mpicc.openmpi");
  write("wrong.c", R"(
#include <mpi.h>
int main(int argc, char** argv) {
  char port[MPI_MAX_PORT_NAME];
  int value = 0;
  MPI_Init(&argc, &argv);
  if (argc == 1) MPI_Open_port(MPI_INFO_NULL, port);
  if (argc == 2) MPI_Send(&value, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
  if (argc == 3) MPI_Send(&value, 1, MPI_2COMPLEX, 0, 0, MPI_COMM_WORLD);
  if (argc == 4) MPI_Abort(MPI_COMM_WORLD, 18);
  MPI_Finalize();
})");
  EXPECT_EQ(output("mpicc.openmpi -w wrong.c -o wrong"), "");
  expect_end("aprun -n 2 ./wrong", 1, "MPI_Open_port: this version of APlib does not have this function yet");
  expect_end("aprun -n 2 ./wrong 2", 1, "MPI_Send: dest is 99");
  expect_end("aprun -n 2 ./wrong 2 3", 1, "MPI_Send: datatype is ");
  expect_end("aprun -n 2 ./wrong 2 3 4", 18, "MPI_Abort");
}

// Open MPI serves threads whatever MPI_Init has provided, and released programs rely on it.
TEST_F(ForOpenMpi, ThreadsCallThoughTheProgramDoesNotAskForThem) {
  SKIP_WITHOUT("mpicc.openmpi");
  write("threads.c", R"(
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
static void* beside(void* got) {
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 1, got, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  return got;
}
int main(int argc, char** argv) {
  int level, got = -1, sum = -1;
  pthread_t thread;
  MPI_Init(&argc, &argv);
  pthread_create(&thread, NULL, beside, &got);
  MPI_Barrier(MPI_COMM_WORLD);
  pthread_join(thread, NULL);
  MPI_Query_thread(&level);
  MPI_Reduce(&got, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (sum >= 0) printf("sum %d, single %d\n", sum, level == MPI_THREAD_SINGLE);
  MPI_Finalize();
})");
  EXPECT_EQ(output("mpicc.openmpi -w threads.c -pthread -o threads"), "");
  EXPECT_EQ(output("aprun --processes -n 4 ./threads"), "sum 6, single 1\n");
}

// Processes that found Open MPI would be the only ranks of worlds of their own.
TEST_F(ForOpenMpi, ProcessesFindTheFrontEndWhereverTheyLook) {
  SKIP_WITHOUT("mpicc.openmpi");
  write("size.c", R"(
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int size;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("of %d\n", size);
  MPI_Finalize();
})");
  const std::string folder = "/usr/lib/x86_64-linux-gnu";
  EXPECT_EQ(output("mpicc.openmpi size.c -o by_rpath -Wl,--disable-new-dtags -Wl,-rpath," + folder), "");
  EXPECT_EQ(output("mpicc.openmpi size.c -o size"), "");
  write("in_front", "#!/bin/sh\nexport LD_LIBRARY_PATH=" + folder + ":$LD_LIBRARY_PATH\nexec ./size\n");
  EXPECT_EQ(output("chmod +x in_front"), "");
  for (const std::string& program :
       {std::string("./by_rpath"), std::string("./in_front"), "env LD_LIBRARY_PATH=" + folder + " ./size"})
    EXPECT_EQ(output("aprun --processes -n 2 " + program), "of 2\nof 2\n") << program;
  EXPECT_EQ(output("LD_LIBRARY_PATH=" + folder + " aprun --processes -n 2 ./size"), "of 2\nof 2\n");
}

TEST_F(ForOpenMpi, WhatNoCellCanRunIsAProcess) {
  SKIP_WITHOUT("mpicc.openmpi");
  write("init.c", "#include <mpi.h>\nint main(int c, char** v) { MPI_Init(&c, &v); return MPI_Finalize(); }\n");
  EXPECT_EQ(output("mpicc.openmpi -fsanitize=address init.c -o sanitized && aprun -n 2 ./sanitized"),
            "aprun: ./sanitized is built with a sanitizer: each of its cells is a process (--processes)\n");
  EXPECT_EQ(output("cp /lib64/ld-linux-x86-64.so.2 linker && mpicc.openmpi -Wl,-dynamic-linker,$PWD/linker init.c -o "
                   "linked && aprun -n 2 ./linked 2>&1 | sed 's/(.*linker)/(...)/'"),
            "aprun: ./linked has a dynamic linker of its own (...): each of its cells is a process (--processes)\n");
}

TEST_F(ForOpenMpi, ProgramsInFortranAnswerAlikeInCellsAndProcesses) {
  SKIP_WITHOUT("mpifort.openmpi");
  expect_no_errors_of_language("mpifort.openmpi -fallow-argument-mismatch", "fortran.f90");
  expect_no_errors_of_language("mpifort.openmpi", "fortran08.f90");
}

TEST_F(ForOpenMpi, ProgramsInCxxAnswerAlikeInCellsAndProcesses) {
  SKIP_WITHOUT("mpicxx.openmpi");
  expect_no_errors_of_language("mpicxx.openmpi", "cplusplus.cpp");
}

TEST_F(ForOpenMpi, TheFrontEndHasWhatProgramsLinkWith) {
  const std::set<std::string> functions = functions_of(openmpi_front_end);
  // What it lacked, programs would find in libmpi_abi, which takes no handles of theirs.
  for (const char* const name : {"MPI_Comm_f2c", "MPI_Comm_toint", "MPI_Send_c", "PMPI_Op_create_c"})
    EXPECT_TRUE(functions.contains(name)) << name;
  const std::string library = "/usr/lib/x86_64-linux-gnu/libmpi.so.40";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "needs the library libmpi.so.40";
  for (const std::string& name : functions_of(library)) {
    if (name.ends_with("_FN") || name.ends_with("_FN_NULL") || name.ends_with("_F90")) continue;  // of Fortran
    EXPECT_TRUE(functions.contains(name) || name.ends_with("_NULL")) << name;
  }
  // COPY relocations copy so many bytes.
  const std::set<std::string> theirs = objects_of(library);
  for (const std::string& object : objects_of(openmpi_front_end))
    EXPECT_TRUE(theirs.contains(object) || newer_objects.contains(object)) << object;
}

// Linked with our libraries, for the installed ones may be those of version 4.
TEST_F(ForOpenMpi, WhatNewerVersionsHaveIsThere) {
  const std::set<std::string> objects = objects_of(openmpi_front_end);
  for (const std::string& object : newer_objects) EXPECT_TRUE(objects.contains(object)) << object;
  expect_exports(openmpi_front_end, {"MPIX_Comm_ack_failed",    "MPIX_Comm_agree",
                                     "MPIX_Comm_failure_ack",   "MPIX_Comm_failure_get_acked",
                                     "MPIX_Comm_get_failed",    "MPIX_Comm_iagree",
                                     "MPIX_Comm_is_revoked",    "MPIX_Comm_ishrink",
                                     "MPIX_Comm_revoke",        "MPIX_Comm_shrink",
                                     "MPIX_Query_rocm_support", "MPI_F08_STATUSES_IGNORE",
                                     "MPI_Session_set_info",    "OMPI_Affinity_str",
                                     "MPI_F08_STATUS_IGNORE",   "MPI_Status_c2f08",
                                     "MPI_Status_f082c",        "MPI_Status_f082f",
                                     "MPI_Status_f2f08",        "PMPIX_Comm_revoke",
                                     "PMPI_Status_c2f08",       "mpi_fortran_buffer_automatic_"});
  // What the library for mpi_f08 calls, too.
  expect_exports(openmpi_fortran, {"mpi_sizeof_character_r15_", "mpi_sizeof_complex128_scalar_",
                                   "mpi_sizeof_int32_r1_",      "mpi_sizeof_logical_scalar_",
                                   "mpi_sizeof_real128_r7_",    "mpi_status_f082f_",
                                   "mpi_status_f2f08_",         "mpix_comm_revoke_",
                                   "ompi_status_f082f_f",       "ompi_status_f2f08_f",
                                   "ompix_comm_ack_failed_f",   "ompix_comm_agree_f",
                                   "ompix_comm_failure_ack_f",  "ompix_comm_failure_get_acked_f",
                                   "ompix_comm_get_failed_f",   "ompix_comm_iagree_f",
                                   "ompix_comm_is_revoked_f",   "ompix_comm_ishrink_f",
                                   "ompix_comm_revoke_f",       "ompix_comm_shrink_f",
                                   "pmpi_sizeof_int64_r2_",     "pmpi_status_f082f_",
                                   "pmpix_comm_revoke_"});
  SKIP_WITHOUT("mpicc.openmpi");
  compile("mpicc.openmpi", "newer.c", openmpi_front_end);
  expect_no_errors("./newer");
  SKIP_WITHOUT("mpifort.openmpi");
  expect_no_errors_of_language("mpifort.openmpi -fallow-argument-mismatch", "newer.f90",
                               std::string(openmpi_fortran) + " " + openmpi_front_end);
}

// Its programs are linked with libopen_mpi.so.40, too, which has the objects of predefined handles.
TEST_F(ForOpenMpi, ProgramsOfVersion6HaveTwoLibraries) {
  SKIP_WITHOUT("mpicc.openmpi");
  write("empty.c", "");
  EXPECT_EQ(output("cc -shared empty.c -Wl,-soname,libopen_mpi.so.40 -o libopen_mpi.so"), "");
  write("size.c", R"(
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int size;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  printf("of %d\n", size);
  MPI_Finalize();
})");
  EXPECT_EQ(output("mpicc.openmpi size.c -o size -Wl,--no-as-needed ./libopen_mpi.so"), "");
  EXPECT_EQ(output("aprun -n 2 ./size"), "of 2\nof 2\n");
  EXPECT_EQ(output("aprun --processes -n 2 ./size"), "of 2\nof 2\n");
}

// One MPI for all cells would be one communicator for all.
TEST_F(ForOpenMpi, LibrariesOfTheSystemThatCallMpiArePrivate) {
  SKIP_WITHOUT("mpicc.openmpi");
  const std::string library = "/usr/lib/x86_64-linux-gnu/libfftw3_mpi.so.3";
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "needs the library libfftw3_mpi.so.3";
  write("slab.c", R"(
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
void fftw_mpi_init(void);
ptrdiff_t fftw_mpi_local_size_2d(ptrdiff_t, ptrdiff_t, MPI_Comm, ptrdiff_t*, ptrdiff_t*);
int main(int argc, char** argv) {
  ptrdiff_t rows, first;
  MPI_Init(&argc, &argv);
  fftw_mpi_init();
  fftw_mpi_local_size_2d(16, 16, MPI_COMM_WORLD, &rows, &first);
  printf("%d rows from %d\n", (int)rows, (int)first);
  MPI_Finalize();
})");
  EXPECT_EQ(output("mpicc.openmpi slab.c -o slab " + library), "");
  EXPECT_EQ(output("aprun -n 4 ./slab | sort -n -k 4"),
            "4 rows from 0\n4 rows from 4\n4 rows from 8\n4 rows from 12\n");
}

TEST_F(ForOpenMpi, ProgramsOfTheSystemRun) {
  bool has_one = false;
  if (!lacks("NPopenmpi")) {
    has_one = true;
    const std::string text = output("aprun -n 2 NPopenmpi -u 64");
    EXPECT_NE(text.find("Mbps in"), std::string::npos) << text;
  }
  const std::string sample = "/usr/share/doc/hpcc/examples/_hpccinf.txt";
  if (!lacks("hpcc") && std::filesystem::exists(sample)) {  // small systems leave such files out
    has_one = true;
    (void)output("sed -e '6s/.*/200 Ns/; 8s/.*/32 NBs/; 11s/.*/2 Ps/; 12s/.*/4 Qs/' " + sample + " > hpccinf.txt");
    EXPECT_EQ(output("aprun -n 8 hpcc"), "");
    const std::string text = output("cat hpccoutf.txt");
    // Not "Success=1": RandomAccess ends with some wrong places, with Open MPI, too, and whether they are more than its
    // limit of 1 % depends on how busy the computer is.
    for (const char* const result :
         {"1 tests completed and passed residual checks", "PTRANS_residual=0", "Found 0 errors in 4096 locations",
          "End of MPIRandomAccess section", "End of MPIRandomAccess_LCG section", "Solution Validates",
          "End of MPIFFT section", "End of HPC Challenge tests"})
      EXPECT_NE(text.find(result), std::string::npos) << result << '\n' << text;
  }
  if (std::filesystem::exists("/usr/lib/python3/dist-packages/mpi4py")) {
    has_one = true;
    write("sum.py",
          "from mpi4py import MPI\nworld = MPI.COMM_WORLD\nif world.allreduce(world.rank) != 3: world.Abort(5)\n");
    EXPECT_EQ(output("aprun -n 3 /usr/bin/python3 sum.py 2>/dev/null"), "");
  }
  if (has_one) return;
  SKIP_WITHOUT("hpcc");
  GTEST_SKIP() << "needs the documentation of hpcc";
}

}  // namespace
}  // namespace aplib
