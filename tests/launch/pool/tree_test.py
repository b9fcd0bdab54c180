#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files down a tree: hosts of a pool get the same files from each other. What leaves the launcher is counted, hosts die
in the middle, and some do not reach each other.

    tree_test.py BIN [NAME]         BIN has aprun, apctl, apkeeper and apfarm
    tree_test.py BIN measure 16 100 100mbit     the time for 100 MB to 1 and to 16 hosts"""
import contextlib
import hashlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "start"))
import driver  # noqa: E402
import servers  # noqa: E402
from servers import namespaces  # noqa: E402

PATIENCE = 120
HOSTS = 6
RUNTIME = Path("/run/aptest/aplib")  # what namespaces.enclose() makes XDG_RUNTIME_DIR
THERE = Path("/run/aptest/there")  # on each host a file system of its own


class Disk:
    """A host of a Network whose processes see a disk of their own at THERE."""

    def __init__(self, host):
        self.host, self.address, self.name = host, host.address, host.name
        self.first = None

    def popen(self, words, **options):
        mount = f'mount -t tmpfs none {THERE} && exec "$@"'
        self.first = self.host.popen(["unshare", "--mount", "sh", "-c", mount, "sh", *words], **options)
        return self.first

    def path(self, name):
        return Path(f"/proc/{self.first.pid}/root{THERE}/{name}")

    def calls(self):
        """Connections that it has called for."""
        with self.host.inside():
            lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("ActiveOpens")])

    def pids(self):
        listed = subprocess.check_output(["ip", "netns", "pids", self.host.namespace], text=True)
        return [int(pid) for pid in listed.split()]


class Lab:
    """A pool of hosts behind limited links, and the desk from which it is used."""

    def __init__(self, count, rate):
        THERE.mkdir(exist_ok=True)
        self.folder = servers.Folder("tree")
        self.network = namespaces.Network([f"ws{i}" for i in range(1, count + 1)] + ["desk"])
        self.hosts, self.desk = [Disk(host) for host in self.network.hosts[:-1]], self.network.hosts[-1]
        self.sshd = servers.Sshd("MaxStartups 100", hosts=self.hosts)
        text = f'[machine]\nssh-options = ["-F", "{self.sshd.folder.path}/ssh_config"]\n'
        for host in self.hosts:
            text += f'[[host]]\nname = "{host.name}"\nssh = "{host.address}"\nfolder = "{THERE}"\ncells = 1\n'
        done = self.run("apctl", "up", "-f", self.folder.write("p.toml", text))
        if done.stdout != f"pool p: {count} hosts stand ready\n":
            raise RuntimeError(done.stdout + done.stderr)
        for host in self.network.hosts:
            self.network.limit(host, rate)
        self.rate = rate

    @contextlib.contextmanager
    def slow(self, rate):
        """What hosts send meanwhile takes longer than the test does."""
        for host in self.network.hosts:
            self.network.limit(host, rate)
        try:
            yield
        finally:
            for host in self.network.hosts:
                self.network.limit(host, self.rate)

    def command(self, program, *words):
        return self.desk.command([driver.BIN / program, *words])

    def run(self, *words):
        return subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, cwd=self.folder.path)

    def start(self, *words):
        return subprocess.Popen(self.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=self.folder.path)

    def sent(self):
        """Bytes that have left the desk."""
        with self.desk.inside():
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        line, = [line for line in lines if line.strip().startswith(f"{self.desk.device}:")]
        return int(line.split(":")[1].split()[8])

    def close(self):
        for pid, line in namespaces.processes().items():
            if "apkeeper" in line or "[mux]" in line:
                os.kill(pid, signal.SIGKILL)
        self.sshd.close()
        self.network.close()
        self.folder.remove()
        subprocess.run(["rm", "-rf", RUNTIME], check=True)


class TreeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = servers.missing(servers.Sshd.NEEDS)
        if reason:
            raise unittest.SkipTest(reason)
        cls.lab = Lab(HOSTS, "80mbit")
        cls.addClassCleanup(cls.lab.close)

    def make(self, megabytes):
        """A tree of files on the desk."""
        self.content = random.Random(megabytes).randbytes(megabytes << 20)
        self.tree = self.lab.folder.path / f"tree{megabytes}"
        (self.tree / "deep").mkdir(parents=True)
        (self.tree / "large").write_bytes(self.content)
        (self.tree / "deep" / "small").write_text("small")
        self.before = self.lab.sent()

    def path(self, host, name=""):
        return host.path(f"{self.tree.name}/{name}")

    def come(self, host):
        """Bytes of the large file that a host has."""
        for name in ("large", ".large.aplib-part"):
            try:
                return self.path(host, name).stat().st_size
            except FileNotFoundError:
                pass
        return 0

    def check(self, hosts):
        for host in hosts:
            self.assertEqual(self.path(host, "large").read_bytes(), self.content, host.name)
            self.assertEqual(self.path(host, "deep/small").read_text(), "small", host.name)
            self.assertEqual(sorted(os.listdir(self.path(host))), ["deep", "large"], host.name)
            self.assertEqual(self.path(host, "deep").stat().st_mode, (self.tree / "deep").stat().st_mode, host.name)

    def check_sent(self, times):
        self.assertGreater(self.lab.sent() - self.before, len(self.content))
        self.assertLess(self.lab.sent() - self.before, times * len(self.content))
        self.before = self.lab.sent()


class Whole(TreeTest):
    def test_each_byte_leaves_once(self):
        self.make(5)
        done = self.lab.run("apctl", "put", self.tree, f"p:{THERE}")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.check(self.lab.hosts)
        self.check_sent(1.5)
        # What differs is refused, or replaced. What is there is not sent again.
        self.path(self.lab.hosts[3], "large").write_bytes(b"other")
        done = self.lab.run("apctl", "put", self.tree, f"p:{THERE}")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^apctl: ws4: .*/large is there and differs.*\n$")
        done = self.lab.run("apctl", "sync", self.tree, f"p:{THERE}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.check(self.lab.hosts)
        self.assertLess(self.lab.sent() - self.before, 1.5 * len(self.content))
        self.assertFalse([line for line in namespaces.processes().values() if " --pass " in line])

    def test_hosts_that_do_not_reach_each_other(self):
        self.make(1)

        def isolate(how):
            for host in self.lab.hosts:
                words = f"link set dev {host.host.port} isolated {how}".split()
                subprocess.run(["bridge", "-n", self.lab.network.switch, *words], check=True)

        self.addCleanup(isolate, "off")
        isolate("on")
        done = self.lab.run("apctl", "put", self.tree, f"p:{THERE}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.check(self.lab.hosts)
        # Nobody tries again, until somebody says that it may work now.
        self.assertEqual(self.calls_of_sync(), 0)
        isolate("off")
        self.assertEqual(self.calls_of_sync(), 0)
        self.assertEqual(self.lab.run("apctl", "up", "p").returncode, 0)
        self.assertGreaterEqual(self.calls_of_sync(), HOSTS - 1)

    def calls_of_sync(self):
        """The connections that hosts have made to get what has changed."""
        before = sum(host.calls() for host in self.lab.hosts)
        self.content = random.Random(before).randbytes(len(self.content))
        (self.tree / "large").write_bytes(self.content)
        done = self.lab.run("apctl", "sync", self.tree, f"p:{THERE}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.check(self.lab.hosts)
        return sum(host.calls() for host in self.lab.hosts) - before

    def test_what_all_jobs_need(self):
        self.make(4)
        name = f"{self.tree.name}/large"
        words = ["--in", "p", "-j1", "--basefile", self.tree.name, f"sha256sum {name}; sleep 0.3", ":::"]
        done = self.lab.run("apfarm", *words, *map(str, range(HOSTS)))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(set(done.stdout.split()), {hashlib.sha256(self.content).hexdigest(), name})
        self.check(self.lab.hosts)
        self.check_sent(2)


    def test_what_all_jobs_need_is_interrupted(self):
        self.make(20)
        with self.lab.slow("8mbit"):
            made = self.lab.start("apfarm", "--in", "p", "-j1", "--basefile", self.tree.name, "echo", ":::", "1")
            self.addCleanup(made.kill)
            self.assertTrue(namespaces.wait_until(lambda: any(map(self.come, self.lab.hosts)), PATIENCE))
            made.send_signal(signal.SIGINT)
            out, _ = made.communicate(timeout=PATIENCE)
        self.assertEqual((made.returncode, out), (130, ""))

        def left():
            return [line for line in namespaces.processes().values() if " --pass " in line]

        self.assertTrue(namespaces.wait_until(lambda: not left(), PATIENCE), left())
        self.assertFalse([host.name for host in self.lab.hosts if self.path(host, "large").exists()])

    def test_what_programs_need(self):
        self.make(6)
        words = ["--send", self.tree.name, "--processes", "sha256sum", f"{self.tree.name}/large"]
        done = self.lab.run("aprun", "--in", "p", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count(hashlib.sha256(self.content).hexdigest()), HOSTS)
        self.check(self.lab.hosts)
        self.check_sent(3)  # a host whose turn comes late, on a busy computer, gets them from here
        # What is there and differs is named as ever.
        self.path(self.lab.hosts[2], "large").write_bytes(b"other")
        done = self.lab.run("aprun", "--in", "p", *words)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^aprun: ws3 .*/large is there and differs.*\n$")


class Death(TreeTest):
    def listening(self, host):
        """The ports at which others are answered: not sshd's."""
        with host.host.inside():
            rows = [line.split() for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]]
        return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"} - {self.lab.sshd.port}

    def check_stranger(self, host):
        """Who does not know the key gets no byte."""
        port, = self.listening(host)
        with host.host.inside(), socket.create_connection((host.address, port), PATIENCE) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" * 20)
            with contextlib.suppress(ConnectionResetError):
                self.assertEqual(stranger.recv(100), b"")

    def test_a_host_dies_in_the_middle(self):
        self.make(12)
        with self.lab.slow("8mbit"):
            made = self.lab.start("apctl", "put", self.tree, f"p:{THERE}")
            self.addCleanup(made.kill)
            self.assertTrue(namespaces.wait_until(lambda: all(map(self.come, self.lab.hosts)), PATIENCE))
            # Each host has less than the one before it.
            dead = sorted(self.lab.hosts, key=self.come)[HOSTS // 2]
            self.assertLess(self.come(dead), len(self.content))
            self.check_stranger(dead)
            for pid in dead.pids():
                with contextlib.suppress(ProcessLookupError):  # it has ended with another one
                    os.kill(pid, signal.SIGKILL)
        _, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual(made.returncode, 1)
        self.assertEqual(set(re.findall(r"ws\d", errors)), {dead.name}, errors)
        self.check([host for host in self.lab.hosts if host is not dead])
        self.check_sent(2)


def measure(count, megabytes, rate):
    lab = Lab(count, rate)
    try:
        file = lab.folder.path / "large"
        file.write_bytes(random.Random(5).randbytes(megabytes * 1_000_000))
        for place in (f"p:ws1:{THERE}/one", f"p:{THERE}/all"):
            before, sent = time.monotonic(), lab.sent()
            done = lab.run("apctl", "put", file, place)
            took = time.monotonic() - before
            print(f"{place}: {took:.2f} s, {(lab.sent() - sent) / 1e6:.0f} MB left the launcher, status "
                  f"{done.returncode} {done.stderr}, load {os.getloadavg()[0]:.2f}", flush=True)
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        same = [hashlib.sha256(host.path("all/large").read_bytes()).hexdigest() == content for host in lab.hosts]
        print(f"{sum(same)} of {len(same)} hosts have it")
    finally:
        lab.close()


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
    if sys.argv[2:3] == ["measure"]:
        driver.BIN = Path(sys.argv[1]).resolve()
        measure(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        driver.run_tests(namespaces.hindrance())
