#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apctl net on the seven sites of the RENKEI-PoP paper, with a tenth of their rates, beside iperf3 pair by pair.

    seven_sites_test.py BIN [--keep FOLDER]         BIN has apctl, aprun and wan

The internet, both ends and iperf3 share the processors of this computer, and whoever gets too little of them is slower.
So what misses its bound is measured again, alone, and of up to three figures the best one counts, on both sides. More
than iperf3 is no miss if it is no more than the path has: then iperf3 is what got too little. All figures are
printed."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from sites_machine import Measuring, namespaces
import seven_sites
from sites import Wan

BIN = Path(sys.argv[1]).resolve()
RATE_ERROR = 0.07
ROUND_TRIP_ERROR = 0.03
ROUND_TRIP_ERROR_MS = 0.5
SECONDS = 60
TRIES = 3
PEER_SECONDS = 3  # of iperf3, behind a second for growing


def iperf3(source, target):
    """MB/s of one stream."""
    server = target.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not namespaces.wait_until(lambda: listens(target), 20):
            raise RuntimeError("iperf3 does not listen")
        words = ["iperf3", "-c", target.address, "-J", "-O", "1", "-t", PEER_SECONDS]
        done = source.run(words, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8e6
    finally:
        server.terminate()
        server.wait()


def listens(host):
    port = f":{5201:04X}"
    tables = host.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], stdout=subprocess.PIPE, text=True).stdout
    return any(row.split()[1].endswith(port) and row.split()[3] == "0A" for row in tables.splitlines() if port in row)


def misses(pair, a, b, peer):
    trip = seven_sites.round_trip_ms(a, b)
    found = []
    error = abs(pair["round_trip_ms"] - trip)
    if error > max(ROUND_TRIP_ERROR * trip, ROUND_TRIP_ERROR_MS):
        found.append(f"round trip {pair['round_trip_ms']:.2f} ms, not {trip:.2f}")
    rate = pair["mbyte_per_second"]
    most = max((1 + RATE_ERROR) * peer, seven_sites.mbit_per_second(a, b) / 8)
    if not (1 - RATE_ERROR) * peer <= rate <= most:
        found.append(f"{rate:.2f} MB/s, iperf3 {peer:.2f}: {rate / peer:.3f}")
    return found


def better(one, other):
    return {key: choose(one[key], other[key])
            for key, choose in (("round_trip_ms", min), ("mbyte_per_second", max))}


def main():
    names, failed = seven_sites.NAMES, []
    with namespaces.Network(names, wan=seven_sites.wan(BIN / "wan", offload=True)) as network:
        begun = time.monotonic()
        png = shutil.which("gnuplot") is not None
        folder = Path(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else Path("/run/aptest")
        options = ["--png", folder / "seven-sites.png"] if png else []
        measuring = Measuring(BIN, network.hosts, options).finish()
        seconds = time.monotonic() - begun
        print(measuring.text, measuring.errors, sep="\n")
        (folder / "seven-sites.json").write_text(json.dumps(measuring.found, indent=2))
        print(f"{seconds:.1f} s", flush=True)
        if measuring.status != 0 or seconds > SECONDS:
            failed.append(f"status {measuring.status} after {seconds:.1f} s")
        if not any(line.startswith("nagoya: ") and line.endswith("its own link limits")
                   for line in measuring.found["outliers"]):
            failed.append("nagoya is not named")
        for a, b in seven_sites.pairs():
            source, target = network.hosts[a], network.hosts[b]
            pair = measuring.pairs[names[a], names[b]]
            peer = iperf3(source, target)
            for attempt in range(TRIES):
                if attempt:
                    pair = better(pair, Measuring(BIN, [source, target]).finish().pairs[names[a], names[b]])
                    peer = max(peer, iperf3(source, target))
                found = misses(pair, a, b, peer)
                trip, rate = pair["round_trip_ms"], pair["mbyte_per_second"]
                print(f"{names[a]:8}{names[b]:8}{trip:6.2f} ms of{seven_sites.round_trip_ms(a, b):6.2f}"
                      f"{rate:8.2f} MB/s of{seven_sites.mbit_per_second(a, b) / 8:7.2f}"
                      f"  iperf3{peer:8.2f}  ratio {rate / peer:.3f}  {'; '.join(found)}", flush=True)
                if not found:
                    break
            else:
                failed.append(f"{names[a]} to {names[b]}: {'; '.join(found)}")
    print(*failed, sep="\n")
    return bool(failed)


if __name__ == "__main__":
    reason = namespaces.hindrance() or Wan.hindrance()
    if not reason and shutil.which("iperf3") is None:
        reason = "needs the tool iperf3 (package iperf3)"
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    namespaces.enclose()
    sys.exit(main())
