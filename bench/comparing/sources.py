# SPDX-License-Identifier: MIT
"""The sources of figures: APlib and the floors; peers.py has the peers. Each runs programs that print JSON lines."""

import functools
import json
import pathlib
import subprocess
import sys

from . import fabric, link

LATENCY_SIZES = [8, 64, 1024, 8192, 65536, 1 << 20, 4 << 20]
BANDWIDTH_SIZES = [64, 1024, 8192, 65536, 1 << 20, 4 << 20]
ONE_SIDED_SIZES = [8, 1024, 65536, 1 << 20]
TCP_SIZES = [65536, 1 << 20]
WRITE_SIZE = 1 << 20
SHM_SIZES = [8, 65536, 1 << 20]
MODULES = ["tcp", "shm", "rdma", "rdma-tcp", "rdma-shm"]
MODULE_CASES = [
    "latency", "rate", "stream", "put", "put-stream", "get", "get-stream", "cells-latency", "cells-stream", "cells-put",
    "cells-put-stream", "cells-get", "cells-get-stream", "cells-fetch-add",
]  # fmt: skip
SAMPLES = 9
SAMPLES_TCP = 25  # as many as bench-cells takes
SAMPLE_MS = 1
RUN_SECONDS_MAX = 120

PUTS = ["cells-put", "cells-put-stream", "cells-get", "cells-fetch-add"]
COMPARED = {  # modules' cases that are compared with other sources, by kind
    "tcp": {"put and get over tcp": PUTS},
    "shm": {"put and get": PUTS, "shm": ["cells-latency", "cells-stream"]},
    "rdma-tcp": {"frames over rdma-tcp": ["latency"], "writes over rdma-tcp": ["put-stream"]},
    "rdma-shm": {"frames over rdma-shm": ["latency"], "writes over rdma-shm": ["put-stream"]},
}
FILE_SIZES = [1 << 20, 4096]  # pieces of a file
# Figures are of the same kind if they are compared with each other.
ONE_SIDED_KINDS = {"put and get", "modules", *[kind for cases in COMPARED.values() for kind in cases]}
SELDOM_KINDS = {"put and get over tcp", "modules", "scg", "several processes", "a link"}
SELDOM = 3  # rounds with one turn of these, because no target compares two of them


class Unusable(Exception):
    """A source cannot be used; the text says why and what to do."""


def commas(numbers):
    return ",".join(str(number) for number in numbers)


