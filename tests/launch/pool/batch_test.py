#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pools whose hosts a batch system gives: a real Slurm, and stand-ins for Grid Engine's commands. Real ssh servers lead
to the hosts.

    batch_test.py BIN [NAME]         BIN has aprun, apctl, apkeeper and apcc"""
import os
import re
import shlex
import subprocess
import unittest
from pathlib import Path

import pool_test
from pool_test import PATIENCE, RING, driver, namespaces, processes, servers

TMP = Path(f"/tmp/aplib-{os.getuid()}")  # where keepers of jobs have their sockets


class BatchTest(pool_test.PoolTest):
    """`desk` is the computer from which jobs are submitted. No job runs there."""

    def setUp(self):
        super().setUp()
        self.environment = {}

    def lead_to(self, hosts, more=""):
        """ssh servers on the hosts. Returns a cluster file's [machine] that leads to them by their names."""
        sshd = servers.Sshd(f"MaxStartups 100\n{more}", hosts=hosts)
        self.addCleanup(sshd.close)
        config = sshd.folder.path / "ssh_config"
        names = "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in hosts)
        config.write_text(names + config.read_text())
        return f'[machine]\nssh-options = ["-F", "{config}"]\ncells = 4\nspeed = 1\n'

    def command(self, *words):
        given = [f"{name}={value}" for name, value in self.environment.items()]
        return self.desk.command(["env", *given, *super().command(*words)])

    def check_hosts(self, pool, names):
        self.assertEqual([(host["host"], host["way"], host["stands"]) for host in self.hosts(pool)],
                         [(name, "ssh", True) for name in names])
        plan = self.run_it("aprun", "--in", pool, "--dry-run", RING).stdout
        self.assertEqual(plan.count("by which ssh reached it"), len(names), plan)
        self.check_runs(pool=pool)

    def check_no_keeper(self):
        self.assertTrue(namespaces.wait_until(lambda: not processes("apkeeper"), PATIENCE), namespaces.processes())

    def submit(self, name, text, system, *options):
        """Its job's number and folder."""
        file = self.folder.write(f"{name}.toml", text)
        done = self.run_it("apctl", "up", f"--submit{system}", "-f", file, "--folder", self.folder.path, "--",
                           *options)
        found = re.fullmatch(
            rf"pool {name}: job (\d+) of (Slurm|Grid Engine) is submitted, and writes to (\S+)/output; apctl hosts"
            rf" {name} says whether it has begun\n",
            done.stdout,
        )
        self.assertTrue(found, done.stdout)
        return found[1], Path(found[3])

    def check_refused(self, pool, why):
        """Nothing runs in the pool, which says why."""
        for words in ("aprun", "--in", pool, RING), ("apctl", "hosts", pool), ("apctl", "up", pool):
            status = 2 if words[0] == "aprun" else 1
            self.assertRegex(self.run_it(*words, status=status).stderr, rf"^{words[0]}: pool {pool}: job \d+ of {why}")


