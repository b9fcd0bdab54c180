# SPDX-License-Identifier: MIT
"""The results as a picture by gnuplot: times and bandwidths by size, collectives, how close the targets are.

Three panels stand side by side; the targets, whose names are long, have the whole width below them."""

import shutil
import subprocess

from . import figures, sources

COLOURS = {
    "aplib": "#c0392b",
    "posted": "#e67e22",
    "openmpi": "#2471a3",
    "mpich": "#148f77",
    "ampi": "#7d3c98",
    "oshmem": "#b7950b",
    "memcpy": "#7f8c8d",
}
RANKS = [2, 8, 32]
WIDTH = 1800  # of the picture, in pixels, like the rest
HEAD = 50  # for the title
PANEL_HEIGHT = 520
LABEL_HEIGHT = 19  # of a target's name
LABEL_WIDTH = 7.5  # of one of its characters


def curve(run, source, bench, case, sizes, transform=None):
    """The measured values as lines "size value"."""
    points = []
    for size in sizes:
        picked = figures.pick(source, bench, case, size)
        value = run.median(transform(picked, size) if transform else picked)
        if value is not None:
            points.append(f"{size} {value}")
    return points


def size_panel(run, bench, sizes, title, label, factor, place):
    """One line per library, over message size."""
    lines = [
        ("APlib", "aplib", curve(run, "aplib", bench, "two-processors", sizes), "pt 7 lw 2.5"),
        ("APlib, posted", "posted", curve(run, "aplib", bench, "two-processors-posted", sizes), "pt 6 lw 2.5"),
    ]
    lines += [
        (figures.PEER_TITLES[name], name, curve(run, name, bench, "two-processors", sizes), "pt 5 ps 0.8 lw 1.5")
        for name in run.peers
    ]
    to_time = figures.time_to_speed if bench == "latency" else None
    lines.append(("memcpy", "memcpy", curve(run, "floors", "floors", "memcpy", sizes, to_time), "dt 2 pt 0 lw 2"))
    lines = [line for line in lines if line[2]]
    script = [f"${bench}_{key} << EOD\n" + "\n".join(points) + "\nEOD" for _, key, points, _ in lines]
    plots = [
        f"${bench}_{key} using 1:($2*{factor}) with linespoints lc rgb '{COLOURS[key]}' {style} title '{title_}'"
        for title_, key, _, style in lines
    ]
    script += [
        f"set title '{title}'",
        "set xlabel 'bytes'",
        f"set ylabel '{label}'",
        "set logscale x 2",
        "set logscale y 10",
        f"set key {place}",
        "set xtics ('8' 8, '64' 64, '1 Ki' 1024, '8 Ki' 8192, '64 Ki' 65536, '1 Mi' 1048576, '4 Mi' 4194304)",
        "set xrange [*:*]; set yrange [*:*]",
        "plot " + ", ".join(plots),
        "unset logscale",
        "set xtics auto",
    ]
    return script


def collective_panel(run):
    """Barriers as bars, side by side for each number of cells."""
    names = [name for name in ["aplib", *run.peers] if run.measured(name, "barrier")]
    script, plots = [], []
    if not names:
        return []
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        points = []
        for group, ranks in enumerate(RANKS):
            value = run.median(figures.pick(name, "barrier", f"{ranks}-on-2"))
            if value is not None:
                points.append(
                    f"{group + (place - (len(names) - 1) / 2) * width} {value / 1000}"
                    f" \"{figures.quantity(value, 'ns')}\""
                )
        if points:
            title = figures.PEER_TITLES.get(name, "APlib")
            script.append(f"$barrier_{name} << EOD\n" + "\n".join(points) + "\nEOD")
            plots.append(f"$barrier_{name} using 1:2 with boxes lc rgb '{COLOURS[name]}' title '{title}'")
            plots.append(f"$barrier_{name} using 1:2:3 with labels font ',7' offset 0,0.6 notitle")
    tics = ", ".join(f"'{ranks} cells' {group}" for group, ranks in enumerate(RANKS))
    script += [
        "set title 'Barrier: cells or ranks on two cores'",
        "set xlabel ''",
        "set ylabel 'microseconds'",
        "set logscale y 10",
        f"set boxwidth {width * 0.9}",
        "set style fill solid 0.85 noborder",
        f"set xtics ({tics})",
        "set xrange [-0.6:2.6]",
        "set yrange [0.02:*]",
        "set key top left",
        "plot " + ", ".join(plots) if plots else "",
        "unset logscale",
        "set xtics auto",
    ]
    return script


