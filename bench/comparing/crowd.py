# SPDX-License-Identifier: MIT
"""More ranks than cores: who takes part in bench/crowd, its patterns, and its section of docs/mpi-performance.md."""

import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import typing

from . import machine, markdown, noise, peers, sources

RANKS = [2, 4, 16, 64]
SAMPLES, SAMPLE_MS = 3, 25  # a sample is one operation, if that takes longer
RUN_SECONDS_MAX = 20
ROUNDS = 5  # so many that the sign test may be sure
SLOW, ROUNDS_OF_SLOW = 10, 1  # times as long as the fastest
HOPELESS = 100  # times, on fewer ranks
CALLS_RANKS_MAX = 16  # interpreters start slowly
US, MS = 1e3, 1e6
FAILED = "failed"
TITLE = "More ranks than cores"

METHOD = """\
`bench/crowd --write-docs` writes this section. Microseconds: the median of the rounds, and in brackets the longest
sample of all. Bold rows are those in which APlib's cells are slower than the best peer, with a confidence of
{confidence} % or more (sign test over the rounds).

- All libraries run one program, `bench/peers/crowd`, which checks what it receives. They take turns in each round, in
  an order that changes by round. Each round's value is the median of {samples} samples; ratios to the best peer are
  formed within each round. Who takes more than {slow} times as long as the fastest takes part in few rounds. A program
  begins with 0.2 s that do not count, in which ranks begin, one after the other, and make connections.
- "Cells" are APlib's ranks by default, "thread each" with `APLIB_THREADS=per-cell`, and "processes" with `mpiexec
  --processes`. Open MPI runs with `--oversubscribe --bind-to none --mca mpi_yield_when_idle 1`. MPICH's
  manual advises to build it for sockets (`ch3:sock`), which Debian's is not; it runs with
  `MPIR_CVAR_POLLS_BEFORE_YIELD=1`.
- Work takes a processor's time and not that of a clock. "Work alone" is what it takes when it is spread over all
  cores, and no library can be faster.
- A program that takes more than {limit} s is ended: "> {limit} s". With more ranks it is not tried again, and neither
  is a peer that takes more than {hopeless} times as long as the fastest: "hopeless".
- The rows of mpi4py are calls from Python, and their ranks are processes with all libraries.
"""


@dataclasses.dataclass(frozen=True)
class Pattern:
    """`floor` of ranks and cores: the nanoseconds that the work alone takes."""

    name: str
    title: str
    floor: typing.Callable = lambda ranks, cores: None


def spread(work):
    return lambda ranks, cores: work * max(1, ranks / cores)


def one_works(work):
    return lambda ranks, cores: work


PATTERNS = [
    Pattern("ring-recv", "a token to the next rank, by Recv"),
    Pattern("ring-test", "a token to the next rank, by Test"),
    Pattern("ring-iprobe", "a token to the next rank, by Iprobe"),
    Pattern("halo-even", "20 us of work, and a halo", spread(20 * US)),
    Pattern("halo-uneven", "0 to 40 us of work, and a halo", spread(20 * US)),
    Pattern("sum", "20 us of work, and a sum", spread(20 * US)),
    Pattern("alltoall", "256 B from all to all"),
    Pattern("master", "a task of 0 to 200 us from a master", lambda ranks, cores: 100 * US / min(ranks - 1, cores)),
    Pattern("compute-1ms", "1 ms of work of one rank, and a broadcast", one_works(1 * MS)),
    Pattern("compute-10ms", "10 ms of work of one rank, and a broadcast", one_works(10 * MS)),
    Pattern("compute-100ms", "100 ms of work of one rank, and a broadcast", one_works(100 * MS)),
]
CALLS = [
    Pattern("py-allreduce", "mpi4py: allreduce of 8 B"),
    Pattern("py-allreduce-800k", "mpi4py: allreduce of 800 kB"),
    Pattern("py-barrier", "mpi4py: barrier"),
    Pattern("py-ring", "mpi4py: 8 B to the next rank"),
    Pattern("py-bcast", "mpi4py: broadcast of an object"),
]


@functools.cache
def python():
    """A Python that has mpi4py, or None. Debian's is made for Open MPI, and so is what pip builds beside it."""
    for path in dict.fromkeys([sys.executable, "/usr/bin/python3"]):
        if shutil.which(path) and subprocess.run([path, "-c", "import mpi4py, numpy"], stderr=subprocess.DEVNULL,
                                                 check=False).returncode == 0:
            return path
    return None


