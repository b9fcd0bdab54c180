#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of the comparison itself: what it must and must not notice, and how mirrors become sources. Nothing is
fetched."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import running  # noqa: E402 (the path must be set first)
import sources  # noqa: E402
from building import Compilers, Tree  # noqa: E402


def outcome(status, **files):
    return running.Outcome(status, {name: text.encode() for name, text in files.items()})


class Comparing(unittest.TestCase):
    def test_equal_outcomes_have_no_complaint(self):
        got = running.compare(
            "t", {0: outcome(3, out="a"), 1: outcome(0, out="b")}, {0: outcome(3, out="a"), 1: outcome(0, out="b")}, ""
        )
        self.assertEqual(got.complaints, [])
        self.assertEqual((got.nonzero, got.different, got.files, got.bytes), (1, 2, 2, 2))

    def test_whatever_differs_is_named(self):
        alone = outcome(0, out="one\ntwo\n")
        for other, words in [
            (outcome(0, out="one\nTWO\n"), "+TWO"),
            (outcome(1, out="one\ntwo\n"), "exit status 1, alone 0"),
            (outcome(0), "out is missing"),
            (outcome(0, out="one\ntwo\n", more=""), "more is there"),
            (outcome(None, out="one\ntwo\n"), "exit status None"),
        ]:
            self.assertIn(words, running.first_difference(alone, other))

    def test_statuses_are_read_from_the_summary(self):
        said = "aprun: cells 0-2, 5: status 0; cell 3: status 2; cell 4: status 130\n"
        self.assertEqual(running.statuses_in(said, 6, 2), {0: 0, 1: 0, 2: 0, 5: 0, 3: 2, 4: 130})

    def test_without_a_summary_all_ended_as_aprun_did(self):
        self.assertEqual(running.statuses_in("", 2, 0), {0: 0, 1: 0})
        self.assertEqual(running.statuses_in("aprun: cannot open x\n", 2, 1), {0: 1, 1: 1})

    def test_a_run_alone_sees_its_own_input_and_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for cid in range(2):
                own = folder / "inputs" / str(cid)
                own.mkdir(parents=True)
                (own / "given").write_text(f"given {cid}")
            program = folder / "tree" / "program"
            program.parent.mkdir()
            program.write_text('#!/bin/sh\ncat; echo took 17 s; echo "$1" > made; exit "$1"\n')
            program.chmod(0o755)
            run = running.Run("r", ("{cid}",), "program", stdin="given", in_folder=True, ignored=(r"took \d+ s",))
            place = running.Place(folder / "alone", run, Tree(folder / "tree", Compilers.plain()), folder / "inputs")
            got = running.alone(place, 2)
            self.assertEqual(
                got[1], running.Outcome(1, {"standard output": b"given 1...\n", "standard error": b"", "made": b"1\n"})
            )
            self.assertEqual(got[0].status, 0)


class Mirrors(unittest.TestCase):
    def test_lines_become_lines_for_sources(self):
        text = ("# comment\ndeb http://mirror/debian stable main  # why\n deb-src http://mirror/debian stable main\n"
                "deb [arch=amd64 signed-by=/k.gpg] http://other/x y z\ndeb cdrom:[Disk]/ stable main\n")
        self.assertEqual(sources.one_line_sources(text),
                         {"deb-src http://mirror/debian stable main", "deb-src [signed-by=/k.gpg] http://other/x y z"})

    def test_stanzas_become_stanzas_for_sources(self):
        text = (
            "Types: deb\n# a comment\nURIs: http://mirror/debian\nSuites: stable\nComponents: main\nArchitectures:"
            " amd64\n\nTypes: deb\nURIs: http://off/x\nSuites: y\nEnabled: no\n"
        )
        self.assertEqual(sources.stanza_sources(text),
                         {"Types: deb-src\nURIs: http://mirror/debian\nSuites: stable\nComponents: main\n"})

    def test_an_archive_that_is_there_is_not_fetched(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in (
                "abc_1.2+x.orig.tar.gz",
                "abc-d_7.orig.tar.gz",
                "abc_1.2+x-1.debian.tar.xz",
                "abc_1.2+x.orig-www.tar.xz",
            ):
                (pathlib.Path(folder) / name).touch()
            path, version = sources.Sources(folder).archive("abc")
            self.assertEqual((path.name, version), ("abc_1.2+x.orig.tar.gz", "1.2+x"))


class CommandLine(unittest.TestCase):
    SCRIPT = HERE.parents[2] / "scripts" / "third-party"

    def run_script(self, *words):
        return subprocess.run(
            [sys.executable, self.SCRIPT, *words], capture_output=True, text=True, check=False
        )

    def test_an_unknown_program_is_refused_with_the_names(self):
        run = self.run_script("nosuch")
        self.assertEqual(run.returncode, 2)
        self.assertIn("there is no program nosuch; there are lua,", run.stderr)

    def test_without_aplibs_tools_it_is_skipped_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            run = self.run_script("--build", folder, "bzip2")
        self.assertEqual(run.returncode, 77, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"^bzip2: skipped: needs (APlib's own programs: apcc is not built in|the tool )")

    def test_the_list_and_the_tests_name_the_same_programs(self):
        listed = {line.split()[0] for line in self.run_script("--list").stdout.splitlines()}
        text = (HERE / "CMakeLists.txt").read_text(encoding="utf-8")
        tested = {name for names in re.findall(r"(?:set\(|APPEND )programs ([^)]*)\)", text) for name in names.split()}
        self.assertEqual(listed, tested)


if __name__ == "__main__":
    unittest.main()
