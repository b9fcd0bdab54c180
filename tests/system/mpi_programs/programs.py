# SPDX-License-Identifier: MIT
"""The programs: where each comes from, how it is built (as its own instructions say, by the library's compilers), how
it is run, which numbers are its answer, and which its speed."""

import dataclasses
import hashlib
import inspect
import shutil
from collections.abc import Callable

from origins import Commit, Package
from sources import Unavailable


@dataclasses.dataclass(frozen=True)
class Figure:
    """A speed that the program prints; what the pattern finds several times is added up."""

    name: str
    unit: str
    pattern: str
    higher_is_better: bool = False
    factor: float = 1


@dataclasses.dataclass(frozen=True)
class Answer:
    """Numbers that the program prints, equal for all libraries: to the last digit, or nearly."""

    name: str
    pattern: str
    tolerance: float = 0  # relative; reductions of several libraries add in different orders


@dataclasses.dataclass(frozen=True)
class Case:
    ranks: int
    arguments: tuple = ()
    files: dict = dataclasses.field(default_factory=dict)  # name: text
    program: str = ""  # other than the program's own
    peer_target: float = 0  # so many times as fast as the best peer, or more
    own_target: float = 0  # and as APlib with a rank for each core


WITHIN_10_PERCENT = 1 / 1.1


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    origins: tuple
    build: Callable  # build(tree, archives)
    program: str
    cases: tuple
    figures: tuple
    answers: tuple
    demands: tuple = ()  # patterns that the output must have
    forbids: tuple = ()  # and must not have
    outputs: str = ""  # files that the program writes, as part of its output
    needs: tuple = ("make", "tar")

    def stamp(self):
        """A text that changes with the recipe."""
        return hashlib.sha256(inspect.getsource(self.build).encode()).hexdigest()


# HPL, LU decomposition with OpenBLAS: a matrix of 3,200 x 3,200. All ranks are in one row of the grid: with more rows,
# they would have to agree on the pivot of each column, which two ranks need not. The other settings are the first of
# those in the input that comes with HPL.


def build_hpl(tree, archives):
    tree.unpack(archives[0])
    arch = "Linux_PII_FBLAS"
    tree.run("cp", f"setup/Make.{arch}", ".")
    tree.make(f"arch={arch}", f"TOPdir={tree.folder}", f"CC={tree.cc}", f"LINKER={tree.cc}", "LAlib=-lopenblas -lm",
              "MPinc=", "MPlib=", "F2CDEFS=-DAdd_ -DF77_INTEGER=int -DStringSunStyle", "-j1")


HPL_INPUT = """\
HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out      output file name (if any)
6            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
3200         Ns
1            # of NBs
64           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
1            Ps
{ranks}            Qs
16.0         threshold
1            # of panel fact
0            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
2            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
0            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
0            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
0            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
"""


def hpl(ranks, **targets):
    return Case(ranks, files={"HPL.dat": HPL_INPUT.format(ranks=ranks)}, **targets)


HPL = Program(
    name="hpl",
    origins=(Commit("hpl", "2.3", "https://github.com/icl-utk-edu/hpl", "9edeab5e1713116c4231e5d3aa6159b5b747ede8"),),
    build=build_hpl,
    program="bin/Linux_PII_FBLAS/xhpl",
    cases=(hpl(2, peer_target=1), hpl(8), hpl(16, peer_target=3, own_target=WITHIN_10_PERCENT)),
    figures=(Figure("solution", "GFLOP/s", r"\nW\w+(?:\s+\d+){4}\s+\S+\s+(\S+)", higher_is_better=True),),
    answers=(Answer("residual", r"\)=\s*(\S+) \.+ PASSED"),),
    demands=(r"1 tests completed and passed residual checks", r"0 tests completed and failed residual checks"),
)

# LULESH, explicit hydrodynamics: cubic numbers of ranks; all cases have 60 x 60 x 60 elements in all. Surfaces of 27
# ranks have 5 % more nodes than those of 8.


def build_lulesh(tree, archives):
    tree.unpack(archives[0])
    tree.make(f"CXX={tree.cxx} -DUSE_MPI=1")


