#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Libraries of this computer, each used by 8 ranks at once on two threads: programs/ has a program for each, which
checks its own results. It is built by the wrappers of MPI, and by the plain compiler, whose ranks are executables.

usage: libraries.py BUILD NAME [--runs N]    how often each of the two runs (default: 2)

Exit status: 0, 1 when a run was wrong, 77 when the library is missing (the reason is printed).
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
RANKS, THREADS = 8, 2
PATIENCE = 300  # seconds for what takes one or two
SKIPPED = 77
PROCESSES = "each of its cells is a process (--processes)"  # aprun says why

# A program's source, and what it is linked with: packages of pkg-config, or files of libraries. Behind them, options.
LIBRARIES = {
    "boost-log": ("boost_log.cpp", ["libboost_log.so", "libboost_thread.so"], "-std=c++20 -DBOOST_LOG_DYN_LINK"),
    "boost-serialization": ("boost_serialization.cpp", ["libboost_serialization.so"], "-std=c++20"),
    "boost-thread": ("boost_thread.cpp", ["libboost_thread.so", "libboost_filesystem.so"], "-std=c++20"),
    "curl": ("curl.c", ["libcurl"], "-pthread"),
    "eigen": ("eigen.cpp", ["eigen3"], "-std=c++20 -fopenmp"),
    "fftw": ("fftw.c", ["fftw3", "libfftw3_threads.so"], ""),
    "fortran": ("fortran.f90", [], ""),
    "glib": ("glib.c", ["gobject-2.0"], ""),
    "gmp": ("gmp.c", ["mpfr", "gmp"], ""),
    "gsl": ("gsl.c", ["gsl"], ""),
    "guile": ("guile.c", ["guile-3.0"], ""),
    "hdf5": ("hdf5.c", ["hdf5"], ""),
    "lua": ("lua.c", ["lua5.4"], ""),
    "metis": ("metis.c", ["libmetis.so"], ""),
    "netcdf": ("netcdf.c", ["netcdf"], ""),
    "openblas": ("openblas.c", ["openblas"], ""),
    "openmp-clang": ("openmp.c", [], "-fopenmp"),
    "openmp-gcc": ("openmp.c", [], "-fopenmp"),
    "python": ("python.c", ["python3-embed"], ""),
    "scotch": ("scotch.c", ["libscotch.so", "libscotcherr.so"], "-I/usr/include/scotch"),
    "sqlite": ("sqlite.c", ["sqlite3"], ""),
    "superlu": ("superlu.c", ["superlu"], ""),
    "tbb": ("tbb.cpp", ["tbb", "libtbbmalloc.so"], "-std=c++20"),
    "xml": ("xml.c", ["libxml-2.0"], ""),
}
COMPILERS = {".c": ("mpicc", "gcc"), ".cpp": ("mpicxx", "g++"), ".f90": ("mpifort", "gfortran")}


class Missing(Exception):
    pass


def output(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **options)
    return done.returncode, done.stdout


def flags_of(library):
    """What the compiler is told of a library."""
    if not library.endswith(".so"):
        status, flags = output(["pkg-config", "--cflags", "--libs", library])
        if status:
            raise Missing(f"needs the package {library} of pkg-config")
        return shlex.split(flags)
    status, where = output(["gcc", f"-print-file-name={library}"])
    if status or where.strip() == library:
        raise Missing(f"needs the library {library}")
    return [f"-l{library[3:-3]}"]


def need(tool):
    if shutil.which(tool) is None:
        raise Missing(f"needs the tool {tool}")


def build(name, mpi, folder):
    """The two programs."""
    source, libraries, options = LIBRARIES[name]
    wrapper, plain = COMPILERS[pathlib.Path(source).suffix]
    choice = {}
    if name == "openmp-clang":
        choice, plain = {"AP_CC": "clang"}, "clang"
    need(plain)
    flags = [flag for library in libraries for flag in flags_of(library)]
    plain_flags = [part + word for part, words in (("-I", "incdirs"), ("-L", "libdirs"), ("-l", "libs"))
                   for word in output([mpi / wrapper, f"-showme:{words}"])[1].split()]
    for made, command, mpi_flags in [("wrapper", [mpi / wrapper], []), ("plain", [plain], plain_flags)]:
        status, said = output([*command, "-O2", *shlex.split(options), PROGRAMS / source, "-o", made, *flags, "-lm",
                               *mpi_flags], cwd=folder, env={**os.environ, **choice})
        if status:
            raise SystemExit(f"{name}: {made} does not compile:\n{said}")
        yield made


def run(mpi, program, folder):
    """What is wrong with a run."""
    try:
        status, said = output([mpi.parents[3] / "bin" / "aprun", "--threads", str(THREADS), "-n", str(RANKS),
                               f"./{program}"], cwd=folder, timeout=PATIENCE)
    except subprocess.TimeoutExpired as late:
        return f"it did not end within {PATIENCE} s\n{(late.stdout or b'').decode(errors='replace')}"
    lines = [line for line in said.splitlines() if not line.endswith(PROCESSES)]
    return "" if (status, lines) == (0, ["No Errors"]) else f"status {status}\n{said}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("name", choices=LIBRARIES)
    parser.add_argument("--runs", type=int, default=2)
    chosen = parser.parse_args()
    mpi = chosen.build.resolve() / "lib" / "aplib" / "mpi" / "bin"
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="aplib-library-") as folder:
        try:
            programs = list(build(chosen.name, mpi, folder))
        except Missing as reason:
            print(f"{chosen.name}: skipped: {reason}")
            return SKIPPED
        for number in range(1, chosen.runs + 1):
            for program in programs:
                said = run(mpi, program, folder)
                wrong += bool(said)
                if said:
                    print(f"{chosen.name}: run {number} of {program}: {said}", flush=True)
    print(f"{chosen.name}: {wrong} of {2 * chosen.runs} runs were wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