def run(command, name="", seconds=RUN_SECONDS_MAX, **options):
    """Runs a command; returns what it has printed. Raises Unusable with the program's own words when it fails."""
    name = name or pathlib.Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, **options)
    except OSError as error:
        raise Unusable(f"cannot start {name}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"{name} did not end within {seconds} s") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise Unusable(f"{name} failed with status {done.returncode}: " + " / ".join(words[-3:]))
    return done.stdout


def run_for_lines(command, environment=None):
    """The command's JSON lines."""
    return [json.loads(line) for line in run(command, env=environment).splitlines() if line.startswith("{")]


class Source:
    """A source that takes turns with others. `fault` is empty, or says why the source gives no (more) figures."""

    name = ""
    title = ""
    parts = {"all", "one-sided"}  # the kinds of runs in which it takes part

    def __init__(self):
        self.fault = ""

    def turns(self, round_number):
        """(kind, function) of each turn in a round. The function returns JSON lines, or raises Unusable."""
        raise NotImplementedError

    def mpi_turns(self, round_number):
        """The turns in a run that measures MPI."""
        return []


def turn(kind, command, environment=None):
    return kind, functools.partial(run_for_lines, command, environment)


def by_kind(all_sources, round_number, part):
    """A round: {kind: [(source, function)]}. Those of a kind have another order in each round."""
    kinds = {}
    for source in all_sources:
        for kind, function in source.mpi_turns(round_number) if part == "mpi" else source.turns(round_number):
            wanted = part != "one-sided" or kind in ONE_SIDED_KINDS
            if wanted and (kind not in SELDOM_KINDS or round_number % SELDOM == 0):
                kinds.setdefault(kind, []).append((source, function))
    shifts = {kind: round_number % len(turns) for kind, turns in kinds.items()}
    return {kind: turns[shifts[kind] :] + turns[: shifts[kind]] for kind, turns in kinds.items()}


class Apbench(Source):
    """Base of the sources that run apbench."""

    def __init__(self, build):
        super().__init__()
        self.program = build / "bin" / "apbench"
        if not self.program.exists():
            self.fault = f"there is no {self.program}"

    def line(self, *words, samples=SAMPLES):
        return [str(self.program), *words, "--json", "--samples", str(samples), "--sample-ms", str(SAMPLE_MS)]


class Aplib(Apbench):
    name = "aplib"
    title = "APlib"
    parts = {"all", "one-sided", "mpi"}

    def __init__(self, build, touch):
        super().__init__(build)
        self.touch = ["--touch"] if touch else []

    def turns(self, round_number):
        sizes = commas(LATENCY_SIZES)
        yield turn("messages", self.line("latency", "switch", "spawn", "--bytes", sizes, *self.touch))
        yield turn("put and get", self.line("put", "get", "--bytes", commas(ONE_SIDED_SIZES)))
        sizes = commas(BANDWIDTH_SIZES)
        yield turn("streams", self.line("bandwidth", "rate", "--bytes", sizes, *self.touch))
        yield turn("collectives", self.line("barrier", "reduce"))
        yield turn("scg", self.line("scg"))  # a run takes milliseconds
        if round_number == 0:  # takes a few seconds, and is not compared within a round
            yield turn("idle", self.line("idle"))
            yield turn("load", self.line("load", samples=5))

    def mpi_turns(self, round_number):
        yield turn("messages", self.line("latency", "--bytes", "8"))


class InProcess(Apbench):
    """Messages once more, to compare those over shm with."""

    name = "inprocess"
    title = "APlib in one process"

    def turns(self, round_number):
        yield turn("shm", self.line("latency", "--bytes", commas(SHM_SIZES), "--case", "two-processors"))


class Hosts(Apbench):
    name = "hosts"
    title = "APlib in several processes"
    parts = {"all"}

    def turns(self, round_number):
        for kind, cases in (
            ("messages over tcp", ["latency"]),
            ("streams over tcp", ["stream"]),
            ("streams over tcp", ["stream-posted"]),
            ("encrypted streams", ["stream-tls"]),
            ("several processes", ["sum-of-32", "sum-over-round-trip", "start-64-processes"]),
        ):
            yield turn(kind, self.line("hosts", "--case", commas(cases), samples=1))


class Module(Apbench):
    """One module between two processes."""

    def __init__(self, build, module):
        super().__init__(build)
        self.name = module
        self.title = f"the module {module}"

    def turn(self, kind, cases, *words):
        named = commas(f"{self.name}-{case}" for case in cases)
        return turn(kind, self.line("module", "--module", self.name, "--case", named, *words, samples=1))

    def turns(self, round_number):
        compared = COMPARED.get(self.name, {})
        for kind, cases in compared.items():
            yield self.turn(kind, cases)
        if self.name == "shm":
            yield self.turn("shm", ["cells-latency"], "--bytes", commas(size for size in SHM_SIZES if size > 8))
        rest = [case for case in MODULE_CASES if not any(case in cases for cases in compared.values())]
        yield self.turn("modules", rest)


class Fabric(Source):
    name = "fabric"
    title = "libfabric alone"

    def __init__(self, build):
        super().__init__()
        self.program = build / "bin" / "bench-fabric"  # built if libfabric's headers are installed
        self.fault = fabric.hindrance() or ""

    def turn(self, kind, provider, bench, size, unit, measure, *given):
        def lines():
            try:
                value = measure(*given)
            except fabric.Failed as error:
                raise Unusable(str(error)) from error
            return [{"bench": bench, "case": provider, "bytes": size, "value": value, "unit": unit}]

        return f"{kind} over rdma-{provider}", lines

    def turns(self, round_number):
        for provider in fabric.PROVIDERS:
            yield self.turn("frames", provider, "pingpong", fabric.BYTES, "ns", fabric.ping_pong, provider)
            if self.program.exists():
                for kind, case, size, unit in (
                    ("frames", "latency", fabric.BYTES, "ns"),
                    ("writes", "write", WRITE_SIZE, "GB/s"),
                ):
                    given = self.program, provider, case, size
                    yield self.turn(kind, provider, case, size, unit, fabric.alone, *given)


class Wires(Source):
    name = "wires"
    title = "sockets and OpenSSL alone"
    parts = {"all"}

    def __init__(self, build):
        super().__init__()
        self.program = build / "bin" / "bench-net"

    def line(self, case, sizes):
        words = ["--json", "--samples", str(SAMPLES_TCP), "--sample-ms", str(SAMPLE_MS)]
        return [str(self.program), case, "--bytes", commas(sizes), *words]

    def turns(self, round_number):
        yield turn("messages over tcp", self.line("sockets-latency", [8]))
        yield turn("streams over tcp", self.line("sockets-stream", TCP_SIZES))
        yield turn("encrypted streams", self.line("tls-stream", TCP_SIZES[-1:]))


class Link(Source):
    """A link of 1 Gb/s between two network namespaces: sockets alone, and APlib."""

    name = "link"
    title = "a link of 1 Gb/s"
    parts = {"all"}

    def __init__(self, build):
        super().__init__()
        self.build = build
        self.fault = link.hindrance() or ""

    def turns(self, round_number):
        yield turn("a link", [sys.executable, "-B", str(pathlib.Path(link.__file__)), str(self.build.resolve())])


class Floors(Apbench):
    name = "floors"
    title = "the machine's floors"

    def turns(self, round_number):
        sizes = commas(size for size in LATENCY_SIZES if size >= 1024)
        yield turn("messages", self.line("floors", "--case", "context-switch,memcpy", "--bytes", sizes))
        yield turn("put and get", self.line("floors", "--case", "cache-line"))
