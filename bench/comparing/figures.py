# SPDX-License-Identifier: MIT
"""The figures, their floors and targets, and how a run meets them."""

import dataclasses
import statistics
import typing

from . import noise

PEER_TITLES = {
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "ampi": "AMPI",
    "oshmem": "OpenSHMEM",
    "scp": "scp",
    "rsync": "rsync",
    "tar": "tar through ssh",
    "gridftp": "globus-url-copy",
    "iperf3": "iperf3",
    "ssh": "ssh",
    "globusrun": "globusrun",
    "socat": "socat",
}
MIB = 1 << 20

Values = dict  # of one round: {(source, bench, case, bytes): (value, unit)}
Pick = typing.Callable[[Values], typing.Optional[float]]


def pick(source, bench, case, size=0) -> Pick:
    """The value of one source in a round, or None."""
    return lambda values: values.get((source, bench, case, size), (None, ""))[0]


def time_to_speed(inner: Pick, size) -> Pick:
    """ns per message to GB/s, or GB/s to ns per message: the same division both ways."""

    def outer(values):
        value = inner(values)
        return size / value if value else None

    return outer


def middle(values):
    return statistics.median(values) if values else None


class Run:
    """The rounds of one run, and which peers took part."""

    def __init__(self, rounds, peer_names):
        self.rounds = rounds
        self.peers = peer_names

    def measured(self, source, bench):
        """Whether the source has any figure of the benchmark."""
        return any(key[:2] == (source, bench) for values in self.rounds for key in values)

    def values(self, wanted: Pick):
        return [value for value in map(wanted, self.rounds) if value is not None]

    def ratios(self, over: Pick, under: Pick):
        """The ratios within each round, or the ratio of the medians if no round has both values."""
        pairs = [(over(values), under(values)) for values in self.rounds]
        ratios = [a / b for a, b in pairs if a is not None and b]
        if ratios:
            return ratios
        a, b = self.median(over), self.median(under)
        return [a / b] if a is not None and b else []

    def median(self, wanted: Pick):
        return middle(self.values(wanted))

    def ratio(self, over: Pick, under: Pick):
        return middle(self.ratios(over, under))


@dataclasses.dataclass
class Goal:
    """A limit for the figure itself (empty `against`), or for its ratio to the floor, the best peer or one peer."""

    limit: float
    against: str = ""


@dataclasses.dataclass
class Figure:
    name: str
    unit: str
    own: Pick
    peer: typing.Optional[typing.Callable[[str], Pick]] = None  # by peer name
    floor: typing.Optional[Pick] = None
    floor_name: str = ""
    goals: typing.Sequence[Goal] = ()
    higher_is_better: bool = False


def message_time(name, size, case="two-processors", goals=(), floor=None, floor_name=""):
    return Figure(
        name,
        "ns",
        pick("aplib", "latency", case, size),
        lambda peer: pick(peer, "latency", case, size),
        floor,
        floor_name,
        goals,
    )


def memcpy_time(size):
    return time_to_speed(pick("floors", "floors", "memcpy", size), size)


def collective(bench, word, size, ranks, goals):
    case = f"{ranks}-on-2"
    return Figure(
        f"{word}, {ranks} cells on 2 processors",
        "ns",
        pick("aplib", bench, case, size),
        lambda peer: pick(peer, bench, case, size),
        goals=goals,
    )


def loading(name, unit, case, limit, floor="", higher_is_better=False):
    """What programs in instances cost; the floor is what the system offers instead."""
    return Figure(
        name,
        unit,
        pick("aplib", "load", case),
        floor=pick("aplib", "load", floor) if floor else None,
        floor_name="dlmopen" if floor else "",
        goals=[Goal(limit)],
        higher_is_better=higher_is_better,
    )