def cut(process):
    """Ends a launcher and its ranks: it is asked first, because some put the ranks into groups of their own."""
    process.terminate()
    try:
        process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Crowded(peers.Peer):
    """Base of all that take part, before a library's own class. `fault` says why there are no figures at all."""

    kind = "crowd_peer"
    sources = ["crowd/*.c", "command.c", "figure.c"]
    runs_python = False

    def __init__(self, *folders):
        """The build folder of APlib's own; bench/peers; where the program goes."""
        super().__init__(*folders, False)
        self.calls = [python(), str(folders[-2] / "crowd" / "calls.py")]

    def measure(self, pattern, ranks, samples=SAMPLES, sample_ms=SAMPLE_MS):
        """(median, worst) in ns. Raises sources.Unusable."""
        command, environment = self.crowd(ranks)
        if pattern in CALLS:
            command = [*command[:-1], *self.calls, f"{ranks}-ranks", str(samples), str(sample_ms), pattern.name]
        else:
            command = command + ["--case", f"{ranks}-ranks", pattern.name, "--samples", str(samples), "--sample-ms",
                                 str(sample_ms)]
        with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                output, errors = process.communicate(timeout=RUN_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                cut(process)
                raise sources.Unusable(f"> {RUN_SECONDS_MAX} s") from None
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        if process.returncode != 0 or len(lines) != 1:
            words = " / ".join((errors.strip() or "it said nothing").splitlines()[-3:])
            print(f"crowd: {' '.join(command)}: status {process.returncode}: {words}", file=sys.stderr)
            raise sources.Unusable(FAILED)
        return lines[0]["value"], lines[0]["max"]

    def takes_part(self, pattern, ranks):
        return pattern in PATTERNS or (self.runs_python and self.calls[0] is not None and ranks <= CALLS_RANKS_MAX)


class Cells(Crowded, peers.AplibMpi):
    name, title = "cells", "cells"
    runs_python = True


class ThreadEach(Cells):
    name, title = "per-cell", "thread each"
    runs_python = False  # its ranks are processes anyway

    def crowd(self, ranks):
        return super().crowd(ranks)[0], {**os.environ, "APLIB_THREADS": "per-cell"}


class Processes(Cells):
    name, title = "processes", "processes"

    def crowd(self, ranks):
        launcher, *words = super().crowd(ranks)[0]
        return [launcher, "--processes", *words], None


class OpenMpi(Crowded, peers.OpenMpi):
    runs_python = True
    oversubscribed = [*peers.OpenMpi.oversubscribed, "--bind-to", "none"]

    def crowd(self, ranks):
        return self.start(ranks, *self.oversubscribed), self.environment


class Mpich(Crowded, peers.Mpich):
    def crowd(self, ranks):
        return super().crowd(ranks)[0], {**os.environ, "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


OWN = {library.name: library for library in (Cells, ThreadEach, Processes)}
PEERS = {library.name: library for library in (OpenMpi, Mpich)}
TITLES = {library.name: library.title for library in [*OWN.values(), *PEERS.values()]}


class Row:
    """A pattern on a number of ranks, as all libraries ran it. `rounds` has {library: [median, worst]} in ns, `busy`
    what others used of the machine between the rounds, in per cent."""

    def __init__(self, pattern, ranks, cores, rounds=(), cuts=(), busy=()):
        self.pattern, self.ranks, self.cores = pattern, ranks, cores
        self.rounds, self.cuts, self.busy = list(rounds), dict(cuts), list(busy)

    @classmethod
    def of_record(cls, record):
        pattern = next(each for each in PATTERNS + CALLS if each.name == record["pattern"])
        return cls(pattern, record["ranks"], record["cores"], record["rounds"], record["cuts"], record["busy"])

    def record(self):
        return {"pattern": self.pattern.name, "ranks": self.ranks, "cores": self.cores, "busy": self.busy,
                "cuts": self.cuts, "rounds": self.rounds}

    def is_noisy(self):
        return statistics.mean(self.busy or [0]) > noise.BUSY_PERCENT_MAX

    def measure_round(self, libraries):
        self.busy.append(machine.busy_percent(noise.PAUSE))
        number, this = len(self.rounds), {}
        shift = number % len(libraries)
        for library in libraries[shift:] + libraries[:shift]:
            slow = number >= ROUNDS_OF_SLOW and (self.median(library.name) or 0) > SLOW * self.fastest()
            if slow or library.name in self.cuts:
                continue
            try:
                this[library.name] = library.measure(self.pattern, self.ranks)
            except sources.Unusable as reason:
                self.cuts[library.name] = str(reason)
        self.rounds.append(this)

    def of(self, name, place):
        return [values[name][place] for values in self.rounds if name in values]

    def median(self, name):
        values = self.of(name, 0)
        return statistics.median(values) if values else None

    def best_peer(self):
        known = [name for name in PEERS if self.median(name) is not None]
        return min(known, key=self.median, default="")

    def ratios(self, name):
        """To the best peer, in each round that has both."""
        peer = self.best_peer()
        return [values[name][0] / values[peer][0] for values in self.rounds if name in values and peer in values]

    def is_behind(self):
        ratios = self.ratios("cells")
        return len(ratios) >= ROUNDS and noise.judgement(ratios, 1, False) == "NO"

    def fastest(self):
        """The median of the fastest library, or None."""
        return min((each for each in map(self.median, TITLES) if each is not None), default=None)


def microseconds(nanoseconds):
    return "-" if nanoseconds is None else f"{nanoseconds / US:#.3g}".rstrip(".") if nanoseconds < MS else (
        f"{nanoseconds / US:,.0f}")


def cell(row, name):
    if row.median(name) is None:
        return row.cuts.get(name, "-")
    return f"{microseconds(row.median(name))} ({microseconds(max(row.of(name, 1)))})"


def table(rows):
    best = [f"{title} / best peer" for title in (OWN[name].title for name in OWN)]
    lines = [["pattern", "ranks", *TITLES.values(), "work alone", *best]]
    lines.append(["---", *["---:"] * (len(lines[0]) - 1)])
    for row in rows:
        title = f"**{row.pattern.title}**" if row.is_behind() else row.pattern.title
        lines.append([title, str(row.ranks), *(cell(row, name) for name in TITLES),
                      microseconds(row.pattern.floor(row.ranks, row.cores)),
                      *(f"{statistics.median(ratios):.2f}" if ratios else "-" for ratios in map(row.ratios, OWN))])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def behind(rows):
    """A sentence."""
    compared = [row for row in rows if row.ratios("cells")]
    late = [row for row in compared if row.is_behind()]
    return f"Cells are slower than the best peer in {len(late)} of {len(compared)} rows, for sure."


def section(rows, facts):
    words = METHOD.format(samples=SAMPLES, slow=SLOW, hopeless=HOPELESS, limit=RUN_SECONDS_MAX,
                          confidence=noise.CONFIDENCE_PERCENT)
    parts = [
        f"## {TITLE}\n",
        f"{facts['date']}, {facts['rounds']} rounds on {facts['machine']['cores']} cores. {behind(rows)}\n",
        f"Machine: {machine.sentence(facts['machine'])}.\n",
        f"{noise.sentence(facts['noise']).capitalize()}.\n",
        *([f"Not measured: {'; '.join(facts['missing'])}.\n"] if facts["missing"] else []),
        f"{table(rows)}\n",
        words,
    ]
    return markdown.wrapped("\n".join(parts))


def section_of(page):
    """The section as a page has it, or an empty text."""
    found = re.search(rf"^## {TITLE}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def write(path, rows, facts):
    """Puts the section in the place of the old one, or before the last one, which says how the rest is measured."""
    page, new = path.read_text(encoding="utf-8"), section(rows, facts).rstrip() + "\n\n"
    old = section_of(page)
    if not old:
        old = re.search(r"^## How it is measured\n", page, re.MULTILINE)[0]
        new += old
    path.write_text(page.replace(old, new).rstrip() + "\n", encoding="utf-8")


class Results:
    """The rows that were measured so far, in a file. A row that is measured again takes the old one's place."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.rows, self.repeats = {}, {}
        if self.path.exists():
            read = json.loads(self.path.read_text(encoding="utf-8"))
            self.repeats = read["repeats"]
            for row in map(Row.of_record, read["rows"]):
                self.rows[row.pattern.name, row.ranks] = row

    def cut_before(self, pattern, ranks):
        """{library: reason} of what takes too long with fewer ranks."""
        cuts = {}
        for (name, fewer), row in self.rows.items():
            if name == pattern.name and fewer < ranks:
                cuts |= {library: reason for library, reason in row.cuts.items() if reason != FAILED}
                cuts |= {library: "hopeless" for library in PEERS
                         if (row.median(library) or 0) > HOPELESS * (row.fastest() or 0)}
        return cuts

    def add(self, row, reference):
        self.rows[row.pattern.name, row.ranks] = row
        for case, values in reference.repeats.items():
            self.repeats.setdefault(case, []).extend(values)
        reference.repeats = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record = {"repeats": self.repeats, "rows": [each.record() for each in self.ordered()]}
        self.path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def ordered(self):
        places = {pattern.name: place for place, pattern in enumerate(PATTERNS + CALLS)}
        return [self.rows[key] for key in sorted(self.rows, key=lambda key: (places[key[0]], key[1]))]
