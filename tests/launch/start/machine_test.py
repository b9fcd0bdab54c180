#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whole machines that are started by ssh, Slurm's srun, and other launchers with PMIx, and failures on the way.

    machine_test.py BIN [NAME]         BIN has aprun and apcc"""
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import driver
import servers
from servers import namespaces

HERE = Path(__file__).resolve().parent
CHAOS = HERE.parents[1] / "system" / "chaos"
sys.path.insert(0, str(CHAOS))
from machine import Machine, one_message  # noqa: E402

LOST = 72  # docs/exit-status.md
PROGRAMS = Path("/run/aplib-start-programs")
RING = PROGRAMS / "ring"
ECHO = PROGRAMS / "echo"

# A login shell that prints on both streams before it runs what it is asked to.
NOISE = """ForceCommand echo Be welcome; printf "no end"; printf "no end" >&2; eval "$SSH_ORIGINAL_COMMAND\""""


class SshMachine(unittest.TestCase):
    """Machines that are started by ssh."""

    BESIDE = ()
    ADDRESSES = False  # in the cluster file

    def setUp(self):
        reason = servers.missing(servers.Sshd.NEEDS)
        if reason:
            self.skipTest(reason)

    def prepare(self, made, sshd):
        """Before aprun is started."""

    def run_machine(self, *arguments, program=RING, sshd_more="", host_more=None, **options):
        started = []

        def start_servers(made):
            started.append(servers.Sshd(f"MaxStartups 100\n{sshd_more}", hosts=[*made.hosts, *made.beside]))
            self.addCleanup(started[0].close)
            self.prepare(made, started[0])

        def by_ssh(host):
            more = (host_more or {}).get(host.name, "")
            more = more(host) if callable(more) else more
            if "launch" in more:
                return more
            return (
                f'launch = "ssh"\nssh = "{host.address}"\nssh-options = ["-F", "{started[0].folder.path}/ssh_config"]\n'
                + more
            )

        running = Machine(
            driver.BIN,
            program,
            arguments,
            before=start_servers,
            beside=self.BESIDE,
            addresses=self.ADDRESSES,
            host_more={f"ws{i + 1}": by_ssh for i in range(3)},
            **options,
        )
        self.addCleanup(running.close)
        return running

    def own_ssh(self, running, host):
        """The process id of aprun's ssh to that host."""
        pid, = (
            pid
            for pid, line in namespaces.processes().items()
            if line.startswith("ssh ") and f" -- {host.address} " in line
        )
        return pid

    def check_end(self, running, status, message):
        got, errors = running.end()
        if message:
            one_message(errors, message)
        self.assertEqual((got, len(errors)), (status, 1 if message else 0), running.describe())
        running.check_nothing_left("sshd")

    def check_killed_launcher(self):
        running = self.run_machine()
        running.wait_for("all run")
        running.process.kill()
        self.check_end(running, -signal.SIGKILL, None)


class BySsh(SshMachine):
    ADDRESSES = True

    def test_runs(self):
        running = self.run_machine(1000)
        self.check_end(running, 0, None)
        self.assertEqual(running.lines, ["all run", "all done"])

    def test_killed_node(self):
        running = self.run_machine()
        running.wait_for("all run")
        os.kill(running.node(running.hosts[1]), signal.SIGKILL)
        self.check_end(running, LOST, r"^aprun: ws2 \(cells 2-3\) is lost: its process was killed by signal 9")

    def test_stopped_node_is_killed_on_its_host(self):
        running = self.run_machine(comm_more='peer-timeout = "3s"')
        running.wait_for("all run")
        os.kill(running.node(running.hosts[2]), signal.SIGSTOP)
        self.check_end(
            running,
            LOST,
            r"^aprun: ws3 \(cells 4-5\) is lost: (nothing was heard of it for 3 s|ws\d lost its connection to it: )",
        )

    def test_killed_launcher(self):
        self.check_killed_launcher()

    def test_interrupt(self):
        running = self.run_machine()
        running.wait_for("all run")
        running.process.send_signal(signal.SIGINT)
        self.check_end(running, 130, "^aprun: SIGINT: stopping the machine")

    def test_missing_aprun(self):
        running = self.run_machine(host_more={"ws2": 'aprun = "/opt/no/aprun"'})
        self.check_end(
            running,
            2,
            r"^aprun: host 'ws2': ssh reached it, but there is no /opt/no/aprun.*; install APlib there, .*; nothing was"
            r" started$",
        )