def between_processes():
    """Communication between two processes: tcp on this computer, and on a link of 1 Gb/s."""

    def stream(name, size, case="stream", floor_case="sockets-stream", goals=()):
        return Figure(
            name,
            "GB/s",
            pick("hosts", "hosts", case, size),
            lambda peer: pick(peer, "bandwidth", "tcp", size) if "tls" not in case else lambda values: None,
            pick("wires", "net", floor_case, size),
            "OpenSSL alone" if "tls" in floor_case else "sockets",
            goals,
            True,
        )

    return [
        Figure(
            "8 B one way, two processes over tcp",
            "ns",
            pick("hosts", "hosts", "latency", 8),
            lambda peer: pick(peer, "latency", "tcp", 8),
            pick("wires", "net", "sockets-latency", 8),
            "sockets",
            [Goal(1.15, "floor")],
        ),
        stream("stream of 1 MiB, two processes over tcp", MIB, goals=[Goal(1, "openmpi")]),
        stream("stream of 1 MiB, posted, two processes over tcp", MIB, "stream-posted", goals=[Goal(1, "openmpi")]),
        stream("the same encrypted", MIB, "stream-tls", "tls-stream", [Goal(0.8, "floor")]),
        Figure(
            "stream of 64 KiB over a link of 1 Gb/s",
            "GB/s",
            pick("link", "hosts", "stream", 65536),
            floor=pick("link", "net", "sockets-stream", 65536),
            floor_name="sockets",
            goals=[Goal(0.95, "floor")],
            higher_is_better=True,
        ),
        Figure(
            "sum of 8 B, 32 cells in 2 processes, over a round trip",
            "x",
            pick("hosts", "hosts", "sum-over-round-trip", 8),
            goals=[Goal(1.3)],
        ),
        Figure(
            "64 processes, 1,024 cells: start and end",
            "s",
            pick("hosts", "hosts", "start-64-processes"),
            goals=[Goal(5)],
        ),
        # For orientation.
        stream("stream of 64 KiB, two processes over tcp", 65536),
        Figure("sum of 8 B, 32 cells in 2 processes", "ns", pick("hosts", "hosts", "sum-of-32", 8)),
    ]


def one_sided():
    """Put and get between two cells of one process."""
    line = pick("floors", "floors", "cache-line", 8)

    def figure(
        name, unit, bench, case, size, peer_bench="", floor=None, floor_name="", goals=(), higher_is_better=False
    ):
        by_peer = (lambda peer: pick(peer, peer_bench, "two-processors", size)) if peer_bench else None
        own = pick("aplib", bench, case, size)
        return Figure(name, unit, own, by_peer, floor, floor_name, goals, higher_is_better)

    def memcpy(size):
        return pick("aplib", "put", "memcpy", size)

    return [
        figure("8 B put, to visibility", "ns", "put", "two-processors", 8, "put", line, "cache line", [Goal(60)]),
        figure("1 MiB put, to visibility", "ns", "put", "two-processors", MIB, "put", goals=[Goal(1, "openmpi")]),
        figure(
            "puts of 1 MiB",
            "GB/s",
            "put",
            "stream",
            MIB,
            "put-stream",
            memcpy(MIB),
            "memcpy",
            [Goal(0.95, "floor")],
            True,
        ),
        figure("8 B get", "ns", "get", "two-processors", 8, "get", goals=[Goal(120)]),
        # For orientation.
        figure("8 B get of what was just written", "ns", "get", "two-processors-fresh", 8, "", line, "cache line"),
        figure("8 B put, to visibility, one processor", "ns", "put", "one-processor", 8),
        figure("1 KiB put, to visibility", "ns", "put", "two-processors", 1024, "put"),
        figure("64 KiB put, to visibility", "ns", "put", "two-processors", 65536, "put"),
        figure("puts of 1 KiB", "GB/s", "put", "stream", 1024, "put-stream", memcpy(1024), "memcpy", (), True),
        figure("puts of 64 KiB", "GB/s", "put", "stream", 65536, "put-stream", memcpy(65536), "memcpy", (), True),
        figure("gets of 1 MiB", "GB/s", "get", "stream", MIB, "get-stream", memcpy(MIB), "memcpy", (), True),
        figure("puts of 8 B", "M/s", "put", "rate", 8, "put-rate", higher_is_better=True),
        figure("remote fetch and add", "ns", "get", "fetch-add", 8, "fetch-add"),
    ]


