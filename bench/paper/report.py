# SPDX-License-Identifier: MIT
"""The results beside the paper's own numbers: Markdown, and the panels of the picture."""

import re

from comparing import noise
from comparing.markdown import wrapped

from . import plots
from .scg import median

PAPER = "Kobayashi, Hayashi, Horie: APlib, an AP1000-compatible communication library (IPSJ, 52nd convention, 1996)"
PAPER_ALONE = {"ss-lx": 2.44, "ss10": 4.30}
PAPER_SHARES = {"one-each": 4.52 / 6.74, "paper": 5.78 / 6.74}
WAY_NAMES = {
    "one-each": "one cell each",
    "paper": "1 and 2 cells",
    "by-hand": "4 and 7 cells, by hand",
    "auto": 'cells = "auto"',
}
TARGET = 0.97
TARGET_MPI = 0.95

INTRODUCTION = """<!-- SPDX-License-Identifier: MIT -->
# The paper's experiments

`scripts/paper` runs what the paper on APlib measured ({paper}), on this computer, and writes this page. Its hosts are
network namespaces. Each has a link of a given rate and a core or a share of one, and behaves like a computer of its
own.

The paper took the middle of 3 runs. The program is [scg](scg.md).
"""

MEASURED = """{date}. Machine: {machine}. Medians of {rounds} runs. {noise}.

"""

ONE_HOST = """\
The paper used an 8-processor SPARCserver 1000 for 90,000 unknowns (300 x 300). The speed grew faster than linear,
because a smaller share fits a processor's cache. Here there are {cores} cores. More cells than that share them, and
only show what cells cost.

{table}
"""

EQUAL = """\
The paper used 8 SPARCstation 20 on 10 Mb/s Ethernet, with the same program file. Speed grew with the number of hosts
but fell behind linear, because messages by TCP take long. Here each host has {share:.0%} of a core, so that there are
enough cores for {most} of them. The table shows the speed over that of one host:

{table}

Today's core computes an iteration of the paper's 90,000 unknowns in some 30 us, a thousand times faster than a
SPARCstation did. An Ethernet of 10 Mb/s still needs 2 ms to send one side of a cell. So the paper's matrix on the
paper's network only shows how long a message takes. The larger matrix shows what 1 Gb/s is good for.
"""

UNEQUAL = """\
The paper used a SPARCstation LX (2.44 MFlops alone) and a SPARCstation 10 (4.30 MFlops) for 2^16 unknowns (256 x
256) on 10 Mb/s Ethernet. With one cell each they reached 4.52 MFlops, about twice the speed of the slower one. With two
virtual nodes on the faster one they reached 5.78, 85 % of the sum. Here both hosts have a core each, and are slow by
work: after each pass over its unknowns a host goes over as many again, whole and in part, until it is as slow as the
paper's. The slower host does 1.76 times as many passes as the faster one. Matrix, speeds and link are the paper's, or
all times are shorter by the same factor. So computation and messages stand to each other as in the paper.

{table}

The speeds are as 2.44 to 4.30, so one and two cells cannot use more than 96 % of the sum. 4 and 7 cells come closest
among small numbers. `cells = "auto"` measures both hosts and shares out the cells. The target is at least {target:.2f}
of the sum for the last two. {verdict}

- Every ratio is formed with the runs right before and right behind within one round, and the table shows the median
  of the rounds. "Alone" is one cell with the whole matrix on that host. Both hosts do that at the same time, because
  they share one computer's memory and caches, which the paper's hosts did not. Each round begins by measuring how
  often the hosts must do their passes.
- The program is scg with other loops (`bench/paper/slower.cpp`). The additional passes use vectors of their own that
  fit a core's cache, because the two cores share the memory, which the paper's hosts did not. They change no result.
  What a host does for messages is not slowed down.
- Each link lets one packet through at once and then keeps to its rate, in both directions at the same time. The paper's
  Ethernet had one direction at a time.
- `cells = "auto"` measures this program on each host: `speed-command` runs it for some iterations. The default
  (`speed = "memory"`) would measure the cores, which are equal.
- Cells are strips, one above the other, so that the hosts exchange one side each way; `"auto"` chooses its own grid.
"""