class Mixed(SshMachine):
    """One node by ssh, one beside aprun, and one by a command, which alone calls aprun back."""

    KINDS = {
        "ws2": 'launch = "local"',
        "ws3": lambda host: f'launch = "command"\ncommand = "nsenter --net=/run/netns/{host.namespace} -- {{cmd}}"',
    }

    def test_runs(self):
        running = self.run_machine(1000, host_more=self.KINDS)
        self.check_end(running, 0, None)
        self.assertEqual(running.lines, ["all run", "all done"])

    def test_addresses(self):
        running = self.run_machine(host_more=self.KINDS, options=["--dry-run"])
        self.check_end(running, 0, None)
        for host, why in (
            (running.hosts[0], "by which ssh reached it"),
            (running.desk, "from which it reaches the others"),
            (running.hosts[2], "by which it reached aprun"),
        ):
            self.assertTrue([line for line in running.lines if line.endswith(f"{host.address}  {why}")], running.lines)


class ByJump(SshMachine):
    """The hosts have no route to the desk, and the desk none to them: ssh gets there by a third host, which only the
    user's ssh_config knows."""

    BESIDE = ("gate",)

    def prepare(self, made, sshd):
        gate, = made.beside
        for host in made.hosts:
            for here, there in ((host, made.desk), (made.desk, host)):
                here.run(["ip", "route", "add", "unreachable", f"{there.address}/32"], check=True)
        config = sshd.folder.path / "ssh_config"
        addresses = " ".join(host.address for host in made.hosts)
        config.write_text(f"Host {addresses}\n  ProxyJump {gate.address}\n{config.read_text()}")

    def listeners(self, host):
        tables = host.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], stdout=subprocess.PIPE, text=True, check=True)
        return [line for line in tables.stdout.splitlines() if line.split()[3] == "0A"]

    def test_input_and_output_go_through_and_nobody_listens(self):
        running = self.run_machine(program=ECHO, sshd_more=NOISE)
        running.wait_for("ready")
        self.assertEqual(self.listeners(running.desk), [])
        lines = [f"line {i}" for i in range(5000)]
        running.process.stdin.write("".join(f"{line}\n" for line in lines))
        running.process.stdin.close()
        self.check_end(running, 0, None)
        self.assertEqual(
            [line for line in running.lines if line.startswith("heard")], [f"heard {line}" for line in lines]
        )
        self.assertEqual(
            sorted(line for line in running.lines if line.startswith("cell")), [f"cell {i}" for i in range(6)]
        )

    def test_program_that_they_lack_is_sent(self):
        hidden = Path("/run/aplib-start-hidden")
        namespaces.make_programs(driver.BIN / "apcc", [HERE / "echo.c"], hidden)
        hide = f"""ForceCommand unshare --mount sh -c 'mount -t tmpfs none {hidden} && eval "$SSH_ORIGINAL_COMMAND"'"""
        running = self.run_machine(program=hidden / "echo", sshd_more=hide)
        running.process.stdin.close()
        self.check_end(running, 0, None)
        self.assertEqual(len(running.lines), 1 + 6)

    def test_addresses_are_those_that_ssh_has_reached(self):
        running = self.run_machine(options=["--dry-run"])
        self.check_end(running, 0, None)
        for host in running.hosts:
            self.assertTrue(
                [line for line in running.lines if line.endswith(f"{host.address}  by which ssh reached it")],
                running.lines,
            )

    def test_killed_node(self):
        running = self.run_machine(sshd_more=NOISE)
        running.wait_for("all run")
        os.kill(running.node(running.hosts[1]), signal.SIGKILL)
        self.check_end(running, LOST, r"^aprun: ws2 \(cells 2-3\) is lost: its process was killed by signal 9")

    def test_killed_ssh(self):
        running = self.run_machine()
        running.wait_for("all run")
        os.kill(self.own_ssh(running, running.hosts[1]), signal.SIGKILL)
        self.check_end(
            running,
            LOST,
            r"^aprun: ws2 \(cells 2-3\) is lost: host 'ws2': the ssh connection to it broke: ssh was killed by"
            r" signal 9",
        )

    def test_cut_gate(self):
        running = self.run_machine(comm_more='peer-timeout = "3s"')
        running.wait_for("all run")
        running.network.cut(running.beside[0])
        self.check_end(running, LOST, r"^aprun: ws\d \(cells \d-\d\) is lost: nothing was heard of it for 3 s")

    def test_killed_launcher(self):
        self.check_killed_launcher()

    def test_gate_that_leads_nowhere(self):
        running = self.run_machine(sshd_more="AllowTcpForwarding no")
        self.check_end(
            running,
            2,
            r"^aprun: host 'ws\d': ssh to \S+ failed 2 times \(.*\); the host on the way \(ProxyJump\) does not lead"
            r" there; try .*; nothing was started$",
        )


class BySlurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = servers.Slurm.hindrance()
        if reason:
            raise unittest.SkipTest(reason)
        cls.slurm = servers.Slurm(["n1", "n2", "n3"])
        cls.file = cls.slurm.folder.write("cluster.toml", '[machine]\nlaunch = "slurm"\ncells = 6\n')

    @classmethod
    def tearDownClass(cls):
        cls.slurm.close()

    def launch(self, *arguments):
        words = [
            "salloc",
            "--quiet",
            "-N3",
            "--immediate=100",
            driver.BIN / "aprun",
            "-f",
            self.file,
            RING,
            *map(str, arguments),
        ]
        return self.slurm.network.hosts[0].popen(
            words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.slurm.environment
        )

    def check_nothing_left(self):
        def left():
            return [line for line in namespaces.processes().values() if "aprun" in line or "slurmstepd" in line]
        self.assertTrue(namespaces.wait_until(lambda: not left(), 60), left())

    def test_runs(self):
        run = self.launch(1000)
        out, errors = run.communicate(timeout=200)
        self.assertEqual((run.returncode, out), (0, "all run\nall done\n"), errors)
        one_message(errors.splitlines(), r"^aprun: grid 6x1, cells by .*n1 \d, n2 \d, n3 \d")
        self.check_nothing_left()

    def test_mpiexec_has_the_hosts_of_the_job(self):
        run = self.slurm.network.hosts[0].run(
            ["salloc", "--quiet", "-N3", "-n6", "--immediate=100", driver.BIN.parent / "lib/aplib/mpi/bin/mpiexec",
             "sh", "-c", "echo $SLURMD_NODENAME"],
            text=True, capture_output=True, env=self.slurm.environment, timeout=200)
        self.assertEqual((run.returncode, sorted(run.stdout.split())), (0, ["n1", "n1", "n2", "n2", "n3", "n3"]), run)
        self.check_nothing_left()

    def test_killed_node(self):
        run = self.launch()
        self.assertEqual(run.stdout.readline(), "all run\n")
        nodes = [
            pid for pid, line in namespaces.processes().items() if line.startswith(str(driver.BIN / "aprun --node"))
        ]
        self.assertEqual(len(nodes), 3, namespaces.processes())
        os.kill(nodes[0], signal.SIGKILL)
        _, errors = run.communicate(timeout=200)
        # srun may take long to report how it ended.
        one_message(
            errors.splitlines(),
            r"^aprun: n\d \(cells? [-\d]+\) is lost: its (process was killed by signal 9|connection was closed)",
        )
        self.assertEqual(run.returncode, LOST)
        self.check_nothing_left()


class ByPmix(unittest.TestCase):
    """The other launcher's processes become one machine, and the first of them leads."""

    def check(self, launcher, processes, **options):
        folder = servers.Folder("pmix")
        self.addCleanup(folder.remove)
        file = folder.write("cluster.toml", f'[machine]\nlaunch = "pmix"\ncells = {2 * processes}\n')
        command = [*launcher, driver.BIN / "aprun", "-f", file, RING]
        run = subprocess.run([*command, "1000"], text=True, capture_output=True, timeout=200, **options)
        self.assertEqual((run.returncode, run.stdout), (0, "all run\nall done\n"), run)
        one_message(run.stderr.splitlines(), rf"^aprun: grid {2 * processes}x1, cells by ")

        run = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.assertEqual(run.stdout.readline(), "all run\n")
        found = namespaces.processes()
        self.assertGreaterEqual(
            len([line for line in found.values() if line.startswith(str(driver.BIN / "aprun"))]), processes, found
        )
        node, = (pid for pid, line in found.items() if " --node " in line)  # of the first process, which leads
        os.kill(node, signal.SIGKILL)
        _, errors = run.communicate(timeout=200)
        self.assertNotEqual(run.returncode, 0, errors)
        self.assertTrue(
            namespaces.wait_until(
                lambda: not [line for line in namespaces.processes().values() if "/aprun" in line], 60
            ),
            namespaces.processes(),
        )
        self.assertRegex(errors, r"aprun: \S+ \(cells? [-\d]+\) is lost: ")

    def test_mpirun(self):
        reason = servers.missing({"mpirun": "openmpi-bin"})
        if reason:
            self.skipTest(reason)
        self.check(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3"],
            3,
            env=dict(os.environ, OMPI_MCA_plm_rsh_agent="false"),
        )

    def test_srun(self):
        reason = servers.Slurm.hindrance()
        if reason:
            self.skipTest(reason)
        slurm = servers.Slurm(["n1", "n2"])
        self.addCleanup(slurm.close)
        self.check(slurm.network.hosts[0].command(["srun", "--mpi=pmix", "-N2", "-n2"]), 2, env=slurm.environment)


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
        namespaces.make_programs(driver.BIN / "apcc", [CHAOS / "ring.c", HERE / "echo.c"], PROGRAMS)
    driver.run_tests(namespaces.hindrance())
