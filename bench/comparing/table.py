# SPDX-License-Identifier: MIT
"""The results as a table on the terminal and as JSON."""

import json
import statistics

from . import figures, machine, noise

HEADER = ["figure", "APlib", "best peer", "APlib/peer", "floor", "APlib/floor", "target", "met"]


def ratio(value):
    return "-" if value is None else f"{value:.3g} x" if value < 1000 else f"{value:.0f} x"


def cells(row):
    """The row's lines, one per target; only the first has the figure itself."""
    unit = row.figure.unit
    peer = f"{figures.quantity(row.peer_value, unit)} {figures.PEER_TITLES[row.best_peer]}" if row.best_peer else "-"
    floor = f"{figures.quantity(row.floor_value, unit)} {row.figure.floor_name}" if row.floor_value is not None else "-"
    first = [
        row.figure.name,
        figures.quantity(row.value, unit),
        peer,
        ratio(row.peer_ratio),
        floor,
        ratio(row.floor_ratio),
    ]
    verdicts = [[v.text, v.judgement] for v in row.verdicts] or [["", ""]]
    return [first + verdicts[0]] + [[""] * len(first) + verdict for verdict in verdicts[1:]]


def all_lines(rows):
    return [line for row in rows for line in cells(row)]


def judgements(rows):
    return [verdict.judgement for row in rows for verdict in row.verdicts]


def text(rows, facts):
    lines = [HEADER] + all_lines(rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    out = [f"{facts['date']}: {machine.sentence(facts['machine'])}; {facts['rounds']} rounds, medians"]
    for number, line in enumerate(lines):
        out.append("  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip())
        if number == 0:
            out.append("  ".join("-" * width for width in widths))
    out.append(noise.count(judgements(rows)))
    out.append(noise.sentence(facts["noise"]))
    for title, reason in facts["not_measured"].items():
        out.append(f"{title} is not measured: {reason}")
    return "\n".join(out)


def measurements(run):
    """Every value of every source: the median over the rounds, and the rounds."""
    keys = sorted({key for values in run.rounds for key in values})
    for source, bench, case, size in keys:
        values = [v[(source, bench, case, size)] for v in run.rounds if (source, bench, case, size) in v]
        numbers = [value for value, _ in values]
        yield {
            "source": source,
            "bench": bench,
            "case": case,
            "bytes": size,
            "unit": values[0][1],
            "median": statistics.median(numbers),
            "rounds": numbers,
        }


def write_json(path, run, rows, facts):
    outcome = {
        **facts,
        "figures": [
            {
                "figure": row.figure.name,
                "unit": row.figure.unit,
                "aplib": row.value,
                "best_peer": row.best_peer or None,
                "peer": row.peer_value,
                "peer_ratio": row.peer_ratio,
                "floor_name": row.figure.floor_name or None,
                "floor": row.floor_value,
                "floor_ratio": row.floor_ratio,
                "targets": [{"target": v.text, "value": v.value, "met": v.judgement} for v in row.verdicts],
            }
            for row in rows
        ],
        "measurements": list(measurements(run)),
    }
    path.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
