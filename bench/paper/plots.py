# SPDX-License-Identifier: MIT
"""The report's picture, by gnuplot."""

import shutil
import subprocess

COLOURS = ("#c0392b", "#2980b9", "#27ae60", "#7d3c98", "#d68910", "#7f8c8d")


def series_panel(title, xlabel, ylabel, series, extra=()):
    """A panel of lines. `series`: (title, [(x, y)]) of each line."""
    script, plots = [], []
    for number, (name, points) in enumerate(series):
        block = f"$series_{abs(hash((title, number)))}"
        script.append(f"{block} << EOD\n" + "\n".join(f"{x} {y}" for x, y in points) + "\nEOD")
        plots.append(
            f"{block} using 1:2 with linespoints pt 7 lw 2 lc rgb '{COLOURS[number % len(COLOURS)]}' title '{name}'"
        )
    return [
        *script,
        f"set title '{title}'",
        f"set xlabel '{xlabel}'",
        f"set ylabel '{ylabel}'",
        "set xrange [0.5:*]",
        "set yrange [0:*]",
        "set xtics 1",
        "set key top left",
        "plot " + ", ".join([*plots, *extra]),
    ]


def bar_panel(title, groups, names):
    """A panel of bars. `groups`: (label, [share]) with a bar for each of `names`."""
    width = 0.8 / len(names)
    script, plots = [], []
    for number, name in enumerate(names):
        points = [
            f'{place + (number - (len(names) - 1) / 2) * width} {values[number]} "{values[number]:.2f}"'
            for place, (_, values) in enumerate(groups)
            if values[number] is not None
        ]
        script.append(f"$bars_{number} << EOD\n" + "\n".join(points) + "\nEOD")
        colour = COLOURS[number % len(COLOURS)]
        plots.append(f"$bars_{number} using 1:2 with boxes lc rgb '{colour}' title '{name}'")
        plots.append(f"$bars_{number} using 1:2:3 with labels font ',9' offset 0,0.6 notitle")
    tics = ", ".join(f"'{label}' {place}" for place, (label, _) in enumerate(groups))
    return [
        *script,
        f"set title '{title}'",
        "set xlabel ''",
        "set ylabel 'share of the sum of the single speeds'",
        f"set boxwidth {width * 0.9}",
        "set style fill solid 0.85 noborder",
        f"set xtics ({tics})",
        f"set xrange [-0.6:{len(groups) - 0.4}]",
        "set yrange [0:1.45]",
        "set key top left",
        "plot " + ", ".join([*plots, "1 with lines dt 2 lc rgb 'black' notitle"]),
    ]


def draw(path, panels):
    """Draws the picture. Returns why there is none, or an empty text."""
    gnuplot = shutil.which("gnuplot")
    if gnuplot is None:
        return "gnuplot is not installed; run scripts/peers, or apt-get install gnuplot-nox"
    columns = min(len(panels), 2)
    rows = (len(panels) + 1) // 2
    script = [
        f"set terminal pngcairo size {750 * columns},{540 * rows} font 'sans,11'",
        f"set output '{path}'",
        f"set multiplot layout {rows},{columns}",
        "set grid lc rgb '#dddddd'",
    ]
    for panel in panels:
        script += panel
    script.append("unset multiplot")
    done = subprocess.run([gnuplot], input="\n".join(script) + "\n", capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else "gnuplot failed: " + done.stderr.strip()
