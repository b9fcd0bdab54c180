# SPDX-License-Identifier: MIT
"""The table of what was measured, and its page among the documents."""

import statistics

from comparing import machine, markdown, noise

METHOD = """\
`scripts/mpi-programs --write-docs` writes this page; none of its figures is typed by hand. `scripts/peers` installs the
peers, `scripts/mpi-programs --fetch` fetches the programs.

- The programs are unmodified, and built by their own makefiles with each library's compilers
  (`tests/system/mpi_programs/programs.py`). Answers must be those of Open MPI and MPICH.
- The libraries take turns, round after round. Each value is the median of the rounds; ratios are formed within each
  round. Peers with more ranks than cores take part in {peer_rounds} rounds. Compare figures of one run only, because
  they drift with the machine.
- A target is met, missed or open as in [performance.md](performance.md), with a confidence of {confidence} % or more.
  Many stay open, because a program that mostly computes is as fast with one library as with another.
- "3 times the best peer" is out of reach where that peer, with many ranks on few cores, loses less than two thirds of
  what the cores can do, as in all of these programs.
- A run in which others used more than {busy_max} % of the machine, or in which a program has fewer than {rounds_min}
  rounds, is not published.
- All cases of a program solve the same problem. "Than fewer ranks" compares APlib with itself on the fewest ranks above
  one.
- `OMP_NUM_THREADS` is 1. AMPI's programs are linked with `-pieglobals`.
- With more ranks than cores, Open MPI runs with `--oversubscribe --mca mpi_yield_when_idle 1`, AMPI with `+p2 +vpN`,
  APlib without further options. MPICH, whose ranks spin, is left out there.
"""


def number(value):
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def ratio(ratios, peer=""):
    """A column of the table: the median."""
    return f"{statistics.median(ratios):.2f}{peer}" if ratios else ""


def verdict(target, ratios):
    """A column of the table: what is asked for, and whether it was met."""
    return f"{noise.judgement(ratios, target, True)} (>= {target:.2g})" if target else ""


def rows(measured, libraries):
    """The cells of each figure of each case."""
    for each in measured:
        base = next((other for other in measured if other.name == each.name and other.case.ranks > 1), each)
        for figure in each.program.figures:
            ups, peer = each.speed_ups(figure) or ([], "")
            scales = each.scales(figure, base) if each.case.ranks > base.case.ranks else []
            yield [
                each.name, str(each.case.ranks), f"{figure.name}, {figure.unit}",
                *(number(each.median(library.name, figure)) for library in libraries),
                ratio(ups, f" ({peer})") or "-", verdict(each.case.peer_target, ups),
                ratio(scales), verdict(each.case.own_target, scales),
            ]  # fmt: skip


def judgements(measured, libraries):
    """All verdicts, as noise.judgement() says them."""
    cells = [cell for row in rows(measured, libraries) for cell in (row[-3], row[-1]) if cell]
    return [cell.rpartition(" (")[0] for cell in cells]


def table(measured, libraries):
    head = ["program", "ranks", "figure", *(library.title for library in libraries),
            "times as fast as the best peer", "met", "than fewer ranks", "met"]
    lines = [head, ["---"] * len(head), *rows(measured, libraries)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text(measured, libraries, facts):
    parts = [
        "<!-- SPDX-License-Identifier: MIT -->\n# Performance of MPI programs\n",
        f"{facts['date']}, {facts['rounds']} rounds: {noise.count(judgements(measured, libraries))}.\n",
        f"Machine: {machine.sentence(facts['machine'])}.\n",
        f"{noise.sentence(facts['noise']).capitalize()}.\n",
        f"## Figures and targets\n\n{table(measured, libraries)}\n",
        "## How it is measured\n\n" + METHOD.format(
            peer_rounds=facts["peer_rounds"], **noise.limits()),
    ]
    return markdown.wrapped("\n".join(parts))