QUOTAS = """
### The same by CPU quotas

The two hosts have 24.4 % and 43 % of a core, by CPU quotas of that ratio, and compute at today's speed.

{table}

- Both hosts use the same core, which has time for both. On two cores they would compute at the same time and share
  the memory, which the paper's hosts did not. A program of the lowest priority uses the rest of the core, so that the
  processor never sleeps.
- A host computes at full speed until it has used up its quota for the period, then stands still until the next
  period. Periods are {period} ms, not the system's 100 ms, so that a pause is short compared with a run and, for
  larger matrices, with an iteration.
- Cells wait for each other at every global sum. A host that sleeps while it waits uses nothing of its quota, and a
  host that polls does, so hosts with a share of a core sleep at once (`poll-time = 0` in the cluster files).
- A profile at 2048 x 2048 shows what is missing from the sum. 8 to 10 % of each host's share goes into the system's
  work for messages and for sleeping and waking; this part shrinks as the matrix grows. 2 to 5 % of the shares is not
  used, because the cells cannot be shared out to the last per cent and quotas come in ticks of milliseconds.
- The paper's matrix takes some 20 us per iteration on today's core, less than a message by tcp takes. So it shows the
  messages. Larger matrices take long enough to compute that messages hardly count. Where a cell's part fits a cache
  that the whole does not fit, the speed can exceed the sum, as on the paper's SMP.
"""


UNEQUAL_MPI = """\
The same two hosts, slow by work, with a program that knows only MPI and is the same with any MPI library: conjugate
gradients as a textbook writes them, with equal numbers of rows on all ranks (`bench/paper/cg.c`). Nothing in it shares
out work. The faster host is given more ranks.

{table}

The target of `cells = "auto"` is at least {target:.2f} of the sum. {verdict}
"""


def table(header, lines):
    out = ["| " + " | ".join(header) + " |", "|" + " ---: |" * len(header)]
    return "\n".join(out + ["| " + " | ".join(line) + " |" for line in lines])


def one_host_table(values, plan):
    header = ["cells"] + [f"{size.title}: MFlops | over one cell" for size in plan.smp_sizes]
    header = [part for text in header for part in text.split(" | ")]
    lines = []
    for cells in plan.counts:
        line = [str(cells)]
        for size in plan.smp_sizes:
            value = values[(size.side, cells)]
            line += [f"{value:,.0f}", f"{value / values[(size.side, plan.counts[0])]:.2f}"]
        lines.append(line)
    return table(header, lines)


def equal_table(values, plan):
    columns = [(rate, size) for size in plan.cluster_sizes for rate in plan.rates]
    lines = []
    for count in plan.counts:
        line = [str(count)]
        for rate, size in columns:
            value, alone = values[(rate, size.side, count)], values[(rate, size.side, plan.counts[0])]
            line.append(f"{value:,.0f} MFlops" if count == plan.counts[0] else f"{value / alone:.2f}")
        lines.append(line)
    return table(["hosts"] + [f"{size.title}, {rate_text(rate)}" for rate, size in columns], lines)


def rate_text(rate):
    return rate.replace("mbit", " Mb/s").replace("gbit", " Gb/s")


