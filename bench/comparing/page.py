# SPDX-License-Identifier: MIT
"""docs/performance.md: the results of one run, with date, computer and method."""

import re
import shutil

from . import figures, machine, markdown, noise, sources, table

METHOD = """\
`bench/compare --write-docs` writes this page; none of its figures is typed by hand. `scripts/peers` installs the
peers.

- All libraries take turns in one run. In each round, those with figures of one kind (messages, streams, put and get,
  ...) have their turns directly after each other, in an order that changes by round. Kinds without a target that
  compares two turns have theirs in every third round. Each value is the median of the rounds, each round's value the
  median of {samples} samples or more; ratios are formed within each round. Compare figures of one run only, because
  they drift with the machine.
- A target is met or missed if the run says so with a confidence of {confidence} % or more (sign test over the rounds).
  Otherwise it is open, and the table says between which values the median lies. A run that leaves more than
  {open_max} % of its targets open, or of fewer than {rounds_min} rounds, is not published.
- Before the turns of each kind, while ours pause, it is measured what other programs use, and how much the bare
  machine's times for a cache line, a switch and a copy of 1 MiB vary: the processors of a virtual machine move to other
  cores. A run in which others used more than {busy_max} % is not published.
- One way is half a ping-pong. A stream is sent in windows of 64 messages (fewer when that is more than 16 MiB), each
  of which ends with an acknowledgement. The message rate uses windows of 1024. {touch}
- Peers are our own small MPI programs in `bench/peers`, with the same loops, warm-up and sampling. Two ranks are
  bound to a core each. With more ranks than cores, Open MPI runs with `--oversubscribe --mca mpi_yield_when_idle 1`,
  AMPI with `+p2 +vpN`, and MPICH without further options. "One processor" means two cells, or two AMPI ranks, on one
  thread.
- Floors are a cache line sent to and fro between two cores, one memcpy between warm buffers, and a bare switch of
  Boost.Context.
- "Posted" means that the receiver waits with its own buffer before the message is sent.
- Programs in instances (`apbench load`): medians of 5 samples, compared with dlmopen, the system's way to load a
  library several times.
- "Idle" is the share of a core that a machine of two waiting cells uses; for a peer, one waiting rank.
- Two processes have one cell and one core each, and are joined by tcp with authentication (`apbench hosts`). They are
  compared with non-blocking sockets that both ends poll, with OpenSSL (TLS 1.3, AES-128-GCM) on such sockets
  (`bench-net`), and with Open MPI with `--mca btl tcp,self`. The link of 1 Gb/s is between two network namespaces. A
  round trip is 8 B there and back between two cells of the same machine of 32.
- "Put, to visibility" is half a ping-pong of puts, each awaited at the target (`apbench put`). APlib's target waits
  for the put's flag; the peers' targets look at memory that a second put changes after the data. Streams use windows
  as above, followed by an acknowledgement, a flush or a quiet. memcpy runs on the same processor between the same
  buffers. Get, and fetch and add, last until the value has arrived, while the target waits. MPI uses windows of
  MPI_Win_allocate, passive targets and MPI_Win_flush; OpenSHMEM uses shmem_putmem, shmem_fence, shmem_p and
  shmem_wait_until. Over tcp, Open MPI runs with `--mca osc ^sm,ucx`, MPICH and OpenSHMEM with `UCX_TLS=tcp,self`.
- Modules (`apbench module`) are measured alone, by two processes on a core each that poll (`bench-module`), and under a
  machine of two processes with a cell each, whose remote memory is in their heaps. rdma-tcp and rdma-shm are the module
  rdma on these providers of libfabric. They are compared with `fi_pingpong -e rdm` on the same provider, and with
  fi_write in windows as above with one polled completion queue (`bench-fabric`).
- scg solves for 300 x 300 points where no other size is named; the speeds come from successive runs.
"""


class OldPage:
    """The page of an earlier run."""

    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        self.opening, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
        self.sections = {}
        for part in parts:
            title, _, body = part.partition("\n")
            self.sections[title] = body.strip() + "\n"
        self.rows = {}  # by figure: its lines, one per target
        name = ""
        for line in self.sections["Figures and targets"].splitlines()[2:]:
            name = line.split("|")[1].strip() or name
            self.rows.setdefault(name, []).append(line)

    def when(self):
        """Date and rounds of the run that measured most of the page."""
        return re.search(r"^\d{4}-.*? rounds?", self.opening, re.MULTILINE).group()

    def paragraphs(self, *beginnings):
        return [part.strip() + "\n" for part in self.opening.split("\n\n") if part.strip().startswith(beginnings)]


def markdown_lines(rows, old=None):
    """A line per target. What this run has not measured stays as in `old`."""
    lines = []
    for row in rows:
        kept = old.rows.get(row.figure.name) if old and row.value is None else None
        lines += kept or ["| " + " | ".join(line) + " |" for line in table.cells(row)]
    return lines


def markdown_table(lines):
    head = ["| " + " | ".join(table.HEADER) + " |", "|" + " --- |" * len(table.HEADER)]
    return "\n".join(head + lines)


def count(lines):
    return noise.count(line.split("|")[-2].strip() for line in lines)


def by_size(run, bench, sizes, unit):
    """A table of all sources, by size."""
    names = ["aplib", "posted", *[name for name in run.peers if run.measured(name, bench)]]
    titles = {"aplib": "APlib", "posted": "APlib, posted", **figures.PEER_TITLES}
    lines = ["| bytes | " + " | ".join(titles[name] for name in names) + " |", "|" + " ---: |" * (len(names) + 1)]
    for size in sizes:
        cells = []
        for name in names:
            source, case = ("aplib", "two-processors-posted") if name == "posted" else (name, "two-processors")
            cells.append(figures.quantity(run.median(figures.pick(source, bench, case, size)), unit))
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


