#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What scripts/setup asks the package manager for. The package manager is a stand-in, so nothing is installed."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "setup"
STAND_INS = {
    "dpkg-query": "exit 1",  # nothing is installed
    "apt-cache": "echo '  Candidate: 14.0'",
    "apt-get": 'echo "$@" >>"$ASKED"',
    "sudo": 'while [ "$1" != env ]; do [ $# -gt 0 ] || exit 0; shift; done; exec "$@"',
    "systemctl": "exit 0",
}


def asked_for(*level):
    """(exit status, words given to apt-get, error text)"""
    with tempfile.TemporaryDirectory() as folder:
        asked = pathlib.Path(folder, "asked")
        for name, script in STAND_INS.items():
            pathlib.Path(folder, name).write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
            pathlib.Path(folder, name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "ASKED": str(asked)}
        done = subprocess.run(
            [str(SETUP), *level], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, asked.read_text(encoding="ascii").split() if asked.exists() else [], done.stderr


class SetupTest(unittest.TestCase):
    def test_the_demonstration_needs_what_it_is_built_of_and_no_more(self):
        status, words, said = asked_for("demo")
        self.assertEqual(status, 0, said)
        for package in ("libboost-context-dev", "libpng-dev", "libagg-dev", "libspdlog-dev"):
            self.assertIn(package, words)
        for package in (
            "libgtest-dev",
            "valgrind",
            "libfabric-dev",
            "openmpi-bin",
            "slurm-wlm",
            "openssh-server",
            "gdb",
        ):
            self.assertNotIn(package, words)

    def test_a_build_of_the_tests_needs_nothing_that_they_alone_run(self):
        status, words, said = asked_for("build")
        self.assertEqual(status, 0, said)
        for package in ("libboost-context-dev", "libgtest-dev", "valgrind", "libfabric-dev", "mold"):
            self.assertIn(package, words)
        for package in ("gdb", "autoconf", "clang-format-15", "openmpi-bin", "slurm-wlm"):
            self.assertNotIn(package, words)

    def test_all_else_comes_with_the_tests(self):
        for level in ((), ("test",)):
            status, words, said = asked_for(*level)
            self.assertEqual(status, 0, said)
            for package in ("libboost-context-dev", "libgtest-dev", "valgrind", "libfabric-dev", "openmpi-bin"):
                self.assertIn(package, words)
            # What users rely on is not skipped.
            for package in ("chromium-headless-shell", "clang", "libfftw3-mpi3", "gfortran"):
                self.assertIn(package, words)

    def test_an_unknown_level_is_refused(self):
        status, words, said = asked_for("everything")
        self.assertEqual((status, words), (1, []))
        self.assertEqual(said, 'setup: there is no level "everything": use build, demo, test or all\n')


if __name__ == "__main__":
    unittest.main(verbosity=2)
