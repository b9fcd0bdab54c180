# SPDX-License-Identifier: MIT
"""The MPI libraries: their compilers, and how each starts a number of ranks on this computer."""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable

from building import Compilers, find_tool
from sources import Unavailable


@dataclasses.dataclass(frozen=True)
class Library:
    name: str
    title: str
    compilers: Compilers
    command: Callable  # of the number of ranks: what stands before the program
    environment: dict
    ranks_max: int = 10**6  # fewer for those that burn their cores while they wait, and would take minutes


def aplib(build):
    """Raises Unavailable."""
    find_tool(build, "aprun")
    folder = (pathlib.Path(build) / "lib" / "aplib" / "mpi" / "bin").resolve()
    if not (folder / "mpicc").exists():
        raise Unavailable(f"needs APlib's own programs: mpicc is not built in {build}")
    compilers = Compilers("cells", str(folder / "mpicc"), str(folder / "mpicxx"), "gfortran")
    return Library("aplib", "APlib", compilers, lambda ranks: [str(folder / "mpiexec"), "-n", str(ranks)], {})


def peer(name, title, command, environment, **limits):
    """Raises Unavailable."""
    tools = [f"{tool}.{name}" for tool in ("mpicc", "mpicxx", "mpirun")]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"needs the tool {missing[0]} (scripts/peers installs it)")
    compilers = Compilers("alone", tools[0], tools[1], "gfortran")
    return Library(name, title, compilers, lambda ranks: [tools[2], "-n", str(ranks), *command(ranks)], environment,
                   **limits)


def openmpi():
    cores = len(os.sched_getaffinity(0))

    def options(ranks):
        if ranks <= cores:
            return ["--bind-to", "core"]
        return ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]

    return peer("openmpi", "Open MPI", options,
                {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


def mpich():
    cores = len(os.sched_getaffinity(0))
    return peer("mpich", "MPICH", lambda ranks: ["-bind-to", "core"] if ranks <= cores else [], {}, ranks_max=cores)


PEERS = {"openmpi": openmpi, "mpich": mpich}
