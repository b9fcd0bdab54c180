# SPDX-License-Identifier: MIT
"""libfabric alone, the floor of the module rdma: its own fi_pingpong between two processes of this computer, on a core
each."""

import os
import re
import shutil
import socket
import subprocess
import time

PROVIDERS = ["tcp", "shm"]
BYTES = 8
ITERATIONS = {"tcp": 5000, "shm": 50000}  # some 50 ms, because fi_pingpong prints one mean
SECONDS_MAX = 60
BEGIN_SECONDS_MAX = 10


class Failed(Exception):
    """What fi_pingpong said."""


def alone(program, provider, case, size):
    """What bench-fabric measures: ns one way (latency), GB/s (write)."""
    try:
        done = subprocess.run(
            [str(program), provider, case, str(size)], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"bench-fabric {provider} {case} did not end within {SECONDS_MAX} s") from error
    if done.returncode != 0:
        raise Failed(" / ".join(done.stderr.strip().splitlines()[-2:]))
    return float(done.stdout)


def hindrance():
    """Why it cannot be measured here, or None."""
    if shutil.which("fi_pingpong") is None:
        return "fi_pingpong is not installed; run scripts/peers"
    if len(os.sched_getaffinity(0)) < 2:
        return "two usable cores are needed, and this process has one (see taskset)"
    return None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def microseconds(text, size):
    """The column usec/xfer, one way, of fi_pingpong's line for the size."""
    found = re.search(rf"^{size}\s.*?([\d.]+)\s+[\d.]+\s*$", text, re.MULTILINE)
    if not found:
        raise Failed(f"fi_pingpong printed no line for {size} bytes: " + " / ".join(text.strip().splitlines()[-2:]))
    return float(found.group(1))


def ping_pong(provider, size=BYTES):
    """ns one way."""
    cores = sorted(os.sched_getaffinity(0))
    port = free_port()
    words = ["-p", provider, "-e", "rdm", "-I", str(ITERATIONS[provider]), "-S", str(size)]

    def start(core, *more):
        return subprocess.Popen(
            ["taskset", "-c", str(core), "fi_pingpong", *words, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    server = start(cores[1], "-B", str(port))
    try:
        begun = time.monotonic()
        while True:
            client = start(cores[0], "-P", str(port), "127.0.0.1")
            try:
                text, _ = client.communicate(timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired as error:
                client.kill()
                client.communicate()
                raise Failed(f"fi_pingpong with provider {provider} did not end within {SECONDS_MAX} s") from error
            if client.returncode == 0:
                return 1000 * microseconds(text, size)
            # The server may not listen yet, and does not say when it does.
            if server.poll() is not None or time.monotonic() - begun > BEGIN_SECONDS_MAX:
                raise Failed(f"fi_pingpong with provider {provider}: " + " / ".join(text.strip().splitlines()[-2:]))
            time.sleep(0.05)
    finally:
        server.kill()
        server.communicate()
