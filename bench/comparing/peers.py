# SPDX-License-Identifier: MIT
"""The peers: builds bench/peers with each library's own compiler, and runs it in the way that suits that library."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from . import sources, start

FLAGS = ["-O3", "-Wno-stringop-overflow"]  # MPICH's header makes gcc warn about MPI_STATUSES_IGNORE
CROWDS = [8, 32]  # ranks on two cores
BLOCKED = 8  # ranks that wait for one that sleeps
MPI_SIZES = [65536, 1 << 20]
MPI_LATENCY_SIZES = [8, 1024, *MPI_SIZES]
PROCESSES_SIZES = [8, 1 << 20]
FILES_BYTES = 2 << 30  # a file of 1 GiB has room there


def memory_folder():
    """For files that no disk slows down."""
    shared = pathlib.Path("/dev/shm")
    return str(shared) if shared.is_dir() and shutil.disk_usage(shared).free > FILES_BYTES else tempfile.gettempdir()


class Peer(sources.Source):
    """An MPI library. `compiler` and `launcher` are looked up in PATH."""

    parts = {"all", "one-sided", "mpi"}
    has_windows_and_files = True
    collectives = ("barrier", "reduce", "nonblocking")  # those of bench/peers that are small
    compiler = ""
    launcher = ""
    remedy = "run scripts/peers"
    kind = "mpi_peer"  # the program
    sources = ["*.c"]  # of bench/peers

    def __init__(self, source_folder, out_folder, touch):
        super().__init__()
        self.touch = ["--touch"] if touch else []
        self.program = out_folder.resolve() / f"{self.kind}.{self.name}"
        built_elsewhere = self.program.exists() and shutil.which(self.compiler) is None  # and packed by many_cores
        self.compiler_path = None if built_elsewhere else self.find(self.compiler)
        self.launcher_path = self.find(self.launcher) if self.launcher else ""
        if not self.fault and not built_elsewhere:
            self.build(source_folder, out_folder)

    def find(self, program):
        path = shutil.which(program)
        if path is None and not self.fault:
            self.fault = f"{program} is not installed; {self.remedy}"
        return path

    def build(self, source_folder, out_folder):
        out_folder.mkdir(parents=True, exist_ok=True)
        files = sorted(str(path) for pattern in self.sources for path in pathlib.Path(source_folder).glob(pattern))
        done = subprocess.run(
            [self.compiler_path, *FLAGS, "-o", str(self.program), *files],
            cwd=out_folder,  # ampicc leaves files there
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            self.fault = f"{self.compiler} cannot build bench/peers: " + " / ".join(
                done.stderr.strip().splitlines()[-3:]
            )

    def words(self, case, *benches, sizes=(8,), samples=None, folder=None):
        return [
            "--peer",
            self.name,
            "--case",
            case,
            *benches,
            "--bytes",
            sources.commas(sizes),
            "--samples",
            str(samples or sources.SAMPLES),
            "--sample-ms",
            str(sources.SAMPLE_MS),
            *(["--folder", folder] if folder else []),
            *self.touch,
        ]

    def turn(self, kind, program, *words, **more):
        """The program is (command, environment)."""
        command, environment = program
        return sources.turn(kind, command + self.words(*words, **more), environment)

    def pair(self):
        """The program with two ranks on a core each: (command, environment)."""
        raise NotImplementedError

    def crowd(self, ranks):
        """The program with so many ranks on two cores: (command, environment)."""
        raise NotImplementedError

    def crowds(self, round_number):
        """The numbers of ranks on two cores that a round measures."""
        return CROWDS

    def hello(self, ranks):
        """The time from start to end of a program that says hello."""
        command, environment = self.crowd(ranks)
        timed = [sys.executable, "-B", start.__file__, f"{ranks}-ranks", *command, "hello"]
        return sources.turn("start", timed, environment)

    def turns(self, round_number):
        pair = self.pair()
        yield self.turn("messages", pair, "two-processors", "latency", sizes=sources.LATENCY_SIZES)
        yield self.turn("streams", pair, "two-processors", "bandwidth", "rate", sizes=sources.BANDWIDTH_SIZES)
        yield self.turn("shm", pair, "beside-shm", "latency", "bandwidth", sizes=sources.SHM_SIZES)
        yield self.turn("collectives", pair, "2-on-2", "barrier", "reduce")
        for ranks in self.crowds(round_number):
            yield self.turn("collectives", self.crowd(ranks), f"{ranks}-on-2", "barrier", "reduce")
        if round_number == 0:
            yield self.turn("idle", pair, "two-processors", "idle")

    def put_and_get(self, pair, apart):
        """Turns of both, `apart` over tcp: for fewer sizes."""
        sizes = sources.ONE_SIDED_SIZES
        yield self.turn("put and get", pair, "two-processors", "put", "get", sizes=sizes)
        yield self.turn("put and get over tcp", apart, "tcp", "put", "get", sizes=[sizes[0], sizes[-1]])

    def processes(self):
        """Turns with two processes: of shared memory, and over tcp where that can be told. The ranks of peers are
        processes anyway."""
        yield self.turn("processes", self.pair(), "processes", "latency", sizes=PROCESSES_SIZES)

    def mpi_turns(self, round_number):
        pair = self.pair()
        yield self.turn("messages", pair, "two-processors", "latency", "rate", sizes=MPI_LATENCY_SIZES)
        yield self.turn("streams", pair, "two-processors", "bandwidth", "vector", sizes=MPI_SIZES)
        large = ["allreduce", "bcast", "allgather", "alltoall"]
        yield self.turn("large collectives", pair, "two-processors", *large, sizes=MPI_SIZES)
        yield self.turn("collectives", pair, "2-on-2", *self.collectives)
        if self.has_windows_and_files:
            yield self.turn("put and get", pair, "two-processors", "put", "get")
        if self.has_windows_and_files and round_number % sources.SELDOM == 0:  # takes seconds
            yield self.turn("files", pair, "two-processors", "files", sizes=sources.FILE_SIZES, samples=1,
                            folder=memory_folder())
        yield from self.processes()
        for ranks in self.crowds(round_number):
            yield self.turn(f"{ranks} ranks", self.crowd(ranks), f"{ranks}-on-2", "barrier", "reduce")
        yield self.hello(CROWDS[-1])
        if round_number == 0:  # takes seconds, and is not compared within a round
            for ranks in [2, CROWDS[-1]]:
                yield self.turn("memory", self.crowd(ranks), f"{ranks}-on-2", "memory")
            yield self.turn("idle", self.crowd(BLOCKED + 1), f"{BLOCKED}-blocked", "idle")

    def version(self):
        return ""


class OpenMpi(Peer):
    name = "openmpi"
    title = "Open MPI"
    compiler = "mpicc.openmpi"
    launcher = "mpirun.openmpi"
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    oversubscribed = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]

    def start(self, ranks, *options):
        return [self.launcher_path, "-n", str(ranks), *options, str(self.program)]

    def pair(self, *options):
        return self.start(2, "--bind-to", "core", *options), self.environment

    def crowd(self, ranks):
        return self.start(ranks, *self.oversubscribed), self.environment

    def turns(self, round_number):
        yield from super().turns(round_number)
        # Otherwise its windows would still share the memory.
        yield from self.put_and_get(self.pair(), self.pair(*self.tcp, "--mca", "osc", "^sm,ucx"))
        apart = self.pair(*self.tcp)
        yield self.turn("messages over tcp", apart, "tcp", "latency", samples=sources.SAMPLES_TCP)
        more = {"sizes": sources.TCP_SIZES, "samples": sources.SAMPLES_TCP}
        yield self.turn("streams over tcp", apart, "tcp", "bandwidth", **more)

    def processes(self):
        yield from super().processes()
        apart = self.pair(*self.tcp)
        yield self.turn("processes over tcp", apart, "tcp", "latency", sizes=PROCESSES_SIZES,
                        samples=sources.SAMPLES_TCP)

    def version(self):
        text = subprocess.run([self.launcher_path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"\d+\.\d+\.\d+", text)
        return found.group() if found else "unknown"


class Mpich(Peer):
    name = "mpich"
    title = "MPICH"
    compiler = "mpicc.mpich"
    launcher = "mpirun.mpich"

    def pair(self):
        return [self.launcher_path, "-n", "2", "-bind-to", "core", str(self.program)], None

    def crowd(self, ranks):
        return [self.launcher_path, "-n", str(ranks), str(self.program)], None

    def crowds(self, round_number):
        return CROWDS if round_number < 2 else []  # it spins, and a barrier takes a quarter of a second

    def turns(self, round_number):
        yield from super().turns(round_number)
        command, _ = self.pair()
        apart = {**os.environ, "UCX_TLS": "tcp,self", "MPIR_CVAR_NOLOCAL": "1"}
        yield from self.put_and_get((command, None), (command, apart))

    def version(self):
        text = subprocess.run([self.launcher_path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"Version:\s*(\S+)", text)
        return found.group(1) if found else "unknown"


class OpenShmem(Peer):
    """OpenSHMEM of Open MPI: no messages, but one-sided operations on objects at the same address everywhere."""

    name = "oshmem"
    title = "OpenSHMEM"
    parts = {"all", "one-sided"}
    compiler = "oshcc"
    launcher = "oshrun"
    kind = "shmem_peer"
    sources = ["shmem/*.c", "command.c", "figure.c"]
    environment = OpenMpi.environment

    def pair(self, *options):
        return [self.launcher_path, "-n", "2", "--bind-to", "core", *options, str(self.program)], self.environment

    def turns(self, round_number):
        return self.put_and_get(self.pair(), self.pair("-x", "UCX_TLS=tcp,self"))

    def version(self):
        text = subprocess.run([self.launcher_path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"\d+\.\d+\.\d+", text)
        return "of Open MPI " + (found.group() if found else "unknown")


class Ampi(Peer):
    name = "ampi"
    title = "AMPI"
    parts = {"all", "mpi"}
    has_windows_and_files = False
    collectives = ("barrier", "reduce")  # a nonblocking one never ends there when it is waited for at once
    remedy = (
        "in a checkout of Charm++ run './build AMPI multicore-linux-x86_64 --with-production' and set CHARM_HOME to the"
        " folder multicore-linux-x86_64 that this makes"
    )

    def __init__(self, source_folder, out_folder, touch):
        home = os.environ.get("CHARM_HOME", "")
        self.compiler = str(pathlib.Path(home) / "bin" / "ampicc") if home else "ampicc"
        super().__init__(source_folder, out_folder, touch)

    def find(self, program):
        if not os.environ.get("CHARM_HOME"):
            self.fault = f"CHARM_HOME is not set; {self.remedy}"
            return None
        return super().find(program)

    def start(self, processors, ranks):
        options = ["+setcpuaffinity"] if processors > 1 else []
        return [str(self.program), f"+p{processors}", f"+vp{ranks}", *options]

    def pair(self):
        return self.crowd(2)

    def crowd(self, ranks):
        return self.start(2, ranks), None

    def processes(self):
        return ()  # its ranks share one

    def turns(self, round_number):
        yield from super().turns(round_number)
        alone = self.start(1, 2), None
        yield self.turn("messages", alone, "one-processor", "latency", sizes=sources.LATENCY_SIZES)

    def version(self):
        done = subprocess.run(
            [str(self.program), "+p1", "+vp1", "--samples", "1"], capture_output=True, text=True, check=False
        )
        found = re.search(r"Commit ID: (\S+)", done.stdout)
        return f"Charm++ {found.group(1)}" if found else "unknown"


class AplibMpi(Peer):
    """APlib's own MPI: one more library that runs the same program."""

    name = "aplib-mpi"
    title = "APlib's MPI"
    parts = {"mpi"}
    remedy = "build it with: cmake --build --preset release --target bench-programs"
    THOUSAND = 1000

    def __init__(self, build, source_folder, out_folder, touch):
        commands = build.resolve() / "lib" / "aplib" / "mpi" / "bin"
        self.compiler = str(commands / "mpicc")
        self.launcher = str(commands / "mpiexec")
        super().__init__(source_folder, out_folder, touch)

    def pair(self):
        return self.crowd(2)

    def crowd(self, ranks):
        return [self.launcher_path, "-n", str(ranks), str(self.program)], None

    def processes(self):
        command = [self.launcher_path, "--processes", "-n", "2", str(self.program)]
        yield self.turn("processes", (command, None), "processes", "latency", sizes=PROCESSES_SIZES)
        apart = {**os.environ, "APLIB_MODULE": "tcp"}
        yield self.turn("processes over tcp", (command, apart), "tcp", "latency", sizes=PROCESSES_SIZES,
                        samples=sources.SAMPLES_TCP)

    def mpi_turns(self, round_number):
        yield from super().mpi_turns(round_number)
        command, _ = self.pair()
        alone = command, {**os.environ, "APLIB_THREADS": "1"}
        yield self.turn("messages", alone, "one-processor", "latency")
        yield self.hello(self.THOUSAND)


KNOWN = {peer.name: peer for peer in (OpenMpi, Mpich, Ampi, OpenShmem)}
