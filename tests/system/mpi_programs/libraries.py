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
    command: Callable  # of the number of ranks, and of the program with its arguments
    environment: dict
    ranks_max: int = 10**6  # fewer for those that burn their cores while they wait, and would take minutes


def aplib(build):
    """Raises Unavailable."""
    find_tool(build, "aprun")
    folder = (pathlib.Path(build) / "lib" / "aplib" / "mpi" / "bin").resolve()
    if not (folder / "mpicc").exists():
        raise Unavailable(f"needs APlib's own programs: mpicc is not built in {build}")
    compilers = Compilers("cells", *(str(folder / name) for name in ("mpicc", "mpicxx", "mpifort")))
    return Library("aplib", "APlib", compilers,
                   lambda ranks, words: [str(folder / "mpiexec"), "-n", str(ranks), *words], {})


def cores():
    return len(os.sched_getaffinity(0))


def peer(name, title, options, environment, **limits):
    """`options` of a number of ranks. Raises Unavailable."""
    tools = [f"{tool}.{name}" for tool in ("mpicc", "mpicxx", "mpirun")]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"needs the tool {missing[0]} (scripts/peers installs it)")
    compilers = Compilers("alone", tools[0], tools[1], f"mpifort.{name}")
    return Library(name, title, compilers,
                   lambda ranks, words: [tools[2], "-n", str(ranks), *options(ranks), *words], environment, **limits)


def openmpi():
    def options(ranks):
        if ranks <= cores():
            return ["--bind-to", "core"]
        return ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]

    return peer("openmpi", "Open MPI", options,
                {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


def mpich():
    return peer("mpich", "MPICH", lambda ranks: ["-bind-to", "core"] if ranks <= cores() else [], {}, ranks_max=cores())


def ampi():
    home = os.environ.get("CHARM_HOME", "")
    if not home or shutil.which(f"{home}/bin/ampicc") is None:
        raise Unavailable("needs the tool ampicc: CHARM_HOME does not say where it is (scripts/peers)")

    def command(ranks, words):
        processors = min(ranks, cores())
        return [*words, f"+p{processors}", f"+vp{ranks}", *(["+setcpuaffinity"] if processors > 1 else [])]

    # Ranks of AMPI share the globals of programs that are not built so.
    compilers = Compilers("alone", *(f"{home}/bin/{name} -pieglobals" for name in ("ampicc", "ampicxx", "ampif90")))
    return Library("ampi", "AMPI", compilers, command, {})


PEERS = {"openmpi": openmpi, "mpich": mpich, "ampi": ampi}
