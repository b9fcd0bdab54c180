#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""launch = "slurm" in an allocation of a real cluster: three hosts that are network namespaces."""
import re
import shlex
import unittest

import driver
import servers
from driver import KEY, STAND_IN, Driver
from servers import namespaces


class SlurmJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm = servers.Slurm(["n1", "n2", "n3"])

    @classmethod
    def tearDownClass(cls):
        cls.slurm.close()

    def drive(self, nodes, hosts=3):
        salloc = self.slurm.network.hosts[0].command(["salloc", "--quiet", f"-N{hosts}", "--immediate=20"])
        run = Driver(nodes, prefix=salloc, environment=self.slurm.environment)
        self.addCleanup(run.close)
        return run

    def assert_nothing_left(self):
        left = lambda: [
            line for line in namespaces.processes().values() if "stand_in" in line or "slurmstepd" in line
        ]  # noqa: E731
        self.assertTrue(namespaces.wait_until(lambda: not left(), 60), left())

    def test_every_node_gets_its_part_and_the_key(self):
        # Not in Slurm's order, and two on one host.
        hosts = ["n2", "n1", "n1", "n3"]
        run = self.drive(
            [("slurm", name, "", "", "", [STAND_IN, "print", f"part {i} of {name}"]) for i, name in enumerate(hosts)]
        )
        run.wait("ended", 4)
        for i, name in enumerate(hosts):
            run.wait(f"^said {i} key: {KEY}$")
            run.wait(f"^said {i} <part {i} of {name}>$")
            run.wait(f"ended {i} 0 ")
        self.assertFalse([line for line in run.lines if "srun:" in line], run.lines)

    def test_nodes_run_on_their_hosts(self):
        show = ["sh", "-c", "read key; ip -br address show eth0 | cut -c1-60"]
        run = self.drive([("slurm", name, "", "", "", show) for name in ("n3", "n1", "n2")])
        run.wait("ended . 0", 3)
        addresses = {host.name: host.address for host in self.slurm.network.hosts}
        for i, name in enumerate(("n3", "n1", "n2")):
            run.wait(f"^said {i} .*{re.escape(addresses[name])}/")

    def test_end_of_input_ends_all(self):
        run = self.drive([("slurm", name) for name in ("n1", "n2", "n3")])
        run.wait("arrived", 3)
        lines = run.close()
        self.assertEqual(len([line for line in lines if line.startswith("said") and "end of input" in line]), 3)
        self.assert_nothing_left()

    def test_statuses_are_told_one_by_one(self):
        words = [[STAND_IN, "exit", 3], [STAND_IN, "kill", "KILL"], [STAND_IN, "wait"]]
        run = self.drive([("slurm", f"n{i + 1}", "", "", "", words[i]) for i in range(3)])
        run.wait("ended 0 3 ")
        run.wait("ended 1 137 ")
        run.wait("said 2 arrived")
        self.assertFalse([line for line in run.lines if line.startswith("ended 2")])
        run.close()
        self.assert_nothing_left()

    def test_what_hangs_is_killed(self):
        run = self.drive(
            [("slurm", "n1", "", "", "", [STAND_IN, "hang"]), ("slurm", "n2", "", "", "", [STAND_IN, "stop"])]
        )
        run.wait("arrived", 2)
        run.close()
        self.assert_nothing_left()

    def test_killed_launcher_leaves_nothing(self):
        run = self.drive([("slurm", "n1"), ("slurm", "n2")])
        run.wait("arrived", 2)
        for pid, line in namespaces.processes().items():
            if shlex.split(line)[0].endswith("start_driver"):
                namespaces.os.kill(pid, 9)
        run.close()
        self.assert_nothing_left()

    def test_host_outside_of_the_allocation(self):
        text, = self.drive([("slurm", "n9")]).wait("failed 0")
        self.assertRegex(
            text,
            r"host 'n9': srun ended with status 1 and has not started it \(\"srun: error.*\"\); is the host in the"
            r" allocation \(n\[1-3\]\)\?",
        )

    def test_program_that_is_not_there(self):
        run = self.drive([("slurm", "n1", "", "", "", ["/opt/no/aprun"]), ("slurm", "n2")])
        text, = run.wait("failed 0")
        self.assertRegex(
            text, r"host 'n1': srun reached it, but there is no /opt/no/aprun( \(\".*\"\))?; install APlib there"
        )

    def test_outside_of_an_allocation(self):
        run = Driver([("slurm", "n1")], environment=self.slurm.environment)
        self.addCleanup(run.close)
        text, = run.wait("failed 0")
        self.assertRegex(
            text,
            r'host \'n1\': launch = "slurm" works inside a Slurm allocation only: start aprun from a script of sbatch,'
            r' or under salloc',
        )


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
    driver.run_tests(servers.Slurm.hindrance())