def modules():
    """Modules between two processes, alone and under messages, puts and gets of cells."""

    def pair(
        name,
        unit,
        module,
        case,
        size,
        peer_bench="",
        place="",
        floor=None,
        floor_name="",
        goals=(),
        higher_is_better=False,
    ):
        by_peer = (lambda peer: pick(peer, peer_bench, place, size)) if peer_bench else None
        own = pick(module, "module", f"{module}-{case}", size)
        return Figure(name, unit, own, by_peer, floor, floor_name, goals, higher_is_better)

    def over(module, place, word_goals=()):
        """The same for each module. `place`: how a peer reaches the other process alike. `word_goals`: for what waits
        for a word of the other process."""
        return [
            pair(f"8 B put, two processes over {module}", "ns", module, "cells-put", 8, "put", place),
            pair(
                f"puts of 1 MiB, two processes over {module}",
                "GB/s",
                module,
                "cells-put-stream",
                MIB,
                "put-stream",
                place,
                higher_is_better=True,
            ),
            *[
                pair(f"{name} over {module}", "ns", module, f"cells-{case}", 8, case, place, goals=word_goals)
                for name, case in (("8 B get, two processes", "get"), ("fetch and add, two processes", "fetch-add"))
            ],
        ]

    def over_shm(name, size, limit):
        return pair(
            f"{name} one way, two processes over shm",
            "ns",
            "shm",
            "cells-latency",
            size,
            "latency",
            "beside-shm",
            pick("inprocess", "latency", "two-processors", size),
            "in one process",
            [Goal(limit, "floor")],
        )

    fabric_figures = []
    for provider in ("tcp", "shm"):
        module = f"rdma-{provider}"
        ping_pong = pick("fabric", "pingpong", provider, 8)
        write = pick("fabric", "write", provider, MIB)
        fabric_figures += [
            pair(
                f"8 B frame, rdma on libfabric's {provider}",
                "ns",
                module,
                "latency",
                8,
                floor=ping_pong,
                floor_name="fi_pingpong",
                goals=[Goal(1.1, "floor")],
            ),
            pair(
                f"8 B frame, rdma on libfabric's {provider}, beside a ping-pong of our own",
                "ns",
                module,
                "latency",
                8,
                floor=pick("fabric", "latency", provider, 8),
                floor_name="libfabric alone",
            ),
            pair(
                f"remote memory, writes of 1 MiB, rdma on {provider}",
                "GB/s",
                module,
                "put-stream",
                MIB,
                floor=write,
                floor_name="libfabric alone",
                goals=[Goal(0.9, "floor")],
                higher_is_better=True,
            ),
        ]
    return [
        over_shm("8 B", 8, 1.8),
        over_shm("64 KiB", 65536, 2),
        over_shm("1 MiB", MIB, 2),
        *fabric_figures,
        pair(
            "stream of 1 MiB, two processes over shm",
            "GB/s",
            "shm",
            "cells-stream",
            MIB,
            "bandwidth",
            "beside-shm",
            goals=[Goal(1, "mpich")],
            higher_is_better=True,
        ),
        *over("tcp", "tcp"),
        *over("shm", "two-processors", [Goal(2, "openmpi")]),
    ]


