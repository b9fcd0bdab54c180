# SPDX-License-Identifier: MIT
"""Runs start_driver for a test: what it starts, and its events."""
import re
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

BIN = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path()
STAND_IN = Path(__file__).resolve().parent / "stand_in"
KEY = "the key of the job"


def run_tests(hindrance):
    """Runs the tests of the calling script. If they cannot run, exits with status 77 and the reason."""
    if hindrance:
        print(f"skipped: {hindrance}")
        sys.exit(77)
    only = [word for name in sys.argv[2:] for word in ("-k", name)]
    result = unittest.main(argv=[sys.argv[0], *only], exit=False, verbosity=2).result
    if result.skipped and result.testsRun in (0, len(result.skipped)):
        for _, reason in result.skipped:
            print(f"skipped: {reason}")
        sys.exit(77)
    sys.exit(not (result.testsRun and result.wasSuccessful()))


def switches(pid):
    """[(state, number of times it has run)] of the threads of a process."""
    found = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        found.append((status["State"].split()[0], status["voluntary_ctxt_switches"].strip()))
    return found


def is_at_rest(pid):
    """Whether all threads of the process sleep, and none has run in between."""
    before = switches(pid)
    time.sleep(0.05)
    return before == switches(pid) and {state for state, _ in before} == {"S"}


def children(pid):
    """The command lines of the processes."""
    numbers = " ".join(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")).split()
    return [Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode() for number in numbers]


class Driver:
    """Nodes are (kind, host, address, folder, command, [words]). Items missing at the end are those of the stand-in
    that waits."""

    def __init__(self, nodes, ssh="ssh", prefix=(), environment=None):
        self.lines, self.more = [], threading.Condition()
        self.process = subprocess.Popen(
            [*prefix, BIN / "start_driver", ssh],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for node in nodes:
            kind, host, address, folder, command, words = (*node, *("", "", "", "", "", [STAND_IN, "wait"])[len(node):])
            print("\t".join([kind, host, address, folder, command, *map(str, words)]), file=self.process.stdin)
        print(file=self.process.stdin, flush=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line.rstrip("\n"))
                self.more.notify_all()
        with self.more:
            self.lines.append("end")
            self.more.notify_all()

    def wait(self, pattern, count=1, seconds=200):
        """Waits for `count` lines that match, and returns them."""
        with self.more:
            def found():
                return [line for line in self.lines if re.search(pattern, line)]
            if (
                not self.more.wait_for(lambda: len(found()) >= count or self.lines[-1:] == ["end"], seconds)
                or len(found()) < count
            ):
                raise AssertionError(f"{count} x {pattern!r} did not come:\n" + "\n".join(self.lines))
            return found()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends everything. Returns all lines."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.reader.join(30)
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        return self.lines
