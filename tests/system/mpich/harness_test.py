#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of scripts/mpich-suite itself: how it reads the suite's lists, and what it takes for passed. Nothing is
fetched."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "programs")]

from lines import LeftOut, Line, read_lines  # noqa: E402 (the path must be set first)
from runs import complaint, run  # noqa: E402
from script_case import ScriptCase  # noqa: E402

SCRIPT = HERE.parents[2] / "scripts" / "mpich-suite"


class Lists(unittest.TestCase):
    def test_a_line_has_a_program_ranks_and_pairs(self):
        line = Line.parse("pt2pt", "sendself 2 test/mpi/pt2pt/sendself arg=-type=MPI_INT arg=-n=3 env=A=b=c "
                                   "timeLimit=9 mem=1.5 resultTest=TestStatus xfail=ticket1 # why")
        self.assertEqual(line, Line("pt2pt", "sendself", 2, ("-type=MPI_INT", "-n=3"), ("A=b=c",), (), "TestStatus", 9,
                                    1.5))
        self.assertEqual(str(line), "A=b=c pt2pt/sendself 2 -type=MPI_INT -n=3")

    def test_what_is_no_line_is_passed_over(self):
        for text in ("", "  ", "# comment 3", "errors", "@largetest@gather_big 8 mem=20.1", "#large_vec 3"):
            self.assertIsNone(Line.parse("coll", text), text)

    def test_some_lines_take_long(self):
        for text in ("x 2 timeLimit=300", "x 2 arg=-count=262144", "x 2 arg=-iter=1024 arg=-count=1", "x 2 mem=6.5",
                     "x 2 arg=-type=MPI_INT arg=-sendcnt=65530"):
            self.assertTrue(Line.parse("coll", text).takes_long, text)
        self.assertTrue(Line.parse("f77/coll", "x 2").takes_long)
        for text in ("x 2", "x 2 timeLimit=60", "x 2 arg=-count=1 arg=-seed=99999 arg=-testsize=1024"):
            self.assertFalse(Line.parse("coll", text).takes_long, text)

    def test_lines_of_the_threads_folders_make_threads(self):
        self.assertTrue(Line.parse("threads/comm", "x 2").makes_threads)
        self.assertFalse(Line.parse("comm", "threads 2").makes_threads)

    def test_both_lists_of_a_folder_are_read_and_no_others(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "coll").mkdir()
            for name in ("testlist", "testlist.dtp", "testlist.cvar", "testlist.gpu"):
                (pathlib.Path(folder) / "coll" / name).write_text(f"from_{name} 4\n")
            found = [line.program for line in read_lines(pathlib.Path(folder), "coll")]
        self.assertEqual(found, ["from_testlist", "from_testlist.dtp"])

    def test_variables_of_mpich_make_no_other_line(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "coll").mkdir()
            (pathlib.Path(folder) / "coll" / "testlist").write_text(
                "x 4\nx 4 env=MPIR_CVAR_X=1\nx 2 env=FI_X=1 env=MPIR=1\nx 4 arg=1\n")
            found = [str(line) for line in read_lines(pathlib.Path(folder), "coll")]
        self.assertEqual(found, ["coll/x 4", "MPIR=1 coll/x 2", "coll/x 4 1"])

    def test_reasons_to_leave_a_line_out(self):
        left_out = LeftOut("# comment\nno waiting:\n  coll/i* pt2pt/x\n  topo/y\nno sense:\n  coll/ib\n", 4)
        for line, reason in [
            (Line("coll", "ib", 2), "no waiting"),
            (Line("topo", "y", 2), "no waiting"),
            (Line("pt2pt", "i", 2), None),
            (Line("pt2pt", "xy", 2), None),
            (Line("pt2pt", "z", 2, gigabytes=4.5), "needs 4.5 GB of memory"),
            (Line("pt2pt", "z", 2, gigabytes=4), None),
        ]:
            self.assertEqual(left_out.reason(line), reason, line)
        self.assertEqual(left_out.unused([Line("coll", "ix", 1), Line("topo", "y", 1)]), ["pt2pt/x", "coll/ib"])


class Verdicts(unittest.TestCase):
    def test_a_normal_program_says_no_errors_and_nothing_else(self):
        self.assertEqual(complaint("TestNormal", 0, " No Errors\n"), "")
        for status, output in [(1, " No Errors\n"), (0, ""), (0, " No Errors\n No Errors\n"), (0, "note\n No Errors\n"),
                               (0, " No Errors\n\n"), (0, " Found 3 errors\n"), (None, " No Errors\n")]:
            self.assertNotEqual(complaint("TestNormal", status, output), "", (status, output))

    def test_a_program_that_must_fail(self):
        for verdict in ("TestStatus", "TestErrFatal"):
            self.assertEqual(complaint(verdict, 1, "anything"), "")
            self.assertNotEqual(complaint(verdict, 0, ""), "")
            self.assertNotEqual(complaint(verdict, None, ""), "")
        self.assertEqual(complaint("TestStatusNoErrors", 1, " No Errors\n"), "")
        self.assertNotEqual(complaint("TestStatusNoErrors", 0, " No Errors\n"), "")
        self.assertNotEqual(complaint("TestStatusNoErrors", 1, ""), "")

    def test_a_run_gets_its_ranks_threads_arguments_and_variables(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            mpiexec = folder / "mpiexec"
            mpiexec.write_text('#!/bin/sh\necho "$*; $APLIB_THREADS $MPIEXEC_TIMEOUT $MINE$APLIB_MODULE"; exit 3\n')
            mpiexec.chmod(0o755)
            line = Line("coll", "x", 4, ("-a", "b"), ("MINE=2",), ("-l",), seconds=7)
            missing = run(line, 2, folder, mpiexec)
            (folder / "x").write_text("")
            (folder / "x").chmod(0o755)
            done = run(line, 2, folder, mpiexec)
            processes = run(line, 1, folder, mpiexec, "tcp")
        self.assertEqual(missing.complaint, "does not compile")
        self.assertEqual(done.output, "-n 4 -l ./x -a b; 2 7 2\n")
        self.assertIn("status 3", done.complaint)
        self.assertEqual(processes.output, "--processes -n 4 -l ./x -a b; 1 7 2tcp\n")


class CommandLine(ScriptCase, unittest.TestCase):
    script = SCRIPT

    def test_wrong_words_are_refused(self):
        self.expect_refusals([(["nosuch"], "there is no folder nosuch; there are attr, coll,"),
                              (["--threads", "1,many"], "--threads takes numbers"), (["--jobs", "0"], "at least 1")])

    def test_without_aplibs_tools_it_is_skipped_with_the_reason(self):
        self.expect_skip_without_tools()


if __name__ == "__main__":
    unittest.main()
