# SPDX-License-Identifier: MIT
"""The points of presence of the RENKEI project as an internet: seven sites in Japan, in July 2010.

    with namespaces.Network(seven_sites.NAMES, wan=seven_sites.wan(BIN / "wan")) as network:

Round trips and rates of iperf are those that its paper measured ("RENKEI-PoP", tables 4 and 6). nagoya is slow from and
to everywhere, though its access is as fast as the others'."""

import sites

NAMES = ["titech", "titech2", "osaka", "nii", "kek", "nagoya", "tkb"]
ACCESS_MBIT = 10000

# From the site of the row to that of the column.
ROUND_TRIP_MS = [
    [None, 0.24, 9.80, 4.27, 5.87, 6.30, 5.71],
    [0.16, None, 9.62, 4.27, 5.86, 6.28, 5.71],
    [9.62, 9.59, None, 12.84, 14.39, 4.27, 14.26],
    [4.27, 4.30, 12.86, None, 9.08, 9.56, 8.92],
    [5.83, 5.89, 14.37, 9.06, None, 11.12, 0.81],
    [6.32, 6.33, 4.28, 9.51, 11.06, None, 11.00],
    [5.71, 5.71, 14.25, 8.96, 0.83, 10.98, None],
]
MBYTE_PER_SECOND = [
    [None, 1120, 381, 770, 451, 29, 174],
    [1120, None, 418, 761, 450, 19, 172],
    [530, 526, None, 466, 319, 65, 205],
    [557, 555, 484, None, 466, 67, 490],
    [412, 413, 299, 376, None, 48, 748],
    [14, 12, 16, 10, 7, None, 5],
    [357, 433, 341, 415, 623, 43, None],
]


def pairs():
    """(number, number) of all ordered pairs."""
    return [(a, b) for a in range(len(NAMES)) for b in range(len(NAMES)) if a != b]


def round_trip_ms(a, b):
    """What a packet of site a takes to b and back: the mean of what the two have measured."""
    return (ROUND_TRIP_MS[a][b] + ROUND_TRIP_MS[b][a]) / 2


def mbit_per_second(a, b, scale=0.1):
    return MBYTE_PER_SECOND[a][b] * 8 * scale


def wan(program, scale=0.1, **alike):
    """The sites' internet with so much of each rate: one computer cannot emulate 10 Gb/s. `alike` as for sites.Wan."""
    paths = {
        (NAMES[a], NAMES[b]): {
            "delay": f"{round_trip_ms(a, b) / 2:.4f}ms",
            "rate": f"{mbit_per_second(a, b, scale):.3f}Mb/s",
        }
        for a, b in pairs()
    }
    rate = f"{ACCESS_MBIT * scale:.3f}Mb/s"
    return sites.Wan(program, paths, access={name: {"up": rate, "down": rate} for name in NAMES}, **alike)
