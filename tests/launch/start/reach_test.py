#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Machines whose hosts cannot all call each other: behind NAT, behind gateways of which only ssh is open. The desk
where aprun runs is behind a NAT of its own. Both sites have the same private addresses, as many have.

    reach_test.py BIN [NAME]         BIN has aprun, apctl, apcc and wan"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import driver
import servers
from servers import namespaces

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import sites  # noqa: E402

CHAOS = Path(__file__).resolve().parents[2] / "system" / "chaos"
PROGRAMS = Path("/run/aplib-reach-programs")
RING = PROGRAMS / "ring"
SSH = 2222
RELAY = 7000
LOST = 72  # docs/exit-status.md
PATIENCE = 120


class Sites:
    """desk behind a NAT; n1, n2 behind login1, and m1 behind login2, of which only ssh is open; open, with an address
    that everybody reaches."""

    def __init__(self, open_ports=(SSH,), is_closed=False):
        self.wan = sites.Wan(driver.BIN / "wan", delay="1ms")
        private = {"ports": open_ports, "subnet": "192.168.7", "is_closed": is_closed}
        self.network = namespaces.Network(
            [
                sites.Site("home", behind=("desk",)),
                sites.Site("login1", behind=("n1", "n2"), **private),
                sites.Site("login2", behind=("m1",), **private),
                "open",
            ],
            wan=self.wan,
        )
        home, self.login1, self.login2, self.open = self.network.hosts
        self.desk, = home.inner
        self.n1, self.n2 = self.login1.inner
        self.m1, = self.login2.inner
        hosts = [self.login1, self.login2, self.open, self.n1, self.n2, self.m1]
        self.sshd = servers.Sshd("MaxStartups 100", hosts=hosts)

    def close(self):
        self.sshd.close()
        self.network.close()

    def by_ssh(self, host):
        return f'[[host]]\nname = "{host.name}"\nssh = "{host.address}"\ncells = 1\n'

    def behind(self, gateway):
        names = ", ".join(f'"{host.name}"' for host in gateway.inner)
        return f'[[site]]\ngateway = "{gateway.address}"\nhosts = [{names}]\n'


