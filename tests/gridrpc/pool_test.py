#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Servers of GridRPC on the hosts of a pool, which are this computer with two keepers; and apctl exec.

    pool_test.py BIN         BIN has apctl, apkeeper, aprun, gridrpc-test-server, gridrpc-pool-client"""
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "launch" / "start"))
import driver  # noqa: E402
import servers  # noqa: E402
from servers import namespaces  # noqa: E402

PATIENCE = 120
HOSTS = ("a", "b")


def with_words(*words):
    """The processes whose command lines have all of these."""
    return sorted(pid for pid, line in namespaces.processes().items() if all(word in line for word in words))


class PoolTest(unittest.TestCase):
    def setUp(self):
        self.folder = servers.Folder("gridrpc")
        self.addCleanup(self.folder.remove)
        self.addCleanup(self.end_all)
        text = ""
        for host in HOSTS:
            # Of other programs it is another computer, by what the launcher knows.
            programs = self.folder.path / host
            programs.mkdir()
            for name in ("apkeeper", "aprun"):
                (programs / name).symlink_to(driver.BIN / name)
            text += f'[[host]]\nname = "{host}"\nlaunch = "local"\naprun = "{programs}/aprun"\n'
        done = self.run_it(driver.BIN / "apctl", "up", "-f", self.folder.write("p.toml", text))
        self.assertEqual(done, (0, "pool p: 2 hosts stand ready\n", ""))

    def end_all(self):
        for pid in with_words("apkeeper") + with_words("gridrpc-test-server"):
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", "/run/aptest/aplib"], check=True)

    def run_it(self, *words, text=""):
        environment = dict(os.environ, PATH=f"{driver.BIN}:{os.environ['PATH']}")
        done = subprocess.run([str(word) for word in words], input=text, capture_output=True, text=True,
                              timeout=PATIENCE, cwd=self.folder.path, env=environment)
        return done.returncode, done.stdout, done.stderr

    def check_nothing_left(self, word):
        self.assertTrue(namespaces.wait_until(lambda: not with_words(word), PATIENCE), namespaces.processes())

    def test_servers(self):
        file = self.folder.write(
            "servers.toml", f'[[server]]\npool = "p"\nprogram = "{driver.BIN}/gridrpc-test-server"\nprocesses = 2\n')
        self.assertEqual(self.run_it(driver.BIN / "gridrpc-pool-client", file), (
            0, "twice 21 is 42\nreversed right\nleave: the session failed\nforever: the session was canceled\n", ""))
        self.check_nothing_left("gridrpc-test-server")

    def test_servers_that_are_not_there(self):
        file = self.folder.write(
            "servers.toml", '[[server]]\nname = "s"\npool = "p"\nhost = "b"\nprogram = "/nowhere"\n')
        status, out, errors = self.run_it(driver.BIN / "gridrpc-pool-client", file)
        self.assertEqual((status, out), (1, ""))
        self.assertIn("/nowhere: No such file or directory\n", errors)
        self.assertIn("pool_client: server s (/nowhere in pool p): it ended with status 127 before it had said what it "
                      "offers", errors)

    def test_exec(self):
        apctl = driver.BIN / "apctl"
        large = "0123456789abcdef" * 100_000
        self.assertEqual(self.run_it(apctl, "exec", "p", "cat", text=large), (0, large, ""))
        self.assertEqual(self.run_it(apctl, "exec", "p:b", "sh", "-c", "echo out; echo err >&2; exit 7"),
                         (7, "out\n", "err\n"))
        self.assertEqual(self.run_it(apctl, "exec", "p:c", "true"),
                         (2, "", "apctl: pool p has no host c: it has a, b\n"))
        self.assertEqual(self.run_it(apctl, "exec", "p"), (
            2, "", "apctl: a pool and a program are needed: apctl exec POOL[:HOST] PROGRAM [ARGUMENTS...]\n"))
        waits = subprocess.Popen([apctl, "exec", "p", "sleep", "4711"], stdin=subprocess.DEVNULL)
        self.assertTrue(namespaces.wait_until(lambda: with_words("sleep", "4711"), PATIENCE))
        waits.kill()
        waits.wait()
        self.check_nothing_left("4711")


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
    driver.run_tests(namespaces.hindrance())
