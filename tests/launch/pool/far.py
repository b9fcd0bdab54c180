#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures how long runs of a program that only prints take on two hosts of a pool that are far away, in round trips.

    far.py BIN [RTT in ms...]         BIN has aprun, apctl, apkeeper, apcc and wan"""
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "start"))
import servers  # noqa: E402
from servers import namespaces  # noqa: E402
from sites import Wan  # noqa: E402

BIN = Path(sys.argv[1]).resolve()
RUNS = 9
HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'


def main():
    namespaces.enclose()
    folder = servers.Folder("far")
    subprocess.run([BIN / "apcc", folder.write("hello.c", HELLO), "-o", folder.path / "hello"], check=True)
    wan = Wan(BIN / "wan", delay="0ms")
    with namespaces.Network(["ws1", "ws2", "desk"], wan=wan) as network:
        *hosts, desk = network.hosts
        sshd = servers.Sshd("MaxStartups 100", hosts=hosts)
        lines = [f'[machine]\nssh-options = ["-F", "{sshd.folder.path}/ssh_config"]\n']
        lines += [f'[[host]]\nname = "{host.name}"\nssh = "{host.address}"\ncells = 1\n' for host in hosts]
        file = folder.write("p.toml", "".join(lines))

        def run(*words):
            begin = time.monotonic()
            done = desk.run([BIN / words[0], *words[1:]], cwd=folder.path, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{words}: {done}")
            return (time.monotonic() - begin) * 1000

        run("apctl", "up", "-f", file)
        here = None
        for rtt in [0, *map(float, sys.argv[2:] or ["50", "100"])]:
            for one in network.hosts:
                for other in network.hosts:
                    if one is not other:
                        wan.set(one, other, delay=f"{rtt / 2}ms")
            run("aprun", "--in", "p", "./hello")
            times = [run("aprun", "--in", "p", "./hello") for _ in range(RUNS)]
            here = here or statistics.median(times)
            trips = f", {(statistics.median(times) - here) / rtt:.2f} round trips more than at 0" if rtt else ""
            print(f"rtt {rtt:5.0f} ms: median {statistics.median(times):6.1f} ms, least {min(times):6.1f}{trips}",
                  flush=True)
        run("apctl", "down", "p")
        sshd.close()
    folder.remove()


if __name__ == "__main__":
    main()