LULESH = Program(
    name="lulesh",
    origins=(Commit("lulesh", "2.0.3", "https://github.com/LLNL/LULESH", "3e01c40b3281aadb7f996525cdd4a3354f6d3801"),),
    build=build_lulesh,
    program="lulesh2.0",
    cases=(
        Case(1, ("-s", "60", "-i", "10"), peer_target=1),
        Case(8, ("-s", "30", "-i", "10"), peer_target=1),
        Case(27, ("-s", "20", "-i", "10"), peer_target=3, own_target=WITHIN_10_PERCENT),
    ),
    figures=(Figure("elements", "k/s", r"FOM\s*=\s*(\S+)", higher_is_better=True),),
    answers=(
        Answer("iterations", r"Iteration count\s*=\s*(\d+)"),
        Answer("energy", r"Final Origin Energy\s*=\s*(\S+)"),
        Answer("symmetry", r"TotalAbsDiff\s*=\s*(\S+)"),
    ),
)

# HPCG, conjugate gradients with multigrid: 32 x 32 x 64 rows in all.


def build_hpcg(tree, archives):
    tree.unpack(archives[0])
    (tree.folder / "made").mkdir()
    tree.run("sh", "../configure", "Linux_MPI", under="made")
    tree.make(f"CXX={tree.cxx}", under="made")


def hpcg(ranks, nx, ny, nz, px, py, pz, **targets):
    words = {"nx": nx, "ny": ny, "nz": nz, "npx": px, "npy": py, "npz": pz, "rt": 1}
    return Case(ranks, tuple(f"--{key}={value}" for key, value in words.items()), **targets)


HPCG = Program(
    name="hpcg",
    origins=(
        Commit("hpcg", "3.1", "https://github.com/hpcg-benchmark/hpcg", "114602d458d1034faa52b71e4c15aba9b3a17698"),
    ),
    build=build_hpcg,
    program="made/bin/xhpcg",
    cases=(
        hpcg(2, 32, 32, 32, 1, 1, 2, peer_target=1),
        hpcg(8, 16, 16, 32, 2, 2, 2),
        hpcg(16, 16, 16, 16, 2, 2, 4, peer_target=3, own_target=WITHIN_10_PERCENT),
    ),
    figures=(Figure("rating", "GFLOP/s", r"GFLOP/s rating of=(\S+)", higher_is_better=True),),
    answers=(
        Answer("iterations", r"Optimized CG iterations per set=(\d+)"),
        Answer("residual", r"Scaled residual mean=(\S+)", 1e-4),
        Answer("variance", r"Scaled residual variance=(\S+)"),
    ),
    demands=(r"HPCG result is VALID",),
    outputs="HPCG-Benchmark*.txt",
)

# miniFE, finite elements and conjugate gradients: 40 x 40 x 40 elements in all.


def build_minife(tree, archives):
    tree.unpack(archives[0])
    tree.make(f"CXX={tree.cxx}", f"CC={tree.cc}", "-j1", under="ref/src")


MINIFE = Program(
    name="minife",
    origins=(
        Commit("minife", "2.2.0", "https://github.com/Mantevo/miniFE", "c79e0f7f7afdd6c8191936efce7a668316159cc3"),
    ),
    build=build_minife,
    program="ref/src/miniFE.x",
    cases=tuple(Case(ranks, ("-nx", "40", "-ny", "40", "-nz", "40", "-verify_solution", "1"))
                for ranks in (2, 8, 16)),
    figures=(Figure("CG", "s", r"Total CG Time: (\S+)"),),
    answers=(
        Answer("iterations", r"\n\s*Iterations: (\d+)"),
        Answer("first residual", r"Initial Residual = (\S+)", 1e-6),
    ),
    outputs="miniFE*.yaml",
)

# AMG, algebraic multigrid: 40 x 40 x 40 rows in all.


def build_amg(tree, archives):
    tree.unpack(archives[0])
    tree.make(f"CC={tree.cc}", "-j1", MAKEFLAGS=f"CC={tree.cc}")


