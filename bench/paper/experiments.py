# SPDX-License-Identifier: MIT
"""The paper's two experiments, including the one-host half of the first: the runs and their results. The second is made
twice: on hosts that compute as slowly as the paper's, and on hosts with a share of a core."""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import re
import sys
import typing

from . import hosts
from .scg import median

GRIDS = {1: "1x1", 2: "2x1", 3: "3x1", 4: "2x2", 5: "5x1", 6: "3x2", 7: "7x1", 8: "4x2"}
SPEEDS = {"ss-lx": 2.44, "ss10": 4.30}  # MFlops in the paper
SHARES = {"ss-lx": 0.244, "ss10": 0.43}  # of a core here


def say(text):
    print(f"paper: {text}", file=sys.stderr)


@dataclasses.dataclass
class Size:
    """A matrix: unknowns on a side, and iterations per run."""

    side: int
    iterations: int

    @property
    def title(self):
        return f"{self.side} x {self.side}"


@dataclasses.dataclass
class Pace:
    """Hosts that compute so many times faster than the paper's, with a link that is as much faster, and iterations per
    run of the paper's matrix."""

    times: int
    rate: str
    iterations: int

    side = 256

    @property
    def title(self):
        return f"{self.side} x {self.side}" + (f", {self.times} times as fast" if self.times != 1 else "")


@dataclasses.dataclass
class Plan:
    """The amount of runs."""

    rounds: int
    counts: typing.Sequence[int]  # of cells and of hosts
    smp_sizes: typing.Sequence[Size]
    cluster_sizes: typing.Sequence[Size]
    paces: typing.Sequence[Pace]
    unequal_sizes: typing.Sequence[Size]
    rates: typing.Sequence[str]
    reference: typing.Any = None  # a noise.Reference

    def each_round(self, what):
        """The numbers of the rounds. Before each, when nothing of ours runs, the reference for noise is measured."""
        for number in range(self.rounds):
            say(f"round {number + 1} of {self.rounds}: {what}")
            self.reference.listen()
            yield number


FULL = Plan(
    rounds=7,
    counts=(1, 2, 3, 4, 5, 6, 7, 8),
    smp_sizes=(Size(300, 3000), Size(2048, 60)),
    cluster_sizes=(Size(300, 300), Size(2048, 30)),
    paces=(Pace(1, "10mbit", 12), Pace(10, "100mbit", 120)),
    unequal_sizes=(Size(256, 4000), Size(2048, 50), Size(4096, 20)),
    rates=("1gbit", "10mbit"),
)
QUICK = Plan(
    rounds=1,
    counts=(1, 2),
    smp_sizes=(Size(300, 300),),
    cluster_sizes=(Size(300, 30),),
    paces=(Pace(100, "1gbit", 100),),
    unequal_sizes=(Size(256, 400),),
    rates=("1gbit",),
)


def medians(found):
    return {key: median(values) for key, values in found.items()}


def one_host(scg, plan, cores):
    """The paper's SMP: {(side, cells): MFlops}."""
    values = {}
    for _ in plan.each_round("one host"):
        for size in plan.smp_sizes:
            for cells in plan.counts:
                run = scg.on_this_host(GRIDS[cells], min(cells, len(cores)), size.side, size.iterations)
                values.setdefault((size.side, cells), []).append(run.mflops)
    return medians(values)


def share_of_a_core(counts, cores):
    """The share of each equal host, so that all together leave a fifth of the computer free."""
    return min(1.0, round(0.8 * len(cores) / max(counts), 2))


def equal_hosts(scg, plan, cores, namespaces, folder):
    """The paper's cluster of workstations: {(rate, side, hosts): MFlops}."""
    values = {}
    share = share_of_a_core(plan.counts, cores)
    file = pathlib.Path(folder) / "equal.toml"
    names = [f"ws{number}" for number in range(1, max(plan.counts) + 1)]
    for rate in plan.rates:
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(namespaces.Network(names, rate=rate))
            machines = [
                hosts.SlowHost(host, cores[i % len(cores)], stack.enter_context(namespaces.CpuQuota(share)))
                for i, host in enumerate(network.hosts)
            ]
            front = machines[0].host  # aprun is started there, as a user would
            for _ in plan.each_round(f"equal hosts, {rate}"):
                for size in plan.cluster_sizes:
                    for count in plan.counts:
                        text = hosts.one_cell_each(names[:count])
                        file.write_text(hosts.started_by(text, machines), encoding="utf-8")
                        run = scg.on_cluster(file, size.side, size.iterations, front.command)
                        values.setdefault((rate, size.side, count), []).append(run.mflops)
    return medians(values)


WAYS = ("one-each", "paper", "by-hand", "auto")
BY_HAND = {"one-each": (1, 1), "paper": (1, 2), "by-hand": (4, 7)}  # cells; 4 : 7 is close to 2.44 : 4.30
FRAME = 1600  # bytes: what a link lets pass at once


@dataclasses.dataclass
class Unequal:
    """One matrix on two unequal hosts."""

    size: typing.Union[Size, Pace]
    alone: dict  # MFlops by host, while the other host computes for itself, too
    together: dict  # MFlops by way
    ratios: dict  # by way and round: the speed together over the sum of the speeds alone
    shares: str  # the shares that "auto" chose
    iteration_us: float  # with auto


