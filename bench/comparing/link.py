# SPDX-License-Identifier: MIT
"""A program: prints the bandwidth of a link of 1 Gb/s in messages of 64 KiB, by sockets alone and by APlib, as JSON
lines. The link is between two network namespaces, which end with the program and need root.

    link.py BUILD_FOLDER
"""

import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests" / "support")]

import namespaces  # noqa: E402 (the path must be set first)
from paper.hosts import SlowHost, toml_text  # noqa: E402

BYTES = 65536
RATE = "1gbit"
PACE = ["--json", "--samples", "3", "--sample-ms", "100"]


def hindrance():
    """Why it cannot be measured here, or None."""
    return namespaces.hindrance()


def cluster_text(machines):
    hosts = [
        f'[[host]]\nname = "{one.name}"\ncommand = {toml_text(one.line())}\ncells = 1\nthreads = 1\n'
        for one in machines
    ]
    # They still share this computer's memory, so "auto" might bypass the link.
    return '[machine]\ncells = 2\n[comm]\nmodule = "tcp"\n' + "".join(hosts)


def main():
    programs = pathlib.Path(sys.argv[1]) / "bin"
    namespaces.enclose()
    with namespaces.Network(["near", "far"], rate=RATE) as network, tempfile.NamedTemporaryFile(
        "w", suffix=".toml"
    ) as file:
        near, far = network.hosts
        file.write(cluster_text([SlowHost(near, 0), SlowHost(far, 1)]))
        file.flush()
        between = ["--between", f"{near.namespace},{far.namespace}", "--address", far.address]
        commands = [
            [programs / "bench-net", "sockets-stream", "--bytes", BYTES, *between, *PACE],
            near.command(
                [programs / "apbench", "hosts", "--case", "stream", "--bytes", BYTES, "--cluster", file.name, *PACE]
            ),
        ]
        for command in commands:
            subprocess.run([str(word) for word in command], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
