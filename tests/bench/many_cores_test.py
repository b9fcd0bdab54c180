#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/many-cores: what runs in the pack keeps to its time and writes results, the page shows them, and a file of
the tree works in a root of its own.

    many_cores_test.py BUILD_FOLDER
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop())
sys.path.insert(0, str(ROOT / "bench"))

from comparing import crowd  # noqa: E402 (the path must be set first)
from many_cores import drive, pack, report  # noqa: E402


def value_of(part, case, library, ranks, value, unit="us"):
    return {"part": part, "case": case, "library": library, "ranks": ranks, "value": value, "unit": unit}


def drive_of(folder, seconds):
    folder = pathlib.Path(folder)
    return drive.Drive(argparse.Namespace(build=BUILD, programs=folder, out=folder / "results.json", seconds=seconds,
                                          compiler="C"))


class Drive(unittest.TestCase):
    def test_the_solver_has_a_value_for_all_cores_and_grids(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(drive, ROUNDS=1, SIDES={64: 10, 96: 10}):
            one = drive_of(folder, 200)
            one.measure(["scg"])
            results = json.loads((pathlib.Path(folder) / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(results["failures"], [])
        self.assertEqual({(each["case"], each["ranks"]) for each in results["values"]},
                         {(side, ranks) for side in ("64", "96") for ranks in one.ranks(one.cores)})

    def test_a_part_whose_time_is_over_ends_and_is_told(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(drive.Drive, "scg", lambda self: self.run(
                ["sleep", "1000"])):
            drive_of(folder, 8).measure(["scg"])
            results = json.loads((pathlib.Path(folder) / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(results["cut"], ["scg"])

    def test_a_program_that_does_not_end_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            one = drive_of(folder, 1000)
            one.part_end = one.end
            self.assertEqual(one.run(["sleep", "1000"], 0.1), (None, "> 0.1 s"))
            one.part = "programs"
            one.failure("xhpcg", "mpich", 4, "> 20 s")
            self.assertTrue(one.has_failed("xhpcg", "mpich"))
            self.assertFalse(one.has_failed("xhpcg", "openmpi"))


class Pack(unittest.TestCase):
    def test_the_header_runs_what_follows_it(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(
            pack, "fill", lambda root, *_: (root.place("/marker").write_text("x"), ["y"])[1]
        ):
            file = pathlib.Path(folder) / "packed"
            self.assertEqual(pack.pack(file, BUILD, pathlib.Path(folder), []), ["y"])
            head, _, archive = file.read_bytes().partition(b"exit $status\n")
            self.assertNotIn(b"@", head.replace(b'"$@"', b""))
            lines = head.count(b"\n") + 2  # the last one, which parted the two, is not in the head
            self.assertIn(f"tail -n +{lines} ".encode(), head)
            listed = subprocess.run(["tar", "tzf", "-"], input=archive, capture_output=True, check=True).stdout
            self.assertIn(b"./marker\n", listed)
            subprocess.run(["sh", "-n"], input=head, check=True)

    def test_links_of_the_tree_stay_links_and_libraries_follow(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pack.Root(folder)
            mpiexec = BUILD.resolve() / "lib" / "aplib" / "mpi" / "bin" / "mpiexec"
            with mock.patch.object(pack, "ROOT", BUILD.resolve()):
                root.put(str(mpiexec))
            self.assertTrue(root.place(str(mpiexec)).is_symlink())
            self.assertTrue((root.place(str(mpiexec)).parent / mpiexec.readlink()).is_file())
            self.assertTrue(list(pathlib.Path(folder).rglob("libc.so.6")))

    def test_programs_are_found_where_others_have_built_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "openmpi" / "hpcg" / "made" / "xhpcg"
            path.parent.mkdir(parents=True)
            path.touch(mode=0o755)
            self.assertEqual(pack.find_program("xhpcg", "openmpi", ["/nowhere", folder]), path)
            self.assertIsNone(pack.find_program("xhpcg", "mpich", [folder]))


class Page(unittest.TestCase):
    def test_it_shows_what_was_measured_and_what_failed(self):
        row = crowd.Row(crowd.PATTERNS[0], 16, 16, [{"cells": [1e3, 2e3], "openmpi": [4e3, 5e3]}])
        results = {
            "date": "2026-01-01 00:00 UTC",
            "machine": {"processor": "P", "virtual": True, "cores": 16, "system": "S", "kernel": "K", "libc": "L",
                        "compiler": "C"},
            "values": [value_of("scg", "300", "cells", ranks, ranks * 10, "GFLOP/s") for ranks in (1, 2, 16)]
            + [value_of("collectives", "barrier 0", library, 16, value)
               for library, value in (("aplib", 3), ("aplib", 5), ("aplib", 9), ("openmpi", 4))]
            + [value_of("programs", "xhpcg", library, 16, value, "GFLOP/s")
               for library, value in (("aplib", 8), ("mpich", 2))]
            + [value_of("tests", "cell_test", "cells", number, number, "status") for number in (0, 1)],
            "failures": [{"part": "tests", "case": "cell_test", "library": "cells", "ranks": 1, "words": "A.B"},
                         {"part": "programs", "case": "lulesh2.0", "library": "mpich", "ranks": 27, "words": "> 60 s"}],
            "cut": ["crowd"],
            "crowd": {"rows": [row.record()]},
        }  # fmt: skip
        page = report.text(results, ["scg"])
        for words in ("| 300 x 300, GFLOP/s | APlib | 10.0 | 20.0 | 160 |", "| barrier, us | APlib | 5.00 |",
                      "slower than the best peer in: barrier on 16 ranks (1.25).", "MPICH: lulesh2.0 on 27.",
                      "Parts whose time was over: crowd.", "2 runs of test programs, 1 failed: cell_test (A.B).",
                      "many-cores-scg.png", "| HPCG, GFLOP/s | APlib | 8.00 |", "| 16 | 1.00 (2.00) |"):
            self.assertIn(words, page)
        self.assertNotIn("many-cores-programs.png", page)
        names = {name: len(panels) for name, panels in report.panels(report.Values(results)).items()}
        self.assertEqual(names, {"scg": 1, "programs": 1, "collectives": 1})


if __name__ == "__main__":
    unittest.main()
