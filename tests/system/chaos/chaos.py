#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Faults of machines of real processes: one clear message with host, cells and cause, the right exit status, and
nothing left behind.

chaos.py BIN [-k NAME]         BIN has aprun and apcc"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import machine
from machine import Machine, namespaces, one_message, send_garbage
from sites import Wan  # machine.py has set the path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.argv[1]).resolve()
PROGRAMS = Path("/run/aplib-chaos-programs")  # on a separate file system
LOST = 72  # docs/exit-status.md
SHORT = 'peer-timeout = "2s"'  # on a busy computer half a second of silence is no death
# The launcher notices it, or another host that waits for it.
UNHEARD = r"(nothing was heard of it for 2 s \(peer-timeout\)|ws\d lost its connection to it: .*); the machine stops$"


def hide(folder, instead=""):
    """Lines of a [[host]] that does not see this computer's `folder`. `instead` is a command that fills the empty
    one."""
    return lambda host: (
        f"launch = \"command\"\ncommand = '''nsenter --net=/run/netns/{host.namespace} -- unshare --mount sh -c "
        f"'mount -t tmpfs none {folder} && {instead or 'true'} && exec \"$@\"' sh {{cmd}}'''"
    )


class Chaos(unittest.TestCase):
    def setUp(self):
        self.random = machine.seeded()

    def run_machine(self, program="ring", arguments=(), **options):
        running = Machine(BIN, PROGRAMS / program, arguments, **options)
        self.addCleanup(running.close)
        return running

    def run_until_a_round(self, running):
        """Waits until the ring is somewhere in its first rounds; the seed determines where."""
        running.wait_for("all run")
        running.wait_for(f"round {2 ** self.random.randrange(11)}")

    def wait_for_descriptors(self, running, pid):
        """Waits for a moment during the start of a process. The seed determines which."""
        self.assertTrue(running.wait_for_descriptors(pid, self.random.randrange(3, 24)), running.describe())

    def check_end(self, running, status, message, lines=1):
        got, errors = running.end()
        if message:
            one_message(errors, message)
        self.assertEqual((got, len(errors)), (status, lines), running.describe())
        running.check_nothing_left()
        self.assertEqual(running.files(), [], "left behind")
        return errors

    def injure(self, **options):
        """A running machine, and one of its hosts with the cells that it carries."""
        running = self.run_machine(**options)
        self.run_until_a_round(running)
        number = self.random.randrange(len(running.hosts))
        first = number * Machine.CELLS
        return (
            running,
            running.hosts[number],
            rf"^aprun: ws{number + 1} \(cells {first}-{first + Machine.CELLS - 1}\) is lost: ",
        )

    def wait_for_connection(self, running, host, has):
        """Waits until one of the host's connections `has` it."""
        self.assertTrue(
            namespaces.wait_until(lambda: any(map(has, host.connections())), machine.PATIENCE), running.describe()
        )

    def stop_shortly(self, running, seconds):
        """Stops one process until something waits for it unread, and for some seconds more. It wakes up before its time
        is over, and nobody notices."""
        running.wait_for("all run")
        host = self.random.choice(running.hosts)
        pid = running.node(host)
        os.kill(pid, signal.SIGSTOP)
        self.wait_for_connection(running, host, lambda connection: connection.unread > 0)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        self.check_end(running, 0, None, 0)
        self.assertIn("all done", running.lines)

    def test_killed_node(self):
        running, host, lost = self.injure()
        os.kill(running.node(host), signal.SIGKILL)
        self.check_end(running, LOST, lost + r"its process was killed by signal 9 \(Killed\); the machine stops$")

    def test_crashed_node(self):
        running, host, _ = self.injure()
        os.kill(running.node(host), signal.SIGSEGV)
        got, errors = running.end()
        self.assertNotEqual(got, 0)
        self.assertIn(host.name, errors[-1])
        running.check_nothing_left()

    def test_two_killed_nodes(self):
        """The message names one of them."""
        running, host, _ = self.injure()
        other = self.random.choice([one for one in running.hosts if one is not host])
        pids = [running.node(one) for one in (host, other)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the machine may have ended for the first
                os.kill(pid, signal.SIGKILL)
        self.check_end(
            running,
            LOST,
            rf"^aprun: ({host.name}|{other.name}) \(cells \d-\d\) is lost: its process was killed by signal 9"
            r" \(Killed\)",
        )

    def test_killed_node_while_it_starts(self):
        """At any moment, either the machine runs, or the launcher says which host is missing."""
        for _ in range(3):
            running = self.run_machine()
            host = self.random.choice(running.hosts)
            pids = []

            def begun():
                try:
                    pids.append(running.node(host))
                except AssertionError:
                    return False
                return True

            self.assertTrue(namespaces.wait_until(begun, machine.PATIENCE, 0.001), running.describe())
            self.wait_for_descriptors(running, pids[0])
            os.kill(pids[0], signal.SIGKILL)
            got, errors = running.end()
            self.assertIn(got, (2, LOST), running.describe())
            one_message(errors, rf"^aprun: .*{host.name}.*killed by signal 9")
            self.assertEqual(len(errors), 1, running.describe())
            running.check_nothing_left()
            self.assertEqual(running.files(), [])

    def test_stopped_node(self):
        running, host, lost = self.injure(comm_more=SHORT)
        os.kill(running.node(host), signal.SIGSTOP)
        self.check_end(running, LOST, lost + UNHEARD)

    def test_shortly_stopped_node(self):
        self.stop_shortly(self.run_machine(arguments=[20000], comm_more='peer-timeout = "5s"'), 0)

    def test_cut_link(self):
        running, host, lost = self.injure(comm_more=SHORT)
        running.network.cut(host)
        self.check_end(running, LOST, lost + UNHEARD)

    def test_shortly_cut_link(self):
        running = self.run_machine(arguments=[20000], comm_more='peer-timeout = "10s"')
        running.wait_for("all run")
        host = self.random.choice(running.hosts)
        running.network.cut(host)
        self.wait_for_connection(running, host, lambda connection: connection.repeats > 0)
        running.network.join(host)
        self.check_end(running, 0, None, 0)
        self.assertIn("all done", running.lines)

    def test_blinking_link(self):
        """A link that fails for moments is alive, though it fails each time when what was lost is sent again after
        pauses that double: 0.2, 0.6, 1.4, 3 and 6.2 s behind the first cut."""
        running = self.run_machine(comm_more='peer-timeout = "4s"')
        running.wait_for("all run")
        host = self.random.choice(running.hosts)
        begin = time.monotonic()
        for at, change in ((0, "cut"), (1.8, "join"), (2.75, "cut"), (3.4, "join"), (6, None)):
            time.sleep(max(0, begin + at - time.monotonic()))
            if change:
                getattr(running.network, change)(host)
        with running.more:
            count = len(running.lines)
            running.more.wait_for(lambda: len(running.lines) > count or running.process.poll() is not None, 30)
        self.assertEqual(running.process.poll(), None, running.describe())
        running.process.send_signal(signal.SIGINT)
        self.check_end(running, 130, "^aprun: SIGINT: stopping the machine")

    # By libfabric over TCP, whose provider says nothing of a peer that is silent.
    RDMA = 'module = "rdma"\nprovider = "tcp"\n'

    def test_stopped_node_by_rdma(self):
        running, host, lost = self.injure(arguments=[0, 100000], comm_more=self.RDMA + SHORT)
        os.kill(running.node(host), signal.SIGSTOP)
        self.check_end(running, LOST, lost)

    def test_shortly_stopped_node_by_rdma(self):
        options = self.RDMA + 'peer-timeout = "8s"'
        self.stop_shortly(self.run_machine(arguments=[2000, 100000], comm_more=options), 4.8)

    def test_cut_link_by_rdma(self):
        running, host, lost = self.injure(arguments=[0, 100000], comm_more=self.RDMA + SHORT)
        running.network.cut(host)
        self.check_end(running, LOST, lost)

    def test_slow_link(self):
        """Messages that take longer than the limit are not a death, because bytes arrive in between."""
        running = self.run_machine(arguments=[3, 200000], rate="2mbit", comm_more=SHORT)
        self.check_end(running, 0, None, 0)
        self.assertIn("all done", running.lines)

    def far_apart(self):
        """Round trips of 100 ms between all hosts, and to the launcher's."""
        reason = Wan.hindrance()
        if reason:
            self.skipTest(reason)
        return Wan(BIN / "wan", delay="50ms", rate="100Mb/s")

    def test_far_hosts(self):
        """The time that a message takes is not silence."""
        running = self.run_machine(arguments=[10, 300000], wan=self.far_apart(), comm_more=SHORT)
        self.check_end(running, 0, None, 0)
        self.assertIn("all done", running.lines)

    def test_cut_between_far_hosts(self):
        """The launcher still reaches both."""
        running = self.run_machine(wan=self.far_apart(), comm_more=SHORT)
        running.wait_for("all run")
        one, other = self.random.sample(running.hosts, 2)
        running.network.wan.cut(one, other)
        running.network.wan.cut(other, one)
        self.check_end(running, LOST, r"^aprun: ws\d \(cells \d-\d\) is lost: " + UNHEARD)

    def test_launcher_is_cut_off(self):
        """Its hosts end by themselves, and so does the launcher."""
        running = self.run_machine(comm_more=SHORT)
        running.wait_for("all run")
        running.network.cut(running.desk)
        got, errors = running.end()
        self.assertEqual(got, LOST, running.describe())
        self.assertRegex("\n".join(errors), "is lost: " + UNHEARD)
        running.check_nothing_left()

    def test_killed_launcher(self):
        running = self.run_machine(host_more=None)
        self.run_until_a_round(running)
        running.process.kill()
        self.check_end(running, -signal.SIGKILL, None, 0)

    def test_killed_launcher_while_it_starts(self):
        running = self.run_machine()
        self.wait_for_descriptors(running, running.process.pid)
        running.process.kill()
        running.end()
        running.check_nothing_left()
        self.assertEqual(running.files(), [])

    def test_interrupts(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            running = self.run_machine()
            self.run_until_a_round(running)
            running.process.send_signal(number)
            self.check_end(running, status, f"^aprun: {number.name}: stopping the machine")

    def test_full_disk_for_output(self):
        disk = []

        def make_disk(running):
            disk.append(running.folder / "disk")
            disk[0].mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk[0]], check=True)

        running = self.run_machine("writer", [20000], before=make_disk, options=["--output", "disk/out"])
        got, errors = running.end()
        subprocess.run(["umount", disk[0]], check=True)
        one_message(errors, r"^aprun: cannot write .*disk/out: No space left on device$")
        self.assertNotEqual(got, 0)
        self.assertLessEqual(len(errors), 2, errors)
        running.check_nothing_left()

    def test_reader_of_the_output_goes(self):
        running = self.run_machine("writer")
        with running.more:
            running.more.wait_for(lambda: len(running.lines) > 10, machine.PATIENCE)
        reader = subprocess.run(["sh", "-c", f"kill -TERM {running.process.pid}"], check=True)
        self.assertEqual(reader.returncode, 0)
        got, _ = running.end()
        self.assertEqual(got, 143)
        running.check_nothing_left()

    def test_program_is_sent_to_a_host_that_lacks_it(self):
        """... or has another file of that name there. No file stays, even after a kill."""
        for instead in ("", f"cp /bin/true {PROGRAMS}/ring"):
            running = self.run_machine(host_more={"ws2": hide(PROGRAMS, instead)})
            running.wait_for("all run")
            self.assertTrue(running.files(), "a copy for ws2 while it runs")
            os.kill(running.node(running.hosts[1]), signal.SIGKILL)
            running.end()
            running.check_nothing_left()
            self.assertEqual(running.files(), [])

    def test_full_disk_for_the_program(self):
        small = Path("/run/aplib-chaos-small")  # removed with our mounts
        small.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", small], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "-l", small], check=True))
        running = self.run_machine(
            host_more={"ws2": lambda host: hide(PROGRAMS)(host).replace("exec ", f"TMPDIR={small} exec ")}
        )
        self.check_end(running, 2, r"^aprun: ws2 is not ready: .*No space left on device.*; nothing was started$")
        self.assertEqual(list(small.iterdir()), [])

    def lose_while_files_come(self, injure, message, **options):
        """A host goes, at any moment while it gets a file. Nothing starts, and no part of the file stays."""
        with tempfile.TemporaryDirectory() as name:
            top = Path(name)
            big = top / "big"
            big.write_bytes(self.random.randbytes(2**25))
            for i in range(3):
                (top / f"ws{i + 1}").mkdir()
            running = self.run_machine(
                rate="50mbit",
                host_more={f"ws{i + 1}": f'folder = "{top}/ws{i + 1}"' for i in range(3)},
                options=("--send", f"{big}:in/big"),
                **options,
            )
            host = running.hosts[1]
            wanted = self.random.randrange(1, 2**23)

            def has_come():
                try:
                    fds = Path(f"/proc/{running.node(host)}/fd")
                    return any(str(top) in os.readlink(fd) and os.stat(fd).st_size >= wanted for fd in fds.iterdir())
                except (AssertionError, FileNotFoundError):
                    return False

            self.assertTrue(namespaces.wait_until(has_come, machine.PATIENCE), running.describe())
            injure(running, host)
            self.check_end(running, 2, message)
            self.assertEqual([path for path in (top / "ws2").rglob("*") if path.is_file()], [])
            for path in top.glob("ws?/in/*"):
                self.assertEqual((path.name, path.stat().st_size), ("big", 2**25))

    def test_killed_while_files_come(self):
        self.lose_while_files_come(
            lambda running, host: os.kill(running.node(host), signal.SIGKILL),
            r"^aprun: ws2 is not ready: its process was killed by signal 9 .*; nothing was started$",
        )

    def test_cut_off_while_files_come(self):
        self.lose_while_files_come(
            lambda running, host: running.network.cut(host),
            r"^aprun: ws2 is not ready: nothing was heard of it for 2 s \(peer-timeout\); nothing was started$",
            comm_more=SHORT,
        )

    def test_bad_version(self):
        """One host has an aprun of another version."""
        running = self.run_machine(host_more={"ws2": f'aprun = "{BIN}/aprun_of_another_version"'})
        self.check_end(
            running,
            2,
            r"^aprun: ws2 has APlib 0\.0\.9 \(control protocol \d+\), and this is APlib \d.* \(control .*\): install"
            r" the same version",
        )

    def test_missing_aprun(self):
        running = self.run_machine(host_more={"ws3": 'aprun = "/opt/no/aprun"'})
        errors = self.check_end(running, 2, r"^aprun: .*ws3.*/opt/no/aprun.*; nothing was started$")
        self.assertEqual(running.lines, [], errors)

    # Two processes on each of two hosts: shared memory inside a host, sockets between them.
    TWO_AND_TWO = {"nodes": 2, "host_more": {"ws1": "count = 2", "ws2": "count = 2"}}

    def test_mixture_chosen(self):
        running = self.run_machine(arguments=[0, 8], **self.TWO_AND_TWO)
        running.wait_for("all run")
        asked = running.desk.run(
            [BIN / "apctl", "status"],
            env=dict(os.environ, XDG_RUNTIME_DIR=str(running.folder)),
            capture_output=True,
            text=True,
        )
        ways = {
            tuple(words[:2]): words[2]
            for words in (line.split() for line in asked.stdout.partition("with  by\n")[2].splitlines())
        }
        expected = {
            (a, b): "shm," if (a, b) in (("0", "1"), ("2", "3")) else "tcp" for a in "0123" for b in "0123" if a < b
        }
        self.assertEqual(ways, expected, asked.stdout + asked.stderr)
        running.process.send_signal(signal.SIGINT)
        self.check_end(running, 130, "^aprun: SIGINT: stopping the machine")

    def test_mixture_with_large_messages(self):
        running = self.run_machine(arguments=[300, 300000], **self.TWO_AND_TWO)
        self.check_end(running, 0, None, 0)
        self.assertIn("all done", running.lines)

    def test_mixture_with_a_killed_node(self):
        running = self.run_machine(**self.TWO_AND_TWO)
        self.run_until_a_round(running)
        host = self.random.choice(running.hosts)
        os.kill(running.node(host), signal.SIGKILL)
        self.check_end(
            running,
            LOST,
            rf"^aprun: {host.name}-[12] \(cells \d-\d\) is lost: its process was killed by signal 9 \(Killed\); the"
            r" machine stops$",
        )

    # Ranks of MPI that are ordinary processes, each with a node of its own.
    A_PROCESS = r"^aprun: ws\d-\d \(cell \d\) is lost: "

    def run_processes(self, comm_more=""):
        mpicc = BIN.parent / "lib" / "aplib" / "mpi" / "bin" / "mpicc"
        subprocess.run([mpicc, HERE / "mpi_ring.c", "-o", PROGRAMS / "mpi_ring"], check=True)
        running = self.run_machine("mpi_ring", options=["--processes"], comm_more=comm_more)
        self.run_until_a_round(running)
        return running

    def kill_a_rank(self, comm_more):
        running = self.run_processes(comm_more)
        ranks = [pid for pid, line in namespaces.processes().items() if line.startswith("aprun --direct ")]
        self.assertEqual(len(ranks), len(running.hosts) * Machine.CELLS, running.describe())
        killed = self.random.choice(ranks)
        os.kill(killed, signal.SIGKILL)
        self.check_end(running, 128 + signal.SIGKILL,
                       self.A_PROCESS + rf"its process {killed} was killed by signal 9 \(Killed\); the machine stops$")

    def test_killed_process_of_a_rank(self):
        self.kill_a_rank("")

    def test_killed_process_of_a_rank_by_rdma(self):
        self.kill_a_rank(self.RDMA)

    def test_killed_node_of_a_process(self):
        running = self.run_processes()
        os.kill(running.node(self.random.choice(running.hosts)), signal.SIGKILL)
        self.check_end(running, LOST,
                       self.A_PROCESS + r"its process was killed by signal 9 \(Killed\); the machine stops$")

    def test_cut_link_of_processes(self):
        running = self.run_processes(SHORT)
        running.network.cut(self.random.choice(running.hosts))
        got, errors = running.end()
        self.assertEqual(got, LOST, running.describe())
        self.assertRegex(errors[-1], self.A_PROCESS)
        running.check_nothing_left()

    def test_killed_launcher_of_processes(self):
        running = self.run_processes()
        running.process.kill()
        running.end()
        running.check_nothing_left()

    def test_pair_without_module(self):
        running = self.run_machine(comm_more='module = "shm"', nodes=2)
        got, errors = running.end()
        self.assertEqual((got, running.lines), (2, []))
        one_message(
            errors,
            r"^aprun: ws[12] is not ready: no module joins it to ws[12]: it has shm, ws[12] has shm; .*; nothing was"
            r" started$",
        )
        running.check_nothing_left()

    def test_host_that_does_not_start(self):
        running = self.run_machine(
            host_more={"ws2": "launch = \"command\"\ncommand = '''read -r key; echo out of order >&2; exit 3; {cmd}'''"}
        )
        got, errors = running.end()
        self.assertEqual((got, running.lines), (2, []))
        one_message(errors, r"^aprun: .*ws2.*ended with status 3.*out of order.*nothing was started$")
        running.check_nothing_left()

    def test_strangers(self):
        """Garbage at every port of every host while the machine runs has no effect."""
        running = self.run_machine()
        running.wait_for("all run")
        ports, failed = send_garbage(running.network.hosts, self.random.randbytes(2000))
        self.assertEqual(failed, [])
        self.assertGreaterEqual(ports, 2, "nobody listens?")
        running.process.send_signal(signal.SIGINT)
        self.check_end(running, 130, "^aprun: SIGINT: stopping the machine")


if __name__ == "__main__":
    namespaces.run_tests(BIN / "apcc", [HERE / f"{name}.c" for name in ("ring", "writer")], PROGRAMS)