def known_targets(rows):
    """(name, verdict) of each target that was measured."""
    return [(row.figure.name + ": " + v.text, v) for row in rows for v in row.verdicts if v.share is not None]


def target_panel(known):
    """One bar per target: the share of the limit that is used. Left of the line the target is met."""
    if not known:
        return []
    boxes = {"yes": [], "NO": [], "open": []}
    tics = []
    for place, (name, verdict) in enumerate(known):
        y = len(known) - place
        end = min(max(verdict.share, 0.011), 9.9)
        boxes[verdict.judgement.partition(":")[0]].append(f"0.01 {y} 0.01 {end} {y - 0.36} {y + 0.36}")
        label = name.replace("%", "%%")  # gnuplot reads a label as a format
        tics.append(f'"{label}" {y}')
    script, plots = [], []
    for key, colour in (("yes", "#27ae60"), ("NO", "#c0392b"), ("open", "#95a5a6")):
        if boxes[key]:
            script.append(f"${key} << EOD\n" + "\n".join(boxes[key]) + "\nEOD")
            plots.append(f"${key} using 1:2:3:4:5:6 with boxxyerror lc rgb '{colour}' notitle")
    script += [
        "set title 'Share of the limit used (green: met, grey: open)'",
        "set xlabel ''",
        "set ylabel ''",
        "set logscale x 10",
        "set style fill solid 0.8 noborder",
        "set xrange [0.01:10]",
        f"set yrange [0.3:{len(known) + 0.7}]",
        f"set lmargin at screen {(max(len(name) for name, _ in known) * LABEL_WIDTH + 20) / WIDTH}",
        "set rmargin at screen 0.97",
        "set ytics noenhanced font ',9' (" + ", ".join(tics) + ")",  # a name may have an underscore
        "set xtics (0.01, 0.1, 0.5, 1, 2, 10)",
        f"set arrow 1 from 1,0.3 to 1,{len(known) + 0.7} nohead lw 1.5 lc rgb 'black' front",
        "plot " + ", ".join(plots),
    ]
    return script


def script(path, run, rows):
    """gnuplot's commands for the picture."""
    targets = known_targets(rows)
    foot = len(targets) * LABEL_HEIGHT + 80 if targets else 0
    height = HEAD + PANEL_HEIGHT + foot
    lines = [
        f"set terminal pngcairo size {WIDTH},{height} font 'sans,11'",
        f"set output '{path}'",
        "set multiplot title 'APlib beside its peers' font ',14'",
        "set grid lc rgb '#dddddd'",
        "set format y '%g'",
        f"set size {1 / 3},{PANEL_HEIGHT / height}",
    ]
    panels = (
        size_panel(run, "latency", sources.LATENCY_SIZES, "Message, one way", "microseconds", 0.001, "top left"),
        size_panel(run, "bandwidth", sources.BANDWIDTH_SIZES, "Stream of messages", "GB/s", 1, "bottom right"),
        collective_panel(run),
    )
    for place, panel in enumerate(panels):
        lines += [f"set origin {place / 3},{foot / height}", *panel]
    lines += [f"set size 1,{foot / height}", "set origin 0,0", *target_panel(targets)]
    return [*lines, "unset multiplot"]


def draw(path, run, rows):
    """Writes the picture; returns False when there is no gnuplot."""
    gnuplot = shutil.which("gnuplot")
    if gnuplot is None:
        return False
    text = "\n".join(script(path, run, rows)) + "\n"
    done = subprocess.run([gnuplot], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("gnuplot failed: " + done.stderr.strip())
    return True
