# SPDX-License-Identifier: MIT
"""MPI: the figures of a run with --mpi, and the page that it writes."""

from . import crowd, figures, markdown, noise, page, peers, sources
from .figures import MIB, Figure, Goal, pick

OWN = "aplib-mpi"

METHOD = """\
`bench/compare --mpi --write-docs` writes this page; none of its figures is typed by hand. `scripts/peers` installs the
peers.

- All libraries run one program, `bench/peers`, unmodified, which each library's `mpicc -O3` compiles. They take turns
  in one run: in each round directly after each other for each kind of figures, in an order that changes by round. Each
  value is the median of the rounds, each round's value the median of {samples} samples; ratios are formed within each
  round. Compare figures of one run only, because they drift with the machine.
- A target is met or missed if the run says so with a confidence of {confidence} % or more (sign test over the rounds).
  Otherwise it is open, and the table says between which values the median lies. A run that leaves more than
  {open_max} % of its targets open, in which others used more than {busy_max} % of the machine, or of fewer than
  {rounds_min} rounds, is not published.
- "Best peer" is the fastest of Open MPI, MPICH and AMPI in that row. Two ranks have a core each. With more ranks than
  cores, Open MPI runs with `--oversubscribe --mca mpi_yield_when_idle 1`, AMPI with `+p2 +vpN`, MPICH and APlib without
  further options.
- One way is half a ping-pong. A stream is sent in windows of 64 messages (fewer when that is more than 16 MiB), each
  of which ends with an acknowledgement; the message rate uses windows of 1024. {touch}
- Files lie in memory (`/dev/shm`). Both ranks open a new one, and write and read it by collective calls of 32 MiB of
  each; pieces of the two lie in turn in it. MPICH has ROMIO, Open MPI its own engine.
- "Two processes": each rank is a process (`mpiexec --processes`), as it always is with Open MPI and MPICH.
- One-sided calls are those of a rank to the other, which waits in a barrier, in a window that `MPI_Win_allocate` has
  made.
- Barriers and sums of 8 B run back to back. Larger collectives are timed one by one, each after a barrier, and the
  value is the mean of the ranks. Their bytes are those that a rank sends to another.
- The vector has every second float of a buffer; its bytes are those of the data. The plain loop copies the same floats
  from one buffer to another, in one rank.
- "Hello" lasts from the start of the launcher to its end. Blocked ranks wait in `MPI_Recv` for half a second, while one
  more rank sleeps; the value is the processor time of all their processes. Memory is what all processes have by
  themselves and their share of the rest (PSS), with {many} ranks and with 2.
- What the MPI layer adds is the difference to the same ping-pong through the C++ API (`apbench latency`).
"""


def figure(name, unit, bench, case, size=0, goals=(), higher_is_better=False):
    return Figure(
        name,
        unit,
        pick(OWN, bench, case, size),
        lambda peer: pick(peer, bench, case, size),
        goals=goals,
        higher_is_better=higher_is_better,
    )


def best(limit):
    return [Goal(limit, "best peer")]


def pair():
    """Two ranks on a core each."""

    def of_sizes(title, unit, bench, limits, higher_is_better=False):
        return [
            figure(title.format(name), unit, bench, "two-processors", size, best(limit), higher_is_better)
            for (size, name), limit in zip(((65536, "64 KiB"), (MIB, "1 MiB")), limits)
        ]

    return [
        figure("8 B one way", "ns", "latency", "two-processors", 8, best(0.75)),
        figure("1 KiB one way", "ns", "latency", "two-processors", 1024, best(0.6)),
        *of_sizes("{} one way", "ns", "latency", (0.7, 0.75)),
        *of_sizes("stream of {}", "GB/s", "bandwidth", (1.6, 1.6), True),
        figure("messages of 8 B", "M/s", "rate", "two-processors", 8, best(1.8), True),
        figure("barrier", "ns", "barrier", "2-on-2", 0, best(0.7)),
        figure("allreduce of 8 B", "ns", "reduce", "2-on-2", 8, best(0.7)),
        *of_sizes("allreduce of {}", "ns", "allreduce", (0.4, 0.35)),
        *[
            row
            for bench in ("bcast", "allgather", "alltoall")
            for row in of_sizes(bench + " of {}", "ns", bench, (0.4, 0.4))
        ],
    ]


def nonblocking():
    """Each beside the blocking call."""

    def beside(name, bench, blocking, size):
        row = figure(f"{name}, and a wait", "ns", bench, "2-on-2", size)
        row.floor = pick(OWN, blocking, "2-on-2", size)
        row.floor_name = "blocking"
        row.goals = [Goal(1.2, "floor")]
        return row

    return [
        beside("nonblocking barrier", "ibarrier", "barrier", 0),
        beside("nonblocking allreduce of 8 B", "iallreduce", "reduce", 8),
    ]


