#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""report.py with logs of ctest: it finds each kind of skip with its reason and judges it, and quotes failed tests."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import report

GTEST = "printf '[ RUN      ] A.b\\n/x/a.cpp:3: Skipped\\n%s\\n\\n[  SKIPPED ] A.b (0 ms)\\n'"


class Report(unittest.TestCase):
    def run_suite(self, *tests):
        """A run of ctest with these (name, shell command, return code that means skipped), and what is said of it."""
        with tempfile.TemporaryDirectory() as folder:
            lines = []
            for name, command, *status in tests:
                lines.append(f'add_test([=[{name}]=] sh -c [=[{command}]=])')
                how = f"SKIP_RETURN_CODE {status[0]}" if status else 'SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]"'
                lines.append(f'set_tests_properties([=[{name}]=] PROPERTIES {how} FIXTURES_REQUIRED run)')
            written = pathlib.Path(folder) / "report"
            lines.append(
                f'add_test(report "{sys.executable}" -B "{report.__file__}" Testing/Temporary/LastTest.log.tmp'
                f' "{written}")'
            )
            lines.append("set_tests_properties(report PROPERTIES FIXTURES_CLEANUP run)")
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
            run = subprocess.run(["ctest", "--output-on-failure"], cwd=folder, text=True, stdout=subprocess.PIPE)
            return run.returncode, written.read_text().splitlines()

    def test_nothing_skipped(self):
        self.assertEqual(self.run_suite(("a", "echo hello")), (0, ["skipped: 0 tests, for 0 reasons"]))

    def test_what_cannot_run_here_is_reported(self):
        status, lines = self.run_suite(
            ("release: a", GTEST % "needs a module with a descriptor"),
            ("asan: a", GTEST % "needs a build without ThreadSanitizer: it loses one"),
            ("b", "echo hello"),
            ("c", "echo skipped: needs the tool no-such-tool; exit 77", 77),
            ("d", "echo lua: skipped: needs sources from apt: it cannot fetch them; exit 77", 77),
            (
                ("e", "echo 'test_x (A.test_x)'; echo \"words ... skipped 'needs a control group for processor time'\"")
                if not report.is_root()
                else ("e", "echo")
            ),
        )
        self.assertEqual(status, 0, lines)
        self.assertRegex("\n".join(lines), r"1 needs a module with a descriptor \(release: a\)")
        self.assertRegex("\n".join(lines), r"1 needs a build without ThreadSanitizer: it loses one \(asan: a\)")
        self.assertRegex("\n".join(lines), r"1 needs the tool no-such-tool \(c\)")
        self.assertRegex(
            "\n".join(lines), r"1 needs sources from apt: it cannot fetch them \(d\)"
        )

    def test_what_this_machine_could_run_fails(self):
        status, lines = self.run_suite(("release: a", GTEST % "needs a build without sanitizers"))
        self.assertEqual(
            (status != 0, lines[-1]),
            (True, "release: a: skipped: needs a build without sanitizers: this machine could run it"),
        )
        status, lines = self.run_suite(("b", "echo skipped: needs the tool no-such-tool or sh; exit 77", 77))
        self.assertEqual(
            (status != 0, lines[-1]),
            (True, "b: skipped: needs the tool no-such-tool or sh: this machine could run it"),
        )

    def test_an_unknown_reason_and_none_fail(self):
        status, lines = self.run_suite(("a", GTEST % "needs Mondays"))
        self.assertEqual(
            (status != 0, lines[-1]),
            (True, "a: skipped: needs Mondays: its reason is not in the table of tests/support/report.py"),
        )
        status, lines = self.run_suite(("a", GTEST % "Mondays are bad"))
        self.assertEqual(
            (status != 0, lines[-1]), (True, 'a: skipped: Mondays are bad: its reason is not of the form "needs X"')
        )
        status, lines = self.run_suite(("a", GTEST.replace("%s\\n", "")))
        self.assertEqual((status != 0, lines[-1]), (True, "a: skipped: (nothing): says no reason"))

    def test_failed_tests_are_quoted(self):
        status, lines = self.run_suite(
            ("a", "echo hello"),
            ("release: b", "seq 100; exit 3"),
            ("c", "printf crash; kill -ABRT $$"),
            ("d", "exit 1"),
        )
        self.assertNotEqual(status, 0)
        expected = ["skipped: 0 tests, for 0 reasons", "failed: release: b; its last lines:"]
        expected += [f"  {number}" for number in range(61, 101)]
        expected += ["failed: c; its last lines:", "  crash", "failed: d; its last lines:"]
        self.assertEqual(lines, expected)


if __name__ == "__main__":
    os.environ.pop("CTEST_OUTPUT_ON_FAILURE", None)
    unittest.main()
