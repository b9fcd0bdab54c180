#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of scripts/mpi-programs itself: where sources come from, what a run is worth, and how answers are compared.
Nothing is fetched from elsewhere."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parents[2] / "scripts" / "mpi-programs"
sys.path[:0] = [str(HERE), str(HERE.parent / "programs"), str(HERE.parents[2] / "bench")]

from building import Compilers, Tree  # noqa: E402 (the path must be set first)
from libraries import Library  # noqa: E402
from measured import Measured  # noqa: E402
from measuring import complaint, differences, read_figures, run  # noqa: E402
from origins import Commit, Package  # noqa: E402
from page import table  # noqa: E402
from programs import PROGRAMS, Answer, Case, Figure, Program  # noqa: E402
from script_case import ScriptCase  # noqa: E402
from sources import Unavailable  # noqa: E402

TOY = Program(
    name="toy", origins=(), build=lambda tree, archives: None, program="toy", cases=(),
    figures=(Figure("rate", "M/s", r"rate (\S+)", higher_is_better=True, factor=10),
             Figure("time", "s", r"time (\S+)")),
    answers=(Answer("steps", r"steps (\d+)"), Answer("rest", r"rest (\S+)", 1e-3)),
    demands=("PASSED",), forbids=("FAILED",), outputs="*.txt",
)  # fmt: skip


class Verdicts(unittest.TestCase):
    good = "steps 7\nrest 1e-9\nPASSED\nrate 2\n"

    def test_a_run_must_end_well_and_say_what_it_found(self):
        self.assertEqual(complaint(TOY, 0, self.good, 9), "")
        for status, text, why in [
            (None, self.good, "did not end within 9 s"), (3, self.good, "status 3"),
            (0, self.good.replace("PASSED", ""), "its output has no 'PASSED'"),
            (0, self.good + " 2 tests FAILED\n", "its output says '2 tests FAILED'"),
            (0, self.good.replace("steps", "step"), "its output has no steps"),
        ]:
            self.assertEqual(complaint(TOY, status, text, 9), why)

    def test_figures_are_added_up_and_scaled(self):
        self.assertEqual(read_figures(TOY, "rate 2\ntime 1\ntime 0.5\n"), {"rate": 20, "time": 1.5})
        self.assertEqual(read_figures(TOY, "time 0\n"), {})

    def test_answers_may_differ_by_their_tolerance(self):
        expected = {"steps": "7", "rest": "1.000e-09"}
        self.assertEqual(differences(TOY, {"steps": "7", "rest": "1.0005e-09"}, expected), [])
        self.assertEqual(differences(TOY, {"steps": "8", "rest": "nan"}, expected),
                         ["steps 8 instead of 7", "rest nan instead of 1.000e-09"])

    def test_a_run_has_its_ranks_arguments_files_and_outputs(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "toy").write_text('#!/bin/sh\necho "$@ $MINE $OMP_NUM_THREADS"; cat input; cp more all.txt\n')
            library = Library("one", "One", Compilers("alone", "", "", ""),
                              lambda ranks, words: ["env", f"MINE={ranks}", *words],
                              {"more": "x"})
            case = Case(4, ("-a", "b"), {"input": "steps 7\nrest 1\n", "more": "PASSED\nrate 3\n"})
            missing = run(TOY, case, library, Tree(folder, library.compilers), folder / "run", 9)
            (folder / "toy").chmod(0o755)
            done = run(TOY, case, library, Tree(folder, library.compilers), folder / "run", 9)
        self.assertIn("was not built", missing.complaint)
        self.assertEqual(done.complaint, "")
        self.assertEqual(done.output, "-a b 4 1\nsteps 7\nrest 1\nPASSED\nrate 3\n")
        self.assertEqual((done.figures, done.answers), ({"rate": 30}, {"steps": "7", "rest": "1"}))


