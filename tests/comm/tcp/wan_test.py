#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Long links between two sites: they use several connections where one would not do, and outlive a cut.

    wan_test.py BIN [-k NAME]         BIN has comm_tcp_wan_peer and wan
    wan_test.py BIN --figure          prints rates beside those of iperf3, by hand on a quiet machine"""

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import namespaces  # noqa: E402
from sites import Wan  # noqa: E402

BIN = Path(sys.argv[1]).resolve()
NAMES = ["here", "there"]
MIB = 1 << 20


def network(delay_ms, rate):
    return namespaces.Network(NAMES, wan=Wan(BIN / "wan", delay=f"{delay_ms / 2}ms", rate=rate))


def listens(host, port):
    return host.run(["ss", "-Hltn", f"sport = :{port}"], stdout=subprocess.PIPE, check=True).stdout != b""


class Stream:
    """Frames from the first host to the second one."""

    def __init__(self, hosts, frames, size, streams=0, resume=30):
        key = secrets.token_hex(32)

        def start(number, host, other):
            words = [BIN / "comm_tcp_wan_peer", key, number, host.address, other.address, frames, size, streams, resume]
            return host.popen(words, stdout=subprocess.PIPE, text=True)

        here, there = hosts
        receiver = start(1, there, here)
        if not namespaces.wait_until(lambda: listens(there, 5100), 60):
            receiver.kill()
            raise AssertionError(f"{there.name} does not listen: {receiver.communicate()}")
        self.peers = [start(0, here, there), receiver]

    def finish(self, timeout=120):
        """Statuses and output."""
        end = time.monotonic() + timeout
        for peer in self.peers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                peer.wait(max(0, end - time.monotonic()))
            peer.kill()
        texts = [peer.communicate()[0] for peer in self.peers]
        return [peer.returncode for peer in self.peers], texts


class LongLinks(unittest.TestCase):
    def connect(self, delay_ms, rate):
        made = network(delay_ms, rate)
        self.addCleanup(made.close)
        return made

    def test_several_connections_carry_a_stream(self):
        net = self.connect(100, "200Mb/s")
        statuses, texts = Stream(net.hosts, 24, MIB).finish()
        self.assertEqual(statuses, [0, 0], texts)
        self.assertRegex(texts[0], r", ([2-9]|1\d) streams, auth\n")

    def test_there_is_one_where_one_is_asked_for(self):
        net = self.connect(100, "200Mb/s")
        statuses, texts = Stream(net.hosts, 24, MIB, streams=1).finish()
        self.assertEqual(statuses, [0, 0], texts)
        self.assertIn(", 1 stream, auth\n", texts[0])

    def test_a_stream_outlives_a_cut(self):
        net = self.connect(20, "100Mb/s")
        here, there = net.hosts
        stream = Stream(net.hosts, 30, MIB)
        counters = net.wan.counters
        if not namespaces.wait_until(lambda: counters()["here", "there"]["bytes"] > 4e6, 60):
            self.fail(f"{counters()}, {stream.finish(0.1)}")
        # The connections themselves end: their packets are answered by a reset from where they came from.
        for host in (here, there):
            host.run(["ss", "--kill", "--tcp", "state", "established"], stdout=subprocess.DEVNULL, check=True)
        statuses, texts = stream.finish()
        self.assertEqual(statuses, [0, 0], texts)


def iperf3(hosts, streams, size):
    """Mb/s of so many bytes."""
    source, target = hosts
    server = target.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    words = ["iperf3", "-c", target.address, "-J", "-P", streams, "-n", size]
    done = source.run(words, stdout=subprocess.PIPE, text=True, check=True)
    server.wait()
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6


def figure():
    for delay_ms, rate in ((100, "1Gb/s"), (0.1, "1Gb/s")):
        with network(delay_ms, rate) as net:
            for turn in range(3):
                peer = iperf3(net.hosts, 8, 500 * MIB)
                statuses, texts = Stream(net.hosts, 500, MIB).finish()
                print(f"{delay_ms} ms {rate}: iperf3 -P 8 {peer:.1f} Mb/s; {texts[0].strip()} {statuses}; ratio "
                      f"{float(texts[0].split()[1]) / peer:.3f}", flush=True)


if __name__ == "__main__":
    reason = namespaces.hindrance() or Wan.hindrance()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    namespaces.enclose()
    if "--figure" in sys.argv:
        sys.exit(figure())
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result
    sys.exit(not (result.testsRun and result.wasSuccessful()))
