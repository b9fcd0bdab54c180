# SPDX-License-Identifier: MIT
"""The suite's sources, from the distribution's archive of MPICH, configured and compiled by our mpicc."""

import contextlib
import hashlib
import pathlib
import shutil

from building import BuildFailed, Compilers, Tree, find_tool
from sources import Sources, Unavailable

# The lists, and what left_out.txt says, are those of this version.
VERSION = "4.0.2"
SHA256 = "b27039f964afeb6b8a3e009c56b441cbe368c26d6d6476ad3bb7190996875860"

FOLDERS = (
    "attr", "coll", "comm", "datatype", "errhan", "group", "info", "init", "io", "mpi_t", "part", "pt2pt", "rma",
    "topo", "threads/coll", "threads/comm", "threads/init", "threads/pt2pt", "threads/rma",
    "errors/attr", "errors/coll", "errors/comm", "errors/datatype", "errors/group", "errors/io", "errors/pt2pt",
    "errors/rma", "errors/topo",
    *(f"f77/{name}" for name in ("attr", "coll", "comm", "datatype", "ext", "info", "init", "io", "pt2pt", "rma",
                                 "topo")),
    *(f"f90/{name}" for name in ("attr", "coll", "comm", "datatype", "ext", "f90types", "info", "init", "io", "misc",
                                 "pt2pt", "rma", "timer", "topo")),
)  # fmt: skip

# Names of MPICH's or of MPI before 3.0, which the standard ABI has not, and what stands for them. And what the suite's
# configure has forgotten to ask: without it, threads spin at their barriers, and many on few cores take minutes.
DEFINES = " ".join(f"-D{name}={value}" for name, value in {
    "MPIX_Delete_error_class": "MPI_Remove_error_class",
    "MPIX_Delete_error_code": "MPI_Remove_error_code",
    "MPIX_Delete_error_string": "MPI_Remove_error_string",
    "MPI_COMBINER_HVECTOR_INTEGER": -1,
    "MPI_COMBINER_HINDEXED_INTEGER": -2,
    "MPI_COMBINER_STRUCT_INTEGER": -3,
    "HAVE_PTHREAD_BARRIER_INIT": 1,
}.items())  # fmt: skip


FORTRAN_FLAGS = "-O0 -w -fallow-argument-mismatch"  # the suite gives one procedure buffers of many types


def fetch(cache):
    """The archive. Raises Unavailable."""
    archive, version = Sources(cache / "sources").archive("mpich")
    if version != VERSION:
        raise Unavailable(f"needs sources from apt: it has MPICH {version}, and the lists are for {VERSION}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise Unavailable(f"needs sources from apt: {archive} has the SHA-256 {found} instead of {SHA256}")
    return archive


class Suite:
    """The configured suite in cache/mpich. It is made anew when the recipe, mpicc or mpi.h have changed."""

    def __init__(self, cache, build):
        mpi = pathlib.Path(build) / "lib" / "aplib" / "mpi"
        find_tool(build, "aprun")
        if shutil.which("gfortran") is None:
            raise Unavailable("needs the tool gfortran")
        if not (mpi / "bin" / "mpicc").exists() or not (mpi / "include" / "mpi.h").exists():
            raise Unavailable(f"needs APlib's own programs: mpicc is not built in {build}")
        self.mpiexec = mpi / "bin" / "mpiexec"
        archive = fetch(cache)
        stamp = hashlib.sha256()
        for path in (pathlib.Path(__file__), mpi / "include" / "mpi.h", (mpi / "bin" / "mpicc").resolve()):
            stamp.update(path.read_bytes())
        mark = cache / "mpich" / "configured"
        self.tree = Tree(cache / "mpich", Compilers("cells", str(mpi / "bin" / "mpicc"), "false", "false"))
        if not mark.exists() or mark.read_text(encoding="utf-8") != stamp.hexdigest():
            shutil.rmtree(self.tree.folder, ignore_errors=True)
            self.tree.folder.mkdir(parents=True)
            self._configure(archive, mpi)
            mark.write_text(stamp.hexdigest(), encoding="utf-8")

    def _configure(self, archive, mpi):
        self.tree.run("tar", "-xf", archive, "--no-same-owner", "--strip-components=3", f"mpich-{VERSION}/test/mpi")
        # A compiler of the environment would come before mpicc in some of its parts.
        environment = ("CC", "CXX", "F77", "FC", "CFLAGS", "CPPFLAGS", "LDFLAGS")
        self.tree.run("env", *(f"--unset={name}" for name in environment),
                      "./configure", f"--with-mpi={mpi}", "--enable-strictmpi", "--enable-fortran=f77,f90",
                      "--disable-cxx", "--disable-spawn", "--disable-perftest",
                      "--disable-collalgo-tests", "--disable-dependency-tracking", "--disable-shared", "CFLAGS=-O0 -w",
                      f"FFLAGS={FORTRAN_FLAGS}", f"FCFLAGS={FORTRAN_FLAGS}", f"CPPFLAGS={DEFINES}")
        for part in ("util", "dtpools"):  # optimised: they fill and check the buffers of the programs
            self.tree.make("CFLAGS=-O2 -w", under=part)

    def folder(self, name):
        return self.tree.folder / name

    def compile(self, folder, programs):
        """Compiles programs of one folder, without libtool, which takes as long as the compiler. What does not compile
        is missing afterwards, and the log says why."""
        def library(path):
            return str(self.folder(path))

        main = folder.split("/")[0] if folder != "f90/f90types" else "datatype"  # that is in C
        kind = {"threads": "thread", "f77": "f77", "f90": "f90"}.get(main, "single")
        needed = [library(f"util/.libs/libmtest_{kind}.a")]
        if main not in ("f77", "f90"):
            needed = [library("util/.libs/libdtypes.a"), *needed, library("dtpools/src/.libs/libdtpools.a")]
        with contextlib.suppress(BuildFailed):
            self.tree.make("-k", "LINK=$(CC) $(CFLAGS) -o $@", "F77LINK=$(F77) $(FFLAGS) -o $@",
                           "FCLINK=$(FC) $(FCFLAGS) -o $@", f"LDADD={' '.join(needed)}", "LDADDDATA=",
                           f"mtest_c_objects={library('util/.libs/libmtest_single.a')}", *programs, under=folder)
