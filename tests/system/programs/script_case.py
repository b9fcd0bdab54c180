# SPDX-License-Identifier: MIT
"""What the tests of the scripts of whole suites ask alike: how a script meets wrong words, and a missing build."""

import subprocess
import sys
import tempfile


class ScriptCase:
    """Beside unittest.TestCase. A class has `script`, its path."""

    script = None

    def run_script(self, *words):
        return subprocess.run([sys.executable, self.script, *words], capture_output=True, text=True, check=False)

    def expect_refusals(self, refusals):
        """Of pairs: the words, and what the script says of them."""
        for words, text in refusals:
            done = self.run_script(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)

    def expect_skip_without_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script("--build", folder)
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertRegex(
            done.stdout, rf"^{self.script.name}: skipped: needs APlib's own programs: aprun is not built in"
        )
