#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""report.py with logs of ctest: it finds each kind of skip with its reason and judges it, and quotes failed tests.
And scripts/run-suite, whose tests may fail beside others."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import report

GTEST = "printf '[ RUN      ] A.b\\n/x/a.cpp:3: Skipped\\n%s\\n\\n[  SKIPPED ] A.b (0 ms)\\n'"


RUN_SUITE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run-suite"
FLAKY = "test -e {0} || { touch {0}; exit 1; }"  # fails the first time


class Suites(unittest.TestCase):
    def run_suite(self, *tests, runner=("ctest", "--output-on-failure")):
        """A run of ctest with these (name, shell command, return code that means skipped), and what is said of it."""
        with tempfile.TemporaryDirectory() as folder:
            lines = []
            for name, command, *status in tests:
                lines.append(f'add_test([=[{name}]=] sh -c [=[{command}]=])')
                how = f"SKIP_RETURN_CODE {status[0]}" if status else 'SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]"'
                lines.append(f'set_tests_properties([=[{name}]=] PROPERTIES {how} FIXTURES_REQUIRED run)')
            written = pathlib.Path(folder) / "report.txt"
            lines.append(
                f'add_test(report "{sys.executable}" -B "{report.__file__}" Testing/Temporary/LastTest.log.tmp'
                f' "{written}")'
            )
            lines.append("set_tests_properties(report PROPERTIES FIXTURES_CLEANUP run)")
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
            run = subprocess.run(runner, cwd=folder, text=True, stdout=subprocess.PIPE)
            self.output = run.stdout
            return run.returncode, written.read_text().splitlines()


class Report(Suites):
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
        self.assertRegex("\n".join(lines), r"1 needs a module with a descriptor:\n +release: a\n")
        self.assertRegex("\n".join(lines), r"1 needs a build without ThreadSanitizer: it loses one:\n +asan: a\n")
        self.assertRegex("\n".join(lines), r"1 needs the tool no-such-tool:\n +c\n")
        self.assertRegex(
            "\n".join(lines), r"1 needs sources from apt: it cannot fetch them:\n +d(\n|$)"
        )

    def test_what_this_machine_could_run_fails(self):
        status, lines = self.run_suite(("release: a", GTEST % "needs a build without sanitizers"))
        self.assertEqual(
            (status != 0, lines[0]),
            (True, "release: a: skipped: needs a build without sanitizers: this machine could run it"),
        )
        status, lines = self.run_suite(("b", "echo skipped: needs the tool no-such-tool or sh; exit 77", 77))
        self.assertEqual(
            (status != 0, lines[0]),
            (True, "b: skipped: needs the tool no-such-tool or sh: this machine could run it"),
        )

    def test_an_unknown_reason_and_none_fail(self):
        status, lines = self.run_suite(("a", GTEST % "needs Mondays"))
        self.assertEqual(
            (status != 0, lines[0]),
            (True, "a: skipped: needs Mondays: its reason is not in the table of tests/support/report.py"),
        )
        status, lines = self.run_suite(("a", GTEST % "Mondays are bad"))
        self.assertEqual(
            (status != 0, lines[0]), (True, 'a: skipped: Mondays are bad: its reason is not of the form "needs X"')
        )
        status, lines = self.run_suite(("a", GTEST.replace("%s\\n", "")))
        self.assertEqual((status != 0, lines[0]), (True, "a: skipped: (nothing): says no reason"))

    def test_failed_tests_are_quoted(self):
        status, lines = self.run_suite(
            ("a", "echo hello"),
            ("release: b", "seq 100; exit 3"),
            ("c", "printf crash; kill -ABRT $$"),
            ("d", "exit 1"),
        )
        self.assertNotEqual(status, 0)
        expected = ["failed: release: b; its last lines:"]
        expected += [f"  {number}" for number in range(61, 101)]
        expected += ["failed: c; its last lines:", "  crash", "failed: d; its last lines:"]
        self.assertEqual(lines, [*expected, "skipped: 0 tests, for 0 reasons"])


class Again(Suites):
    """Tests that fail are run once more, alone."""

    def run_again(self, *tests):
        status, _ = self.run_suite(*tests, runner=(RUN_SUITE, ".", "-j", "4"))
        self.end = self.output.splitlines()
        alone = [line.partition("passed alone: ")[2] for line in self.end if "passed alone: " in line]
        return status, alone, [line for line in self.end if " tests passed, " in line][-1]

    def test_what_passes_alone_passes(self):
        flaky = [(f"flaky {name}", FLAKY.replace("{0}", name)) for name in "abc"]
        status, alone, summary = self.run_again(("good", "echo hello"), *flaky)
        self.assertEqual((status, alone, summary), (0, ["flaky a", "flaky b", "flaky c"],
                                                    "100% tests passed, 0 tests failed out of 5"), self.output)
        self.assertNotIn("The following tests FAILED", self.output)
        self.assertRegex(self.end[-1], "^Total Test time")

    def test_what_fails_alone_fails(self):
        flaky = ("flaky", FLAKY.replace("{0}", "f"))
        status, alone, summary = self.run_again(("good", "true"), ("bad", "false"), flaky)
        self.assertEqual((status != 0, alone), (True, []), self.output)
        self.assertRegex(summary, "^50% tests passed, 2 tests failed out of 4")

    def test_more_than_three_fail(self):
        status, alone, _ = self.run_again(*((f"flaky {name}", FLAKY.replace("{0}", name)) for name in "abcd"))
        self.assertEqual((status != 0, alone), (True, []), self.output)
        self.assertNotIn("once more", self.output)

    def test_what_is_skipped_without_need_fails(self):
        status, alone, _ = self.run_again(("a", "echo skipped: needs Mondays; exit 77", 77))
        self.assertEqual((status != 0, alone), (True, []), self.output)

    def test_all_pass(self):
        status, alone, summary = self.run_again(("good", "true"))
        self.assertEqual((status, alone, summary), (0, [], "100% tests passed, 0 tests failed out of 2"), self.output)


if __name__ == "__main__":
    os.environ.pop("CTEST_OUTPUT_ON_FAILURE", None)
    unittest.main()
