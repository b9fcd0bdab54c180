#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""skips.py with ctest's own logs: it finds each kind of skip with its reason, and judges it."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import skips

GTEST = "printf '[ RUN      ] A.b\\n/x/a.cpp:3: Skipped\\n%s\\n\\n[  SKIPPED ] A.b (0 ms)\\n'"


class Skips(unittest.TestCase):
    def run_suite(self, *tests):
        """A run of ctest with these (name, shell command, return code that means skipped), and what is said of it."""
        with tempfile.TemporaryDirectory() as folder:
            lines = []
            for name, command, *status in tests:
                lines.append(f'add_test([=[{name}]=] sh -c [=[{command}]=])')
                how = f"SKIP_RETURN_CODE {status[0]}" if status else 'SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]"'
                lines.append(f'set_tests_properties([=[{name}]=] PROPERTIES {how} FIXTURES_REQUIRED run)')
            report = pathlib.Path(folder) / "report"
            lines.append(
                f'add_test(skips "{sys.executable}" -B "{skips.__file__}" Testing/Temporary/LastTest.log.tmp'
                f' "{report}")'
            )
            lines.append("set_tests_properties(skips PROPERTIES FIXTURES_CLEANUP run)")
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
            run = subprocess.run(["ctest", "--output-on-failure"], cwd=folder, text=True, stdout=subprocess.PIPE)
            return run.returncode, report.read_text().splitlines()

    def test_nothing_skipped(self):
        self.assertEqual(self.run_suite(("a", "echo hello")), (0, ["skipped: 0 tests, for 0 reasons"]))

    def test_what_cannot_run_here_is_reported(self):
        status, lines = self.run_suite(
            ("release: a", GTEST % "this module has none"),
            ("asan: a", GTEST % "ThreadSanitizer loses one"),
            ("b", "echo hello"),
            ("c", "echo skipped: \\'no-such-tool\\' is missing; exit 77", 77),
            ("d", "echo lua: skipped: apt cannot fetch it; exit 77", 77),
            (
                ("e", "echo 'test_x (A.test_x)'; echo \"words ... skipped 'no control group can be made'\"")
                if not skips.is_root()
                else ("e", "echo")
            ),
        )
        self.assertEqual(status, 0, lines)
        self.assertRegex("\n".join(lines), r"1 need a module that can do it: this module has none \(release: a\)")
        self.assertRegex("\n".join(lines), r"1 need a build without sanitizers: ThreadSanitizer loses one \(asan: a\)")
        self.assertRegex("\n".join(lines), r"1 need a tool: 'no-such-tool' is missing \(c\)")
        self.assertRegex(
            "\n".join(lines), r"1 need the sources of a program, by the network: apt cannot fetch it \(d\)"
        )

    def test_what_this_machine_could_run_fails(self):
        status, lines = self.run_suite(("release: a", GTEST % "AddressSanitizer does it"))
        self.assertEqual(
            (status != 0, lines[-1]), (True, "release: a: skipped: AddressSanitizer does it: this machine could run it")
        )
        status, lines = self.run_suite(("b", "echo skipped: \\'sh\\' is missing; exit 77", 77))
        self.assertEqual((status != 0, lines[-1]), (True, "b: skipped: 'sh' is missing: this machine could run it"))

    def test_an_unknown_reason_and_none_fail(self):
        status, lines = self.run_suite(("a", GTEST % "Mondays"))
        self.assertEqual(
            (status != 0, lines[-1]),
            (True, "a: skipped: Mondays: its reason is not in the table of tests/support/skips.py"),
        )
        status, lines = self.run_suite(("a", GTEST.replace("%s\\n", "")))
        self.assertEqual((status != 0, lines[-1]), (True, "a: skipped: (nothing): says no reason"))


if __name__ == "__main__":
    os.environ.pop("CTEST_OUTPUT_ON_FAILURE", None)
    unittest.main()
