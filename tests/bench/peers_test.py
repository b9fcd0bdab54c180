#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program of the peers (bench/peers) under APlib's own MPI: it has a value for each figure of bench/compare --mpi.

    peers_test.py BUILD_FOLDER
"""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
BUILD = pathlib.Path(sys.argv.pop())
sys.path.insert(0, str(BENCH))

from comparing import figures, mpi, peers, sources  # noqa: E402 (the path must be set first)


class Peers(unittest.TestCase):
    def test_each_figure_of_mpi_has_a_value(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(sources, SAMPLES=1, SAMPLE_MS=0.01):
            values = {}
            for source in (peers.AplibMpi(BUILD, BENCH / "peers", pathlib.Path(folder), False),
                           sources.Aplib(BUILD, False)):
                self.assertEqual(source.fault, "")
                for _, measure in source.mpi_turns(0):
                    for line in measure():
                        values[source.name, line["bench"], line["case"], line["bytes"]] = (line["value"], line["unit"])
        rows = figures.evaluate(figures.Run([values], []), mpi.all_figures())
        self.assertEqual([row.figure.name for row in rows if row.value is None], [])


if __name__ == "__main__":
    unittest.main()
