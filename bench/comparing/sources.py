# SPDX-License-Identifier: MIT
"""The sources of figures: APlib and the floors; peers.py has the peers. Each runs programs that print JSON lines."""

import json
import pathlib
import subprocess
import sys

from . import fabric, link

LATENCY_SIZES = [8, 64, 1024, 8192, 65536, 1 << 20, 4 << 20]
BANDWIDTH_SIZES = [64, 1024, 8192, 65536, 1 << 20, 4 << 20]
ONE_SIDED_SIZES = [8, 1024, 65536, 1 << 20]
WRITE_SIZE = 1 << 20
SHM_SIZES = [8, 65536, 1 << 20]
MODULES = ["tcp", "shm", "rdma", "rdma-tcp", "rdma-shm"]
SAMPLES = 9
SAMPLE_MS = 1
RUN_SECONDS_MAX = 120


class Unusable(Exception):
    """A source cannot be used; the text says why and what to do."""


def commas(numbers):
    return ",".join(str(number) for number in numbers)


def run_for_lines(command, environment=None):
    """Runs a command; returns its JSON lines. Raises Unusable with the program's own words when it fails."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
    except OSError as error:
        raise Unusable(f"cannot start {pathlib.Path(command[0]).name}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"{pathlib.Path(command[0]).name} did not end within {RUN_SECONDS_MAX} s") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise Unusable(
            f"{pathlib.Path(command[0]).name} failed with status {done.returncode}: " + " / ".join(words[-3:])
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Source:
    """A source that takes turns with others. `fault` is empty, or says why the source gives no (more) figures."""

    name = ""
    title = ""
    parts = {"all", "one-sided"}  # the kinds of runs in which it takes part

    def __init__(self):
        self.fault = ""

    def commands(self, round_number):
        """(command, environment) of one round."""
        raise NotImplementedError

    def one_sided_commands(self, round_number):
        """The commands of a run that measures only put, get and modules."""
        return []

    def mpi_commands(self, round_number):
        """The commands of a run that measures MPI."""
        return []

    def measure(self, round_number, part="all"):
        commands = {"all": self.commands, "one-sided": self.one_sided_commands, "mpi": self.mpi_commands}[part]
        lines = []
        try:
            for command, environment in commands(round_number):
                lines += run_for_lines(command, environment)
        except Unusable as error:
            self.fault = str(error)
        return lines


class Apbench(Source):
    """Base of the sources that run apbench."""

    def __init__(self, build):
        super().__init__()
        self.program = build / "bin" / "apbench"
        if not self.program.exists():
            self.fault = f"there is no {self.program}"

    def line(self, *words, samples=SAMPLES):
        return ([str(self.program), *words, "--json", "--samples", str(samples), "--sample-ms", str(SAMPLE_MS)], None)


class Aplib(Apbench):
    name = "aplib"
    title = "APlib"
    parts = {"all", "one-sided", "mpi"}

    def __init__(self, build, touch):
        super().__init__(build)
        self.touch = ["--touch"] if touch else []

    def commands(self, round_number):
        yield self.line("latency", "--bytes", commas(LATENCY_SIZES), *self.touch)
        yield self.line("bandwidth", "--bytes", commas(BANDWIDTH_SIZES), *self.touch)
        yield from self.one_sided_commands(round_number)
        yield self.line("rate", "switch", "spawn", "barrier", "reduce", *self.touch)
        yield self.line("scg", samples=9)  # a run takes milliseconds
        if round_number == 0:  # takes a few seconds, and is not compared within a round
            yield self.line("idle")
            yield self.line("load", samples=5)

    def one_sided_commands(self, round_number):
        yield self.line("put", "get", "--bytes", commas(ONE_SIDED_SIZES))

    def mpi_commands(self, round_number):
        yield self.line("latency", "--bytes", "8")


class InProcess(Apbench):
    """Messages once more, just before the modules that are compared with them."""

    name = "inprocess"
    title = "APlib in one process"

    def commands(self, round_number):
        yield self.line("latency", "--bytes", commas(SHM_SIZES), "--case", "two-processors")

    one_sided_commands = commands


class Hosts(Apbench):
    name = "hosts"
    title = "APlib in several processes"
    parts = {"all"}

    def commands(self, round_number):
        yield self.line("hosts", samples=1)


class Module(Apbench):
    """One module between two processes."""

    def __init__(self, build, module):
        super().__init__(build)
        self.name = module
        self.title = f"the module {module}"

    def commands(self, round_number):
        yield self.line("module", "--module", self.name, samples=1)
        if self.name == "shm":
            more = commas(size for size in SHM_SIZES if size > 8)
            yield self.line("module", "--module", "shm", "--case", "shm-cells-latency", "--bytes", more, samples=1)

    one_sided_commands = commands


class Fabric(Source):
    name = "fabric"
    title = "libfabric alone"

    def __init__(self, build):
        super().__init__()
        self.program = build / "bin" / "bench-fabric"  # built if libfabric's headers are installed
        self.fault = fabric.hindrance() or ""

    def figures_of(self, provider):
        yield "pingpong", fabric.BYTES, fabric.ping_pong(provider), "ns"
        if self.program.exists():
            for case, size, unit in (("latency", fabric.BYTES, "ns"), ("write", WRITE_SIZE, "GB/s")):
                yield case, size, fabric.alone(self.program, provider, case, size), unit

    def measure(self, round_number, part="all"):
        lines = []
        try:
            for provider in fabric.PROVIDERS:
                for bench, size, value, unit in self.figures_of(provider):
                    lines.append({"bench": bench, "case": provider, "bytes": size, "value": value, "unit": unit})
        except fabric.Failed as error:
            self.fault = str(error)
        return lines


class Wires(Source):
    name = "wires"
    title = "sockets and OpenSSL alone"
    parts = {"all"}

    def __init__(self, build):
        super().__init__()
        self.program = build / "bin" / "bench-net"

    def commands(self, round_number):
        words = ["--json", "--samples", str(SAMPLES), "--sample-ms", str(SAMPLE_MS)]
        yield [str(self.program), "sockets-latency", "--bytes", "8", *words], None
        yield [str(self.program), "sockets-stream", "tls-stream", "--bytes", "65536,1048576", *words], None


class Link(Source):
    """A link of 1 Gb/s between two network namespaces: sockets alone, and APlib."""

    name = "link"
    title = "a link of 1 Gb/s"
    parts = {"all"}

    def __init__(self, build):
        super().__init__()
        self.build = build
        self.fault = link.hindrance() or ""

    def commands(self, round_number):
        yield [sys.executable, "-B", str(pathlib.Path(link.__file__)), str(self.build.resolve())], None


class Floors(Apbench):
    name = "floors"
    title = "the machine's floors"

    def commands(self, round_number):
        yield self.line("floors", "--bytes", commas(size for size in LATENCY_SIZES if size >= 1024))

    def one_sided_commands(self, round_number):
        yield self.line("floors", "--case", "cache-line")