class BySlurm(BatchTest):
    @classmethod
    def setUpClass(cls):
        reason = servers.missing(servers.Sshd.NEEDS) or servers.Slurm.hindrance()
        if reason:
            raise unittest.SkipTest(reason)
        cls.slurm = servers.Slurm(["n1", "n2", "n3"], beside=["desk"])
        os.environ.update(cls.slurm.environment)

    @classmethod
    def tearDownClass(cls):
        cls.slurm.close()

    def setUp(self):
        super().setUp()
        *self.nodes, self.desk = self.slurm.network.hosts

    def allocate(self, hosts):
        """Has an allocation, in which this test's commands run, until its input is closed."""
        tell = "env | grep ^SLURM_; echo; exec cat"
        made = self.desk.popen(["salloc", "--quiet", f"-N{hosts}", "--exclusive", "--immediate=60", "sh", "-c", tell],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(made.communicate)
        self.environment = dict(line.rstrip("\n").split("=", 1) for line in iter(made.stdout.readline, "\n"))
        return made

    def release(self, made):
        made.communicate(timeout=PATIENCE)
        self.environment = {}

    def test_in_an_allocation(self):
        file = self.folder.write("p.toml", self.lead_to(self.nodes) + 'launch = "slurm"\n')
        self.assertRegex(self.run_it("apctl", "up", "-f", file, status=2).stderr,
                         "works inside a Slurm allocation only: ")
        allocation = self.allocate(2)
        self.assertEqual(self.run_it("apctl", "up", "-f", file).stdout, "pool p: 2 hosts stand ready\n")
        self.assertEqual(len(processes("apkeeper")), 2)
        self.check_hosts("p", ["n1", "n2"])
        self.assertEqual(self.run_it("apctl", "up", "-f", file).stdout, "pool p: 2 hosts stand ready\n")
        # It ends with its allocation, and is made again in the next one.
        self.release(allocation)
        self.check_no_keeper()
        self.check_refused("p", "Slurm has ended")
        allocation = self.allocate(3)
        self.assertEqual(self.run_it("apctl", "up", "-f", file).stdout, "pool p: 3 hosts stand ready\n")
        self.run_it("apctl", "down", "p")
        self.check_no_keeper()
        self.release(allocation)

    def test_submitted(self):
        all_hosts = self.allocate(3)
        self.environment = {}
        number, folder = self.submit("q", self.lead_to(self.nodes) + "need = 1\n", "", "--nodes=2", "--time=10")
        self.assertEqual((folder / "key").stat().st_mode & 0o777, 0o600)
        self.check_refused("q", r"Slurm still waits for its hosts \(PENDING.*\): ")
        self.release(all_hosts)
        # Nobody says that a job has begun, and that its keepers stand.
        self.assertTrue(namespaces.wait_until(lambda: (folder / "hosts").exists() and
                                              (folder / "hosts").read_text().count("stands") == 2, PATIENCE))
        self.check_hosts("q", ["n1", "n2"])
        os.kill(processes("apkeeper")[0], 9)
        self.assertTrue(namespaces.wait_until(lambda: "ended " in (folder / "hosts").read_text(), PATIENCE))
        self.assertRegex(self.run_it("aprun", "--in", "q", RING, 100).stderr,
                         r"^aprun: runs on 1 of 2 hosts, without n\d: ")
        self.assertRegex(self.run_it("apctl", "up", "q", status=1).stderr,
                         r"^apctl: host 'n\d': no keeper stands there: job \d+ of Slurm starts each once, and /")
        self.assertEqual(self.slurm.run(["scancel", number]).returncode, 0)
        self.check_no_keeper()
        self.assertTrue(namespaces.wait_until(
            lambda: "CANCELLED" in self.slurm.run(["squeue", "-ht", "all", "-j", number, "-o", "%T"]).stdout, PATIENCE))
        self.check_refused("q", r"Slurm has ended \(CANCELLED")
        self.run_it("apctl", "down", "q")
        self.assertFalse(folder.exists())

    def test_without_ways_by_ssh_alone(self):
        machine = self.lead_to(self.nodes[:1], "AllowStreamLocalForwarding no")  # and no server on the second host
        _, folder = self.submit("q", machine, "=slurm", "--nodes=2")
        self.assertTrue(namespaces.wait_until(lambda: (folder / "hosts").exists() and
                                              (folder / "hosts").read_text().count("stands") == 2, PATIENCE))
        self.check_hosts("q", ["n1", "n2"])
        self.run_it("apctl", "down", "q")
        self.check_no_keeper()

    def test_down_ends_the_job(self):
        number, folder = self.submit("q", "", "=slurm", "--nodes=1")
        self.assertTrue(namespaces.wait_until(lambda: processes("apkeeper"), PATIENCE))
        self.run_it("apctl", "down", "q")
        self.check_no_keeper()
        self.assertFalse(folder.exists())
        self.assertTrue(namespaces.wait_until(
            lambda: not self.slurm.run(["squeue", "-h", "-j", number]).stdout, PATIENCE))

    def test_refused(self):
        file = self.folder.write("q.toml", '[[host]]\nname = "n1"\n')
        self.assertRegex(self.run_it("apctl", "up", "--submit", "-f", file, status=2).stderr,
                         r"^apctl: /.*/q.toml:1: \[\[host\]\] n1: the batch system gives the hosts of this pool")
        words = ("--submit", "--name", "q", "--folder", self.folder.path, "--", "--partition=no")
        self.assertRegex(
            self.run_it("apctl", "up", *words, status=1).stderr,
            r"^apctl: Slurm took no job \(sbatch: error: .*`sbatch --parsable '--partition=no' ",
        )
        self.assertEqual(list(self.folder.path.glob("q-*")), [])
        self.assertRegex(self.run_it("apctl", "hosts", "q", status=2).stderr, "^apctl: there is no pool q")


class ByGridEngine(BatchTest):
    """qsub writes down what it is given. The test is the batch system."""

    STAND_INS = {
        "qsub": 'printf "%s\\n" "$@" > words; echo 7',
        "qstat": "cat state",
        "qdel": "echo $1 > deleted",
        "qrsh": 'shift; name=$1; shift; exec nsenter --net=/run/netns/$(cat $name) -- "$@"',
    }

    def setUp(self):
        reason = servers.missing(servers.Sshd.NEEDS)
        if reason:
            self.skipTest(reason)
        super().setUp()
        network = namespaces.Network(["g1", "g2", "desk"])
        self.addCleanup(network.close)
        *self.nodes, self.desk = network.hosts
        self.path = self.folder.path / "bin"
        self.path.mkdir()
        for name, script in self.STAND_INS.items():
            self.folder.write(f"bin/{name}", f"#!/bin/sh\ncd {shlex.quote(str(self.path))}\n{script}\n", 0o755)
        for host in self.nodes:
            (self.path / host.name).write_text(host.namespace)
        self.environment = {"PATH": f"{self.path}:{os.environ['PATH']}"}

    def state(self, word):
        text = f"job-ID  prior   name\n------\n      7 0.55500 aplib-g    root         {word}    \n" if word else ""
        (self.path / "state").write_text(text)

    def test_submitted(self):
        machine = self.lead_to(self.nodes)
        number, folder = self.submit("g", machine, "=sge", "-pe", "mpi", "4")
        words = (self.path / "words").read_text().split("\n")
        self.assertEqual((number, words), ("7", ["-terse", "-pe", "mpi", "4", str(folder / "script"), ""]))
        self.state("qw")
        self.check_refused("g", r"Grid Engine still waits for its hosts \(qw\): ")
        self.state("r")
        self.check_refused("g", r"Grid Engine runs \(r\), and its keepers are not there yet")
        hosts = self.folder.write("pe_hosts", "g1 2 main.q@g1 UNDEFINED\ng2 2 main.q@g2 UNDEFINED\n")
        output = open(folder / "output", "wb")
        self.addCleanup(output.close)
        job = self.nodes[0].popen(["sh", words[-2]], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                  env=dict(os.environ, **self.environment, PE_HOSTFILE=str(hosts)))
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.assertTrue(namespaces.wait_until(lambda: (folder / "hosts").exists() and
                                              (folder / "hosts").read_text().count("stands") == 2, PATIENCE))
        self.check_hosts("g", ["g1", "g2"])
        self.run_it("apctl", "exec", "g:g2", "true")
        self.run_it("apctl", "down", "g")
        self.check_no_keeper()
        self.assertEqual((job.wait(PATIENCE), (self.path / "deleted").read_text()), (0, "7\n"))

    def test_a_job_that_ends_by_itself(self):
        machine = self.lead_to(self.nodes)
        _, folder = self.submit("g", machine, "=sge")
        (folder / "hosts").write_text("g1\nended 0\nover\n")
        self.state("")
        self.check_refused("g", f"Grid Engine has ended, and its keepers with it: {folder}/output may say why")
        self.run_it("apctl", "down", "g")


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
        TMP.mkdir(mode=0o700, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "none", TMP], check=True)
        chaos = pool_test.HERE.parents[1] / "system" / "chaos"
        namespaces.make_programs(driver.BIN / "apcc", [chaos / "ring.c"], RING.parent)
    driver.run_tests(namespaces.hindrance())