def mflops(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def unequal_table(outcome):
    ways = list(outcome[0].together)
    names = [WAY_NAMES[way] for way in ways]
    header = ["matrix", "SS/LX alone", "SS10 alone", *names, "auto's shares", "us an iteration"]
    paper = {"one-each": 4.52, "paper": 5.78}
    shares = [f"{paper[way]:.2f} = {PAPER_SHARES[way]:.0%}" if way in paper else "-" for way in ways]
    lines = [["the paper, 256 x 256", "2.44", "4.30", *shares, "-", "-"]]
    for one in outcome:
        shares = [f"{mflops(one.together[way])} = **{median(one.ratios[way]):.1%}**" for way in ways]
        alone = [mflops(one.alone[name]) for name in PAPER_ALONE]
        lines.append([one.size.title, *alone, *shares, one.shares, f"{one.iteration_us:,.0f}"])
    return table(header, lines)


def verdict(outcome, target):
    """Whether the target is met by each way that shares out by speed."""
    told = {"yes": "met", "NO": "MISSED"}

    def words(one):
        ways = [way for way in ("by-hand", "auto") if way in one.ratios]
        judged = {way: noise.judgement(one.ratios[way], target, True) for way in ways}
        return [
            f"{WAY_NAMES[way]}: {median(one.ratios[way]):.3f}, {told.get(word, word)}" for way, word in judged.items()
        ]

    return ". ".join(f"{one.size.title}: " + "; ".join(words(one)) for one in outcome) + "."


SECTIONS = {
    "one-host": "One host, several processors",
    "equal": "Equal hosts",
    "unequal": "Unequal hosts",
    "unequal-mpi": "Unequal hosts, an MPI program",
}


def sections(plan, facts, pictures, one_host, equal, unequal, quotas, mpi):
    """The sections that were measured, by name. `pictures`: those that have one."""
    found = {}
    if one_host is not None:
        found["one-host"] = ONE_HOST.format(cores=facts["cores"], table=one_host_table(one_host, plan))
    if equal is not None:
        found["equal"] = EQUAL.format(share=facts["share"], most=max(plan.counts), table=equal_table(equal, plan))
    if unequal is not None:
        found["unequal"] = UNEQUAL.format(table=unequal_table(unequal), target=TARGET,
                                         verdict=verdict(unequal, TARGET))
    if quotas is not None:
        text = QUOTAS.format(table=unequal_table(quotas), period=facts["period_ms"])
        found["unequal"] = found.get("unequal", "") + text
    if mpi is not None:
        found["unequal-mpi"] = UNEQUAL_MPI.format(table=unequal_table(mpi), target=TARGET_MPI,
                                                  verdict=verdict(mpi, TARGET_MPI))
    for name, text in found.items():
        picture = f"![{SECTIONS[name]}: speeds](paper-{name}.png)\n\n" if name in pictures else ""
        found[name] = wrapped(f"## {SECTIONS[name]}\n\n" + MEASURED.format(**facts) + picture + text)
    return found


def page(measured, old=""):
    """The page with these sections. Those that are missing are kept from `old`."""
    kept = {part.split("\n", 1)[0]: part for part in re.split(r"^(?=## )", old, flags=re.MULTILINE)[1:]}
    parts = [measured.get(name) or kept.get(f"## {title}", "") for name, title in SECTIONS.items()]
    return "\n".join(part.rstrip() + "\n" for part in [wrapped(INTRODUCTION.format(paper=PAPER)), *parts] if part)


def panels(plan, one_host, equal, unequal, quotas, mpi):
    """The panels of each section's picture, by its name."""
    found = {}
    if one_host is not None:
        series = [
            (size.title, [(n, one_host[(size.side, n)] / one_host[(size.side, plan.counts[0])]) for n in plan.counts])
            for size in plan.smp_sizes
        ]
        found["one-host"] = [
            plots.series_panel(
                "One host", "cells", "speed over one cell", series, ["x dt 2 lc rgb 'black' title 'linear'"]
            )
        ]
    if equal is not None:
        series = [
            (
                f"{size.title}, {rate_text(rate)}",
                [(n, equal[(rate, size.side, n)] / equal[(rate, size.side, plan.counts[0])]) for n in plan.counts],
            )
            for size in plan.cluster_sizes
            for rate in plan.rates
        ]
        found["equal"] = [
            plots.series_panel(
                "Equal hosts", "hosts", "speed over one host", series, ["x dt 2 lc rgb 'black' title 'linear'"]
            )
        ]
    for name, title, outcome in (
        ("unequal", "Unequal hosts, 2.44 : 4.30", unequal),
        ("unequal", "The same by CPU quotas", quotas),
        ("unequal-mpi", "Unequal hosts, 2.44 : 4.30, an MPI program", mpi),
    ):
        if outcome is None:
            continue
        ways = list(outcome[0].ratios)
        groups = [("the paper", [PAPER_SHARES.get(way) for way in ways])]
        groups += [(one.size.title, [median(one.ratios[way]) for way in ways]) for one in outcome]
        found.setdefault(name, []).append(plots.bar_panel(title, groups, [WAY_NAMES[way] for way in ways]))
    return found
