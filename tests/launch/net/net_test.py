#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apctl net between sites that are far from each other: what comes is what the paths have, and what fails is said.

    net_test.py BIN [-k NAME]         BIN has apctl, aprun and wan

Rates are bounded from above; a busy computer is slower."""

import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from sites_machine import Measuring, namespaces
from sites import Wan

BIN = Path(sys.argv[1]).resolve()
PATIENCE = 120  # seconds for what takes one or two
NAMES = ["near", "far", "slow"]
DELAY_MS = {"near": 1, "far": 10, "slow": 4}  # to and from anywhere: half of the delay of each end
RATE_MBIT = {"near": 160, "far": 160, "slow": 8}


def paths():
    return {
        (a, b): {"delay": f"{(DELAY_MS[a] + DELAY_MS[b]) / 2}ms", "rate": f"{min(RATE_MBIT[a], RATE_MBIT[b])}Mb/s"}
        for a in NAMES for b in NAMES if a != b
    }


class Net(unittest.TestCase):
    def measure(self, *options, seconds=0.3, **more):
        self.network = namespaces.Network(NAMES, wan=Wan(BIN / "wan", paths()))
        self.addCleanup(self.network.close)
        return Measuring(BIN, self.network.hosts, ["--seconds", str(seconds), *options], **more)

    def check_pair(self, measuring, a, b):
        pair = measuring.pairs[a, b]
        self.assertNotIn("problem", pair, measuring.errors)
        least = DELAY_MS[a] + DELAY_MS[b]
        self.assertGreaterEqual(pair["round_trip_ms"], least)
        self.assertLess(pair["round_trip_ms"], least + 50)
        rate = min(RATE_MBIT[a], RATE_MBIT[b]) / 8
        self.assertLess(pair["mbyte_per_second"], 1.05 * rate)
        self.assertGreater(pair["mbyte_per_second"], 0.2 * rate)
        self.assertGreaterEqual(pair["streams"], 1)

    def test_a_matrix_of_all_pairs(self):
        options = ["--png", "/run/aptest/net.png"] if shutil.which("gnuplot") else []
        # Long enough for links to have found their lanes, and what came out of order to count little.
        measuring = self.measure(*options, seconds=1.5).finish()
        self.assertEqual(measuring.status, 0, measuring.errors)
        for a in NAMES:
            for b in NAMES:
                if a != b:
                    self.check_pair(measuring, a, b)
        self.assertRegex(measuring.text, r"from \\ to +near +far +slow\n")
        self.assertRegex(measuring.text, r"(?m)^slow: .* MB/s both ways, the others .*: its own link limits$")
        self.assertEqual(len(measuring.found["outliers"]), 1, measuring.found["outliers"])
        if options:
            self.assertEqual(Path(options[1]).read_bytes()[:4], b"\x89PNG")
        self.assertEqual(namespaces.processes().keys() - {self.network.wan.process.pid}, set())

    def test_each_host_of_a_range_is_one(self):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        file = folder / "range.toml"
        for count in (1, 2):
            file.write_text('[comm]\nmodule = "tcp"\n[[host]]\nlaunch = "local"\nname = "a-[1-3]"\n'
                            f"count = {count}\n")
            done = subprocess.run([BIN / "apctl", "net", "-f", file, "--seconds", "0.1"], capture_output=True,
                                  text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, "3 pairs of 3 hosts in 3 rounds")

    def test_a_host_that_does_not_start(self):
        measuring = self.measure(broken=["far"]).finish()
        self.assertEqual(measuring.status, 1)
        self.check_pair(measuring, "near", "slow")
        self.check_pair(measuring, "slow", "near")
        self.assertRegex(measuring.text, r"(?m)^far: not measured with all others: .*status 1")
        self.assertIn("problem", measuring.pairs["near", "far"])
        self.assertNotIn("nothing was started", measuring.text)

    def test_a_host_that_dies_while_it_measures(self):
        measuring = self.measure(seconds=2)
        wan, names = self.network.wan, [("near", "far"), ("far", "near")]
        self.assertTrue(namespaces.wait_until(lambda: any(wan.counters()[pair]["bytes"] > 1e6 for pair in names), 120))
        measuring.kill(self.network.hosts[1])
        measuring.finish()
        self.assertEqual(measuring.status, 1, measuring.text)
        self.check_pair(measuring, "near", "slow")
        self.check_pair(measuring, "slow", "near")
        self.assertIn("problem", measuring.pairs["far", "near"])
        self.assertRegex(measuring.text, r"(?m)^far.* not measured")

    def test_an_interruption_shows_what_stands(self):
        measuring = self.measure(seconds=10)
        wan = self.network.wan
        self.assertTrue(namespaces.wait_until(lambda: wan.counters()["far", "slow"]["bytes"] > 1e5, 120))
        measuring.process.send_signal(signal.SIGINT)
        measuring.finish()
        self.assertEqual(measuring.status, 130, measuring.errors)
        self.assertIn("from \\ to", measuring.text)


if __name__ == "__main__":
    reason = namespaces.hindrance() or Wan.hindrance()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    namespaces.enclose()
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result
    sys.exit(not (result.testsRun and result.wasSuccessful()))
