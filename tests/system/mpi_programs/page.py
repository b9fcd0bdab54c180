# SPDX-License-Identifier: MIT
"""The table of what was measured, and its page among the documents."""

from comparing import machine, markdown, noise

METHOD = """\
`scripts/mpi-programs --write-docs` writes this page; none of its figures is typed by hand. `scripts/peers` installs the
peers, `scripts/mpi-programs --fetch` fetches the programs.

- The programs are unmodified, and built by their own makefiles with each library's compilers
  (`tests/system/mpi_programs/programs.py`). Answers must be those of Open MPI and MPICH.
- The libraries take turns, round after round. Each value is the median of the rounds; ratios are formed within each
  round. Peers with more ranks than cores take part in {peer_rounds} rounds. Compare figures of one run only, because
  they drift with the machine.
- Noise is measured before each case, as for [performance.md](performance.md). A program's disturbed rounds are measured
  again while there is time. A run with more than {busy_max} % used by others, or with more than {spread_max} % of
  spread, or in which a program has fewer than {rounds_min} rounds, is not published.
- All cases of a program solve the same problem. "Than fewer ranks" compares APlib with itself on the fewest ranks above
  one.
- `OMP_NUM_THREADS` is 1. AMPI's programs are linked with `-pieglobals`.
- With more ranks than cores, Open MPI runs with `--oversubscribe --mca mpi_yield_when_idle 1`, AMPI with `+p2 +vpN`,
  APlib without further options. MPICH, whose ranks spin, is left out there.
"""


def number(value):
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def verdict(target, ratio):
    """A column of the table: what is asked for, and whether it was met."""
    if not target:
        return ""
    return f"{'yes' if ratio >= target else 'NO'} (>= {target:.2g})" if ratio is not None else "-"


def rows(measured, libraries):
    """The cells of each figure of each case."""
    for each in measured:
        base = next((other for other in measured if other.program is each.program and other.case.ranks > 1), each)
        for figure in each.program.figures:
            best = each.speed_up(figure)
            scale = each.scale(figure, base) if each.case.ranks > base.case.ranks else None
            yield [
                each.program.name, str(each.case.ranks), f"{figure.name}, {figure.unit}",
                *(number(each.median(library.name, figure)) for library in libraries),
                f"{best[0]:.2f} ({best[1]})" if best else "-", verdict(each.case.peer_target, best and best[0]),
                "" if scale is None else f"{scale:.2f}", verdict(each.case.own_target, scale),
            ]  # fmt: skip


def table(measured, libraries):
    head = ["program", "ranks", "figure", *(library.title for library in libraries),
            "times as fast as the best peer", "met", "than fewer ranks", "met"]
    lines = [head, ["---"] * len(head), *rows(measured, libraries)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text(measured, libraries, facts):
    lines = table(measured, libraries)
    met, missed = lines.count(" yes ("), lines.count(" NO (")
    parts = [
        "<!-- SPDX-License-Identifier: MIT -->\n# Performance of MPI programs\n",
        f"{facts['date']}, {facts['rounds']} rounds: {met} of {met + missed} targets met.\n",
        f"Machine: {machine.sentence(facts['machine'])}.\n",
        f"{noise.sentence(facts['noise']).capitalize()}.\n",
        f"## Figures and targets\n\n{lines}\n",
        "## How it is measured\n\n" + METHOD.format(
            peer_rounds=facts["peer_rounds"], busy_max=noise.BUSY_PERCENT_MAX, spread_max=noise.SPREAD_PERCENT_MAX,
            rounds_min=noise.ROUNDS_MIN),
    ]
    return markdown.wrapped("\n".join(parts))
