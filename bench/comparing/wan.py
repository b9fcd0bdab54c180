# SPDX-License-Identifier: MIT
"""Long ways: who takes part in a run with --wan, its figures, and the page that it writes."""

import dataclasses
import functools
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

from . import figures, globus, internet, markdown, noise, page, sources
from .figures import MIB, Figure, Goal, pick

MB = 1_000_000
WAYS = ("put", "get")
LINE_RATE_MBIT = 1000
MESSAGES = 500  # of 1 MiB
MESSAGE_DELAYS = (0.1, 100)
IPERF3_CONNECTIONS = 8
HOPELESS = 2  # times as long as another peer
HELLO_TRIPS = 4
HELLO_RUNS = 9
LOGINS = 3
GRID_RUNS = 3  # the first starts job managers
FILES, FILE_BYTES, FILES_DELAY = 2000, 20_000, 100
VERSION_OPTIONS = {"ssh": "-V", "scp": "-V", "socat": "-V", "globusrun": "-version", "globus-url-copy": "-version"}
PROGRAMS = ["apbench", "apcc", "aprun", "apctl", "apkeeper", "aprelay", "bench-relay", "comm_tcp_wan_peer", "wan"]

METHOD = """\
`bench/compare --wan --write-docs` writes this page; none of its figures is typed by hand. `scripts/peers` installs the
peers. It needs root.

- The hosts are network namespaces of one computer, and the program `wan` of the tests is the internet between them: it
  holds each packet for half a round trip. Every path has 1 Gb/s. The connections are the system's own, with {congestion}
  as their congestion control. Programs, encryption and the internet share the computer's processors, so figures near
  1 Gb/s are bounded by these; compare figures of one run only.
- All take turns: in each round directly after each other for each kind of figures, in an order that changes by round.
  Each value is the median of the rounds; ratios are formed within each round.
- A target is met or missed if the run says so with a confidence of {confidence} % or more (sign test over the rounds).
  Otherwise it is open, and the table says between which values the median lies. A run that leaves more than
  {open_max} % of its targets open, in which others used more than {busy_max} % of the machine, or of fewer than
  {rounds_min} rounds, is not published.
- Files go between a desk and a host, in memory: by `apctl put` and `get` in a pool that stands, idle, with the further
  ways of ssh that its first large transfers open, and by `scp`, `rsync` and `tar`, each of which logs in by ssh first.
  MB are 1,000,000 bytes, which nothing compresses. A time is that of the command.
- A peer that takes more than {hopeless} times as long as another one for a file takes no further part in that field:
  some would need a minute each time.
- `globus-url-copy` copies from and to a GridFTP server that stands, with that `-p` of {parallel} which is the fastest
  when a field is first tried. It proves who is there, and does not encrypt files.
- Messages go from process to process by APlib's module tcp, with proof of the key and without encryption, until the
  last one is acknowledged; iperf3 sends as many bytes by {connections} connections.
- "Hello" is `aprun --in` of a program that prints a line on each of two hosts of the pool, the median of {runs} runs.
  ssh beside it is `ssh host true`, which logs in. `globusrun -o` beside it is one job on each host, both at the same
  time, by fork job managers that stand.
- Relays join two processes of one host, without delay (`bench/relay/compare`).
"""


@dataclasses.dataclass(frozen=True)
class Fields:
    """What a run measures. Round trips in ms."""

    sizes: tuple
    delays: tuple
    message_delays: tuple
    hello_delays: tuple


FULL = Fields((1, 10, 100, 500), (0.2, 10, 50, 100, 200), MESSAGE_DELAYS, (0, 50, 100))
QUICK = Fields((1, 100), (0.2, 100), (100,), (0, 100))


def case(delay):
    return f"{delay:g} ms"


