#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many messages between processes, each with a number and a checksum. None may be lost, doubled, overtaken or changed.

    tests/system/soak/soak.py --build build/release --messages 100000000

Without --messages: enough for some seconds, and two runs in which a cell loses or spoils a message, which the test must
notice.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

MESSAGES_IN_TESTS = 300_000
MESSAGES_IN_FAULTY = 20_000


def cluster_text(arguments):
    return f"""[machine]
cells = {arguments.processes * arguments.cells}
[[host]]
name = "process"
launch = "local"
count = {arguments.processes}
cells = {arguments.cells}
threads = 1
[comm]
module = "{arguments.module}"
secure = "{arguments.secure}"
"""


def run(arguments, folder, messages, fault=()):
    """Runs a machine. Returns (status, output)."""
    file = pathlib.Path(folder) / "soak.toml"
    file.write_text(cluster_text(arguments), encoding="utf-8")
    folder = arguments.build.resolve() / "bin"
    command = [folder / "aprun", "-f", file, folder / "soak", messages, arguments.seed, arguments.processes, *fault]
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        default=pathlib.Path("build/release"),
        help="build folder (default: build/release)",
    )
    parser.add_argument("--messages", type=int, help="how many in all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cells", type=int, default=2, help="of each process (default: 2)")
    parser.add_argument("--module", default="tcp", help="what carries them (default: tcp)")
    parser.add_argument("--secure", default="auth", choices=["auth", "tls", "off"])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_007)
    arguments = parser.parse_args()
    if not (arguments.build / "bin" / "soak").exists():
        print(f"there is no {arguments.build}/bin/soak: build the target soak", file=sys.stderr)
        return 2
    print(f"soak: seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        messages = arguments.messages or MESSAGES_IN_TESTS
        status, output = run(arguments, folder, messages)
        print(output, flush=True)
        failures = [] if status == 0 and f"soak: {messages} messages" in output else [f"status {status}"]
        if arguments.messages is None:
            for fault, word in (("lose", "a number"), ("spoil", "a checksum")):
                status, output = run(arguments, folder, MESSAGES_IN_FAULTY, [fault])
                if status == 0 or word not in output:
                    failures.append(
                        f"a cell that was told to {fault} a message was not noticed: status {status}: {output}"
                    )
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