class Reach(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = servers.missing(servers.Sshd.NEEDS) or sites.Site.hindrance() or sites.Wan.hindrance()
        if reason:
            raise unittest.SkipTest(reason)
        namespaces.make_programs(driver.BIN / "apcc", [CHAOS / "ring.c"], PROGRAMS)
        cls.sites = Sites()

    @classmethod
    def tearDownClass(cls):
        if hasattr(cls, "sites"):
            cls.sites.close()

    def write_file(self, hosts, more=""):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = Path(folder.name, "cluster.toml")
        options = f'ssh-options = ["-F", "{self.sites.sshd.folder.path}/ssh_config"]'
        file.write_text(f'[machine]\nprogram = "{RING}"\n{options}\n{more}\n' + "".join(hosts))
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": folder.name, "TMPDIR": folder.name}
        self.folder = Path(folder.name)
        return file

    def start(self, hosts, *arguments, more=""):
        return self.launch(["-f", self.write_file(hosts, more)], *arguments)

    def launch(self, where, *arguments):
        process = self.sites.desk.popen(
            [driver.BIN / "aprun", *where, RING, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        process.communicate()

    def finish(self, process):
        output, errors = process.communicate(timeout=PATIENCE)
        self.assertTrue(
            namespaces.wait_until(lambda: not any("aprelay" in line for line in namespaces.processes().values()), 20)
        )
        return process.returncode, output.splitlines(), errors.splitlines()

    def ways(self):
        """{(process, process): how they are connected}"""
        shown = self.sites.desk.run(
            [driver.BIN / "apctl", "status"], stdout=subprocess.PIPE, text=True, check=True, env=self.environment
        ).stdout
        return {
            (int(line.split()[0]), int(line.split()[1])): line.split(None, 2)[2]
            for line in shown.splitlines()
            if re.match(r"\d+ +\d+ +(tcp|shm)", line)
        }

    def all_hosts(self):
        s = self.sites
        return [
            '[[host]]\nlaunch = "local"\nname = "desk"\ncells = 1\n',
            *(s.by_ssh(host) for host in (s.n1, s.n2, s.m1)),
            s.behind(s.login1),
            s.behind(s.login2),
        ]

    def test_two_private_sites_and_a_desk(self):
        process = self.start(self.all_hosts(), 300)
        status, output, errors = self.finish(process)
        self.assertEqual((status, output, errors), (0, ["all run", "all done"], []))
        self.assertEqual(list((self.folder / "aplib").iterdir()), [])

    def relays(self):
        """{pid: socket} of those on gateways."""
        return {pid: Path(line.split()[3]) for pid, line in namespaces.processes().items()
                if re.match(r"\S*aprelay --session --socket ", line)}

    def test_what_is_killed_leaves_nothing_for_long(self):
        process = self.start(self.all_hosts())
        self.assertEqual(process.stdout.readline(), "all run\n")
        relays = self.relays()
        self.assertEqual(len(relays), 2)
        for pid in relays:
            os.kill(pid, signal.SIGSTOP)  # one that is stopped does not tidy up
        process.kill()
        for pid in relays:
            os.kill(pid, signal.SIGKILL)
        self.finish(process)
        left = [*relays.values(), self.folder / "aplib" / f"{process.pid}.sockets"]
        self.assertEqual([path for path in left if not path.exists()], [])
        self.assertEqual(self.finish(self.launch(["-f", self.folder / "cluster.toml"], 10))[0], 0)
        self.assertEqual([path for path in left if path.exists()], [])

    def apctl(self, *words):
        done = self.sites.desk.run([driver.BIN / "apctl", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def check_hosts(self):
        s, home = self.sites, self.sites.network.hosts[0]
        far, usual = ({"delay": delay} for delay in ("200ms", "1ms"))
        s.wan.set(home, s.login1, **far)
        hosts = {}

        def look():
            hosts.update({host["host"]: host for host in json.loads(self.apctl("hosts", "far", "--json"))})
            trips = {name: hosts[name].get("round_trip_ms", 1e9) for name in ("n1", "n2", "m1")}
            return max(trips["n1"], trips["n2"]) < 390 and trips["m1"] < 200  # to and fro once

        self.assertTrue(namespaces.wait_until(look, PATIENCE), hosts)  # more on a computer with much to do
        s.wan.set(home, s.login1, **usual)
        self.assertEqual([(name, host.get("site")) for name, host in sorted(hosts.items())],
                         [("desk", None), ("m1", s.login2.address), ("n1", s.login1.address),
                          ("n2", s.login1.address)])
        for name in ("n1", "n2"):
            self.assertGreaterEqual(hosts[name]["round_trip_ms"], 200)

    def test_a_pool_of_two_private_sites(self):
        self.apctl("up", "-f", self.write_file(self.all_hosts()), "--name", "far")
        self.addCleanup(self.apctl, "down", "far")
        self.check_hosts()
        for _ in range(2):
            status, output, errors = self.finish(self.launch(["--in", "far"], 300))
            self.assertEqual((status, output, errors), (0, ["all run", "all done"], []))

    def start_until_told(self, hosts, more=""):
        file = self.write_file(hosts, more)
        self.told = self.folder / "told"
        return self.launch(["-f", file], 0, 16, self.told)

    def read_to_round(self, process, number):
        """Messages go to and fro after what has been done before."""
        while (line := process.stdout.readline()) != f"round {number}\n":
            self.assertRegex(line, r"^round \d+\n$", process.stderr.read() if not line else "")

    def tell(self, process):
        """What is left in the end: (status, the last line, errors)."""
        self.told.touch()
        status, output, errors = self.finish(process)
        return status, output[-1:], errors

    def test_gateways_that_reach_each_other(self):
        s = Sites(open_ports=(SSH, RELAY), is_closed=True)
        self.addCleanup(s.close)
        self.sites = s
        hosts = [*(s.by_ssh(host) for host in (s.n1, s.n2, s.m1)), s.behind(s.login1), s.behind(s.login2)]
        process = self.start_until_told(hosts, more=f'[comm]\nports = "{RELAY}-{RELAY}"')
        line = process.stdout.readline()
        self.assertEqual(line, "all run\n", process.stderr.read() if not line else "")
        own, = (pid for pid, line in namespaces.processes().items() if line.endswith("--session --loopback"))
        os.kill(own, signal.SIGSTOP)  # nothing goes by it
        # What is between the two relays breaks, again and again.
        chance = random.Random(16)

        def cut():
            gateway, other = chance.sample([s.login1, s.login2], 2)
            return gateway.run(["ss", "-HKt", "state", "established", "dst", other.address], stdout=subprocess.PIPE,
                               check=True).stdout  # fmt: skip

        for power in range(10):
            self.assertTrue(namespaces.wait_until(cut, PATIENCE / 4))
            self.read_to_round(process, 2**power)
        os.kill(own, signal.SIGCONT)
        self.assertEqual(self.tell(process), (0, ["all done"], []))

    def test_reverse(self):
        s = self.sites
        hosts = [
            '[[host]]\nlaunch = "local"\nname = "desk"\ncells = 1\n',
            s.by_ssh(s.open),
            s.by_ssh(s.n1),
            f'[[site]]\ngateway = "{s.login1.address}"\nhosts = ["n1"]\n',
        ]
        process = self.start(hosts)
        line = process.stdout.readline()
        self.assertEqual(line, "all run\n", process.stderr.read() if not line else "")
        ways = self.ways()
        self.assertRegex(ways[0, 1], r"^tcp .*, reverse, \d+ streams?, auth$")
        self.assertRegex(ways[1, 2], r"^tcp .*, reverse, \d+ streams?, auth$")
        self.assertIn("by relay", ways[0, 2])
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process)[0], 130)

    def test_ways_are_shown_and_killed_relays_are_started_anew(self):
        process = self.start_until_told(self.all_hosts())
        self.assertEqual(process.stdout.readline(), "all run\n")
        ways = self.ways()
        one, two = self.sites.login1.address, self.sites.login2.address
        self.assertRegex(ways[1, 2], r"^tcp 192\.168\.7\.\d:\d+, ")
        self.assertEqual(ways[1, 3], f"tcp by relay {one}, {two}, 1 stream, tls")
        self.assertIn(f"by relay aprun, {one}", ways[0, 1])
        relay, = (pid for pid, path in self.relays().items() if path.name.endswith("-2"))
        own, = (pid for pid, line in namespaces.processes().items() if line.endswith("--session --loopback"))
        os.kill(relay, signal.SIGKILL)
        self.assertRegex(process.stderr.readline(), rf"^aprun: the relay on gateway '{two}' is lost: .*started anew\n$")
        os.kill(own, signal.SIGKILL)
        self.assertRegex(process.stderr.readline(), r"^aprun: the launcher's own relay .*started anew\n$")
        self.assertEqual(self.tell(process), (0, ["all done"], []))

    def test_a_relay_that_cannot_be_started_anew_is_named(self):
        process = self.start(self.all_hosts(), more='[comm]\nresume-time = "2s"')
        self.assertEqual(process.stdout.readline(), "all run\n")
        relay, = (pid for pid, path in self.relays().items() if path.name.endswith("-2"))
        authorized = self.sites.sshd.folder.path / "authorized"
        key = authorized.read_text()
        authorized.write_text("")  # nobody may log in
        try:
            os.kill(relay, signal.SIGKILL)
            status, _, errors = self.finish(process)
        finally:
            authorized.write_text(key)
        self.assertEqual((status, len(errors)), (LOST, 2), errors)
        self.assertRegex(errors[0], rf"^aprun: the relay on gateway '{re.escape(self.sites.login2.address)}' is lost")
        self.assertRegex(errors[1], "^aprun: .* is lost: .*(resume-time|Permission denied)")

    def test_a_way_to_a_gateway_that_is_cut(self):
        s, home = self.sites, self.sites.network.hosts[0]
        process = self.start(self.all_hosts(), more='[comm]\npeer-timeout = "3s"')
        self.assertEqual(process.stdout.readline(), "all run\n")
        s.wan.cut(home, s.login2)
        try:
            process.wait(PATIENCE)
        finally:
            s.wan.join(home, s.login2)
        status, _, errors = self.finish(process)
        self.assertEqual((status, len(errors)), (LOST, 1), errors)
        self.assertRegex(errors[0], r"^aprun: ((desk|n\d|m1) \(cell \d\)|the relay on gateway) .*lost")

    def test_gateway_that_is_not_there(self):
        s = self.sites
        hosts = [s.by_ssh(s.open), s.by_ssh(s.n1), '[[site]]\ngateway = "192.0.2.1"\nhosts = ["n1"]\n']
        s.desk.run(["ip", "route", "add", "unreachable", "192.0.2.1/32"], check=False)
        process = self.start(hosts, 10)
        status, _, errors = self.finish(process)
        self.assertEqual(status, 2)
        self.assertRegex(errors[0], r"^aprun: (the relay on gateway '192\.0\.2\.1' could not be started|host 'n1'): ")


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
    driver.run_tests(namespaces.hindrance())
