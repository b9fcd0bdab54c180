#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Processes that other launchers start through PMIx: Open MPI's mpirun, Slurm's srun, PRRTE's prterun."""
import os
import re
import shutil
import subprocess
import unittest

import driver
import servers
from servers import namespaces


def lines_of(run):
    return sorted(line for line in run.stdout.splitlines() if line.startswith("rank"))


class ByOthers(unittest.TestCase):
    def check(self, launcher, count, **options):
        program = str(driver.BIN / "pmix_driver")
        run = subprocess.run([*launcher, program], text=True, capture_output=True, timeout=200, **options)
        all_texts = ", ".join(f"of {rank + 10 * round_}" for round_ in range(2) for rank in range(count))
        self.assertEqual(lines_of(run), [f"rank {rank} of {count}, {all_texts}" for rank in range(count)], run)
        self.assertEqual(run.returncode, 0, run)
        run = subprocess.run([*launcher, program, "abort"], text=True, capture_output=True, timeout=200, **options)
        self.assertEqual(len(lines_of(run)), count, run)
        self.assertNotEqual(run.returncode, 0, run)
        if namespaces.hindrance() is None:
            left = lambda: [line for line in namespaces.processes().values() if "pmix_driver" in line]  # noqa: E731
            self.assertTrue(namespaces.wait_until(lambda: not left(), 60), left())
        return run

    def test_mpirun(self):
        reason = servers.missing({"mpirun": "openmpi-bin"})
        if reason is None and not re.search(
            "Open MPI", subprocess.run(["mpirun", "--version"], text=True, capture_output=True).stdout
        ):
            reason = "needs PMIx: mpirun is not Open MPI's"
        if reason:
            self.skipTest(reason)
        run = self.check(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3"],
            3,
            env=dict(os.environ, OMPI_MCA_plm_rsh_agent="false"),
        )
        self.assertEqual(run.returncode, 7, run)

    def test_srun(self):
        reason = servers.Slurm.hindrance()
        if reason:
            self.skipTest(reason)
        slurm = servers.Slurm(["n1", "n2"])
        self.addCleanup(slurm.close)
        plugins = slurm.run(["srun", "--mpi=list"])
        if "pmix" not in plugins.stdout + plugins.stderr:
            self.skipTest(f"needs PMIx: this Slurm has no plugin for it: {plugins.stderr.strip()}")
        launcher = slurm.network.hosts[0].command(["srun", "--mpi=pmix", "-N2", "-n4", "--ntasks-per-node=2"])
        self.check(launcher, 4, env=slurm.environment)

    def test_prterun(self):
        if shutil.which("prterun") is None:
            self.skipTest("needs the tool prterun: Debian 12 and Ubuntu 24.04 have no package of PRRTE")
        self.check(["prterun", "--allow-run-as-root", "--map-by", ":oversubscribe", "-n", "3"], 3)


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
    driver.run_tests(None)
