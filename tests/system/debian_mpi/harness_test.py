#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether scripts/debian-mpi tells right answers from wrong ones."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from case import Case  # noqa: E402 (the path must be set first)
from trying import HANG, Answer, judge, prepare, run  # noqa: E402

CASE = Case("c", "p", "x", tolerance=1e-6)


def verdict(case, status, text, *expected, said=""):
    return judge(case, Answer(status, text, said), [Answer(0, each, "") for each in expected])[0]


class Verdicts(unittest.TestCase):
    def test_an_answer_of_one_of_the_runs_is_right(self):
        self.assertEqual(verdict(CASE, 0, "b", "a", "b"), "same")

    def test_numbers_scatter_as_much_as_they_may(self):
        self.assertEqual(verdict(CASE, 0, "e = 1.0000001", "e = 1.0"), "scatter")
        self.assertEqual(verdict(CASE, 0, "e = 1.0001", "e = 1.0"), "wrong")
        self.assertEqual(verdict(CASE, 0, "e = 1.00015", "e = 1.0", "e = 1.0001"), "scatter")

    def test_other_words_are_wrong(self):
        self.assertEqual(verdict(CASE, 0, "f = 1.0", "e = 1.0"), "wrong")
        self.assertEqual(verdict(CASE, 0, "", "e = 1.0"), "wrong")

    def test_ends_differ(self):
        self.assertEqual(verdict(CASE, 1, "a", "a"), "status")
        self.assertEqual(verdict(CASE, 1, "a", "a", said="run it with --processes"), "refused")
        self.assertEqual(verdict(CASE, HANG, "a", "a"), "hang")


class Runs(unittest.TestCase):
    def test_files_and_output_are_read_without_what_is_ignored(self):
        case = Case("c", "p", "x", "echo 2 >given", files=("made",), ignored=(r"time .*",), kept=r"\d", unordered=True)
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            self.assertEqual(prepare(case, folder / "inputs"), "")
            command = ["sh", "-c", "echo 3; echo word; echo time 7; cp given made; exit 4"]
            answer = run(case, command, folder / "inputs", folder / "run", 60)
        self.assertEqual((answer.status, answer.text), (4, "2\n3"))


if __name__ == "__main__":
    unittest.main()
