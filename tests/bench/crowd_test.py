#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/crowd: every pattern has a figure, however APlib runs its ranks; its table, its results and its section of the
page. How fast anything is does not matter here.

    crowd_test.py BUILD_FOLDER
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
BUILD = pathlib.Path(sys.argv.pop())
sys.path.insert(0, str(BENCH))

from comparing import crowd, noise, sources  # noqa: E402 (the path must be set first)

PAGE = "# Performance of MPI\n\n## Figures and targets\n\nrows\n\n## How it is measured\n\nwords\n"
FACTS = {
    "date": "2026-01-01", "rounds": 7, "noise": {"reference": ""}, "missing": ["x on 64 ranks"],
    "machine": {"processor": "P", "virtual": False, "cores": 2, "system": "S", "kernel": "K", "libc": "L",
                "compiler": "C"},
}  # fmt: skip


def row_of(*rounds, pattern=crowd.PATTERNS[0], ranks=4):
    return crowd.Row(pattern, ranks, 2, [{name: [1e3 * value, 2e3 * value] for name, value in each.items()}
                                         for each in rounds])


class Program(unittest.TestCase):
    def test_each_pattern_has_a_figure_however_ranks_run(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(
            crowd, SAMPLES=1, SAMPLE_MS=0.01, RUN_SECONDS_MAX=100
        ):
            for library in crowd.OWN.values():
                own = library(BUILD, BENCH / "peers", pathlib.Path(folder))
                self.assertEqual(own.fault, "")
                for pattern in [each for each in crowd.PATTERNS if own.takes_part(each, 4)]:
                    with self.subTest(library=own.name, pattern=pattern.name):
                        value, worst = own.measure(pattern, 4)
                        # Half: how long the work takes was measured beside other tests.
                        self.assertLessEqual((pattern.floor(4, 4) or 0) / 2, worst)
                        self.assertLessEqual(value, worst)

    def test_a_program_that_takes_too_long_is_cut_and_not_tried_with_more_ranks(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(crowd, "RUN_SECONDS_MAX", 0.01):
            own = crowd.Cells(BUILD, BENCH / "peers", pathlib.Path(folder))
            row = row_of(ranks=4)
            row.measure_round([own])
            self.assertEqual(row.cuts, {"cells": "> 0.01 s"})
            results = crowd.Results(pathlib.Path(folder) / "crowd.json")
            results.add(row, noise.Reference(BUILD))
            again = crowd.Results(results.path)
            self.assertEqual(again.rows["ring-recv", 4].busy, row.busy)
            self.assertEqual(again.cut_before(row.pattern, 16), row.cuts)
            self.assertEqual(again.cut_before(row.pattern, 2), {})

    def test_wrong_words_are_told(self):
        for words, complaint in ((["nosuch"], "no pattern nosuch"), (["--peers", "x"], "no peer x"),
                                 (["--ranks", "1"], "2 or more")):
            done = subprocess.run([sys.executable, "-B", str(BENCH / "crowd"), *words], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(complaint, done.stderr)


class Texts(unittest.TestCase):
    def test_ratios_are_of_the_rounds_and_to_the_best_peer(self):
        row = row_of({"cells": 1, "openmpi": 2, "mpich": 90}, {"cells": 3, "openmpi": 2}, {"cells": 4, "openmpi": 2})
        self.assertEqual(row.best_peer(), "openmpi")
        self.assertEqual(row.ratios("cells"), [0.5, 1.5, 2])
        self.assertFalse(row.is_behind())  # in one round it was ahead
        row.rounds *= 7
        del row.rounds[::3]
        self.assertTrue(row.is_behind())
        self.assertEqual(crowd.cell(row, "cells"), "3.50 (8.00)")
        self.assertIn("| **a token to the next rank, by Recv** | 4 | 3.50 (8.00) | - | - | 2.00 (4.00) |",
                      crowd.table([row]))
        self.assertEqual(crowd.behind([row]), "Cells are slower than the best peer in 1 of 1 rows, for sure.")

    def test_a_slow_peer_takes_part_in_few_rounds(self):
        class Counted:
            def __init__(self, name, value):
                self.name, self.value, self.runs = name, value, 0

            def measure(self, *_):
                self.runs += 1
                return self.value, self.value

        fast, slow, row = Counted("cells", 1.0), Counted("mpich", 1000.0), row_of()
        for _ in range(5):
            row.measure_round([fast, slow])
        self.assertEqual((fast.runs, slow.runs), (5, crowd.ROUNDS_OF_SLOW))

    def test_a_row_is_noisy_if_others_used_the_machine(self):
        row = row_of({"cells": 1})
        row.busy = [0, 0, 1]
        self.assertFalse(row.is_noisy())
        row.busy = [0, 0, 100]
        self.assertTrue(row.is_noisy())

    def test_a_hopeless_library_is_not_tried_with_more_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            results = crowd.Results(pathlib.Path(folder) / "crowd.json")
            results.rows["ring-recv", 4] = row_of({"cells": 1, "openmpi": 90, "mpich": 101})
            self.assertEqual(results.cut_before(crowd.PATTERNS[0], 16), {"mpich": "hopeless"})

    def test_a_fault_of_a_library_is_shown(self):
        class Failing:
            name = "mpich"

            def measure(self, *_):
                raise sources.Unusable("failed")

        row = row_of()
        row.measure_round([Failing()])
        self.assertEqual(crowd.cell(row, "mpich"), "failed")

    def test_the_section_takes_the_place_of_the_old_one(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            path.write_text(PAGE, encoding="utf-8")
            for value in (1, 7):
                crowd.write(path, [row_of({"cells": value})], FACTS)
            text = path.read_text(encoding="utf-8")
        self.assertEqual(text.count(f"## {crowd.TITLE}\n"), 1)
        self.assertIn("7.00 (14.0)", text)
        self.assertIn("Not measured: x on 64 ranks.", text)
        self.assertEqual(text.replace(crowd.section_of(text), ""), PAGE)


if __name__ == "__main__":
    unittest.main()