def one_sided():
    """Each with a flush."""
    return [
        figure(f"{name} of 8 B, and a flush", "ns", bench, "two-processors", 8, best(0.5))
        for name, bench in (("put", "put-flush"), ("get", "get"), ("fetch and add", "fetch-add"))
    ]


def files():
    return [
        figure(f"file of 1 GiB {done} together, pieces of {name}", "GB/s", bench, "two-processors", size, best(1), True)
        for done, bench in (("written", "file-write"), ("read", "file-read"))
        for name, size in (("1 MiB", MIB), ("4 KiB", 4096))
    ]


def processes():
    """Two ranks that are processes."""
    return [
        figure("8 B one way, two processes", "ns", "latency", "processes", 8, [Goal(1.2, "mpich")]),
        figure("1 MiB one way, two processes", "ns", "latency", "processes", MIB, [Goal(0.5, "mpich")]),
        figure("8 B one way, two processes over tcp", "ns", "latency", "tcp", 8, [Goal(0.8, "openmpi")]),
        figure("1 MiB one way, two processes over tcp", "ns", "latency", "tcp", MIB),
    ]


def vector():
    size = 65536
    row = figure("every second float, 64 KiB one way", "ns", "vector", "two-processors", size)
    row.floor = pick(OWN, "vector-loop", "two-processors", size)
    row.floor_name = "plain loop"
    row.goals = [Goal(0.2, "best peer"), Goal(2, "floor")]
    return row


def crowded(ranks):
    """More ranks than cores."""
    goals = [Goal(0.1, "openmpi"), Goal(0.4, "ampi")]
    return [
        figure(f"barrier, {ranks} ranks on 2 cores", "ns", "barrier", f"{ranks}-on-2", 0, goals),
        figure(f"allreduce of 8 B, {ranks} ranks on 2 cores", "ns", "reduce", f"{ranks}-on-2", 8, goals),
    ]


def of_a_further_rank(source):
    """Memory in kB."""
    many = peers.CROWDS[-1]
    more, few = (pick(source, "memory", f"{ranks}-on-2") for ranks in (many, 2))

    def picked(values):
        return None if more(values) is None or few(values) is None else (more(values) - few(values)) / (many - 2)

    return picked


def added(case):
    """What the MPI layer adds to a message of 8 B."""
    through_mpi, alone = (pick(source, "latency", case, 8) for source in (OWN, "aplib"))

    def picked(values):
        known = through_mpi(values) is not None and alone(values) is not None
        return through_mpi(values) - alone(values) if known else None

    return Figure(f"what MPI adds to 8 B one way, {case.replace('-', ' ')}", "ns", picked, goals=[Goal(25)])


def all_figures():
    many = peers.CROWDS[-1]
    return [
        *pair(),
        *nonblocking(),
        vector(),
        *one_sided(),
        *files(),
        *processes(),
        *[row for ranks in peers.CROWDS for row in crowded(ranks)],
        figure(f"{peers.BLOCKED} blocked ranks", "%", "idle", f"{peers.BLOCKED}-blocked", 0, [Goal(1)]),
        figure(f"hello of {many} ranks", "ns", "start", f"{many}-ranks", 0, best(0.2)),
        figure("hello of 1,000 ranks", "ns", "start", f"{peers.AplibMpi.THOUSAND}-ranks", 0, [Goal(0.5e9)]),
        Figure("memory of a further rank", "kB", of_a_further_rank(OWN), of_a_further_rank, goals=[Goal(200)]),
        added("two-processors"),
        added("one-processor"),
    ]


def write(folder, rows, facts):
    lines = page.markdown_lines(rows)
    method = METHOD.format(
        samples=sources.SAMPLES,
        touch=page.touch_words(facts),
        **noise.limits(),
        many=peers.CROWDS[-1],
    )
    path = folder / "mpi-performance.md"
    parts = [
        "<!-- SPDX-License-Identifier: MIT -->\n# Performance of MPI\n",
        f"{facts['date']}, {facts['rounds']} rounds: {page.count(lines)}.\n",
        *page.opening(facts, None),
        f"## Figures and targets\n\n{page.markdown_table(lines)}\n",
        *([crowd.section_of(path.read_text(encoding="utf-8"))] if path.exists() else []),
        f"## How it is measured\n\n{method}",
    ]
    path.write_text(markdown.wrapped("\n".join(parts)), encoding="utf-8")
