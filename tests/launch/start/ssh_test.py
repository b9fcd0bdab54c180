#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""launch = "ssh" against real servers."""
import os
import signal
import socket
import time
import unittest
from pathlib import Path

import driver
import servers
from driver import KEY, STAND_IN, Driver
from servers import namespaces

ENCLOSED = namespaces.hindrance() is None


class Ssh(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sshd = servers.Sshd("MaxStartups 100")

    @classmethod
    def tearDownClass(cls):
        cls.sshd.close()

    def drive(self, nodes, sshd=None):
        run = Driver(nodes, (sshd or self.sshd).command)
        self.addCleanup(run.close)
        return run

    def one(self, words, folder="", address="127.0.0.1"):
        return self.drive([("ssh", "ws1", address, folder, "", words)])

    def assert_nothing_left(self):
        if ENCLOSED:
            self.assertTrue(
                namespaces.wait_until(
                    lambda: not any("stand_in" in line for line in namespaces.processes().values()), 60
                ),
                namespaces.processes(),
            )

    def test_key_goes_by_standard_input_and_its_end_ends_the_node(self):
        run = self.one([STAND_IN, "wait"])
        run.wait("said 0 arrived")
        run.wait(f"said 0 key: {KEY}")
        if ENCLOSED:  # nobody sees it
            self.assertFalse([line for line in namespaces.processes().values() if KEY in line])
        lines = run.close()
        self.assertIn("said 0 end of input", lines)
        self.assertEqual(lines[-2:], ["gone", "end"])
        self.assert_nothing_left()

    def test_words_arrive_as_they_are(self):
        words = ["a b", "it's", '"', "$HOME", "*", "", "\\", "!x", "ü", "a;b&c|d"]
        run = self.one([STAND_IN, "print", *words])
        run.wait("ended 0 0")
        self.assertEqual(
            [line for line in run.lines if "<" in line and line.startswith("said")],
            [f"said 0 <{word}>" for word in words],
        )

    def test_what_login_shells_say_is_not_the_nodes(self):
        banner = self.sshd.folder.write("banner", "no trespassing\n", 0o644)
        other = servers.Sshd(f"Banner {banner}")
        self.addCleanup(other.close)
        run = self.drive([("ssh", "ws1", "127.0.0.1", "", "", [STAND_IN, "exit", 4])], other)
        run.wait("ended 0 4 ")
        self.assertFalse([line for line in run.lines if "trespassing" in line], run.lines)

    def test_what_login_shells_say_is_shown_when_they_start_nothing(self):
        other = servers.Sshd("ForceCommand echo This account is closed.; exit 1")
        self.addCleanup(other.close)
        text, = self.drive([("ssh", "ws1", "127.0.0.1")], other).wait("failed 0")
        self.assertRegex(
            text,
            r"host 'ws1': ssh ended with status 1 before aprun ran there \(\"This account is closed\.\"\); what does"
            r" its login shell do",
        )

    def test_folder(self):
        folder = self.sshd.folder.path / "it's a folder"
        folder.mkdir(exist_ok=True)
        self.one([STAND_IN, "wait"], folder=str(folder)).wait(f"said 0 in {folder}")
        run = self.drive([("ssh", "ws1", "127.0.0.1")])
        run.wait(f"said 0 in {os.getcwd()}$")
        text, = self.one([STAND_IN, "wait"], folder="/no/such").wait("failed 0")
        self.assertRegex(text, r"host 'ws1': ssh reached it, but it has no folder /no/such; make it, or give another")

    def test_program_that_is_not_there(self):
        text, = self.one(["/opt/no/aprun", "--node"]).wait("failed 0")
        self.assertRegex(
            text,
            r"host 'ws1': ssh reached it, but there is no /opt/no/aprun .*not found.*; install APlib there, or give the"
            r" path of its "
            r'aprun \(aprun = "..."\)',
        )

    def test_program_that_cannot_be_executed(self):
        text, = self.one([self.sshd.folder.write("data", "x", 0o644)]).wait("failed 0")
        self.assertRegex(text, r"host 'ws1': ssh reached it, but .*/data cannot be executed there")

    def test_status_of_the_program(self):
        for status in (0, 3, 255):  # ssh also ends with 255 when it fails itself
            self.one([STAND_IN, "exit", status]).wait(f"ended 0 {status} ")
        run = self.one([STAND_IN, "kill", "KILL"])
        run.wait("ended 0 137 ")
        run = self.one([STAND_IN, "break", 7])  # in the middle of a line
        run.wait("ended 0 7 ")
        run.wait("said 0 in the middle of a$")

    def test_login_refused(self):
        other = servers.Sshd(authorize=False)
        self.addCleanup(other.close)
        began = time.monotonic()
        text, = self.drive([("ssh", "ws1", "127.0.0.1")], other).wait("failed 0")
        self.assertRegex(
            text,
            r"host 'ws1': ssh to 127.0.0.1 failed \(\".*Permission denied \(publickey\).*\"\); log in there by a key"
            r" that needs no "
            r"password .*try `ssh -F .* 127.0.0.1 true`",
        )
        self.assertEqual(
            other.log.read_text().count("Connection from 127.0.0.1"),
            1 + 1,
            "once by the test itself, once by ssh: no second try",
        )
        print(f"refused after {time.monotonic() - began:.2f} s")

    def test_unknown_host_key(self):
        other = servers.Sshd()
        self.addCleanup(other.close)
        other.folder.write("known_hosts", "")
        text, = self.drive([("ssh", "ws1", "127.0.0.1")], other).wait("failed 0")
        self.assertRegex(
            text,
            r"host 'ws1': ssh to 127.0.0.1 failed .*Host key verification failed.*; check the host's key, then log in"
            r" once by hand",
        )

    def test_nobody_listens(self):
        port = servers.free_port()
        text, = self.drive([("ssh", "ws1", f"127.0.0.1:{port}")]).wait("failed 0")
        self.assertRegex(
            text,
            r"host 'ws1': ssh to 127.0.0.1 failed 2 times .*Connection refused.*; is it on, is its name right, does"
            r" sshd run there",
        )

    def test_no_such_name(self):
        text, = self.drive([("ssh", "ws1.invalid")]).wait("failed 0")
        self.assertRegex(
            text,
            r"host 'ws1.invalid': ssh to ws1.invalid failed.* \(\".*(Could not resolve|resolution).*\"\); is it on, is"
            r" its name right",
        )

    def test_ssh_that_is_missing(self):
        run = Driver([("ssh", "ws1")], "/no/such/ssh -v")
        self.addCleanup(run.close)
        text, = run.wait("failed 0")
        self.assertRegex(
            text, r"host 'ws1': cannot execute /no/such/ssh: No such file or directory; install an ssh client"
        )

    def test_connection_that_breaks(self):
        run = self.one([STAND_IN, "wait"])
        run.wait("said 0 arrived")
        if not ENCLOSED:
            self.skipTest("needs namespaces: it sees its processes alone")
        for pid, line in namespaces.processes().items():
            if line.startswith("sshd:") and "@notty" in line:
                os.kill(pid, signal.SIGKILL)
        text, = run.wait("failed 0")
        self.assertRegex(text, r"host 'ws1': the ssh connection to it broke")
        self.assert_nothing_left()

    def test_busy_server_is_tried_again(self):
        """MaxStartups 1:100:1 drops every connection beyond the first that has not logged in yet."""
        busy = servers.Sshd("MaxStartups 1:100:1\nLoginGraceTime 60")
        self.addCleanup(busy.close)
        holder = socket.create_connection(
            ("127.0.0.1", busy.port)
        )  # it never logs in, so every other connection is dropped
        self.addCleanup(holder.close)
        holder.recv(4)
        run = self.drive([("ssh", f"ws{i}", "127.0.0.1") for i in range(3)], busy)
        self.assertTrue(
            namespaces.wait_until(lambda: "past MaxStartups" in busy.log.read_text(), 60), busy.log.read_text()
        )
        self.assertEqual([line for line in run.lines if "failed" in line], [])
        holder.close()
        run.wait("arrived", 3)
        drops = busy.log.read_text().count("past MaxStartups")
        self.assertGreaterEqual(drops, 1)
        run.close()
        self.assert_nothing_left()

    def test_at_most_eight_at_once(self):
        """Nodes that delay their login: a ninth begins only after one of the first eight has logged in."""
        gate = self.sshd.folder.path / "gate"
        os.mkfifo(gate)
        hold = self.sshd.folder.write(
            "hold", f'#!/bin/sh\necho x >> "{gate}.began"\nread -r x < "{gate}"\nexec "$@"\n', 0o700
        )
        began = gate.with_suffix(".began")
        run = Driver([("ssh", f"ws{i}", "127.0.0.1") for i in range(10)], f"{hold} {self.sshd.command}")
        self.addCleanup(run.close)
        count = lambda: len(began.read_text().splitlines()) if began.exists() else 0  # noqa: E731
        self.assertTrue(namespaces.wait_until(lambda: count() == 8, 60))
        # The driver has nothing more to do: all its threads sleep and keep sleeping. A ninth node would be among its
        # children, which are these and the guard.
        self.assertTrue(namespaces.wait_until(lambda: driver.is_at_rest(run.process.pid), 60))
        self.assertEqual(count(), 8)
        self.assertEqual(len([line for line in driver.children(run.process.pid) if "start_driver" not in line]), 8)
        with open(gate, "w", encoding="utf-8") as opener:
            opener.write("go\n" * 1)
            opener.flush()
            self.assertTrue(namespaces.wait_until(lambda: count() >= 9, 60))
            opener.write("go\n" * 20)
            opener.flush()
            run.wait("said . arrived", 8)

    def test_stopped_node_is_killed_on_its_host(self):
        run = self.one([STAND_IN, "stop"])
        pid = int(run.wait("said 0 pid")[0].split()[-1])
        self.assertTrue(namespaces.wait_until(lambda: "T (stopped)" in Path(f"/proc/{pid}/status").read_text(), 60))
        self.assertIn("gone", run.close())
        self.assertTrue(namespaces.wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 60))
        self.assert_nothing_left()

    def test_killed_launcher_leaves_nothing(self):
        run = self.one([STAND_IN, "wait"])
        run.wait("said 0 arrived")
        run.process.kill()
        run.close()
        self.assert_nothing_left()


if __name__ == "__main__":
    if ENCLOSED:
        namespaces.enclose()
    driver.run_tests(servers.missing(servers.Sshd.NEEDS))