def amg(ranks, *grid):
    return Case(ranks, ("-problem", "1", "-n", *(str(40 // each) for each in grid), "-P", *map(str, grid)))


AMG = Program(
    name="amg",
    origins=(Commit("amg", "1.2", "https://github.com/LLNL/AMG", "3ada8a128e311543e84d9d66344ece77924127a8"),),
    build=build_amg,
    program="test/amg",
    cases=(amg(2, 1, 1, 2), amg(8, 2, 2, 2), amg(16, 2, 2, 4)),
    figures=(Figure("set-up and solution", "s", r"Time:\n=+\nPCG \w+:\n\s*wall clock time = (\S+)"),),
    answers=(
        Answer("iterations", r"Iterations = (\d+)"),
        Answer("residual", r"Final Relative Residual Norm = (\S+)", 1e-3),
    ),
)

# OSU's micro-benchmarks check what they receive. Their times are bench/compare's subject (--mpi).


def build_osu(tree, archives):
    tree.unpack(archives[0])
    tree.run("./configure", f"CC={tree.cc}", f"CXX={tree.cxx}", "CFLAGS=-O2 -w", "--disable-dependency-tracking")
    for folder in ("pt2pt/standard", "collective/blocking"):
        tree.make("-k", under=f"c/mpi/{folder}")


def osu(ranks, folder, *names):
    options = ("-c", "-x", "1", "-i", "10", "-m", "4:65536")
    return tuple(Case(ranks, options, program=f"c/mpi/{folder}/osu_{name}") for name in names)


COLLECTIVES = ("allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "alltoallw", "bcast", "gather",
               "gatherv", "reduce", "reduce_scatter", "reduce_scatter_block", "scatter", "scatterv")
OSU = Program(
    name="osu",
    origins=(
        Commit("osu", "7.4", "https://github.com/sherrywong1220/osu-micro-benchmarks-7.4",
               "bed60f564c2908a6123315f49f6dd0c0ff5440a3"),
    ),
    build=build_osu,
    program="",
    cases=(
        *osu(2, "pt2pt/standard", "latency", "bw", "bibw", "multi_lat", "mbw_mr"),
        *(case for ranks in (2, 8, 16) for case in osu(ranks, "collective/blocking", *COLLECTIVES)),
    ),
    figures=(),
    answers=(),
    demands=(r"Pass",),
    forbids=(r"Fail", r"[Ee]rror"),
)

# NPB, the NAS parallel benchmarks, check their own results: flow solvers (BT, LU, SP), conjugate gradients, random
# numbers, a Fourier transform, sorting, multigrid, and BT that also writes its results by MPI-IO and reads them back.
# DT is left out: it reads memory of malloc that it has not written, and its answer depends on what lies there.
KERNELS = ("bt", "cg", "ep", "ft", "is", "lu", "mg", "sp")
NPB_FOLDER = "NPB3.4-MPI"


def make_npb(tree, archives, wanted, **words):
    """`wanted`: (kernel, class, further words of the makefile) of each program."""
    if shutil.which("gfortran") is None:
        raise Unavailable("needs the tool gfortran")
    tree.unpack(archives[0])
    config = tree.folder / NPB_FOLDER / "config"
    (tree.folder / NPB_FOLDER / "bin").mkdir()
    shutil.copy(config / "make.def.template", config / "make.def")
    fixed = (f"MPIFC={tree.fc}", f"MPICC={tree.cc}", "FFLAGS=-O2 -w -fallow-argument-mismatch", "CFLAGS=-O2 -w", "-j1")
    for kernel, letter, *more in wanted:
        tree.make(kernel, f"CLASS={letter}", *more, *fixed, under=NPB_FOLDER)


def build_npb(tree, archives):
    make_npb(tree, archives, [
        *((kernel, letter) for letter in "SW" for kernel in KERNELS),
        *(("bt", "S", f"SUBTYPE={subtype}") for subtype in ("full", "simple")),
    ])


def build_npb_a(tree, archives):
    make_npb(tree, archives, [(kernel, "A") for kernel in KERNELS_OF_SPEED])


def npb(name, *numbers, **targets):
    return tuple(Case(ranks, program=f"{NPB_FOLDER}/bin/{name}", **targets) for ranks in numbers)


NPB = Program(
    name="npb",
    origins=(
        Commit("npb", "3.4.2", "https://github.com/igankevich/npb-checkpoints",
               "cac2d9bd9fc8526e47d025d1ed5abdce9a6e2dbb"),
    ),
    build=build_npb,
    program="",
    cases=(
        *(case for kernel in KERNELS
          for case in npb(f"{kernel}.S.x", *((1, 4, 9, 16) if kernel in ("bt", "sp") else (1, 2, 8, 16)))),
        *(case for kernel in KERNELS for case in npb(f"{kernel}.W.x", 4)),
        *npb("bt.S.x.mpi_io_full", 4, 9, 16),
        *npb("bt.S.x.mpi_io_simple", 4, 9, 16),
    ),
    figures=(),
    answers=(),
    demands=(r"Verification\s*=\s*SUCCESSFUL",),
    forbids=(r"UNSUCCESSFUL",),
)

# The same, larger, for their speed.
KERNELS_OF_SPEED = ("cg", "ft", "is", "mg")

NPB_A = dataclasses.replace(
    NPB,
    name="npb-a",
    build=build_npb_a,
    cases=(
        *(case for kernel in KERNELS_OF_SPEED for case in npb(f"{kernel}.A.x", 2, peer_target=1)),
        *(case for kernel in ("cg", "mg") for case in npb(f"{kernel}.A.x", 16, peer_target=3)),
    ),
    figures=(Figure("speed", "Mop/s", r"Mop/s total\s*=\s*(\S+)", higher_is_better=True),),
)

# HDF5's own tests of parallel files. Left out are t_cache_image, which forks, and takes minutes for serial work, and
# t_prestart and t_pflush2, which need files of tests before them.


def build_hdf5(tree, archives):
    tree.unpack(archives[0])
    tree.run("./configure", f"CC={tree.cc}", "CFLAGS=-O1 -w", "--enable-parallel", "--disable-fortran", "--disable-hl",
             "--disable-shared", "--disable-dependency-tracking")
    tree.make(under="src")
    tree.make("libh5test.la", under="test")
    tree.make(*(case.program.rpartition("/")[2] for case in HDF5.cases), under="testpar")


HDF5 = Program(
    name="hdf5",
    origins=(
        Package("hdf5", "1.10.8+repack1", "7b38e58ff83b13fd8959a90b13bf896bc318ba096c940ab0847abf3ad41a0b31"),
    ),
    build=build_hdf5,
    program="",
    cases=tuple(Case(ranks, program=f"testpar/{name}") for name, ranks in (
        ("t_mpi", 4), ("testphdf5", 4), ("t_shapesame", 4), ("t_filters_parallel", 4), ("t_cache", 4), ("t_bigio", 3),
        ("t_pread", 4), ("t_pshutdown", 4), ("t_init_term", 4))),
    figures=(),
    answers=(),
    demands=(r"no errors|no failures|PASSED|passed|Express test mode",),
    forbids=(r"FAILED", r"\*\*\*.*detected"),
)

# PETSc's "make check", and tests of its solvers with more ranks: the Bratu and driven cavity examples of its manual.


def build_petsc(tree, archives):
    tree.unpack(archives[0])
    tree.run("python3", "./configure", f"--with-cc={tree.cc}", "--with-cxx=0", "--with-fc=0", "--with-debugging=0",
             "--with-x=0", "--with-mpiexec=true", "--with-blaslapack-lib=-llapack -lblas", "COPTFLAGS=-O1",
             "PETSC_ARCH=made")
    words = (f"PETSC_DIR={tree.folder}", "PETSC_ARCH=made")
    tree.make("all", *words)
    for folder, names in PETSC_EXAMPLES.items():
        tree.make(*names, *words, under=folder)


PETSC_EXAMPLES = {"src/snes/tutorials": ("ex5", "ex19"), "src/ksp/ksp/tutorials": ("ex2", "ex45")}


def petsc(name, ranks, *options):
    folder = next(folder for folder, names in PETSC_EXAMPLES.items() if name in names)
    return Case(ranks, options, program=f"{folder}/{name}")


PETSC = Program(
    name="petsc",
    origins=(
        Package("petsc", "3.18.5+dfsg1", "e80001ace81706271c25701d3200e75cb62d69194f9e0ed85e4ae213eecb33b6"),
    ),
    build=build_petsc,
    program="",
    cases=(
        *(petsc("ex19", ranks, "-da_refine", "3", "-pc_type", "mg", "-ksp_type", "fgmres", "-snes_monitor_short")
          for ranks in (1, 2, 8)),
        petsc("ex5", 4, "-da_refine", "4", "-snes_monitor_short", "-ksp_rtol", "1e-8"),
        petsc("ex2", 8, "-m", "60", "-n", "60", "-ksp_monitor_short", "-ksp_gmres_cgs_refinement_type",
              "refine_always"),
        petsc("ex45", 8, "-da_grid_x", "33", "-da_grid_y", "33", "-da_grid_z", "33", "-pc_type", "mg",
              "-pc_mg_levels", "3", "-ksp_monitor_short"),
    ),
    figures=(),
    answers=(
        Answer("first residual", r"0 (?:SNES Function|KSP Residual) norm (\S+)", 1e-4),
        Answer("third residual", r"2 (?:SNES Function|KSP Residual) norm (\S+)", 1e-2),
        Answer("iterations", r"(?s).*\n\s*(\d+) (?:SNES Function|KSP Residual) norm", 0.03),
    ),
    needs=("make", "tar", "python3"),
)

PROGRAMS = {program.name: program
            for program in (HPL, LULESH, HPCG, MINIFE, AMG, OSU, NPB, NPB_A, HDF5, PETSC)}