class Ratios(unittest.TestCase):
    def test_the_best_peer_counts_by_the_median_of_ratios_within_rounds(self):
        measured = Measured(TOY, Case(2))
        measured.rounds = [{"aplib": {"rate": 4, "time": 1}, "openmpi": {"rate": 2, "time": 3}, "mpich": {"rate": 1}},
                           {"aplib": {"rate": 9, "time": 2}, "openmpi": {"rate": 3, "time": 1}},
                           {"aplib": {"rate": 5, "time": 2}, "openmpi": {"rate": 5, "time": 4}},
                           {"openmpi": {"rate": 1}}]
        self.assertEqual(measured.speed_ups(TOY.figures[0]), ([2, 3, 1], "openmpi"))
        self.assertEqual(measured.speed_ups(TOY.figures[1]), ([3, 0.5, 2], "openmpi"))
        self.assertEqual(measured.median("aplib", TOY.figures[0]), 5)
        self.assertIsNone(measured.median("mpich", TOY.figures[1]))

    def test_other_answers_than_those_of_processes_are_wrong(self):
        for peer, complaints in (("openmpi", ["otherwise than openmpi: steps 7 instead of 8"]), ("ampi", [])):
            measured = Measured(TOY, Case(2))
            measured.rounds = [{"aplib": {"rate": 4}, peer: {"rate": 2}}]
            measured.answers = {"aplib": {"steps": "7", "rest": "0"}, peer: {"steps": "8", "rest": "0"}}
            measured.compare_answers()
            self.assertEqual(measured.complaints, complaints)
            self.assertEqual(measured.speed_ups(TOY.figures[0]), None if peer == "ampi" else ([2], peer))

    def test_the_table_says_which_targets_are_met(self):
        few, many = (Measured(TOY, case) for case in (Case(2, peer_target=1), Case(16, peer_target=3, own_target=0.9)))
        few.rounds = [{"aplib": {"rate": 4}, "openmpi": {"rate": 2}}]
        many.rounds = [{"aplib": {"rate": 3}, "openmpi": {"rate": 1}}]
        libraries = [Library(name, name, None, None, {}) for name in ("aplib", "openmpi")]
        lines = [line.split(" | ")[1:] for line in table([few, many], libraries).splitlines() if " rate, " in line]
        self.assertEqual(lines, [["2", "rate, M/s", "4", "2", "2.00 (openmpi)", "yes (>= 1)", "", " |"],
                                 ["16", "rate, M/s", "3", "1", "3.00 (openmpi)", "yes (>= 3)", "0.75",
                                  "NO (>= 0.9) |"]])


class Origins(unittest.TestCase):
    def test_a_commit_is_fetched_once_and_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            there, cache = pathlib.Path(folder) / "there", pathlib.Path(folder) / "cache"

            def git(*words):
                names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
                return subprocess.run(["git", "-C", there, *words], check=True, capture_output=True, text=True,
                                      env={**os.environ, **names}).stdout.strip()
            there.mkdir()
            git("init", "--quiet")
            (there / "file").write_text("first\n")
            git("add", "file")
            git("commit", "--quiet", "-m", "first")
            commit = Commit("toy", "1", str(there), git("rev-parse", "HEAD"))
            with self.assertRaisesRegex(Unavailable, "needs sources from git: toy has not been fetched"):
                commit.archive(cache, fetches=False)
            path = commit.archive(cache)
            again = commit.archive(cache, fetches=False)
            listed = subprocess.run(["tar", "-tf", path], check=True, capture_output=True, text=True).stdout
            path.write_bytes(b"damaged")
            with self.assertRaisesRegex(Unavailable, "needs sources from git"):
                commit.archive(cache, fetches=False)
            with self.assertRaisesRegex(Unavailable, "needs sources from git: it cannot fetch"):
                Commit("toy", "1", str(there), "1" * 40).archive(cache)
        self.assertEqual(path, again)
        self.assertEqual(listed.split(), ["toy/", "toy/file"])

    def test_a_package_must_have_its_version_and_checksum(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder)
            with self.assertRaisesRegex(Unavailable, "needs sources from apt: toy has not been fetched"):
                Package("toy", "1.0", "0").archive(cache, fetches=False)
            (cache / "toy_1.0.orig.tar.gz").write_bytes(b"")
            for version, text in [("2.0", "it has toy 1.0, and not 2.0"), ("1.0", "has the SHA-256 e3b0c442")]:
                with self.assertRaisesRegex(Unavailable, text):
                    Package("toy", version, "0").archive(cache)

    def test_every_program_is_pinned(self):
        for program in PROGRAMS.values():
            for origin in program.origins:
                self.assertRegex(getattr(origin, "commit", "") or origin.sha256, "^[0-9a-f]{40}([0-9a-f]{24})?$")


class CommandLine(ScriptCase, unittest.TestCase):
    script = SCRIPT

    def test_wrong_words_are_refused(self):
        self.expect_refusals([(["nosuch"], "there is no program nosuch; there are hpl, lulesh,"),
                              (["--rounds", "0"], "least 1"), (["--peers", "lam"], "there is no peer lam"),
                              (["--ranks", "two"], "--ranks takes numbers"),
                              (["--write-docs", "hpcg"], "the page has all programs and ranks")])

    def test_without_aplibs_tools_it_is_skipped_with_the_reason(self):
        self.expect_skip_without_tools()


if __name__ == "__main__":
    unittest.main()