def all_figures():
    line = pick("floors", "floors", "cache-line", 8)
    switch = pick("floors", "floors", "context-switch")
    memcpy = {size: pick("floors", "floors", "memcpy", size) for size in (65536, MIB)}
    return [
        message_time(
            "8 B one way, two processors",
            8,
            goals=[Goal(80), Goal(0.75, "openmpi")],
            floor=line,
            floor_name="cache line",
        ),
        message_time("8 B one way, one processor", 8, "one-processor", [Goal(35)], switch, "context switch"),
        message_time(
            "1 KiB one way", 1024, goals=[Goal(0.7, "best peer")], floor=memcpy_time(1024), floor_name="memcpy"
        ),
        message_time(
            "64 KiB one way", 65536, goals=[Goal(0.8, "best peer")], floor=memcpy_time(65536), floor_name="memcpy"
        ),
        message_time("1 MiB one way", MIB, goals=[Goal(1.05, "floor")], floor=memcpy_time(MIB), floor_name="memcpy"),
        Figure(
            "1 MiB into a posted buffer",
            "GB/s",
            time_to_speed(pick("aplib", "latency", "two-processors-posted", MIB), MIB),
            lambda peer: time_to_speed(pick(peer, "latency", "two-processors", MIB), MIB),
            memcpy[MIB],
            "memcpy",
            [Goal(1.7, "floor")],
            True,
        ),
        Figure(
            "messages of 8 B",
            "M/s",
            pick("aplib", "rate", "two-processors", 8),
            lambda peer: pick(peer, "rate", "two-processors", 8),
            goals=[Goal(60)],
            higher_is_better=True,
        ),
        collective("barrier", "barrier", 0, 2, [Goal(130)]),
        collective("reduce", "sum of 8 B", 8, 2, [Goal(140)]),
        collective("barrier", "barrier", 0, 32, [Goal(2000)]),
        collective("reduce", "sum of 8 B", 8, 32, [Goal(2000)]),
        Figure(
            "create, run and end a task",
            "ns",
            pick("aplib", "spawn", "one-cell"),
            floor=switch,
            floor_name="context switch",
            goals=[Goal(150)],
        ),
        Figure(
            "idle machine",
            "%",
            pick("aplib", "idle", "two-processors"),
            lambda peer: pick(peer, "idle", "two-processors"),
            goals=[Goal(1)],
        ),
        Figure(
            "scg: 2 cells over 1", "x", pick("aplib", "scg", "2x1-over-1x1"), goals=[Goal(1.9)], higher_is_better=True
        ),
        Figure(
            "scg, 1200 x 1200: 64 cells over 2",
            "x",
            pick("aplib", "scg", "8x8-over-2x1-1200"),
            goals=[Goal(1)],
            higher_is_better=True,
        ),
        loading("one more instance of a program of 400 KiB", "us", "instance", 60, "dlmopen"),
        loading("its private memory", "kB", "instance-memory", 16, "dlmopen-memory"),
        loading("instances in one process", "", "instances", 5000, "dlmopens", True),
        loading("throw and catch, 1,000 loaded", "us", "throw", 3),
        loading("loop over globals, instance over program alone", "x", "loop", 0.98, higher_is_better=True),
        loading("1,000 cells of a hello program", "s", "hello-1000", 0.3),
        *[figure for part in (one_sided(), between_processes(), modules()) for figure in part if figure.goals],
        # For orientation; there is no target.
        Figure(
            "yield between two tasks",
            "ns",
            pick("aplib", "switch", "one-cell"),
            floor=switch,
            floor_name="context switch",
        ),
        message_time("64 B one way", 64, floor=line, floor_name="cache line"),
        message_time("8 KiB one way", 8192, floor=memcpy_time(8192), floor_name="memcpy"),
        message_time("4 MiB one way", 4 * MIB, floor=memcpy_time(4 * MIB), floor_name="memcpy"),
        message_time(
            "1 KiB one way, one processor", 1024, "one-processor", floor=memcpy_time(1024), floor_name="memcpy"
        ),
        Figure(
            "stream of 64 KiB",
            "GB/s",
            pick("aplib", "bandwidth", "two-processors", 65536),
            lambda peer: pick(peer, "bandwidth", "two-processors", 65536),
            memcpy[65536],
            "memcpy",
            higher_is_better=True,
        ),
        Figure(
            "stream of 1 MiB",
            "GB/s",
            pick("aplib", "bandwidth", "two-processors", MIB),
            lambda peer: pick(peer, "bandwidth", "two-processors", MIB),
            memcpy[MIB],
            "memcpy",
            higher_is_better=True,
        ),
        Figure(
            "stream of 1 MiB, posted",
            "GB/s",
            pick("aplib", "bandwidth", "two-processors-posted", MIB),
            lambda peer: pick(peer, "bandwidth", "two-processors", MIB),
            memcpy[MIB],
            "memcpy",
            higher_is_better=True,
        ),
        collective("barrier", "barrier", 0, 8, []),
        collective("reduce", "sum of 8 B", 8, 8, []),
        *[figure for part in (one_sided(), between_processes(), modules()) for figure in part if not figure.goals],
        Figure("scg: 64 cells over 2", "x", pick("aplib", "scg", "8x8-over-2x1"), higher_is_better=True),
        Figure("scg, 1 cell", "MFlops", pick("aplib", "scg", "1x1-on-1"), higher_is_better=True),
    ]


