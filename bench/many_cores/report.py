# SPDX-License-Identifier: MIT
"""The page of a run elsewhere: curves of speeds by cores, times of collectives by ranks, waits, tests."""

import json
import pathlib
import statistics

from comparing import crowd, figures, machine, markdown
from paper import plots

NAME = "many-cores"
TITLES = {"aplib": "APlib", "cells": "APlib", "processes": "APlib, processes", "openmpi": "Open MPI", "mpich": "MPICH"}
PROGRAMS = {"lulesh2.0": "LULESH", "xhpcg": "HPCG", "graph500_reference_bfs": "graph500"}
COLLECTIVES = {"barrier 0": "barrier", "reduce 8": "allreduce of 8 B", "allreduce 1024": "allreduce of 1 KiB",
               "allreduce 65536": "allreduce of 64 KiB", "bcast 1024": "bcast of 1 KiB", "bcast 65536":
               "bcast of 64 KiB", "allgather 1024": "allgather of 1 KiB", "allgather 65536": "allgather of 64 KiB",
               "alltoall 1024": "alltoall of 1 KiB", "alltoall 65536": "alltoall of 64 KiB"}  # fmt: skip
PICTURED = ("barrier 0", "reduce 8", "allreduce 65536", "alltoall 1024")

METHOD = """\
`scripts/many-cores pack FILE` has packed a build, its benchmarks, the peers and their programs into one file, which ran
on this computer; `scripts/many-cores --write-docs RESULTS.json` has written this page. None of its figures is typed by
hand.

- The time was limited: each part takes a share of it, and one whose time is over ends with what it has.
- [scg](scg.md) has a thread for each cell. Values are medians of the rounds.
- While there are cores for all ranks, Open MPI runs with `--use-hwthread-cpus --bind-to hwthread` and MPICH with
  `-bind-to hwthread`. Beyond, Open MPI runs with `--oversubscribe --bind-to none --mca mpi_yield_when_idle 1`, and
  MPICH, whose ranks spin, is left out but for waits.
- Collectives are those of `bench/peers`, as in [mpi-performance.md](mpi-performance.md). Their bytes are those that a
  rank sends to another.
- LULESH has 216,000 elements in all, so its speed would at best grow with the cores; HPCG 32 x 32 x 32 rows on each
  rank; graph500 scale 15.
- A program that takes too long is ended, and not tried with more ranks.
"""


class Values:
    """What was measured: medians."""

    def __init__(self, results):
        self.values = {}
        for each in results["values"]:
            key = each["part"], each["case"], each["library"]
            self.values.setdefault(key, {}).setdefault(each["ranks"], []).append(each["value"])
        self.units = {(each["part"], each["case"]): each["unit"] for each in results["values"]}

    def curve(self, part, case, library):
        """[(ranks, value)]"""
        return [(ranks, statistics.median(values)) for ranks, values in
                sorted(self.values.get((part, case, library), {}).items())]

    def cases(self, part):
        return list(dict.fromkeys(case for each, case, _ in self.values if each == part))

    def libraries(self, part, case):
        return [name for name in TITLES if (part, case, name) in self.values]

    def curves(self, part, case):
        return [(TITLES[name], self.curve(part, case, name)) for name in self.libraries(part, case)]


def panel(title, xlabel, ylabel, series, is_time=False):
    lines = plots.series_panel(title, xlabel, ylabel, series)
    axes = ["set logscale x 2", "set xtics auto", "set format x '%g'"]
    axes += ["set logscale y 10", "set yrange [*:*]"] if is_time else ["unset logscale y"]
    return [*lines[:-1], *axes, lines[-1]]


