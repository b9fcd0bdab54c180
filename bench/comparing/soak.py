# SPDX-License-Identifier: MIT
"""bench/crowd --soak: patterns of bench/crowd at random, while other programs come and go. No sample takes ten times as
long as usual."""

import contextlib
import random
import statistics
import subprocess
import sys
import time

from . import crowd, sources

RATIO_MAX = 10
SHOWN, FAILURES_MAX = 10, 10
RUNS_MIN = 4  # of a kind, before it is known what is usual
SAMPLES, SAMPLE_MS = 12, 25
MANY = 64  # ranks, for which the other ways of running have no time
LONG = ("compute-100ms",)
# What the others do on so many cores: name, programs, seconds of work and of sleep in turns (no sleep: work alone).
LOADS = [("none", 0, 0, 0), ("one", 1, 1, 0), ("two", 2, 1, 0), ("coming", 2, 0.03, 0.05)]
WORK = """
import random, sys, time
work, sleep, seed = map(float, sys.argv[1:])
chance = random.Random(seed)
while True:
    end = time.monotonic() + work * chance.random() * 2
    while time.monotonic() < end: pass
    time.sleep(sleep * chance.random() * 2)
"""


@contextlib.contextmanager
def others(load, chance):
    _, programs, work, sleep = load
    command = ["timeout", "60", sys.executable, "-c", WORK, str(work), str(sleep)]
    running = [subprocess.Popen([*command, str(chance.random())]) for _ in range(programs)]
    try:
        yield
    finally:
        for each in running:
            each.terminate()
            each.wait()


class Soak:
    """The samples of each kind: library, pattern, ranks and load."""

    def __init__(self, libraries, patterns, ranks, seed):
        self.chance, self.kinds, self.failed = random.Random(seed), {}, []
        self.choices = [(library, pattern, count) for library in libraries for pattern in patterns for count in ranks
                        if pattern in crowd.PATTERNS and pattern.name not in LONG
                        and (count < MANY or library.name == "cells")]

    def run(self):
        library, pattern, ranks = self.chance.choice(self.choices)
        load = self.chance.choice(LOADS)
        kind = f"{pattern.name}, {ranks} ranks, {library.title}, others: {load[0]}"
        with others(load, self.chance):
            try:
                value, longest = library.measure(pattern, ranks, SAMPLES, SAMPLE_MS)
            except sources.Unusable as reason:
                self.failed.append(f"{kind}: {reason}")
                return
        self.kinds.setdefault(kind, []).append((value, longest))

    def worst(self):
        """(longest sample to the usual one, kind, text), the worst first, of kinds that are known well enough."""
        found = []
        for kind, runs in self.kinds.items():
            if len(runs) < RUNS_MIN:
                continue
            usual, longest = statistics.median(value for value, _ in runs), max(longest for _, longest in runs)
            times = f"usually {crowd.microseconds(usual)} us, at most {crowd.microseconds(longest)} us"
            found.append((longest / usual, kind, f"{times} in {len(runs)} runs"))
        return sorted(found, reverse=True)


def soak(libraries, chosen):
    """True: nothing took too long."""
    own = [library for library in libraries if library.name in crowd.OWN]
    soaking = Soak(own, chosen.patterns, chosen.ranks, chosen.seed)
    print(f"crowd: soak of {chosen.soak} s, seed {chosen.seed}", flush=True)
    end, runs = time.monotonic() + chosen.soak, 0
    while time.monotonic() < end and len(soaking.failed) < FAILURES_MAX:
        soaking.run()
        runs += 1
    worst = soaking.worst()
    for ratio, kind, text in worst[:SHOWN]:
        print(f"  {ratio:5.1f} x  {kind}: {text}")
    for each in soaking.failed:
        print(f"crowd: {each}", file=sys.stderr)
    slow = sum(ratio > RATIO_MAX for ratio, _, _ in worst)
    print(f"crowd: {runs} runs of {len(soaking.kinds)} kinds, {len(worst)} of them often enough; {slow} took more than "
          f"{RATIO_MAX} times as long as usual, {len(soaking.failed)} failed")
    return not slow and not soaking.failed