@dataclasses.dataclass
class Verdict:
    """One goal, judged. `share` is below 1 if the median meets it, whichever direction is better. None: not
    measured."""

    text: str
    value: typing.Optional[float]
    share: typing.Optional[float]
    judgement: str  # as noise.judgement() says


@dataclasses.dataclass
class Row:
    figure: Figure
    value: typing.Optional[float]
    best_peer: str  # name, or empty
    peer_value: typing.Optional[float]
    peer_ratio: typing.Optional[float]
    floor_value: typing.Optional[float]
    floor_ratio: typing.Optional[float]
    verdicts: typing.List[Verdict]


def best_of(run, figure):
    """(name, value) of the best peer that has the figure."""
    known = []
    for name in run.peers if figure.peer else []:
        value = run.median(figure.peer(name))
        if value is not None:
            known.append((value, name))
    if not known:
        return "", None
    value, name = max(known) if figure.higher_is_better else min(known)
    return name, value


def judge(run, figure, goal, row):
    sign = ">=" if figure.higher_is_better else "<="
    if not goal.against:
        text, values = f"{sign} {quantity(goal.limit, figure.unit, '{:g}'.format)}", run.values(figure.own)
    elif goal.against == "floor":
        text, values = f"{sign} {goal.limit:g} x {figure.floor_name}", run.ratios(figure.own, figure.floor)
    elif goal.against == "best peer":
        text = f"{sign} {goal.limit:g} x best peer"
        values = run.ratios(figure.own, figure.peer(row.best_peer)) if row.best_peer else []
    else:
        text = f"{sign} {goal.limit:g} x {PEER_TITLES[goal.against]}"
        values = run.ratios(figure.own, figure.peer(goal.against)) if goal.against in run.peers else []
    value = middle(values)
    share = None
    if value is not None:
        share = goal.limit / value if figure.higher_is_better and value else value / goal.limit
    return Verdict(text, value, share, noise.judgement(values, goal.limit, figure.higher_is_better))


def evaluate(run, wanted=None):
    """A row for each of the wanted figures, or for all but those of MPI."""
    rows = []
    for figure in wanted or all_figures():
        name, peer_value = best_of(run, figure)
        row = Row(
            figure,
            run.median(figure.own),
            name,
            peer_value,
            run.ratio(figure.own, figure.peer(name)) if name else None,
            run.median(figure.floor) if figure.floor else None,
            run.ratio(figure.own, figure.floor) if figure.floor else None,
            [],
        )
        row.verdicts = [judge(run, figure, goal, row) for goal in figure.goals]
        rows.append(row)
    return rows


def three_digits(value):
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:.{digits}f}"


def quantity(value, unit, digits=three_digits):
    """A value for people: "71.8 ns", "1.07 us", "57.1 GB/s", "1.93 x"."""
    if value is None:
        return "-"
    if unit == "ns" and value >= 1e6:
        return f"{digits(value / 1e6)} ms"
    if unit == "ns" and value >= 1e3:
        return f"{digits(value / 1e3)} us"
    return f"{digits(value)} {unit}"