def panels(values):
    """{name of the picture: panels}"""
    pictures = {
        "scg": [panel(f"scg, {case} x {case} unknowns", "cells, a core each", values.units["scg", case],
                      values.curves("scg", case)) for case in values.cases("scg")],
        "programs": [panel(PROGRAMS[case], "ranks", values.units["programs", case], values.curves("programs", case))
                     for case in values.cases("programs")],
        "collectives": [panel(COLLECTIVES[case], "ranks", "microseconds", values.curves("collectives", case), True)
                        for case in PICTURED if case in values.cases("collectives")],
    }  # fmt: skip
    return {name: each for name, each in pictures.items() if each}


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def table(values, part, titles, first):
    """A row for each case and library, a column for each number of ranks."""
    cases = [case for case in titles if case in values.cases(part)]
    columns = sorted({ranks for case in cases for name in values.libraries(part, case)
                      for ranks, _ in values.curve(part, case, name)})
    lines = [[first, "", *map(str, columns)], ["---", "---", *["---:"] * len(columns)]]
    for case in cases:
        for name in values.libraries(part, case):
            known = dict(values.curve(part, case, name))
            lines.append([f"{titles[case]}, {values.units[part, case]}", TITLES[name],
                          *(number(known[ranks]) if ranks in known else "-" for ranks in columns)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def behind(values):
    """Sentences about where APlib is slower than the best peer."""
    late = []
    for part, titles, is_time in (("collectives", COLLECTIVES, True), ("programs", PROGRAMS, False)):
        for case in titles:
            own = dict(values.curve(part, case, "aplib"))
            for ranks, value in own.items():
                known = [dict(values.curve(part, case, peer)).get(ranks) for peer in figures.PEER_TITLES]
                known = [each for each in known if each is not None]
                best = (min if is_time else max)(known, default=None)
                if best and (value > best if is_time else value < best):
                    share = value / best if is_time else best / value
                    late.append(f"{titles[case]} on {ranks} ranks ({share:.2f})")
    return f"APlib is slower than the best peer in: {', '.join(late)}.\n" if late else ""


def waits(results):
    if not results["crowd"]:
        return []
    rows = [crowd.Row.of_record(each) for each in results["crowd"]["rows"]]
    words = "Microseconds, by `bench/crowd`: medians, and the longest in brackets."
    return [f"## Waits\n\n{words}\n\n{crowd.table(rows)}\n"]


def tests(results):
    runs = [each for each in results["values"] if each["part"] == "tests"]
    bad = [each for each in results["failures"] if each["part"] == "tests"]
    words = ", ".join(f"{each['case']} ({each['words']})" for each in bad)
    return [f"## Tests\n\n{len(runs)} runs of test programs, {len(bad)} failed" + (f": {words}.\n" if bad else ".\n")
            ] if runs else []


def text(results, pictures):
    values, facts = Values(results), results["machine"]
    others = [each for each in results["failures"] if each["part"] != "tests"]
    failed = [f"{TITLES[each['library']]}: {each['case']} on {each['ranks']}" for each in others]

    def picture(name, words):
        return [f"![{words}](many-cores-{name}.png)\n"] if name in pictures else []

    sides = {case: f"{case} x {case}" for case in values.cases("scg")}
    parts = [
        "<!-- SPDX-License-Identifier: MIT -->\n# Many cores\n",
        f"{results['date']}. Machine: {machine.sentence(facts)}.\n",
        behind(values),
        f"Did not end in time, or failed: {'; '.join(failed)}.\n" if failed else "",
        f"Parts whose time was over: {', '.join(results['cut'])}.\n" if results["cut"] else "",
        "## The paper's solver by cells\n", *picture("scg", "Speed of scg by cells"),
        f"{table(values, 'scg', sides, 'unknowns')}\n",
        "## Programs by ranks\n", *picture("programs", "Speed of MPI programs by ranks"),
        f"{table(values, 'programs', PROGRAMS, 'program')}\n",
        "## Collectives by ranks\n", *picture("collectives", "Times of collectives by ranks"),
        f"{table(values, 'collectives', COLLECTIVES, 'collective')}\n",
        *waits(results), *tests(results),
        f"## How it is measured\n\n{METHOD}",
    ]  # fmt: skip
    return markdown.wrapped("\n".join(part for part in parts if part))


def write(path, folder):
    """Writes the page into the folder. Returns why its pictures are missing, or an empty text."""
    results, folder = json.loads(pathlib.Path(path).read_text(encoding="utf-8")), pathlib.Path(folder)
    drawn, fault = [], ""
    for name, each in panels(Values(results)).items():
        fault = plots.draw(folder / f"{NAME}-{name}.png", each) or fault
        if not fault:
            drawn.append(name)
    (folder / f"{NAME}.md").write_text(text(results, drawn), encoding="utf-8")
    return fault