def shares_told(words):
    """What aprun prints about the shares that it chose for "auto"."""
    found = [line for line in words.splitlines() if re.search(r"\bss-lx\b", line) and re.search(r"\bcells?\b", line)]
    return re.sub(r"^aprun: ", "", found[0].strip()) if found else ""


def alone_at_once(scg, size, machines):
    """MFlops by host, each with the whole matrix, all at once: they have one computer's memory and caches, alone as
    together. Each runs for as long as the slowest."""
    slowest = min(SPEEDS[machine.name] for machine in machines)

    def mflops(machine):
        iterations = round(size.iterations * SPEEDS[machine.name] / slowest)
        return scg.on_this_host("1x1", 1, size.side, iterations, machine.words).mflops

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return {machine.name: value for machine, value in zip(machines, pool.map(mflops, machines))}


def compare_ways(scg, plan, size, machines, files, beside=contextlib.nullcontext(), prepare=lambda: None):
    """Runs on both hosts with each cluster file, round by round, and on each host alone before and behind each of these
    runs. `beside`: what runs beside them. `prepare` is called at the beginning of each round."""
    alone = {machine.name: [] for machine in machines}
    together = {way: [] for way in files}
    ratios = {way: [] for way in files}
    shares, iterations_us = "", []
    for _ in plan.each_round(f"unequal hosts, {size.title}"):
        prepare()
        with beside:
            before = alone_at_once(scg, size, machines)
            for way, file in files.items():
                run = scg.on_cluster(file, size.side, size.iterations, machines[0].host.command)
                behind = alone_at_once(scg, size, machines)
                for machine in machines:
                    alone[machine.name].append((before[machine.name] + behind[machine.name]) / 2)
                before = behind
                together[way].append(run.mflops)
                ratios[way].append(run.mflops / sum(values[-1] for values in alone.values()))
                if way == "auto":
                    iterations_us.append(run.iteration_us)
                    shares = shares_told(run.words) or shares or f"{run.cells[0]} x {run.cells[1]} cells"
    return Unequal(size, medians(alone), medians(together), ratios, shares, median(iterations_us))


def write_files(folder, texts, machines):
    """Cluster files by way, started on `machines`."""
    files = {}
    for way, text in texts.items():
        files[way] = pathlib.Path(folder) / f"{way}.toml"
        files[way].write_text(hosts.started_by(text, machines), encoding="utf-8")
    return files


def slow_down(scg, pace, machines):
    """Has the hosts do each pass so often that they are as fast as the paper's at this pace. A core of a virtual
    machine does not stay as fast as it was."""
    speeds = alone_at_once(scg, pace, machines)
    for machine in machines:
        too_fast = speeds[machine.name] / (SPEEDS[machine.name] * pace.times)
        passes = float(machine.environment["BENCH_PASSES"]) * too_fast
        machine.environment["BENCH_PASSES"] = f"{passes:.3f}"


def slow_hosts(scg, plan, cores, namespaces, folder):
    """The paper's second experiment as a list of Unequal, on hosts that have a core each and are as slow as the paper's
    by work: they do every pass over the matrix many times."""
    outcome = []
    for pace in plan.paces:
        with namespaces.Network(list(SPEEDS), rate=pace.rate, burst=FRAME) as network:
            machines = [
                hosts.SlowHost(host, cores[number], environment={"BENCH_PASSES": f"{100 / SPEEDS[host.name]:.3f}"})
                for number, host in enumerate(network.hosts)
            ]
            slow_down(scg, pace, machines)
            speed = scg.speed_line(pace.side, max(pace.iterations // 10, 2))
            texts = {way: hosts.with_cells(dict(zip(SPEEDS, cells))) for way, cells in BY_HAND.items()}
            texts["auto"] = hosts.with_cells({name: "auto" for name in SPEEDS}, speed)

            def prepare():
                slow_down(scg, pace, machines)
                write_files(folder, texts, machines)

            files = write_files(folder, texts, machines)
            outcome.append(compare_ways(scg, plan, pace, machines, files, prepare=prepare))
    return outcome


def unequal_hosts(scg, plan, cores, namespaces, examples, folder):
    """The same on hosts that are slow by a share of a core."""
    ways = {"one-each": "one-each", "paper": "by-hand", "auto": "auto"}  # by the names of the examples
    texts = {
        way: (examples / f"paper-unequal-{name}.toml").read_text(encoding="utf-8") for way, name in ways.items()
    }
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(namespaces.Network(list(SPEEDS), rate="1gbit"))
        # Both use one core, which has time for both. On two cores they would compute at the same time and share memory,
        # which the paper's hosts did not.
        beside = hosts.Filler(cores[0])
        machines = [
            hosts.SlowHost(host, cores[0], stack.enter_context(namespaces.CpuQuota(SHARES[host.name])))
            for host in network.hosts
        ]
        files = write_files(folder, texts, machines)
        return [compare_ways(scg, plan, size, machines, files, beside) for size in plan.unequal_sizes]