class Far(sources.Source):
    """Base of all who take part. `tools` has programs and their packages."""

    parts = {"wan"}
    tools = {}
    remedy = "run scripts/peers, or apt-get install"

    def __init__(self, net, fields):
        super().__init__()
        self.net, self.fields = net, fields
        self.fault = internet.hindrance() or ""
        missing = [tool for tool in self.tools if shutil.which(tool) is None]
        if missing and not self.fault:
            verb, packages = "is" if len(missing) == 1 else "are", [self.tools[tool] for tool in missing]
            self.fault = f"{', '.join(missing)} {verb} not installed; {self.remedy} {' '.join(packages)}"

    def turn(self, kind, bench, delay, size, unit, measure):
        """`measure` returns the value."""

        def lines():
            self.net.at(delay)
            return [{"bench": bench, "case": case(delay), "bytes": size, "value": measure(), "unit": unit}]

        return f"{kind} at {case(delay)}", lines

    def files(self, by):
        for delay in self.fields.delays:
            for size in self.fields.sizes:
                for way in WAYS:
                    yield self.file(way, delay, size * MB, by)

    def file(self, way, delay, size, by):
        taken = self.net.taken.setdefault((way, delay, size), {})  # seconds, by peer

        def measure():
            seconds = self.net.transfer(way, size, by)
            if self.name in PEERS:
                taken[self.name] = seconds
            return seconds

        kind, lines = self.turn(f"{way} of {size // MB} MB", way, delay, size, "s", measure)
        return kind, lambda: lines() if taken.get(self.name, 0) <= HOPELESS * min(taken.values(), default=0) else []

    def many_files(self, carry):
        def measure():
            return self.net.carried(self.net.files(FILES, FILE_BYTES), carry)

        yield self.turn("small files", "files", FILES_DELAY, FILES * FILE_BYTES, "s", measure)

    def messages(self, send, connections, bench="messages"):
        for delay in self.fields.message_delays:
            measure = functools.partial(send, MESSAGES, MIB, connections)
            yield self.turn("messages", bench, delay, MIB, "Mb/s", measure)

    def hellos(self, run, runs):
        for delay in self.fields.hello_delays:
            yield self.turn("hello", "hello", delay, 0, "s", lambda: statistics.median(run() for _ in range(runs)))

    def relay(self, program):
        script = internet.ROOT / "bench" / "relay" / "compare"
        yield sources.turn("relays", [sys.executable, "-B", str(script), str(self.net.programs), "--json", program])

    def version(self):
        tool = next(iter(self.tools))
        command = [tool.replace("scp", "ssh"), VERSION_OPTIONS.get(tool, "--version")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d[\w.]*", done.stdout + done.stderr)
        return found.group() if found else "unknown"


class AplibFar(Far):
    name = "aplib"
    title = "APlib"

    def __init__(self, net, fields):
        super().__init__(net, fields)
        for name in PROGRAMS:
            if not self.fault and not (net.programs / name).exists():
                self.fault = f"there is no {net.programs / name}"

    def turns(self, round_number):
        yield from self.files(self.net.by_apctl)
        yield from self.many_files(functools.partial(self.net.by_apctl, "put"))
        yield from self.messages(self.net.messages, 0)
        yield from self.hellos(self.net.hello, HELLO_RUNS)
        yield from self.relay("aprelay")


class OneConnection(Far):
    """The floor of messages on a short way."""

    name = "one"
    title = "APlib over one connection"

    def turns(self, round_number):
        yield from self.messages(self.net.messages, 1)


class Scp(Far):
    name = "scp"
    title = "scp"
    tools = {"scp": "openssh-client"}

    def turns(self, round_number):
        yield from self.files(self.net.by_scp)


class Rsync(Far):
    name = "rsync"
    title = "rsync"
    tools = {"rsync": "rsync"}

    def turns(self, round_number):
        yield from self.files(self.net.by_rsync)
        yield from self.many_files(functools.partial(self.net.by_rsync, "put"))


class Tar(Far):
    name = "tar"
    title = "tar through ssh"
    tools = {"tar": "tar", "bash": "bash"}

    def turns(self, round_number):
        yield from self.many_files(functools.partial(self.net.by_tar, "put"))


class Iperf3(Far):
    name = "iperf3"
    title = f"iperf3 -P {IPERF3_CONNECTIONS}"
    tools = {"iperf3": "iperf3"}

    def turns(self, round_number):
        yield from self.messages(self.net.iperf3, IPERF3_CONNECTIONS)


class Ssh(Far):
    name = "ssh"
    title = "ssh"
    tools = {"ssh": "openssh-client"}

    def turns(self, round_number):
        yield from self.hellos(self.net.login, LOGINS)
        yield from self.relay("ssh -L")


class Socat(Far):
    name = "socat"
    title = "socat"
    tools = {"socat": "socat"}

    def turns(self, round_number):
        yield from self.relay("socat")


class UrlCopy(Far):
    name = "gridftp"
    title = "globus-url-copy"
    tools = globus.FILE_TOOLS
    remedy = "apt-get install --no-install-recommends"  # scripts/peers leaves the servers of grids alone

    def turns(self, round_number):
        yield from self.files(self.net.grid.by_url_copy)


class Globusrun(Far):
    name = "globusrun"
    title = "globusrun"
    tools = globus.JOB_TOOLS
    remedy = UrlCopy.remedy

    def turns(self, round_number):
        yield from self.hellos(self.net.grid.hello, GRID_RUNS)


PEERS = {peer.name: peer for peer in (Scp, Rsync, Tar, UrlCopy, Iperf3, Ssh, Globusrun, Socat)}


def figure(name, unit, bench, delay, size=0, goals=(), higher_is_better=False):
    return Figure(
        name,
        unit,
        pick("aplib", bench, case(delay), size),
        lambda peer: pick(peer, bench, case(delay), size),
        goals=goals,
        higher_is_better=higher_is_better,
    )


# Seconds of some fields, by MB and ms: 500 MB take 5 s at 0.8 of the line's rate.
LIMITS = {(1, 100): 0.5, (100, 100): 2, (500, 100): 500 * 8 / (0.8 * LINE_RATE_MBIT)}


def files(fields):
    for size in fields.sizes:
        for delay in fields.delays:
            for way in WAYS:
                goals = [Goal(1, "best peer")]
                if (size, delay) in LIMITS:
                    goals.append(Goal(LIMITS[size, delay]))
                yield figure(f"{way} of {size} MB at {case(delay)}", "s", way, delay, size * MB, goals)
    yield figure(f"{FILES:,} files of {FILE_BYTES // 1000} kB at {case(FILES_DELAY)}", "s", "files", FILES_DELAY,
                 FILES * FILE_BYTES, [Goal(0.5, "tar"), Goal(0.15, "rsync")])  # fmt: skip


def messages(fields):
    for delay in fields.message_delays:
        row = figure(f"{MESSAGES} messages of 1 MiB at {case(delay)}", "Mb/s", "messages", delay, MIB,
                     [Goal(0.95, "iperf3")], True)  # fmt: skip
        row.floor = pick("one", "messages", case(delay), MIB)
        row.floor_name = "one connection"
        if delay < 1:
            row.goals = [*row.goals, Goal(1, "floor")]
        yield row


def beyond_round_trips(delay):
    """What a hello takes beyond its round trips. Milliseconds."""

    def picked(values):
        seconds = pick("aplib", "hello", case(delay))(values)
        return None if seconds is None else 1000 * seconds - HELLO_TRIPS * delay

    return picked


def a_second(source):
    def picked(values):
        seconds = pick(source, "hello", case(0))(values)
        return 1 / seconds if seconds else None

    return picked


def hellos(fields):
    for delay in fields.hello_delays:
        if delay == 0:
            yield Figure("hellos on two hosts a second, without delay", "/s", a_second("aplib"), a_second,
                         goals=[Goal(30), Goal(10, "globusrun")], higher_is_better=True)  # fmt: skip
        else:
            goals = [Goal(0.1, "globusrun")]
            yield figure(f"hello on two hosts at {case(delay)}", "s", "hello", delay, goals=goals)
            yield Figure(f"hello at {case(delay)}, beyond {HELLO_TRIPS} round trips", "ms", beyond_round_trips(delay),
                         goals=[Goal(30)])  # fmt: skip


def relays():
    def relay(name, unit, bench, size, goals, higher_is_better):
        own, by_peer = pick("aplib", "relay", bench, size), lambda peer: pick(peer, "relay", bench, size)
        return Figure(name, unit, own, by_peer, goals=goals, higher_is_better=higher_is_better)

    yield relay("8 B there and back through a relay", "ns", "round-trip", 8, [Goal(0.9, "socat"), Goal(0.45, "ssh")],
                False)  # fmt: skip
    yield relay("stream through a relay", "MB/s", "stream", 0, [Goal(0.9, "socat"), Goal(3, "ssh")], True)


def all_figures(fields):
    return [*files(fields), *messages(fields), *hellos(fields), *relays()]


def make_sources(net, fields, names):
    """APlib's, and those of the peers."""
    return [AplibFar(net, fields), OneConnection(net, fields)], [PEERS[name](net, fields) for name in names]


def ranges(run, rows):
    """A table of what was measured beside the medians: from the least to the most of all rounds."""
    names = ["aplib", *run.peers]
    titles = ["APlib", *[figures.PEER_TITLES[name] for name in names[1:]]]
    lines = ["| figure | " + " | ".join(titles) + " |", "| --- |" + " ---: |" * len(titles)]
    for row in rows:
        picks = [row.figure.own, *[row.figure.peer(name) if row.figure.peer else None for name in names[1:]]]
        values = [run.values(one) if one else [] for one in picks]
        if not any(values):
            continue
        cells = [between(of_one, row.figure.unit) for of_one in values]
        lines.append(f"| {row.figure.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def between(values, unit):
    if not values:
        return "-"
    low, high = (figures.quantity(value, unit) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def write(folder, rows, run, facts):
    lines = page.markdown_lines(rows)
    method = METHOD.format(congestion=facts["congestion_control"], connections=IPERF3_CONNECTIONS, runs=HELLO_RUNS,
                           hopeless=HOPELESS, parallel=", ".join(map(str, globus.PARALLEL)),
                           **noise.limits())  # fmt: skip
    parts = [
        "<!-- SPDX-License-Identifier: MIT -->\n# Performance over long ways\n",
        f"{facts['date']}, {facts['rounds']} rounds: {page.count(lines)}.\n",
        *page.opening(facts, None),
        f"## Figures and targets\n\n{page.markdown_table(lines)}\n",
        f"## From the least to the most\n\n{ranges(run, rows)}\n",
        f"## How it is measured\n\n{method}",
    ]
    (pathlib.Path(folder) / "wan-performance.md").write_text(markdown.wrapped("\n".join(parts)), encoding="utf-8")