ONE_SIDED = [  # title, unit, apbench's benchmark and case, the peers' benchmark
    ("put, to visibility", "ns", ("put", "two-processors"), "put"),
    ("stream of puts", "GB/s", ("put", "stream"), "put-stream"),
    ("get", "ns", ("get", "two-processors"), "get"),
    ("stream of gets", "GB/s", ("get", "stream"), "get-stream"),
    ("puts a second", "M/s", ("put", "rate"), "put-rate"),
    ("fetch and add", "ns", ("get", "fetch-add"), "fetch-add"),
    ("put and fence", "ns", None, "put-fence"),
]


def one_sided(run):
    """A table of put and get between two processors: all sources, by size."""
    names = [name for name in run.peers if run.measured(name, "put")]
    titles = ["APlib"] + [figures.PEER_TITLES[name] for name in names]
    lines = ["| | bytes | " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) + 1)]
    for title, unit, own, bench in ONE_SIDED:
        for size in sources.ONE_SIDED_SIZES:
            picks = [figures.pick("aplib", *own, size) if own else lambda values: None]
            picks += [figures.pick(name, bench, "two-processors", size) for name in names]
            values = [run.median(one) for one in picks]
            if any(value is not None for value in values):
                cells = [figures.quantity(value, unit) for value in values]
                lines.append(f"| {title} | {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


MODULE_CASES = [  # title, unit, case, bytes
    ("frame of 8 B, one way", "ns", "latency", 8),
    ("frames of 8 B", "M/s", "rate", 8),
    ("frames of 1 MiB", "GB/s", "stream", 1 << 20),
    ("write of 8 B to remote memory", "ns", "put", 8),
    ("writes of 1 MiB", "GB/s", "put-stream", 1 << 20),
    ("read of 8 B", "ns", "get", 8),
    ("reads of 1 MiB", "GB/s", "get-stream", 1 << 20),
    ("cells: message of 8 B, one way", "ns", "cells-latency", 8),
    ("cells: messages of 1 MiB", "GB/s", "cells-stream", 1 << 20),
    ("cells: put of 8 B, to visibility", "ns", "cells-put", 8),
    ("cells: puts of 1 MiB", "GB/s", "cells-put-stream", 1 << 20),
    ("cells: get of 8 B", "ns", "cells-get", 8),
    ("cells: gets of 1 MiB", "GB/s", "cells-get-stream", 1 << 20),
    ("cells: fetch and add", "ns", "cells-fetch-add", 8),
]


def modules(run):
    """A table of the modules that were measured, by case."""
    names = [name for name in sources.MODULES if run.measured(name, "module")]
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for title, unit, case, size in MODULE_CASES:
        values = [run.median(figures.pick(name, "module", f"{name}-{case}", size)) for name in names]
        lines.append(f"| {title} | " + " | ".join(figures.quantity(value, unit) for value in values) + " |")
    return "\n".join(lines)


def touch_words(facts):
    if facts["touch"]:
        return "Receivers read a byte of each cache line."
    return "The receiver does not read what it got (with `--touch` it does)."


def opening(facts, picture):
    """What follows the first line in the page of a whole run."""
    parts = [f"Machine: {machine.sentence(facts['machine'])}.\n"]
    parts.append(f"{noise.sentence(facts['noise']).capitalize()}.\n")
    if facts["versions"]:
        parts.append(
            "Peers: " + ", ".join(f"{title} {version}" for title, version in facts["versions"].items()) + ".\n"
        )
    parts += [f"{title} is not measured: {reason}.\n" for title, reason in facts["not_measured"].items()]
    if picture is not None:
        parts.append("![Times and bandwidths by message size, barriers, and the targets](performance.png)\n")
    return parts


def opening_kept(facts, old):
    """The same in a page whose other rows come from an earlier run."""
    parts = old.paragraphs("Machine:", "Noise:", "Peers:")
    parts.append(
        f"Put, get and modules: {facts['date']}, {facts['rounds']} rounds, on {machine.sentence(facts['machine'])}.\n"
    )
    parts.append(f"Their {noise.sentence(facts['noise'])}.\n")
    parts += [f"{title} is not measured: {reason}.\n" for title, reason in facts["not_measured"].items()]
    return parts + old.paragraphs("![")


def write(folder, rows, run, facts, picture):
    path = folder / "performance.md"
    old = OldPage(path) if facts["part"] == "one-sided" and path.exists() else None
    lines = markdown_lines(rows, old)
    when = old.when() if old else f"{facts['date']}, {facts['rounds']} rounds"
    if picture is not None:
        shutil.copyfile(picture, folder / "performance.png")
    parts = ["<!-- SPDX-License-Identifier: MIT -->\n# Performance\n", f"{when}: {count(lines)}.\n"]
    parts += opening_kept(facts, old) if old else opening(facts, picture)
    sections = {
        "Figures and targets": markdown_table(lines),
        "One way, between two processors": by_size(run, "latency", sources.LATENCY_SIZES, "ns"),
        "Streams, between two processors": by_size(run, "bandwidth", sources.BANDWIDTH_SIZES, "GB/s"),
        "Put and get, between two processors": one_sided(run),
        "Modules, between two processes of one computer": modules(run),
        "How it is measured": METHOD.format(
            samples=sources.SAMPLES,
            touch=touch_words(facts),
            **noise.limits(),
        ),
    }
    if old:
        for title in ("One way, between two processors", "Streams, between two processors"):
            sections[title] = old.sections.get(title, sections[title]).rstrip()
    for title, body in sections.items():
        parts.append(f"## {title}\n\n{body.strip()}\n")
    path.write_text(markdown.wrapped("\n".join(parts)), encoding="utf-8")
