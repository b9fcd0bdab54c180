// SPDX-License-Identifier: MIT
// mpicc, mpicxx and mpiexec, called by hand and by build tools that know nothing of APlib.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "commands.hpp"

namespace aplib {
namespace {

class MpiTools : public MpiCommands {
 protected:
  void SetUp() override {
    MpiCommands::SetUp();
    std::filesystem::copy_file(MPI_PROGRAMS "/hello.c", folder_ + "/hello.c");
  }

  /// A refusal of one line.
  void expect_refused(const std::string& command, const std::string& part) const {
    int status = 0;
    const std::string text = output(command, &status);
    EXPECT_NE(status, 0) << command;
    EXPECT_NE(text.find(part), std::string::npos) << command << '\n' << text;
    EXPECT_EQ(text.find('\n'), text.size() - 1) << command << '\n' << text;
  }

  /// Whether both ranks of `program` greet.
  void expect_hello(const std::string& program) const {
    EXPECT_EQ(output("mpiexec -n 2 " + program + " | sort"), "rank 0 of 2, 1 errors\nrank 1 of 2, 2 errors\n");
  }
};

TEST_F(MpiTools, CompileUnderEachName) {
  for (const char* name : {"mpicc", "mpicc.aplib", "mpicc_abi"}) {
    EXPECT_EQ(output(std::string(name) + " -Wall -Werror hello.c -o hello"), "");
    expect_hello("./hello");
  }
  std::filesystem::rename(folder_ + "/hello.c", folder_ + "/hello.cpp");
  for (const char* name : {"mpicxx", "mpic++", "mpiCC", "mpicxx.aplib"}) {
    EXPECT_EQ(output(std::string(name) + " hello.cpp -o hello"), "");
    expect_hello("./hello");
  }
}

TEST_F(MpiTools, CompileInSteps) {
  EXPECT_EQ(output("mpicc -c hello.c && mpicc hello.o -o hello"), "");
  expect_hello("./hello");
  EXPECT_EQ(output("$(mpicc -showme:command) $(mpicc -showme:compile) -c hello.c -o asked.o && "
                   "$(mpicc -showme:command) asked.o $(mpicc -showme:link) -o asked"),
            "");
  expect_hello("./asked");
}

TEST_F(MpiTools, SayWhatTheyDo) {
  const std::string all = output("mpicc -show");
  EXPECT_NE(all.find("-I" BUILD_TREE "/lib/aplib/mpi/include"), std::string::npos) << all;
  EXPECT_NE(all.find("-lmpi_abi"), std::string::npos) << all;
  EXPECT_EQ(output("mpicc -showme"), all);
  EXPECT_EQ(output("mpicc -O2 hello.c -show").find(" -O2 hello.c ") != std::string::npos, true);
  EXPECT_EQ(output("mpicc -showme:compile").find("-lmpi_abi"), std::string::npos);
  EXPECT_EQ(output("mpicc -showme:link").find("-I"), std::string::npos);
  EXPECT_EQ(output("mpicc -compile-info"), output("mpicc -showme:command | tr '\\n' ' '; mpicc -showme:compile"));
  EXPECT_EQ(output("mpicc -link-info"), output("mpicc -showme:command | tr '\\n' ' '; mpicc -showme:link"));
  EXPECT_EQ(output("mpicc -showme:incdirs"), BUILD_TREE "/lib/aplib/mpi/include\n");
  EXPECT_EQ(output("mpicc -showme:libdirs"), MPI_LIBRARY_FOLDER "\n");
  EXPECT_EQ(output("mpicc --showme:libs"), "mpi_abi\n");
  expect_refused("mpicc -showme:version", "-showme:version: unknown option; use -showme:compile");
}

TEST_F(MpiTools, CompileFortran) {
  if (output("command -v gfortran || true").empty()) GTEST_SKIP() << "needs the tool gfortran";
  write("hello.f90",
        "program hello\n  use mpi\n  integer :: rank, size, ierror\n  call MPI_Init(ierror)\n"
        "  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)\n  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)\n"
        "  print '(a,i0,a,i0,a,i0,a)', 'rank ', rank, ' of ', size, ', ', rank + 1, ' errors'\n"
        "  call MPI_Finalize(ierror)\nend program\n");
  for (const char* name : {"mpifort", "mpif77.aplib", "mpif90"}) {
    EXPECT_EQ(output(std::string(name) + " hello.f90 -o hello"), "");
    expect_hello("./hello");
  }
  // As CMake's find_package(MPI) does.
  EXPECT_EQ(output("gfortran $(mpifort -showme:compile | tr ' ' '\\n' | grep -e ^-I -e ^-fallow) -c hello.f90 && "
                   "gfortran hello.o -L$(mpifort -showme:libdirs) $(mpifort -showme:libs | sed 's/[^ ]*/-l&/g') "
                   "-Wl,-rpath,$(mpifort -showme:libdirs) -o plain"),
            "");
  expect_hello("./plain");
  EXPECT_EQ(output("./plain"), "rank 0 of 1, 1 errors\n");
  expect_refused("mpifort -fdefault-integer-8 hello.f90", "INTEGERs of MPI have 4 bytes");
}

TEST_F(MpiTools, CompileFortransModuleForEachUserWhereNobodyMayWrite) {
  if (output("command -v gfortran || true").empty()) GTEST_SKIP() << "needs the tool gfortran";
  const std::filesystem::path tree = folder_ + "/tree";
  std::filesystem::create_directories(tree / "bin");
  std::filesystem::create_directories(tree / "lib/aplib/mpi");
  std::filesystem::copy_file(BUILD_TREE "/bin/apfort", tree / "bin/apfort");
  std::filesystem::create_symlink("bin/apfort", tree / "mpifort");
  std::filesystem::copy(BUILD_TREE "/lib/aplib/mpi/include", tree / "lib/aplib/mpi/include");
  write("tree/lib/aplib/mpi/modules", "no folder");
  write("use.f90", "program p\n  use mpi\n  print *, MPI_COMM_WORLD\nend program\n");
  EXPECT_EQ(output("export XDG_CACHE_HOME=$PWD/cache; tree/mpifort -c use.f90; tree/mpifort -c use.f90; "
                   "find cache -name mpi.mod | wc -l; find cache -name new* | wc -l"),
            "1\n0\n");
}

TEST_F(MpiTools, UseTheCompilerThatTheEnvironmentNames) {
  EXPECT_EQ(output("MPICH_CC='first a' mpicc -showme:command"), "first a\n");
  EXPECT_EQ(output("MPICH_CC=first OMPI_CC=second mpicc -showme:command"), "second\n");
  EXPECT_EQ(output("OMPI_CC=second MPICC_CC=third mpicc -showme:command"), "third\n");
  EXPECT_EQ(output("MPICC_CC=third AP_CC=fourth mpicc -showme:command"), "fourth\n");
  EXPECT_EQ(output("OMPI_CC=second OMPI_CXX=third mpicxx -showme:command"), "third\n");
  EXPECT_EQ(output("OMPI_CC=second apcc -show --version"), output("apcc -show --version"));
  EXPECT_EQ(output("AP_CC=fourth mpicc -cc=fifth -showme:command; mpicxx -cxx=sixth -showme:command"),
            "fifth\nsixth\n");
  expect_refused("OMPI_CC=mpicc mpicc hello.c", "OMPI_CC=mpicc names mpicc itself");
  expect_refused("MPICH_CC=no-such-compiler mpicc hello.c", "MPICH_CC=COMMAND");
}

TEST_F(MpiTools, Make) {
  write("Makefile", "hello: hello.o\n\t$(CC) -o $@ hello.o -lm\n.c.o:\n\t$(CC) $(CFLAGS) -c $<\n");
  if (output("command -v make || true").empty()) GTEST_SKIP() << "needs the tool make";
  (void)output("make CC=mpicc CFLAGS=-O2");
  expect_hello("./hello");
}

TEST_F(MpiTools, CMakeFindsMpi) {
  write("CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.22)\nproject(hello LANGUAGES C)\nfind_package(MPI REQUIRED)\n"
        "message(STATUS \"MPI ${MPI_C_VERSION}: ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG}.\")\n"
        "add_executable(hello hello.c)\ntarget_link_libraries(hello PRIVATE MPI::MPI_C)\n");
  const std::string log = output(CMAKE_PROGRAM " -S . -B build -DCMAKE_C_COMPILER=mpicc");
  EXPECT_NE(log.find("MPI 5.0: " BUILD_TREE "/lib/aplib/mpi/bin/mpiexec -n."), std::string::npos) << log;
  (void)output(CMAKE_PROGRAM " --build build");
  expect_hello("build/hello");
  // Without a wrapper it asks the mpicc that PATH has, and compiles with another compiler.
  (void)output(CMAKE_PROGRAM " -S . -B plain -DCMAKE_C_COMPILER=" C_COMPILER " && " CMAKE_PROGRAM " --build plain");
  expect_hello("plain/hello");
}

// As AX_MPI and its like look for MPI: a library whose functions are declared without mpi.h, then the header.
TEST_F(MpiTools, Autoconf) {
  if (output("command -v autoconf || true").empty()) GTEST_SKIP() << "needs the tool autoconf";
  write("configure.ac",
        "AC_INIT([hello], [1])\nAC_PROG_CC([mpicc])\nAC_SEARCH_LIBS([MPI_Init], [no-such-library])\n"
        "AC_CHECK_FUNCS([MPI_Init MPI_No_such])\nAC_CHECK_HEADERS([mpi.h])\n"
        "AC_RUN_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[return MPI_Init(0, 0);]])], [runs=yes], [runs=no])\n"
        "echo $CC: $ac_cv_search_MPI_Init, $ac_cv_func_MPI_Init $ac_cv_func_MPI_No_such, $ac_cv_header_mpi_h, $runs "
        "> result\nAC_OUTPUT\n");
  (void)output("autoconf && ./configure");
  EXPECT_EQ(output("cat result"), "mpicc: none required, yes no, yes, yes\n");
}

TEST_F(MpiTools, PkgConfig) {
  if (output("command -v pkg-config || true").empty()) GTEST_SKIP() << "needs the tool pkg-config";
  // An installed tree: the file finds the rest from its own place.
  const std::filesystem::path library = MPI_LIBRARY_FOLDER;
  const std::string tree = folder_ + "/tree/" + library.lexically_relative(BUILD_TREE).string();
  std::filesystem::create_directories(tree + "/pkgconfig");
  std::filesystem::create_directories(folder_ + "/tree/lib");
  std::filesystem::copy_file(BUILD_TREE "/aplib-mpi.pc", tree + "/pkgconfig/aplib-mpi.pc");
  std::filesystem::create_symlink(BUILD_TREE "/lib/aplib", folder_ + "/tree/lib/aplib");
  for (const auto& entry : std::filesystem::directory_iterator(library)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libmpi_abi.so") || name.starts_with("libaplib.so"))
      std::filesystem::create_symlink(entry.path(), tree + "/" + name);
  }
  EXPECT_EQ(output("export PKG_CONFIG_PATH=" + tree +
                   "/pkgconfig\n"
                   "apcc hello.c $(pkg-config --cflags --libs aplib-mpi) -o hello\n" C_COMPILER
                   " hello.c $(pkg-config --cflags --libs aplib-mpi) -o plain"),
            "");
  expect_hello("./hello");
  expect_hello("./plain");
}

TEST_F(MpiTools, ExecPassesOnWhatItShould) {
  write("show.c",
        "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint main(int c, char** v) {\n"
        "  char f[4096]; puts(getenv(\"COLOUR\")); puts(getcwd(f, sizeof f)); puts(v[c - 1]); return c - 2; }\n");
  (void)output("mpicc show.c -o show && mkdir inside");
  EXPECT_EQ(output("COLOUR=red mpirun -np 1 -x COLOUR -wdir inside -l $PWD/show -n"),
            "[0] red\n[0] " + folder_ + "/inside\n[0] -n\n");
  EXPECT_EQ(output("mpiexec.aplib --oversubscribe -env COLOUR blue --mca btl self ./show x"),
            "mpiexec: without effect here: --mca btl self\nblue\n" + folder_ + "\nx\n");
  int status = 0;
  (void)output("mpiexec -genv COLOUR red -host localhost:2 ./show 1 2", &status);
  EXPECT_EQ(status, 1);
  expect_refused("mpirun.aplib --no-such-option ./show", "mpirun: unknown option --no-such-option");
  EXPECT_NE(output("mpiexec --help").find("-hostfile"), std::string::npos);
  EXPECT_TRUE(output("mpirun --version").starts_with("mpirun (APlib) "));
}

// Between the program and MPI, with globals of its own for each rank.
TEST_F(MpiTools, PreloadedProfilersAreEachRanksOwn) {
  write("profiler.c", R"(
#include <mpi.h>
#include <stdio.h>
static int sends;
int MPI_Send(const void* b, int n, MPI_Datatype t, int d, int g, MPI_Comm c) {
  ++sends;
  return PMPI_Send(b, n, t, d, g, c);
}
int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("rank %d: %d sends\n", rank, sends);
  return PMPI_Finalize();
})");
  write("sends.c", R"(
#include <mpi.h>
int main(int argc, char** argv) {
  int rank, x = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i <= rank; ++i) MPI_Send(&x, 1, MPI_INT, !rank, 0, MPI_COMM_WORLD);
  for (int i = 0; i <= !rank; ++i) MPI_Recv(&x, 1, MPI_INT, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Finalize();
})");
  write("malloc.c", "void* malloc(unsigned long n) { return (void*)(n & 0); }\nvoid free(void* p) { (void)p; }\n");
  (void)output("mpicc sends.c -o sends && mpicc -shared profiler.c -o libprofiler.so && " C_COMPILER
               " -shared -fPIC -fno-builtin malloc.c -o libown.so");
  const std::string counts = "rank 0: 1 sends\nrank 1: 2 sends\n";
  EXPECT_EQ(output("LD_PRELOAD=./libprofiler.so mpiexec -n 2 ./sends | sort"), counts);
  EXPECT_EQ(output("mpiexec -n 2 -x LD_PRELOAD=./libprofiler.so ./sends | sort"), counts);
  EXPECT_EQ(output("mpiexec -n 1 ./sends : -n 1 -x LD_PRELOAD=./libprofiler.so ./sends"), "rank 1: 2 sends\n");
  EXPECT_EQ(output("mpiexec -n 1 -x LD_PRELOAD=./libprofiler.so ./sends : -n 1 ./sends"), "rank 0: 1 sends\n");
  expect_refused("mpiexec -n 2 -x LD_PRELOAD=./libabsent.so ./sends", "LD_PRELOAD: library ./libabsent.so");
  expect_refused("mpiexec -n 2 -x LD_PRELOAD=./libown.so ./sends", "brings an allocator");
}

TEST_F(MpiTools, ProgramsOfOtherMpisAreRefused) {
  write("other.c", "int MPI_Init(int* c, char*** v) { return 0; }\n");
  (void)output(C_COMPILER " -shared -fPIC -Wl,-soname,libmpich_intel.so.9 other.c -o libmpich_intel.so.9 && " C_COMPILER
                          " -I" BUILD_TREE
                          "/lib/aplib/mpi/include -Wl,--unresolved-symbols=ignore-all hello.c "
                          "-Wl,--no-as-needed ./libmpich_intel.so.9 -o other");
  expect_refused("mpiexec -n 2 ./other", "libmpich_intel.so.9");
  expect_refused("mpiexec -n 2 ./other", "another MPI's");
}

TEST_F(MpiTools, ALibraryOfAnotherMpiBesideOursIsTold) {
  write("other.c", "int ompi_something;\n");
  write("between.c", "extern int ompi_something; int between(void) { return ompi_something; }\n");
  (void)output("mkdir system; " C_COMPILER
               " -shared -fPIC -Wl,-soname,libmpi.so.40 other.c -o system/libmpi.so.40 && " C_COMPILER
               " -shared -fPIC between.c -o system/libbetween.so -Lsystem -l:libmpi.so.40 && "
               "mpicc hello.c -o hello -Wl,--no-as-needed -Lsystem -lbetween && " C_COMPILER " -I" BUILD_TREE
               "/lib/aplib/mpi/include hello.c -o plain -Lsystem -L" MPI_LIBRARY_FOLDER
               " -Wl,--no-as-needed,--allow-shlib-undefined -lbetween -lmpi_abi");
  const std::string told = "libmpi.so.40 too, the library of another MPI";
  for (const char* command : {"aprun --shared 'libbetween*' -n 2 ./hello", "./plain"}) {
    const std::string text =
        output(std::string("export LD_LIBRARY_PATH=$PWD/system:" MPI_LIBRARY_FOLDER "; ") + command);
    EXPECT_NE(text.find(told), std::string::npos) << text;
    EXPECT_EQ(text.find(told), text.rfind(told)) << text;
    EXPECT_NE(text.find("rank 0 of "), std::string::npos) << text;
  }
}

TEST_F(MpiTools, ProgramsOfPlainCompilersRunByThemselves) {
  (void)output(C_COMPILER " -I" BUILD_TREE "/lib/aplib/mpi/include hello.c -o hello -L" MPI_LIBRARY_FOLDER
                          " -lmpi_abi -Wl,-rpath," MPI_LIBRARY_FOLDER);
  EXPECT_EQ(output("./hello"), "rank 0 of 1, 1 errors\n");
  expect_hello("./hello");
  int status = 0;
  EXPECT_NE(output("./hello x", &status).find("MPI_Comm_call_errhandler: MPI_ERR_OTHER: "), std::string::npos);
  EXPECT_EQ(status, 1);
}

// A stand-in for ssh runs what it should on this computer.
TEST_F(MpiTools, ExecReachesOtherHosts) {
  (void)output("mpicc hello.c -o hello");
  write("ssh", "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n");
  (void)output("chmod +x ssh");
  const std::string plan = output("PATH=$PWD:$PATH mpiexec -host localhost,far:2 --dry-run ./hello");
  EXPECT_NE(plan.find("3 cells on 2 hosts"), std::string::npos) << plan;
  EXPECT_EQ(output("PATH=$PWD:$PATH mpiexec -host localhost,far:2 ./hello | sort"),
            "rank 0 of 3, 1 errors\nrank 1 of 3, 2 errors\nrank 2 of 3, 3 errors\n");
}

// As on file systems without links.
TEST_F(MpiTools, ExecMayBeACopy) {
  (void)output("mpicc hello.c -o hello && mkdir bin && cp -L $(command -v aprun) bin/mpiexec");
  EXPECT_EQ(output("LD_LIBRARY_PATH=" BUILD_TREE "/lib bin/mpiexec --processes -n 2 ./hello | sort"),
            "rank 0 of 2, 1 errors\nrank 1 of 2, 2 errors\n");
}

TEST_F(MpiTools, ExecStartsSeveralPrograms) {
  (void)output("mpicc " MPI_PROGRAMS "/started.c -o a && " C_COMPILER " -I" BUILD_TREE
               "/lib/aplib/mpi/include " MPI_PROGRAMS "/started.c -L" MPI_LIBRARY_FOLDER
               " -lmpi_abi -o b && mkdir inside");
  write("ssh", "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n");
  (void)output("chmod +x ssh");
  const std::string programs = "-n 2 -x COLOUR=red ./a x : -n 3 -wdir inside ./b y";
  const std::string all =
      "0 of 5: program 0 of 2, x, red in FOLDER\n1 of 5: program 0 of 2, x, red in FOLDER\n"
      "2 of 5: program 1 of 3, y, - in inside\n3 of 5: program 1 of 3, y, - in inside\n"
      "4 of 5: program 1 of 3, y, - in inside\n";
  const std::string sorted = " | sort | sed s/$(basename $PWD)/FOLDER/";
  EXPECT_EQ(output("mpiexec " + programs + sorted), all);
  write("programs", "-n 2 -x COLOUR=red ./a x\n-n 3 -wdir inside ./b y\n");
  EXPECT_EQ(output("mpiexec -configfile programs" + sorted), all);
  EXPECT_EQ(output("PATH=$PWD:$PATH mpiexec -host localhost,far:3 " + programs + sorted), all);
  EXPECT_EQ(output("PATH=$PWD:$PATH mpiexec -host localhost ./a 1 : -host far -env COLOUR blue ./b 2 : "
                   "-host localhost:2 ./a" +
                   sorted),
            "0 of 4: program 0 of 1, 1, - in FOLDER\n1 of 4: program 1 of 1, 2, blue in FOLDER\n"
            "2 of 4: program 2 of 2, -, - in FOLDER\n3 of 4: program 2 of 2, -, - in FOLDER\n");
  EXPECT_EQ(output("PATH=$PWD:$PATH mpiexec -host far -x COLOUR=green ./a 1" + sorted),
            "0 of 1: program 0 of 1, 1, green in FOLDER\n");
  EXPECT_EQ(output("mpiexec -dry-run " + programs + " | tail -1"), "program    ./b y, on cells 2-4\n");
}

TEST_F(MpiTools, SayThatAnotherMpisLauncherStartedThem) {
  (void)output("mpicc hello.c -o hello");
  const std::string own = "rank 0 of 1, 1 errors\n";
  for (const std::string variables : {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=", "PMI_SIZE=4 PMI_RANK=",
                                      "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID="}) {
    const std::string text = output("export " + variables + "0; ./hello");
    EXPECT_NE(text.find("another MPI's launcher has started 4 processes"), std::string::npos) << text;
    EXPECT_NE(text.find("start the program with APlib's mpiexec"), std::string::npos) << text;
    EXPECT_EQ(output("export " + variables + "1; ./hello"), own);
    EXPECT_EQ(output("export " + variables + "0; mpiexec -n 4 ./hello | wc -l"), "4\n");
  }
  EXPECT_EQ(output("OMPI_COMM_WORLD_SIZE=1 ./hello"), own);
}

// As Open MPI's and MPICH's launchers do, for programs that look before MPI_Init, and for scripts around them.
TEST_F(MpiTools, TellRanksWhoTheyAreInTheirEnvironment) {
  write("who.c", R"(#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char** words) {
  const char* names[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK", "OMPI_UNIVERSE_SIZE", "PMI_RANK",
                         "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  char text[200] = "";
  int at = 0, rank;
  for (int i = 0; i < 10; ++i) at += snprintf(text + at, sizeof text - at, "%s ", getenv(names[i]) ? getenv(names[i]) : "-");
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("%d: %s\n", rank, text);
  fflush(stdout);
  if (count > 1 && rank == 0 && system(words[1]) != 0) return 1;
  MPI_Finalize();
  return 0;
})");
  EXPECT_EQ(output("mpicc who.c -o who && mpicc hello.c -o hello"), "");
  const std::string two = "0: 0 2 0 2 0 2 0 2 0 2 \n1: 1 2 1 2 1 2 1 2 1 2 \n";
  EXPECT_EQ(output("mpiexec -n 2 ./who | sort"), two);
  EXPECT_EQ(output("aprun --processes -n 2 ./who | sort"), two);
  EXPECT_EQ(output("mpiexec -n 2 sh -c 'echo $OMPI_COMM_WORLD_RANK $PMI_SIZE' 2>/dev/null | sort"), "0 2\n1 2\n");
  write("ssh", "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n");  // to this computer
  (void)output("chmod +x ssh");
  EXPECT_EQ(output("PATH=$PWD:$PATH mpiexec -host localhost,far:2 ./who | sort"),
            "0: 0 3 0 3 0 3 0 3 0 3 \n1: 1 3 1 3 1 3 1 3 1 3 \n2: 2 3 2 3 2 3 2 3 2 3 \n");
  // What a rank starts has a world of its own, and no other MPI's.
  EXPECT_EQ(output("mpiexec -n 3 ./who ./hello | grep of"), "rank 0 of 1, 1 errors\n");
  EXPECT_EQ(output("mpiexec -n 3 ./who 'mpiexec -n 2 ./who' 2>&1 | grep -c 'launcher has' || true"), "0\n");
}

// Its file tells before it begins.
TEST_F(MpiTools, RunProgramsThatForkAsProcesses) {
  write("forks.c", R"(#include <mpi.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char** words) {
  int rank, status = 0;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const pid_t child = fork();
  if (child == 0) _exit(7);
  if (child > 0) waitpid(child, &status, 0);
  printf("%d: %d\n", rank, WEXITSTATUS(status));
  MPI_Finalize();
  return 0;
})");
  EXPECT_EQ(output("cc forks.c $(mpicc -showme:compile) -L$(mpicc -showme:libdirs) -lmpi_abi "
                   "-Wl,-rpath,$(mpicc -showme:libdirs) -o forks"),
            "");
  const std::string text = output("mpiexec -n 2 ./forks 2>&1 | sort");
  EXPECT_NE(text.find("0: 7\n1: 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("forks or executes others: each of its cells is a process (--processes)"), std::string::npos)
      << text;
}

// Of a block that libc has allocated by another malloc, the program's free() knows nothing.
TEST_F(MpiTools, RunProgramsWithAMallocOfTheirOwnAsProcesses) {
  write("own.c", R"(#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char pool[32 << 20] __attribute__((aligned(16)));
static size_t used;
void* malloc(size_t bytes) {
  size_t at = __atomic_fetch_add(&used, (bytes + 31) & ~15UL, __ATOMIC_RELAXED);
  *(size_t*)(pool + at) = bytes;
  return pool + at + 16;
}
void free(void* block) { (void)block; }
void* calloc(size_t count, size_t bytes) { return memset(malloc(count * bytes), 0, count * bytes); }
void* realloc(void* block, size_t bytes) {
  size_t old = block != NULL ? ((size_t*)block)[-2] : 0;
  void* more = malloc(bytes);
  return old != 0 ? memcpy(more, block, old < bytes ? old : bytes) : more;
}
int main(int count, char** words) {
  MPI_Init(&count, &words);
  char* copy = strdup("copy");
  puts(copy >= pool && copy < pool + sizeof pool ? "own" : "foreign");
  MPI_Finalize();
  return 0;
})");
  EXPECT_EQ(output("cc -fno-builtin own.c $(mpicc -showme:compile) -L$(mpicc -showme:libdirs) -lmpi_abi "
                   "-Wl,-rpath,$(mpicc -showme:libdirs) -o own && mpicc -fno-builtin own.c -o linked"),
            "");
  const std::string text = output("mpiexec -n 2 ./own 2>&1 | sort");
  EXPECT_NE(text.find("own has a malloc of its own: each of its cells is a process"), std::string::npos) << text;
  EXPECT_NE(text.find("own\nown\n"), std::string::npos) << text;
  const std::string told = output("mpiexec -n 1 ./linked 2>&1 || true");
  EXPECT_NE(told.find("which libc uses only if a plain compiler links the program"), std::string::npos) << told;
}

}  // namespace
}  // namespace aplib
